"""Waiting tasks of an array that have records of their own, shown in the line of those that are
still together, as `squeue` does without -r."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gsched.model.job import Job
from gsched.model.states import JobState
from gsched.taskset import TaskSet
from gsched_cli.jobview import JobView


class Member(NamedTuple):
    """What a record brings to the line of its array."""

    #: only records of one array, name and partition go together
    key: tuple[int, str, str]
    #: "1-5" for those still together, "7" for a single task
    tasks: str
    #: it stands for several tasks
    several: bool
    reason: str
    throttle: int
    bitstr_len: int


def waits(job: Job) -> bool:
    """Whether it is one of those that may share a line."""
    return bool(job.array_job_id) and job.state is JobState.PENDING and not job.completing


def member(view: JobView) -> Member:
    """What a record brings that waits."""
    job = view.job
    tasks = str(job.array_task_id) if job.array_task_id >= 0 else job.array_pending
    several = view.together and not job.array_pending.isdecimal()
    key = (job.array_job_id, job.spec.name, view.partition)
    return Member(key, tasks, several, view.reason, job.array_throttle, view.bitstr_len)


def leader(members: Sequence[Member]) -> int:
    """The place of the one in whose line all are shown; -1: each has its own."""
    if len(members) > 1:
        for place, one in enumerate(members):
            if one.several:
                return place
    return -1


def together(first: Member, others: Sequence[Member]) -> Mapping[str, str]:
    """What the line says instead, by the fields' first long names: the tasks of all, and each
    reason once, the first one's own before those of the others."""
    tasks = TaskSet.parse(",".join([first.tasks, *(one.tasks for one in others)]))
    text = tasks.shown(first.throttle, first.bitstr_len)
    reason = ",".join(dict.fromkeys([first.reason, *(one.reason for one in others)]))
    return {
        "ArrayTaskId": text,
        "JobArrayId": f"{first.key[0]}_[{text}]",
        "Reason": reason,
        "ReasonList": f"({reason})",
    }


#: tells what a record brings to the line of its array
Members = Callable[[JobView], Member]
