"""What jobs may hold together: bins, and the chains by which jobs draw on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gsched import _core
from gsched._reference.parts import Job, Row
from gsched._reference.plan import FOREVER, YEAR

MOST = (1 << 62) - 1
NAMES = {code: name for name, code in _core.COUNTED.items()}


@dataclass
class Bin:
    left: int
    fixed: bool
    #: jobs on each node, where nodes are what is limited
    jobs: Counter[int] | None = None


@dataclass
class Item:
    bin: int
    what: str
    amount: int
    timed: bool
    factor: float
    spare: int


@dataclass
class Chain:
    items: list[Item]
    floor: int
    bill: tuple[float, ...]


@dataclass
class Limits:
    bins: list[Bin] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    #: of each bin what the reservations of a pass would take
    ahead: Counter[int] = field(default_factory=Counter)

    def set_bin(
        self, bin: int, left: int, *, fixed: bool = False, jobs: Sequence[int] | None = None
    ) -> None:
        there = None if jobs is None else Counter(dict(enumerate(jobs)))
        self.bins[bin:] = [Bin(left, fixed, there), *self.bins[bin + 1 :]]

    def set_chain(
        self,
        chain: int,
        items: Iterable[tuple[int, int, int, bool, float, int]],
        *,
        floor: int | None = None,
        bill: tuple[float, ...] = (0,) * 8,
    ) -> None:
        made = [
            Item(bin, NAMES[what], amount, timed, factor, spare)
            for bin, what, amount, timed, factor, spare in items
        ]
        low = -FOREVER if floor is None else floor
        self.chains[chain:] = [Chain(made, low, bill), *self.chains[chain + 1 :]]

    @staticmethod
    def times(item: Item, amount: int, job: Job) -> int:
        if not item.timed:
            return amount
        product = amount * (job.limit or YEAR)
        return min(MOST, product if item.factor == 1 else int(product * item.factor))

    @staticmethod
    def billed(chain: Chain, cpus: int, mem: int, nodes: int, gpus: int) -> int:
        mode, cpu, mb, node, gpu, gres, most, rest = chain.bill
        rest += nodes * node
        if mode == 0:
            return cpus
        if mode == 1:
            return int(cpus * cpu + mem * mb + gpus * gpu + gres + rest + 1e-9)
        if mode == 2:
            return int(max(cpus * cpu, mem * mb, gpus * gpu, most) + rest + 1e-9)
        return int(max(cpus * cpu, mem * mb) + gpus * gpu + gres + rest + 1e-9)

    def counted(self, chain: Chain, item: Item, rows: Sequence[Row], milli: int) -> int:
        """What a place counts for."""
        cpus, mem = sum(row[1] for row in rows), sum(row[3] for row in rows)
        gpus = 0 if milli else sum(row[4].bit_count() for row in rows)
        on = self.bins[item.bin].jobs
        nodes = max(len(rows), 1)
        return {
            "cpus_each": cpus // nodes,
            "mem_each": mem // nodes,
            "gpus_each": gpus // nodes,
            "fixed": item.amount,
            "cpus": cpus,
            "mem": mem,
            "nodes": len(rows),
            "gpus": gpus,
            "bill": self.billed(chain, cpus, mem, len(rows), gpus),
            "hosts": sum(on is None or not on[row[0]] for row in rows),
        }[item.what]

    def before(self, job: Job) -> int:
        """The first bin that is too small for what a job asks for; -1 none."""
        for item in self.chains[job.chain].items if job.chain >= 0 else ():
            left = self.bins[item.bin].left + item.spare
            if item.what != "hosts" and self.times(item, item.amount, job) > left:
                return item.bin
        return -1

    def after(self, job: Job, rows: Sequence[Row], milli: int) -> int:
        """The same for what it would get."""
        if job.chain < 0:
            return -1
        chain = self.chains[job.chain]
        for item in chain.items:
            amount = self.counted(chain, item, rows, milli)
            left = self.bins[item.bin].left + item.spare
            if item.what != "fixed" and self.times(item, amount, job) > left:
                return item.bin
        return -1

    def take(self, job: Job, rows: Sequence[Row], milli: int) -> None:
        if job.chain < 0:
            return
        chain = self.chains[job.chain]
        for item in chain.items:
            one = self.bins[item.bin]
            if one.fixed or (item.what == "hosts" and one.jobs is None):
                continue
            one.left -= self.times(item, self.counted(chain, item, rows, milli), job)
            one.left = max(one.left, -MOST)
            if item.what == "hosts" and one.jobs is not None:
                one.jobs.update(row[0] for row in rows)

    def may_wait(self, job: Job) -> bool:
        """Whether a job may have a reservation."""
        if job.chain < 0:
            return True
        chain = self.chains[job.chain]
        if job.priority < chain.floor:
            return False
        return not any(
            self.times(item, item.amount, job)
            > self.bins[item.bin].left + item.spare - self.ahead[item.bin]
            for item in chain.items
            if not self.bins[item.bin].fixed and item.what != "hosts" and item.bin in self.ahead
        )

    def plan(self, job: Job) -> None:
        """A job has got one."""
        for item in self.chains[job.chain].items if job.chain >= 0 else ():
            ahead = self.ahead[item.bin] + self.times(item, item.amount, job)
            self.ahead[item.bin] = min(ahead, MOST)
