"""The slow twin of `gsched._core.Core`.

Same names, arguments and results as `gsched._core`; every rule is written down as it is said in
_core.pyi, by trying, sorting and recounting. Inputs are taken as valid.
"""

from __future__ import annotations

from gsched import _core
from gsched._core import Placement, Plan, Reservation, Start
from gsched._reference.parts import (
    Held,
    Job,
    Request,
    Row,
)
from gsched._reference.placing import FOREVER, PLANNED, YEAR
from gsched._reference.plan import Book, Options
from gsched._reference.survey import Surveys


class Core(Surveys):
    """See _core.pyi."""

    def queue_add(
        self,
        key: int,
        req: int,
        priority: int,
        order: int,
        limit_s: int = 0,
        ready_at: int = 0,
        *,
        held: int = 0,
        group: int = -1,
        unit: int = -1,
        user: int = -1,
    ) -> None:
        self.queue[key] = Job(key, req, priority, order, limit_s, ready_at, held, group, unit, user)

    def queue_remove(self, key: int) -> None:
        del self.queue[key]

    def queue_update(self, key: int, *, priority: int) -> None:
        self.queue[key].priority = priority

    def set_group(self, group: int, left: int) -> None:
        self.groups[group:] = [left, *self.groups[group + 1 :]]

    def schedule(
        self,
        now: int,
        max_starts: int = 0,
        max_test: int = 0,
        *,
        plan_jobs: int = 0,
        resolution: int = 60,
        window: int = 604800,
        min_priority: int | None = None,
        max_user: int = 0,
        max_partition: int = 0,
        keep: int = 0,
    ) -> Plan:
        old, self.planned, self.strict = self.planned, [], []
        self.kept = {}
        self.book = None
        if plan_jobs:
            low = -FOREVER if min_priority is None else min_priority
            options = Options(plan_jobs, resolution, window, low, max_user, max_partition)
            self.book = Book(self.nodes, list(self.held.values()), now, options)
            if keep:
                self.keep(old, self.book)
        for held in self.held.values():
            held.since = 0
        headed: set[int] = set()
        starts: list[Start] = []
        changed: list[tuple[int, int]] = []
        tested, more = 0, False
        for job in sorted(self.queue.values(), key=lambda j: (-j.priority, j.order, j.key)):
            job.start = 0
            if job.held:
                verdict = _core.HELD
            elif job.ready > now:
                verdict = _core.BEGIN
            elif any(g >= 0 and self.groups[g] <= 0 for g in (job.group, job.unit)):
                verdict = _core.GROUP
            elif max_test and tested >= max_test:
                verdict = _core.UNTESTED
            else:
                tested += 1
                promise = self.kept.get(job.key)
                if promise is not None and keep == _core.HOLD_STILL and promise.at > now:
                    verdict = self.judge(job, now, headed, hold=True)
                    if verdict != job.verdict:
                        job.verdict = verdict
                        changed.append((job.key, verdict))
                    continue
                if promise is not None and self.book is not None:
                    self.book.uses = [use for use in self.book.uses if use.key != job.key]
                end = now + job.limit if job.limit else FOREVER
                rows = self.find(self.requests[job.req], self.live(), now, end)
                if rows is not None:
                    if max_starts and len(starts) >= max_starts:
                        more = True
                        break
                    starts.append(self.begin(job, rows, end))
                    verdict = _core.STARTED
                else:
                    verdict = self.judge(job, now, headed)
                    if verdict == _core.STARTED:
                        if max_starts and len(starts) >= max_starts:
                            more = True
                            break
                        assert self.found is not None
                        starts.append(self.begin(job, self.found, end))
            if verdict != job.verdict:
                job.verdict = verdict
                changed.append((job.key, verdict))
        return Plan(starts, list(self.planned), changed, tested, 0, more)

    def begin(self, job: Job, rows: tuple[Row, ...], end: int) -> Start:
        milli = self.requests[job.req].gpu_milli
        self.held[job.key] = Held(list(rows), end, milli, len(self.planned))
        if self.book is not None:
            book, partition = self.book, self.requests[job.req].partition
            for node, cpus, _, mem, gpus in rows:
                book.take(node, book.now, book.ends(end), cpus, mem, gpus, False)
                if partition in book.skies:
                    slots = -(-min(end - book.now, YEAR) // book.slot)
                    book.sink(partition, 0, slots, gpus.bit_count(), cpus)
        del self.queue[job.key]
        for group in (job.group, job.unit):
            if group >= 0:
                self.groups[group] -= 1
        return Start(job.key, Placement(rows, milli))

    def keep(self, old: list[Reservation], book: Book) -> None:
        """Lay in the reservations of the last pass that still hold."""
        for promise in old:
            job = self.queue.get(promise.key)
            if job is None or promise.at < book.now or job.req != self.reqs.get(promise.key):
                continue
            if promise.until - promise.at != (job.limit or YEAR):
                continue
            holds = True
            for node, cpus, _, mem, gpus in promise.placement.nodes:
                there = book.window(node, promise.at, promise.until)
                if not there.usable or there.cpus < cpus or there.mem < mem or gpus & ~there.gpus:
                    holds = False
                if self.requests[job.req].exclusive and there.jobs:
                    holds = False
            if holds:
                self.kept[job.key] = promise
                self.lay(book, promise)

    def lay(self, book: Book, promise: Reservation) -> None:
        for node, cpus, _, mem, gpus in promise.placement.nodes:
            book.take(node, promise.at, promise.until, cpus, mem, gpus, True, promise.key)

    def plan(self, job: Job, want: Request, book: Book, hold: bool) -> bool:
        """When it will start, kept for it; whether that is now, with the answer in self.found."""
        duration = job.limit or YEAR
        if not hold and not book.may_reserve(job, want.partition):
            job.start = book.lay(want, duration)
            return False
        book.exact += 1
        last = book.now + book.options.window
        promise = self.kept.get(job.key)
        if promise is not None:
            last = min(last, promise.at - 1)
        times = sorted({book.now} | {t for t in book.events() if book.now < t <= last})
        for time in [] if hold else times:
            free = [book.window(i, time, time + duration) for i in range(len(self.nodes))]
            rows = self.find(want, free, plain=True)
            if rows is None:
                continue
            job.start = time
            if time == book.now:
                self.found = rows
                return True
            placement = Placement(rows, want.gpu_milli)
            promise = Reservation(job.key, time, time + duration, placement)
            break
        if promise is None:
            return False
        job.start = promise.at
        if promise.at == book.now:
            self.found = promise.placement.nodes
            return True
        self.planned.append(promise)
        self.reqs[job.key] = job.req
        book.partitions[want.partition] = book.partitions.get(want.partition, 0) + 1
        book.users[job.user] = book.users.get(job.user, 0) + 1
        if not hold:
            self.lay(book, promise)
        return False

    def judge(self, job: Job, now: int, headed: set[int], *, hold: bool = False) -> int:
        want = self.requests[job.req]
        if not self.possible(job.req):
            return _core.NODES_DOWN if self.ever(job.req) else _core.NEVER
        if self.book is not None and self.plan(job, want, self.book, hold):
            return _core.STARTED
        if want.partition not in headed:
            headed.add(want.partition)
            if self.book is None and len(self.planned) < PLANNED:
                self.reserve(job, want, now)
            return _core.RESOURCES
        alone = self.find(want, self.live())
        return _core.BEHIND if alone is None else _core.PRIORITY

    def reserve(self, job: Job, want: Request, now: int) -> None:
        """The earliest time at which something ends and the job fits for its whole duration."""
        duration = job.limit or YEAR
        times = {self.end_of(held, now) for held in self.held.values()}
        times |= {planned.until for planned in self.planned}
        for time in sorted(t for t in times if t > now):
            over = [
                i
                for i, other in enumerate(self.planned)
                if other.at < time + duration and time < other.until
            ]
            rows = self.find(want, self.at(time, now, over))
            if rows is not None:
                job.start = time
                placement = Placement(rows, want.gpu_milli)
                self.planned.append(Reservation(job.key, time, time + duration, placement))
                exact = want.one_island or want.gpu_milli > 0
                self.strict.append(
                    {
                        row[0]
                        for row in rows
                        if exact or (want.gpu_type >= 0 and len(self.nodes[row[0]].types) > 1)
                    }
                )
                return
