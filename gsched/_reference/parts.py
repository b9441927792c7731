"""What the core's slow twin is made of: link classes, nodes, requests, jobs as plain objects."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

BIG = 1_000_000_000

Row = tuple[int, int, int, int, int]
#: (kind, count) of resources that are only counted
Counts = tuple[tuple[int, int], ...]


def bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def bitmap(numbers: Iterable[int]) -> int:
    return sum(1 << i for i in numbers)


@dataclass
class LinkClass:
    """GPUs of a node: how strongly each two are joined, and who is joined at all."""

    links: list[list[int]]
    numa: list[int]
    islands: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        seen: set[int] = set()
        for first in range(len(self.links)):
            if first in seen:
                continue
            island = {first}
            while True:
                more = {j for i in island for j, n in enumerate(self.links[i]) if n and j != i}
                if more <= island:
                    break
                island |= more
            seen |= island
            self.islands.append(bitmap(island))

    def weight(self, a: int, b: int) -> int:
        return 4096 * self.links[a][b] + (self.numa[a] == self.numa[b])

    def inside(self, mask: int) -> int:
        return sum(self.weight(a, b) for a, b in itertools.combinations(bits(mask), 2))

    def largest(self, mask: int) -> int:
        return max(((mask & island).bit_count() for island in self.islands), default=0)

    def score(self, free: int, choice: int) -> tuple[int, int, int]:
        return (-self.inside(choice), -self.inside(free & ~choice), choice)

    def best(self, free: int, count: int) -> int:
        if count <= 0:
            return 0
        if free.bit_count() <= count:
            return free
        if len(self.links) > 16:
            weights = {self.weight(a, b) for a in range(len(self.links)) for b in range(a)}
            if len(weights) == 1:
                return bitmap(bits(free)[:count])
            choices = [self.grown(free, seed, count) for seed in bits(free)]
        else:
            choices = [bitmap(c) for c in itertools.combinations(bits(free), count)]
        return min(choices, key=lambda choice: self.score(free, choice))

    def grown(self, free: int, seed: int, count: int) -> int:
        """From a seed, always the GPU that adds most, then harms the rest least."""
        chosen = [seed]
        while len(chosen) < count:
            rest = [g for g in bits(free) if g not in chosen]

            def worth(g: int, rest: Sequence[int] = rest) -> tuple[int, int, int]:
                gain = sum(self.weight(g, c) for c in chosen)
                harm = sum(self.weight(g, o) for o in rest if o != g)
                return (-gain, harm, g)

            chosen.append(min(rest, key=worth))
        return bitmap(chosen)

    def best_on_island(self, free: int, count: int) -> int:
        choices = [
            self.best(free & island, count)
            for island in self.islands
            if (free & island).bit_count() >= count
        ]
        return min(choices, key=lambda choice: self.score(free, choice), default=0)


@dataclass
class Node:
    cls: int = 0
    cpus: int = 0
    mem: int = 0
    types: dict[int, int] = field(default_factory=dict)
    ok: int = 0
    usable: bool = False
    partitions: int = 0
    features: int = 0
    weight: int = 0
    threads: int = 1
    #: (kind, number) of the parts of each GPU; None: thousandths
    gpu_parts: list[tuple[int, int]] | None = None
    sockets: int = 1
    cores_per_socket: int = 0
    #: (socket, cores) of each domain, and bitmaps of the domains near each GPU
    domains: list[tuple[int, int]] = field(default_factory=list)
    near: list[int] = field(default_factory=list)
    #: counted resources by kind
    extra: dict[int, int] = field(default_factory=dict)
    #: CPUs and MB that are kept for each idle GPU
    keep: tuple[int, int] = (0, 0)

    def parts(self, gpu: int) -> tuple[int, int]:
        """(kind, number) of the parts of a GPU."""
        if self.gpu_parts is None or gpu >= len(self.gpu_parts):
            return 0, 1000
        return self.gpu_parts[gpu]

    @property
    def gpus(self) -> int:
        return sum(self.types.values())


@dataclass
class Free:
    """What a node has left at some time."""

    cpus: int
    mem: int
    gpus: int
    jobs: int
    usable: bool
    #: GPU -> parts of it that are taken, of those in parts
    took: dict[int, int] = field(default_factory=dict)
    #: reservation -> CPUs that its jobs hold
    resv: dict[int, int] = field(default_factory=dict)
    #: whose jobs alone may be there; -1 anybody's
    owner: int = -1
    #: counted resources by kind
    extra: dict[int, int] = field(default_factory=dict)
    #: cores of each domain that are in use; None: not known at that time
    used: list[int] | None = None
    #: lot -> core of it -> jobs that hold it
    lots: dict[int, dict[int, int]] = field(default_factory=dict)
    #: CPUs for one more job of the node's lot, and the room of all of them (over time)
    top: int = 0
    room: int = 0
    #: CPUs and memory are those that the request in hand may have
    told: bool = False

    def join(self, lot: int, cores: Iterable[int]) -> int:
        """Cores of a lot get one job more: how many nobody held."""
        there = self.lots.setdefault(lot, {})
        fresh = 0
        for core in cores:
            fresh += core not in there
            there[core] = there.get(core, 0) + 1
        return fresh

    def joinable(self, lot: int, below: int) -> int:
        """Cores of a lot that fewer jobs than that hold."""
        return sum(n < below for n in self.lots.get(lot, {}).values())

    def pick(self, lot: int, cores: int, fresh: int) -> list[int]:
        """So many cores: `fresh` that nobody of the lot holds, then those with the fewest jobs."""
        there = self.lots.get(lot, {})
        fresh = min(fresh, cores)
        chosen = [k for k in range(len(there) + fresh) if k not in there][:fresh]
        return chosen + sorted(there, key=lambda k: (there[k], k))[: cores - fresh]

    def count(self, extra: Counts) -> None:
        """Counted resources are taken."""
        for kind, number in extra:
            self.extra[kind] = self.extra.get(kind, 0) - number

    def counts(self, extra: Counts) -> bool:
        """Whether there are so many."""
        return all(self.extra.get(kind, 0) >= number for kind, number in extra if number)

    def within(self, gpus: int) -> None:
        """Only these GPUs count of those in parts."""
        self.took = {gpu: n for gpu, n in self.took.items() if gpus >> gpu & 1}

    def take(self, gpus: int, milli: int) -> None:
        self.gpus &= ~gpus
        if milli:
            bit = bits(gpus)[0]
            self.took[bit] = self.took.get(bit, 0) + milli


Groups = tuple[tuple[int, tuple[int, ...]], ...]
Variant = tuple[tuple[int, ...], Groups]


@dataclass(frozen=True)
class Request:
    partition: int = -1
    features_all: int = 0
    features_any: tuple[int, ...] = ()
    min_nodes: int = 1
    max_nodes: int = 0
    cap_nodes: int = 0
    ntasks: int = 0
    cpus_per_task: int = 1
    min_cpus_node: int = 0
    ntasks_per_node: int = 0
    mem_per_node_mb: int = -1
    mem_per_cpu_mb: int = 0
    mem_per_gpu_mb: int = 0
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    gpus_total: int = 0
    cpus_per_gpu: int = 0
    gpu_type: int = -1
    exclusive: bool = False
    overcommit: bool = False
    one_island: bool = False
    threads_per_core: int = 0
    nodelist: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()
    gpu_milli: int = 0
    gpu_kind: int = 0
    one_shared: bool = False
    policy: int = 0
    #: (type, per node, per task, in all)
    gpu_kinds: tuple[tuple[int, int, int, int], ...] = ()
    ntasks_per_core: int = 0
    ntasks_per_gpu: int = 0
    ntasks_per_socket: int = 0
    gpus_per_socket: int = 0
    gpu_binding: int = 0
    min_sockets: int = 0
    min_cores_per_socket: int = 0
    min_threads: int = 0
    #: (alternatives, ((nodes, alternatives), ...)) in turn
    variants: tuple[Variant, ...] = ()
    switches: int = 0
    segment: int = 0
    contiguous: bool = False
    spread: bool = False
    use_min_nodes: bool = False
    reservation: int = -1
    owner: int = -1
    extra: Counts = ()
    cpu_caps: tuple[int, ...] = ()
    shares_cpus: bool = False
    leaves_gpus: bool = False

    @property
    def lot(self) -> int:
        """The partition with whose jobs it shares cores; -1: with none."""
        near = self.ntasks_per_socket or self.gpus_per_socket or self.gpu_binding == 1
        return self.partition if self.shares_cpus and self.reservation < 0 and not near else -1

    @property
    def alone(self) -> bool:
        return self.exclusive and self.lot < 0

    def counted(self, cpus: int) -> Counts:
        """What a share with so many CPUs takes of counted resources."""
        return self.extra + tuple((kind, cpus) for kind in self.cpu_caps)

    @property
    def wants_gpus(self) -> bool:
        return bool(self.gpus_per_node or self.gpus_per_task or self.gpus_total)

    @property
    def least_tasks(self) -> int:
        return 1 if self.ntasks else self.ntasks_per_node or 1

    def least_gpus(self, tasks: int) -> int:
        """GPUs of a node that holds so many tasks, at least."""
        if self.gpus_total:
            return 1
        return self.gpus_per_node or self.gpus_per_task * tasks

    def cores(self, node: Node, tasks: int, gpus: int) -> int:
        need = self.cpus_per_task if self.overcommit else tasks * self.cpus_per_task
        need = max(need, gpus * self.cpus_per_gpu, self.min_cpus_node, 1)
        threads = self.threads(node)
        cores = -(-need // threads)
        if self.ntasks_per_core == 1 and not self.overcommit:
            # Each task has its cores for itself.
            return max(cores, tasks * -(-self.cpus_per_task // threads))
        if self.ntasks_per_core and not self.overcommit:
            return max(cores, -(-tasks // self.ntasks_per_core))
        return cores

    def threads(self, node: Node) -> int:
        """Of each core that are used."""
        return min(self.threads_per_core or node.threads, node.threads)

    def memory(self, node: Node, cpus: int, gpus: int) -> int:
        if self.mem_per_node_mb >= 0:
            return self.mem_per_node_mb or node.mem
        used = cpus // node.threads * self.threads(node)
        return self.mem_per_cpu_mb * used + self.mem_per_gpu_mb * gpus

    def of_type(self, node: Node) -> int:
        """GPUs of a node that are of a type that is asked for."""
        if self.gpu_kinds:
            return sum(node.types.get(kind[0], 0) for kind in self.gpu_kinds)
        return node.gpus if self.gpu_type < 0 else node.types.get(self.gpu_type, 0)


@dataclass
class Job:
    key: int
    req: int
    priority: int
    order: int
    limit: int
    ready: int
    held: int
    group: int
    unit: int
    user: int = -1
    array: int = -1
    since: int = 0
    chain: int = -1
    #: the limit that is in its way
    bin: int = -1
    verdict: int = 0
    start: int = 0


@dataclass
class Held:
    rows: list[Row]
    end: int
    milli: int = 0
    #: reservations there were when the running pass started it
    since: int = 0
    #: the advance reservation that it runs in
    resv: int = -1
    #: nobody else's jobs share its nodes; -1 they may
    owner: int = -1
    #: counted resources that it holds on each node
    extra: Counts = ()
    #: node -> its cores by domain
    cores: dict[int, list[int]] = field(default_factory=dict)
    #: the kinds of which it takes as many as CPUs
    caps: tuple[int, ...] = ()
    #: the lot that it shares cores of, and node -> these
    lot: int = -1
    slots: dict[int, list[int]] = field(default_factory=dict)
    #: node -> until when others hold after it what it has there
    late: dict[int, int] = field(default_factory=dict)

    def counted(self, cpus: int) -> Counts:
        return self.extra + tuple((kind, cpus) for kind in self.caps)
