"""Cores that jobs of a partition share, caps on CPUs, and what is kept for idle GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from gsched._reference.near import Nearness
from gsched._reference.parts import Free, Held, Request, Row
from gsched._reference.windows import Kept, Span


class Sharing(Nearness):
    """What of State goes by more than what is free."""

    held: dict[int, Held]
    reservations: dict[int, Kept]
    #: partition -> jobs on a core, where they may be several
    sharing: dict[int, int]
    #: cores that fewer jobs than this hold may be joined; None: whatever the partition says
    joining: int | None
    #: how much of what is kept for idle GPUs counts, while that is found out: see keeps()
    keeping: int | None
    #: (node, lot, core) -> its domain
    core_of: dict[tuple[int, int, int], int]

    def at(self, time: int, now: int, without: Iterable[int] = (), plan: int = 0) -> list[Free]:
        raise NotImplementedError

    def empty(self, *, all_up: bool) -> list[Free]:
        raise NotImplementedError

    def jobs_on(self, node: int) -> int:
        raise NotImplementedError

    def find(
        self,
        want: Request,
        free: list[Free],
        now: int = 0,
        end: int = 0,
        *,
        span: Span | None = None,
        windows: bool | None = None,
        plain: bool = False,
        loose: bool = False,
    ) -> tuple[Row, ...] | None:
        raise NotImplementedError

    def choose_slots(self, held: Held) -> None:
        """The cores of a lot that a job gets which starts now."""
        if held.lot < 0:
            return
        now = self.at(-1, 0)
        for node, cpus, *_ in held.rows:
            cores, fresh = self.parted(node, now[node], cpus)
            held.slots[node] = now[node].pick(held.lot, cores, fresh)

    def parted(self, node: int, free: Free, cpus: int) -> tuple[int, int]:
        """The cores of so many CPUs, and how many of them nobody holds."""
        threads = self.nodes[node].threads
        cores = -(-cpus // threads)
        return cores, min(cores, max(free.cpus, 0) // threads)

    def begin_lot(self, held: Held, node: int, gpus: int) -> None:
        """Those cores of a lot that nobody held get their domains."""
        others = [one for one in self.held.values() if one is not held and one.lot == held.lot]
        there = {core for one in others for core in one.slots.get(node, [])}
        fresh = sorted(set(held.slots[node]) - there)
        free = self.known([Free(0, 0, 0, 0, True)] * len(self.nodes))[node]
        cores = self.cut(self.nodes[node], free, len(fresh) * self.nodes[node].threads, gpus)
        if len(self.nodes[node].domains) < 2:
            return
        dealt = [d for d, n in enumerate(cores) for _ in range(n)]
        dealt += [len(cores) - 1] * (len(fresh) - len(dealt))
        for core, domain in zip(fresh, dealt, strict=True):
            self.core_of[node, held.lot, core] = domain
            self.dom_used[node][domain] += 1

    def end_lot(self, held: Held, node: int) -> None:
        """A share of a lot is gone from `held` already."""
        if len(self.nodes[node].domains) < 2:
            return
        left = {
            core
            for one in self.held.values()
            if one.lot == held.lot
            for row in one.rows
            if row[0] == node
            for core in one.slots[node]
        }
        for core in held.slots[node]:
            if core not in left:
                used, domain = self.dom_used[node], self.core_of.get((node, held.lot, core), 0)
                used[domain] = max(0, used[domain] - 1)
        if not self.jobs_on(node):
            self.dom_used[node][:] = [0] * 16

    def windowed(self, i: int) -> bool:
        """Whether an advance reservation keeps any of a node."""
        return any(i in kept.shares and kept.spans for kept in self.reservations.values())

    def keeps(self, want: Request) -> int:
        """What it leaves alone of what is kept for idle GPUs: 1 all, 2 a half, 3 a quarter, 4 an
        eighth, the most beside which the empty cluster would hold it; 0 nothing."""
        if not want.leaves_gpus or want.wants_gpus or want.exclusive or want.reservation >= 0:
            return 0
        if self.keeping is None:
            level, self.joining = self.joining, None
            try:
                for self.keeping in range(1, 5):
                    if self.find(want, self.empty(all_up=False)) is not None:
                        return self.keeping
            finally:
                self.keeping, self.joining = None, level
            return 0
        return self.keeping

    def beside(self, want: Request, i: int, free: Free) -> tuple[int, int]:
        """CPUs and memory of a node that it may have."""
        cpus, mem = free.cpus, free.mem
        if free.told:
            return cpus, mem
        if want.lot >= 0 and not self.windowed(i):
            level = self.sharing[want.lot] if self.joining is None else self.joining
            cpus += free.joinable(want.lot, level) * self.nodes[i].threads
        return self.within_caps(want, i, free, cpus, mem)

    def within_caps(
        self, want: Request, i: int, free: Free, cpus: int, mem: int, *, keep: bool = True
    ) -> tuple[int, int]:
        """Of so much what its caps leave, and what is kept for idle GPUs."""
        if keep and (part := self.keeps(want)):
            idle = free.gpus.bit_count()
            cpus -= self.nodes[i].keep[0] // 2 ** (part - 1) * idle
            mem -= self.nodes[i].keep[1] // 2 ** (part - 1) * idle
        return min([cpus, *(free.extra.get(kind, 0) for kind in want.cpu_caps)]), mem

    def set_sharing(self, partition: int, jobs: int) -> None:
        self.sharing[partition] = jobs
