"""Read-only views of workspace files: the operator's plane and the peers'."""
