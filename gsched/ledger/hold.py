"""hold, uhold, release and top: the priority of waiting jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gsched.ledger import fields, ranking
from gsched.ledger.edit import ALREADY_FINISHED, DENIED, BadValue
from gsched.ledger.fields import priority_of
from gsched.ledger.outcome import Outcome
from gsched.model import Hold, Job, JobState
from gsched.wire.messages import Call

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: what `requeuehold` gives as the reason, as Slurm words it
REQUEUED_HELD = "job requeued in held state"


def _changed(led: Ledger, job: Job, out: Outcome) -> None:
    led.put_job(job, out)
    if job.state == JobState.PENDING:
        led.cluster.queue_job(job)
        out.schedule = True


def hold(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """A running job goes on; it is held when it is queued again."""
    if job.finished:
        raise BadValue(ALREADY_FINISHED)
    fields.hold(job, led.is_admin(call.uid), now)
    _changed(led, job, out)


def uhold(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """A hold that the owner may take back."""
    if job.finished:
        raise BadValue(ALREADY_FINISHED)
    fields.hold(job, False, now)
    _changed(led, job, out)


def release(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """Gives a held job its priority back."""
    if job.finished:
        raise BadValue(ALREADY_FINISHED)
    # What requeuehold holds may be let go by its owner, whoever held it.
    if job.held == Hold.ADMIN and not led.is_admin(call.uid) and job.reason != REQUEUED_HELD:
        raise BadValue(DENIED)
    if job.held:
        job.held = Hold.NONE
        if job.state == JobState.PENDING:
            job.reason = ""
        if not job.eligible_time and not job.deps:
            job.eligible_time = max(int(now), job.spec.begin)
        job.priority = priority_of(job)
        ranking.set_priority(led, job)
        _changed(led, job, out)


def to_the_top(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """The job goes before the other waiting jobs of its owner in the same partition, account and
    QOS: the same priorities in another order, told by their nice values. Cost: all jobs."""
    if job.state != JobState.PENDING:
        raise BadValue("Job is no longer pending execution")
    peers = [
        other
        for other in led.jobs.values()
        if other.state == JobState.PENDING
        and not other.held
        and other.uid == job.uid
        and len(other.spec.partitions) < 2
        and (other.partition, other.spec.account, other.spec.qos)
        == (job.partition, job.spec.account, job.spec.qos)
    ]
    if job not in peers:
        raise BadValue("Requested operation is presently disabled")
    now_has = {other.id: ranking.live(led, other) for other in peers}
    peers.sort(key=lambda other: (-now_has[other.id], other.id))
    order = [job, *(other for other in peers if other is not job)]
    priorities = [now_has[other.id] for other in peers]
    if priorities[1:2] == priorities[:1] and order[1].id < job.id:
        # Of equals the oldest goes first.
        priorities[0] += 1
    for other, priority in zip(order, priorities, strict=True):
        if now_has[other.id] == priority:
            continue
        # A copy: tasks of an array share what was submitted.
        if other.spec.priority is not None:
            other.spec = msgspec.structs.replace(other.spec, priority=priority)
        else:
            nice = other.spec.nice + now_has[other.id] - priority
            other.spec = msgspec.structs.replace(other.spec, nice=nice)
        other.priority = priority
        _changed(led, other, out)
