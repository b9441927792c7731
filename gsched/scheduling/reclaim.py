"""Accounts take back what they are guaranteed: borrowed work makes way for a claim.

The relation is policy/quota.py's; the plan that of any preemption (preemption.py): all or nothing,
nobody in vain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gsched import tres
from gsched.model import Job, JobState
from gsched.model.preempt import CANCEL, QUOTA, REQUEUE, SUSPEND, Victim
from gsched.policy.preempt import above
from gsched.policy.quota import Quota

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

KIND = QUOTA


def victims(led: Ledger, stands: Quota, job: Job, now: int, *, ends: bool = False) -> list[Victim]:
    """The running jobs that make way for a waiting job's claim, in the order in which they are
    taken; none where it has no claim. `ends`: see victim. Cost: running jobs."""
    wants = tres.requested(job.spec)
    claimant = stands.claim(job.spec.account, wants)
    found = (
        (victim(led, job, one, now, ends=ends) for one in stands.order(claimant, wants, now))
        if claimant
        else ()
    )
    return [one for one in found if one is not None]


def soonest(led: Ledger, stands: Quota, job: Job, now: int) -> int:
    """When the first of those that are left alone for a while will not be any more; 0: there are
    none. Cost: running jobs."""
    wants = tres.requested(job.spec)
    claimant = stands.claim(job.spec.account, wants)
    ids = stands.order(claimant, wants, now) if claimant else ()
    return exempt([led.jobs[one] for one in ids if one in led.jobs], led, now)


def exempt(others: Iterable[Job], led: Ledger, now: int) -> int:
    """The same for these jobs."""
    times = (led.rules().exempt_until(one) for one in others if one.state == JobState.RUNNING)
    return min((time for time in times if time > now), default=0)


def victim(led: Ledger, job: Job, job_id: int, now: int, *, ends: bool = False) -> Victim | None:
    """How a running job makes way; None: it is left alone. `ends`: what it is on must be as if
    nobody had been there. Then it ends, also one that stands still or is suspended: its memory, and
    what it has on the GPU, would stay; and those that stand still beneath it may end, too."""
    rules, other = led.rules(), led.jobs.get(job_id)
    if other is None:
        # It has not started yet.
        return None
    stopped = other.state == JobState.SUSPENDED and (ends or other.sliced)
    if not (other.state == JobState.RUNNING or stopped) or other.het_job_id:
        return None
    if other.way is not None:
        return None
    if above(job, other, led.jobs.get):
        return None
    mode = rules.mode(other, led.may_requeue(other))
    if not mode or (ends and mode == SUSPEND):
        # PreemptMode says nothing of guarantees.
        mode = REQUEUE if led.may_requeue(other) else CANCEL
    until = rules.exempt_until(other, mode)
    if until < 0 or until > now:
        return None
    if mode == SUSPEND:
        if other.configuring or job.spec.shape.share_count:
            return None
    elif any(one.pool or not ends for one in led.beneath(other)):
        # What it frees is of those that stand still for it.
        return None
    # Who is stopped hears no warning.
    grace = 0 if mode == SUSPEND or stopped else rules.grace(other)
    return Victim(other.id, other.attempt, mode, grace, KIND)


def spared(stands: Quota | None, job: Job, victim: Job) -> bool:
    """Whether a preemption by QOS or partition leaves a running job alone: it is guaranteed work of
    others, and the waiting job would be borrowed work. Cost: depth of the tree."""
    if stands is None:
        return False
    mine = stands.path(job.spec.account)
    theirs = (one for one in stands.path(victim.spec.account) if one not in mine)
    if not any(stands.secure(victim.id, one) for one in theirs):
        return False
    return not stands.claim(job.spec.account, tres.requested(job.spec))


__all__ = ["exempt", "soonest", "spared", "victim", "victims"]
