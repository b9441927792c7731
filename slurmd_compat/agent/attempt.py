"""One attempt as the agent holds it: its record with what need not survive the daemon."""

from __future__ import annotations

from gsched.model import Phase
from slurmd_compat.agent.words import Record

#: what is known of the supervisor of its script
NONE, SPAWNED, OVER = range(3)


class Attempt:
    """A record with what need not survive the daemon."""

    __slots__ = ("gpus", "hook", "record", "script", "step", "whole")

    def __init__(self, record: Record) -> None:
        self.record = record
        launch = record.launch
        self.gpus = frozenset(launch.gpu_uuids)
        #: whether it has its GPUs for itself alone
        self.whole = launch.job.alloc[launch.node_index].shares == 0
        #: a batch script runs here; interactive jobs have none
        self.script = launch.batch and not launch.job.spec.interactive
        #: hook that runs now ("" none)
        self.hook = ""
        self.step = NONE

    def collides(self, other: Attempt) -> bool:
        """Whether both cannot be on the node at once: the GPU of a share has room for others'."""
        return (self.whole or other.whole) and not self.gpus.isdisjoint(other.gpus)

    @property
    def blocked(self) -> bool:
        """Waits for another attempt to leave its GPUs; nothing of it was begun."""
        return not self.record.begun and self.record.phase == Phase.PREPARING
