"""The fields of a step: what `squeue -s` knows with -o, -O and -S."""

from __future__ import annotations

from collections.abc import Mapping

from gsched_cli.fields import Field, Table
from gsched_cli.stepview import StepView
from gsched_cli.text import elapsed, or_null, timestamp


def _limit(view: StepView) -> str:
    return elapsed(view.time_limit) if view.time_limit else "UNLIMITED"


def _task(view: StepView) -> str:
    task = view.job.array_task_id
    return str(task) if task >= 0 else "N/A"


def _gres(view: StepView) -> str:
    """GPUs of each node, as the step has them on the first."""
    if view.step is None or not view.step.nodes:
        return "N/A"
    gpus = view.step.nodes[0].alloc.whole_gpus
    return f"gres/gpu:{gpus}" if gpus else "N/A"


def step_table(env: Mapping[str, str], now: float, cluster: str = "") -> Table[StepView]:
    """All fields. `env` gives the format of times, `cluster` its name where it is known."""

    def when(at: int) -> str:
        return timestamp(at, env, now)

    f = Field[StepView]
    return Table(
        [
            f("A", ("NumTasks",), "TASKS", lambda v: str(v.ntasks), lambda v: v.ntasks),
            f("", ("ArrayJobID",), "ARRAY_JOB_ID", lambda v: str(v.job.array_job_id)),
            f("", ("ArrayTaskID",), "ARRAY_TASK_ID", _task),
            f("b", ("tres-per-node", "Gres"), "TRES_PER_NODE", _gres),
            f("", ("Cluster",), "CLUSTER", lambda v: cluster),
            f("", ("Container",), "CONTAINER", lambda v: or_null("")),
            f("i", ("StepID",), "STEPID", lambda v: v.id_text, lambda v: v.order),
            f("", ("JobID",), "JOB_ID", lambda v: str(v.job.id), lambda v: v.job.id),
            f("j", ("StepName", "Name"), "NAME", lambda v: v.name),
            f("l", ("TimeLimit",), "TIME_LIMIT", _limit, lambda v: v.time_limit),
            f("M", ("TimeUsed",), "TIME", lambda v: elapsed(v.elapsed), lambda v: v.elapsed),
            f("N", ("Nodes", "NodeList"), "NODELIST", lambda v: v.node_text),
            f("", ("NumCPUs",), "CPUS", lambda v: str(v.cpus), lambda v: v.cpus),
            f("", ("Network",), "NETWORK", lambda v: "N/A"),
            f("P", ("Partition",), "PARTITION", lambda v: v.job.partition),
            f("", ("ResvPorts",), "RESV_PORTS", lambda v: "N/A"),
            f("S", ("StartTime",), "START_TIME", lambda v: when(v.start), lambda v: v.start),
            f("", ("StepState",), "STATE", lambda v: v.state),
            f("", ("tres-alloc",), "TRES_ALLOC", lambda v: v.tres or "N/A"),
            f("u", ("UserName",), "USER", lambda v: v.job.user),
            f("U", ("UserID",), "UID", lambda v: str(v.job.uid), lambda v: v.job.uid),
        ]
    )
