"""The conservative plan: every waiting job's start, by trying one moment after the other."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsched._reference.parts import Counts, Free, Held, Node, Request, bitmap, bits
from gsched._reference.windows import Kept

if TYPE_CHECKING:
    from gsched._reference.state import State

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
    milli: int = 0
    #: the lot that it shares cores of, and these, if it ran when the pass began
    lot: int = -1
    slots: tuple[int, ...] = ()


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
        self, nodes: list[Node], held: list[Held], now: int, options: Options, windows: State
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
                until = max(until, self.ends(one.late.get(node, 0)))
                self.uses.append(Use(node, now, until, taken, mem, gpus, False, one.resv, True))
                self.uses[-1].extra = one.counted(cpus)
                self.uses[-1].milli, self.uses[-1].lot = one.milli, one.lot
                self.uses[-1].slots = tuple(one.slots.get(node, ()))

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
        owned = 0
        for use in there:
            free.mem -= use.mem
            free.count(use.extra)
            free.take(use.gpus, use.milli)
            free.jobs += 1
            if use.running:
                owned += OWNED if use.cpus >= OWNED else 0
                taken = use.cpus % OWNED
                if use.lot >= 0:
                    taken = free.join(use.lot, use.slots) * node.threads
                free.cpus -= taken
                free.resv[use.resv] = free.resv.get(use.resv, 0) + use.cpus
        self.for_lot(i, free, there, owned)
        free.cpus -= owned
        confined = windows.confined(resv)
        own = windows.kept_by(resv) if resv >= 0 else Kept()
        mine = i in own.shares and bool(own.spans)
        if confined and not mine:
            free.usable = False
            return free
        if confined and own.until(time) is None:
            free.cpus = free.gpus = 0
            free.took = {}
        elif confined and own.shares[i][0] >= 0:
            free.gpus &= own.shares[i][1]
            free.within(own.shares[i][1])
            free.jobs += 1
        for number, kept in windows.reservations.items():
            if number == resv or i not in kept.shares or kept.until(time) is None:
                continue
            if confined and not kept.firm:
                continue
            size, mask = kept.shares[i]
            if size < 0:
                free.cpus, free.gpus = min(free.cpus, 0), 0
                free.took = {}
            else:
                free.cpus -= max(size - free.resv.get(number, 0), 0)
                free.gpus &= ~mask
                free.within(~mask)
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

    def home(self, i: int) -> int:
        """The lot of a node: of the first of its partitions that shares; -1 none."""
        if self.has_window(i):
            return -1
        shared = [partition for partition, jobs in self.windows.sharing.items() if jobs > 1]
        return min((p for p in shared if self.nodes[i].partitions >> p & 1), default=-1)

    def for_lot(self, i: int, free: Free, there: list[Use], owned: int) -> None:
        """What the node's lot has: of free cores, and of those that its jobs hold now, room for so
        many more jobs; planned jobs take their CPUs of it, and those of others all jobs' room."""
        lot, threads = self.home(i), self.nodes[i].threads
        if lot < 0:
            return
        most = self.windows.sharing[lot]
        free.top = free.cpus + free.joinable(lot, most) * threads - owned
        left = [most - n for n in free.lots.get(lot, {}).values() if n < most]
        free.room = most * free.cpus + sum(left) * threads - owned
        for use in there:
            cpus, more = use.cpus % OWNED, OWNED if use.cpus >= OWNED else 0
            if use.running:
                continue
            if use.lot == lot:
                free.top -= more
                free.room -= cpus + more
            else:
                free.top -= cpus + more
                free.room -= most * cpus + more

    def seen_by(self, want: Request | None, i: int, free: Free, *, first: bool) -> Free:
        """CPUs and memory become those that a request may have."""
        if want is None:
            return free
        if want.lot >= 0 and want.lot == self.home(i):
            free.cpus = min(free.top, free.room)
        cpus, mem = self.windows.within_caps(want, i, free, free.cpus, free.mem, keep=first)
        free.cpus, free.mem = cpus, mem
        free.told = True
        return free

    def has_window(self, i: int) -> bool:
        return any(i in kept.shares and kept.spans for kept in self.windows.reservations.values())

    def events(self, i: int = -1) -> set[int]:
        times = {t for use in self.uses if i in (-1, use.node) for t in (use.at, use.until)}
        return times | self.windows.boundaries(i)

    def window(
        self, i: int, time: int, until: int, resv: int = -1, want: Request | None = None
    ) -> Free:
        """What a node has throughout; for `want` the CPUs and memory that it may have."""
        free = self.seen_by(want, i, self.at(i, time, resv), first=True)
        if want is not None and want.lot >= 0 and time <= self.now:
            # Lines know a lot by number, and not which of its cores are full: now that is known.
            now, most = self.windows.at(-1, 0)[i], self.windows.sharing[want.lot]
            room = now.cpus + now.joinable(want.lot, most) * self.nodes[i].threads
            free.cpus = min(free.cpus, room)
        for event in self.events(i):
            if time < event < until:
                other = self.seen_by(want, i, self.at(i, event, resv), first=False)
                free.cpus, free.mem = min(free.cpus, other.cpus), min(free.mem, other.mem)
                both = (free.gpus | bitmap(free.took)) & (other.gpus | bitmap(other.took))
                free.gpus &= other.gpus
                free.took = {
                    gpu: max(free.took.get(gpu, 0), other.took.get(gpu, 0))
                    for gpu in bits(both & ~free.gpus)
                }
                kinds = free.extra.keys() | other.extra.keys()
                free.extra = {
                    kind: min(free.extra.get(kind, 0), other.extra.get(kind, 0)) for kind in kinds
                }
                free.jobs = max(free.jobs, other.jobs)
        return free

    def kept(self, i: int, until: int) -> int | None:
        """GPUs of planned jobs on a node until then; None: nothing is planned on it so early."""
        mine = [use for use in self.uses if use.node == i and use.planned and use.at < until]
        if not mine:
            return None
        return functools.reduce(operator.or_, (use.gpus for use in mine))

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
