"""Dialects bound to an engine: what answers a capsule's callers."""
