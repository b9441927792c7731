"""Where the slow twin places a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gsched._reference.parts import (
    Free,
    Groups,
    Node,
    Request,
    Row,
    bitmap,
    bits,
)
from gsched._reference.state import State
from gsched._reference.windows import Span


class Placing(State):
    """Placements; the queue is in core.py."""

    def eligible(self, want: Request, i: int) -> bool:
        node = self.nodes[i]
        if self.only is not None and i not in self.only:
            return False
        if want.partition >= 0 and not node.partitions >> want.partition & 1:
            return False
        if not self.has_layout(want, node):
            return False
        return i not in want.exclude and self.has_features(want, node)

    @staticmethod
    def has_layout(want: Request, node: Node) -> bool:
        return (
            node.sockets >= want.min_sockets
            and node.cores_per_socket >= want.min_cores_per_socket
            and node.threads >= want.min_threads
        )

    @staticmethod
    def has_features(want: Request, node: Node) -> bool:
        if want.features_all & ~node.features:
            return False
        return not want.features_any or any(not f & ~node.features for f in want.features_any)

    def pool(self, want: Request, i: int, free: Free) -> int:
        """GPUs of a node that the request may get, or a share of."""
        return self.share_pool(want, i, free) & want.of_type(self.nodes[i])

    def share_pool(self, want: Request, i: int, free: Free) -> int:
        """The same, of any type."""
        node = self.nodes[i]
        pool = free.gpus
        if want.gpu_milli:
            pool = self.divisible(want, i, free.gpus)
            mine = {g: t for g, t in free.took.items() if node.parts(g)[0] == want.gpu_kind}
            if want.one_shared and mine:
                pool = 0
            roomy = [g for g, took in mine.items() if took + want.gpu_milli <= node.parts(g)[1]]
            pool |= bitmap(roomy) & node.gpus & node.ok
        return pool

    def divisible(self, want: Request, i: int, gpus: int) -> int:
        """Those GPUs that have such parts, and as many of them as are wanted."""
        if not want.gpu_milli:
            return gpus
        kinds = {g: self.nodes[i].parts(g) for g in bits(gpus)}
        return bitmap(
            g for g, (kind, n) in kinds.items() if kind == want.gpu_kind and n >= want.gpu_milli
        )

    def fit(
        self,
        want: Request,
        i: int,
        free: Free,
        now: int,
        end: int,
        span: Span | None,
        windows: bool,
    ) -> tuple[int, int, int] | None:
        """Most tasks, most GPUs, and the GPUs to choose from."""
        if (want.alone and free.jobs) or not self.owner_fits(want, free):
            return None
        if not free.counts(want.extra):
            return None
        gpus, there = self.pool(want, i, free), free
        cpus, mem = self.beside(want, i, free)
        free = replace(free, cpus=cpus, mem=mem)
        if windows:
            seen = self.view(want, i, free, span)
            if seen is None:
                return None
            free, gpus = replace(free, cpus=seen[0]), gpus & seen[1]
        count = gpus.bit_count()
        if end and self.book is not None:
            kept = self.book.kept(i, end)
            if kept is not None:
                if want.owner >= 0:
                    return None
                window = self.book.window(i, self.book.now, end, want.reservation, want)
                if want.alone and window.jobs:
                    return None
                if not window.counts(want.extra):
                    return None
                cpus, mem = min(free.cpus, window.cpus), min(free.mem, window.mem)
                free = replace(free, cpus=cpus, mem=mem)
                gpus &= self.share_pool(want, i, window) if want.gpu_milli else ~kept
                count = gpus.bit_count()
        elif end:
            cpus, mem = free.cpus, free.mem
            for number, planned in enumerate(self.planned):
                if planned.at >= end or number in self.skipped:
                    continue
                left = self.left_by_plan(number, i, now, want)
                if left is None:
                    continue
                rest = self.extra_left(number, i, now)
                if want.owner >= 0 or not rest.counts(want.extra):
                    return None
                mem = min(mem, left[1])
                cpus = min([cpus, *(rest.extra.get(kind, 0) for kind in want.cpu_caps)])
                if not self.same_domain(want.reservation, self.wanted_by(number).reservation):
                    continue
                cpus = min(cpus, left[0])
                if not want.gpu_milli:
                    count = min(count, left[2])
                elif left[2] < 1:
                    gpus &= ~left[3]
                if planned.placement.gpu_milli:
                    gpus = self.beside_share(want, number, i, now, gpus)
                elif i in self.strict[number]:
                    gpus &= ~bitmap(
                        b for row in planned.placement.nodes if row[0] == i for b in bits(row[4])
                    )
            count = min(count, gpus.bit_count())
            free = replace(free, cpus=cpus, mem=mem)
        found = self.most(want, i, free, gpus, count)
        self.limits[i] = free.cpus, free.mem
        if found is not None:
            found = self.near_most(want, i, there, found, gpus)
        return None if found is None else (*found, gpus)

    @staticmethod
    def owner_fits(want: Request, free: Free) -> bool:
        """Whether nobody's jobs on a node keep it out, or would have to be kept out."""
        return free.owner == want.owner or (want.owner >= 0 and not free.jobs)

    def liking(
        self, want: Request, free: list[Free], tasks: int, gpus: int
    ) -> Callable[[int], tuple[int, ...]]:
        """Sort key of nodes: the one that is liked best comes first."""

        def key(i: int) -> tuple[int, ...]:
            node, there = self.nodes[i], free[i]
            count = there.gpus.bit_count()
            if self.policy(want):
                pool = self.pool(want, i, there)
                return (-self.score(want, i, there, pool, tasks, gpus), node.weight, i)
            if not want.wants_gpus:
                return (node.weight, count, there.cpus, i)
            island = self.classes[node.cls].largest(there.gpus)
            if island >= max(gpus, 1):
                return (0, count, island, node.weight, i)
            return (1, count, -island, node.weight, i)

        return key

    def bounds(self, want: Request, must: int) -> tuple[int, int, int]:
        """Nodes at least, at most, and as many as there are up to."""
        lower = max(want.min_nodes, must)
        upper = want.max_nodes or len(self.nodes)
        upper = min(upper, want.cap_nodes or upper)
        if want.gpus_total:
            upper = min(upper, want.gpus_total)
        if want.spread and not want.use_min_nodes:
            if want.max_nodes or want.gpus_total:
                return lower, upper, upper
            return lower, upper, min(upper, max(want.ntasks, lower))
        few = want.max_nodes == 0 or want.gpus_total or want.use_min_nodes
        return lower, upper, lower if few else upper

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
        """The nodes that the request gets from what is free, or None: with the first of its sets
        of features that gives any. span: the time it is for; windows: whether advance
        reservations count, as they do unless `plain`; plain: nodes are liked by weight and number
        alone; loose: they need not be together."""
        windows = not plain if windows is None else windows
        outer = self.joining, self.keeping
        # Of the whole request: a set of its features alone may fit where it does not.
        self.keeping = self.keeps(want)
        try:
            for level in range(1, 1 + (self.sharing[want.lot] if want.lot >= 0 else 1)):
                self.joining = level
                found = self.find_level(want, free, now, end, span, windows, plain, loose)
                if found is not None:
                    return found
        finally:
            self.joining, self.keeping = outer
        return None

    @staticmethod
    def by_features(want: Request) -> Iterator[tuple[Request, Groups]]:
        """The request with each of its sets of features, as they are tried."""
        for alternatives, groups in want.variants or ((want.features_any, ()),):
            one = replace(want, features_any=alternatives, variants=())
            yield (replace(one, features_all=0) if want.variants else one), groups

    def find_level(
        self,
        want: Request,
        free: list[Free],
        now: int,
        end: int,
        span: Span | None,
        windows: bool,
        plain: bool,
        loose: bool,
    ) -> tuple[Row, ...] | None:
        """find(), joining cores that fewer jobs than self.joining hold."""
        for one, groups in self.by_features(want):
            found = self.find_one(
                one, groups, free, now, end, span, windows, plain=plain, loose=loose
            )
            if found is not None:
                return found
        return None

    def find_one(
        self,
        want: Request,
        groups: Groups,
        free: list[Free],
        now: int = 0,
        end: int = 0,
        span: Span | None = None,
        windows: bool = True,
        *,
        plain: bool = False,
        loose: bool = False,
    ) -> tuple[Row, ...] | None:
        must = sorted(set(want.nodelist))
        fits = {
            i: f
            for i in range(len(self.nodes))
            if self.eligible(want, i) and free[i].usable
            if (f := self.fit(want, i, free[i], now, end, span, windows)) is not None
        }
        if any(i not in fits for i in must):
            return None
        lower, upper, wanted = self.bounds(want, len(must))
        if lower > min(upper, len(self.nodes)):
            return None

        def enough(nodes: list[int]) -> bool:
            return (
                len(nodes) >= lower
                and sum(fits[i][0] for i in nodes) >= want.ntasks
                and sum(fits[i][1] for i in nodes) >= want.gpus_total
            )

        def by_number(i: int) -> tuple[int, ...]:
            idle = busy is not None and not busy[i].jobs
            return (idle, self.nodes[i].weight, i)

        busy = self.live() if self.book is not None and self.book.options.busy_first else None
        others = [i for i in fits if i not in must]
        together = bool(groups) or (bool(want.gpu_kinds) and want.gpus_total > 0)
        if together:
            bounds = (lower, upper, wanted)
        if wanted == 1:
            on_one = want.gpus_total or want.gpus_per_node
            on_one = on_one or want.gpus_per_task * max(want.ntasks, want.least_tasks)
            tasks = max(want.ntasks, want.least_tasks)
            liked = by_number if plain else self.liking(want, free, tasks, on_one)
            for i in must or sorted(others, key=liked) if not together else []:
                if enough([i]):
                    return self.share(want, free, fits, [i])
            if together:
                alone = [i for i in sorted(others, key=liked) if enough([i])]
                chosen = self.together(want, groups, fits, must, alone, bounds, most=False)
                if chosen is not None:
                    return self.share(want, free, fits, chosen)
        least = want.least_gpus(want.least_tasks) if want.wants_gpus else 0
        liked = by_number if plain else self.liking(want, free, want.least_tasks, least)
        others.sort(key=liked)
        if not together and not loose and self.is_gang(want):
            among = (lower, upper, wanted if wanted > 1 else 0)
            gang = self.gang(want, free, fits, must, others, among, plain=plain)
            return None if gang is None else self.share(want, free, fits, gang)
        if together and wanted > 1:
            chosen = self.together(want, groups, fits, must, others, bounds, most=False)
            if chosen is not None:
                return self.share(want, free, fits, chosen)
        elif wanted > 1:
            chosen = must + others[: wanted - len(must)]
            if enough(chosen):
                return self.share(want, free, fits, chosen)
        if upper <= 1 or not (want.ntasks or want.gpus_total):
            return None
        if want.gpus_total:
            others.sort(key=lambda i: (-fits[i][1], -fits[i][0]))
        else:
            others.sort(key=lambda i: -fits[i][0])
        if together:
            chosen = self.together(want, groups, fits, must, others, bounds, most=True)
            return None if chosen is None else self.share(want, free, fits, chosen)
        for n in range(len(others) + 1):
            chosen = must + others[:n]
            if len(chosen) <= upper and enough(chosen):
                return self.share(want, free, fits, chosen)
        return None

    def share(
        self,
        want: Request,
        free: list[Free],
        fits: dict[int, tuple[int, int, int]],
        chosen: list[int],
    ) -> tuple[Row, ...] | None:
        tasks_left = max(want.ntasks, len(chosen))
        gpus_left = want.gpus_total
        dealt = dict.fromkeys(chosen, 0)
        while want.spread and sum(dealt.values()) < tasks_left:
            for i in sorted(chosen):
                if sum(dealt.values()) < tasks_left and dealt[i] < fits[i][0]:
                    dealt[i] += 1
        rows = []
        self.laid = {}
        deals: dict[int, dict[int, int]] | None = {}
        if want.gpu_kinds and want.gpus_total:
            deals = self.deal(want, fits, sorted(chosen))
        if deals is None:
            return None
        for place, i in enumerate(sorted(chosen)):
            node, after = self.nodes[i], len(chosen) - 1 - place
            most_tasks, most_gpus, pool = fits[i]
            tasks = min(most_tasks, tasks_left - after) if want.ntasks else want.least_tasks
            if want.spread and want.ntasks:
                tasks = dealt[i]
            tasks_left -= tasks
            gpus = want.gpus_per_node or want.gpus_per_task * tasks
            if want.gpus_total:
                gpus = min(most_gpus, gpus_left - after)
                gpus_left -= gpus
            if i in deals:
                gpus = sum(deals[i].values())
            if want.ntasks_per_gpu:
                tasks = gpus * want.ntasks_per_gpu
            mask = self.choice(want, node, pool, gpus, deals.get(i))
            cpus = want.cores(node, tasks, gpus) * node.threads
            if want.exclusive:
                cpus, mask = node.cpus, free[i].gpus
            if want.gpu_milli:
                mask = self.best_share(want, i, free[i], pool, cpus)
            mem = want.memory(node, cpus, gpus)
            if not want.exclusive and not want.gpu_milli:
                cores = cpus // node.threads
                mask = self.preferred(want, i, free[i], pool, mask, cores, deals.get(i))
                if want.gpu_binding == 2 and free[i].used is not None:
                    self.laid[i] = self.cut(node, free[i], cpus, mask, 2)
            if self.wanted(want):
                laid = self.place_near(want, i, free[i], pool, tasks, gpus, deals.get(i), mask)
                if laid is None:
                    return None
                cpus, mask, mem = sum(laid.cores) * node.threads, laid.gpus, laid.mem
                self.laid[i] = laid.cores
            rows.append((i, cpus, tasks, min(mem, node.mem) if want.exclusive else mem, mask))
        self.laid_for = tuple(rows)
        return self.laid_for
