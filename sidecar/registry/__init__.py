"""From snapshots of directories to the capsules that are to be served: ids, sessions, ports, last good manifests."""
