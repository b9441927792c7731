"""Heterogeneous jobs: several jobs with consecutive ids that start and end as one.

The first is the leader: the script is its own, and cancel and requeue are asked of it. Every
component is placed by itself, all in one pass or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.model import Job, Phase

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: Slurm's answers where a component is named and only the whole can be meant
NOT_WHOLE = "Operation not permitted on individual component of heterogeneous job"
NOT_LEADER = "Job not heterogeneous job leader"


def unit(led: Ledger, job: Job) -> list[Job]:
    """The components that are known, in order; an ordinary job alone."""
    if not job.het_job_id:
        return [job]
    ids = range(job.het_job_id, job.het_job_id + job.het_size)
    return [led.jobs[job_id] for job_id in ids if job_id in led.jobs]


def one_node(job: Job) -> bool:
    """Whether preparing and starting is one step, because nobody else has to be waited for."""
    return len(job.alloc) == 1 and not job.het_job_id


def prepared(led: Ledger, job: Job) -> bool:
    """Whether every node of every component is ready."""
    return all(
        part.phase >= Phase.PREPARED and other.configuring
        for other in unit(led, job)
        for part in other.alloc
    )


def limit(led: Ledger, job: Job) -> int:
    """Seconds after which all of it ends, at the first component's limit that passes; 0 none."""
    if not job.het_job_id:
        return job.time_limit
    return min((other.time_limit for other in unit(led, job) if other.time_limit), default=0)
