"""Limits on what jobs hold together, as bins and chains of the core.

What limits there are, and how much of each is in use, somebody else knows (a `Source`); here they
get numbers, and are told to the core before each pass. Without a source it costs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gsched import _core
from gsched.cluster.nodes import Nodes
from gsched.model import Job, Shape

#: whose jobs count (what they hold changes at one time), what is counted, and of which TRES
Whose = tuple[str, int | str, str]
Pool = tuple[Whose, str, str]
#: more than any limit leaves
MOST = (1 << 62) - 1
#: weights by which a place is billed, see Core.set_chain
Bill = tuple[int, float, float, float, float, float, float, float]
NO_BILL: Bill = (0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Draw:
    """What a job takes of one pool."""

    pool: Pool
    #: a name of _core.COUNTED, and how much by what it asks for
    what: str
    amount: int
    #: times the seconds of its time limit, and this factor
    timed: bool = False
    factor: float = 1.0
    #: the limit; the pool has what is in use, as a negative number
    limit: int = MOST
    #: a bound for each job by itself: nothing is taken
    fixed: bool = False
    #: known by the place alone, and too much on as few nodes as will do: told before those behind
    likely: bool = False


@dataclass(frozen=True)
class Chain:
    """All that the jobs of one signature take, in the order in which a lack is told."""

    draws: tuple[Draw, ...] = ()
    floor: int | None = None
    bill: Bill = NO_BILL


class Source(Protocol):
    """Who knows the limits."""

    def signature(self, job: Job, partition: str, shape: Shape) -> Hashable | None:
        """What a job's limits and demands follow from, if it runs there in that shape; None: it
        has none."""

    def chain(self, signature: Hashable) -> Chain:
        """They, as they are now."""

    def used(self, pool: Pool, now: int) -> tuple[int, Mapping[str, int] | None]:
        """How much of a pool is in use; and jobs by node, where nodes are counted."""

    def moves(self, pool: Pool) -> bool:
        """Whether that changes with time alone."""

    def word(self, pool: Pool) -> str:
        """Slurm's reason for waiting for it."""

    def free_of(self, job: Job) -> frozenset[str]:
        """Flags of a job's QOS by which limits of its partition do not hold for it."""


