"""How much of the free GPUs is of no use to the jobs that usually come.

A free GPU of a node counts as fragmented for a kind of job if that node cannot take one more
node's share of such a job (too few free GPUs beside it, too few CPUs, too little memory), and what
is left of a GPU in parts counts so if it is less than such a job wants of one GPU. The measure of
a node is the mean over the kinds of jobs with GPUs, each weighted by how often it comes; that of
the cluster is the sum over its nodes, in GPUs. (The F of "Beware of Fragmentation", USENIX ATC
2023, but that GPU types, features and jobs without GPUs are not looked at.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Demand(NamedTuple):
    """What a job needs of one node; `gpus` below 1: so much of one GPU."""

    gpus: float
    cpus: int
    mem_mb: int


class Left(NamedTuple):
    """What a node has left."""

    gpus: int
    cpus: int
    mem_mb: int
    #: of each GPU in parts, those that are free
    rests: tuple[float, ...] = ()


#: kinds of jobs looked at, the most frequent ones; answers kept
KINDS = 64
KNOWN = 1 << 16


class Fragmentation:
    """Answers for nodes that have so much left. Cost: a look-up; KINDS at the first time."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        count = Counter(demand for demand in demands if demand.gpus)
        usual = count.most_common(KINDS)
        total = sum(often for _, often in usual)
        self._kinds = [(demand, often / total) for demand, often in usual]
        self._known: dict[Left, float] = {}

    def unusable(self, left: Left) -> float:
        """Of a node's free GPUs, so many are lost to the usual job."""
        if not left.gpus and not left.rests:
            return 0.0
        found = self._known.get(left)
        if found is None:
            if len(self._known) >= KNOWN:
                self._known.clear()
            found = sum(often * _lost(left, demand) for demand, often in self._kinds)
            self._known[left] = found
        return found


def _lost(left: Left, demand: Demand) -> float:
    too_little = demand.cpus > left.cpus or demand.mem_mb > left.mem_mb
    if demand.gpus >= 1:
        whole = left.gpus if too_little or demand.gpus > left.gpus else 0
        return whole + sum(left.rests)
    if too_little:
        return left.gpus + sum(left.rests)
    return sum(rest for rest in left.rests if rest < demand.gpus)
