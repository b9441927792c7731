"""The cluster of the slow twin of `gsched._core.Core`: what there is, and what is free when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gsched._core import Reservation
from gsched._reference.lots import Sharing
from gsched._reference.parts import (
    BIG,
    Counts,
    Free,
    Held,
    Job,
    LinkClass,
    Node,
    Request,
    Row,
    bits,
)
from gsched._reference.plan import Book
from gsched._reference.topology import Topology
from gsched._reference.windows import Windows

YEAR = 365 * 86400
FOREVER = (1 << 63) - 1
PLANNED = 257
#: owner of a node that different ones have after each other
NOBODY = -2


class State(Windows, Topology, Sharing):
    """Nodes, requests, allocations, and what is free at which time."""

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

    def set_end(self, key: int, end: int, late: Iterable[tuple[int, int]] = ()) -> None:
        self.held[key].end = end or FOREVER
        self.held[key].late = {node: until or FOREVER for node, until in late}

    def wanted_by(self, number: int) -> Request:
        """The request of a planned job."""
        return self.requests[self.reqs[self.planned[number].key]]

    # --- what is free

    def live(self) -> list[Free]:
        return self.known(self.at(-1, 0))

    def at(self, time: int, now: int, without: Iterable[int] = (), plan: int = YEAR) -> list[Free]:
        """What is free at `time` (-1: now), without these reservations. A job without a limit that
        was started when reservation `plan` existed does not end for it, and the cores that one
        started since then shares with others are not known to it: all count as taken."""
        free = [
            Free(n.cpus, n.mem, n.gpus & n.ok, 0, n.usable, extra=dict(n.extra)) for n in self.nodes
        ]
        for held in self.held.values():
            after = held.since > plan
            endless = held.end == FOREVER and after
            for node, cpus, _, mem, gpus in held.rows:
                if self.back_at(held, node, now) <= time and not endless:
                    continue
                free[node].count(held.counted(cpus))
                if held.lot >= 0 and not after:
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

    def back_at(self, held: Held, node: int, now: int) -> int:
        """When what it has on a node is free: others may hold it after it."""
        late = held.late.get(node, 0)
        return max(self.end_of(held, now), now + YEAR if late == FOREVER else late)

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
