"""The slow twin of `gsched._core.Core`, but for the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gsched._core import Placement, Reason, Refusal, Reservation
from gsched._reference.lots import Sharing
from gsched._reference.parts import (
    BIG,
    Counts,
    Free,
    Groups,
    Held,
    Job,
    LinkClass,
    Node,
    Request,
    Row,
    bitmap,
    bits,
)
from gsched._reference.plan import Book
from gsched._reference.topology import Topology
from gsched._reference.windows import EVERY, Span, Windows

YEAR = 365 * 86400
FOREVER = (1 << 63) - 1
PLANNED = 257
#: owner of a node that different ones have after each other
NOBODY = -2


class Placing(Windows, Topology, Sharing):
    """Nodes, requests, allocations and placements; the queue is in core.py."""

    #: numbers of the reservations that are left out of account
    skipped: set[int] = set()

    def __init__(self, n_nodes: int) -> None:
        self.nodes = [Node() for _ in range(n_nodes)]
        self.classes = [LinkClass([], [])]
        self.requests: list[Request] = []
        self.held: dict[int, Held] = {}
        self.queue: dict[int, Job] = {}
        self.groups: list[int] = []
        self.in_order = False
        self.planned: list[Reservation] = []
        self.strict: list[set[int]] = []
        super().__init__()
        self.book: Book | None = None
        self.kept: dict[int, Reservation] = {}
        self.reqs: dict[int, int] = {}
        self.dom_used = [[0] * 16 for _ in range(n_nodes)]
        self.limits = {}
        #: node -> cores by domain of the last answer, where it has demands on them
        self.laid: dict[int, list[int]] = {}
        self.laid_for: tuple[Row, ...] = ()
        self.sharing = {}
        self.joining = self.keeping = None
        #: nodes that may be chosen; None: all
        self.only: set[int] | None = None
        self.core_of = {}

    # --- the cluster

    def define_class(self, links: Sequence[Sequence[int]], numa: Sequence[int]) -> int:
        self.classes.append(LinkClass([list(row) for row in links], list(numa)))
        return len(self.classes) - 1

    def set_node(
        self,
        node: int,
        *,
        cls: int = 0,
        cpus: int,
        mem_mb: int,
        gpu_type_masks: Iterable[tuple[int, int]] = (),
        gpu_ok_mask: int | None = None,
        usable: bool = True,
        partitions: int = 0,
        features: int = 0,
        weight: int = 1,
        threads: int = 1,
        gpu_parts: Iterable[tuple[int, int]] | None = None,
        sockets: int = 1,
        cores_per_socket: int = 0,
        domains: Iterable[tuple[int, int]] = (),
        near: Iterable[int] = (),
        extra: Iterable[tuple[int, int]] = (),
        keep_cpus: int = 0,
        keep_mem_mb: int = 0,
    ) -> None:
        types = dict(gpu_type_masks)
        ok = sum(types.values()) if gpu_ok_mask is None else gpu_ok_mask
        self.nodes[node] = Node(
            cls, cpus, mem_mb, types, ok, usable, partitions, features, weight, threads,
            None if gpu_parts is None else list(gpu_parts), sockets,
        )  # fmt: skip
        places = list(domains)
        self.nodes[node].domains = places if len(places) > 1 else []
        self.nodes[node].near = list(near)
        self.nodes[node].extra = dict(extra)
        self.nodes[node].keep = (keep_cpus, keep_mem_mb)
        self.nodes[node].cores_per_socket = cores_per_socket or cpus // threads // sockets

    def set_usable(self, node: int, usable: bool) -> None:
        self.nodes[node].usable = usable

    def set_gpu_ok(self, node: int, mask: int) -> None:
        self.nodes[node].ok = mask

    def request(self, **content: object) -> int:
        wanted = replace(Request(), **content)  # type: ignore[arg-type]
        self.requests.append(wanted)
        return len(self.requests) - 1

    def allocate(
        self,
        key: int,
        nodes: Iterable[tuple[int, int, int, int]],
        end: int = 0,
        *,
        gpu_milli: int = 0,
        reservation: int = -1,
        owner: int = -1,
        extra: Counts = (),
        caps: tuple[int, ...] = (),
        lot: int = -1,
    ) -> None:
        rows = [(n, c, 0, m, g) for n, c, m, g in nodes]
        held = Held(rows, end or FOREVER, gpu_milli, resv=reservation, owner=owner)
        held.extra, held.caps, held.lot = extra, caps, lot
        self.choose_slots(held)
        self.held[key] = held
        self.begin_cores(held, {})

    def begin_cores(self, held: Held, chosen: dict[int, list[int]]) -> None:
        """The cores of what was taken: those that were chosen with it, else near its GPUs."""
        for node, cpus, _, _, gpus in held.rows:
            if held.lot >= 0:
                self.begin_lot(held, node, gpus)
                continue
            free = self.known([Free(0, 0, 0, 0, True)] * len(self.nodes))[node]
            cores = chosen.get(node) or self.cut(self.nodes[node], free, cpus, gpus)
            held.cores[node] = cores
            self.hold(node, cores, 1, 1)

    def jobs_on(self, node: int) -> int:
        return sum(row[0] == node for held in self.held.values() for row in held.rows)

    def release(self, key: int) -> None:
        held = self.held.pop(key)
        for row in held.rows:
            if held.lot >= 0:
                self.end_lot(held, row[0])
                continue
            self.hold(row[0], held.cores[row[0]], -1, self.jobs_on(row[0]))

    def release_node(self, key: int, node: int) -> None:
        held = self.held[key]
        held.rows = [row for row in held.rows if row[0] != node]
        if held.lot >= 0:
            self.end_lot(held, node)
        else:
            self.hold(node, held.cores[node], -1, self.jobs_on(node))
        if not self.held[key].rows:
            del self.held[key]

    def set_end(self, key: int, end: int) -> None:
        self.held[key].end = end or FOREVER

    def wanted_by(self, number: int) -> Request:
        """The request of a planned job."""
        return self.requests[self.reqs[self.planned[number].key]]

    # --- what is free

    def live(self) -> list[Free]:
        return self.known(self.at(-1, 0))

    def at(self, time: int, now: int, without: Iterable[int] = (), plan: int = YEAR) -> list[Free]:
        """What is free at `time` (-1: now), without these reservations. A job without a limit that
        was started when reservation `plan` existed does not end for it."""
        free = [
            Free(n.cpus, n.mem, n.gpus & n.ok, 0, n.usable, extra=dict(n.extra)) for n in self.nodes
        ]
        for held in self.held.values():
            endless = held.end == FOREVER and held.since > plan
            if self.end_of(held, now) <= time and not endless:
                continue
            for node, cpus, _, mem, gpus in held.rows:
                free[node].count(held.counted(cpus))
                if held.lot >= 0:
                    cpus = free[node].join(held.lot, held.slots[node]) * self.nodes[node].threads
                free[node].cpus -= cpus
                free[node].mem -= mem
                free[node].take(gpus, held.milli)
                free[node].jobs += 1
                if held.owner >= 0:
                    free[node].owner = held.owner
                free[node].resv[held.resv] = free[node].resv.get(held.resv, 0) + cpus
        for number in without:
            for node, cpus, _, mem, gpus in self.planned[number].placement.nodes:
                there = free[node]
                lot = self.wanted_by(number).lot
                there.mem -= mem
                there.count(self.wanted_by(number).counted(cpus))
                if lot >= 0:
                    cores, fresh = self.parted(node, there, cpus)
                    there.join(lot, there.pick(lot, cores, fresh))
                    cpus = fresh * self.nodes[node].threads
                there.cpus -= cpus
                # Of different ones who are there one after the other nobody joins in between.
                owner = self.wanted_by(number).owner
                there.owner = owner if not there.jobs or there.owner == owner else NOBODY
                there.jobs += 1
                resv = self.wanted_by(number).reservation
                there.resv[resv] = there.resv.get(resv, 0) + cpus
                if self.planned[number].placement.gpu_milli:
                    there.take(gpus, self.planned[number].placement.gpu_milli)
                    continue
                other = gpus.bit_count() - (gpus & there.gpus).bit_count()
                there.gpus &= ~gpus
                healthy = self.nodes[node].gpus & self.nodes[node].ok
                room = {g: n for g, n in self.idle(node, there).items() if n and healthy >> g & 1}
                # Those with the least room first: what is left then only grows with time.
                for gpu in sorted(room, key=lambda g: (room[g], g))[:other]:
                    there.gpus &= ~(1 << gpu)
                    there.took[gpu] = BIG
        return free

    @staticmethod
    def end_of(held: Held, now: int) -> int:
        return now + YEAR if held.end == FOREVER else max(held.end, now + 1)

    def empty(self, *, all_up: bool) -> list[Free]:
        return [
            Free(
                *(n.cpus, n.mem, n.gpus if all_up else n.gpus & n.ok, 0, all_up or n.usable),
                extra=dict(n.extra),
            )
            for n in self.nodes
        ]

    def around(self, number: int) -> list[int]:
        """Reservations that overlap with one: earlier ones at any time, later ones as it begins."""
        mine = self.planned[number]
        return [
            i
            for i, other in enumerate(self.planned)
            if (i < number and other.at < mine.until and mine.at < other.until)
            or (i > number and other.at <= mine.at < other.until)
        ]

    def beside_share(self, want: Request, number: int, node: int, now: int, gpus: int) -> int:
        """Those GPUs of a node that may be had beside a planned share of one, beyond its time."""
        mine = self.planned[number]
        mask = next(row[4] for row in mine.placement.nodes if row[0] == node)
        gpu = bits(mask)[0]
        around = self.around(number)
        free = self.at(mine.at, now, [i for i in around if i < number], number)[node]
        kind, room = self.nodes[node].parts(gpu)
        room -= free.took.get(gpu, 0)
        for i in [number, *(i for i in around if i > number)]:
            for row in self.planned[i].placement.nodes:
                if row[0] == node and row[4] & mask:
                    room -= self.planned[i].placement.gpu_milli or BIG
        if not want.gpu_milli or room < want.gpu_milli:
            gpus &= ~mask
        if want.one_shared and kind == want.gpu_kind:
            gpus &= mask
        return gpus

    def left_by_plan(
        self, number: int, node: int, now: int, want: Request
    ) -> tuple[int, int, int, int] | None:
        """CPUs, MB and GPUs of a node that a reservation leaves to `want` if it lasts beyond it;
        and the bitmap of GPUs wholly free then, of which a share would use one up."""
        mine = self.planned[number]
        if node not in {row[0] for row in mine.placement.nodes}:
            return None
        around = self.around(number)
        earlier = [i for i in around if i < number]
        free = self.at(mine.at, now, earlier, number)[node]
        seen = self.view(self.wanted_by(number), node, free, (mine.at, mine.until))
        assert seen is not None
        cpus, mem, whole = seen[0], free.mem, free.gpus & seen[1]
        lot = self.wanted_by(number).lot
        among = lot >= 0 and want.lot == lot
        if among and not self.windowed(node):
            cpus += free.joinable(lot, self.sharing[lot]) * self.nodes[node].threads
        # Where GPUs are kept by themselves, their number says nothing.
        gpus = BIG if self.in_parts(node) else whole.bit_count()
        for i in [number, *(i for i in around if i > number)]:
            for row in self.planned[i].placement.nodes:
                if row[0] == node:
                    mem -= row[3]
                    if not self.same_domain(
                        self.wanted_by(i).reservation, self.wanted_by(number).reservation
                    ):
                        continue
                    if i == number and lot >= 0 and not among:
                        cpus -= self.parted(node, free, row[1])[1] * self.nodes[node].threads
                    else:
                        cpus -= row[1]
                    if not self.planned[i].placement.gpu_milli:
                        gpus -= row[4].bit_count()
                    elif whole & row[4]:
                        gpus -= 1
                        whole &= ~row[4]
        if self.wanted_by(number).owner >= 0:
            cpus = min(cpus, 0)
        return cpus, mem, gpus, whole

    def extra_left(self, number: int, node: int, now: int) -> Free:
        """The counted resources that a reservation leaves to jobs that last beyond it."""
        mine = self.planned[number]
        around = self.around(number)
        earlier = [i for i in around if i < number]
        free = self.at(mine.at, now, earlier, number)[node]
        for i in [number, *(i for i in around if i > number)]:
            for row in self.planned[i].placement.nodes:
                if row[0] == node:
                    free.count(self.wanted_by(i).counted(row[1]))
        return free

    # --- placement

    def most(
        self, want: Request, i: int, free: Free, gpus: int, count: int
    ) -> tuple[int, int] | None:
        """Most tasks and most GPUs that node i can hold of it; None if not the smallest part."""
        node = self.nodes[i]

        def holds(tasks: int, n_gpus: int) -> bool:
            cpus = want.cores(node, tasks, n_gpus) * node.threads
            if cpus > free.cpus or (want.exclusive and free.cpus < node.cpus):
                return False
            if not self.kinds_there(want, node, gpus, tasks, n_gpus):
                return False
            need = want.memory(node, cpus, n_gpus)
            if need > free.mem and (need > 0 or want.mem_per_node_mb == 0):
                return False
            if n_gpus > count:
                return False
            island = self.classes[node.cls].largest(gpus)
            return not (want.one_island and n_gpus > island)

        if want.ntasks_per_gpu:
            # GPUs and tasks go together.
            cap = (want.ntasks_per_node or BIG) // want.ntasks_per_gpu
            n_gpus = 0
            while n_gpus < cap and holds((n_gpus + 1) * want.ntasks_per_gpu, n_gpus + 1):
                n_gpus += 1
            return (n_gpus * want.ntasks_per_gpu, n_gpus) if n_gpus else None
        low = want.least_tasks
        cap = want.ntasks_per_node or BIG
        if want.gpus_per_node and want.gpus_per_task:
            cap = min(cap, want.gpus_per_node // want.gpus_per_task)
        if low > cap or not holds(low, want.least_gpus(low)):
            return None
        tasks = low
        if want.ntasks:
            top = BIG if want.overcommit and not want.gpus_per_task else max(free.cpus, 64)
            if want.overcommit and not want.gpus_per_task:
                tasks = min(cap, top)
            else:
                while tasks < min(cap, top) and holds(tasks + 1, want.least_gpus(tasks + 1)):
                    tasks += 1
        total = want.least_gpus(low)
        if want.gpus_total:
            while holds(low, total + 1):
                total += 1
        return tasks, total

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

    # --- answers

    def possible(self, req: int) -> bool:
        return self.find(self.requests[req], self.empty(all_up=False)) is not None

    def ever(self, req: int) -> bool:
        return self.find(self.requests[req], self.empty(all_up=True)) is not None

    def can_ever(self, req: int) -> Refusal | None:
        return None if self.ever(req) else self.refusal(req, True)

    def place(self, req: int, now: int = 0, limit_s: int = -1) -> Placement | Refusal:
        """As the core's while there is no plan."""
        want, span = self.requests[req], None
        if limit_s >= 0:
            span = (now, self.ends_by(want.reservation, now, now + (limit_s or YEAR)))
        rows = self.find(want, self.live(), span=span)
        if rows is None:
            return self.refusal(req, not self.ever(req), span)
        return Placement(rows, want.gpu_milli)

    def refusal(self, req: int, never: bool, span: Span | None = None) -> Refusal:
        want = self.requests[req]
        counts: dict[tuple[str, bool], int] = {}
        suited = able = 0
        for i, free in enumerate(self.live()):
            found = self.lacking(want, i, free, span)
            suited += not found
            able += not any(never for _, never in found)
            for what in found:
                counts[what] = counts.get(what, 0) + 1
        order = [("partition", True), ("features", True), ("excluded", True)]
        order += [
            (w, True)
            for w in (
                "layout",
                "cpus",
                "memory",
                "gpu_type",
                "gpus",
                "island",
                "near",
                "gres",
                "cap",
            )
        ]
        order += [("state", False), ("busy", False)]
        order += [
            (w, False)
            for w in (
                "cpus",
                "memory",
                "gpus",
                "island",
                "near",
                "gres",
                "cap",
                "kept",
                "reservation",
            )
        ]
        reasons = [Reason(w, n, counts[w, n]) for w, n in order if (w, n) in counts]
        apart = self.apart(want, never, None if never else span)
        if apart:
            reasons.append(Reason(apart, never, able if never else suited))
        return Refusal(never, max(want.min_nodes, len(set(want.nodelist))), suited, tuple(reasons))

    def apart(self, want: Request, never: bool, span: Span | None) -> str:
        """The demand on where nodes are but for which it would fit."""
        free = self.empty(all_up=True) if never else self.live()
        if not self.is_gang(want) or self.find(want, free, span=span):
            return ""
        if not self.find(want, free, span=span, loose=True):
            return ""
        what = "block" if self.network is not None and self.network.sizes else "switch"
        if want.contiguous and self.find(replace(want, contiguous=False), free, span=span):
            what = "contiguous"
        return what

    def lacking(
        self, want: Request, i: int, free: Free, span: Span | None
    ) -> set[tuple[str, bool]]:
        node = self.nodes[i]
        if want.partition >= 0 and not node.partitions >> want.partition & 1:
            return {("partition", True)}
        if i in want.exclude:
            return {("excluded", True)}
        if not self.has_features(want, node):
            return {("features", True)}
        if not self.has_layout(want, node):
            return {("layout", True)}
        whole = Free(node.cpus, node.mem, node.gpus, 0, True, extra=dict(node.extra))
        if never := self.missing(want, i, whole):
            return {(what, True) for what in never}
        tasks, least = self.least(want)
        if self.near_lacks(want, i, whole, tasks, least):
            return {("near", True)}
        if not free.usable:
            return {("state", False)}
        if (want.alone and free.jobs) or not self.owner_fits(want, free):
            return {("busy", False)}
        plain = free
        if want.lot >= 0 and not free.told and not self.windowed(i):
            more = free.joinable(want.lot, self.sharing[want.lot]) * self.nodes[i].threads
            plain = replace(free, cpus=free.cpus + more)
        if now := self.missing(want, i, plain):
            return {(what, False) for what in now}
        if self.near_lacks(want, i, free, tasks, least):
            return {("near", False)}
        cpus, mem = self.beside(want, i, free)
        free = replace(free, cpus=cpus, mem=mem)
        if self.missing(want, i, free) & {"cpus", "memory"}:
            return {("kept", False)}
        seen = self.view(want, i, free, span)
        if seen is None or self.missing(want, i, replace(free, cpus=seen[0]), within=seen[1]):
            return {("reservation", False)}
        return set()

    @staticmethod
    def least(want: Request) -> tuple[int, int]:
        """Tasks and GPUs that each node must hold."""
        tasks = want.least_tasks
        one = 1 in (want.max_nodes, want.cap_nodes)
        if one:
            tasks = max(tasks, want.ntasks)
        gpus = want.least_gpus(tasks)
        if one and want.gpus_total:
            gpus = want.gpus_total
        elif want.ntasks_per_gpu:
            tasks = want.ntasks_per_gpu
        return tasks, gpus

    def missing(self, want: Request, i: int, free: Free, within: int = EVERY) -> set[str]:
        node = self.nodes[i]
        pool = self.pool(want, i, free) & within
        tasks, gpus = self.least(want)
        out = set()
        cpus = want.cores(node, tasks, gpus) * node.threads
        if free.cpus < (max(cpus, node.cpus) if want.exclusive else cpus):
            out.add("cpus")
        if free.mem < want.memory(node, cpus, gpus):
            out.add("memory")
        if not free.counts(want.extra):
            out.add("gres")
        if any(free.extra.get(kind, 0) < cpus for kind in want.cpu_caps):
            out.add("cap")
        if want.wants_gpus:
            if node.gpus and not want.of_type(node):
                out.add("gpu_type")
            elif pool.bit_count() < gpus or self.kinds_lack(want, node, pool, tasks):
                out.add("gpus")
            elif want.one_island:
                if self.classes[node.cls].largest(pool) < gpus:
                    out.add("island")
        return out
