"""The words for where a job, an attempt or a node stands. Values are stored: never renumber."""

from __future__ import annotations

import enum


class JobState(enum.IntEnum):
    """Base state of a job, numbered and named as Slurm's."""

    PENDING = 0
    RUNNING = 1
    SUSPENDED = 2
    COMPLETED = 3
    CANCELLED = 4
    FAILED = 5
    TIMEOUT = 6
    NODE_FAIL = 7
    PREEMPTED = 8
    BOOT_FAIL = 9
    DEADLINE = 10
    OUT_OF_MEMORY = 11

    @property
    def finished(self) -> bool:
        """True once the job will not run again under this attempt (COMPLETED and later)."""
        return self >= JobState.COMPLETED

    @property
    def compact(self) -> str:
        """Slurm's two-letter form, e.g. "PD"."""
        return _COMPACT[self]


_COMPACT = {
    JobState.PENDING: "PD",
    JobState.RUNNING: "R",
    JobState.SUSPENDED: "S",
    JobState.COMPLETED: "CD",
    JobState.CANCELLED: "CA",
    JobState.FAILED: "F",
    JobState.TIMEOUT: "TO",
    JobState.NODE_FAIL: "NF",
    JobState.PREEMPTED: "PR",
    JobState.BOOT_FAIL: "BF",
    JobState.DEADLINE: "DL",
    JobState.OUT_OF_MEMORY: "OOM",
}


class Hold(enum.IntEnum):
    """Who holds a pending job back."""

    NONE = 0
    USER = 1
    ADMIN = 2


class Phase(enum.IntEnum):
    """Where one node's part of an attempt stands. The controller's and the node's view of it
    use the same words; a part only ever moves to a higher phase."""

    #: decided by the controller, not yet acknowledged by the node
    PLACED = 0
    #: the node has journalled it and is preparing (prolog, cgroup)
    PREPARING = 1
    #: ready; waits for `go`
    PREPARED = 2
    #: go received; on the batch host: the script runs
    RUNNING = 3
    #: the batch script ended (exit status known); processes may be left
    ENDED = 4
    #: nothing of it is left on the node; its resources may be given away
    RELEASED = 5


class NodeFlag(enum.IntFlag):
    """What is said about a node beyond how much of it is in use."""

    NONE = 0
    #: an administrator takes no new work here
    DRAIN = 1
    #: set down by an administrator or by the controller; its jobs were ended
    DOWN = 2
    #: no message within SlurmdTimeout
    NOT_RESPONDING = 4
    #: has not registered since the controller knows it
    UNKNOWN = 8
    #: in configuration only for later use (State=FUTURE/CLOUD)
    FUTURE = 16
    #: `update state=fail`
    FAIL = 32
