"""The conservative plan: every waiting job's start, by trying one moment after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gsched._reference.parts import Free, Held, Node, Request

YEAR = 365 * 86400
FOREVER = (1 << 63) - 1
SLOTS = 2048


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
    #: of the job it is planned for
    key: int = 0


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

    def __init__(self, nodes: list[Node], held: list[Held], now: int, options: Options) -> None:
        self.nodes, self.now, self.options = nodes, now, options
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
                self.take(node, now, self.ends(one.end), cpus, mem, gpus, False)

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
        key: int = 0,
    ) -> None:
        self.uses.append(Use(node, at, until, cpus, mem, gpus, planned, key))

    def at(self, i: int, time: int) -> Free:
        node = self.nodes[i]
        free = Free(node.cpus, node.mem, node.gpus & node.ok, 0, node.usable)
        for use in self.uses:
            if use.node == i and use.at <= time < use.until:
                free.cpus -= use.cpus
                free.mem -= use.mem
                free.gpus &= ~use.gpus
                free.jobs += 1
        return free

    def events(self, i: int = -1) -> set[int]:
        return {t for use in self.uses if i in (-1, use.node) for t in (use.at, use.until)}

    def window(self, i: int, time: int, until: int) -> Free:
        """What a node has throughout."""
        free = self.at(i, time)
        for event in self.events(i):
            if time < event < until:
                other = self.at(i, event)
                free.cpus, free.mem = min(free.cpus, other.cpus), min(free.mem, other.mem)
                free.gpus &= other.gpus
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
