"""Verdicts about preemption: who makes way for a job, whom it would preempt, and whom not yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gsched import tres
from gsched.model import Job
from gsched.model.why import Cause, JobRef, Why
from gsched.scheduling import license_claims, preemption, reclaim, whole

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
    cause = Cause("preempting", until=until, have=len(left), jobs=refs)
    if any(one.way is not None and one.way.kind == reclaim.KIND for one in left):
        cause.whose = f"account {job.pool or _claimant(led, job)}"
    return cause


def _claimant(led: Ledger, job: Job) -> str:
    """The account at which a job has a claim; its own where it has none any more."""
    stands = led.quotas()
    wants = tres.requested(job.spec)
    return (stands.claim(job.spec.account, wants) if stands else "") or job.spec.account


def possible(
    led: Ledger, job: Job, partitions: list[str], now: int, ref: Callable[[Job], JobRef]
) -> list[Cause]:
    """Whom a blocked job would preempt with the next pass, or whom it will not preempt before some
    time. Cost: as the decision (preemption.propose) for each partition."""
    if not led.rules().may_preempt(job):
        return []
    found: list[Cause] = []
    short = license_claims.partitions(led, job)
    wanted = license_claims.propose if short else preemption.propose
    for partition in short or partitions:
        allowed, spared = preemption.candidates(led, job, partition, now)
        plan = wanted(led, job, partition, allowed, now)
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
        if plan is None and not short:
            found += _back(led, job, partition, now, ref)
    return found


def _back(
    led: Ledger, job: Job, partition: str, now: int, ref: Callable[[Job], JobRef]
) -> list[Cause]:
    """What its account would take back for it, or who comes before it there."""
    pools, heads = led.units.ways(job)[0], led.cluster.claims.heads()
    for pool in pools:
        first = led.jobs.get(heads.get(pool, 0))
        if first is not None and first.id != job.id:
            cause = Cause("unit_turn", partition=partition, jobs=[ref(first)])
            cause.whose = f"account {pool}"
            return [cause]
    pool = next((one for one in pools if heads.get(one) == job.id), "")
    stands = led.quotas()
    if pool:
        plan = whole.plan(led, job, pool, led.units.borrowers(job, pool), (), now)
    elif stands is not None and not pools:
        plan = preemption.take_back(led, stands, job, partition, now)
    else:
        plan = None
    if plan is None:
        return []
    victims = [led.jobs[one.job_id] for one in plan.victims]
    cause = Cause("would_preempt", partition=partition, have=len(victims))
    cause.jobs = [ref(one) for one in victims[:MOST]]
    cause.whose = f"account {pool or _claimant(led, job)}"
    cause.until = now
    return [cause]


def still(led: Ledger, job: Job, why: Why, ref: Callable[[Job], JobRef]) -> None:
    """What keeps a suspended job from going on: another's turn on its CPUs, those that it stands
    still for, or whoever suspended it. Cost: jobs on its nodes."""
    if not job.sliced and not job.paused:
        why.causes.append(Cause("suspended"))
        return
    others, until = led.in_its_place(job)
    refs = [ref(one) for one in others[:MOST]]
    kind = "time_slice" if job.sliced else "stands_still"
    why.causes.append(Cause(kind, jobs=refs, have=len(others), until=until))
    if job.sliced:
        why.reason = "TimeSlice"
