"""The table of a job for `--json` and `--yaml`, and that of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gsched.hostlist import compress
from gsched.model.job import Job, NodeAlloc
from gsched.model.mailtype import MAIL_WORDS
from gsched.model.states import Hold, JobState
from gsched_cli.dump import (
    INFINITE,
    Asked,
    Made,
    Many,
    Maybe,
    Num,
    Plain,
    Read,
    Shape,
    number,
    wait_status,
)
from gsched_cli.fields_job import accrue_time
from gsched_cli.jobview import JobView, cpu_id_text

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model import NodeAlloc
    from gsched_cli.stepview import StepView

#: what Slurm has in these two where neither was asked for
_NO_THREAD_SPEC = 32766
_SHARED = {1: ("none",), 2: ("user",), 3: ("mcs",)}


def job_document(asked: Asked, views: Sequence[JobView], now: float) -> str:
    """All that is written of these jobs. Cost: about 0.1 ms a job."""
    return asked.document(
        jobs=asked.records(job_shape(asked.config), views),
        last_backfill=number(asked.reader.status().last_pass),
        last_update=number(int(now)),
    )


def step_document(asked: Asked, views: Sequence[StepView]) -> str:
    """The same of steps."""
    return asked.document(steps=asked.records(step_shape(asked.config), views))


def job_shape(config: Config) -> Shape:
    """The table of a JobView, in Slurm's order."""
    unset = number(None)
    return {
        "account": Read(lambda v: v.job.spec.account),
        "accrue_time": Num(lambda v: accrue_time(v)),
        "admin_comment": Read(lambda v: v.job.spec.admin_comment),
        "allocating_node": Read(lambda v: v.job.spec.alloc_node),
        "array_job_id": Num(lambda v: v.job.array_job_id),
        "array_task_id": Num(lambda v: _unless(-1, v.job.array_task_id)),
        "array_max_tasks": Num(lambda v: v.job.array_throttle),
        "array_task_string": Read(lambda v: v.task_text if v.together else ""),
        "association_id": Read(lambda v: v.job.assoc_id),
        "batch_features": Read(lambda v: v.job.spec.batch_features),
        "batch_flag": Read(lambda v: v.batch),
        "batch_host": Read(lambda v: v.batch_host),
        "flags": Read(_flags),
        "burst_buffer": Read(lambda v: v.job.spec.burst_buffer),
        "burst_buffer_state": "",
        "cluster": config.cluster_name,
        "cluster_features": Read(lambda v: v.job.spec.cluster_features),
        "command": Read(lambda v: v.command),
        "comment": Read(lambda v: v.job.spec.comment),
        "container": Read(lambda v: v.job.spec.container),
        "container_id": "",
        "container_type": "",
        "contiguous": Read(lambda v: v.job.spec.shape.contiguous),
        "core_spec": Read(lambda v: v.job.spec.core_spec),
        "thread_spec": Read(_thread_spec),
        "cores_per_socket": Num(lambda v: v.job.spec.shape.cores_per_socket or None),
        "billable_tres": Made(_billable, _real),
        "cpus_per_task": Num(lambda v: max(v.job.spec.shape.cpus_per_task, 1)),
        "cpu_frequency_minimum": unset,
        "cpu_frequency_maximum": unset,
        "cpu_frequency_governor": unset,
        "cpus_per_tres": Read(lambda v: v.cpus_per_tres),
        "cron": "",
        "deadline": Num(lambda v: v.job.spec.deadline),
        "delay_boot": Num(lambda v: v.job.spec.delay_boot),
        "dependency": Read(lambda v: v.dependency),
        "derived_exit_code": Made(lambda v: v.job.derived_wstatus, wait_status),
        "eligible_time": Num(lambda v: v.job.eligible_time),
        "end_time": Num(lambda v: v.end),
        "excluded_nodes": Read(lambda v: _names(v.job.spec.shape.exclude)),
        "exit_code": Made(lambda v: v.job.wstatus, wait_status),
        "extra": Read(lambda v: v.job.spec.extra),
        "failed_node": "",
        "features": Read(lambda v: v.job.spec.shape.features),
        "federation_origin": "",
        "federation_siblings_active": "",
        "federation_siblings_viable": "",
        "gres_detail": Read(_gres_detail),
        "group_id": Read(lambda v: v.job.gid),
        "group_name": Read(lambda v: v.job.group or str(v.job.gid)),
        "het_job_id": Num(lambda v: v.job.het_job_id),
        "het_job_id_set": Read(lambda v: v.het_ids),
        "het_job_offset": Num(lambda v: v.job.het_offset),
        "job_id": Read(lambda v: v.job.id),
        "job_resources": _resources(config),
        "job_size_str": [],
        "job_state": Read(_states),
        "last_sched_evaluation": Num(lambda v: v.job.last_sched_eval),
        "licenses": Read(lambda v: v.job.spec.licenses),
        "licenses_allocated": Read(lambda v: v.job.licenses_alloc),
        "mail_type": Read(_mail),
        "mail_user": Read(lambda v: v.job.spec.mail_user or v.job.user),
        "max_cpus": number(0),
        "max_nodes": Num(lambda v: v.most_nodes if v.open_nodes else 0),
        "mcs_label": "",
        "memory_per_tres": Read(lambda v: v.mem_per_tres),
        "memory_update_delay": 0,
        "memory_update_margin": 0,
        "name": Read(lambda v: v.job.spec.name),
        "network": Read(lambda v: v.job.spec.network),
        "nodes": Read(lambda v: v.node_text),
        "nice": Read(lambda v: v.job.spec.nice),
        "tasks_per_core": Num(lambda v: v.job.spec.shape.ntasks_per_core or INFINITE),
        "tasks_per_tres": Num(lambda v: v.job.spec.shape.ntasks_per_gpu),
        "tasks_per_node": Num(lambda v: v.job.spec.shape.ntasks_per_node),
        "tasks_per_socket": Num(lambda v: v.job.spec.shape.ntasks_per_socket or INFINITE),
        "tasks_per_board": number(0),
        "cpus": Num(lambda v: v.cpu_count),
        "node_count": Num(lambda v: v.node_count),
        "tasks": Num(lambda v: v.task_count),
        "partition": Read(lambda v: v.partition),
        "prefer": Read(lambda v: v.job.spec.prefer),
        "memory_per_cpu": Num(lambda v: _memory(v, "MinMemoryCPU")),
        "memory_per_node": Num(lambda v: _memory(v, "MinMemoryNode")),
        "minimum_cpus_per_node": Num(lambda v: v.min_cpus_node),
        "minimum_tmp_disk_per_node": Num(lambda v: v.job.spec.shape.tmp_disk_mb),
        "preempt_time": number(0),
        "preemptable_time": Num(lambda v: 0 if v.pending else v.job.start_time),
        "pre_sus_time": Num(lambda v: v.job.pre_suspend_s),
        "hold": Read(lambda v: v.job.held is not Hold.NONE),
        "priority": Num(lambda v: v.job.priority),
        "priority_by_partition": [],
        "profile": ["NOT_SET"],
        "qos": Read(lambda v: v.job.spec.qos),
        "reboot": Read(lambda v: v.job.spec.reboot),
        "required_nodes": Read(lambda v: _names(v.job.spec.shape.nodelist)),
        "required_switches": Read(lambda v: v.job.spec.switches),
        "requeue": Read(lambda v: v.job.spec.requeue is not False),
        "resize_time": number(0),
        "restart_cnt": Read(lambda v: v.job.restarts),
        "resv_name": Read(lambda v: v.reservation),
        "scheduled_nodes": Read(lambda v: v.expected_nodes),
        "segment_size": Read(lambda v: v.job.spec.shape.segment),
        "selinux_context": "",
        "shared": Read(_shared),
        "step_id": {
            "sluid": Read(lambda v: v.job.sluid),
            "job_id": Num(lambda v: v.job.id),
            "step_het_component": unset,
            "step_id": "entire",
        },
        "sockets_per_board": 0,
        "sockets_per_node": Num(lambda v: v.job.spec.shape.sockets_per_node or None),
        "start_time": Num(lambda v: v.start),
        "state_description": Read(lambda v: v.reason if ", " in v.reason else ""),
        "state_reason": Read(lambda v: v.reason.partition(", ")[0]),
        "standard_input": Read(lambda v: v.std_in if v.batch else ""),
        "standard_output": Read(lambda v: v.std_out if v.batch else ""),
        "standard_error": Read(lambda v: v.std_err),
        "stdin_expanded": Read(lambda v: v.std_in if v.batch else ""),
        "stdout_expanded": Read(lambda v: v.std_out if v.batch else ""),
        "stderr_expanded": Read(lambda v: v.std_err),
        "submit_time": Num(lambda v: v.job.submit_time),
        "submit_line": Read(lambda v: v.job.spec.submit_line),
        "suspend_time": Num(lambda v: v.job.suspend_time),
        "system_comment": Read(lambda v: v.job.system_comment),
        "time_limit": Num(lambda v: minutes(v.job.time_limit)),
        "time_minimum": Num(lambda v: (v.job.spec.time_min or 0) // 60),
        "threads_per_core": Num(lambda v: v.job.spec.shape.threads_per_core or None),
        "tres_bind": Read(lambda v: v.tres_per("bind") or v.job.spec.gpu_bind),
        "tres_freq": Read(lambda v: v.tres_per("freq") or v.job.spec.gpu_freq),
        "tres_per_job": Read(lambda v: v.tres_per("per_job")),
        "tres_per_node": Read(lambda v: v.tres_per("per_node")),
        "tres_per_socket": Read(lambda v: v.tres_per("per_socket")),
        "tres_per_task": Read(lambda v: v.tres_per("per_task")),
        "tres_req_str": Read(lambda v: v.requested_tres),
        "tres_alloc_str": Read(lambda v: v.allocated_tres),
        "user_id": Read(lambda v: v.job.uid),
        "user_name": Read(lambda v: v.job.user or str(v.job.uid)),
        "maximum_switch_wait_time": Read(lambda v: v.job.spec.switch_wait),
        "wckey": Read(lambda v: v.job.spec.wckey),
        "current_working_directory": Read(lambda v: v.job.spec.work_dir),
    }


def minutes(seconds: int) -> float:
    """A time limit."""
    return seconds // 60 if seconds else INFINITE


def _unless(none: int, value: int) -> int | None:
    return None if value == none else value


def _names(names: tuple[str, ...]) -> str:
    return compress(names) if names else ""


def _flags(view: JobView) -> tuple[str, ...]:
    """Of Slurm's words those that are known to be true."""
    job, spec = view.job, view.job.spec
    found = []
    if job.start_time and not view.pending:
        found += ["ACCRUE_COUNT_CLEARED", "JOB_WAS_RUNNING"]
    if spec.kill_on_invalid_dep is not None:
        found.append(("" if spec.kill_on_invalid_dep else "NO_") + "KILL_INVALID_DEPENDENCY")
    if job.het_job_id:
        found.append("HETEROGENEOUS_JOB")
    if spec.shape.gres_binding == 1:
        found.append("GRES_BINDING_ENFORCED")
    if spec.shape.spread:
        found.append("SPREAD_JOB")
    if spec.shape.use_min_nodes:
        found.append("PREFER_MINIMUM_NODE_COUNT")
    if not spec.partitions:
        found.append("USING_DEFAULT_PARTITION")
    if not spec.wckey:
        found.append("USING_DEFAULT_WCKEY")
    if view.pending and not job.eligible_time:
        found.append("DEPENDENT")
    return (*found, "PARTITION_ASSIGNED")


def _thread_spec(view: JobView) -> int:
    spec = view.job.spec
    return spec.thread_spec or (0 if spec.core_spec else _NO_THREAD_SPEC)


def _billable(view: JobView) -> int | None:
    job = view.job
    if view.pending or not job.alloc:
        return None
    return view.cpu_count if job.billing < 0 else job.billing


def _real(value: int | None) -> dict[str, object]:
    return number(value) | {"number": float(value or 0)}


def _states(view: JobView) -> tuple[str, ...]:
    base, shown = view.job.state.name, view.state
    return (base,) if shown == base else (base, shown)


def _mail(view: JobView) -> tuple[str, ...]:
    mask = view.job.spec.mail_type
    if not mask:
        return ()
    return tuple(name for name, bit in MAIL_WORDS.items() if mask & bit and name != "ALL")


def _memory(view: JobView, field: str) -> int | None:
    mine, mb = view.memory_field
    return mb if mine == field else None


def _shared(view: JobView) -> tuple[str, ...]:
    shape = view.job.spec.shape
    return _SHARED.get(shape.exclusive, ("oversubscribe",) if shape.oversubscribe else ())


# ---- what it has -----------------------------------------------------------------------------


def _gres_detail(view: JobView) -> tuple[str, ...]:
    """The GPUs of each node."""
    job = view.job
    if job.state.finished:
        return ()
    return tuple(gres_of(job, share) for share in view.shares if share.gpus)


def gres_of(job: Job, share: NodeAlloc) -> str:
    """The GPUs of one node, with their numbers: "gpu:h100:2(IDX:0-1)"."""
    kinds = [kind for kind, n in job.gpu_types.items() if n]
    kind = kinds[0] if len(kinds) == 1 else ""
    name = f"gpu:{kind}" if kind else "gpu"
    if share.shares:
        name = job.spec.shape.share
    count = share.shares or share.gpus.bit_count()
    return f"{name}:{count}(IDX:{cpu_id_text(share.gpus)})"


#: place of a node among those of the job, and what the job has of it
_Share = tuple[int, NodeAlloc]


def _resources(config: Config) -> Maybe:
    def has(view: JobView) -> JobView | None:
        pending = view.job.state is JobState.PENDING
        return None if pending or view.job.state.finished or not view.shares else view

    def cores(share: _Share) -> tuple[int, int, int, int] | None:
        conf = config.nodes.get(share[1].node)
        if conf is None:
            return None
        return share[1].cpu_ids, conf.sockets, conf.cores_per_socket, conf.threads_per_core

    return Maybe(
        has,
        {
            "select_type": list(config.select_type_parameters),
            "nodes": {
                "count": Read(lambda v: len(v.shares)),
                "select_type": ["ONE_ROW"],
                "list": Read(lambda v: v.node_text),
                "whole": Read(lambda v: v.job.spec.shape.exclusive == 1),
                "allocation": Many(
                    lambda v: list(enumerate(v.shares)),
                    {
                        "index": Read(lambda share: share[0]),
                        "name": Read(lambda share: share[1].node),
                        "cpus": {"count": Read(lambda share: share[1].cpus), "used": 0},
                        "memory": {"used": 0, "allocated": Read(lambda share: share[1].mem_mb)},
                        "sockets": Made(cores, lambda key: _sockets(*key) if key else []),
                    },
                ),
            },
            "cpus": Read(lambda v: v.cpu_count),
            "threads_per_core": Num(lambda v: v.job.spec.shape.threads_per_core or None),
        },
    )


def _sockets(bits: int, sockets: int, cores: int, threads: int) -> list[object]:
    """Which cores of a node are held."""
    one = (1 << threads) - 1

    def word(place: int) -> str:
        return "ALLOCATED" if bits >> place * threads & one else "UNALLOCATED"

    return [
        {
            "index": socket,
            "cores": [
                {"index": core, "status": [word(socket * cores + core)]} for core in range(cores)
            ],
        }
        for socket in range(sockets)
    ]


# ---- steps -----------------------------------------------------------------------------------


def step_shape(config: Config) -> Shape:
    """The table of a StepView: as a step of `sacct --json` as far as both have it."""
    return {
        "time": {
            "elapsed": Read(lambda v: v.elapsed),
            "end": number(None),
            "start": Num(lambda v: v.start),
            "limit": Num(lambda v: minutes(v.time_limit)),
        },
        "cluster": config.cluster_name,
        "cpus": Read(lambda v: v.cpus),
        "job_id": Read(lambda v: v.job.id),
        "name": Read(lambda v: v.name),
        "nodes": {
            "count": Read(lambda v: len(v.nodes)),
            "range": Read(lambda v: v.node_text),
            "list": Read(lambda v: tuple(v.nodes)),
        },
        "partition": Read(lambda v: v.job.partition),
        "srun": Plain(_srun),
        "state": Read(lambda v: (v.state,)),
        "step": {"id": Read(lambda v: v.id_text), "name": Read(lambda v: v.name)},
        "task": {"distribution": Read(lambda v: (v.step.layout if v.step else "") or "Unknown")},
        "tasks": {"count": Read(lambda v: v.ntasks)},
        "tres": {"allocated": Read(lambda v: v.tres)},
        "user_id": Read(lambda v: v.job.uid),
        "user_name": Read(lambda v: v.job.user or str(v.job.uid)),
    }


def _srun(view: StepView) -> Mapping[str, object]:
    text = view.step.srun if view.step is not None else ""
    host, _, pid = text.rpartition(":")
    return {"host": host, "pid": int(pid) if pid.isdigit() else 0}
