"""Cores by socket and near GPUs: see core/near.pxi, which says the same in loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gsched._reference.parts import BIG, Free, Node, Request, bits
from gsched._reference.rare import Rarities

GROUPS = 8


@dataclass
class Laid:
    """What a node gives to a request with demands on where its cores lie."""

    gpus: int
    cores: list[int]
    mem: int


class Nearness(Rarities):
    #: node -> (CPUs, MB) that the request being placed may use beside reservations
    limits: dict[int, tuple[int, int]]

    @staticmethod
    def wanted(want: Request) -> bool:
        if want.exclusive:
            return False
        bound = want.gpu_binding == 1 and want.wants_gpus and not want.gpu_milli
        return bool(want.ntasks_per_socket or want.gpus_per_socket or bound)

    @staticmethod
    def free_cores(node: Node, free: Free) -> list[int]:
        """Free cores of each domain; as many as there may be where that is not known."""
        cores = max(free.cpus, 0) // node.threads
        if len(node.domains) < 2:
            return [cores]
        if free.used is None:
            return [min(size, cores) for _, size in node.domains]
        return [max(0, size - free.used[d]) for d, (_, size) in enumerate(node.domains)]

    @staticmethod
    def sockets(node: Node) -> list[list[int]]:
        """The domains of each socket."""
        if len(node.domains) < 2:
            return [[0]]
        count = max(socket for socket, _ in node.domains) + 1
        return [[d for d, (s, _) in enumerate(node.domains) if s == k] for k in range(count)]

    @staticmethod
    def near(node: Node, gpus: int) -> set[int]:
        """The domains near any of these GPUs."""
        every = set(range(max(1, len(node.domains))))
        if len(node.domains) < 2:
            return every if gpus else set()
        found: set[int] = set()
        for g in bits(gpus):
            mask = node.near[g] if g < len(node.near) else 0
            found |= set(bits(mask)) if mask else every
        return found

    def take_cores(
        self, node: Node, free: list[int], n: int, first: set[int], doms: set[int], out: list[int]
    ) -> int:
        """n cores of `doms`, those in `first` before others, one socket after the other in turn;
        what is missing."""
        for group in (doms & first, doms - first):
            got = True
            while n > 0 and got:
                got = False
                for socket in self.sockets(node):
                    there = [d for d in socket if d in group and free[d] > 0]
                    if there and n > 0:
                        free[there[0]] -= 1
                        out[there[0]] += 1
                        n -= 1
                        got = True
        return n

    def cut(self, node: Node, free: Free, cpus: int, gpus: int, binding: int = 0) -> list[int]:
        """The cores of a share without demands."""
        out = [0] * max(1, len(node.domains))
        if len(node.domains) < 2:
            return out
        first = self.near(node, gpus) if binding != 2 else set()
        every = set(range(len(node.domains)))
        self.take_cores(
            node, self.free_cores(node, free), -(-cpus // node.threads), first, every, out
        )
        return out

    def lay_near(
        self,
        want: Request,
        i: int,
        free: list[int],
        tasks: int,
        gpus: int,
        doms: set[int],
        forced: list[set[int]],
    ) -> Laid | None:
        """Cores for the tasks beside these GPUs out of these domains, one in each of `forced`."""
        node = self.nodes[i]
        free = list(free)
        out = [0] * len(free)
        threads = want.threads(node)
        first = self.near(node, gpus) if want.gpu_binding != 2 else set()
        n = want.cores(node, tasks, gpus.bit_count())
        sockets = self.sockets(node)
        if want.ntasks_per_socket:
            sizes = [cores for _, cores in node.domains]
            if len(node.domains) < 2:
                sizes = [node.cpus // node.threads]
            largest = max(sum(sizes[d] for d in socket) for socket in sockets)
            if want.cpus_per_task > largest * threads:
                if tasks > want.ntasks_per_socket * len(sockets):
                    return None
            else:
                left = tasks
                mine = [set(socket) & doms for socket in sockets]
                order = [m for m in mine if m & first] + [m for m in mine if not m & first]
                for socket_doms in order:
                    there = sum(free[d] for d in socket_doms)
                    count = min(left, want.ntasks_per_socket, self.tasks_in(want, threads, there))
                    left -= count
                    cores = self.cores_for(want, threads, count)
                    self.take_cores(node, free, cores, first, socket_doms, out)
                    n -= cores
                if left:
                    return None
        for group in forced:
            if not any(out[d] for d in group):
                if self.take_cores(node, free, 1, first, group, out):
                    return None
                n -= 1
        if n > 0 and self.take_cores(node, free, n, first, doms, out):
            return None
        cpus, most = self.limits[i]
        total = sum(out) * node.threads
        mem = want.memory(node, total, gpus.bit_count())
        if total > cpus or (mem > most and mem > 0):
            return None
        return Laid(gpus, out, mem)

    @staticmethod
    def tasks_in(want: Request, threads: int, cores: int) -> int:
        if want.overcommit:
            return BIG if cores > 0 else 0
        if want.ntasks_per_core == 1:
            return cores // -(-want.cpus_per_task // threads)
        most = cores * threads // want.cpus_per_task
        return min(most, cores * want.ntasks_per_core) if want.ntasks_per_core else most

    @staticmethod
    def cores_for(want: Request, threads: int, tasks: int) -> int:
        if want.overcommit:
            return 0
        if want.ntasks_per_core == 1:
            return tasks * -(-want.cpus_per_task // threads)
        cores = -(-tasks * want.cpus_per_task // threads)
        return max(cores, -(-tasks // want.ntasks_per_core)) if want.ntasks_per_core else cores

    def near_groups(self, node: Node, pool: int) -> list[int]:
        """GPUs by the domains that they are near."""
        found: dict[frozenset[int], int] = {}
        for g in bits(pool):
            key = frozenset(self.near(node, 1 << g))
            found[key] = found.get(key, 0) | 1 << g
        return list(found.values()) if len(found) <= GROUPS else []

    def picks(
        self, want: Request, node: Node, pool: int, gpus: int, deal: dict[int, int] | None
    ) -> list[int]:
        """Choices of GPUs, those near the fewest domains first."""
        groups = self.near_groups(node, pool)
        links = self.classes[node.cls]
        out = []
        for which in sorted(range(1, 1 << len(groups)), key=lambda w: (w.bit_count(), w)):
            chosen = [groups[k] for k in bits(which)]
            there = sum(chosen)
            if there.bit_count() < gpus:
                continue
            plain = 0
            lacks = deal is not None and any(
                (there & node.types.get(kind, 0)).bit_count() < n for kind, n in deal.items()
            )
            if not lacks:
                plain = self.choice(want, node, there, gpus, deal)
            if plain and plain.bit_count() == gpus:
                out.append(plain)
            if len(chosen) >= 2 and gpus >= len(chosen) and not want.one_island:
                if not want.gpu_kinds:
                    seeds = sum(links.best(group, 1) for group in chosen)
                    out.append(seeds | links.best(there & ~seeds, gpus - len(chosen)))
        return out

    def place_near(
        self,
        want: Request,
        i: int,
        free: Free,
        pool: int,
        tasks: int,
        gpus: int,
        deal: dict[int, int] | None = None,
        share: int = 0,
    ) -> Laid | None:
        """GPUs and cores of a node for so many tasks and GPUs; None: there are none such."""
        node = self.nodes[i]
        cores = self.free_cores(node, free)
        every = set(range(len(cores)))
        if want.gpus_per_socket:
            return self.by_sockets(want, i, cores, pool, tasks)
        if want.gpu_binding == 1 and gpus and not want.gpu_milli:
            groups = self.near_groups(node, pool)
            for mask in self.picks(want, node, pool, gpus, deal):
                forced = [self.near(node, group) for group in groups if group & mask]
                laid = self.lay_near(want, i, cores, tasks, mask, self.near(node, mask), forced)
                if laid is not None:
                    return laid
            return None
        mask = share if want.gpu_milli else self.choice(want, node, pool, gpus, deal) if gpus else 0
        return self.lay_near(want, i, cores, tasks, mask, every, [])

    def by_sockets(
        self, want: Request, i: int, cores: list[int], pool: int, tasks: int
    ) -> Laid | None:
        """So many GPUs near each of the fewest sockets that have cores for the tasks."""
        node, sockets = self.nodes[i], self.sockets(self.nodes[i])
        each = want.gpus_per_socket

        def there(socket: int) -> int:
            return sum(1 << g for g in bits(pool) if self.near(node, 1 << g) & set(sockets[socket]))

        room = {s: sum(cores[d] for d in doms) for s, doms in enumerate(sockets)}
        fit = [s for s in room if room[s] >= 1 and there(s).bit_count() >= each]
        fit.sort(key=lambda s: (-room[s], s))
        for count in range(max(1, want.min_sockets), len(fit) + 1):
            chosen = sorted(fit[:count])
            gpus = 0
            short = False
            for s in chosen:
                left = there(s) & ~gpus
                short = short or left.bit_count() < each
                gpus |= 0 if short else self.classes[node.cls].best(left, each)
            if short:
                continue
            forced = [set(sockets[s]) for s in chosen]
            laid = self.lay_near(want, i, cores, tasks, gpus, set().union(*forced), forced)
            if laid is not None:
                return laid
        return None

    def near_most(
        self, want: Request, i: int, free: Free, found: tuple[int, int], pool: int
    ) -> tuple[int, int] | None:
        """The most tasks and GPUs, of which any fewer fit as well."""
        if not self.wanted(want):
            return found

        def holds(tasks: int, gpus: int) -> bool:
            return self.place_near(want, i, free, pool, tasks, gpus) is not None

        tasks, most_gpus = want.least_tasks, found[1]
        if want.ntasks_per_gpu:
            gpus = 0
            while gpus < min(found[1], want.gpus_total) and holds(
                (gpus + 1) * want.ntasks_per_gpu, gpus + 1
            ):
                gpus += 1
            return (gpus * want.ntasks_per_gpu, gpus) if gpus else None
        if want.gpus_total:
            gpus = 0
            while gpus < min(found[1], want.gpus_total) and holds(tasks, gpus + 1):
                gpus += 1
            if not gpus:
                return None
            most_gpus = gpus
        elif not holds(tasks, want.least_gpus(tasks)):
            return None
        if not want.ntasks:
            return found[0], most_gpus
        while tasks < min(found[0], want.ntasks) and holds(tasks + 1, want.least_gpus(tasks + 1)):
            tasks += 1
        return tasks, most_gpus

    def near_lacks(self, want: Request, i: int, free: Free, tasks: int, gpus: int) -> bool:
        """Whether cores near GPUs, or by socket, are what is missing."""
        if not self.wanted(want):
            return False
        self.limits[i] = free.cpus, free.mem
        pool = self.pool(want, i, free)
        return self.place_near(want, i, free, pool, tasks, gpus) is None

    def pool(self, want: Request, i: int, free: Free) -> int:
        raise NotImplementedError

    def preferred(
        self,
        want: Request,
        i: int,
        free: Free,
        pool: int,
        gpus: int,
        cores: int,
        deal: dict[int, int] | None,
    ) -> int:
        """These GPUs, or others as well linked with the cores near them that these lack."""
        node = self.nodes[i]
        if len(node.domains) < 2 or free.used is None or not gpus or want.gpu_binding == 2:
            return gpus
        there = self.free_cores(node, free)
        links = self.classes[node.cls]

        def enough(mask: int) -> bool:
            return sum(there[d] for d in self.near(node, mask)) >= cores

        if enough(gpus):
            return gpus
        for other in self.picks(want, node, pool, gpus.bit_count(), deal):
            if enough(other) and links.inside(other) // 4096 >= links.inside(gpus) // 4096:
                return other
        return gpus

    # --- who holds which

    def hold(self, node: int, cores: list[int], sign: int, jobs: int) -> None:
        """Counts cores as used, or (sign -1) not any more; jobs: on the node afterwards."""
        used = self.dom_used[node]
        if len(self.nodes[node].domains) < 2:
            return
        if not jobs:
            used[:] = [0] * len(used)
            return
        for d in range(len(self.nodes[node].domains)):
            used[d] = max(0, used[d] + sign * (cores[d] if d < len(cores) else 0))

    dom_used: list[list[int]]

    def known(self, free: list[Free]) -> list[Free]:
        """The same, of now: how many cores of each domain are in use is known."""
        return [replace(one, used=list(self.dom_used[i])) for i, one in enumerate(free)]
