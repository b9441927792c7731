"""The verbs of `scontrol` for jobs: hold, release, requeue, update."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from gsched import units
from gsched.ledger import jobs
from gsched.ledger.outcome import Outcome
from gsched.ledger.select import FINISHED, INVALID_ID, by_id, may_touch
from gsched.ledger.submit import BASIC_PRIORITY
from gsched.model import Hold, Job, JobState
from gsched.wire.messages import Call, Done, Refused, SetLimit, UpdateJob

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: Slurm's text for another user's job in scontrol
WRONG_USER = "Invalid user id"


class BadValue(Exception):
    """A field that cannot be set so; the text is Slurm's message."""


def update_jobs(
    led: Ledger, call: Call, write: UpdateJob, now: float, out: Outcome
) -> Done | Refused:
    """Each job on its own; a job is changed whole or not at all."""
    verb = _VERBS.get(write.verb)
    if verb is None:
        return Refused(call.request_id, f"Requested operation {write.verb} is not supported here")
    errors: list[tuple[str, str]] = []
    count = 0
    for text in write.ids:
        job = by_id(led, text)
        if job is None:
            errors.append((text, INVALID_ID))
        elif not may_touch(led, call.uid, job):
            errors.append((text, WRONG_USER))
        else:
            try:
                verb(led, call, job, write.fields, now, out)
                count += 1
            except BadValue as bad:
                errors.append((text, str(bad)))
    return Done(call.request_id, 0, value=count, errors=errors)


def _hold_as(kind: Hold) -> Callable[..., None]:
    def hold(
        led: Ledger, call: Call, job: Job, fields: dict[str, str], now: float, out: Outcome
    ) -> None:
        if job.finished:
            raise BadValue(FINISHED)
        if job.state != JobState.PENDING:
            raise BadValue("Job is no longer pending execution")
        by_admin = led.is_admin(call.uid) and kind == Hold.ADMIN
        job.held = Hold.ADMIN if by_admin else Hold.USER
        job.priority = 0
        led.put_job(job, out)
        led.cluster.queue_job(job)
        out.schedule = True

    return hold


def _release(
    led: Ledger, call: Call, job: Job, fields: dict[str, str], now: float, out: Outcome
) -> None:
    if job.finished:
        raise BadValue(FINISHED)
    if job.held == Hold.ADMIN and not led.is_admin(call.uid):
        raise BadValue("Access/permission denied")
    if job.state != JobState.PENDING:
        raise BadValue("Job is no longer pending execution")
    if job.held:
        job.held = Hold.NONE
        job.reason = ""
        job.priority = _priority(job)
        led.put_job(job, out)
        led.cluster.queue_job(job)
        out.schedule = True


def _priority(job: Job) -> int:
    if job.spec.priority is not None:
        return job.spec.priority
    return max(1, BASIC_PRIORITY - job.id - job.spec.nice)


def _requeue_as(hold: bool) -> Callable[..., None]:
    def requeue(
        led: Ledger, call: Call, job: Job, fields: dict[str, str], now: float, out: Outcome
    ) -> None:
        if job.spec.requeue is False or (job.spec.requeue is None and not led.config.job_requeue):
            raise BadValue("Requested operation is presently disabled")
        if job.state == JobState.PENDING:
            raise BadValue("Job is pending execution")
        jobs.requeue_running(led, job, hold, now, out)

    return requeue


def _update(
    led: Ledger, call: Call, job: Job, fields: dict[str, str], now: float, out: Outcome
) -> None:
    draft = msgspec.structs.replace(job)
    draft.spec = msgspec.structs.replace(job.spec)
    for key, value in fields.items():
        setter = _FIELDS.get(key.lower())
        if setter is None:
            raise BadValue(f"Update of this parameter is not supported: {key}={value}")
        setter(led, call, draft, value, now)
    limit_changed = draft.time_limit != job.time_limit
    for name in job.__struct_fields__:
        setattr(job, name, getattr(draft, name))
    led.put_job(job, out)
    if job.state == JobState.PENDING:
        led.cluster.queue_job(job)
        out.schedule = True
    elif limit_changed:
        job.end_time = job.start_time + job.time_limit if job.time_limit else 0
        led.cluster.set_end(job)
        first = job.alloc[0]
        led.order(first.node, SetLimit(0, job.id, job.attempt, job.time_limit), now, out)


def _set_limit(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    if job.finished:
        raise BadValue(FINISHED)
    sign = value[:1]
    try:
        seconds = units.parse_time_limit(value.lstrip("+-"))
    except ValueError:
        raise BadValue(f"Invalid TimeLimit value: {value}") from None
    limit = seconds or 0
    if sign == "+":
        limit = job.time_limit + limit if job.time_limit else 0
    elif sign == "-":
        limit = max(60, job.time_limit - limit)
    raises = job.time_limit and (limit == 0 or limit > job.time_limit)
    if job.state != JobState.PENDING and raises and not led.is_admin(call.uid):
        raise BadValue("Access/permission denied")
    job.time_limit = limit
    job.spec.time_limit = limit


def _pending_only(job: Job) -> None:
    if job.finished:
        raise BadValue(FINISHED)
    if job.state != JobState.PENDING:
        raise BadValue("Job is no longer pending execution")


def _set_name(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    job.spec.name = value[:1024]


def _set_comment(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    job.spec.comment = value[:65536]


def _set_nice(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    _pending_only(job)
    nice = _integer("Nice", value)
    if nice < 0 and not led.is_admin(call.uid):
        raise BadValue("Access/permission denied")
    job.spec.nice = nice
    if not job.held:
        job.priority = _priority(job)


def _set_priority(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    _pending_only(job)
    priority = _integer("Priority", value)
    if not led.is_admin(call.uid):
        raise BadValue("Access/permission denied")
    if not 0 <= priority < 1 << 32:
        raise BadValue(f"Invalid Priority value: {value}")
    job.spec.priority = priority
    job.priority = priority
    job.held = Hold.ADMIN if priority == 0 else Hold.NONE


def _set_partition(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    _pending_only(job)
    names = tuple(value.split(","))
    for name in names:
        if name not in led.config.partitions:
            raise BadValue("Invalid partition name specified")
    if led.cluster.never(job.spec.shape, names) is not None:
        raise BadValue("Requested node configuration is not available")
    job.spec.partitions = names
    job.partition = names[0]


def _set_requeue(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    if value not in ("0", "1"):
        raise BadValue(f"Invalid Requeue value: {value}")
    job.spec.requeue = value == "1"


def _integer(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise BadValue(f"Invalid {key} value: {value}") from None


_FIELDS: dict[str, Callable[[Ledger, Call, Job, str, float], None]] = {
    "timelimit": _set_limit,
    "jobname": _set_name,
    "name": _set_name,
    "comment": _set_comment,
    "nice": _set_nice,
    "priority": _set_priority,
    "partition": _set_partition,
    "requeue": _set_requeue,
}

_VERBS: dict[str, Callable[..., None]] = {
    "hold": _hold_as(Hold.ADMIN),
    "uhold": _hold_as(Hold.USER),
    "release": _release,
    "requeue": _requeue_as(hold=False),
    "requeuehold": _requeue_as(hold=True),
    "update": _update,
}
