"""The conservative plan: every waiting job's start, by trying one moment after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gsched._reference.parts import Counts, Free, Held, Node, Request
from gsched._reference.windows import Kept, Windows

YEAR = 365 * 86400
FOREVER = (1 << 63) - 1
SLOTS = 2048
OWNED = 1 << 20


@dataclass
class Use:
    """A share of a node that is taken for some time."""

    node: int
    at: int
    until: int
    cpus: int
    mem: int
    gpus: int
    planned: bool
    #: the advance reservation of the job; whether it ran when the pass began
    resv: int
    running: bool
    #: of the job it is planned for
    key: int = 0
    extra: Counts = ()


@dataclass
class Options:
    exact: int
    quick: bool
    min_priority: int
    step: int = 60
    window: int = 0
    max_user: int = 0
    max_partition: int = 0
    max_pair: int = 0
    max_array: int = -1
    per_unit: bool = False
    min_age: int = 0
    busy_first: bool = False
    tier_bits: int = 0


class Book:
    """What is taken when, during one pass at `now`."""

    def __init__(
        self, nodes: list[Node], held: list[Held], now: int, options: Options, windows: Windows
    ) -> None:
        self.nodes, self.now, self.options = nodes, now, options
        self.windows = windows
        self.uses: list[Use] = []
        self.exact = 0
        #: reservations by what they count against
        self.tally: Counter[tuple[str, int]] = Counter()
        self.window_s = options.window
        self.slot = max(options.step, -(-options.window // SLOTS))
        self.slots = -(-options.window // self.slot)
        self.skies: dict[int, list[tuple[int, int]]] = {}
        for one in held:
            for node, cpus, _, mem, gpus in one.rows:
                until, taken = self.ends(one.end), self.cpus(cpus, one.owner)
                self.uses.append(Use(node, now, until, taken, mem, gpus, False, one.resv, True))
                self.uses[-1].extra = one.extra

    @staticmethod
    def cpus(cpus: int, owner: int) -> int:
        """What others lose by a job: more than there is where they are kept out."""
        return cpus + (OWNED if owner >= 0 else 0)

    def ends(self, end: int) -> int:
        end = self.now + YEAR if end == FOREVER else max(end, self.now + 1)
        return -(-end // self.options.step) * self.options.step

    def take(
        self,
        node: int,
        at: int,
        until: int,
        cpus: int,
        mem: int,
        gpus: int,
        planned: bool,
        resv: int = -1,
        key: int = 0,
    ) -> None:
        self.uses.append(Use(node, at, until, cpus, mem, gpus, planned, resv, False, key))

    def at(self, i: int, time: int, resv: int = -1) -> Free:
        """What a node has for jobs of an advance reservation (-1: for others). CPUs that windows
        keep are never counted as free for others, whether its jobs hold them or not."""
        node, windows = self.nodes[i], self.windows
        free = Free(
            *(node.cpus, node.mem, node.gpus & node.ok, 0, node.usable), extra=dict(node.extra)
        )
        there = [use for use in self.uses if use.node == i and use.at <= time < use.until]
        for use in there:
            free.mem -= use.mem
            free.count(use.extra)
            free.gpus &= ~use.gpus
            free.jobs += 1
            if use.running:
                free.cpus -= use.cpus
                free.resv[use.resv] = free.resv.get(use.resv, 0) + use.cpus
        confined = windows.confined(resv)
        own = windows.kept_by(resv) if resv >= 0 else Kept()
        mine = i in own.shares and bool(own.spans)
        if confined and not mine:
            free.usable = False
            return free
        if confined and own.until(time) is None:
            free.cpus = free.gpus = 0
        elif confined and own.shares[i][0] >= 0:
            free.gpus &= own.shares[i][1]
            free.jobs += 1
        for number, kept in windows.reservations.items():
            if number == resv or i not in kept.shares or kept.until(time) is None:
                continue
            if confined and not kept.firm:
                continue
            size, mask = kept.shares[i]
            if size < 0:
                free.cpus, free.gpus = min(free.cpus, 0), 0
            else:
                free.cpus -= max(size - free.resv.get(number, 0), 0)
                free.gpus &= ~mask
                free.jobs += 1
        if confined and own.until(time) is not None and own.shares[i][0] >= 0:
            free.cpus = min(free.cpus, own.shares[i][0] - free.resv.get(resv, 0))
        for use in there:
            if use.running:
                continue
            outside = not windows.confined(use.resv) or not self.has_window(i)
            if (use.resv >= 0 or not confined) if mine else outside:
                free.cpus -= use.cpus
        return free

    def has_window(self, i: int) -> bool:
        return any(i in kept.shares and kept.spans for kept in self.windows.reservations.values())

    def events(self, i: int = -1) -> set[int]:
        times = {t for use in self.uses if i in (-1, use.node) for t in (use.at, use.until)}
        return times | self.windows.boundaries(i)

    def window(self, i: int, time: int, until: int, resv: int = -1) -> Free:
        """What a node has throughout."""
        free = self.at(i, time, resv)
        for event in self.events(i):
            if time < event < until:
                other = self.at(i, event, resv)
                free.cpus, free.mem = min(free.cpus, other.cpus), min(free.mem, other.mem)
                free.gpus &= other.gpus
                kinds = free.extra.keys() | other.extra.keys()
                free.extra = {
                    kind: min(free.extra.get(kind, 0), other.extra.get(kind, 0)) for kind in kinds
                }
                free.jobs = max(free.jobs, other.jobs)
        return free

    def kept(self, i: int, until: int) -> int | None:
        """GPUs of planned jobs on a node until then; None: nothing is planned on it."""
        mine = [use for use in self.uses if use.node == i and use.planned]
        if not mine:
            return None
        gpus = 0
        for use in mine:
            if use.at < until:
                gpus |= use.gpus
        return gpus

    def planned_on(self, i: int, until: int) -> bool:
        """Whether a job is planned on a node before then."""
        return any(use.node == i and use.planned and use.at < until for use in self.uses)

    # --- the skyline

    def sky(self, partition: int) -> list[tuple[int, int]]:
        """(GPUs, CPUs) of a partition in each slot: as at the last change within it."""
        if partition not in self.skies:
            found = []
            for slot in range(self.slots):
                gpus = cpus = 0
                for i, node in enumerate(self.nodes):
                    if not node.usable or (partition >= 0 and not node.partitions >> partition & 1):
                        continue
                    last = self.now + (slot + 1) * self.slot - 1
                    free = self.at(i, last)
                    gpus += free.gpus.bit_count()
                    cpus += max(free.cpus, 0)
                found.append((gpus, cpus))
            self.skies[partition] = found
        return self.skies[partition]

    def sink(self, partition: int, first: int, slots: int, gpus: int, cpus: int) -> None:
        sky = self.skies[partition]
        for k in range(first, min(first + slots, self.slots)):
            sky[k] = (sky[k][0] - gpus, sky[k][1] - cpus)

    def lay(self, want: Request, duration: int) -> int:
        """The time before which it will not start; 0: not within the window."""
        sky = self.sky(want.partition)
        nodes = max(want.min_nodes, len(set(want.nodelist)))
        tasks, gpus = want.least_tasks, want.least_gpus(want.least_tasks)
        if 1 in (want.max_nodes, want.cap_nodes):
            tasks = max(tasks, want.ntasks)
            gpus = want.gpus_total or want.gpus_per_node or want.gpus_per_task * tasks
        need = want.cpus_per_task if want.overcommit else tasks * want.cpus_per_task
        cpus = nodes * max(need, gpus * want.cpus_per_gpu, want.min_cpus_node, 1)
        gpus = max(nodes * gpus, want.gpus_total, want.ntasks * want.gpus_per_task)
        if not want.overcommit:
            cpus = max(cpus, want.ntasks * want.cpus_per_task)
        slots = min(-(-duration // self.slot), self.slots)
        for first in range(self.slots):
            if all(g >= gpus and c >= cpus for g, c in sky[first : first + slots]):
                self.sink(want.partition, first, slots, gpus, cpus)
                return self.now + first * self.slot
        return 0
