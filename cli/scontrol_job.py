"""`scontrol show job`: everything about a job as text."""

from __future__ import annotations

from collections.abc import Mapping

from gsched.hostlist import compress
from gsched.model.job import NodeAlloc
from gsched.model.mailtype import MAIL_WORDS
from gsched_cli.fields_job import accrue_time
from gsched_cli.jobview import JobView, cpu_id_text, exit_text, gres_text
from gsched_cli.text import duration, megabytes, or_null, timestamp

#: mail types in the order Slurm lists them
_MAIL = ("INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT", "TIME_LIMIT_50") + (
    *("TIME_LIMIT_80", "TIME_LIMIT_90", "TIME_LIMIT", "ARRAY_TASKS"),
)


def job_lines(view: JobView, env: Mapping[str, str], now: float, detail: int) -> list[str]:
    """The lines of one job, without indentation and line ends. `detail` is how often -d was
    given."""

    def when(moment: int, none: str = "Unknown") -> str:
        return timestamp(moment, env, now, none)

    job, spec, shape = view.job, view.job.spec, view.job.spec.shape
    lines = [_title(view)]
    if job.het_job_id:
        lines.append(f"HetJobIdSet={view.het_ids}")
    if detail:
        lines.append(f"SLUID={job.sluid}")
    user, group = job.user or str(job.uid), job.group or str(job.gid)
    limit = duration(job.time_limit) if job.time_limit else "UNLIMITED"
    least = duration(spec.time_min) if spec.time_min else "N/A"
    requeue = int(spec.requeue is not False)
    lines += [
        f"UserId={user}({job.uid}) GroupId={group}({job.gid}) MCS_label=N/A",
        f"Priority={job.priority} Nice={spec.nice} Account={or_null(spec.account)} "
        f"QOS={or_null(spec.qos)}",
        f"JobState={view.state} Reason={view.reason.replace(' ', '_')} "
        f"Dependency={or_null(view.dependency)}",
        f"Requeue={requeue} Restarts={job.restarts} BatchFlag={int(view.batch)} "
        f"Reboot={int(spec.reboot)} ExitCode={view.exit_text}",
    ]
    if detail:
        lines.append(f"DerivedExitCode={exit_text(job.derived_wstatus)}")
    lines += [
        f"RunTime={duration(view.elapsed)} TimeLimit={limit} TimeMin={least}",
        f"SubmitTime={when(job.submit_time)} EligibleTime={when(job.eligible_time)}",
        f"AccrueTime={when(accrue_time(view))}",
        f"StartTime={when(view.start)} EndTime={when(view.end)} "
        f"Deadline={when(spec.deadline, 'N/A')}",
    ]
    if not view.pending:
        eligible = when(job.preempt_eligible or job.start_time)
        preempted = when(job.preempt_time, "None")
        lines.append(f"PreemptEligibleTime={eligible} PreemptTime={preempted}")
    lines += [
        f"SuspendTime={when(job.suspend_time, 'None')} SecsPreSuspend={job.pre_suspend_s} "
        f"LastSchedEval={when(job.last_sched_eval)} Scheduler=Main",
        f"Partition={view.partition} AllocNode:Sid={spec.alloc_node}:{spec.alloc_sid}",
        f"ReqNodeList={or_null(compress(shape.nodelist))} "
        f"ExcNodeList={or_null(compress(shape.exclude))}",
        f"NodeList={view.node_text}",
    ]
    if view.expected_nodes:
        lines.append(f"SchedNodeList={view.expected_nodes}")
    if view.batch_host:
        lines.append(f"BatchHost={view.batch_host}")
    lines += _resources(view)
    if detail and view.shares:
        lines += _details(view)
    field, mb = view.memory_field
    disk = megabytes(shape.tmp_disk_mb)
    lines += [
        f"MinCPUsNode={view.min_cpus_node} {field}={megabytes(mb)} MinTmpDiskNode={disk}",
        f"Features={or_null(shape.features)} DelayBoot={duration(spec.delay_boot)}",
    ]
    if view.reservation:
        lines.append(f"Reservation={view.reservation}")
    lines += [
        f"OverSubscribe={view.oversubscribe} Exclusive={view.exclusive} "
        f"Contiguous={int(shape.contiguous)} Licenses={or_null(spec.licenses)} "
        f"LicensesAlloc={or_null(job.licenses_alloc)} Network={or_null(spec.network)}",
        f"Command={or_null(view.command)}",
        f"SubmitLine={spec.submit_line}",
        f"WorkDir={spec.work_dir}",
    ]
    for name, text in (
        ("AdminComment", spec.admin_comment),
        ("SystemComment", job.system_comment),
        ("Comment", spec.comment),
    ):
        if text:
            lines.append(f"{name}={text}")
    if view.batch:
        lines += [f"StdErr={view.std_err}", f"StdIn={view.std_in}", f"StdOut={view.std_out}"]
    if spec.switches:
        lines.append(f"Switches={spec.switches}@{duration(spec.switch_wait)}")
    if spec.spread:
        lines.append("SpreadJob=Yes")
    if shape.gres_binding == 1:
        lines.append("GresEnforceBind=Yes")
    if shape.gres_binding == 2 or shape.one_island:
        # Slurm has no words for these.
        flags = {"disable-binding": shape.gres_binding == 2, "one-island": shape.one_island}
        lines.append("GresFlags=" + ",".join(name for name, on in flags.items() if on))
    for name, text in (
        ("CpusPerTres", view.cpus_per_tres),
        ("MemPerTres", view.mem_per_tres),
        ("TresBind", view.tres_per("bind") or spec.gpu_bind),
        ("TresFreq", view.tres_per("freq") or spec.gpu_freq),
        ("TresPerJob", view.tres_per("per_job")),
        ("TresPerNode", view.tres_per("per_node")),
        ("TresPerSocket", view.tres_per("per_socket")),
        ("TresPerTask", view.tres_per("per_task")),
    ):
        if text:
            lines.append(f"{name}={text}")
    if shape.ntasks_per_gpu:
        lines.append(f"NtasksPerTRES={shape.ntasks_per_gpu}")
    if spec.mail_type:
        kinds = ",".join(name for name in _MAIL if spec.mail_type & MAIL_WORDS[name])
        lines.append(f"MailUser={spec.mail_user or user} MailType={kinds}")
    return lines


