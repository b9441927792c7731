"""From a step's record to what accounting shows of it."""

from __future__ import annotations

from gsched import tres
from gsched.hostlist import compress
from gsched.model import Step, StepState
from gsched.model.acct import AcctStep, AcctSteps
from gsched.model.step import step_name

#: what Slurm records for a step that ran out of memory: 0:125
_OOM_WSTATUS = 125


def step_row(step: Step, now: int) -> AcctStep:
    """The accounting record of a step as it stands at `now`. Cost: its nodes."""
    cpus = sum(share.alloc.cpus for share in step.nodes)
    names = [share.node for share in step.nodes]
    end = 0 if step.running else step.end_time
    stood = 0 if step.running else step.suspended_s
    measured = not step.running and step.usage.max_rss_kb > 0
    return AcctStep(
        step_name(step.id),
        step.name,
        _state(step),
        _OOM_WSTATUS if step.state == StepState.OUT_OF_MEMORY else step.wstatus,
        step.start_time,
        end,
        max(0, (end or now) - step.start_time - stood),
        stood,
        cpus,
        len(names),
        step.ntasks,
        compress(names),
        tres.sorted_text(tres.held([share.alloc for share in step.nodes], step.gpu_types)),
        step.usage.user_ms,
        step.usage.system_ms,
        step.usage.max_rss_kb if measured else -1,
        step.max_rss_node if measured else "",
        step.layout.title(),
        step.submit_line,
        step.cancelled_by if step.state == StepState.CANCELLED else -1,
        step.max_rss_task if measured else 0,
        step.ave_rss_kb if measured else -1,
        step.gpu_util_ave,
        step.gpu_util_max,
        step.gpu_mem_max_mb,
    )


def fact_row(steps: list[Step], restarts: int, time: int) -> AcctSteps:
    """Ended steps of one job."""
    return AcctSteps(steps[0].job_id, restarts, [step_row(step, time) for step in steps])


def _state(step: Step) -> str:
    # Slurm calls a step that a signal ended cancelled, whoever sent it.
    if step.state == StepState.FAILED and step.wstatus & 0x7F and step.wstatus != _OOM_WSTATUS:
        return "CANCELLED"
    return step.state.name
