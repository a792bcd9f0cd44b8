"""Handing tasks on to a live door elsewhere, and bringing back what is said there."""
