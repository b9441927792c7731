"""Temporary: order of a step's supervisor until LAYOUT pushes."""

from __future__ import annotations

from typing import Any

from gsched.environment import parse


def step_order(
    launch: Any,
    job: Any,
    config: Any,
    node: str,
    grant: Any,
    *,
    owner: Any,
    groups: str,
    rlimits: Any,
    now: int,
) -> list[tuple[str, Any]]:
    spec, step = launch.spec, launch.step
    share = step.nodes[launch.index]
    env = parse(launch.environment)
    own = {
        b"SLURM_JOB_ID": str(step.job_id).encode(),
        b"SLURM_STEP_ID": str(step.id).encode(),
        b"SLURM_NTASKS": str(step.ntasks).encode(),
        b"SLURMD_NODENAME": node.encode(),
        b"SLURM_NODEID": str(launch.index).encode(),
        b"SLURM_CONF": config.path.encode(),
    }
    env |= own
    env |= {k.encode(): v.encode() for k, v in grant.variables.items()}
    items: list[tuple[str, Any]] = [("arg", a) for a in spec.argv]
    items += [
        ("uid", owner[0]),
        ("gid", owner[1]),
        ("umask", f"{spec.umask:o}"),
        ("cwd", spec.cwd),
        ("killwait", config.kill_wait),
        ("label", f"STEP {step.job_id}.{step.id} ON {node}"),
        ("pid_env", "SLURM_TASK_PID"),
        ("ntasks", step.ntasks),
        ("nnodes", len(step.nodes)),
        ("io", f"{launch.callback.host}:{launch.callback.port}"),
        ("io_secret", launch.callback.secret.hex()),
        ("io_index", launch.index),
        ("stdin_task", spec.stdin_task),
    ]
    if groups:
        items.append(("groups", groups))
    items += rlimits
    items += [("cgroup_procs", p) for p in grant.cgroup_procs]
    items += [("env", k + b"=" + v) for k, v in env.items()]
    for local, task in enumerate(share.tasks):
        items += [
            ("task", task),
            ("tenv", f"SLURM_PROCID={task}"),
            ("tenv", f"SLURM_LOCALID={local}"),
        ]
        items += [("tstdin", spec.std_in), ("tstdout", spec.std_out), ("tstderr", spec.std_err)]
    return items
