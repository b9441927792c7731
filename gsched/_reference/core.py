"""The slow twin of `gsched._core.Core`.

Same names, arguments and results as `gsched._core`; every rule is written down as it is said in
_core.pyi, by trying, sorting and recounting. Inputs are taken as valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gsched import _core
from gsched._core import Placement, Plan, Reservation, Start
from gsched._reference.parts import (
    Held,
    Job,
    Request,
    Row,
)
from gsched._reference.plan import Book
from gsched._reference.quick import ASIDE, Quick, options
from gsched._reference.state import FOREVER, PLANNED, YEAR


class Core(Quick):
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
        array: int = -1,
        since: int = 0,
        chain: int = -1,
    ) -> None:
        self.queue[key] = Job(
            *(key, req, priority, order, limit_s, ready_at, held, group, unit, user, array, since),
            chain=chain,
        )

    def queue_remove(self, key: int) -> None:
        del self.queue[key]

    def queue_update(self, key: int, *, priority: int) -> None:
        self.queue[key].priority = priority

    def set_group(self, group: int, left: int) -> None:
        self.groups[group:] = [left, *self.groups[group + 1 :]]

    def set_bin(
        self, bin: int, left: int, *, fixed: bool = False, jobs: Sequence[int] | None = None
    ) -> None:
        self.caps.set_bin(bin, left, fixed=fixed, jobs=jobs)

    def set_chain(
        self,
        chain: int,
        items: Iterable[tuple[int, int, int, bool, float, int]],
        *,
        floor: int | None = None,
        bill: tuple[float, ...] = (0,) * 8,
    ) -> None:
        self.caps.set_chain(chain, items, floor=floor, bill=bill)

    def set_in_order(self, on: bool) -> None:
        self.in_order = on

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
        max_user_partition: int = 0,
        max_array: int = -1,
        one_per_unit: bool = False,
        min_age: int = 0,
        busy_first: bool = False,
        partition_depth: int = 0,
        tier_bits: int = 0,
        keep: int = 0,
    ) -> Plan:
        old, self.planned, self.strict, self.fresh = self.planned, [], [], []
        self.kept, self.lost, self.remade = {}, {}, []
        self.replans, self.closed = 0, False
        self.book = None
        quick = keep == _core.STAND
        if plan_jobs or quick:
            chosen = options(
                quick,
                plan_jobs,
                step=resolution,
                window=window,
                min_priority=min_priority,
                max_user=max_user,
                max_partition=max_partition,
                max_pair=max_user_partition,
                max_array=max_array,
                per_unit=one_per_unit,
                min_age=min_age,
                busy_first=busy_first,
                tier_bits=tier_bits,
            )
            self.book = Book(self.nodes, list(self.held.values()), now, chosen, self)
            if keep:
                self.keep(old, self.book)
        for held in self.held.values():
            held.since = 0
        self.caps.ahead = Counter()
        headed: set[tuple[int, int]] = set()
        starts: list[Start] = []
        changed: list[tuple[int, int]] = []
        depths: Counter[int] = Counter()
        tested, more = 0, False
        self.order = sorted(self.queue.values(), key=lambda j: (-j.priority, j.order, j.key))
        for place, job in enumerate(self.order):
            partition = self.requests[job.req].partition
            if not quick or job.held not in (0, ASIDE):
                job.start = 0
            if job.held:
                verdict = _core.HELD
                if job.held == ASIDE:
                    self.stay(job)
            elif job.ready > now:
                verdict = _core.BEGIN
            elif any(g >= 0 and self.groups[g] <= 0 for g in (job.group, job.unit)):
                verdict = _core.GROUP
            elif self.caps.before(job) >= 0:
                verdict = self.over(job, self.caps.before(job), changed)
            elif (max_test and tested >= max_test) or (
                partition_depth and depths[partition] >= partition_depth
            ):
                verdict = _core.UNTESTED
                self.stay(job)
            elif self.in_order and self.group_of(job) in headed:
                tested += 1
                depths[partition] += 1
                verdict = _core.PRIORITY
                if not self.possible(job.req):
                    verdict = _core.NODES_DOWN if self.ever(job.req) else _core.NEVER
            else:
                tested += 1
                depths[partition] += 1
                resv = self.requests[job.req].reservation
                end = self.ends_by(resv, now, now + job.limit if job.limit else FOREVER)
                rows = None if self.closed else self.now_for(job, now, end, keep)
                verdict = _core.STARTED
                if rows is None:
                    hold = job.key in self.kept and self.stays_put(job, now, keep)
                    if job.key in self.kept and quick and not self.closed:
                        self.lay_again(job)
                    verdict = self.judge(job, now, headed, hold=hold)
                    rows = self.found
                if verdict == _core.STARTED:
                    assert rows is not None
                    over = self.caps.after(job, rows, self.requests[job.req].gpu_milli)
                    if over >= 0 and (other := self.elsewhere(job, rows, over, now, end)):
                        rows, over = other, -1
                    if over >= 0:
                        verdict = self.over(job, over, changed)
                if verdict == _core.STARTED:
                    if max_starts and len(starts) >= max_starts:
                        more = True
                        if quick and job.key in self.kept:
                            self.lay_again(job)
                        for rest in self.order[place:]:
                            self.stay(rest)
                        break
                    assert rows is not None
                    starts.append(self.begin(job, rows, end))
            if verdict != job.verdict:
                job.verdict = verdict
                changed.append((job.key, verdict))
        self.starts = starts
        made = self.fresh if self.book is not None else list(self.planned)
        return Plan(starts, made, changed, tested, 0, more)

    def elsewhere(
        self, job: Job, rows: Sequence[Row], over: int, now: int, end: int
    ) -> tuple[Row, ...] | None:
        """Another place for a job whose place has more nodes than a bin has left: one on the nodes
        that the bin's jobs are on already, and as many of the others in its place as are left."""
        want, on = self.requests[job.req], self.caps.bins[over].jobs
        if on is None:
            return None
        there = {i for i in range(len(self.nodes)) if on[i] > 0}
        if not any(self.eligible(one, i) for one, _ in self.by_features(want) for i in there):
            return None
        spare = next(item.spare for item in self.caps.chains[job.chain].items if item.bin == over)
        left = max(self.caps.bins[over].left + spare, 0)
        self.only = there | set([row[0] for row in rows if row[0] not in there][:left])
        try:
            found = self.find(want, self.live(), now, end, span=self.span(job, now))
        finally:
            self.only = None
        if found is None or self.caps.after(job, found, want.gpu_milli) >= 0:
            return None
        return found

    @staticmethod
    def over(job: Job, bin: int, changed: list[tuple[int, int]]) -> int:
        """A job is under a limit that leaves it too little: which one is news, too."""
        job.start = 0
        if (job.verdict, job.bin) != (_core.LIMIT, bin):
            changed.append((job.key, _core.LIMIT))
        job.verdict, job.bin = _core.LIMIT, bin
        return _core.LIMIT

    def unsure(self, want: Request) -> bool:
        """Whether a promise knows only by number what its job will need."""
        return self.wanted(want) or want.lot >= 0

    def stays_put(self, job: Job, now: int, keep: int) -> bool:
        return keep == _core.HOLD_STILL and self.kept[job.key].at > now

    def now_for(self, job: Job, now: int, end: int, keep: int) -> tuple[Row, ...] | None:
        """Where it can start now; its own reservation is not in its way, and is lifted."""
        promise = self.kept.get(job.key)
        if promise is not None:
            if self.stays_put(job, now, keep):
                return None
            assert self.book is not None
            self.book.uses = [use for use in self.book.uses if use.key != job.key]
        want, span = self.requests[job.req], self.span(job, now)
        rows = self.find(want, self.live(), now, end, span=span)
        due = promise is not None and keep == _core.STAND and promise.at == now
        if rows is None and promise is not None and due and not self.unsure(want):
            return promise.placement.nodes
        return rows

    def lay_again(self, job: Job) -> None:
        assert self.book is not None
        if not any(use.key == job.key for use in self.book.uses):
            self.lay(self.book, self.kept[job.key])

    def begin(self, job: Job, rows: tuple[Row, ...], end: int) -> Start:
        milli = self.requests[job.req].gpu_milli
        resv = self.requests[job.req].reservation
        owner = self.requests[job.req].owner
        held = Held(list(rows), end, milli, len(self.planned), resv, owner)
        chosen = self.laid if self.laid_for == rows else {}
        want = self.requests[job.req]
        held.extra, held.caps, held.lot = want.extra, want.cpu_caps, want.lot
        self.choose_slots(held)
        self.held[job.key] = held
        self.begin_cores(held, chosen)
        if self.book is not None:
            book, partition = self.book, self.requests[job.req].partition
            for node, cpus, _, mem, gpus in rows:
                taken = book.cpus(cpus, owner)
                book.take(node, book.now, book.ends(end), taken, mem, gpus, False, resv)
                book.uses[-1].extra = want.counted(cpus)
                book.uses[-1].milli, book.uses[-1].lot = milli, want.lot
                if partition in book.skies and not self.confined(resv):
                    slots = -(-min(end - book.now, YEAR) // book.slot)
                    book.sink(partition, 0, slots, gpus.bit_count(), cpus)
        del self.queue[job.key]
        for group in (job.group, job.unit):
            if group >= 0:
                self.groups[group] -= 1
        self.caps.take(job, rows, milli)
        return Start(job.key, Placement(rows, milli))

    def keep(self, old: list[Reservation], book: Book) -> None:
        """Lay in the reservations of the last pass that still hold."""
        for promise in old:
            job = self.queue.get(promise.key)
            if job is None or job.req != self.reqs.get(promise.key):
                continue
            if promise.until != self.span(job, promise.at)[1]:
                continue
            if book.options.quick:
                standing = self.stand(job, promise, book.now)
                if standing is None:
                    continue
                promise = standing
            elif promise.at < book.now:
                continue
            resv = self.requests[job.req].reservation
            holds = True
            for node, cpus, _, mem, gpus in promise.placement.nodes:
                want = self.requests[job.req]
                there = book.window(node, promise.at, promise.until, resv, want)
                free = self.share_pool(want, node, there)
                if not there.usable or there.cpus < cpus or there.mem < mem or gpus & ~free:
                    holds = False
                if (want.alone or want.owner >= 0) and there.jobs:
                    holds = False
                if not there.counts(want.counted(cpus)):
                    holds = False
            if holds:
                self.kept[job.key] = promise
                self.lay(book, promise)
            elif book.options.quick:
                self.another(job, promise, book)

    def plan(self, job: Job, want: Request, book: Book, hold: bool, first: bool) -> bool:
        """When it will start, kept for it; whether that is now, with the answer in self.found."""
        if book.options.quick:
            return self.again(job, want, book, first)
        duration = job.limit or YEAR
        if not hold and not self.caps.may_wait(job):
            job.start = 0
            return False
        if not hold and (book.exact >= book.options.exact or not self.may_reserve(job, book)):
            if self.confined(want.reservation):
                job.start = self.opens(want.reservation, book.now)
            elif want.gpu_milli:
                job.start = 0
            else:
                job.start = book.lay(want, duration)
            return False
        book.exact += 1
        last = book.now + (max(book.window_s, 2 * YEAR) if first else book.window_s)
        promise = self.kept.get(job.key)
        if not hold and self.unsure(want):
            # Whether its cores are there was not known when that was promised.
            promise = None
        if promise is not None:
            last = min(last, promise.at - 1)
        found = None if hold else self.search(job, want, book, last)
        if found is not None:
            at, rows = found
            placement = Placement(rows, want.gpu_milli)
            promise = Reservation(job.key, *self.span(job, at), placement)
        if promise is None:
            return False
        job.start = promise.at
        if promise.at == book.now:
            self.found = promise.placement.nodes
            return True
        self.promised(job, promise)
        if not hold:
            self.lay(book, promise)
        return False

    def group_of(self, job: Job) -> tuple[int, int]:
        """Among whom a job may be the first: jobs that wait for their reservation do not stand
        before those that wait for a partition."""
        want = self.requests[job.req]
        return (1, want.reservation) if self.confined(want.reservation) else (0, want.partition)

    def judge(self, job: Job, now: int, headed: set[tuple[int, int]], *, hold: bool = False) -> int:
        want = self.requests[job.req]
        wait = self.waits(want.reservation, now)
        if not self.possible(job.req):
            if wait:
                return _core.RESERVATION
            return _core.NODES_DOWN if self.ever(job.req) else _core.NEVER
        group = self.group_of(job)
        first = group not in headed
        if self.book is not None and self.plan(job, want, self.book, hold, first):
            return _core.STARTED
        alone = self.find(want, self.live(), span=self.span(job, now))
        free = self.confined(want.reservation) or self.find(want, self.live(), windows=False)
        if alone is not None:
            verdict = _core.PRIORITY
        elif free is None or self.confined(want.reservation):
            verdict = _core.BEHIND
        else:
            verdict = _core.WINDOW
        if first:
            verdict = verdict if verdict == _core.WINDOW else _core.RESOURCES
            if self.book is None and not self.caps.may_wait(job):
                return _core.RESERVATION if wait else verdict
            headed.add(group)
            if self.book is None and len(self.planned) < PLANNED:
                self.reserve(job, want, now)
        return _core.RESERVATION if wait else verdict

    def reserve(self, job: Job, want: Request, now: int) -> None:
        """The earliest time at which something ends and the job fits for its whole duration."""
        times = {self.end_of(held, now) for held in self.held.values()} | self.boundaries()
        times |= {self.back_at(held, i, now) for held in self.held.values() for i in held.late}
        times |= {planned.until for planned in self.planned}
        for time in sorted(t for t in times if t > now):
            span = self.span(job, time)
            over = [
                i
                for i, other in enumerate(self.planned)
                if other.at < span[1] and time < other.until
            ]
            rows = self.find(want, self.at(time, now, over), span=span)
            if rows is not None:
                job.start = time
                placement = Placement(rows, want.gpu_milli)
                self.planned.append(Reservation(job.key, *span, placement))
                self.reqs[job.key] = job.req
                self.caps.plan(job)
                exact = want.one_island or want.gpu_milli > 0
                typed = want.gpu_type >= 0 or len(want.gpu_kinds) > 0
                self.strict.append(
                    {
                        row[0]
                        for row in rows
                        if exact
                        or self.in_parts(row[0])
                        or (typed and len(self.nodes[row[0]].types) > 1)
                    }
                )
                return
