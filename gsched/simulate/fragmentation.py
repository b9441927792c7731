"""How much of the free GPUs is of no use to the jobs that usually come.

A free GPU of a node counts as fragmented for a kind of job if that node cannot take one more
node's share of such a job: too few free GPUs beside it, or too few CPUs or too little memory. The
measure of a node is the mean over the kinds of jobs with GPUs, each weighted by how often it
comes; that of the cluster is the sum over its nodes, in GPUs. (As the F of "Beware of
Fragmentation", USENIX ATC 2023, for whole GPUs; types and features are not looked at.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

#: a share of a job on one node: (GPUs, CPUs, MB)
Demand = tuple[int, int, int]

#: kinds of jobs looked at, the most frequent ones
KINDS = 64


class Fragmentation:
    """Answers for nodes that have so much left. Cost: a look-up; KINDS at the first time."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        count = Counter(demand for demand in demands if demand[0])
        usual = count.most_common(KINDS)
        total = sum(often for _, often in usual)
        self._kinds = [(demand, often / total) for demand, often in usual]
        self._known: dict[Demand, float] = {}

    def unusable(self, gpus: int, cpus: int, mem_mb: int) -> float:
        """Of a node's free GPUs, so many are lost to the usual job."""
        if not gpus:
            return 0.0
        left = (gpus, cpus, mem_mb)
        found = self._known.get(left)
        if found is None:
            share = sum(
                often
                for (need_gpus, need_cpus, need_mem), often in self._kinds
                if need_gpus > gpus or need_cpus > cpus or need_mem > mem_mb
            )
            found = self._known[left] = gpus * share
        return found
