"""The whole verdict on a waiting job, as `gsched why` tells it.

Its JSON form is public (docs/why.md): fields are added, never renamed. Times are epoch seconds, 0
for not known; sizes are MB; nodes are host lists.
"""

from __future__ import annotations

import msgspec

#: grows when a field changes its meaning
SCHEMA = 1


class JobRef(msgspec.Struct):
    """Another job that matters here."""

    #: as users write it; "" where the asker may not know
    id: str
    state: str = ""
    #: started, or planned to
    start: int = 0
    #: expected end
    end: int = 0
    nodes: str = ""
    #: what it has to do with the matter: a dependency as shown, licences held ...
    detail: str = ""


class Cause(msgspec.Struct):
    """One thing that keeps the job waiting; the first of a list is what the reason word says."""

    #: hold, dependency, begin, requeue, array_limit, licenses, partition_state, time_limit, size,
    #: limit (of an association or QOS), account, qos, component, together, resources, reservation,
    #: maintenance, reservation_begin, nodes, never, priority, not_tested, new, settling; of a
    #: suspended job time_slice, stands_still, suspended; others may come
    kind: str
    #: nothing that ends by itself changes it: the request, or somebody's order, has to
    never: bool = False
    #: "" all its partitions
    partition: str = ""
    #: a name or text that belongs to the kind
    detail: str = ""
    #: what is asked for, what there is at most, and what of it is free or used
    want: int = 0
    limit: int = 0
    have: int = 0
    #: when it will have passed
    until: int = 0
    jobs: list[JobRef] = []
    #: the reservation in which it would start; "" in none
    reservation: str = ""
    #: of a limit: what it counts ("gres/gpu", "jobs", "wall", ...), in "minutes" or "" counts, for
    #: "each" job, node or for "all" together, and whose it is ("account lab")
    what: str = ""
    unit: str = ""
    scope: str = ""
    whose: str = ""
    #: of what is in use, how much nobody uses: it is kept for others
    kept: int = 0


class Away(msgspec.Struct):
    """Nodes that are out of use for the same reason; or a node some of whose GPUs are."""

    nodes: str
    count: int
    #: DRAINED, DOWN, NOT_RESPONDING ...; "2 GPU_FAULT"
    state: str
    reason: str = ""
    #: uid of who said so; -1 nobody
    by: int = -1
    since: int = 0


class Lack(msgspec.Struct):
    """A demand that nodes fail. A node is counted in each that it fails, but those outside the
    partition, excluded, without the features or out of use are counted there alone."""

    #: cpus, memory, gpus, gpu_type, island, features, excluded, state, busy, reserved ...
    what: str
    #: as the nodes are configured, not only now
    never: bool
    nodes: int
    #: of them, those that fail nothing else
    alone: int = 0
    names: str = ""
    #: on nodes that fail this: GPUs that would be free for the job
    gpus: int = 0
    #: what = state: why, by group; what = gpus: nodes with GPUs out of service
    away: list[Away] = []


class Kept(msgspec.Struct):
    """An advance reservation that a job would run into."""

    name: str
    #: the time of it that the job would meet first
    start: int
    end: int
    #: how many of the nodes that the job could use it keeps, and which
    count: int
    nodes: str = ""
    #: the whole of each; else some GPUs or CPUs
    whole: bool = True
    #: GPUs that it keeps on them
    gpus: int = 0
    maintenance: bool = False
    #: CPUs that it keeps on them, where it does not keep the whole of each; 0 not known
    cpus: int = 0


class Place(msgspec.Struct):
    """How one partition answers the request."""

    partition: str
    #: nodes of the partition
    nodes: int
    #: the advance reservation in which it would start; "" in none
    reservation: str = ""
    #: nodes wanted at least, and those that could give their part now
    needed: int = 1
    suited: int = 0
    #: what each node has to give at least (all of it, where one node is asked for)
    tasks: int = 1
    cpus: int = 1
    gpus: int = 0
    mem_mb: int = 0
    #: the GPU type, the parts of a GPU (shard:2) and the features that are asked for; "" none
    gpu_type: str = ""
    share: str = ""
    #: other resources of each node: "dongle:2,nic:mlx:1"
    gres: str = ""
    features: str = ""
    #: GPUs wanted in all, and free ones of that type on nodes in use
    gpus_wanted: int = 0
    gpus_free: int = 0
    #: CPUs wanted in all, by all tasks
    cpus_wanted: int = 0
    lacks: list[Lack] = []
    #: not even the empty partition with all nodes up has room
    never: bool = False
    #: there is room, were it not for jobs ahead
    room: bool = False
    #: it would start
    starts: bool = False
    #: nodes that would be taken
    on: str = ""
    #: planned jobs that a start would delay
    delays: list[JobRef] = []
    #: reservations of others that keep nodes from it; windowed: they alone are in the way
    kept: list[Kept] = []
    windowed: bool = False
    #: nodes that it names (--nodelist), and what those of them lack that have no room
    named: str = ""
    named_lacks: list[Lack] = []
    #: "node": whole nodes are wanted, "user": nodes without jobs of others; "" neither
    alone: str = ""
    #: what the reservation keeps in which it would start
    within: Kept | None = None


class Ahead(msgspec.Struct):
    """Jobs that come first in the job's partitions."""

    jobs: int = 0
    #: the first of them that waits for resources
    first: JobRef | None = None


class Rank(msgspec.Struct):
    """Where it stands in the order, with priority/multifactor."""

    priority: int = 0
    #: of its owner in the account, 0 to 1
    fair_share: float = 0.0
    account: str = ""
    #: of all usage that counts, the account's part; and the part that it is promised
    used: float = 0.0
    promised: float = 0.0


class Start(msgspec.Struct):
    """When it is expected to start."""

    time: int = 0
    #: now; planned: room is kept for it; not_before: it cannot be earlier; earliest: first room
    #: beside the planned jobs, others ahead may take it; begin, requeue, dependency, array_limit,
    #: licenses, switches: when that has passed, by time limits; unknown
    basis: str = "unknown"
    nodes: str = ""


class Suggestion(msgspec.Struct):
    """Another request that would start at once (or at the time asked about)."""

    #: options of sbatch to be added, or to be given instead
    options: list[str]
    #: options to be left out
    without: list[str] = []
    partition: str = ""
    nodes: str = ""


class Why(msgspec.Struct):
    """Why a job waits. Of a job that does not wait only the first fields are filled."""

    job: str
    state: str
    #: Slurm's word
    reason: str = ""
    schema: int = SCHEMA
    #: when this was found, and the time it speaks of
    now: int = 0
    at: int = 0
    name: str = ""
    user: str = ""
    partitions: list[str] = []
    #: how it may never start as it is
    never: bool = False
    #: at `at` it would start
    starts: bool = False
    causes: list[Cause] = []
    places: list[Place] = []
    ahead: Ahead = msgspec.field(default_factory=Ahead)
    start: Start = msgspec.field(default_factory=Start)
    suggestions: list[Suggestion] = []
    #: commands that take a cause away
    commands: list[str] = []
    #: of a heterogeneous job
    components: list[Why] = []
    #: when and where it ran, if it did
    began: int = 0
    ended: int = 0
    nodes: str = ""
    #: null: it does not wait, or jobs go in the order in which they came
    rank: Rank | None = None
