"""From a job's record to what accounting shows of it."""

from __future__ import annotations

import msgspec

from gsched import tres
from gsched.hostlist import compress
from gsched.model import Hold, Job, JobSpec, JobState
from gsched.model.acct import TOGETHER, AcctJob, AcctStep, AcctSteps
from gsched.model.policy import Tres

#: ends that say nothing about the script: the job's own exit code is 0:0
_NOT_BY_ITSELF = frozenset(
    {
        JobState.CANCELLED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
    }
)
#: what Slurm records for a step that ran out of memory: 0:125
_OOM_WSTATUS = 125
_json = msgspec.json.Encoder().encode


def row(job: Job, cluster: str, now: int, *, contain: bool = False, reason: str = "") -> AcctJob:
    """The accounting record of a job as it stands at `now`.

    `contain`: the cluster has PrologFlags=Contain (steps `.extern`); `reason`: the scheduler's
    word for why it waits. Cost: its nodes.
    """
    spec, shape = job.spec, job.spec.shape
    together = bool(job.array_pending) and job.array_task_id < 0
    end = job.end_time if job.state.finished else 0
    elapsed = _elapsed(job, end or now)
    started = bool(job.start_time) and job.state != JobState.PENDING
    alloc = job.alloc if started else []
    found = AcctJob(
        job_id=job.id,
        restarts=job.restarts,
        begun=job.eligible_time if job.restarts and job.eligible_time else job.submit_time,
        group_id=job.het_job_id or job.array_job_id or job.id,
        sub_id=job.het_offset or (TOGETHER if together else max(job.array_task_id, 0)),
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        array_tasks=job.array_pending if together else "",
        array_throttle=job.array_throttle,
        het_job_id=job.het_job_id,
        het_offset=job.het_offset,
        sluid=job.sluid,
        cluster=cluster,
        uid=job.uid,
        gid=job.gid,
        user_name=job.user,
        group_name=job.group,
        account=spec.account,
        wckey=spec.wckey,
        name=spec.name,
        partition_name=(",".join(spec.partitions) if not started else "") or job.partition,
        qos=spec.qos,
        reservation=spec.reservation,
        licenses=spec.licenses,
        constraints=shape.features,
        comment=spec.comment,
        admin_comment=spec.admin_comment,
        system_comment=job.system_comment,
        extra=spec.extra,
        container=spec.container,
        state=_state(job),
        cancelled_by=job.cancelled_by if job.state == JobState.CANCELLED else -1,
        reason="None" if started else reason or _reason(job),
        wstatus=_wstatus(job),
        derived_wstatus=job.derived_wstatus,
        priority=job.priority,
        submit=job.submit_time,
        eligible=_eligible(job),
        start=job.start_time if started else 0,
        end_time=end,
        elapsed_s=elapsed if started else 0,
        suspended_s=max((end or now) - job.start_time - elapsed, 0) if started else 0,
        time_limit=job.time_limit,
        req_cpus=tres.asked_cpus(shape),
        req_nodes=tres.asked_nodes(shape),
        req_mem_mb=tres.asked_memory(shape, alloc),
        alloc_cpus=sum(part.cpus for part in alloc),
        alloc_nodes=len(alloc),
        nodes=compress(part.node for part in alloc) if alloc else "",
        exclusive={1: "NODE", 2: "USER", 3: "MCS"}.get(shape.exclusive, "NO"),
        oversubscribe="YES" if shape.oversubscribe else "NO",
        std_in=_file(spec, spec.std_in, "/dev/null"),
        std_out=_file(
            spec, spec.std_out, "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"
        ),
        std_err=_file(spec, spec.std_err, ""),
        submit_line=spec.submit_line,
        work_dir=spec.work_dir,
        assoc_id=job.assoc_id,
        uncertain=int(bool(started and job.last_report)),
        last_report=job.last_report if started else 0,
    )
    found.req_tres = _billed(tres.requested(spec, alloc, others=False), job.billing_asked)
    if alloc:
        found.alloc_tres = _billed(tres.allocated(job, others=False), job.billing)
        found.steps = _steps(job, found, contain)
    return found


def _billed(counts: Tres, billing: int) -> str:
    return tres.sorted_text(counts | {"billing": counts["cpu"] if billing < 0 else billing})


def clean(found: AcctJob | AcctSteps) -> None:
    """Takes out the one character that no SQL text takes."""
    # A look at each text costs a hundred times as much as this one.
    if b"\\u0000" not in _json(found):
        return
    for record in (found, *found.steps):
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if isinstance(value, str) and "\0" in value:
                setattr(record, name, value.replace("\0", "\N{REPLACEMENT CHARACTER}"))


