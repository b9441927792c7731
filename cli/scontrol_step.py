"""`scontrol show step`: the steps that run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gsched.model.step import step_name
from gsched_cli.common import Reader, Streams
from gsched_cli.stepview import StepView, load_steps
from gsched_cli.stop import Stop
from gsched_cli.text import duration, timestamp

if TYPE_CHECKING:
    from gsched_cli.scontrol_show import Layout

#: "17", "17_4", "17+1", each with a step behind a dot or without
_ID = re.compile(r"(\d{1,9})(?:_(\d{1,9})|\+(\d{1,3}))?(?:\.(\w+))?")
_PREFIX = "slurm_get_job_steps error:"


def show_steps(
    what: str | None, env: Mapping[str, str], reader: Reader, layout: Layout, streams: Streams
) -> int:
    """All of them, or those of a job, or one."""
    views = chosen_steps(what, reader)
    if what is not None and not views:
        streams.stdout.write(f"Job step {what} not found\n")
        return 1
    for view in views:
        layout.record(_lines(view, env, reader.now()))
    if not views:
        streams.stdout.write("No job steps in the system\n")
    return 0


def chosen_steps(what: str | None, reader: Reader) -> list[StepView]:
    """The steps that are named, or all that run. Raises Stop for a job that is not there."""
    match = _ID.fullmatch(what) if what is not None else None
    if what is not None and match is None:
        return []
    views = load_steps(reader, _PREFIX, job_ids=[int(match[1])] if match else ())
    if match is not None:
        if not views:
            raise Stop(1, f"{_PREFIX} Invalid job id specified\n")
        views = [view for view in views if _named(view, match)]
    # As Slurm lists them: a job's script before what srun has made.
    return sorted(views, key=lambda view: (*view.order[:2], view.number))


def _named(view: StepView, match: re.Match[str]) -> bool:
    job = view.job
    if match[2] and job.array_task_id != int(match[2]):
        return False
    if match[3] and job.het_offset != int(match[3]):
        return False
    return match[4] is None or match[4] == step_name(view.number)


def _lines(view: StepView, env: Mapping[str, str], now: float) -> list[str]:
    step = view.step
    limit = duration(view.time_limit) if view.time_limit else "UNLIMITED"
    layout = f" Dist={step.layout.title() or 'Unknown'}" if step is not None else ""
    return [
        f"StepId={view.id_text} UserId={view.job.uid} "
        f"StartTime={timestamp(view.start, env, now)} TimeLimit={limit}",
        f"State={view.state} Partition={view.job.partition} NodeList={view.node_text}",
        f"Nodes={len(view.nodes)} CPUs={view.cpus} Tasks={view.ntasks} Name={view.name} "
        "Network=(null)",
        f"TRES={view.tres or '(null)'}",
        "ResvPorts=(null)",
        f"CPUFreqReq=Default{layout}",
        f"SrunHost:Pid={(step.srun if step is not None else '') or '(null):0'}",
    ]
