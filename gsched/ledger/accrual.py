"""Which waiting jobs grow older where their number is limited (GrpJobsAccrue, MaxJobsAccrue...).

A job that may start takes a place as soon as there is one, the oldest first, and keeps it while it
waits: its age counts since it could start or, where it had to wait for the place, since it got it.
Held jobs and those that wait for others have none. Of an array as many tasks as there are places
leave the record. Without such limits nothing is done or remembered here.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from gsched.ledger import arrays
from gsched.ledger.outcome import Outcome
from gsched.model import Hold, Job, JobState
from gsched.policy import accrue, multifactor
from gsched.policy.accrue import Bounds
from gsched.policy.enforce import enforced
from gsched.policy.limits import Scope
from gsched.taskset import TaskSet

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: `Job.accrue_time` of a job that waits for a place, and of one that never had to
WAITS, AT_ONCE = 0, -1

#: association, QOS, user, account: whose jobs come to the same places
Place = tuple[int, str, str, str]


class Accrual:
    """The places of one ledger."""

    def __init__(self, led: Ledger) -> None:
        self._led = led
        #: whether there are limits that hold
        self.on = False
        #: the configuration may be another
        self.stale = True
        #: jobs that grow older: where, and how many (tasks of an array)
        self._ages: dict[int, tuple[Place, int]] = {}
        self._used: dict[Scope, int] = {}
        #: jobs that wait for a place: where; and by that, oldest first (some have left)
        self._waits: dict[int, Place] = {}
        self._lines: dict[Place, list[int]] = {}
        #: those of them that have come with this command; lines by what bounds them
        self._new: set[int] = set()
        self._bound: dict[Scope, set[Place]] = {}
        #: (when, job) of jobs that may start later
        self._later: list[tuple[int, int]] = []
        self._known: dict[Place, Bounds] = {}

    def flush(self, now: float, out: Outcome) -> None:
        """Takes in what a command has changed, and gives places away. Cost: nothing without
        limits; a few us for each job touched, for each place given, and for each line of jobs that
        one that has come free might be for."""
        led = self._led
        if self.stale or led.limits.outdated:
            self._begin(now, out)
        if not self.on:
            return
        touched = set(led.limits.touched)
        while self._later and self._later[0][0] <= led.meta.last_now:
            touched.add(heapq.heappop(self._later)[1])
        free: set[Scope] = set()
        for job_id in touched:
            free |= self._take_in(job_id)
        lines = {place for scope in free for place in self._bound.get(scope, ())}
        lines.update(self._waits[job_id] for job_id in self._new)
        self._give(lines, now, out)

    # ---- what is there ----------------------------------------------------------------------

    def _begin(self, now: float, out: Outcome) -> None:
        """Limits have changed: all jobs are looked at anew."""
        led = self._led
        self.stale = False
        self._known.clear()
        before, self.on = self.on, self._wanted()
        self._ages, self._used, self._waits, self._lines, self._later = {}, {}, {}, {}, []
        self._new, self._bound = set(), {}
        if not (before or self.on):
            return
        for job in led.jobs.values():
            if job.state != JobState.PENDING:
                continue
            if self.on:
                # Who grows older goes on doing so, whatever the limit is now.
                if job.accrue_time != WAITS and self._could(job):
                    self._count(job, self._place(job))
                else:
                    self._take_in(job.id)
            elif job.accrue_time == WAITS:
                self._set(job, int(now), out)
        self._give(set(self._lines), now, out)

    def _wanted(self) -> bool:
        config = self._led.config
        return (
            config.priority_type == multifactor.MULTIFACTOR
            and "ACCRUE_ALWAYS" not in config.priority_flags
            and "limits" in enforced(config.accounting_storage_enforce)
            and accrue.limited(self._led.book)
        )

    def _place(self, job: Job) -> Place:
        return job.assoc_id, job.spec.qos, job.user, job.spec.account

    def _bounds(self, place: Place) -> Bounds:
        found = self._known.get(place)
        if found is None:
            book = self._led.book
            assoc_id, qos, user, account = place
            found = accrue.bounds(book, book.assocs.get(assoc_id), book.qos.get(qos), user, account)
            self._known[place] = found
        return found

    def _could(self, job: Job) -> bool:
        """Whether a job may start, so that it would grow older."""
        return (
            job.state == JobState.PENDING
            and job.held == Hold.NONE
            and not job.deps
            and 0 < job.eligible_time <= self._led.meta.last_now
        )

    def _take_in(self, job_id: int) -> set[Scope]:
        """A job has changed. Where a place has come free."""
        job = self._led.jobs.get(job_id)
        could = job is not None and self._could(job)
        place = self._place(job) if job is not None and could else None
        had = self._ages.get(job_id)
        left: set[Scope] = set()
        if had is not None and (place != had[0] or had[1] != _tasks(job)):
            self._drop(job_id)
            left.update(self._bounds(had[0]).scopes)
            if job is not None and place == had[0]:
                # Tasks of an array have left it: the others keep theirs.
                self._count(job, place)
        if job is None or place is None:
            self._waits.pop(job_id, None)
            self._new.discard(job_id)
            if job is not None and job.state == JobState.PENDING and not job.held and not job.deps:
                if job.eligible_time > self._led.meta.last_now:
                    heapq.heappush(self._later, (job.eligible_time, job_id))
        elif job_id not in self._ages and self._waits.get(job_id) != place:
            self._waits[job_id] = place
            if job.accrue_time != WAITS:
                self._new.add(job_id)
            if place not in self._lines:
                self._lines[place] = []
                for scope, _ in self._bounds(place).most:
                    self._bound.setdefault(scope, set()).add(place)
            heapq.heappush(self._lines[place], job_id)
        return left

    def _count(self, job: Job, place: Place) -> None:
        tasks = _tasks(job)
        self._ages[job.id] = place, tasks
        for scope in self._bounds(place).scopes:
            self._used[scope] = self._used.get(scope, 0) + tasks

    def _drop(self, job_id: int) -> None:
        place, tasks = self._ages.pop(job_id)
        for scope in self._bounds(place).scopes:
            left = self._used.get(scope, 0) - tasks
            if left > 0:
                self._used[scope] = left
            else:
                self._used.pop(scope, None)

    def room(self, place: Place) -> int:
        """How many more jobs may grow older there; negative: more do than may."""
        most = self._bounds(place).most
        return min((limit - self._used.get(scope, 0) for scope, limit in most), default=1 << 30)

    # ---- who gets a place --------------------------------------------------------------------

    def _give(self, lines: set[Place], now: float, out: Outcome) -> None:
        """The oldest of those that wait in these lines take what is free."""
        heads = [(head, place) for place in lines if (head := self._head(place))]
        heapq.heapify(heads)
        while heads:
            job_id, place = heapq.heappop(heads)
            if self._enter(self._led.jobs[job_id], place, now, out):
                head = self._head(place)
                if head:
                    heapq.heappush(heads, (head, place))
        for job_id in self._new:
            self._set(self._led.jobs[job_id], WAITS, out)
        self._new.clear()

    def _head(self, place: Place) -> int:
        """The oldest job that waits there; 0: none does."""
        line = self._lines[place]
        while line and self._waits.get(line[0]) != place:
            heapq.heappop(line)
        if line:
            return line[0]
        del self._lines[place]
        for scope, _ in self._bounds(place).most:
            self._bound[scope].discard(place)
        return 0

    def _enter(self, job: Job, place: Place, now: float, out: Outcome) -> bool:
        """A job, or as many tasks of it as there are places, grows older from now on. Whether all
        of it does."""
        room, tasks = self.room(place), _tasks(job)
        if room < tasks:
            for task in list(TaskSet.parse(job.array_pending))[:room] if room > 0 else ():
                single = arrays.split(self._led, job, task, now, out)
                self._led.cluster.queue_job(single)
                self._start(single, place, now, out)
            if room > 0:
                self._led.cluster.queue_job(job)
            return False
        del self._waits[job.id]
        self._new.discard(job.id)
        self._start(job, place, now, out)
        return True

    def _start(self, job: Job, place: Place, now: float, out: Outcome) -> None:
        self._count(job, place)
        if job.accrue_time == WAITS:
            self._set(job, int(now), out)
        else:
            # It need not wait: its age counts from when it may start.
            job.accrue_time = AT_ONCE

    def _set(self, job: Job, since: int, out: Outcome) -> None:
        job.accrue_time = since
        self._led.put_job(job, out)
        self._led.cluster.queue_job(job)

    # ---- tests ------------------------------------------------------------------------------

    def wrong(self) -> str:
        """What is remembered here that the jobs do not say; "" nothing. Cost: all jobs."""
        if not self.on:
            lost = [job.id for job in self._led.jobs.values() if job.accrue_time == WAITS]
            waiting = [one for one in lost if self._led.jobs[one].state == JobState.PENDING]
            return f"jobs {waiting} wait to grow older without a limit" if waiting else ""
        could = {job.id: job for job in self._led.jobs.values() if self._could(job)}
        ages = {
            job.id: (self._place(job), _tasks(job))
            for job in could.values()
            if job.accrue_time != WAITS
        }
        if ages != self._ages:
            return f"jobs {sorted(ages.keys() ^ self._ages.keys())} grow older, or do not"
        used: dict[Scope, int] = {}
        for place, tasks in ages.values():
            for scope in self._bounds(place).scopes:
                used[scope] = used.get(scope, 0) + tasks
        if used != self._used:
            return "the places of jobs that grow older are counted wrongly"
        idle = [job_id for job_id, place in self._waits.items() if self.room(place) > 0]
        return f"jobs {idle} wait for places that are free" if idle else ""


def _tasks(job: Job | None) -> int:
    return len(TaskSet.parse(job.array_pending)) if job is not None and job.array_pending else 1
