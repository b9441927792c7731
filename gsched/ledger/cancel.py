"""The verb `cancel`: ends jobs, or sends them a signal."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gsched.ledger import hetero, jobs
from gsched.ledger.outcome import Outcome
from gsched.ledger.select import (
    DENIED,
    FINISHED,
    INVALID_ID,
    MAX_IDS,
    TOO_MANY,
    Found,
    apart,
    find,
    may_touch,
    named,
)
from gsched.model import Job, JobState, Phase, transitions
from gsched.model.step import step_key
from gsched.wire import nodes
from gsched.wire.messages import Call, CancelJobs, Done, Refused

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def cancel(led: Ledger, call: Call, write: CancelJobs, now: float, out: Outcome) -> Done | Refused:
    """Carries out what can be; what cannot be is listed in the reply's errors by job id."""
    if not 0 <= write.signum < 128:
        return Refused(call.request_id, f"Invalid signal {write.signum}")
    ids = named(write.ids)
    if ids is None:
        return Refused(call.request_id, TOO_MANY)
    errors: list[tuple[str, str]] = []
    count = 0
    if len(write.steps) > MAX_IDS:
        return Refused(call.request_id, TOO_MANY)
    for text, number in write.steps:
        error = _step(led, text, number, write.signum, call.uid, now, out)
        if error:
            errors.append((f"step {text}", error))
        else:
            count += 1
    if write.steps and not ids:
        return Done(call.request_id, 0, value=count, errors=errors)
    for text, found in _chosen(led, call.uid, write, ids, errors):
        for job in apart(led, found, now, out):
            error = _one(led, job, write, call.uid, now, out)
            if error:
                errors.append((text, error))
            else:
                count += 1
    return Done(call.request_id, 0, value=count, errors=errors)


def _step(
    led: Ledger, text: str, number: int, signum: int, uid: int, now: float, out: Outcome
) -> str:
    """Signals one step of a job, or ends it; else why not."""
    records = find(led, text)
    if not records or len(records[0].tasks) > 1:
        return INVALID_ID
    job = hetero.unit(led, records[0].job)[0]
    if not may_touch(led, uid, job):
        return DENIED
    step = led.steps.get(job.id, {}).get(number)
    if step is None or job.finished:
        return INVALID_ID
    if signum in (0, signal.SIGKILL, signal.SIGTERM) and step.cancelled_by < 0:
        step.cancelled_by = uid
        step.ends = signum != signal.SIGTERM
        out.puts["step", step_key(job.id, number)] = step
    order = nodes.Signal(0, job.id, job.attempt, signum, "steps", number)
    led.order(job.batch_host, order, now, out)
    return ""


def _chosen(
    led: Ledger, uid: int, write: CancelJobs, ids: list[str], errors: list[tuple[str, str]]
) -> list[tuple[str, Found]]:
    """What the request names and the caller may touch; the rest goes to `errors`."""
    if not ids:
        # A filter means "those of mine": other users' jobs are passed over in silence.
        return [
            (str(job.id), Found(job))
            for job in led.jobs.values()
            if not job.finished
            and not job.het_offset
            and may_touch(led, uid, job)
            and _matches(job, write)
        ]
    chosen: list[tuple[str, Found]] = []
    for text in ids:
        records = find(led, text)
        if records is None:
            errors.append((text, INVALID_ID))
            continue
        mine = [found for found in records if may_touch(led, uid, found.job)]
        if not mine:
            errors.append((text, DENIED))
            continue
        if all(found.job.het_offset for found in mine):
            errors.append((text, hetero.NOT_WHOLE))
            continue
        # The leader stands for all components.
        mine = [found for found in mine if not found.job.het_offset]
        wanted = [found for found in mine if _matches(found.job, write)]
        live = [found for found in wanted if not found.job.finished or _comes_back(found.job)]
        if wanted and not live:
            errors.append((text, FINISHED))
        chosen.extend((text, found) for found in live)
    return chosen


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


def _comes_back(job: Job) -> bool:
    """An attempt has ended, and the job is queued again once its nodes are free."""
    return job.finished and job.requeue_after


def _one(led: Ledger, job: Job, write: CancelJobs, uid: int, now: float, out: Outcome) -> str:
    kill = write.signum in (0, signal.SIGKILL) and write.target != "batch"
    if job.finished:
        if not kill:
            return FINISHED
        for member in hetero.unit(led, job):
            member.requeue_after = member.hold_after = False
            member.cancelled_by = uid
            if JobState.CANCELLED in transitions.LEGAL[member.state]:
                jobs.move(member, JobState.CANCELLED)
                member.reason = ""
            led.put_job(member, out)
        return ""
    if job.state == JobState.PENDING:
        if write.signum not in (0, signal.SIGKILL, signal.SIGTERM, signal.SIGCONT):
            return "Job is pending execution"
        if write.signum == signal.SIGCONT:
            return ""
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
            order = nodes.Signal(0, job.id, job.attempt, write.signum, write.target)
            led.order(part.node, order, now, out)
    return ""
