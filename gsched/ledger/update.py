"""The verbs of `scontrol` for jobs: who may, on which records, and `update` itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from gsched import admission, tres
from gsched.errors import message
from gsched.ledger import arrays, deadline, depend, hetero, jobs, over_limits, ranking, use
from gsched.ledger.edit import (
    ALREADY_FINISHED,
    DENIED,
    NODE_CONFIG,
    UNSUPPORTED_FIELD,
    BadValue,
    Edit,
)
from gsched.ledger.fields import FIELDS
from gsched.ledger.hold import hold, release, to_the_top, uhold
from gsched.ledger.notify import notify
from gsched.ledger.outcome import Outcome
from gsched.ledger.requeue import requeue, requeue_held
from gsched.ledger.select import INVALID_ID, TOO_MANY, apart, find, may_touch, named
from gsched.ledger.submit import not_permitted, owner_of
from gsched.ledger.suspend import node_limit, resume, suspend
from gsched.model import Job, JobState
from gsched.wire.messages import Call, Done, Refused, UpdateJob
from gsched.wire.nodes import SetLimit

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: Slurm's texts for another user's job: hold and release are updates to it
WRONG_USER = "Invalid user id"


def update_jobs(
    led: Ledger, call: Call, write: UpdateJob, now: float, out: Outcome
) -> Done | Refused:
    """Each job on its own; a job is changed whole or not at all."""
    verb = _VERBS.get(write.verb)
    if verb is None:
        return Refused(call.request_id, f"Requested operation {write.verb} is not supported here")
    ids = named(write.ids)
    if ids is None:
        return Refused(call.request_id, TOO_MANY)
    whose = WRONG_USER if write.verb in ("update", "hold", "uhold", "release", "notify") else DENIED
    errors: list[tuple[str, str]] = []
    count = 0
    # The first of the list shall stand at the top in the end.
    for text in reversed(ids) if write.verb == "top" else ids:
        records = find(led, text)
        if records is None:
            errors.append((text, INVALID_ID))
            continue
        if not all(may_touch(led, call.uid, found.job) for found in records):
            errors.append((text, whose))
            continue
        if write.verb in _ADMINS_ONLY and not led.is_admin(call.uid):
            if not (write.verb == "top" and "enable_user_top" in led.config.scheduler_options):
                errors.append((text, DENIED))
                continue
        if write.verb in ("requeue", "requeuehold", "top") and len(records) > 1:
            # Asked of the leader of a heterogeneous job, it is done to all components.
            records = [found for found in records if not found.job.het_offset]
        whole = len(records) > 1
        if whole and write.verb.startswith("requeue"):
            # Of an array those tasks that have begun; if none has, Slurm's answer for one.
            begun = [found for found in records if _begun(found.job)]
            records = begun or records[:1]
        for found in records:
            if whole and found.job.finished and not write.verb.startswith("requeue"):
                continue
            for job in apart(led, found, now, out):
                try:
                    verb(led, call, job, write.fields, now, out)
                    count += 1
                except BadValue as bad:
                    # Of many tasks it is said once.
                    if (text, str(bad)) not in errors[-1:]:
                        errors.append((text, str(bad)))
    return Done(call.request_id, 0, value=count, errors=errors)


def _begun(job: Job) -> bool:
    """Whether it runs or has run: a task that was cancelled before does not come back."""
    return job.state != JobState.PENDING and bool(job.start_time or not job.finished)


def _update(
    led: Ledger, call: Call, job: Job, fields: dict[str, str], now: float, out: Outcome
) -> None:
    setters = []
    for key, value in fields.items():
        setter = FIELDS.get(key.lower())
        if setter is None:
            raise BadValue(f"{UNSUPPORTED_FIELD}: {key}={value}")
        setters.append((setter, value))
    if job.finished:
        if job.completing and job.requeue_wait and fields == {"starttime": "now"}:
            # On its way back into the queue: it need not wait there.
            job.requeue_wait = 0
            led.put_job(job, out)
            return
        raise BadValue(ALREADY_FINISHED)
    edit = Edit(led, job, call, now)
    for setter, value in setters:
        setter(edit, value)
    if edit.pending and not _ACCESS.isdisjoint(key.lower() for key in fields):
        names = edit.job.spec.partitions or (edit.job.partition,)
        code = not_permitted(led, names, edit.job.spec, call)
        if code:
            raise BadValue(message(code))
    if edit.shaped and edit.pending:
        _judge(edit)
    if edit.pending and not edit.operator and over_limits.forbids(led, job, edit.job):
        raise BadValue(message(over_limits.CODE))
    _take_over(led, job, edit, now, out)


def _judge(edit: Edit) -> None:
    """Refuses what would be refused at submission (of a job that is held less). What only its
    partition has not got, waits: the next change may be to another partition, as in Slurm."""
    led, spec = edit.led, edit.job.spec
    owner = owner_of(led.config, spec, edit.job.partition, edit.job.uid)
    if owner != spec.shape.owner:
        spec.shape = msgspec.structs.replace(spec.shape, owner=owner)
    names = tuple(led.config.partitions)
    if led.config.enforce_part_limits == "NO":
        spec = msgspec.structs.replace(spec, partitions=names)
    held = bool(edit.job.held)
    problem = admission.validate(spec, led.limits.config_for(spec.qos), held=held)
    if problem is not None:
        raise BadValue(problem.message)
    if not held and led.cluster.never(spec.shape, names) is not None:
        raise BadValue(NODE_CONFIG)
    if spec.shape.min_nodes > len(led.config.nodes):
        raise BadValue(message("ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE"))


def _take_over(led: Ledger, job: Job, edit: Edit, now: float, out: Outcome) -> None:
    draft = edit.job
    if draft.array_throttle != job.array_throttle:
        arrays.set_throttle(led, job.array_job_id, draft.array_throttle, out)
    depend.detach(led, job)
    for name in job.__struct_fields__:
        setattr(job, name, getattr(draft, name))
    asked = tres.requested(job.spec)
    job.billing_asked = tres.with_billing(led.config, job.partition, asked)["billing"]
    use.begin(led, job)
    if job.state == JobState.PENDING:
        ranking.set_priority(led, job)
    led.put_job(job, out)
    if job.state == JobState.PENDING:
        depend.attach(led, job)
        led.cluster.queue_job(job)
        for doomed in depend.settle(led, job, now, out):
            jobs.cancel_doomed(led, doomed, now, out)
        out.schedule = True
        if job.spec.begin > now:
            out.wake(job.spec.begin)
    deadline.watch(led, job)
    if job.state != JobState.PENDING and edit.limit_changed:
        jobs.set_end(led, job)
        first = hetero.unit(led, job)[0]
        limit = node_limit(led, first)
        led.order(first.alloc[0].node, SetLimit(0, first.id, first.attempt, limit), now, out)


#: fields that may bring a job into partitions that do not take it
_ACCESS = frozenset({"partition", "account", "qos"})

_ADMINS_ONLY = frozenset({"suspend", "resume", "top"})

_VERBS: dict[str, Callable[..., None]] = {
    "hold": hold,
    "uhold": uhold,
    "release": release,
    "top": to_the_top,
    "requeue": requeue,
    "requeuehold": requeue_held,
    "suspend": suspend,
    "resume": resume,
    "notify": notify,
    "update": _update,
}
