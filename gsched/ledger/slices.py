"""Jobs of a partition that hold the same CPUs take turns (PreemptMode=GANG, OverSubscribe=FORCE:n).

A row of them works at a time: jobs of which no two have a CPU in common. One that starts where
others work stands still at first. After SchedulerTimeSlice a new row is made of those that have
waited longest, and of all that fit beside them; what comes free meanwhile goes to them as well. A
job works on all of its nodes or on none. Nothing is lent: all of them stay where they are, in
memory. That a job waits, and since when, is recorded (`Job.sliced`); the rest follows.

Heterogeneous jobs take no part in it, as in Slurm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from gsched.config import Config
from gsched.ledger import expected, suspend
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def seconds(config: Config) -> int:
    """How long a turn lasts; 0: nobody takes turns."""
    gang = "GANG" in config.preempt_mode.upper().split(",")
    return config.scheduler_time_slice if gang else 0


def _counted(config: Config) -> bool:
    """Whether CPUs are as good as each other: a job is at home on none of them (CR_CPU without a
    task plugin that binds)."""
    binds = any(name.endswith(("affinity", "cgroup")) for name in config.task_plugin)
    return not binds and any(word.startswith("CR_CPU") for word in config.select_type_parameters)


def takes_turns(led: Ledger, job: Job) -> bool:
    """Whether a job that holds nodes shares its CPUs with others. Cost: constant."""
    return not job.het_job_id and led.cluster.shares(job.id)


class Row:
    """What the jobs of a partition that work have of nodes. Cost: the jobs on each node that is
    asked about, once."""

    def __init__(self, led: Ledger, partition: str, without: Collection[int] = ()) -> None:
        """`without`: jobs that are thought to stand still."""
        self._led = led
        self._partition = partition
        self._without = without
        self._counted = _counted(led.config)
        #: node -> CPU ids in use, or how many of how many
        self._ids: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def _look(self, name: str) -> None:
        led, ids, every, used = self._led, 0, 0, 0
        for job_id, index in led.parts.get(name, {}).items():
            job = led.jobs[job_id]
            if job.partition != self._partition or not takes_turns(led, job):
                continue
            part = job.alloc[index]
            every |= part.cpu_ids
            # One that was at work holds what it has until nothing of it is left there.
            over = job.finished and not job.sliced
            if job_id not in self._without and (job.state == JobState.RUNNING or over):
                ids |= part.cpu_ids
                used += part.cpus
        self._ids[name], self._left[name] = ids, every.bit_count() - used

    def fits(self, job: Job) -> bool:
        """Whether it could work beside them, on all of its nodes."""
        for part in job.unreleased:
            if part.node not in self._ids:
                self._look(part.node)
            if self._counted:
                if part.cpus > self._left[part.node]:
                    return False
            elif self._ids[part.node] & part.cpu_ids:
                return False
        return True

    def add(self, job: Job) -> None:
        """It works with them, after it was found to fit."""
        for part in job.unreleased:
            self._ids[part.node] |= part.cpu_ids
            self._left[part.node] -= part.cpus


# ---- who stands still, who goes on ---------------------------------------------------------------


def started(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """A job has started: where others work it waits for its turn. Cost: the jobs on its nodes."""
    if seconds(led.config) and takes_turns(led, job):
        if not Row(led, job.partition, {job.id}).fits(job):
            _stop(led, job, now, out)


def again(led: Ledger, job: Job, now: float, out: Outcome) -> bool:
    """Whether one that stood still for another reason may go on; else it waits for its turn from
    now on. Cost: the jobs on its nodes."""
    every = seconds(led.config)
    if not every or not takes_turns(led, job) or Row(led, job.partition).fits(job):
        return True
    job.sliced = max(1, int(now))
    led.sliced.add(job.id)
    led.slices.setdefault(job.partition, now + every)
    led.put_job(job, out)
    return False


def _stop(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    job.sliced = max(1, int(now))
    led.sliced.add(job.id)
    led.slices.setdefault(job.partition, now + seconds(led.config))
    suspend.stop(led, job, now, out)


def _go(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    forget(led, job)
    suspend.go(led, job, now, out)


def forget(led: Ledger, job: Job) -> None:
    """It does not wait for its turn any more."""
    job.sliced = 0
    led.sliced.discard(job.id)


def _order(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (job.sliced, job.id))


def settle(led: Ledger, names: Iterable[str], now: float, out: Outcome) -> None:
    """Something has come free on nodes: those that wait there go on where they fit, the one that
    has waited longest first. Cost: nothing while nobody waits; else jobs on their nodes."""
    if not led.sliced:
        return
    found: set[int] = set()
    for name in names:
        found.update(led.sliced.intersection(led.parts.get(name, ())))
    rows: dict[str, Row] = {}
    for job in _order(led.jobs[job_id] for job_id in found):
        row = rows.setdefault(job.partition, Row(led, job.partition))
        if row.fits(job):
            row.add(job)
            _go(led, job, now, out)


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Turns that are over. Cost: those that wait, and where a turn is over jobs on their nodes."""
    waiting = {led.jobs[job_id].partition for job_id in led.sliced}
    for name in led.slices.keys() - waiting:
        del led.slices[name]
    every = seconds(led.config)
    for name in sorted(waiting):
        if led.slices.setdefault(name, now + every) <= now:
            _turn(led, name, now, out)
            led.slices[name] = now + every
        out.wake(led.slices[name])


