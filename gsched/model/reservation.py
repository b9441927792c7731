"""Advance reservations. Records are msgspec arrays: new fields only at the end, with defaults."""

from __future__ import annotations

import msgspec


class ReservedNode(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a reservation keeps of one node."""

    node: str
    #: -1: the whole node
    cpus: int = -1
    #: bitmap of GPU bits; of a whole node 0
    gpus: int = 0
    #: MB; 0: memory is everybody's
    mem_mb: int = 0


class Reservation(msgspec.Struct, array_like=True, gc=False):
    """Nodes, or parts of them, that are kept for some jobs for some time. One record in the
    store."""

    name: str
    #: epoch seconds; of one that repeats those of the time that is next, or now
    start: int
    end: int
    #: in Slurm's words and order (see gsched.reserve); PURGE_COMP's time is below
    flags: tuple[str, ...] = ()
    nodes: tuple[ReservedNode, ...] = ()
    #: nodes are chosen again when this changes: what was asked for (0: nothing of it)
    node_count: int = 0
    #: cores in all, or of each of the nodes that are named
    core_counts: tuple[int, ...] = ()
    gpu_count: int = 0
    gpu_type: str = ""
    partition: str = ""
    features: str = ""
    #: who may use it; a name that begins with "-": everybody but those
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    licenses: str = ""
    #: seconds; 0 none
    max_start_delay: int = 0
    #: PURGE_COMP: seconds without jobs after which it is ended; 0 never
    purge_comp: int = 0
    #: since when no job is of it; 0: there is one, or it is not looked at
    idle_since: int = 0
    #: uid that made it, and when
    created_by: int = 0
    created: int = 0
    #: QOS and partitions whose jobs may use it; () any
    qos: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    #: TIME_FLOAT: it begins so many seconds from now, whenever that is (see reserve.at); 0: it does
    #: not float
    floats: int = 0

    @property
    def duration(self) -> int:
        """Seconds."""
        return self.end - self.start

    @property
    def maintenance(self) -> bool:
        return "MAINT" in self.flags

    @property
    def any_nodes(self) -> bool:
        """Whether its jobs may run anywhere: it keeps licences alone."""
        return "ANY_NODES" in self.flags

    @property
    def flex(self) -> bool:
        return "FLEX" in self.flags

    def active(self, now: float) -> bool:
        """Whether it is in force."""
        return self.start <= now < self.end

    @property
    def whole(self) -> bool:
        """Whether it keeps whole nodes."""
        return all(share.cpus < 0 for share in self.nodes)
