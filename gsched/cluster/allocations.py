"""What jobs hold: the core's allocations, CPU ids and licences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gsched import _core
from gsched.cluster import shapes
from gsched.cluster.lots import Lots, jobs_on_a_core, shares
from gsched.cluster.nodes import Nodes
from gsched.cluster.windows import GUARD, Windows
from gsched.cpuset import pick_cpus
from gsched.licenses import Licenses
from gsched.model import Job, NodeAlloc


class Allocations:
    """Shares of nodes by job."""

    def __init__(
        self,
        nodes: Nodes,
        core: _core.Core,
        licenses: Licenses,
        windows: Windows,
        new_key: Callable[[], int],
        owner: Callable[[Job], int],
    ) -> None:
        """`owner`: the core's number of the user whose jobs alone are to be beside a job."""
        self._nodes = nodes
        self._core = core
        self._licenses = licenses
        self._windows = windows
        self._new_key = new_key
        self._owner = owner
        #: job id -> key of its allocation in the core
        self._key: dict[int, int] = {}
        #: of jobs that stand still for others: node -> the CPUs that they have kept, or have back
        self._kept: dict[int, dict[str, int]] = {}
        #: and the nodes on which something of their own is others'
        self._missing: dict[int, set[str]] = {}
        self._lots = Lots()
        #: of jobs that stand still and shared their cores: the partition's number in the core
        self._was: dict[int, int] = {}
        #: what was told last of ends that limits alone do not say
        self._expected: dict[int, tuple[int, Sequence[tuple[str, int]]]] = {}
        #: of jobs that share their cores: node -> the partition's number in the core
        self._lot: dict[int, dict[str, int]] = {}

    def restore(self, job: Job) -> None:
        """Takes over what a loaded job holds, as it is recorded; of one that stands still its
        memory alone (see take_back)."""
        open_parts = [part for part in job.unreleased if part.node in self._nodes.index]
        key = self._new_key()
        rows = [self._row(part) for part in open_parts]
        if job.paused:
            self._kept[job.id] = {part.node: 0 for part in open_parts}
            self._missing[job.id] = {part.node for part in open_parts}
            rows = [(i, 0, mem, 0, tasks, ()) for i, _, mem, _, tasks, _ in rows]
        lot, numbers = -1, list[int]()
        part_of = self._nodes.config.partitions.get(job.partition)
        alone = bool(job.reservation or job.pool)
        if part_of is not None and not alone and shares(job.spec.shape, part_of):
            lot = self._nodes.partition_bit[job.partition]
        if lot >= 0 and job.paused:
            self._was[job.id], lot = lot, -1
        if lot >= 0:
            for part in open_parts:
                i = self._nodes.index[part.node]
                threads = self._nodes.config.nodes[part.node].threads_per_core
                numbers.append(self._lots.restore(i, lot, part.cpu_ids, threads))
        if lot >= 0:
            self._lot[job.id] = {part.node: lot for part in open_parts}
        self._core.allocate(
            key,
            rows,
            job.end_time if not job.finished else 0,
            adopt=True,
            gpu_milli=open_parts[0].shares if open_parts else 0,
            reservation=self._windows.number(job.reservation or (job.pool and GUARD + job.pool)),
            owner=max(self._owner(job), -1),
            extra=self._nodes.counted.of_shape(job.spec.shape),
            lot=lot,
            slots=numbers,
            caps=self._caps(job),
        )
        self._key[job.id] = key
        for part in () if job.paused else open_parts:
            self._nodes.free_cpus[self._nodes.index[part.node]] &= ~part.cpu_ids
        for i in {row[0] for row in rows} if lot >= 0 else ():
            conf = self._nodes.config.nodes[self._nodes.names[i]]
            if self._nodes.domains[i].sizes:
                free = self._nodes.free_cpus[i]
                self._core.set_cores(i, self._nodes.domains[i].used(free, conf.threads_per_core))
        self._licenses.take(job.id, job.licenses_alloc, job.reservation)

    def _caps(self, job: Job) -> tuple[int, ...]:
        """The bounds on CPUs of a node that a job counts against."""
        return self._nodes.caps.of_request(job.partition, any(part.gpus for part in job.alloc))

    def _row(self, part: NodeAlloc) -> tuple[int, int, int, int, int, tuple[int, ...]]:
        """A share as the core takes it over."""
        i = self._nodes.index[part.node]
        threads = self._nodes.config.nodes[part.node].threads_per_core
        cores = self._nodes.domains[i].used(~part.cpu_ids, threads)
        return i, part.cpus, part.mem_mb, part.gpus, part.tasks, cores

    def take_licenses(self, job: Job) -> str:
        """Those that a job which starts holds until `release`."""
        return self._licenses.take(job.id, job.spec.licenses, job.reservation)

    def assign_cpus(self, job: Job, alloc: list[NodeAlloc]) -> None:
        """Chooses the CPUs for shares that the core has set aside by number, and puts the node
        that is to run the script first."""
        shapes.batch_first(job.spec.batch_features, alloc, self._nodes.config)
        key = self._key.get(job.id)
        known = dict(self._core.allocation_cores(key)) if key is not None else {}
        lot, numbers = self._core.allocation_lot(key) if key is not None else (-1, ())
        in_lot = {}
        if key is not None and lot >= 0:
            rows = self._core.allocation(key)
            in_lot = {row[0]: cores for row, cores in zip(rows, numbers, strict=True)}
            self._lot[job.id] = {part.node: lot for part in alloc}
        index, confs = self._nodes.index, self._nodes.config.nodes
        free_cpus, domains = self._nodes.free_cpus, self._nodes.domains
        for part in alloc:
            i = index[part.node]
            conf = confs[part.node]
            free, chosen = free_cpus[i], 0
            if i in in_lot:
                part.cpu_ids, new = self._lots.join(
                    i, lot, in_lot[i], conf.threads_per_core, self._picker(part, known.get(i))
                )
                free_cpus[i] = free & ~new
                continue
            if i in known:
                # How many of each domain the core has decided.
                chosen = domains[i].pick(free, known[i], conf.threads_per_core)
            got = chosen.bit_count()
            if got != part.cpus:
                left = part.cpus if got > part.cpus else part.cpus - got
                chosen = chosen if left < part.cpus else 0
                chosen |= pick_cpus(
                    free & ~chosen,
                    left,
                    conf.cpus,
                    conf.sockets,
                    conf.threads_per_core,
                    self._nodes.gpu_cores(part),
                )
            part.cpu_ids = chosen
            free_cpus[i] = free & ~chosen

    def _picker(
        self, part: NodeAlloc, counts: tuple[int, ...] | None
    ) -> Callable[[int], list[int]]:
        """How free cores of a node are chosen, as CPU ids each: so many of each domain."""
        nodes = self._nodes
        i = nodes.index[part.node]
        conf = nodes.config.nodes[part.node]
        threads = conf.threads_per_core

        def cores(chosen: int) -> list[int]:
            whole = (1 << threads) - 1
            return [whole << n for n in range(0, conf.cpus, threads) if chosen >> n & 1]

        def pick(count: int) -> list[int]:
            free = nodes.free_cpus[i]
            if counts is not None and sum(counts) == count:
                chosen = nodes.domains[i].pick(free, counts, threads)
                found = [one for mask in nodes.domains[i].masks for one in cores(chosen & mask)]
                if len(found) == count:
                    return found
            near = nodes.gpu_cores(part)
            return cores(pick_cpus(free, count * threads, conf.cpus, conf.sockets, threads, near))

        return pick

    def release_node(self, job_id: int, part: NodeAlloc) -> None:
        """One node of an allocation is free again."""
        key = self._key.get(job_id)
        if key is None:
            return
        i = self._nodes.index[part.node]
        self._core.release_node(key, i)
        kept = self._kept.get(job_id)
        lot = self._lot.get(job_id, {}).pop(part.node, -1)
        mine = part.cpu_ids if kept is None else kept.pop(part.node, 0)
        self._nodes.free_cpus[i] |= mine if lot < 0 else self._lots.leave(i, lot, mine)
        if not self._core.allocation(key):
            del self._key[job_id]

    def bind(self, job_id: int, key: int) -> None:
        """What a pass has set aside under `key` is the job's from now on."""
        self._key[job_id] = key

    def key(self, job_id: int) -> int | None:
        """The core's key of what a job holds; None: nothing."""
        return self._key.get(job_id)

    def unbind(self, key: int, end: int, reservation: int = -1, lot: int = -1) -> None:
        """What a pass has set aside in a promise (see claims.py) is as any other's, or is in that
        reservation from now on; or others of that partition may share its cores. Cost: its
        nodes."""
        held = self._core.allocation(key)
        cores = dict(self._core.allocation_cores(key))
        rows = [
            (node, cpus, mem, gpus, tasks, cores.get(node, ()))
            for node, cpus, tasks, mem, gpus in held
        ]
        terms = self._core.allocation_terms(key)
        if lot >= 0:
            terms |= {"lot": lot, "slots": ()}
        self._core.release(key)
        self._core.allocate(
            *(key, rows, end),
            adopt=True,
            reservation=reservation,
            **terms,
        )

    def share(self, job: Job, partition: str, end: int) -> None:
        """A job has started in what was promised to it: from now on its cores are those of its
        partition's jobs, where these share them. Before assign_cpus. Cost: its nodes."""
        if shares(job.spec.shape, self._nodes.config.partitions[partition]):
            lot = self._nodes.partition_bit[partition]
            self.unbind(self._key[job.id], end, -1, lot)

    def give_back(self, key: int) -> None:
        """What a pass has set aside under `key` is not wanted."""
        self._core.release(key)

    def release(self, job_id: int) -> None:
        """Nothing is held for the job any more (its shares were released one by one before)."""
        self._licenses.give(job_id)
        self._kept.pop(job_id, None)
        self._missing.pop(job_id, None)
        self._lot.pop(job_id, None)
        self._was.pop(job_id, None)
        self._expected.pop(job_id, None)
        key = self._key.pop(job_id, None)
        if key is not None and self._core.allocation(key):
            self._core.release(key)

    # ---- jobs that stand still -----------------------------------------------------------------

    def lend(self, job: Job, part: NodeAlloc) -> None:
        """A job stands still: its CPUs and GPUs on a node are free, its memory is its own. For all
        of its nodes the first time. Cost: nodes that it holds."""
        kept = self._kept.setdefault(job.id, {})
        i = self._nodes.index[part.node]
        self._core.reshape(self._key[job.id], (i, 0, part.mem_mb, 0))
        mine = kept.get(part.node, part.cpu_ids)
        lot = self._lot.get(job.id, {}).pop(part.node, -1)
        if lot >= 0:
            self._was[job.id] = lot
            mine = self._lots.leave(i, lot, mine)
        self._nodes.free_cpus[i] |= mine
        kept[part.node] = 0
        self._missing.setdefault(job.id, set()).add(part.node)

    def take_back(self, job: Job, part: NodeAlloc, cpus: int, gpus: int) -> None:
        """One that stands still gets back what is free of its own on a node, but for so many CPUs
        and those GPUs that have been promised. Cost: nodes that it still holds."""
        if job.id in self._was:
            self._join_again(job, part, cpus, gpus)
            return
        key, kept, node = self._key[job.id], self._kept[job.id], part.node
        i = self._nodes.index[node]
        mine, free = kept[node], self._nodes.free_cpus[i]
        gain = free & part.cpu_ids
        over = gain.bit_count() + cpus - free.bit_count()
        while over > 0 and gain:
            gain &= gain - 1
            over -= 1
        used = self._core.node_free(i)[2]
        had = next(row[4] for row in self._core.allocation(key) if row[0] == i)
        back = part.gpus & ~used & ~gpus
        if gain or back:
            threads = self._nodes.config.nodes[node].threads_per_core
            mine |= gain
            cores = self._nodes.domains[i].used(~mine, threads)
            self._core.reshape(key, (i, mine.bit_count(), part.mem_mb, had | back, cores))
            self._nodes.free_cpus[i] = free & ~gain
            kept[node] = mine
        if mine == part.cpu_ids and had | back == part.gpus:
            self._missing[job.id].discard(node)

    def _join_again(self, job: Job, part: NodeAlloc, cpus: int, gpus: int) -> None:
        """The same for one that shares its cores: it has those back, too, that others of its
        partition have."""
        key, kept, node, lot = self._key[job.id], self._kept[job.id], part.node, self._was[job.id]
        i = self._nodes.index[node]
        threads = self._nodes.config.nodes[node].threads_per_core
        most = jobs_on_a_core(list(self._nodes.config.partitions.values())[lot])
        mine, free = kept[node], self._nodes.free_cpus[i]
        shared = self._lots.open(i, lot, most) & part.cpu_ids & ~mine
        fresh = free & part.cpu_ids & ~mine
        whole = (1 << threads) - 1
        while fresh and fresh.bit_count() + cpus > free.bit_count():
            low = (fresh & -fresh).bit_length() - 1
            fresh &= ~(whole << low // threads * threads)
        used = self._core.node_free(i)[2]
        had = next(row[4] for row in self._core.allocation(key) if row[0] == i)
        back = part.gpus & ~used & ~gpus
        if fresh or shared or back:
            self._lots.restore(i, lot, fresh | shared, threads)
            self._nodes.free_cpus[i] = free & ~fresh
            kept[node] = mine = mine | fresh | shared
            self._lot.setdefault(job.id, {})[node] = lot
            rows, numbers = [], []
            for row in self._core.allocation(key):
                ids = kept[self._nodes.names[row[0]]]
                masks = row[4] | (back if row[0] == i else 0)
                rows.append((row[0], ids.bit_count(), row[3], masks, row[2]))
                numbers.append(self._lots.numbers(row[0], lot, ids))
            terms = self._core.allocation_terms(key) | {"lot": lot, "slots": numbers}
            self._core.release(key)
            self._core.allocate(key, rows, adopt=True, **terms)
            self._expected.pop(job.id, None)
        if mine == part.cpu_ids and had | back == part.gpus:
            self._missing[job.id].discard(node)

    def kept(self, job_id: int, node: str) -> tuple[int, int]:
        """(CPUs, GPUs) that one that stands still has of its own on a node."""
        i = self._nodes.index[node]
        rows = self._core.allocation(self._key[job_id])
        return self._kept[job_id][node], next(row[4] for row in rows if row[0] == i)

    def goes_on(self, job_id: int) -> bool:
        """Whether a job that stood still has all of its own back: it holds it as any other then."""
        if self._missing[job_id]:
            return False
        del self._kept[job_id], self._missing[job_id]
        self._was.pop(job_id, None)
        return True

    def set_end(self, job: Job) -> None:
        """A running job's expected end has changed."""
        key = self._key.get(job.id)
        self._expected.pop(job.id, None)
        if key is not None:
            self._core.set_end(key, job.end_time)

    def expect(self, job_id: int, end: int, late: Sequence[tuple[str, int]]) -> bool:
        """When a job is expected to have ended (0: never), and on which of its nodes others have
        what it holds until later. Whether that is news. Cost: its nodes."""
        key = self._key.get(job_id)
        if key is None or self._expected.get(job_id) == (end, late):
            return False
        self._expected[job_id] = end, late
        index = self._nodes.index
        self._core.set_end(key, end, [(index[name], at) for name, at in late])
        return True

    def move(self, job: Job, pool: str) -> None:
        """A running job is in the units of that account from now on; "" of none. Cost: unbind."""
        key = self._key.get(job.id)
        if key is not None:
            self.unbind(key, job.end_time, self._windows.number(pool and GUARD + pool))

    def overdue(self, job_id: int, now: int) -> None:
        """What a job holds is expected back at once."""
        key = self._key.get(job_id)
        self._expected.pop(job_id, None)
        if key is not None:
            self._core.set_end(key, max(now, 1))

    def mates(self, job_id: int) -> tuple[int, int] | None:
        """Whose cores a job shares (the partition's number), and how many jobs may hold one; None:
        it has its cores for itself."""
        key = self._key.get(job_id)
        lot = -1 if key is None else self._core.allocation_lot(key)[0]
        if lot < 0:
            return None
        part = list(self._nodes.config.partitions.values())[lot]
        return lot, jobs_on_a_core(part)

    def shares(self, job_id: int) -> bool:
        """Whether a job shares its cores with others of its partition, on any node."""
        return bool(self._lot.get(job_id))

    def parts_held(self, job_id: int) -> int:
        """Parts of one GPU that a job holds on each of its nodes; 0 none, or whole GPUs."""
        key = self._key.get(job_id)
        return 0 if key is None else self._core.allocation_milli(key)

    def held(self) -> Iterator[tuple[int, int]]:
        """(job id, key in the core) of all that hold something."""
        yield from self._key.items()
