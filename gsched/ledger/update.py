"""The verbs of `scontrol` for jobs: hold, release, requeue, update."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from gsched import units
from gsched.ledger import arrays, depend, jobs
from gsched.ledger.outcome import Outcome
from gsched.ledger.select import FINISHED, INVALID_ID, apart, find, may_touch
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
        records = find(led, text)
        if records is None:
            errors.append((text, INVALID_ID))
            continue
        if not all(may_touch(led, call.uid, found.job) for found in records):
            errors.append((text, WRONG_USER))
            continue
        whole = len(records) > 1
        for found in records:
            if whole and found.job.finished:
                continue
            for job in apart(led, found, now, out):
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
    throttle = draft.array_throttle
    if throttle != job.array_throttle:
        arrays.set_throttle(led, job.array_job_id, throttle, out)
    depend.detach(led, job)
    for name in job.__struct_fields__:
        setattr(job, name, getattr(draft, name))
    led.put_job(job, out)
    if job.state == JobState.PENDING:
        depend.attach(led, job)
        led.cluster.queue_job(job)
        for doomed in depend.settle(led, job, now, out):
            jobs.cancel_doomed(led, doomed, now, out)
        out.schedule = True
        if job.spec.begin > now:
            out.wake(job.spec.begin)
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


def _set_throttle(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    throttle = _integer("ArrayTaskThrottle", value)
    if not job.array_job_id or throttle < 0:
        raise BadValue(f"Invalid ArrayTaskThrottle value: {value}")
    job.array_throttle = throttle


def _set_dependency(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    _pending_only(job)
    try:
        job.deps = depend.resolve(led, value, job.id)
    except depend.DependencyProblem:
        raise BadValue("Job dependency problem") from None
    job.spec.dependency = value


def _set_begin(led: Ledger, call: Call, job: Job, value: str, now: float) -> None:
    _pending_only(job)
    if value.isdecimal():
        begin = int(value)
    else:
        try:
            begin = units.parse_time_point(value, int(now))
        except ValueError:
            raise BadValue("Invalid time specified") from None
    job.spec.begin = begin if begin > now else 0
    job.eligible_time = max(int(now), begin)


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
    "arraytaskthrottle": _set_throttle,
    "dependency": _set_dependency,
    "starttime": _set_begin,
}

_VERBS: dict[str, Callable[..., None]] = {
    "hold": _hold_as(Hold.ADMIN),
    "uhold": _hold_as(Hold.USER),
    "release": _release,
    "requeue": _requeue_as(hold=False),
    "requeuehold": _requeue_as(hold=True),
    "update": _update,
}
