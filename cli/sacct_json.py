"""`sacct --json` and `--yaml`: the attempts in the shape that Slurm's data parser gives them."""

from __future__ import annotations

from collections.abc import Sequence

from gsched.model.acct import AcctJob, AcctStep
from gsched_cli.dump import INFINITE, Asked, number
from gsched_cli.dump import wait_status as _exit
from gsched_cli.fields_sacct import expand_pattern


def document(asked: Asked, jobs: Sequence[AcctJob]) -> str:
    """The whole output, with its line end."""
    return asked.document(jobs=[_job(job) for job in jobs])


def _number(value: int | None, *, infinite: bool = False) -> dict[str, object]:
    return number(INFINITE if infinite else value)


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


def _job(job: AcctJob) -> dict[str, object]:
    user = sum(step.user_ms for step in job.steps)
    system = sum(step.system_ms for step in job.steps)
    task = job.array_task_id if job.array_task_id >= 0 else None
    per_cpu = job.req_mem_mb // job.req_cpus if job.req_cpus else 0
    return {
        "account": job.account,
        "comment": {
            "administrator": job.admin_comment,
            "job": job.comment,
            "system": job.system_comment,
        },
        "allocation_nodes": job.alloc_nodes,
        "array": {
            "job_id": job.array_job_id,
            "limits": {"max": {"running": {"tasks": job.array_throttle}}},
            "task_id": _number(task),
            "task": job.array_tasks,
        },
        "association": {
            "account": job.account,
            "cluster": job.cluster,
            "partition": "",
            "user": job.user_name,
            "id": job.assoc_id,
        },
        "block": "",
        "cluster": job.cluster,
        "constraints": job.constraints,
        "container": job.container,
        "sluid": job.sluid,
        "derived_exit_code": _exit(job.derived_wstatus),
        "time": {
            "elapsed": job.elapsed_s,
            "eligible": job.eligible,
            "end": job.end_time,
            "planned": _number(max(job.start - job.eligible, 0) if job.start else 0),
            "start": job.start,
            "submission": job.submit,
            "suspended": job.suspended_s,
            "system": _time(system),
            "limit": _number(job.time_limit // 60, infinite=not job.time_limit),
            "total": _time(user + system),
            "user": _time(user),
        },
        "exclusive": job.exclusive,
        "exit_code": _exit(job.wstatus),
        "extra": job.extra,
        "failed_node": "",
        "flags": [],
        "group": job.group_name,
        "het": {
            "job_id": job.het_job_id,
            "job_offset": _number(job.het_offset if job.het_job_id else None),
        },
        "job_id": job.job_id,
        "name": job.name,
        "licenses": job.licenses,
        "mcs": {"label": ""},
        "nodes": job.nodes or "None assigned",
        "oversubscribe": job.oversubscribe,
        "partition": job.partition_name,
        "hold": job.reason in ("JobHeldUser", "JobHeldAdmin"),
        "priority": _number(job.priority),
        "qos": job.qos,
        "qosreq": "",
        "required": {
            "CPUs": job.req_cpus,
            "memory_per_cpu": _number(per_cpu or None),
            "memory_per_node": _number(None),
        },
        "kill_request_user": "" if job.cancelled_by < 0 else _name(job.cancelled_by),
        "restart_cnt": job.restarts,
        "reservation": {"id": 0, "name": job.reservation, "requested": ""},
        "script": "",
        "segment_size": 0,
        "original_sluid": job.sluid,
        "stdin_expanded": expand_pattern(job, job.std_in),
        "stdout_expanded": expand_pattern(job, job.std_out),
        "stderr_expanded": expand_pattern(job, job.std_err),
        "stdout": job.std_out,
        "stderr": job.std_err,
        "stdin": job.std_in,
        "state": {"current": [job.state], "reason": job.reason},
        "steps": [_step(job, step) for step in job.steps],
        "submit_line": job.submit_line,
        "tres": {"allocated": _tres(job.alloc_tres), "requested": _tres(job.req_tres)},
        "used_gres": "",
        "user": job.user_name,
        "wckey": {"wckey": job.wckey, "flags": []},
        "working_directory": job.work_dir,
    }


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _step(job: AcctJob, step: AcctStep) -> dict[str, object]:
    names = [step.nodes] if step.nnodes == 1 else _expand(step.nodes)
    return {
        "time": {
            "elapsed": step.elapsed_s,
            "end": _number(step.end or None),
            "start": _number(step.start or None),
            "suspended": step.suspended_s,
            "system": _time(step.system_ms),
            "limit": _number(None, infinite=True),
            "total": _time(step.user_ms + step.system_ms),
            "user": _time(step.user_ms),
        },
        "exit_code": _exit(step.wstatus),
        "nodes": {"count": step.nnodes, "range": step.nodes, "list": names},
        "tasks": {"count": step.ntasks},
        "pid": "",
        "state": [step.state],
        "step": {"id": f"{job.job_id}.{step.step}", "name": step.name},
        "statistics": {"CPU": {"actual_frequency": 0}},
        "task": {"distribution": step.layout or "Unknown"},
        "tres": {"allocated": _tres(step.alloc_tres)},
    }


def _expand(nodes: str) -> list[str]:
    from gsched.hostlist import HostlistError, expand

    try:
        return expand(nodes) if nodes else []
    except HostlistError:
        return [nodes]
