"""Asking for jobs, as few as will do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gsched.model.job import Job
from gsched.model.states import Hold, JobState
from gsched.wire.messages import JobQuery, JobRows
from gsched_cli.common import Reader
from gsched_cli.stop import asking


def load_jobs(
    reader: Reader,
    *,
    ids: Collection[int] = (),
    uids: Collection[int] = (),
    active_only: bool = False,
) -> JobRows:
    """Jobs that match; the id of an array or of a heterogeneous job gives all its records. Raises
    Stop if nobody answers."""
    query = JobQuery(sorted(ids), sorted(uids), active_only=active_only)
    rows = asking(lambda: reader.jobs(query), "slurm_load_jobs error:")
    if rows.priorities:
        for job in rows.jobs:
            job.priority = rows.priorities.get(job.id, job.priority)
    if rows.not_before:
        # What has passed says nothing any more.
        now = reader.now()
        for job_id, verdict in rows.verdicts.items():
            at = rows.not_before.get(job_id, 0)
            if at > now and not verdict.start:
                verdict.start = int(at)
    return rows


def when_looked_at(jobs: Sequence[Job], reader: Reader) -> None:
    """LastSchedEval of waiting jobs: the last pass over the queue, or for those that none looks at
    their submission. Their records are not written for that."""
    waiting = [job for job in jobs if job.state is JobState.PENDING]
    if not waiting:
        return
    last = reader.status().last_pass
    for job in waiting:
        looked = job.held is Hold.NONE and not job.deps and job.eligible_time <= last
        if looked:
            job.last_sched_eval = max(job.last_sched_eval, last)
        job.last_sched_eval = job.last_sched_eval or job.submit_time
