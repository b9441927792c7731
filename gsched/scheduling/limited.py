"""Limits of associations and QOS as causes of a verdict: whose, how much of it is used by whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gsched import tres
from gsched.model import Job
from gsched.model.why import Cause

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: kinds of limits for one job by itself -> what the cause says that they are for
_EACH = {"job": "job", "jobmins": "job", "jobwall": "job", "node": "node", "min": "least"}
_EACH |= {"threshold": "share"}
_NAMES = {"jobwall": "wall", "maxjobs": "jobs"}
_MINUTES = frozenset({"run", "mins", "wall", "jobmins", "jobwall"})


def causes(led: Ledger, job: Job, now: int) -> Iterator[tuple[Cause, list[tuple[Job, str]]]]:
    """The limits that keep a job from starting, if they do in each of its partitions, and the
    running jobs that use them up with what they hold. Cost: its limits, and for each of those that
    count together all jobs that have not ended."""
    names = job.spec.partitions or (job.partition,)
    lacks = [led.limits.lacks(job, name, now) for name in names]
    if not all(lacks):
        return
    for limit, want, have, never in lacks[0]:
        scope, what, name = limit.pool
        cause = Cause(
            *("limit", never, "", limit.word, want, limit.value, have),
            what=name or _NAMES.get(what, what),
            unit="minutes" if what in _MINUTES else "",
            scope=_EACH.get(what, "used" if what in ("mins", "wall") else "all"),
            whose=limit.whose,
        )
        if what == "kept":
            # All that runs counts: it is not told by jobs.
            cause.scope = "kept"
            cause.kept = have - led.limits.held(name)
        holders: list[tuple[Job, str]] = []
        if cause.scope == "all":
            running = led.limits.holders(scope)
            running.sort(key=lambda one: one.end_time or 1 << 60)
            counts = [_held(one, name) for one in running]
            holders = [
                (one, str(count)) for one, count in zip(running, counts, strict=True) if count
            ]
            if not cause.unit and not never:
                cause.until = _until(running, counts, cause)
        yield cause, holders


def _held(job: Job, name: str) -> int:
    """How much of a TRES a job holds; of "" the job itself counts."""
    counts = tres.allocated(job)
    counts[""] = 1
    counts["billing"] = counts.get("cpu", 0) if job.billing < 0 else job.billing
    return counts.get(name, 0)


def _until(running: list[Job], counts: list[int], cause: Cause) -> int:
    """When enough of them have ended, by their time limits; 0 not known."""
    free = cause.limit - cause.have
    for one, count in zip(running, counts, strict=True):
        free += count
        if free >= cause.want:
            return one.end_time
    return 0
