"""How nodes are ranked by the policies that give scores, and which GPU a share goes to."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gsched import _core
from gsched._reference.parts import Free, LinkClass, Node, Request, bits

WHOLE = 1000
FINE = 1 << 16

Shape = tuple[int, int, int, list[int], int]


def fills(sizes: dict[int, int]) -> dict[int, int]:
    """What will be filled of each rest of a GPU when 128 usual jobs come by (see work_fill)."""
    unit = math.gcd(WHOLE, *sizes)
    total = sum(sizes.values())
    known = dict.fromkeys(range(0, WHOLE + 1, unit), 0)
    for _ in range(128 if total else 0):
        known = {
            left: sum(
                weight * max(known[left], size * FINE + known[left - size] if size <= left else 0)
                for size, weight in sizes.items()
            )
            // total
            for left in known
        }
    return known


class Policies:
    nodes: list[Node]
    classes: list[LinkClass]

    def __init__(self) -> None:
        self.set_workload([])

    def set_workload(self, shapes: Iterable[tuple[int, int, int, Iterable[int], int]]) -> None:
        """(cpus, gpus, gpu_milli, GPU types, weight) each."""
        self.workload: list[Shape] = [(c, n, m, list(k), w) for c, n, m, k, w in shapes]
        sizes: dict[int, int] = {}
        cpus = milli = 0
        for cpu, gpus, share, _, weight in self.workload:
            if gpus:
                size = share or WHOLE
                sizes[size] = sizes.get(size, 0) + gpus * weight
                cpus += cpu * weight
                milli += gpus * size * weight
        self.fill = fills(sizes) if sizes else {}
        self.per_cpu = min(milli * FINE // cpus, 1 << 40) if cpus else 0

    @staticmethod
    def policy(want: Request) -> int:
        """Shares are placed densely unless another policy is asked for."""
        return want.policy or (_core.DENSE_FIT if want.gpu_milli else 0)

    def choice(
        self, want: Request, node: Node, pool: int, gpus: int, deal: dict[int, int] | None = None
    ) -> int:
        """The GPUs that the request gets of those it may choose from; deal: type -> how many."""
        links = self.classes[node.cls]
        if want.gpu_kinds and gpus:
            mask = 0
            for kind, per_node, per_task, total in sorted(want.gpu_kinds):
                there = pool & node.types.get(kind, 0)
                if deal is not None:
                    count = deal[kind]
                elif per_node or per_task:
                    count = per_node or per_task * (gpus // want.gpus_per_task)
                else:
                    count = min(there.bit_count(), total, gpus - mask.bit_count())
                mask |= links.best(there, count)
            return mask
        return (links.best_on_island if want.one_island else links.best)(pool, gpus)

    def idle(self, i: int, free: Free) -> dict[int, int]:
        """Thousandths left on each GPU of a node."""
        node = self.nodes[i]
        return {
            g: WHOLE
            if free.gpus >> g & 1
            else self.rest_of(i, g, free.took[g])
            if g in free.took and (node.gpus & node.ok) >> g & 1
            else 0
            for g in range(len(self.classes[node.cls].links))
        }

    def rest_of(self, i: int, gpu: int, took: int) -> int:
        """Thousandths left of a GPU of which so many parts are taken."""
        parts = self.nodes[i].parts(gpu)[1]
        return (parts - took) * WHOLE // parts if took < parts else 0

    def unusable(self, i: int, cpus: int, idle: dict[int, int]) -> int:
        """Idle thousandths that usual shapes cannot use, times the sum of weights."""
        node, lost = self.nodes[i], 0
        for need_cpus, gpus, milli, kinds, weight in self.workload:
            lost += weight * sum(idle.values())
            right = sum(node.types.get(kind, 0) for kind in set(kinds)) if kinds else -1
            roomy = [
                left for g, left in idle.items() if left >= (milli or WHOLE) and right >> g & 1
            ]
            if gpus and cpus >= need_cpus and len(roomy) >= gpus:
                lost -= weight * sum(roomy)
        return lost

    def level(self, drop: int) -> int:
        """floor(100 x logistic(drop in GPUs))."""
        total = sum(shape[4] for shape in self.workload)
        for k in range(99, 0, -1):
            if drop >= math.ceil(total * float(WHOLE) * math.log(k / (100 - float(k)))):
                return k
        return 0

    def short(self, cpus: int, idle: int) -> int:
        """Idle GPUs for which usual jobs would find no CPUs any more."""
        return max(0, idle * FINE - max(cpus, 0) * self.per_cpu) if self.per_cpu else 0

    def rest(self, before: int, after: int) -> int:
        """What is lost of a GPU by a share that leaves so much of what there was."""
        if not self.fill:
            return after * FINE
        unit = math.gcd(WHOLE, *(s[2] or WHOLE for s in self.workload if s[1]))
        gone = (before - after) * FINE
        return self.fill[before // unit * unit] - self.fill[after // unit * unit] - gone

    def share_score(self, want: Request, i: int, free: Free, gpu: int, cpus: int) -> int:
        """How well a share on this GPU is placed."""
        idle = self.idle(i, free)
        left = self.rest_of(i, gpu, free.took.get(gpu, 0) + want.gpu_milli)
        after = {**idle, gpu: left}
        policy = self.policy(want)
        if policy == _core.FGD:
            before = self.unusable(i, free.cpus, idle)
            return self.level(before - self.unusable(i, free.cpus - cpus, after))
        if policy == _core.DENSE_FIT:
            more = self.short(free.cpus - cpus, sum(after.values()))
            more -= self.short(free.cpus, sum(idle.values()))
            return -(10 * self.rest(idle[gpu], left) + more)
        return -idle[gpu]

    def best_share(self, want: Request, i: int, free: Free, pool: int, cpus: int) -> int:
        """The GPU for a share, as a bitmap."""
        best = max(bits(pool), key=lambda g: (self.share_score(want, i, free, g, cpus), -g))
        return 1 << best

    def score(self, want: Request, i: int, free: Free, pool: int, tasks: int, gpus: int) -> int:
        """How well node i suits for so many tasks and GPUs."""
        node, policy = self.nodes[i], self.policy(want)
        if policy == _core.FIRST_FIT:
            return 0
        if policy == _core.LEAST_LOADED:
            return free.cpus
        cpus = node.cpus if want.exclusive else want.cores(node, tasks, gpus) * node.threads
        if want.gpu_milli and policy in (_core.FGD, _core.DENSE_FIT):
            return max(self.share_score(want, i, free, g, cpus) for g in bits(pool))
        idle = self.idle(i, free)
        mask = free.gpus if want.exclusive else 0
        if gpus and not want.exclusive and not want.gpu_milli:
            mask = self.choice(want, node, pool, gpus)
        after = {g: 0 if mask >> g & 1 else left for g, left in idle.items()}
        total = sum(idle.values())
        if policy == _core.FGD:
            before = self.unusable(i, free.cpus, idle)
            return self.level(before - self.unusable(i, free.cpus - cpus, after))
        gone = total if want.exclusive else gpus * WHOLE
        if policy == _core.DENSE_FIT:
            more = self.short(free.cpus - cpus, total - gone) - self.short(free.cpus, total)
            return -more
        if want.gpu_milli:
            gpu = bits(self.best_share(want, i, free, pool, cpus))[0]
            gone = idle[gpu] - self.rest_of(i, gpu, free.took.get(gpu, 0) + want.gpu_milli)
        left = total - gone
        if policy == _core.BEST_FIT:
            most_cpus = max(1, *(n.cpus for n in self.nodes))
            most_gpus = max(1, *(n.gpus.bit_count() for n in self.nodes))
            return -((free.cpus - cpus) * most_gpus * WHOLE + left * most_cpus)
        used = (node.cpus - (free.cpus - cpus)) * 1_000_000 // node.cpus
        size = node.gpus.bit_count() * WHOLE
        return used + ((size - left) * 1_000_000 // size if size else 0)
