"""The processes of the steps on this node (scontrol listpids)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gsched.model.step import BATCH_STEP
from gsched.wire.steps import LaunchStep, Pids, StepPids
from slurmd_compat.agent import Record
from slurmd_compat.agent.step_words import StepKey
from slurmd_compat.usage import Processes


def listed(
    records: Iterable[Record],
    shares: Callable[[Record], Iterable[tuple[StepKey, LaunchStep]]],
    tasks: Callable[[StepKey], dict[int, int]],
    script: Callable[[Record], int],
    group: Callable[[Record, int], list[int]],
    seen: Processes,
    uid: int | None = None,
) -> Pids:
    """All of them, scripts first, then by number of job and step. `shares`: a job's steps here,
    `tasks` the process of each task of one, `script` that of the script (0 none), `group` the
    processes in a step's control group, `seen` those of this host. `uid`: only that user's jobs.
    """
    found: list[StepPids] = []
    for record in records:
        if uid is not None and record.launch.job.uid != uid:
            continue
        pid = script(record)
        if pid:
            mine = {pid: (0, 0)}
            found.append(_step(record.job_id, BATCH_STEP, mine, group(record, BATCH_STEP), seen))
        for key, launch in shares(record):
            here = launch.step.nodes[launch.index].tasks
            mine = {
                process: (here.index(task), task)
                for task, process in sorted(tasks(key).items())
                if task in here
            }
            step = launch.step
            found.append(_step(step.job_id, step.id, mine, group(record, step.id), seen))
    return Pids(sorted(found, key=lambda one: (one.job_id, one.step != BATCH_STEP, one.step)))


def _step(
    job_id: int, step: int, tasks: dict[int, tuple[int, int]], group: list[int], seen: Processes
) -> StepPids:
    """One step: its tasks, then what else is in its group or descends from them."""
    others = {pid for task in tasks for pid in seen.below(task)} | set(group)
    rows = [(pid, local, number) for pid, (local, number) in tasks.items()]
    rows += [(pid, -1, -1) for pid in sorted(others - tasks.keys())]
    return StepPids(job_id, step, rows)
