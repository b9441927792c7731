"""Which jobs may have a reservation, and passes beside the reservations of a plan."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from gsched import _core
from gsched._core import Reservation, Start
from gsched._reference.limits import Limits
from gsched._reference.parts import Held, Job, Request, Row
from gsched._reference.plan import Book, Options
from gsched._reference.preempt import Preempt
from gsched._reference.state import YEAR

#: reservations made in a quick pass
REPLANS = 128
#: `held` of a job that a pass does not look at, but whose reservation stays
ASIDE = 2


class Quick(Preempt):
    """Core's passes are in core.py."""

    def __init__(self, n_nodes: int) -> None:
        super().__init__(n_nodes)
        #: reservations made by the last pass
        self.fresh: list[Reservation] = []
        #: those that no longer held, by job
        self.lost: dict[int, Reservation] = {}
        #: those that a pass made in their stead
        self.remade: list[Reservation] = []
        self.replans, self.closed = 0, False
        self.caps = Limits()
        self.starts: list[Start] = []
        #: the queue as the last pass had it
        self.order: list[Job] = []
        self.found: tuple[Row, ...] | None = None

    # --- the options

    def labels(self, job: Job) -> list[tuple[str, int]]:
        """What a reservation of a job counts against."""
        partition = self.requests[job.req].partition
        found = [("all", 0), ("partition", partition)]
        if job.user >= 0:
            found += [("user", job.user), (f"user in {partition}", job.user)]
        if job.array >= 0:
            found.append(("array", job.array))
        if job.unit >= 0:
            found.append(("unit", job.unit))
        if job.group >= 0:
            found.append(("group", job.group))
        return found

    def counts(self, book: Book, job: Job, label: str) -> int:
        return next((book.tally[row] for row in self.labels(job) if row[0] == label), -1)

    def may_reserve(self, job: Job, book: Book) -> bool:
        o = book.options
        priority = job.priority & (1 << o.tier_bits) - 1 if o.tier_bits else job.priority
        if priority < o.min_priority or (o.min_age and book.now - job.since < o.min_age):
            return False
        bounds = [
            ("partition", o.max_partition or YEAR),
            ("user", o.max_user or YEAR),
            (f"user in {self.requests[job.req].partition}", o.max_pair or YEAR),
            ("array", YEAR if o.max_array < 0 else o.max_array),
        ]
        if o.per_unit and job.unit >= 0:
            bounds.append(("unit", self.groups[job.unit]))
        if job.group >= 0:
            bounds.append(("group", self.groups[job.group]))
        return all(self.counts(book, job, label) < bound for label, bound in bounds)

    def promised(self, job: Job, promise: Reservation, *, fresh: bool = True) -> None:
        """A job has its reservation."""
        assert self.book is not None
        self.planned.append(promise)
        self.reqs[job.key] = job.req
        job.start = promise.at
        self.caps.plan(job)
        for label in self.labels(job):
            self.book.tally[label] += 1
        if fresh:
            self.fresh.append(promise)

    # --- what becomes of the last plan

    def stand(self, job: Job, promise: Reservation, now: int) -> Reservation | None:
        """The reservation of a job that still wants it; it begins now if it should have begun."""
        if job.held not in (0, ASIDE) or job.ready > max(promise.at, now):
            return None
        if any(group >= 0 and self.groups[group] <= 0 for group in (job.group, job.unit)):
            return None
        if self.caps.before(job) >= 0:
            return None
        if promise.at < now:
            return promise._replace(at=now, until=self.span(job, now)[1])
        return promise

    def stay(self, job: Job) -> None:
        """The pass does not look at a job: what it has stays."""
        promise = self.kept.get(job.key) or self.lost.get(job.key)
        if promise is not None and self.book is not None and self.book.options.quick:
            self.promised(job, promise, fresh=promise in self.remade)

    def another(self, job: Job, promise: Reservation, book: Book) -> None:
        """A promise that does not hold any more: another for the job, before those behind it."""
        if self.replans >= REPLANS:
            self.closed = True
            self.lost[job.key] = promise
            return
        self.replans += 1
        want = self.requests[job.req]
        found = self.search(job, want, book, book.now + max(book.window_s, 2 * YEAR))
        if found is None:
            return
        at, rows = found
        until = self.span(job, at)[1]
        promise = Reservation(job.key, at, until, _core.Placement(rows, want.gpu_milli))
        self.kept[job.key] = promise
        self.remade.append(promise)
        self.lay(book, promise)

    def again(self, job: Job, want: Request, book: Book, first: bool) -> bool:
        """The reservation of a job that does not start; whether it can now, as self.found."""
        promise = self.kept.get(job.key)
        if promise is not None:
            self.promised(job, promise, fresh=promise in self.remade)
            return False
        if job.key in self.lost:
            self.stay(job)
            return False
        if not first or self.replans >= REPLANS or not self.may_reserve(job, book):
            return False
        if not self.caps.may_wait(job):
            return False
        self.replans += 1
        job.start = 0
        found = self.search(
            job, want, book, book.now + (max(book.window_s, 2 * YEAR) if first else book.window_s)
        )
        if found is None:
            return False
        at, rows = found
        if at == book.now:
            self.found = rows
            job.start = at
            return True
        promise = Reservation(job.key, *self.span(job, at), _core.Placement(rows, want.gpu_milli))
        self.promised(job, promise)
        self.lay(book, promise)
        return False

    def search(
        self, job: Job, want: Request, book: Book, last: int
    ) -> tuple[int, tuple[Row, ...]] | None:
        """The first time until `last` at which it has room for as long as it lasts."""
        times = sorted({book.now} | {t for t in book.events() if book.now < t <= last})
        for time in times:
            span, resv = self.span(job, time), want.reservation
            free = [book.window(i, *span, resv, want) for i in range(len(self.nodes))]
            if time == book.now:
                free = self.known(free)
            rows = self.find(want, free, plain=True)
            if rows is not None:
                return time, rows
        return None

    def span(self, job: Job, at: int) -> tuple[int, int]:
        """The time of a job that starts then; one without a limit is taken to last a year."""
        resv = self.requests[job.req].reservation
        return at, self.ends_by(resv, at, at + (job.limit or YEAR))

    def lay(self, book: Book, promise: Reservation) -> None:
        want = self.requests[self.queue[promise.key].req]
        for node, cpus, _, mem, gpus in promise.placement.nodes:
            taken = book.cpus(cpus, want.owner)
            book.take(
                *(node, promise.at, promise.until, taken, mem, gpus, True),
                *(want.reservation, promise.key),
            )
            book.uses[-1].extra = want.counted(cpus)
            book.uses[-1].milli, book.uses[-1].lot = want.gpu_milli, want.lot

    # --- plans on a copy

    def copy(self) -> Quick:
        return copy.deepcopy(self)

    def adopt_plan(self, plan: Quick) -> int:
        assert plan.book is not None
        promises = {promise.key: promise for promise in plan.planned}
        for start in plan.starts:
            held: Held = plan.held[start.key]
            length = held.end - plan.book.now if held.end < YEAR * YEAR else YEAR
            until = self.ends_by(held.resv, plan.book.now, plan.book.now + length)
            promises[start.key] = Reservation(start.key, plan.book.now, until, start.placement)
        self.planned, self.book = [], None
        for job in self.queue.values():
            job.start = 0
        for theirs in plan.order:
            mine = self.queue.get(theirs.key)
            if mine is None or (mine.req, mine.limit) != (theirs.req, theirs.limit):
                continue
            promise = promises.get(theirs.key)
            mine.start = theirs.start if promise is None else promise.at
            if promise is not None:
                self.planned.append(promise)
                self.reqs[mine.key] = mine.req
        return len(self.planned)


def options(quick: bool, plan_jobs: int, **given: Any) -> Options:
    """What the arguments of schedule() say."""
    low = given.pop("min_priority")
    return replace(
        Options(exact=plan_jobs, quick=quick, min_priority=-YEAR * YEAR if low is None else low),
        **given,
    )
