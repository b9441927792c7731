"""requeue and requeuehold: an attempt is ended, or an ended job taken up, and queued again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.errors import message
from gsched.ledger import hetero, jobs
from gsched.ledger.edit import BadValue
from gsched.ledger.hold import REQUEUED_HELD
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState
from gsched.wire.messages import Call

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: seconds a job waits after somebody queued it again, as in Slurm (StartTime=now ends the wait)
WAIT_S = 121


def requeue(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """The job waits two minutes (BeginTime) before it may start again."""
    _again(led, job, given, "", now, out)


def requeue_held(
    led: Ledger, call: Call, job: Job, given: dict[str, str], now: float, out: Outcome
) -> None:
    """As requeue, and the job is held."""
    _again(led, job, given, REQUEUED_HELD, now, out)


def _again(
    led: Ledger, job: Job, given: dict[str, str], reason: str, now: float, out: Outcome
) -> None:
    if job.het_offset:
        raise BadValue(hetero.NOT_LEADER)
    if job.spec.interactive:
        raise BadValue(message("ESLURM_BATCH_ONLY"))
    if not jobs.may_requeue(led, job):
        raise BadValue(message("ESLURM_DISABLED"))
    if job.state == JobState.PENDING:
        raise BadValue(message("ESLURM_JOB_PENDING"))
    if "incomplete" in given and job.finished:
        return
    if len(hetero.unit(led, job)) < job.het_size:
        raise BadValue(message("ESLURM_INVALID_JOB_ID"))
    # One that only waits for its time slice, or for others, is not held (seen on a real Slurm).
    suspended = job.state == JobState.SUSPENDED and not job.sliced and not job.paused
    jobs.requeue_running(led, job, bool(reason) or suspended, now, out, WAIT_S, reason)
