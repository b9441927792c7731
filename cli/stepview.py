"""What the commands show of steps that run: a step, or the script of a batch job, which is one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from gsched import tres
from gsched.model.job import Job
from gsched.model.states import JobState
from gsched.model.step import BATCH_STEP, Step, step_name
from gsched.wire.messages import StepQuery, StepRows
from gsched_cli.common import Reader
from gsched_cli.jobview import JobView
from gsched_cli.stop import asking

#: most jobs whose nodes are asked what steps they run
MOST_ASKED = 16
#: behind every number that an srun gets
_LAST = 1 << 32


class StepView:
    """A step of one job, or of one component of a heterogeneous job; without `step` the script."""

    __slots__ = ("_now", "job", "step", "view")

    def __init__(self, job: Job, step: Step | None, now: float) -> None:
        self.job = job
        self.step = step
        self.view = JobView(job, None, now)
        self._now = int(now)

    @property
    def number(self) -> int:
        return BATCH_STEP if self.step is None else self.step.id

    @property
    def order(self) -> tuple[int, int, int]:
        """Place among others: as Slurm sorts them, the script behind what srun has made."""
        job = self.job
        number = self.number if self.number >= 0 else _LAST + self.number
        return job.het_job_id or job.id, job.het_offset, number

    @property
    def id_text(self) -> str:
        """ "17.0", "17_4.batch", "17+1.0"."""
        return f"{self.view.id_text}.{step_name(self.number)}"

    @property
    def name(self) -> str:
        return "batch" if self.step is None else self.step.name

    @property
    def nodes(self) -> list[str]:
        if self.step is None:
            return [self.job.alloc[0].node]
        return [share.node for share in self.step.nodes]

    @property
    def node_text(self) -> str:
        from gsched.hostlist import compress

        return compress(self.nodes)

    @property
    def ntasks(self) -> int:
        return 1 if self.step is None else self.step.ntasks

    @property
    def cpus(self) -> int:
        """Slurm counts none for the script."""
        return 0 if self.step is None else sum(share.alloc.cpus for share in self.step.nodes)

    @property
    def tres(self) -> str:
        """What it has; "" for the script."""
        step = self.step
        if step is None:
            return ""
        held = tres.held([share.alloc for share in step.nodes], step.gpu_types)
        return tres.sorted_text(held, convert=True)

    @property
    def time_limit(self) -> int:
        """Seconds; 0 unlimited."""
        return 0 if self.step is None else self.step.time_limit

    @property
    def start(self) -> int:
        return self.job.start_time if self.step is None else self.step.start_time

    @property
    def elapsed(self) -> int:
        """Seconds it has run, without the time it was suspended."""
        job = self.job
        if self.step is None:
            return self.view.elapsed
        # What the job has run by now, less what it had run when the step began.
        before = self.step.start_time - job.start_time - self.step.suspended_s
        return max(self.view.elapsed - before, 0)

    @property
    def state(self) -> str:
        return "SUSPENDED" if self.job.state is JobState.SUSPENDED else "RUNNING"


def load_steps(
    reader: Reader,
    prefix: str,
    *,
    job_ids: Iterable[int] = (),
    uids: Iterable[int] = (),
    as_told: bool = False,
) -> list[StepView]:
    """Steps that run, in order, and the scripts of batch jobs; `as_told`: without those that the
    controller has not been told of yet. Raises Stop if nobody answers."""
    query = StepQuery(sorted(job_ids), sorted(uids))
    rows = asking(lambda: reader.steps(query), prefix)
    if not as_told and tell_now(reader, rows.jobs):
        rows = asking(lambda: reader.steps(query), prefix)
    return sorted(_views(rows, reader.now()), key=lambda view: view.order)


def tell_now(reader: Reader, jobs: Iterable[Job]) -> bool:
    """Has the nodes that lead these jobs tell the controller of all steps, which it learns of in
    batches otherwise; of few jobs only. False: nobody was asked."""
    from gsched.client import ControllerDown, RequestRefused
    from gsched.wire.messages import AskAgent
    from gsched.wire.steps import TellSteps
    from gsched.wire.usertext import encode

    leaders = {
        job.het_job_id or job.id
        for job in jobs
        if job.state in (JobState.RUNNING, JobState.SUSPENDED) and job.alloc
    }
    if not 0 < len(leaders) <= MOST_ASKED:
        return False
    # Where one does not answer, what the controller has is shown.
    with contextlib.suppress(ControllerDown, RequestRefused):
        for job in leaders:
            # Not one of the command's own numbers: those are of what it changes.
            reader.call(AskAgent(job, encode(TellSteps(job))), os.urandom(16))
    return True


def _views(rows: StepRows, now: float) -> Iterable[StepView]:
    jobs = {job.id: job for job in rows.jobs}
    for job in rows.jobs:
        # The script of a heterogeneous job runs in its first component.
        if job.alloc and not job.het_offset and not job.spec.interactive:
            yield StepView(job, None, now)
    for step in rows.steps:
        for share in step.by_component():
            owner = jobs.get(share.job_id)
            if owner is not None:
                yield StepView(owner, share, now)