def stripped(found: AcctJob | AcctSteps) -> AcctJob | AcctSteps:
    """With every text reduced to 200 characters of ASCII: what any database can hold. Of a job
    without its steps."""

    def short(record: msgspec.Struct) -> None:
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if isinstance(value, str):
                setattr(record, name, value.encode("ascii", "replace").decode("ascii")[:200])

    copy = msgspec.structs.replace(found, steps=[])
    if isinstance(found, AcctSteps):
        copy.steps = [msgspec.structs.replace(step) for step in found.steps]
        for step in copy.steps:
            short(step)
    short(copy)
    return copy


def _file(spec: JobSpec, text: str, default: str) -> str:
    """A file of the script's; srun and salloc have none."""
    return "" if spec.interactive else text or default


# ---- state -----------------------------------------------------------------------------------


def _state(job: Job) -> str:
    # Another try follows what nobody meant as an end.
    if job.requeue_after and job.state in (JobState.CANCELLED, JobState.BOOT_FAIL):
        return "REQUEUED"
    return job.state.name


def _eligible(job: Job) -> int:
    # A job that is held, or was until its end, could never have run.
    if not job.eligible_time or (job.held != Hold.NONE and not job.start_time):
        return 0
    return max(job.eligible_time, job.spec.begin)


def _wstatus(job: Job) -> int:
    if job.state == JobState.OUT_OF_MEMORY:
        return _OOM_WSTATUS
    return 0 if not job.finished or job.state in _NOT_BY_ITSELF else job.wstatus


def _reason(job: Job) -> str:
    if job.state == JobState.PENDING or (job.finished and not job.start_time):
        if job.reason:
            return job.reason
        if job.held == Hold.USER:
            return "JobHeldUser"
        if job.held == Hold.ADMIN:
            return "JobHeldAdmin"
        if job.deps:
            return "Dependency"
    return "None"


def _elapsed(job: Job, until: int) -> int:
    if not job.start_time:
        return 0
    if job.state == JobState.SUSPENDED:
        return job.pre_suspend_s
    if job.suspend_time:
        return max(until - job.suspend_time + job.pre_suspend_s, 0)
    return max(until - job.start_time, 0)


# ---- steps -----------------------------------------------------------------------------------


def _steps(job: Job, found: AcctJob, contain: bool) -> list[AcctStep]:
    """The batch step, which runs on the first node, and the one that keeps the job's shell of
    processes where there is one."""
    first = job.alloc[0]
    gpus = first.whole_gpus
    kinds = dict.fromkeys(job.gpu_types, gpus) if len(job.gpu_types) == 1 and gpus else {}
    batch = AcctStep(
        "batch",
        "batch",
        _step_state(job),
        _OOM_WSTATUS if job.state == JobState.OUT_OF_MEMORY else job.wstatus if job.finished else 0,
        found.start,
        found.end_time,
        found.elapsed_s,
        found.suspended_s,
        first.cpus,
        1,
        1,
        first.node,
        tres.sorted_text(tres.held([first], kinds, job.spec.shape.share)),
        job.usage.user_ms,
        job.usage.system_ms,
        job.usage.max_rss_kb if job.finished and job.usage.max_rss_kb else -1,
        first.node if job.finished and job.usage.max_rss_kb else "",
        "Unknown",
    )
    # The script runs in the first component of a heterogeneous job only; srun and salloc have none.
    # While PrologSlurmctld runs (or where that was all that ran) there is none yet.
    batches = [] if job.het_offset or job.spec.interactive or job.prolog_due else [batch]
    if not contain:
        return batches
    extern = AcctStep(
        "extern",
        "extern",
        "COMPLETED" if job.finished else job.state.name,
        0,
        found.start,
        found.end_time,
        found.elapsed_s,
        found.suspended_s,
        found.alloc_cpus,
        found.alloc_nodes,
        found.alloc_nodes,
        found.nodes,
        found.alloc_tres,
        layout="Block",
    )
    return [*batches, extern]


def _step_state(job: Job) -> str:
    if not job.finished:
        return job.state.name
    if job.state == JobState.OUT_OF_MEMORY:
        return "OUT_OF_MEMORY"
    if job.state == JobState.BOOT_FAIL:
        return "CANCELLED"
    if job.state == JobState.CANCELLED and not job.wstatus and not job.usage.max_rss_kb:
        return "CANCELLED"  # it never ran: whatever runs has memory
    if job.state == JobState.NODE_FAIL and not job.wstatus:
        return job.state.name
    if job.wstatus & 0x7F:
        return "CANCELLED"
    return "FAILED" if job.wstatus else "COMPLETED"
