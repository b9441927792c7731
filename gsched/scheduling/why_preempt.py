"""Verdicts about preemption: who makes way for a job, whom it would preempt, and whom not yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gsched.model import Job
from gsched.model.why import Cause, JobRef
from gsched.scheduling import preemption

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: jobs that are named
MOST = 8


def promised(led: Ledger, job: Job, ref: Callable[[Job], JobRef]) -> Cause:
    """A job that waits until others have made way for it."""
    claim = job.claim
    assert claim is not None
    left = []
    for victim_id, attempt in claim.victims:
        victim = led.jobs.get(victim_id)
        if victim is not None and victim.way is not None and victim.attempt == attempt:
            left.append(victim)
    until = max((one.way.until for one in left if one.way is not None), default=0)
    refs = [ref(one) for one in left[:MOST]]
    return Cause("preempting", until=until, have=len(left), jobs=refs)


def possible(
    led: Ledger, job: Job, partitions: list[str], now: int, ref: Callable[[Job], JobRef]
) -> list[Cause]:
    """Whom a blocked job would preempt with the next pass, or whom it will not preempt before some
    time. Cost: as the decision (preemption.propose) for each partition."""
    if not led.rules().may_preempt(job):
        return []
    found: list[Cause] = []
    for partition in partitions:
        allowed, spared = preemption.candidates(led, job, partition, now)
        plan = preemption.propose(led, job, partition, allowed, now)
        if plan is not None:
            victims = [led.jobs[one.job_id] for one in plan.victims]
            refs = [ref(one) for one in victims[:MOST]]
            cause = Cause("would_preempt", partition=partition, have=len(victims), jobs=refs)
            cause.until = max(now, led.cluster.claims.tried.get(job.id, 0))
            found.append(cause)
        elif spared:
            soon = sorted(spared, key=lambda one: (one.until < 0, one.until, one.job.id))
            refs = [ref(one.job) for one in soon[:MOST]]
            cause = Cause("exempt", partition=partition, have=len(spared), jobs=refs)
            cause.until = max(0, soon[0].until)
            found.append(cause)
    return found
