"""Job arrays: one record for the tasks that are alike, one more for each that differs."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec

from gsched.environment import sluid
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState
from gsched.taskset import TaskSet

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger


def split(led: Ledger, master: Job, task: int, now: float, out: Outcome) -> Job:
    """The record of one task of an array that is still together.

    It takes the next job id; the last task keeps the array's own, as in Slurm. Whoever splits
    queues both anew. Cost: the runs of the array.
    """
    tasks = TaskSet.parse(master.array_pending)
    if len(tasks) == 1:
        master.array_task_id = task
        master.array_pending = ""
        led.put_job(master, out)
        return master
    tasks.remove(task)
    led.extra_tasks -= 1
    master.array_pending = tasks.text()
    job_id = led.meta.next_job_id
    led.meta.next_job_id += 1
    led.put_meta(out)
    job = msgspec.structs.replace(
        master,
        id=job_id,
        array_task_id=task,
        array_pending="",
        alloc=[],
        deps=[msgspec.structs.replace(dep) for dep in master.deps],
        sluid=sluid(led.config.cluster_name, int(now * 1000), job_id),
    )
    led.jobs[job_id] = job
    led.array_members[job.array_job_id].add(job_id)
    led.ref_blob(job.script)
    led.ref_blob(job.environment)
    led.put_job(master, out)
    led.put_job(job, out)
    if job.spec.deadline:
        # When that is due is found out at the next tick.
        heapq.heappush(led.deadlines, (0, job.id))
    return job


def tasks_of(job: Job) -> TaskSet:
    """The tasks that are still together in this record."""
    return TaskSet.parse(job.array_pending) if job.array_pending else TaskSet([])


def running(led: Ledger, array_id: int) -> int:
    """Tasks of the array that hold resources."""
    return led.array_running.get(array_id, 0)


def count_change(led: Ledger, job: Job, change: int) -> None:
    """A task of an array took or gave back its resources: the throttle moves."""
    array_id = job.array_job_id
    if not array_id:
        return
    left = led.array_running.get(array_id, 0) + change
    if left:
        led.array_running[array_id] = left
    else:
        led.array_running.pop(array_id, None)
    if job.array_throttle:
        led.cluster.set_throttle(array_id, job.array_throttle - left)


def set_throttle(led: Ledger, array_id: int, throttle: int, out: Outcome) -> None:
    """`scontrol update ArrayTaskThrottle=`: for every record of the array that can still run."""
    left = throttle - led.array_running.get(array_id, 0) if throttle else None
    led.cluster.set_throttle(array_id, left)
    for job_id in led.array_members.get(array_id, ()):
        job = led.jobs[job_id]
        job.array_throttle = throttle
        led.put_job(job, out)
        if job.state == JobState.PENDING:
            led.cluster.queue_job(job)
    out.schedule = True


def forget(led: Ledger, job: Job) -> None:
    """A record of an array is purged; with the last one the array is gone."""
    if job.array_pending:
        led.extra_tasks -= len(TaskSet.parse(job.array_pending)) - 1
    members = led.array_members.get(job.array_job_id)
    if members is None:
        return
    members.discard(job.id)
    if not members:
        del led.array_members[job.array_job_id]
        led.cluster.set_throttle(job.array_job_id, None)
