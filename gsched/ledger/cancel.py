"""The verb `cancel`: ends jobs, or sends them a signal."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gsched.ledger import jobs
from gsched.ledger.outcome import Outcome
from gsched.ledger.select import DENIED, FINISHED, INVALID_ID, by_id, may_touch
from gsched.ledger.state import job_key
from gsched.model import Job, JobState, Phase
from gsched.wire import messages
from gsched.wire.messages import Call, CancelJobs, Done, Refused

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def cancel(led: Ledger, call: Call, write: CancelJobs, now: float, out: Outcome) -> Done | Refused:
    """Carries out what can be; what cannot be is listed in the reply's errors by job id."""
    if not 0 <= write.signum < 128:
        return Refused(call.request_id, f"Invalid signal {write.signum}")
    errors: list[tuple[str, str]] = []
    chosen: list[Job] = []
    if write.ids:
        for text in write.ids:
            job = by_id(led, text)
            if job is None:
                errors.append((text, INVALID_ID))
            elif not may_touch(led, call.uid, job):
                errors.append((text, DENIED))
            elif _matches(job, write):
                if job.finished:
                    errors.append((text, FINISHED))
                else:
                    chosen.append(job)
    else:
        # A filter means "those of mine": other users' jobs are passed over in silence.
        chosen = [
            job
            for job in led.jobs.values()
            if not job.finished and may_touch(led, call.uid, job) and _matches(job, write)
        ]
    count = 0
    for job in chosen:
        error = _one(led, job, write, call.uid, now, out)
        if error:
            errors.append((str(job.id), error))
        else:
            count += 1
    return Done(call.request_id, 0, value=count, errors=errors)


def _matches(job: Job, write: CancelJobs) -> bool:
    return (
        (write.user < 0 or job.uid == write.user)
        and (not write.name or job.spec.name == write.name)
        and (not write.partition or job.partition == write.partition)
        and (not write.account or job.spec.account == write.account)
        and (not write.qos or job.spec.qos == write.qos)
        and (not write.reservation or job.spec.reservation == write.reservation)
        and (not write.wckey or job.spec.wckey == write.wckey)
        and (write.state < 0 or job.state == write.state)
        and (not write.nodelist or any(p.node in write.nodelist for p in job.alloc))
    )


def _one(led: Ledger, job: Job, write: CancelJobs, uid: int, now: float, out: Outcome) -> str:
    kill = write.signum in (0, signal.SIGKILL) and write.target != "batch"
    if job.state == JobState.PENDING:
        if write.signum not in (0, signal.SIGKILL, signal.SIGTERM, signal.SIGCONT):
            return "Job is pending execution"
        if write.signum == signal.SIGCONT:
            return ""
        led.cluster.unqueue(job.id)
        out.view["verdict", job_key(job.id)] = None
        job.cancelled_by = uid
        job.requeue_after = False
        jobs.end(led, job, JobState.CANCELLED, "", now, out)
        return ""
    if kill:
        job.cancelled_by = uid
        job.requeue_after = False
        jobs.end(led, job, JobState.CANCELLED, "", now, out, cause="cancelled")
        return ""
    for part in job.alloc:
        if part.phase < Phase.ENDED:
            order = messages.Signal(0, job.id, job.attempt, write.signum, write.target)
            led.order(part.node, order, now, out)
    return ""
