"""What can go wrong for a worker."""

from __future__ import annotations


class WorkerError(Exception):
    """The sidecar will not have it so: a wrong token, or a line that it refuses. The text says what to do."""


class TaskOverError(Exception):
    """The task is no longer this worker's: canceled, timed out, or handed to another one."""


class AwayError(Exception):
    """The sidecar or the capsule is not there now; it is worth trying again."""


class LostError(Exception):
    """The lease is no longer valid."""