class Limits:
    """The numbers of bins and chains."""

    def __init__(self, nodes: Nodes, core: _core.Core) -> None:
        self._nodes = nodes
        self._core = core
        self.source: Source | None = None
        self._bins: dict[tuple[Pool, bool], int] = {}
        self._pools: list[Pool] = []
        #: bins by whose jobs count for them
        self._whose: dict[Whose, list[int]] = {}
        self._fixed: set[int] = set()
        self._moving: set[int] = set()
        #: bins that the core must be told anew
        self._dirty: set[int] = set()
        self._chains: dict[Hashable, int] = {}
        self._signatures: list[Hashable] = []
        self._refs: list[int] = []
        self._draws: list[tuple[int, ...]] = []
        #: of a chain what is told in place of a bin
        self._told: dict[int, dict[int, int]] = {}
        #: chains with a bin that is likely too small, and which: what their jobs wait for
        self.likely: dict[int, int] = {}
        self._spare: list[int] = []

    # ---- chains -----------------------------------------------------------------------------

    def free_of(self, job: Job) -> frozenset[str]:
        """Flags of a job's QOS by which limits of its partition do not hold for it."""
        return self.source.free_of(job) if self.source is not None else frozenset()

    def acquire(self, job: Job, partition: str, shape: Shape) -> int:
        """The chain of a waiting job in a partition, and in one of its shapes; -1: no
        limit counts for it. Cost: a few us, and some ten for the first of a signature."""
        if self.source is None:
            return -1
        signature = self.source.signature(job, partition, shape)
        if signature is None:
            return -1
        number = self._chains.get(signature)
        if number is None:
            chain = self.source.chain(signature)
            if self._spare:
                number = self._spare.pop()
                self._signatures[number] = signature
            else:
                number = len(self._signatures)
                self._signatures.append(signature)
                self._refs.append(0)
                self._draws.append(())
            self._chains[signature] = number
            self._set(number, chain)
        self._refs[number] += 1
        return number

    def release(self, number: int) -> None:
        """A job has left the queue."""
        if number < 0:
            return
        self._refs[number] -= 1
        if not self._refs[number]:
            del self._chains[self._signatures[number]]
            self._signatures[number] = None
            self._spare.append(number)

    def _set(self, number: int, chain: Chain) -> None:
        items = [
            (
                self._bin(draw),
                _core.COUNTED[draw.what],
                min(draw.amount, MOST),
                draw.timed,
                draw.factor,
                min(draw.limit, MOST),
            )
            for draw in chain.draws
        ]
        self._core.set_chain(number, items, floor=chain.floor, bill=chain.bill)
        self._draws[number] = bins = tuple(item[0] for item in items)
        self._told.pop(number, None)
        self.likely.pop(number, None)
        first = next((n for n, draw in enumerate(chain.draws) if draw.likely), None)
        if first is not None:
            self.likely[number] = bins[first]
            before = bins[: first + 1]
            self._told[number] = {bin: bins[first] for bin in bins if bin not in before}

    def _bin(self, draw: Draw) -> int:
        key = draw.pool, draw.fixed
        number = self._bins.get(key)
        if number is None:
            number = self._bins[key] = len(self._pools)
            self._pools.append(draw.pool)
            self._core.set_bin(number, 0, fixed=draw.fixed)
            if draw.fixed:
                self._fixed.add(number)
            else:
                self._dirty.add(number)
                self._whose.setdefault(draw.pool[0], []).append(number)
                if self.source is not None and self.source.moves(draw.pool):
                    self._moving.add(number)
        return number

    def rebuild(self) -> None:
        """Limits have changed: all chains are made anew. Cost: ~10 us each."""
        assert self.source is not None
        for number, signature in enumerate(self._signatures):
            if signature is not None:
                self._set(number, self.source.chain(signature))
        self._dirty |= set(range(len(self._pools))) - self._fixed

    # ---- bins -------------------------------------------------------------------------------

    def changed(self, whose: Whose) -> None:
        """What somebody's jobs hold has changed."""
        self._dirty.update(self._whose.get(whose, ()))

    def took(self, number: int) -> None:
        """A pass has started a job of that chain: whether it stays started is seen later."""
        if number >= 0:
            self._dirty.update(set(self._draws[number]) - self._fixed)

    def refresh(self, now: int) -> None:
        """Tells the core how much is in use, before a pass. Cost: ~1 us for each pool that changed
        or changes with time; nodes for those that count them."""
        if self.source is None:
            return
        for number in sorted(self._dirty | self._moving):
            used, nodes = self.source.used(self._pools[number], now)
            jobs: array[int] | None = None
            if nodes is not None:
                jobs = array("i", bytes(4 * len(self._nodes.names)))
                for name, count in nodes.items():
                    if name in self._nodes.index:
                        jobs[self._nodes.index[name]] = count
            self._core.set_bin(number, -min(used, MOST), jobs=jobs)
        self._dirty.clear()

    # ---- who is told ------------------------------------------------------------------------

    def pool_of(self, key: int, number: int, chain: int) -> Pool | None:
        """The pool that leaves too little for a row of that chain with the verdict LIMIT; None: not
        known. `number`: its bin, where the core has not looked at the row; else -1."""
        number = self._core.limit_of(key) if number < 0 else number
        number = self._told.get(chain, {}).get(number, number)
        return self._pools[number] if 0 <= number < len(self._pools) else None

    def word(self, key: int, number: int, chain: int) -> str:
        """Slurm's reason word for that."""
        pool = self.pool_of(key, number, chain)
        if pool is None or self.source is None:
            return "None"
        return self.source.word(pool)
