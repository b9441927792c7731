"""Deadlines: a waiting job that can no longer be done in time ends, and so does a running one when
its deadline comes."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from gsched.ledger import jobs
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: Slurm's reason word
REASON = "DeadLine"


def due(job: Job) -> int:
    """When the job is ended for its deadline if nothing changes; 0 never."""
    deadline = job.spec.deadline
    if not deadline or job.finished:
        return 0
    if job.state == JobState.PENDING:
        return deadline - (job.spec.time_min or job.time_limit) + 1
    return deadline


def watch(led: Ledger, job: Job) -> None:
    """Remembers to look at the job when its deadline is due: after a change that may bring that
    forward (what puts it off is found out then)."""
    at = due(job)
    if at:
        heapq.heappush(led.deadlines, (at, job.id))


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Ends what is due. Cost: the entries whose time has come."""
    while led.deadlines and led.deadlines[0][0] <= now:
        job = led.jobs.get(heapq.heappop(led.deadlines)[1])
        if job is None or not due(job):
            continue
        if due(job) > now:
            watch(led, job)
            continue
        job.requeue_after = False
        jobs.end(led, job, JobState.DEADLINE, REASON, now, out, cause="timeout")
    if led.deadlines:
        out.wake(led.deadlines[0][0])
