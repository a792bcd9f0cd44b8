"""A front door for agent capsules."""

from typing import Final

__version__: Final = "0.1.0"
"""Said here alone: the metadata of the distribution is made of it, and costs a start more than a megabyte to read."""
