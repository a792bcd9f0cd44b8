"""A front door for agent capsules."""
