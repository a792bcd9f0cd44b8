"""Directories to snapshots: a scan that is the truth, and hints of where to look."""
