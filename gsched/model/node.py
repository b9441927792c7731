"""Nodes and partitions as the controller knows them."""

from __future__ import annotations

import msgspec

from gsched.model.states import NodeFlag


class Gpu(msgspec.Struct, array_like=True, gc=False):
    """One GPU of a node. Its place in `Node.gpus` is its bit; the bit belongs to the UUID."""

    uuid: str
    #: Slurm's gres type, e.g. "h100"
    type: str = ""
    #: N of /dev/nvidiaN; -1 unknown
    minor: int = -1
    numa: int = -1
    #: CPU list text as Slurm's Cores=, "" unknown
    cores: str = ""
    #: NVLink count to every GPU of the node by bit (self 0)
    links: list[int] = []
    memory_mib: int = 0
    name: str = ""
    bus_id: str = ""
    #: "" healthy, else why it is out of service
    fault: str = ""
    #: of a MIG device: minors of the /dev/nvidia-caps devices that open it
    caps: list[int] = []


class Node(msgspec.Struct, array_like=True, gc=False):
    """The persisted facts about a node; what slurm.conf says is not repeated here."""

    name: str
    flags: NodeFlag = NodeFlag.UNKNOWN
    reason: str = ""
    reason_uid: int = 0
    reason_time: int = 0
    boot_id: str = ""
    #: nonce of its last accepted registration
    session: str = ""
    gpus: list[Gpu] = []
    #: as registered
    cpus: int = 0
    mem_mb: int = 0
    boot_time: int = 0
    start_time: int = 0
    version: str = ""
    arch: str = ""
    os: str = ""
    #: AvailableFeatures as set by an administrator; "" configuration's
    features: str = ""
    comment: str = ""
    extra: str = ""
    #: as set by an administrator: ActiveFeatures ("" all that are available), weight (-1 the
    #: configuration's), Gres=gpu:0
    active_features: str = ""
    weight: int = -1
    no_gpus: bool = False
    #: files of configuration that the node has read otherwise than the controller; "" none
    conf_differs: str = ""


class PartitionChange(msgspec.Struct, array_like=True, gc=False):
    """What was changed of a partition at run time; kept until the configuration is read anew."""

    name: str
    #: lower-case keys of slurm.conf and their values
    fields: dict[str, str] = {}
    deleted: bool = False


class NodeUse(msgspec.Struct, array_like=True, gc=False):
    """What changes about a node without being a fact: lives in the view, rebuilt at start."""

    name: str
    cpus_alloc: int = 0
    mem_alloc_mb: int = 0
    gpus_alloc: int = 0
    jobs: int = 0
    completing: int = 0
    #: load x 100, -1 unknown
    cpu_load: int = -1
    free_mem_mb: int = -1
    last_heard: int = 0
    last_busy: int = 0
    #: bit of a GPU that is in parts -> how many of them are held
    parts: dict[int, int] = {}
    #: other resources that are held, by name
    counted: dict[str, int] = {}


class StartEstimates(msgspec.Struct, array_like=True, gc=False):
    """Jobs behind those that the plan gives a place, and when none of them starts before: lives in
    the view, as one record. Both are arrays of int64 in the machine's order."""

    jobs: bytes = b""
    times: bytes = b""

    def by_job(self) -> dict[int, int]:
        """Of several rows of a job the earliest. Cost: jobs."""
        jobs, times = memoryview(self.jobs).cast("q"), memoryview(self.times).cast("q")
        found: dict[int, int] = {}
        for job, at in zip(jobs, times, strict=True):
            if at < found.get(job, at + 1):
                found[job] = at
        return found


class PlannedNodes(msgspec.Struct, array_like=True, gc=False):
    """The nodes of which the plan keeps something for waiting jobs: lives in the view."""

    #: host list
    names: str = ""


class FairShares(msgspec.Struct, array_like=True, gc=False):
    """With what priorities were last recalculated: lives in the view."""

    #: when (epoch seconds)
    at: float = 0.0
    #: fair share of users' associations, by id
    factors: dict[int, float] = {}


class Verdict(msgspec.Struct, array_like=True, gc=False):
    """Why a pending job waits: lives in the view."""

    job_id: int
    #: Slurm's reason word
    reason: str
    #: expected start, epoch seconds; 0 unknown
    start: int = 0
    #: nodes the plan has laid aside for it (hostlist text)
    nodes: str = ""
