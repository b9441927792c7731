"""Finding the jobs that a command names: ids as users write them, owners, filters."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gsched.ledger import arrays, depend, hetero
from gsched.ledger.outcome import Outcome
from gsched.model import Job
from gsched.taskset import TaskSet, TaskSetError

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

INVALID_ID = "Invalid job id specified"
DENIED = "Access/permission denied"
FINISHED = "Job/step already completing or completed"
#: ids that one request may name: the controller does nothing else meanwhile (5 us each)
MAX_IDS = 65_536
#: bytes of all of them: those with lists of tasks cost by their length
MAX_IDS_TEXT = 1 << 20
TOO_MANY = f"A request names at most {MAX_IDS} jobs, with at most {MAX_IDS_TEXT} bytes"


@dataclass
class Found:
    """A record that a command names; with `tasks`, only those of an array that is together."""

    job: Job
    tasks: list[int] = field(default_factory=list)


def named(ids: list[str]) -> list[str] | None:
    """The ids of a request, each once; None where they are too many."""
    once = list(dict.fromkeys(ids))
    return once if len(once) <= MAX_IDS and sum(map(len, once)) <= MAX_IDS_TEXT else None


_ID = re.compile(r"(\d{1,18})(?:_(?:(\d{1,9})|\[([0-9,:-]{1,4096})(?:%\d+)?\]|\*)|\+(\d{1,3}))?")


def find(led: Ledger, text: str) -> list[Found] | None:
    """The records that "17", "17_4", "17_[1-3,5]" or "17+1" names; None where there is no such job
    or the text is none of these. Tasks that do not exist are passed over."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    job_id = int(match[1])
    members = led.array_members.get(job_id)
    one, many, component = match[2], match[3], match[4]
    if component:
        job = led.jobs.get(job_id + int(component))
        return [Found(job)] if job is not None and job.het_job_id == job_id else None
    if not one and not many:
        if members is not None:
            return [Found(led.jobs[member]) for member in sorted(members)]
        job = led.jobs.get(job_id)
        if job is None:
            return None
        # The leader's id means all of a heterogeneous job, another component's only that one.
        return [Found(job)] if job.het_offset else [Found(each) for each in hetero.unit(led, job)]
    if members is None:
        return None
    try:
        wanted = TaskSet.parse(one or many)
    except TaskSetError:
        return None
    found = []
    for member in sorted(members):
        job = led.jobs[member]
        if job.array_task_id >= 0:
            if job.array_task_id in wanted:
                found.append(Found(job))
        elif job.array_pending:
            tasks = [task for task in TaskSet.parse(job.array_pending) if task in wanted]
            if tasks:
                found.append(Found(job, tasks))
    return found or None


def apart(led: Ledger, found: Found, now: float, out: Outcome) -> list[Job]:
    """The records to act on: named tasks of an array leave it first, queued on their own."""
    if not found.tasks:
        return [found.job]
    master = found.job
    if master.finished or len(found.tasks) == len(arrays.tasks_of(master)):
        return [master]
    children = []
    for task in found.tasks:
        child = arrays.split(led, master, task, now, out)
        depend.attach(led, child)
        led.cluster.queue_job(child)
        children.append(child)
    led.cluster.queue_job(master)
    return children


def may_touch(led: Ledger, uid: int, job: Job) -> bool:
    """Owners touch their own jobs, administrators all."""
    return job.uid == uid or led.is_admin(uid)
