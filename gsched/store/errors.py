"""What can go wrong between the daemon and its disk; each text is one sentence for a log."""

from __future__ import annotations


class StoreError(Exception):
    """The state directory cannot be used."""


class StateLocked(StoreError):
    """Another controller holds the state directory."""


class StateTooNew(StoreError):
    """The state was written by a newer release: going back is refused."""


class NotLocal(StoreError):
    """The state directory lies on a network file system, where locks and mmap lie."""


class CommitFailed(StoreError):
    """A transaction did not reach the disk. The process must end: memory is ahead of the disk."""
