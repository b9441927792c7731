"""Priorities of waiting jobs: found when a job comes or changes, and anew every PriorityCalcPeriod.

`Job.priority` is what the record says: the priority when it was last written. What it has become
since is no fact: it stands in the queue's columns, and in the view for whoever reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.cluster.ranks import Sweep
from gsched.ledger.outcome import Outcome
from gsched.model import FairShares, Job, JobState
from gsched.policy import fairshare, limits, multifactor
from gsched.policy.multifactor import Columns, Multifactor

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger
    from gsched.policy.book import Book

FAIR = ("rank", b"fair")


class Ranking:
    """How the jobs of one ledger are ranked."""

    def __init__(self, led: Ledger) -> None:
        self._led = led
        #: fair share by association, as of `at`
        self.fair: dict[int, float] = {}
        #: how all associations stood then
        self.standing: dict[int, fairshare.Standing] = {}
        self.at = 0.0
        #: when all are recalculated next
        self.due = 0.0
        #: jobs of which the view tells another priority than their records
        self.told: set[int] = set()
        #: below which a priority that is found does not fall, by partition
        self.floor: dict[str, int] = {}
        #: jobs that were queued since the last command
        self._queued: set[int] = set()
        #: version of the book whose factors count
        self._version = -1
        self._factors: Multifactor | None = None
        self._stamp: object = None

    @property
    def factors(self) -> Multifactor:
        """The factors under the configuration and the book as they are."""
        if self._factors is None:
            led = self._led
            self._factors = Multifactor(led.config, led.book, multifactor.lineup(led.config))
        return self._factors

    @property
    def on(self) -> bool:
        """Whether priorities are computed (priority/multifactor)."""
        return self._led.config.priority_type == multifactor.MULTIFACTOR

    def rank(self, job: Job, partition: str) -> tuple[Columns, int]:
        """What a job's priority in a partition is made of, and what it is now."""
        factors = self.factors
        self._queued.add(job.id)
        columns = factors.columns(job, partition)
        now = self._led.meta.last_now
        priority = multifactor.priority(columns, factors.weights, now, self.fair)
        if columns.fixed < 0:
            priority = max(priority, self.floor.get(partition, 0))
        return columns, priority

    def of_running(self, now: float) -> dict[int, int]:
        """The priorities of running and suspended jobs as they are now (CALCULATE_RUNNING). Cost:
        all jobs, some us for each of these."""
        factors, found = self.factors, {}
        live = (JobState.RUNNING, JobState.SUSPENDED)
        for job in self._led.jobs.values():
            if job.state in live and job.spec.priority is None:
                columns = factors.columns(job, job.partition)
                found[job.id] = multifactor.priority(columns, factors.weights, now, self.fair)
        return found

    def touch(self, job_id: int) -> None:
        """What the view tells of a job is to be looked at."""
        self._queued.add(job_id)

    def fresh(self, job: Job) -> int:
        """The priority of a job as it is now, in the first of its partitions. Cost: some us."""
        names = job.spec.partitions or (job.partition,)
        return self.rank(job, names[0])[1]

    def flush(self, out: Outcome) -> None:
        """What a command has queued: the view tells its priority where the record does not."""
        led = self._led
        for job_id in self._queued:
            job = led.jobs.get(job_id)
            if job is not None and job.state == JobState.PENDING and led.cluster.queued(job_id):
                _tell(led, job, led.cluster.priority(job_id), out)
            elif job_id in self.told:
                self.told.discard(job_id)
                out.ranks[job_id] = 0
        self._queued.clear()

    def forget(self) -> None:
        """The configuration is another."""
        self._factors = None
        self.due = 0.0

    def changed(self) -> bool:
        """Whether accounts, users, associations or QOS have changed what priorities are made of
        (besides usage and shares) since this was last asked."""
        book = self._led.book
        if book.version == self._version:
            return False
        self._version = book.version
        stamp = _stamp(book)
        if stamp == self._stamp:
            return False
        self._stamp, self._factors = stamp, None
        return True


def _stamp(book: Book) -> object:
    """What of the book goes into priorities besides usage and shares."""
    return (
        tuple((qos.name, qos.priority) for qos in book.qos.values()),
        tuple((one.id, one.priority) for one in book.assocs.values() if one.priority is not None),
    )


def shares(led: Ledger, now: float) -> dict[int, fairshare.Standing]:
    """How all associations stand. Cost: associations and running jobs, ~2 us each."""
    return fairshare.standings(led.config, led.book, led.meter.billed(now))


def set_priority(led: Ledger, job: Job) -> None:
    """The record of a job that waits gets the priority that it has now; whoever calls this writes
    the record. Nothing with priority/basic. Cost: some us."""
    if job.held:
        job.priority = 0
    elif led.ranking.on:
        job.priority = led.ranking.fresh(job)


def _tell(led: Ledger, job: Job, priority: int, out: Outcome) -> None:
    """The view tells the priority in force, where the record says another."""
    told = led.ranking.told
    if priority != job.priority:
        told.add(job.id)
        out.ranks[job.id] = priority
    elif job.id in told:
        told.discard(job.id)
        out.ranks[job.id] = 0


def starts(led: Ledger, job: Job) -> None:
    """A job that waits is about to start: its record keeps the priority that it starts with."""
    job.priority = live(led, job)
    led.ranking.touch(job.id)


def recalculate(led: Ledger, now: float, out: Outcome) -> None:
    """All priorities as of now. Cost: some ns for each row of the queue, ~1 us for each priority
    that is another, and what fair shares cost."""
    ranking = led.ranking
    ranking.at, ranking.due = now, now + led.config.priority_calc_period
    if not ranking.on:
        return
    standing = ranking.standing = shares(led, now)
    ranking.fair = {
        assoc_id: one.factor for assoc_id, one in standing.items() if not one.assoc.is_account
    }
    if ranking.changed():
        # What they are made of is another.
        rising = "INCR_ONLY" in ranking.factors.weights.flags
        for job in led.jobs.values():
            if led.cluster.queued(job.id):
                ranking.floor = led.cluster.priorities(job.id) if rising else {}
                led.cluster.queue_job(job)
        ranking.floor = {}
    weights = ranking.factors.weights
    found = led.cluster.sweep(
        Sweep(
            now,
            weights.max_age,
            weights.age,
            weights.fair_share,
            multifactor.MOST,
            "INCR_ONLY" in weights.flags,
            ranking.fair,
        )
    )
    if "CALCULATE_RUNNING" in weights.flags:
        found |= ranking.of_running(now)
        over = [one for one in ranking.told if one not in led.jobs or led.jobs[one].finished]
        out.ranks |= dict.fromkeys(over, 0)
        ranking.told.difference_update(over)
    jobs = led.jobs
    same = [job_id for job_id, priority in found.items() if jobs[job_id].priority == priority]
    out.ranks |= found
    for job_id in same:
        del out.ranks[job_id]
        _tell(led, jobs[job_id], found[job_id], out)
    ranking.told |= found.keys() - set(same)
    out.view[FAIR] = FairShares(now, ranking.fair)
    if found or any(limits.WAITS_FOR_SHARE in qos.flags for qos in led.book.qos.values()):
        out.schedule = True


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Recalculates when it is time to."""
    if now >= led.ranking.due:
        recalculate(led, now, out)


def live(led: Ledger, job: Job) -> int:
    """The priority of a job as it counts now."""
    if job.state == JobState.PENDING and led.cluster.queued(job.id):
        return led.cluster.priority(job.id)
    return job.priority