def _turn(led: Ledger, partition: str, now: float, out: Outcome) -> None:
    """Those that have waited longest work next, and all others that fit beside them."""
    every = (led.jobs[job_id] for job_id in led.sliced)
    waiting = _order(job for job in every if job.partition == partition)
    there = {part.node for job in waiting for part in job.unreleased}
    ids = {job_id for name in there for job_id in led.parts[name]}
    working = [
        job
        for job in (led.jobs[job_id] for job_id in ids)
        if job.partition == partition and takes_turns(led, job) and _may_stop(job)
    ]
    # Where CPUs are counted those stop first who have worked longest.
    working.sort(key=lambda job: (-job.suspend_time, job.start_time, job.id))
    row = Row(led, partition, {job.id for job in working})
    go, stop = [], []
    for job in (*waiting, *working):
        if row.fits(job):
            row.add(job)
            if job.sliced:
                go.append(job)
        elif not job.sliced:
            stop.append(job)
    for job in stop:
        _stop(led, job, now, out)
    for job in go:
        _go(led, job, now, out)


def _may_stop(job: Job) -> bool:
    """One that makes way has its time for that."""
    return job.state == JobState.RUNNING and job.way is None


# ---- what there is -------------------------------------------------------------------------------


def ahead(led: Ledger, job: Job) -> list[Job]:
    """Whose turn it is on the CPUs of a job that waits for its own. Cost: jobs on its nodes."""
    found: dict[int, Job] = {}
    counted = _counted(led.config)
    for part in job.unreleased:
        for job_id, index in led.parts[part.node].items():
            other = led.jobs[job_id]
            works = other.state == JobState.RUNNING and other.partition == job.partition
            if works and takes_turns(led, other):
                if counted or other.alloc[index].cpu_ids & part.cpu_ids:
                    found[job_id] = other
    return [found[job_id] for job_id in sorted(found)]


def load(led: Ledger) -> None:
    """Jobs have been restored: who waits does so from when he did, and turns begin anew."""
    led.sliced = {job.id for job in led.jobs.values() if job.sliced and not job.finished}
    expected.refresh(led, {part.node for one in led.sliced for part in led.jobs[one].alloc})


def configured(led: Ledger, now: float, out: Outcome) -> None:
    """The configuration is another: turns are taken from now on, or no more. Cost: jobs that hold
    nodes."""
    every = seconds(led.config)
    for job in _order(led.jobs[job_id] for job_id in led.sliced):
        if not every or not takes_turns(led, job):
            _go(led, job, now, out)
    if not every or not any(_shared(led.config)):
        return
    working = [
        led.jobs[job_id]
        for job_id in led.cluster.claims.holders()
        if _may_stop(led.jobs[job_id]) and takes_turns(led, led.jobs[job_id])
    ]
    rows: dict[str, Row] = {}
    ids = {job.id for job in working}
    for job in sorted(working, key=lambda one: (one.start_time, one.id)):
        row = rows.setdefault(job.partition, Row(led, job.partition, ids))
        if row.fits(job):
            row.add(job)
        else:
            _stop(led, job, now, out)
    settle(led, {part.node for one in led.sliced for part in led.jobs[one].alloc}, now, out)


def _shared(config: Config) -> Iterable[bool]:
    return (part.oversubscribe in ("FORCE", "YES") for part in config.partitions.values())
