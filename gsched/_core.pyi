"""The matching core: a cluster as flat C arrays, placements, reservations, the queue as columns.

One `Core` is one cluster. It knows numbers only: nodes 0..n-1, GPUs as bits, partitions and
features as bits, jobs by a 64-bit key. `gsched.cluster` binds them to names; `gsched._reference`
gives the same answers slowly.

How nodes are chosen. With GPUs: nodes with an island (GPUs joined by NVLink) that holds all GPUs
the job wants from one node come before others; then the fewest free GPUs; then the smallest
island that suffices (the largest, where none does); then weight; then number. Without GPUs:
lowest weight, fewest free GPUs, fewest free CPUs, number. When the nodes so chosen cannot hold
all tasks or GPUs, those that can hold most are taken. Several nodes are chosen together where the
network is known, see set_topology(). Tasks (and `gpus_total`) then fill the
nodes in order of number, one being left for each node that follows, as Slurm's cons_tres does.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

class Placement(NamedTuple):
    """Where a request goes."""

    #: (node, cpus, tasks, mem_mb, gpu_mask) by node number
    nodes: tuple[tuple[int, int, int, int, int], ...]
    #: > 0: so many thousandths of the one GPU in each mask; 0: all GPUs of the masks
    gpu_milli: int = 0

class Reason(NamedTuple):
    """So many nodes lack this. A node counts in each demand that it fails, but those outside the
    partition, excluded or without the features count there alone."""

    #: partition, features, excluded, layout (sockets, cores or threads of a node), cpus, memory,
    #: gpu_type, gpus, island, state (out of use), busy (a whole node is wanted), reserved (for a
    #: job ahead); and of nodes that suit one by one, where that alone is missing: switch (on too
    #: many, or below none together), block, contiguous
    what: str
    #: as the node is configured; False: only now
    never: bool
    nodes: int

class Refusal(NamedTuple):
    """Why a request has no place. Where enough nodes lack nothing (suited >= needed) they cannot
    hold all tasks or GPUs together, or a node of the node list is among those that lack."""

    #: the cluster as configured, empty and all of it up, cannot hold it
    never: bool
    #: least number of nodes
    needed: int
    #: nodes that lack nothing
    suited: int
    reasons: tuple[Reason, ...]

class Survey(NamedTuple):
    """What each node lacks for the smallest part of a request (all of it, where one node is asked
    for)."""

    #: (tasks, CPUs, GPUs) of that part; CPUs before whole cores are counted
    need: tuple[int, int, int]
    #: a uint32 per node, bits by the names in LACKS; 0: nothing
    lacks: bytes
    #: a byte per node: GPUs that it may choose from then, 0 on nodes out of use
    gpus: bytes

class Start(NamedTuple):
    """A job that the pass started; its allocation under the same key is made."""

    key: int
    placement: Placement

class Reservation(NamedTuple):
    """A blocked job and what is kept for it: counts on each node; the very GPUs only where an
    island, or a type on nodes with several, is demanded. Seconds as `now`."""

    key: int
    at: int
    until: int
    placement: Placement

class Plan(NamedTuple):
    """What a pass decided."""

    #: in the order of decision
    starts: list[Start]
    #: with keep=STAND only those that the pass made
    reservations: list[Reservation]
    #: (key, verdict) of jobs whose verdict changed, started ones among them
    changed: list[tuple[int, int]]
    #: jobs looked at
    tested: int
    #: placements computed for them (the rest was answered by their request class)
    placed: int
    #: max_starts ended it before the end of the queue
    more: bool
    #: with grouped: verdict -> keys and orders of the jobs that have got it, in order
    alike: dict[int, tuple[list[int], list[int]]] = {}

class NodeState(NamedTuple):
    """What a node has left; below zero where it shrank under its jobs."""

    free_cpus: int
    free_mem_mb: int
    #: healthy and unallocated
    free_gpus: int
    used_gpus: int
    #: allocations that have a share of it
    jobs: int
    usable: bool
    #: thousandths of healthy GPUs that nobody holds, those of GPUs in parts too
    free_milli: int

#: names of the bits in Survey.lacks: (what, never), as in Reason
LACKS: tuple[tuple[str, bool], ...]

#: verdicts on queued jobs
#: no pass has come to it (max_test)
UNTESTED: int
STARTED: int
#: the first blocked one of its partition: waits for resources, has a reservation
RESOURCES: int
#: would start but for the reservation of a job ahead
PRIORITY: int
#: does not fit now, and is not the first of its partition
BEHIND: int
#: not yet ready (ready_at)
BEGIN: int
HELD: int
#: nodes or GPUs out of use are what is missing
NODES_DOWN: int
#: the cluster as configured cannot hold it
NEVER: int
#: its group or unit has no starts left
GROUP: int
#: its advance reservation is not in force
RESERVATION: int
#: would start but for an advance reservation that it is not of
WINDOW: int
LIMIT: int

#: what an item of a chain counts, by name: "fixed", "cpus", "mem", "nodes", "gpus", "bill", "hosts"
COUNTED: dict[str, int]

#: what a plan does with the reservations of the last one: each may move forward, in order, but
#: never back; or all stay, and only jobs without one get theirs
DRAW_FORWARD: int
HOLD_STILL: int
#: or, for a quick pass between two plans: all stand, but a job may start before its own where that
#: delays nobody else's; one whose reservation no longer holds, and the first blocked job of a
#: partition without one, get one anew
STAND: int

#: node policies of a request class; ties go to the lower weight, then number
#: by the index of free nodes, as described above; the only one whose cost is candidates, not nodes
PACK: int
#: the first node that fits, in order of weight and number
FIRST_FIT: int
#: least left of CPUs and GPUs, each as a part of the largest node's
BEST_FIT: int
#: most in use of CPUs and GPUs, each as a part of its own
BIN_PACK: int
#: most idle CPUs, as CR_LLN
LEAST_LOADED: int
#: least growth of GPU capacity that usual jobs cannot use, in steps of 1/100 (USENIX ATC 2023)
FGD: int
#: least loss of rests of GPUs that usual shares would fill, and of GPUs left without the CPUs that
#: usual jobs need with one; what shares get unless they ask for another policy
DENSE_FIT: int

#: alternatives of features; groups of them with a number of nodes
Variant = tuple[Iterable[int], Iterable[tuple[int, Iterable[int]]]]

class Core:
    """A cluster of n_nodes nodes (up to 100,000), all unusable until set_node() describes them.

    Methods raise ValueError with the offending value, RuntimeError while schedule() runs in
    another thread, MemoryError. Nothing is changed by a call that raises, but for MemoryError out
    of schedule().
    """

    def __init__(self, n_nodes: int) -> None: ...
    def define_class(self, links: Sequence[Sequence[int]], numa: Sequence[int]) -> int:
        """The class of nodes with this link matrix (NVLinks between each two GPUs, 0 = PCIe only)
        and these NUMA domains (-1 unknown); the same number for the same content. Class 0 has no
        GPUs. Cost: 2^GPUs up to 16 GPUs, at first."""

    def islands(self, cls: int) -> tuple[int, ...]:
        """Bitmaps of the GPUs joined by NVLink, in order of their first GPU; a GPU without links
        is an island of its own."""

    def best_gpus(self, cls: int, free: int, count: int, *, one_island: bool = False) -> int:
        """The best `count` GPUs of a free bitmap: most links inside, then most links left among the
        rest, then the smallest bitmap; between GPUs that are alike in links, one NUMA domain.
        0 if there are not so many (on one island, if asked). Cost: a look-up up to 16 GPUs
        (2^free at the first time), count^2 x free above, where it is a good choice, not always the
        best."""

    def set_node(
        self,
        node: int,
        *,
        cls: int = 0,
        cpus: int,
        mem_mb: int,
        gpu_type_masks: Iterable[tuple[int, int]] = (),
        gpu_ok_mask: int | None = None,
        usable: bool = True,
        partitions: int = 0,
        features: int = 0,
        weight: int = 1,
        threads: int = 1,
        gpu_parts: Iterable[tuple[int, int]] | None = None,
        sockets: int = 1,
        cores_per_socket: int = 0,
        domains: Iterable[tuple[int, int]] = (),
        near: Iterable[int] = (),
        extra: Iterable[tuple[int, int]] = (),
        keep_cpus: int = 0,
        keep_mem_mb: int = 0,
    ) -> None:
        """Describe a node; what runs on it stays allocated, also beyond its new size.

        cls: its link class; gpu_type_masks: (type number 0..255, bitmap) pairs, together all its
        GPUs; gpu_ok_mask: the healthy GPUs (all by default); partitions, features: bitmaps of up
        to 256 bits; weight: lower is preferred; threads: CPUs per core, allocated together;
        gpu_parts: (kind 0..3, number 0..16383) of the parts into which each GPU divides, by bit;
        None: 1000 of kind 0. Where parts are fewer than jobs hold, those keep what they have.
        sockets, cores_per_socket (0: from the others): what requests may demand at least.
        domains: (socket, cores) of each set of cores of one socket that are near the same GPUs, up
        to 16, where there are several; near: a bitmap of the domains near each GPU, 0 not known.
        extra: (kind 0..11, count) of resources that are only counted. keep_cpus, keep_mem_mb: what
        requests that leave GPUs alone leave for each GPU that is wholly free.
        Cost: constant, but a new weight orders all nodes anew at the next decision.
        """

    def set_sharing(self, partition: int, jobs: int) -> None:
        """Up to so many jobs of a partition (its bit) may hold a core, of those whose requests say
        shares_cpus; 1: none may. Said once, before the first of them."""

    def set_usable(self, node: int, usable: bool) -> None:
        """Whether new work may go to a node (not down, drained ...). Cost: constant."""

    def set_gpu_ok(self, node: int, mask: int) -> None:
        """Its healthy GPUs: others get no new work, allocations stay. Cost: constant."""

    def node_free(self, node: int) -> tuple[int, int, int]:
        """(free CPUs, free MB, bitmap of used GPUs) of a node. Cost: constant."""

    def node(self, node: int) -> NodeState:
        """What a node has left."""

    def set_topology(
        self,
        leaves: Iterable[int],
        parents: Iterable[int],
        *,
        sizes: Iterable[int] = (),
        optional: bool = False,
    ) -> None:
        """Where nodes are in the network; () and () for nowhere.

        Units are switches, or (with sizes) blocks and groups of blocks. leaves: the leaf of each
        node, -1 none; parents: for each unit the one above, -1 none; leaves are numbered first,
        then level by level. A request for several nodes gets them below one unit: of the lowest
        level with room for all, there below the one with the least, the first of equals (room:
        usable nodes with as many free GPUs as each node gives). Below it the smallest leaf that
        holds what is still missing is taken, else the largest, so that there are as few leaves as
        possible; where nodes with room turn out not to suit, leaves count by those that do. Of
        nodes that hold unlike numbers of tasks or GPUs, leaves count by what they hold in all.
        Nodes without a leaf are for requests that need one node.
        sizes: for each level how many nodes its blocks are there for, 0 any number: what is not
        more lies in one block of that level or below, unless it comes in segments. optional: only
        requests with switches or a segment go by the topology.
        Cost: nodes + units; then per change of a node GPUs x levels, per placement of a gang the
        units of the levels tried and the nodes of the leaves looked at, for a refusal nodes x
        levels.
        """

    def request(
        self,
        *,
        partition: int = -1,
        features_all: int = 0,
        features_any: Iterable[int] = (),
        min_nodes: int = 1,
        max_nodes: int = 0,
        cap_nodes: int = 0,
        ntasks: int = 0,
        cpus_per_task: int = 1,
        min_cpus_node: int = 0,
        ntasks_per_node: int = 0,
        mem_per_node_mb: int = -1,
        mem_per_cpu_mb: int = 0,
        mem_per_gpu_mb: int = 0,
        gpus_per_node: int = 0,
        gpus_per_task: int = 0,
        gpus_total: int = 0,
        cpus_per_gpu: int = 0,
        gpu_type: int = -1,
        exclusive: bool = False,
        overcommit: bool = False,
        one_island: bool = False,
        threads_per_core: int = 0,
        nodelist: Iterable[int] = (),
        exclude: Iterable[int] = (),
        gpu_milli: int = 0,
        gpu_kind: int = 0,
        one_shared: bool = False,
        policy: int = 0,
        gpu_kinds: Iterable[tuple[int, int, int, int]] = (),
        ntasks_per_core: int = 0,
        ntasks_per_gpu: int = 0,
        min_sockets: int = 0,
        min_cores_per_socket: int = 0,
        min_threads: int = 0,
        variants: Iterable[Variant] = (),
        ntasks_per_socket: int = 0,
        gpus_per_socket: int = 0,
        gpu_binding: int = 0,
        switches: int = 0,
        segment: int = 0,
        contiguous: bool = False,
        spread: bool = False,
        use_min_nodes: bool = False,
        reservation: int = -1,
        owner: int = -1,
        extra: Iterable[tuple[int, int]] = (),
        cpu_caps: Iterable[int] = (),
        shares_cpus: bool = False,
        leaves_gpus: bool = False,
    ) -> int:
        """The number of the request class with this content, one reference more.

        partition: bit number, -1 any node. features_all: all of these bits; features_any: all bits
        of one of these as well. max_nodes 0: no upper bound, as few nodes as hold it; else as many
        as there are up to it (with gpus_total: as few as hold them). cap_nodes: an upper bound that
        is not striven for (a partition's MaxNodes), 0 none. ntasks 0: ntasks_per_node (or
        one) on each node; else in all, at least one a node, ntasks_per_node at most on each.
        mem_per_node_mb: -1 not given, 0 all memory of the node; one of the three memory forms at
        most. gpus_total goes with neither gpus_per_node nor gpus_per_task (say nodes or tasks
        then). exclusive: idle nodes, all their CPUs and healthy GPUs. overcommit: CPUs for one
        task per node. one_island: the GPUs of each node on one island, as a demand.
        threads_per_core: so many of each core's threads are used, 0 all. nodelist: all of these
        nodes, others may come to them. gpu_milli: a share of one GPU on each node (1..999
        thousandths, with gpus_per_node=1): shares lie beside each other on GPUs that no job holds
        whole, on the tightest one that suffices, or as the policy says. gpu_kind: of which parts
        gpu_milli counts (0: thousandths; else those of set_node's gpu_parts, by exact numbers);
        one_shared: at most one GPU of a node is to be in parts of that kind (to be said of all
        requests of a kind, or of none). policy: how nodes are ranked. switches: at most so many
        leaves of the topology, segment: a multiple of so many nodes, each so many within one leaf
        (both without effect where there is no topology).
        contiguous: nodes that follow each other by number, wherever they are in the network, of
        the shortest stretch that holds them. spread: as many nodes as there may be (tasks dealt
        out evenly), wherever they are. use_min_nodes: of a range of nodes the fewest. reservation:
        it may use what that keeps, see set_reservation(); -1 none. owner: nobody else's jobs share
        a node with it, only those of requests with this owner; -1 it does not mind. In plans such
        a job has its nodes for itself. extra: (kind, count) of counted resources of each node.
        cpu_caps: kinds of which it takes as many of each node as CPUs. shares_cpus: cores that
        other such jobs of its partition hold will do as well, see set_sharing(); free ones come
        first, on whatever node, then those with the fewest jobs. Not inside a reservation, nor
        beside one's window on a node, nor with demands on where cores lie; exclusive then means all
        CPUs of the nodes. leaves_gpus: without GPUs it leaves alone what nodes keep for idle ones
        (set_node), or a half, a quarter or an eighth of that, or nothing where the empty cluster
        would not hold it otherwise; not if it is exclusive or inside a reservation.

        gpu_kinds: GPUs of several types, (type, per node, per task, in all) each, whose sums are
        the three gpus_*; of those in all each node gets one at least. ntasks_per_core: most tasks
        on a core; with one, each task has its cores for itself. ntasks_per_gpu: with gpus_total and
        ntasks for each of them: tasks go where their GPU is. min_sockets, min_cores_per_socket,
        min_threads: of a node, at least. variants: sets of features tried in turn, the first that
        gives an answer counts: (alternatives, groups), where alternatives take the place of
        features_all and features_any, and a group (n, alternatives) wants n nodes with one of
        those, no node counting twice; features_all and features_any then say which nodes may be
        in any answer. ntasks_per_socket: most tasks on a socket, those before filled first.
        gpus_per_socket: so many GPUs near each of the sockets that it gets cores of, at least
        min_sockets, as few as hold its tasks; gpus_per_node is the product. gpu_binding: 1 its
        cores are near its GPUs and at least one near each, 2 anywhere, 0 near them first; GPUs with
        free cores near them are preferred to others that are as well linked. What lies where is
        known for now: a reservation takes as many cores to be near GPUs as there may be.
        Where nodes are in the network, or next to each other, does not count for groups and for
        GPUs of several types in all.
        Cost: constant, and a bitmap of nodes for each different (partition, features, exclude).
        """

    def request_extra(self, req: int) -> tuple[tuple[int, int], ...]:
        """Its `extra`."""

    def request_terms(self, req: int) -> dict[str, Any]:
        """What allocate() must be told of it besides its shares."""

    def request_owner(self, req: int) -> int:
        """Its `owner`."""

    def drop_request(self, req: int) -> None:
        """Give back one reference taken by request(); with the last one the class is forgotten.
        ValueError while that would leave a queued job without its class."""

    def set_workload(self, shapes: Iterable[tuple[int, int, int, Iterable[int], int]]) -> None:
        """What jobs usually ask for, which FGD and DENSE_FIT go by: (CPUs, GPUs, gpu_milli or 0 for
        whole GPUs, GPU types or none, weight) each. Without it FGD tells no node from another, and
        DENSE_FIT takes the tightest GPU. Cost: shapes x groups that differ in GPUs; scores that
        were kept are made anew."""

    def set_reservation(
        self,
        reservation: int,
        spans: Iterable[tuple[int, int]],
        nodes: Iterable[tuple[int, int, int] | tuple[int, int, int, int]],
        *,
        firm: bool = False,
        flex: bool = False,
    ) -> None:
        """Describe an advance reservation anew (numbers from 0 on): (start, end) of each time at
        which it is in force, and (node, CPUs, GPUs as a bitmap[, MB]) of what it keeps then; CPUs
        -1: the whole node. Without spans or nodes it keeps nothing, and its jobs find nothing.

        A job that is not of it does not start where it would be there in such a time (now + limit
        beyond the start; one without a limit lasts a year) and would take what is kept. Memory of
        nodes that are not kept whole is everybody's where nothing is said of it. A job of it starts
        on what is kept and while it is in force, and is taken to end with it at the latest; an
        exclusive one needs whole nodes. flex: its jobs may also start elsewhere and at other
        times. firm: jobs of other
        reservations keep out of it too; else two that overlap share what both keep, and a job of
        one may delay a planned job of the other. Passes plan around them; a job that waits for its
        reservation does not stand before others. Cost: what all reservations keep + shares.
        """

    def set_reservations(
        self,
        rows: Iterable[tuple[int, Iterable[tuple[int, int]], Iterable[tuple[int, int, int]]]],
    ) -> None:
        """The same for several at once, (reservation, spans, nodes) each. Cost: as for one of them,
        and what they keep."""

    def allocate(
        self,
        key: int,
        nodes: Iterable[
            tuple[int, int, int, int]
            | tuple[int, int, int, int, int]
            | tuple[int, int, int, int, int, tuple[int, ...]]
        ],
        end: int = 0,
        *,
        adopt: bool = False,
        gpu_milli: int = 0,
        reservation: int = -1,
        owner: int = -1,
        extra: Iterable[tuple[int, int]] = (),
        lot: int = -1,
        slots: Iterable[int] = (),
        caps: Iterable[int] = (),
    ) -> None:
        """Record that `key` holds (node, cpus, mem_mb, gpu_mask[, tasks[, cores by domain]]) until
        `end` (0: never).

        ValueError if it is known already, a node comes twice, a GPU does not exist or is held, or
        CPUs or memory are not free; with adopt=True CPUs, memory and GPUs may go beyond the node's
        size (work found running on a node that has shrunk), but no GPU is held twice. A node's
        usability is not asked, and nor are reservations. gpu_milli: it holds so many parts of the
        one GPU in each mask. reservation: the one that it runs in. owner: nobody else's jobs go to
        its nodes meanwhile. extra: (kind, count) of counted resources that it holds on each node.
        lot: the partition with whose jobs it shares its cores; slots: these cores of each node as
        the lot numbers them, where that is known. caps: kinds of which it holds as many as CPUs.
        Cost: its nodes.
        """

    def release(self, key: int) -> None:
        """Free all that `key` holds. Cost: its nodes."""

    def release_node(self, key: int, node: int) -> None:
        """Free what `key` holds on one node; with the last node the allocation is gone."""

    def allocation_cores(self, key: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """(node, cores in each domain) of each node it still holds that has several domains."""

    def set_cores(self, node: int, cores: Iterable[int]) -> None:
        """How many cores of each of its domains are in use: said once after a node's domains
        changed while jobs hold some of it."""

    def reshape(
        self,
        key: int,
        row: tuple[int, int, int, int] | tuple[int, int, int, int, tuple[int, ...]],
    ) -> None:
        """It holds (node, cpus, mem_mb, gpu_mask[, cores by domain]) of a node instead of what it
        holds there. Without CPUs and GPUs it is beside nobody: whoever wants the node for himself
        can have it, and what it keeps is its memory and its counted resources. ValueError where a
        GPU is held by another, it is a share of one, or it holds nothing there. Cost: its nodes."""

    def set_end(self, key: int, end: int, late: Sequence[tuple[int, int]] = ()) -> None:
        """When it is expected to end (seconds, 0: no limit). late: (node, until) where others hold
        what it has there after it, until then (0: without limit). Cost: its nodes."""

    def allocation(self, key: int) -> tuple[tuple[int, int, int, int, int], ...]:
        """(node, cpus, tasks, mem_mb, gpu_mask) of each node it still holds; () if unknown."""

    def allocation_extra(self, key: int) -> tuple[tuple[int, int], ...]:
        """(kind, count) of the counted resources that it holds on each node."""

    def allocation_lot(self, key: int) -> tuple[int, tuple[int, ...]]:
        """(partition, cores of each of its nodes in the order of allocation(), as bitmaps of their
        numbers in the lot) of one that shares its cores; (-1, ()) of another."""

    def allocation_caps(self, key: int) -> tuple[int, ...]:
        """The kinds of counted resources of which it holds as many as CPUs."""

    def allocation_terms(self, key: int) -> dict[str, Any]:
        """What allocate() must be told besides key, shares, end and reservation to make it anew."""

    def allocation_owner(self, key: int) -> int:
        """Whose jobs alone may be on its nodes; -1 anybody's."""

    def allocation_milli(self, key: int) -> int:
        """The parts of one GPU that it holds on each node; 0: whole GPUs, or none."""

    def can_ever(self, req: int) -> Refusal | None:
        """None if the cluster as configured, empty and with every node and GPU up, can hold it.
        Cost: nodes, once per change of the configuration."""

    def possible(self, req: int) -> bool:
        """Whether it would fit if no job ran: False means that nodes or GPUs out of use are what
        is missing. Cost: nodes, once per change."""

    def place(self, req: int, now: int = 0, limit_s: int = -1) -> Placement | Refusal:
        """A Placement for now, or the Refusal with its counted reasons; nothing is allocated.

        limit_s -1: only what is free counts; else (0: no limit) the reservations of the last pass
        are respected too. Cost: candidates; nodes under a policy other than PACK (a look-up for
        each that did not change since the class was asked for last, else a score); a refusal
        costs nodes.
        """

    def what_if(
        self,
        req: int,
        now: int = 0,
        limit_s: int = -1,
        *,
        at: int = 0,
        without: Iterable[int] = (),
    ) -> Placement | None:
        """Where a request would be placed now, or at a later time `at`, when what runs has ended
        as expected; None: nowhere. Nothing is allocated.

        limit_s as in place(); at a later time the reservations that overlap with it are taken.
        without: keys whose reservations are left out of account (what others were left beside them
        stays as it was reckoned, so the answer errs to None). Cost: as place(); at a later time
        nodes + shares.
        """

    def earliest(self, req: int, now: int, limit_s: int = 0, *, without: Iterable[int] = ()) -> int:
        """The first time after `now` at which it fits for limit_s (0: a year) beside the
        reservations of the last pass; 0: none. Cost: as a reservation in schedule()."""

    #: placements and looks at single nodes that the last cheapest() took
    last_hunt: int

    def cheapest(
        self,
        req: int,
        keys: Sequence[int | tuple[int, ...]],
        costs: Sequence[int],
        now: int = 0,
        limit_s: int = 0,
        *,
        avoid: Iterable[int] = (),
        strict: bool = False,
        lent: Iterable[int] = (),
    ) -> tuple[list[int | tuple[int, ...]], Placement] | None:
        """The allocations (or tuples of those that go together) among `keys` whose release makes a
        request fit at the least cost, and where it then goes; None: the release of all of them is
        not enough. Nothing is changed.

        costs rise along `keys`; of sets that cost the same the one with fewer allocations is
        taken, then the one whose room lies on fewer islands, then the first. None of the answer
        could stay. For a request that fits on one node the answer is the cheapest there
        is (among up to 8 candidates on a node); for several nodes of jobs on one node each as well,
        where nothing is said of switches. strict: the last of `keys` that goes is as early as it
        can be. Those in `lent` stand still instead: their memory and counted resources stay in use.
        Advance reservations count, plans do not; nodes in `avoid` are not used. Cost: 2^k
        looks at a node with k candidates (k up to 8), a placement per candidate.
        """

    def survey(
        self,
        req: int,
        now: int = 0,
        limit_s: int = -1,
        *,
        at: int = 0,
        without: Iterable[int] = (),
    ) -> Survey:
        """What each node lacks, now or at a later time; the rest as in what_if(). A node with room
        that reservations take lacks "reserved". Cost: nodes; at a later time nodes + shares."""

    def ahead(self, key: int) -> tuple[int, int]:
        """(how many rows of the queue come before that of `key` in its partition and are neither
        held nor to begin later, the key of the first of them that the last pass left waiting for
        room or 0); zeros if no pass has come to it. Cost: those rows, some ns each."""

    def repeat_place(self, req: int, repeat: int) -> int:
        """Place a request `repeat` times without the GIL and forget the answers: for benchmarks of
        the core alone. How often it fitted."""

    def queue_add(
        self,
        key: int,
        req: int,
        priority: int,
        order: int,
        limit_s: int = 0,
        ready_at: int = 0,
        *,
        held: int = 0,
        group: int = -1,
        unit: int = -1,
        user: int = -1,
        array: int = -1,
        since: int = 0,
        chain: int = -1,
    ) -> None:
        """A waiting job. Higher priority first, then lower order, then lower key. limit_s 0: no
        limit; ready_at: not before; held (1..255): not at all (2: but
        with keep=STAND its reservation stays); group, unit: see set_group(); user:
        number of its owner, for max_user; array: number of its array, for max_array; since: since
        when it waits, for min_age; chain: see set_chain(). Cost: constant here, its place in the
        order is found by the next pass."""

    def queue_remove(self, key: int) -> None:
        """A job leaves the queue without a start."""

    def queue_update(
        self,
        key: int,
        *,
        req: int | None = None,
        priority: int | None = None,
        order: int | None = None,
        limit_s: int | None = None,
        ready_at: int | None = None,
        held: int | None = None,
        group: int | None = None,
        unit: int | None = None,
        chain: int | None = None,
    ) -> None:
        """Change what is given of a waiting job. Cost: constant."""

    def queue_priorities(
        self, keys: array[int] | memoryview, priorities: array[int] | memoryview
    ) -> int:
        """New priorities of many jobs: two arrays of int64 ('q') of the same length. Keys that are
        not in the queue are passed over. The number of jobs changed. Cost: keys."""

    def queue_hold(self, keys: array[int] | memoryview, held: int) -> None:
        """The same `held` for many jobs: an array of int64 ('q'). Keys that are not in the queue
        are passed over. The next pass tells the verdict on each anew. Cost: keys."""

    def set_group(self, group: int, left: int) -> None:
        """Jobs of this group that may still start; each start of a pass takes one. A job may be in
        two: its group (an array's throttle, a limit) and its unit (rows of the queue of which only
        one is to start, as of a job for several partitions). Numbered from 0 without gaps, both in
        one row. Cost: constant."""

    def set_bin(
        self, bin: int, left: int, *, fixed: bool = False, jobs: array[int] | None = None
    ) -> None:
        """What is left of a limit; each start of a pass that draws on it takes some. fixed: starts
        take nothing (a bound for each job by itself). jobs: jobs of the bin on each node, an array
        of int32 ('i'), for a limit on nodes that counts each once. Numbered from 0 without gaps.
        Cost: constant; with jobs the nodes."""

    def bin_left(self, bin: int) -> int:
        """What is left of a limit, as of the last pass."""

    def set_chain(
        self,
        chain: int,
        items: Iterable[tuple[int, int, int, bool, float, int]],
        *,
        floor: int | None = None,
        bill: tuple[int, float, float, float, float, float, float, float] = ...,
    ) -> None:
        """The bins that a job draws on, in the order in which they are told: (bin, what, amount,
        timed, factor, spare). what: one of COUNTED; amount: what it counts for by what it asks for;
        timed: times its seconds and the factor; spare: what such jobs may have beside what is left
        (one that only takes: a lot). A job that does not fit into all of them gets the verdict
        LIMIT: it is passed over, gets no reservation and delays nobody. What it has room for is
        counted again by its place. floor: priority that it must have to get a reservation; it gets
        none either that would, with those before it, fill a bin. bill: how "bill" is found for a
        place: 0 CPUs, 1 the sum, 2 the largest of what nodes have and the rest, 3 the largest of
        CPUs and memory and the rest; weights of a CPU, a MB, a node and a GPU; the sum and the
        largest of other GRES; the rest. Numbered from 0 without gaps. Cost: bins."""

    def over_limit(self, wanted: Iterable[tuple[int, int]]) -> int:
        """Whether jobs of these (chain, limit_s) would fit into their bins together by what they
        ask for: the number of the first bin that is too small; -1 they would. Nothing is changed.
        Cost: their bins."""

    def limit_of(self, key: int) -> int:
        """The bin that is too small for a waiting job with the verdict LIMIT."""

    def give_limits(self, key: int, chain: int, limit_s: int) -> None:
        """An allocation that a pass has made is to be released as if it had never begun: its bins
        get back what it took."""

    def set_in_order(self, on: bool) -> None:
        """Whether passes let nobody overtake the first blocked job of his partition (first in,
        first out; the others wait for PRIORITY, or as what they lack is out of use) instead of
        letting those pass who do not delay it. Not together with plan_jobs or keep. Cost:
        constant."""

    def __len__(self) -> int:
        """Jobs in the queue."""

    def verdict(self, key: int) -> int:
        """The verdict of the last pass on a waiting job."""

    def verdicts(self) -> tuple[bytes, bytes]:
        """Keys and verdicts of all waiting jobs in order, as bytes: int64 and uint8 arrays (order
        as of the last pass; jobs added since are not in it). Cost: jobs."""

    def schedule(
        self,
        now: int,
        max_starts: int = 0,
        max_test: int = 0,
        *,
        plan_jobs: int = 0,
        resolution: int = 60,
        window: int = 604800,
        min_priority: int | None = None,
        max_user: int = 0,
        max_partition: int = 0,
        max_user_partition: int = 0,
        max_array: int = -1,
        one_per_unit: bool = False,
        min_age: int = 0,
        busy_first: bool = False,
        partition_depth: int = 0,
        tier_bits: int = 0,
        keep: int = 0,
        grouped: bool = False,
    ) -> Plan:
        """One pass over the queue in order: start what fits, reserve for the first blocked job of
        each partition (EASY), judge the rest.

        A job starts if it fits into what is free and, where a reservation would be touched, ends by
        then or leaves on each node what is reserved. Jobs without a limit are taken to last a year
        where a start in the future is looked for. Started jobs are allocated here under their key
        until now + limit, and leave the queue: the caller only records them (and calls release()
        and queue_add() if it cannot). max_starts, max_test: 0 means no bound. The GIL is not held;
        other calls on this core raise RuntimeError meanwhile. Cost: jobs (some ns each) + one
        placement per request class (and duration, where a reservation is the cause) + per
        reservation log(ends) x (nodes + shares). partition_depth: so many jobs of each partition
        are looked at, 0 all. grouped: jobs of a single row (of no array and no unit) that got the
        verdict PRIORITY, BEHIND or HELD are told in `alike`, by verdict, and not in `changed`:
        thousands may have got the same.

        plan_jobs > 0: conservative instead. The first plan_jobs blocked jobs each get a reservation
        at the earliest time at which nodes hold it throughout (the very GPUs, CPUs and memory
        together) beside all reservations of jobs ahead; nobody starts on what is kept. The jobs
        behind them get a time before which they will not start, from the GPUs and CPUs of their
        partition in all (see estimates()). resolution: expected ends are rounded up to multiples
        of it; window: how far the plan reaches, but for the first blocked job of each partition.
        No reservation for jobs below min_priority (of the low tier_bits of their priority, if
        given), beyond max_user of a user, max_partition of a partition, max_user_partition of a
        user in a partition (0: any number), max_array of an array (-1: any number), beyond what
        may start of a group, or with one_per_unit of a unit, and for those that waited less than
        min_age. busy_first: nodes in use are reserved before idle ones. keep: 0 plans anew, else
        DRAW_FORWARD, HOLD_STILL, or STAND (which needs no plan_jobs). A share of a GPU gets
        no reservation. Cost beside the above: nodes + shares + per reservation nodes (a look-up
        each, and the segments of those in question), for gangs a few times + per other job the
        slots of the window (2,048 at most); with STAND per reservation its shares, and nodes only
        for those made anew (128 at most: then nothing more starts in this pass).
        """

    def run_plan(
        self,
        now: int,
        max_starts: int = 0,
        max_test: int = 0,
        *,
        plan_jobs: int = 0,
        resolution: int = 60,
        window: int = 604800,
        min_priority: int | None = None,
        max_user: int = 0,
        max_partition: int = 0,
        max_user_partition: int = 0,
        max_array: int = -1,
        one_per_unit: bool = False,
        min_age: int = 0,
        busy_first: bool = False,
        partition_depth: int = 0,
        tier_bits: int = 0,
        keep: int = 0,
    ) -> int:
        """schedule() without its report, which costs as much as there is to report: the number of
        reservations. For a plan on a copy, of which adopt_plan() takes what it needs."""

    def copy(self) -> Self:
        """A core that is in all this one is, for a plan in another thread: nothing is shared. It
        gives the same answers, but place() with a limit respects no reservations before its first
        pass. Cost: a memcpy of the arrays (some ms at 10,000 nodes and 100,000 jobs)."""

    def adopt_plan(self, plan: Core) -> int:
        """Take over the reservations and estimates of the last pass of `plan`, a copy() of this
        core: of all jobs that still wait as they did. Its own ones are forgotten. Whether each
        still fits is found out by the next pass with keep=STAND, which gives others to those that
        do not. Jobs that the plan started are reserved for from its time on. How many reservations
        there are. Cost: jobs (some ns each) + shares."""

    def drop_plan(self) -> None:
        """Forget all reservations and estimates."""

    def replanned(self) -> tuple[int, bool]:
        """(reservations that the last pass had to make anew, whether it found so many in need of
        one that it started nothing more). For keep=STAND."""

    def reservation(self, key: int) -> Reservation | None:
        """The reservation of a waiting job. Cost: reservations."""

    def start_estimate(self, key: int) -> int:
        """estimates() of one waiting job. Cost: constant."""

    def order_estimates(self) -> tuple[bytes, bytes]:
        """As estimates(), but the `order` of each job in place of its key, and only of those with
        an estimate and no reservation. Cost: jobs."""

    def estimates(self) -> tuple[bytes, bytes]:
        """Keys and start estimates of all waiting jobs in order, as bytes of int64 arrays: the time
        of its reservation; with plan_jobs also the time before which it will not start; 0: not
        known. Cost: jobs."""

    def reservations(self) -> list[Reservation]:
        """What is kept for waiting jobs since the last pass."""

    def check(self) -> None:
        """Recount everything from the allocations; AssertionError with the first difference. For
        the tests. Cost: nodes + allocations."""

def sweep(
    now: float,
    max_age: float,
    weight_age: float,
    weight_fair: float,
    most: int,
    rising: bool,
    fixed: array[int],
    statics: array[float],
    since: array[float],
    who: array[int],
    fair: array[float],
    last: array[int],
) -> bytearray:
    """Priorities at `now` into `last`, which has the ones before; bytes with 1 where it
    is another.

    Columns of one length: fixed ('q': what it is, if >= 0), statics ('d': the sum of what time
    does not change), since ('d': when its age began, < 0 not yet), who ('q': place in `fair`), last
    ('q'; < 0 a row that is not in use). `rising`: none gets less. Cost: some ns a row.
    """
