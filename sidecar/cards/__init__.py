"""Cards: what a capsule says about itself, one pure module per view."""
