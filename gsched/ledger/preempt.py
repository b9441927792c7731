"""Running jobs make way for waiting ones: the warning, the end, the promise, and what undoes it.

That job V makes way for job P is in both records (`Job.way`, `Job.claim`), so that a controller
that starts anew goes on with it. The node counts the grace time down itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.ledger import arrays, hetero, jobs, pause, suspend
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState, Phase
from gsched.model.preempt import (
    QUOTA,
    REQUEUE,
    SUSPEND,
    Claim,
    MakingWay,
    Preemption,
    Victim,
)
from gsched.policy.preempt import Rules
from gsched.wire.nodes import Preempt

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: seconds after which the controller ends what the node should have ended
LATE_S = 5
#: seconds that a job has to start in once all have gone for it
START_S = 30
#: of a Preempt order: it need not make way any more
SPARED = -1

__all__ = ["begin", "dropped", "finish", "gone", "load", "rules", "started", "tell", "tick"]


def rules(led: Ledger) -> Rules:
    """Who may preempt whom, as configuration and policy are now. Cost: waiting jobs, once after a
    change."""
    known = led.preempt_rules
    if known is None or not known.current(led.config, led.book):
        fresh = Rules(led.config, led.book)
        told = known.problems if known is not None else []
        led.preempt_problems += [one for one in fresh.problems if one not in told]
        led.preempt_rules = known = fresh
        claims = led.cluster.claims
        claims.judge = fresh.may_preempt
        claims.may.clear()
        for job in led.jobs.values():
            if job.state == JobState.PENDING and led.cluster.queued(job.id):
                claims.came(job)
    return known


# ---- the plan becomes a fact ---------------------------------------------------------------------


def begin(led: Ledger, plan: Preemption, now: float, out: Outcome) -> None:
    """All that a plan names are told to make way, or, where one of them cannot any more, none."""
    job = led.jobs.get(plan.job_id)
    if job is None or job.state != JobState.PENDING or job.held or job.deps or job.claim:
        return
    found = [(led.jobs.get(one.job_id), one) for one in plan.victims]
    if not all(_still(victim, one) for victim, one in found):
        return
    if job.array_pending:
        master = job
        job = arrays.split(led, master, arrays.tasks_of(master).first, now, out)
        if master is not job:
            led.cluster.queue_job(master)
    job.claim, job.pool = plan.claim, plan.pool
    led.cluster.claims.promise(job, plan.claim, int(now))
    led.claimants.add(job.id)
    pause.promised(led, plan.claim)
    led.cluster.queue_job(job)
    led.put_job(job, out)
    for victim, one in found:
        if victim is not None and one.mode != SUSPEND:
            _warn(led, victim, one, job, now, out)
    if found:
        ids = ", ".join(str(one.job_id) for one in plan.victims)
        out.log.append(("info", f"job {job.id} preempts {ids}"))
    _vacated(led, job, now, out)
    out.schedule = True


def _still(victim: Job | None, one: Victim) -> bool:
    if victim is None or victim.attempt != one.attempt or victim.way is not None:
        return False
    if victim.state == JobState.SUSPENDED:
        # One that was running when it was decided has heard of it meanwhile, or works for nobody.
        if victim.sliced:
            return True
        return bool(victim.paused) if one.mode == SUSPEND else one.kind == QUOTA
    return victim.state == JobState.RUNNING


def _warn(led: Ledger, victim: Job, one: Victim, by: Job, now: float, out: Outcome) -> None:
    """It, with all its components, is told, and ended at once where it has no time."""
    members = hetero.unit(led, victim)
    for member in members:
        _mark(led, member, one, by, now)
    at_once = not one.grace or victim.configuring
    last = int(now) + one.grace
    for member in members:
        if not at_once:
            member.end_time = min(member.end_time or last, last)
            led.cluster.set_end(member)
            led.put_job(member, out)
        for part in member.alloc:
            tell(led, member, part.node, now, out)
    if at_once:
        finish(led, victim, now, out)
    else:
        out.wake(last + LATE_S)


def _mark(led: Ledger, victim: Job, one: Victim, by: Job, now: float) -> None:
    victim.way = MakingWay(by.id, int(now), int(now) + one.grace, one.mode, one.kind)
    victim.preempt_time = int(now)
    victim.preempted += 1
    # Those that are nearest in the chain come first.
    known = [by.id, *(each for each in by.above if each != by.id)]
    known += [each for each in victim.above if each not in known]
    victim.above = known[: pause.MOST_ABOVE]
    led.making_way.add(victim.id)


def tell(led: Ledger, victim: Job, node: str, now: float, out: Outcome) -> None:
    """Orders a node to warn its share; again when it has registered anew. Of one that makes way for
    nobody it may have missed that it need not any more."""
    way, known = victim.way, led.rules()
    part = next((each for each in victim.alloc if each.node == node), None)
    if part is None or part.phase >= Phase.ENDED:
        return
    if way is None:
        if known.kind or known.guarantees:
            led.order(node, Preempt(0, victim.id, victim.attempt, SPARED), now, out)
        return
    left = max(0, way.until - int(now))
    user_signal = known.options.send_user_signal
    signum = victim.spec.signal_num if user_signal else 0
    batch = bool(signum) and victim.spec.signal_batch
    order = Preempt(0, victim.id, victim.attempt, left, signum, batch, way.mode, way.kind)
    led.order(node, order, now, out)


def finish(led: Ledger, victim: Job, now: float, out: Outcome) -> None:
    """A job that makes way ends now: queued again, or for good. So does one that its node has ended
    for that before it heard that the job need not make way any more."""
    way = victim.way
    if victim.finished:
        return
    victim.preempt_time = int(now)
    if way is None:
        victim.preempted += 1
        victim.requeue_after = jobs.may_requeue(led, victim)
    else:
        victim.requeue_after = way.mode == REQUEUE
    victim.hold_after = False
    victim.requeue_wait, victim.hold_reason = 0, ""
    jobs.end(led, victim, JobState.PREEMPTED, "", now, out, cause="preempted")


# ---- what undoes it ------------------------------------------------------------------------------


def gone(led: Ledger, victim: Job, now: float, out: Outcome) -> None:
    """The attempt of a job is over, and nothing of it is left on its nodes."""
    way, victim.way = victim.way, None
    led.making_way.discard(victim.id)
    pause.gone(led, victim)
    by = led.jobs.get(way.by) if way is not None else None
    if by is not None and by.claim is not None:
        _vacated(led, by, now, out)


def _left(led: Ledger, claim: Claim) -> bool:
    """Whether some of those that are to end for it have not."""
    return any(
        victim_id in led.making_way and led.jobs[victim_id].attempt == attempt
        for victim_id, attempt in claim.victims
    )


def _vacated(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """Once those that end for a job are gone, those that only stand still for it do."""
    claim = job.claim
    if claim is None or claim.free_at or _left(led, claim):
        return
    claim.free_at = int(now)
    led.put_job(job, out)
    pause.begin(led, claim, job, now, out)
    out.schedule = True


def started(led: Ledger, job: Job) -> None:
    """A job starts in what was promised to it."""
    if job.claim is not None:
        job.claim = None
        led.cluster.claims.drop(job.id)
        led.claimants.discard(job.id)


def dropped(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """Nothing is kept for a waiting job any more: those that have not ended yet may go on."""
    claim = job.claim
    if claim is None:
        return
    job.claim, job.pool = None, ""
    led.cluster.claims.drop(job.id)
    led.claimants.discard(job.id)
    led.put_job(job, out)
    for victim_id, attempt in claim.victims:
        victim = led.jobs.get(victim_id)
        if victim is None or victim.way is None or victim.attempt != attempt or victim.finished:
            continue
        victim.way = None
        victim.preempted -= 1
        victim.preempt_time = 0
        if victim.above and victim.above[0] == job.id:
            del victim.above[0]
        led.making_way.discard(victim.id)
        jobs.set_end(led, victim)
        led.put_job(victim, out)
        for part in victim.alloc:
            if part.phase < Phase.ENDED:
                led.order(part.node, Preempt(0, victim.id, victim.attempt, SPARED), now, out)
        if victim.sliced:
            # The warning has let it go on.
            suspend.tell(led, victim, now, out)
    pause.settle(led, {share.node for share in claim.nodes}, now, out)
    out.schedule = True


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Ends what the node should have ended, and promises that cannot be kept. Cost: jobs that make
    way, and promises."""
    rules(led)
    for text in led.preempt_problems:
        out.log.append(("error", text))
    led.preempt_problems.clear()
    tried = led.cluster.claims.tried
    due = [job_id for job_id, again in tried.items() if again <= now]
    for job_id in due:
        del tried[job_id]
    out.schedule = out.schedule or bool(due)
    for victim_id in sorted(led.making_way):
        victim = led.jobs[victim_id]
        if victim.way is not None and not victim.finished and now >= victim.way.until + LATE_S:
            finish(led, victim, now, out)
    for job_id in sorted(led.claimants):
        job = led.jobs[job_id]
        if job.claim is None:
            continue
        _vacated(led, job, now, out)
        why = _broken(led, job, now)
        if why:
            out.log.append(("warning", f"job {job.id} could not have the place of others: {why}"))
            dropped(led, job, now, out)
            if job.state == JobState.PENDING:
                led.cluster.queue_job(job)


def _broken(led: Ledger, job: Job, now: float) -> str:
    """Why what was promised to a job cannot be kept; "" it can."""
    claim = job.claim
    assert claim is not None
    if job.held or job.deps:
        return "it is held"
    if not led.awaits(now) and not led.cluster.claims.usable(claim):
        return "a node is not there any more"
    if _left(led, claim):
        return ""
    return "it does not fit there" if claim.free_at and now >= claim.free_at + START_S else ""


def load(led: Ledger, job: Job) -> None:
    """A loaded record: what it says of making way is so again."""
    if job.way is not None:
        led.making_way.add(job.id)
    if job.claim is not None:
        led.claimants.add(job.id)
        led.cluster.claims.promise(job, job.claim, int(led.meta.last_now))
