"""Who does a capsule's work: one module per backend."""
