"""`sacct --json` and `--yaml`: the attempts in the shape that Slurm's data parser gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from gsched.model.acct import AcctJob, AcctStep
from gsched_cli.dump import INFINITE, Asked, Made, Many, Num, Read, Shape, number
from gsched_cli.dump import wait_status as _exit
from gsched_cli.fields_sacct import expand_pattern


def document(asked: Asked, jobs: Sequence[AcctJob]) -> str:
    """The whole output, with its line end."""
    shape = _job_shape()
    if not asked.layout_named:
        # A list in Slurm. But programs in the field take the word that it was in 22.05; those that
        # know the list can name the layout.
        shape["state"] = {"current": _attribute("state"), "reason": _attribute("reason")}
    return asked.document(jobs=asked.records(shape, jobs))


def _attribute(name: str) -> Read:
    return Read(attrgetter(name))


def _time(ms: int) -> dict[str, int]:
    return {"seconds": ms // 1000, "microseconds": ms % 1000 * 1000}


def _tres(text: str) -> list[dict[str, object]]:
    """TRES text as a list; memory is counted in megabytes."""
    ids = {"cpu": 1, "mem": 2, "energy": 3, "node": 4, "billing": 5, "gres/gpu": 1001}
    found: list[dict[str, object]] = []
    for part in text.split(","):
        full, equals, count = part.partition("=")
        if not equals:
            continue
        kind, _, name = full.partition("/")
        number = count.removesuffix("M")
        found.append(
            {
                "type": kind,
                "name": name,
                "id": ids.get(full, 0),
                "count": int(number) if number.isdigit() else 0,
            }
        )
    return found


def _cpu(job: AcctJob) -> tuple[int, int]:
    """User and system time of all steps in ms."""
    steps = job.steps
    return sum([step.user_ms for step in steps]), sum([step.system_ms for step in steps])


def _per_cpu(job: AcctJob) -> int | None:
    return (job.req_mem_mb // job.req_cpus if job.req_cpus else 0) or None


def _job_shape() -> Shape:
    of = _attribute
    return {
        "account": of("account"),
        "comment": {
            "administrator": of("admin_comment"),
            "job": of("comment"),
            "system": of("system_comment"),
        },
        "allocation_nodes": of("alloc_nodes"),
        "array": {
            "job_id": of("array_job_id"),
            "limits": {"max": {"running": {"tasks": of("array_throttle")}}},
            "task_id": Num(lambda job: job.array_task_id if job.array_task_id >= 0 else None),
            "task": of("array_tasks"),
        },
        "association": {
            "account": of("account"),
            "cluster": of("cluster"),
            "partition": "",
            "user": of("user_name"),
            "id": of("assoc_id"),
        },
        "block": "",
        "cluster": of("cluster"),
        "constraints": of("constraints"),
        "container": of("container"),
        "sluid": of("sluid"),
        "derived_exit_code": Made(attrgetter("derived_wstatus"), _exit),
        "time": {
            "elapsed": of("elapsed_s"),
            "eligible": of("eligible"),
            "end": of("end_time"),
            "planned": Num(lambda job: max(job.start - job.eligible, 0) if job.start else 0),
            "start": of("start"),
            "submission": of("submit"),
            "suspended": of("suspended_s"),
            "system": Made(lambda job: _cpu(job)[1], _time),
            "limit": Num(lambda job: job.time_limit // 60 if job.time_limit else INFINITE),
            "total": Made(lambda job: sum(_cpu(job)), _time),
            "user": Made(lambda job: _cpu(job)[0], _time),
        },
        "exclusive": of("exclusive"),
        "exit_code": Made(attrgetter("wstatus"), _exit),
        "extra": of("extra"),
        "failed_node": "",
        "flags": [],
        "group": of("group_name"),
        "het": {
            "job_id": of("het_job_id"),
            "job_offset": Num(lambda job: job.het_offset if job.het_job_id else None),
        },
        "job_id": of("job_id"),
        "name": of("name"),
        "licenses": of("licenses"),
        "mcs": {"label": ""},
        "nodes": Read(lambda job: job.nodes or "None assigned"),
        "oversubscribe": of("oversubscribe"),
        "partition": of("partition_name"),
        "hold": Read(lambda job: job.reason in ("JobHeldUser", "JobHeldAdmin")),
        "priority": Num(attrgetter("priority")),
        "qos": of("qos"),
        "qosreq": "",
        "required": {
            "CPUs": of("req_cpus"),
            "memory_per_cpu": Num(_per_cpu),
            "memory_per_node": number(None),
        },
        "kill_request_user": Made(attrgetter("cancelled_by"), _name),
        "restart_cnt": of("restarts"),
        "reservation": {"id": 0, "name": of("reservation"), "requested": ""},
        "script": "",
        "segment_size": 0,
        "original_sluid": of("sluid"),
        "stdin_expanded": Read(lambda job: expand_pattern(job, job.std_in)),
        "stdout_expanded": Read(lambda job: expand_pattern(job, job.std_out)),
        "stderr_expanded": Read(lambda job: expand_pattern(job, job.std_err)),
        "stdout": of("std_out"),
        "stderr": of("std_err"),
        "stdin": of("std_in"),
        "state": {"current": Made(attrgetter("state"), _list), "reason": of("reason")},
        "steps": Many(lambda job: [(job.job_id, step) for step in job.steps], _step_shape()),
        "submit_line": of("submit_line"),
        "tres": {
            "allocated": Made(attrgetter("alloc_tres"), _tres),
            "requested": Made(attrgetter("req_tres"), _tres),
        },
        "used_gres": "",
        "user": of("user_name"),
        "wckey": {"wckey": of("wckey"), "flags": []},
        "working_directory": of("work_dir"),
    }


def _list(word: str) -> list[str]:
    return [word]


def _name(uid: int) -> str:
    """The user; -1 nobody."""
    import pwd

    if uid < 0:
        return ""

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


#: job and step
_Step = tuple[int, AcctStep]


def _step_shape() -> Shape:
    def of(name: str) -> Read:
        read = attrgetter(name)
        return Read(lambda both: read(both[1]))

    def made(name: str, make: Callable[[Any], object]) -> Made:
        read = attrgetter(name)
        return Made(lambda both: read(both[1]), make)

    def total(both: _Step) -> int:
        return both[1].user_ms + both[1].system_ms

    return {
        "time": {
            "elapsed": of("elapsed_s"),
            "end": Num(lambda both: both[1].end or None),
            "start": Num(lambda both: both[1].start or None),
            "suspended": of("suspended_s"),
            "system": made("system_ms", _time),
            "limit": number(INFINITE),
            "total": Made(total, _time),
            "user": made("user_ms", _time),
        },
        "exit_code": made("wstatus", _exit),
        "nodes": {
            "count": of("nnodes"),
            "range": of("nodes"),
            "list": Made(lambda both: (both[1].nodes, both[1].nnodes), _expand),
        },
        "tasks": {"count": of("ntasks")},
        "pid": "",
        "state": made("state", _list),
        "step": {"id": Read(lambda both: f"{both[0]}.{both[1].step}"), "name": of("name")},
        "statistics": {"CPU": {"actual_frequency": 0}},
        "task": {"distribution": Read(lambda both: both[1].layout or "Unknown")},
        "tres": {"allocated": made("alloc_tres", _tres)},
    }


def _expand(key: tuple[str, int]) -> list[str]:
    """Names of a host list, and how many there are."""
    from gsched.hostlist import HostlistError, expand

    nodes, count = key
    if count == 1:
        return [nodes]
    try:
        return expand(nodes) if nodes else []
    except HostlistError:
        return [nodes]