def _title(view: JobView) -> str:
    job = view.job
    text = f"JobId={job.id}"
    if view.is_array:
        text += f" ArrayJobId={view.array_job_id} ArrayTaskId={view.task_text}"
        if job.array_throttle and view.together:
            text += f" ArrayTaskThrottle={job.array_throttle}"
    if job.het_job_id:
        text += f" HetJobId={job.het_job_id} HetJobOffset={job.het_offset}"
    return f"{text} JobName={job.spec.name}"


def _star(n: int) -> str:
    return str(n) if n else "*"


def _resources(view: JobView) -> list[str]:
    job, shape = view.job, view.job.spec.shape
    # What never got as far as an allocation never had tasks.
    never = job.state.finished and not job.alloc and not job.last_nodes
    tasks = "N/A" if never else str(view.task_count)
    core_spec = job.spec.core_spec or job.spec.thread_spec
    core_text = f"{job.spec.thread_spec}T" if job.spec.thread_spec else str(core_spec or "*")
    return [
        f"NumNodes={view.node_count_text} NumCPUs={view.cpu_count} NumTasks={tasks} "
        f"CPUs/Task={max(shape.cpus_per_task, 1)} "
        f"ReqB:S:C:T=0:0:{_star(shape.cores_per_socket)}:{_star(shape.threads_per_core)}",
        f"ReqTRES={view.requested_tres}",
        f"AllocTRES={or_null(view.allocated_tres)}",
        f"Socks/Node={_star(shape.sockets_per_node)} "
        f"NtasksPerN:B:S:C={shape.ntasks_per_node}:0:{_star(shape.ntasks_per_socket)}:"
        f"{_star(shape.ntasks_per_core)} CoreSpec={core_text}",
    ]


def _details(view: JobView) -> list[str]:
    """What each node gives; alike neighbours in one line."""
    total = sum(share.whole_gpus for share in view.shares)
    parts = sum(share.shares for share in view.shares)
    name = view.job.spec.shape.share
    text = f"{name}:{parts}" if parts else gres_text(total, view.job.gpu_types)
    lines = [f"JOB_GRES={or_null(text)}"]
    kinds = [kind for kind, n in view.job.gpu_types.items() if n]
    kind = kinds[0] if len(kinds) == 1 else ""
    group: list[str] = []
    last = ""
    for share in view.shares:
        # Of a job that has ended Slurm tells the CPUs and the memory alone.
        text = _share_text(share, kind, name, gpus=not view.job.state.finished)
        if group and text != last:
            lines.append(f"  Nodes={compress(group)} {last}")
            group = []
        group.append(share.node)
        last = text
    lines.append(f"  Nodes={compress(group)} {last}")
    return lines


def _share_text(share: NodeAlloc, kind: str, parts: str, *, gpus: bool) -> str:
    gres = ""
    if share.gpus and gpus:
        name = f"gpu:{kind}" if kind else "gpu"
        if share.shares:
            name = parts
        count = share.shares or share.gpus.bit_count()
        gres = f"{name}:{count}(IDX:{cpu_id_text(share.gpus)})"
    return f"CPU_IDs={cpu_id_text(share.cpu_ids)} Mem={share.mem_mb} GRES={gres}"
