"""`murmur.yaml` → a manifest, or every problem of it with its place."""
