"""The waiting jobs as rows of the core's queue."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Sequence

from gsched import _core, access, dependency
from gsched.cluster.limits import Limits
from gsched.cluster.nodes import Nodes
from gsched.cluster.ranks import Columns, Ranks, Sweep
from gsched.cluster.requests import TIME_LIMIT, TOGETHER, Requests
from gsched.cluster.windows import CLAIM, GUARD, Windows
from gsched.config import Config
from gsched.licenses import LicenseError, Licenses
from gsched.licenses import parse as parse_licenses
from gsched.model import Hold, Job, Shape
from gsched.taskset import TaskSet
from gsched.together import Component, Row, Together
from gsched.topology import switch_wait

#: rows of the queue for the tasks of one array: so many of them may start in one pass
ARRAY_ROWS = 128

#: what lifts a row over all others, whatever their priorities and their partitions' tiers
LIFT = 1 << 58

#: states of a partition in which none of its jobs start -> Slurm's reason
_CLOSED = {"DOWN": "PartitionDown", "INACTIVE": "PartitionInactive"}


class Queue:
    """Jobs by their rows: one for each partition, and for each of an array's next tasks."""

    def __init__(
        self,
        nodes: Nodes,
        requests: Requests,
        core: _core.Core,
        together: Together,
        licenses: Licenses,
        windows: Windows,
        limits: Limits,
    ) -> None:
        self._limits = limits
        self._config = nodes.config
        self._requests_of = requests
        self._core = core
        self._together = together
        self._licenses = licenses
        self._windows = windows
        #: key of a row -> (job id, partition); job id -> its keys
        self.row: dict[int, tuple[int, str]] = {}
        self._rows: dict[int, list[int]] = {}
        self._last_key = 0
        #: key of a row -> advance reservation, for rows that would start in one
        self.within: dict[int, str] = {}
        #: account -> rows that would start in its units
        self.guards: dict[str, dict[int, None]] = {}
        #: job id -> account in whose units it has been promised a place
        self.pool: dict[int, str] = {}
        #: key of a row -> which of its job's alternatives it asks for, but for the first
        self.choice: dict[int, int] = {}
        #: job id -> request classes it holds a reference to, one for each partition (and
        #: reservation)
        self._requests: dict[int, list[tuple[str, str, int, int]]] = {}
        #: key of a row -> the limits that it is under, where it is under any; job id -> those that
        #: it holds a reference to
        self.chain: dict[int, int] = {}
        self._chains: dict[int, list[int]] = {}
        #: job id -> its time limit in seconds
        self._limit: dict[int, int] = {}
        #: job id -> the nodes it names, for jobs in the queue that name any
        self._named: dict[int, tuple[str, ...]] = {}
        #: job id -> reason word while its rows are held
        self.parked: dict[int, str] = {}
        #: partition -> {job id: key} of jobs of a single row that nothing but the partition's state
        #: may keep from taking part; partition -> the others that name it
        self._ready: dict[str, dict[int, int]] = {}
        self._others: dict[str, set[int]] = {}
        #: array id -> group in the core, for its throttle; groups that may be used again
        self._group: dict[int, int] = {}
        #: job id -> group of its rows where several partitions would each start it
        self._unit: dict[int, int] = {}
        #: uid -> number in the core
        self._user: dict[int, int] = {}
        self._groups = 0
        self._spare_groups: list[int] = []
        #: begin times to come
        self._begins: list[int] = []
        #: jobs that wait for few leaf switches: (until when, job id); job id -> that, its shapes
        #: and the number of switches
        self._switch_ends: list[tuple[int, int]] = []
        self._switch_jobs: dict[int, tuple[int, tuple[Shape, ...], int]] = {}
        self._by_switches = nodes.network == "tree"
        #: what the priorities of rows are made of, and how that is found for a job in a partition:
        #: (columns, priority now)
        self._ranks = Ranks(core)
        #: job id -> its rows that stand before others
        self._lifted: dict[int, set[int]] = {}
        self.rank: Callable[[Job, str], tuple[Columns, int]] = _as_recorded

    def new_key(self) -> int:
        """A key that no row and no allocation of the core has."""
        self._last_key += 1
        return self._last_key

    def add(self, job: Job) -> None:
        """Puts a pending job into the queue, where it is not (see remove). An array that is still
        together has a row for each of its next tasks. Cost: its rows."""
        tasks = len(TaskSet.parse(job.array_pending)) if job.array_pending else 1
        rows: list[int] = []
        places: list[Row] = []
        requests: list[tuple[str, str, int, int]] = []
        whys: list[str] = []
        free_rows: list[int] = []
        partitions = job.spec.partitions or (job.partition,)
        unit = -1
        shapes = [each.shape for each in job.spec.alternatives] or [job.spec.shape]
        ways = [
            (part, resv, choice)
            for part in partitions
            for resv in self._windows.ways(job)
            for choice in range(len(shapes))
        ]
        if len(ways) > 1:
            # A pass may find room for it in each of them: it starts once.
            unit = self._unit[job.id] = self._new_group(tasks)
        switches = self._wait_for_switches(job)
        user = self._user.setdefault(job.uid, len(self._user))
        free = self._limits.free_of(job)
        if job.het_job_id:
            free |= TOGETHER
        for partition, resv, choice in ways:
            try:
                number = self._windows.number(resv)
                req = self._requests_of.acquire(shapes[choice], partition, switches, number, free)
            except (ValueError, KeyError):
                # The configuration changed under the job: it waits, and says why.
                req = int(self._core.request())
                why, tier = "BadConstraints", 0
            else:
                why = self.why_parked(job, partition)
                tier = self._config.partitions[partition].priority_tier
            requests.append((partition, resv, choice, req))
            whys.append(why)
            chain = self._limits.acquire(job, partition, shapes[choice])
            if chain >= 0:
                self._chains.setdefault(job.id, []).append(chain)
            columns, priority = self.rank(job, partition)
            for _ in range(1 if why else min(tasks, ARRAY_ROWS)):
                key = self.new_key()
                begin = self._windows.ready_at(resv, job.spec.begin)
                place = (tier * (1 << 40) + priority, job.id, job.time_limit, begin)
                whose = 0 if rows else job.id
                self._ranks.put(key, whose, tier * (1 << 40), columns, priority)
                self._core.queue_add(
                    key,
                    req,
                    *place,
                    held=1 if why else 0,
                    group=self._group.get(job.array_job_id, -1) if job.array_job_id else -1,
                    unit=unit,
                    user=user,
                    array=job.array_job_id or -1,
                    since=job.eligible_time or job.submit_time,
                    chain=chain,
                )
                if chain >= 0:
                    self.chain[key] = chain
                if begin > job.spec.begin:
                    heapq.heappush(self._begins, begin)
                self.row[key] = (job.id, partition)
                if resv:
                    self.within[key] = resv
                    if resv.startswith(GUARD):
                        self.guards.setdefault(resv[len(GUARD) :], {})[key] = None
                if choice:
                    self.choice[key] = choice
                rows.append(key)
                if not why:
                    free_rows.append(key)
                if job.het_job_id:
                    places.append(Row(key, req, place, unit, chain))
        # What may start in one of its partitions waits for that.
        parked = whys[0] if all(whys) else ""
        if not parked:
            places = [row for row in places if row.key in free_rows]
        if parked:
            self.parked[job.id] = parked
        if job.spec.shape.nodelist:
            self._named[job.id] = job.spec.shape.nodelist
        if job.spec.begin:
            heapq.heappush(self._begins, job.spec.begin)
        self._rows[job.id] = rows
        if job.pool:
            self.pool[job.id] = job.pool
        self._limit[job.id] = job.time_limit
        self._requests[job.id] = requests
        if job.het_job_id:
            wanted = (
                ()
                if parked
                else tuple(
                    self._requests_of.words(shapes[choice], p, free)
                    for (p, _, choice), why in zip(ways, whys, strict=True)
                    if not why
                )
            )
            component = Component(job.id, places, parked, wanted)
            self._together.add(job.het_job_id, job.het_size, component)
        if job.spec.licenses and not parked:
            self._queue_licenses(job, free_rows)
        self._file(job, partitions, whys, rows)

    def _file(self, job: Job, partitions: Sequence[str], whys: list[str], rows: list[int]) -> None:
        """Notes what must be done for it when one of its partitions is opened or closed."""
        if len(rows) == len(whys) == 1 and not _bound(job):
            why = whys[0]
            if why in _CLOSED.values():
                why = self._unfit(job, partitions[0])
            if not why:
                self._ready.setdefault(partitions[0], {})[job.id] = rows[0]
                return
        for partition in partitions:
            self._others.setdefault(partition, set()).add(job.id)

    def _wait_for_switches(self, job: Job) -> int:
        """On how many leaf switches it may lie, from now on until it has waited long enough for
        them; 0: any number. Components of a heterogeneous job are only placed by preference."""
        count = job.spec.switches
        if not count or not self._by_switches or job.het_job_id or not job.eligible_time:
            return 0
        end = job.eligible_time + switch_wait(job.spec.switch_wait, self._config)
        heapq.heappush(self._switch_ends, (end, job.id))
        shapes = tuple(each.shape for each in job.spec.alternatives) or (job.spec.shape,)
        self._switch_jobs[job.id] = end, shapes, count
        return count

    def switches(self, job_id: int) -> tuple[int, int]:
        """(on how many leaf switches a job waits to lie, until when); zeros: on any number."""
        if job_id not in self._switch_jobs:
            return 0, 0
        end, _, count = self._switch_jobs[job_id]
        return count, end

    def possible_later(self, job_id: int, key: int) -> bool:
        """Whether a job that waits for few switches would fit on any number if no job ran."""
        if job_id not in self._switch_jobs:
            return False
        try:
            shape = self._switch_jobs[job_id][1][self.choice.get(key, 0)]
            req = self._requests_of.acquire(shape, self.row[key][1])
        except (ValueError, KeyError):
            return False
        try:
            return self._core.possible(req)
        finally:
            self._core.drop_request(req)

    def loosen(self, now: int) -> None:
        """Lets jobs that have waited long enough for few switches lie on any number. Cost: the
        rows of those jobs."""
        while self._switch_ends and self._switch_ends[0][0] <= now:
            end, job_id = heapq.heappop(self._switch_ends)
            if job_id not in self._switch_jobs or self._switch_jobs[job_id][0] != end:
                continue
            _, shapes, _ = self._switch_jobs.pop(job_id)
            before = self._requests[job_id]
            after: list[tuple[str, str, int, int]] = []
            for partition, resv, choice, _ in before:
                try:
                    number = self._windows.number(resv)
                    req = self._requests_of.acquire(shapes[choice], partition, 0, number)
                except (ValueError, KeyError):
                    req = int(self._core.request())
                after.append((partition, resv, choice, req))
            self._requests[job_id] = after
            for key in self.keys(job_id):
                self._core.queue_update(key, req=self.request_of(job_id, key))
            for *_, req in before:
                self._core.drop_request(req)

    def _queue_licenses(self, job: Job, rows: list[int]) -> None:
        try:
            promised = job.claim.licenses if job.claim is not None else ""
            choices = parse_licenses(promised or job.spec.licenses)
        except LicenseError:
            return
        by_partition: dict[str, list[int]] = {}
        for key in rows:
            by_partition.setdefault(self.row[key][1], []).append(key)
        row_lists = list(by_partition.values())
        within = self.within.get(rows[0], "") if rows else ""
        if within.startswith(GUARD):
            within = ""
        begin = self._windows.ready_at(within, job.spec.begin)
        if within.startswith(CLAIM):
            within = self._windows.inside(within)
        chains = tuple(self.chain.get(keys[0], -1) for keys in row_lists)
        priority = max((self._ranks.last(key) for key in rows), default=0)
        self._licenses.add(
            *(job.id, choices, row_lists, priority, begin, job.time_limit, within, chains),
            job.claim is not None,
        )

    def why_parked(
        self, job: Job, partition: str, fits: set[int] | None = None, req: int = -1
    ) -> str:
        """Slurm's reason why a job takes no part in passes for a partition; "" it does. `fits`
        remembers, while nothing else changes, the request classes that are not too big."""
        if job.held:
            if job.reason:
                return job.reason
            return "JobHeldUser" if job.held == Hold.USER else "JobHeldAdmin"
        if job.reason in access.UNCHARGED:
            return job.reason
        if job.deps:
            return "DependencyNeverSatisfied" if dependency.failed(job.deps) else "Dependency"
        state = self._config.partitions[partition].state
        return _CLOSED.get(state) or self._unfit(job, partition, fits, req)

    def _unfit(self, job: Job, partition: str, fits: set[int] | None = None, req: int = -1) -> str:
        """The same for what a partition allows while it is open."""
        part = self._config.partitions[partition]
        over = part.max_time and (not job.time_limit or job.time_limit > part.max_time)
        free = self._limits.free_of(job)
        if fits is None or req not in fits:
            # Of two reasons Slurm names the size.
            if self._requests_of.too_big(job.spec.shape, partition, free):
                return "PartitionConfig"
            if fits is not None:
                fits.add(req)
        if over and TIME_LIMIT not in free:
            return "PartitionTimeLimit"
        return access.barred(part, job.spec, self._windows.lineage(job.spec.account))

    def open_or_close(self, config: Config, name: str) -> list[int]:
        """A partition's state is all that `config` changes: what follows for its jobs, but for the
        ids given back, which must be judged. Cost: ~0.1 us for each of its jobs."""
        self._config = config
        why = _CLOSED.get(config.partitions[name].state, "")
        ready = self._ready.get(name, {})
        self._core.queue_hold(array("q", ready.values()), 1 if why else 0)
        if why:
            self.parked.update(dict.fromkeys(ready, why))
        else:
            for job_id in ready:
                self.parked.pop(job_id, None)
        return sorted(self._others.get(name, ()))

    def judge(self, job: Job, fits: set[int]) -> bool | None:
        """Whether a queued job's reason for not starting at all has changed, when that could be put
        right; None: it must be queued anew, as it has several rows or is bound to others. `fits`
        is empty before the first of many jobs that are judged at once."""
        rows = self._rows.get(job.id)
        if rows is None:
            return False
        row = self.row.get(rows[0]) if rows else None
        if _bound(job) or len(rows) != 1 or row is None:
            return None
        before = self.parked.get(job.id, "")
        if before == "BadConstraints":
            return None
        why = self.why_parked(job, row[1], fits, self._requests[job.id][0][-1])
        if why == before:
            return False
        if why:
            self.parked[job.id] = why
        else:
            del self.parked[job.id]
        self._core.queue_update(rows[0], held=1 if why else 0)
        return True

    def put_first(self, job_id: int, count: int) -> None:
        """The next `count` tasks of a queued job (a job is one) stand before all that are not put
        first, and no others of it do. Cost: its rows."""
        seen: dict[tuple[str, str, int], int] = {}
        lifted = self._lifted.pop(job_id, set())
        wanted: set[int] = set()
        for key in self.keys(job_id) if count else ():
            way = self._way(key)
            seen[way] = seen.get(way, 0) + 1
            if seen[way] <= count:
                wanted.add(key)
        for key in lifted - wanted:
            if key in self.row:
                self._ranks.lift(key, -LIFT)
        for key in wanted - lifted:
            self._ranks.lift(key, LIFT)
        if wanted:
            self._lifted[job_id] = wanted

    def remove(self, job_id: int) -> list[int]:
        """Takes a job out of the queue, if it is there; its keys."""
        keys = self._rows.pop(job_id, [])
        self._lifted.pop(job_id, None)
        for key in keys:
            self._ranks.drop(key)
            self.leave(key)
            self.chain.pop(key, None)
            self.choice.pop(key, None)
            # A row that was started has left the core's queue and this table already.
            if self.row.pop(key, None) is not None:
                self._core.queue_remove(key)
        self.parked.pop(job_id, None)
        self.pool.pop(job_id, None)
        self._named.pop(job_id, None)
        self._switch_jobs.pop(job_id, None)
        self._together.remove(job_id)
        self._licenses.remove(job_id)
        self._limit.pop(job_id, None)
        for chain in self._chains.pop(job_id, ()):
            self._limits.release(chain)
        for partition, *_, req in self._requests.pop(job_id, ()):
            self._core.drop_request(req)
            if self._ready.get(partition, {}).pop(job_id, None) is None:
                self._others[partition].discard(job_id)
        unit = self._unit.pop(job_id, -1)
        if unit >= 0:
            self._spare_groups.append(unit)
        return keys

    def leave(self, key: int) -> str:
        """A row starts, or goes: the reservation that it would have started in."""
        within = self.within.pop(key, "")
        if within.startswith(GUARD):
            pool = within[len(GUARD) :]
            rows = self.guards.get(pool, {})
            rows.pop(key, None)
            if not rows:
                self.guards.pop(pool, None)
        return within

    def sweep(self, how: Sweep) -> dict[int, int]:
        """Recalculates the priorities of all rows (see Ranks.sweep)."""
        found = self._ranks.sweep(how)
        for job_id in self._licenses.waiting & found.keys():
            self._licenses.reprioritise(job_id, found[job_id])
        return found

    def priority(self, job_id: int) -> int:
        """The priority in force of a job in the queue, in the first of its partitions."""
        return self._ranks.last(self._rows[job_id][0])

    def priorities(self, job_id: int) -> dict[str, int]:
        """The same in each of its partitions. Cost: its rows."""
        return {self.row[key][1]: self._ranks.last(key) for key in self._rows[job_id]}

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._rows

    def set_throttle(self, array_id: int, left: int | None) -> None:
        """How many tasks of an array may still start; None: any number. Its jobs must be queued
        anew when that begins or ends to be limited."""
        group = self._group.get(array_id)
        if left is None:
            if group is not None:
                del self._group[array_id]
                self._spare_groups.append(group)
            return
        if group is None:
            self._group[array_id] = self._new_group(left)
        else:
            self._core.set_group(group, left)

    def _new_group(self, left: int) -> int:
        if self._spare_groups:
            group = self._spare_groups.pop()
        else:
            group = self._groups
            self._groups += 1
        self._core.set_group(group, left)
        return group

    def due(self, now: int) -> bool:
        """Whether a begin time has come since the last call, or a job has waited long enough for
        its switches."""
        due = bool(self._switch_ends) and self._switch_ends[0][0] <= now
        while self._begins and self._begins[0] <= now:
            heapq.heappop(self._begins)
            due = True
        return due

    def next_wake(self) -> int:
        """The next begin time or end of a wait for switches to come; 0: none."""
        times = [self._begins[0]] if self._begins else []
        if self._switch_ends:
            times.append(self._switch_ends[0][0])
        return min(times, default=0)

    def first_row(self, job_id: int) -> int:
        """The row that speaks for the job: the first that has not been started."""
        return next((key for key in self._rows[job_id] if key in self.row), 0)

    def single(self, job_id: int) -> bool:
        """Whether a job in the queue never had more than one row."""
        return len(self._rows[job_id]) == 1

    def leads(self, job_id: int) -> list[int]:
        """The rows that speak for the job: the first of each of its partitions that has not been
        started. Cost: its rows, where it has several partitions."""
        rows = self._rows[job_id]
        if job_id not in self._unit:
            first = self.first_row(job_id)
            return [first] if first else []
        found: dict[tuple[str, str, int], int] = {}
        for key in rows:
            if key in self.row:
                found.setdefault(self._way(key), key)
        return list(found.values())

    def keys(self, job_id: int) -> list[int]:
        """Its rows that have not been started."""
        return [key for key in self._rows.get(job_id, ()) if key in self.row]

    def request_of(self, job_id: int, key: int) -> int:
        """The request class of one of its rows."""
        mine = self._way(key)
        return next(req for *way, req in self._requests[job_id] if tuple(way) == mine)

    def _way(self, key: int) -> tuple[str, str, int]:
        """The partition, reservation and alternative of one of its rows."""
        return self.row[key][1], self.within.get(key, ""), self.choice.get(key, 0)

    def requests(self, job_id: int) -> list[int]:
        """Its request classes, one for each of its partitions."""
        return [req for *_, req in self._requests[job_id]]

    def limit(self, job_id: int) -> int:
        """Its time limit in seconds, 0: none."""
        return self._limit[job_id]

    def named(self, job_id: int) -> tuple[str, ...]:
        """The nodes that it names."""
        return self._named.get(job_id, ())


def _bound(job: Job) -> bool:
    """Whether it stands in the queue more than once, or together with others."""
    spec = job.spec
    return bool(
        job.array_pending
        or job.het_job_id
        or spec.licenses
        or len(spec.partitions) > 1
        or spec.alternatives
    )


def _as_recorded(job: Job, _: str) -> tuple[Columns, int]:
    """The priority that stands in the job's record."""
    return (job.priority, 0.0, -1.0, 0), job.priority
