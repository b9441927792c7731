"""Accounting's records for tests, and a reader that has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from views_support import FakeReader, cpu_shape, make_job, share

from gsched.accounting.choose import Choice
from gsched.accounting.rows import row
from gsched.model import Job, JobState
from gsched.model.acct import AcctJob, AcctStep
from gsched.wire.messages import AcctQuery, AcctRows

#: 2026-11-29T13:54:38 UTC, when job 244 of transcript 035 was submitted
T244 = 1795960478


@dataclass
class AcctReader(FakeReader):
    """Gives the rows that a query takes, `page` at a time."""

    rows: list[AcctJob] = field(default_factory=list)
    page: int = 1000
    asked: list[AcctQuery] = field(default_factory=list)

    def accounting(self, query: AcctQuery) -> AcctRows:
        self.asked.append(query)
        choice = Choice(query)
        found = [
            one
            for one in sorted(self.rows, key=lambda one: one.order)
            if choice.takes(one) and one.order > tuple(query.after)
        ]
        some = found[: self.page]
        last = list(some[-1].order) if some else []
        return AcctRows(1, some, last, len(found) > len(some))


def ended(job_id: int, name: str, state: JobState, wstatus: int = 0, **more: object) -> Job:
    """A job of root with one CPU on node1 that ran and ended."""
    fields: dict[str, object] = {
        "submit_time": T244,
        "eligible_time": T244,
        "start_time": T244 + 2,
        "end_time": T244 + 2,
        "alloc": [share("node1", 1)],
        "wstatus": wstatus,
    }
    fields.update(more)
    shape = fields.pop("shape", None) or cpu_shape()
    return make_job(job_id, name, shape, state=state, **fields)  # type: ignore[arg-type]


def never_ran(job_id: int, name: str, state: JobState, **more: object) -> Job:
    fields: dict[str, object] = {"alloc": [], "start_time": 0, "end_time": T244 + 2, **more}
    if state == JobState.PENDING:
        fields["end_time"] = 0
    return ended(job_id, name, state, **fields)


def shown(job: Job, cluster: str = "peer", now: int = T244 + 6) -> AcctJob:
    return row(job, cluster, now)


def job_244() -> AcctJob:
    """The job of transcript 035 with its two srun steps."""
    found = shown(
        ended(
            244,
            "steps",
            JobState.FAILED,
            2 << 8,
            shape=cpu_shape(ntasks=2, gpus_total=2),
            alloc=[share("node1", 2, 3)],
            gpu_types={"h100": 2},
            time_limit=300,
            priority=1869,
            derived_wstatus=2 << 8,
            sluid="s0Z9M8KSC6YA00",
            submit_line="sbatch steps.sh",
        )
    )
    batch = found.steps[0]
    tres = batch.alloc_tres
    at = T244 + 2
    common = {"start": at, "end": at, "ncpus": 2, "nnodes": 1, "nodes": "node1"}
    found.steps += [
        AcctStep(
            *("0", "true", "COMPLETED"),
            ntasks=2,
            alloc_tres=tres,
            layout="Block",
            submit_line="srun -n2 true",
            **common,  # type: ignore[arg-type]
        ),
        AcctStep(
            *("1", "named", "FAILED"),
            wstatus=2 << 8,
            ntasks=1,
            alloc_tres=tres,
            layout="Cyclic",
            submit_line="srun -n1 -J named bash -c exit 2",
            **common,  # type: ignore[arg-type]
        ),
    ]
    return found


def array(array_id: int, name: str, ids: dict[int, int], codes: dict[int, int]) -> list[AcctJob]:
    """Ended tasks of an array: task -> job id, task -> exit code."""
    return [
        shown(
            ended(
                job_id,
                name,
                JobState.FAILED if codes.get(task) else JobState.COMPLETED,
                codes.get(task, 0) << 8,
                array_job_id=array_id,
                array_task_id=task,
            )
        )
        for task, job_id in ids.items()
    ]
