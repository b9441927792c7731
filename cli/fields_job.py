"""The fields of a job: what `squeue -o`, `-O` and `-S` know."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gsched.model.states import Hold
from gsched_cli.fields import Field, Table
from gsched_cli.jobview import JobView
from gsched_cli.text import elapsed, megabytes, or_null, timestamp

Read = Callable[[JobView], str]


def _or_na(text: str) -> str:
    return text or "N/A"


def _count(n: int) -> str:
    return str(n) if n else "N/A"


def _star(n: int) -> str:
    return str(n) if n else "*"


def _limit(view: JobView) -> str:
    limit = view.job.time_limit
    return elapsed(limit) if limit else "UNLIMITED"


def _left(view: JobView) -> str:
    left = view.time_left
    return "UNLIMITED" if left is None else elapsed(left)


def _memory(view: JobView) -> str:
    return megabytes(view.memory_field[1], view.convert)


def _sct(view: JobView) -> str:
    shape = view.job.spec.shape
    return ":".join(
        _star(n) for n in (shape.sockets_per_node, shape.cores_per_socket, shape.threads_per_core)
    )


def _core_spec(view: JobView) -> str:
    spec = view.job.spec
    return f"{spec.thread_spec}T" if spec.thread_spec else _count(spec.core_spec)


def _array_task_key(view: JobView) -> object:
    return view.job.array_task_id


def _id_key(view: JobView) -> object:
    return view.job.het_job_id or view.array_job_id, view.job.het_offset, view.job.array_task_id


def accrue_time(view: JobView) -> int:
    """Since when its age counts for its priority; 0 not yet."""
    job = view.job
    if job.held is not Hold.NONE or job.eligible_time <= 0 or not view.past(job.eligible_time):
        return 0
    if not view.batch and job.start_time and job.start_time <= job.submit_time:
        # It has started in the moment in which it came.
        return 0
    if view.reason.startswith("Dependency") or not job.accrue_time:
        return 0
    return max(job.eligible_time, job.accrue_time)


def job_table(env: Mapping[str, str], cluster: str = "") -> Table[JobView]:
    """The table of job fields. Times are formatted as SLURM_TIME_FORMAT in `env` says."""
    relative = env.get("SLURM_TIME_FORMAT", "").lower() == "relative"

    # Of the moments that jobs have many are the same. A table serves one command, in one time zone.
    known: dict[int, str] = {}

    def moment(view: JobView, at: int) -> str:
        if relative:
            return timestamp(at, env, view.now)
        text = known.get(at)
        if text is None:
            text = known[at] = timestamp(at, env, 0)
        return text

    def when(read: Callable[[JobView], int]) -> Read:
        return lambda view: moment(view, read(view))

    def end_text(view: JobView) -> str:
        return "NONE" if view.endless else moment(view, view.end)

    def pending_time(view: JobView) -> str:
        start = view.job.start_time if not view.pending and view.job.start_time else view.now
        return str(max(start - view.job.submit_time, 0))

    F = Field[JobView]
    return Table(
        [
            F("a", ("Account",), "ACCOUNT", lambda v: or_null(v.job.spec.account)),
            F("", ("AccrueTime",), "ACCRUE_TIME", when(accrue_time)),
            F(
                "",
                ("admin_comment", "AdminComment"),
                "ADMIN_COMMENT",
                lambda v: or_null(v.job.spec.admin_comment),
            ),
            F("", ("AllocNodes",), "ALLOC_NODES", lambda v: or_null(v.job.spec.alloc_node)),
            F("", ("AllocSID",), "ALLOC_SID", lambda v: str(v.job.spec.alloc_sid)),
            F(
                "F",
                ("ArrayJobId",),
                "ARRAY_JOB_ID",
                lambda v: str(v.array_job_id),
                lambda v: v.array_job_id,
            ),
            F("K", ("ArrayTaskId",), "ARRAY_TASK_ID", lambda v: v.task_text, _array_task_key),
            F("", ("AssocId",), "ASSOC_ID", lambda v: "0"),
            F("", ("BatchFlag",), "BATCH_FLAG", lambda v: str(int(v.batch))),
            F("B", ("BatchHost",), "EXEC_HOST", lambda v: v.exec_host or "n/a"),
            F("", ("BoardsPerNode",), "BOARDS_PER_NODE", lambda v: "N/A"),
            F("", ("BurstBuffer",), "BURST_BUFFER", lambda v: or_null(v.job.spec.burst_buffer)),
            F("", ("BurstBufferState",), "BURST_BUFFER_STATE", lambda v: ""),
            F("", ("Cluster",), "CLUSTER", lambda v: _or_na(cluster)),
            F(
                "",
                ("ClusterFeature",),
                "CLUSTER_FEATURES",
                lambda v: or_null(v.job.spec.cluster_features),
            ),
            F("o", ("Command",), "COMMAND", lambda v: or_null(v.command)),
            F("k", ("Comment",), "COMMENT", lambda v: or_null(v.job.spec.comment)),
            F("", ("Container",), "CONTAINER", lambda v: v.job.spec.container),
            F("", ("ContainerId",), "CONTAINER_ID", lambda v: ""),
            F("", ("ContainerType",), "CONTAINER_TYPE", lambda v: ""),
            F(
                "O",
                ("Contiguous",),
                "CONTIGUOUS",
                lambda v: str(int(v.job.spec.shape.contiguous)),
            ),
            F(
                "I",
                ("Cores",),
                "CORES_PER_SOCKET",
                lambda v: _star(v.job.spec.shape.cores_per_socket),
            ),
            F("X", ("CoreSpec",), "CORE_SPEC", _core_spec),
            F(
                "",
                ("CPUsPerTask",),
                "CPUS_PER_TASK",
                lambda v: str(max(v.job.spec.shape.cpus_per_task, 1)),
            ),
            F(
                "",
                ("cpus-per-task",),
                "CPUS_PER_TASK",
                lambda v: str(max(v.job.spec.shape.cpus_per_task, 1)),
            ),
            F(
                "",
                ("cpus-per-tres", "CPUsPerTRES"),
                "CPUS_PER_TRES",
                lambda v: _or_na(v.cpus_per_tres),
            ),
            F("", ("CronJob",), "CRON_JOB", lambda v: "No"),
            F("", ("Deadline",), "DEADLINE", when(lambda v: v.job.spec.deadline)),
            F("", ("DelayBoot",), "DELAY_BOOT", lambda v: elapsed(v.job.spec.delay_boot)),
            F("E", ("Dependency",), "DEPENDENCY", lambda v: or_null(v.dependency)),
            F(
                "",
                ("DerivedEC",),
                "DERIVED_EC",
                lambda v: f"{v.job.derived_wstatus >> 8 & 255}:{v.job.derived_wstatus & 127}",
            ),
            F("", ("EligibleTime",), "ELIGIBLE_TIME", when(lambda v: v.job.eligible_time)),
            F("e", ("EndTime",), "END_TIME", end_text, lambda v: v.end),
            F("x", ("ExcNodes",), "EXC_NODES", lambda v: _names(v.job.spec.shape.exclude)),
            F("", ("Exclusive",), "EXCLUSIVE", lambda v: v.exclusive),
            F("", ("exit_code", "ExitCode"), "EXIT_CODE", lambda v: v.exit_text),
            F("f", ("Feature",), "FEATURES", lambda v: or_null(v.job.spec.shape.features)),
            F("G", ("GroupId",), "GROUP", lambda v: str(v.job.gid), lambda v: v.job.gid),
            F("g", ("GroupName",), "GROUP", lambda v: v.job.group or str(v.job.gid)),
            F("", ("HetJobId",), "HET_JOB_ID", lambda v: _count(v.job.het_job_id)),
            F("", ("HetJobIdSet",), "HET_JOB_ID_SET", lambda v: v.het_ids or "N/A"),
            F(
                "",
                ("HetJobOffset",),
                "HET_JOB_OFFSET",
                lambda v: str(v.job.het_offset) if v.job.het_job_id else "N/A",
            ),
            F("i", ("JobArrayId",), "JOBID", lambda v: v.id_text, _id_key),
            F("A", ("JobId",), "JOBID", lambda v: str(v.job.id), lambda v: v.job.id),
            F("", ("LastSchedEval",), "LAST_SCHED_EVAL", when(lambda v: v.job.last_sched_eval)),
            F("", ("PreemptTime",), "PREEMPT_TIME", when(lambda v: v.job.preempt_time)),
            F("W", ("Licenses",), "LICENSES", lambda v: or_null(v.job.spec.licenses)),
            F("", ("LicensesAlloc",), "LICENSES_ALLOC", lambda v: or_null(v.job.licenses_alloc)),
            F("", ("MaxCPUs",), "MAX_CPUS", lambda v: "0"),
            F("", ("MaxNodes",), "MAX_NODES", lambda v: str(v.job.spec.shape.max_nodes)),
            F(
                "",
                ("mem-per-tres", "MemPerTRES"),
                "MEM_PER_TRES",
                lambda v: _or_na(v.mem_per_tres),
            ),
            F("", ("MCSLabel",), "MCSLABEL", lambda v: "N/A"),
            F(
                "c",
                ("MinCPUs",),
                "MIN_CPUS",
                lambda v: str(v.min_cpus_node),
                lambda v: v.min_cpus_node,
            ),
            F("m", ("MinMemory",), "MIN_MEMORY", _memory, lambda v: v.memory_field[1]),
            F("", ("MinTime",), "TIME_MIN", lambda v: elapsed(v.job.spec.time_min or 0)),
            F(
                "d",
                ("MinTmpDisk",),
                "MIN_TMP_DISK",
                lambda v: megabytes(v.job.spec.shape.tmp_disk_mb, v.convert),
                lambda v: v.job.spec.shape.tmp_disk_mb,
            ),
            F("j", ("Name",), "NAME", lambda v: v.job.spec.name),
            F("", ("Network",), "NETWORK", lambda v: or_null(v.job.spec.network)),
            F("y", ("Nice",), "NICE", lambda v: str(v.job.spec.nice), lambda v: v.job.spec.nice),
            F("N", ("NodeList",), "NODELIST", lambda v: v.node_text),
            F(
                "",
                ("NTPerCore",),
                "NTASKS_PER_CORE",
                lambda v: _count(v.job.spec.shape.ntasks_per_core),
            ),
            F(
                "",
                ("NTPerNode",),
                "NTASKS_PER_NODE",
                lambda v: str(v.job.spec.shape.ntasks_per_node),
            ),
            F(
                "",
                ("NTPerSocket",),
                "NTASKS_PER_SOCKET",
                lambda v: _count(v.job.spec.shape.ntasks_per_socket),
            ),
            F("", ("NTPerBoard",), "NTASKS_PER_BOARD", lambda v: "0"),
            F("C", ("NumCPUs",), "CPUS", lambda v: str(v.cpu_count), lambda v: v.cpu_count),
            F("D", ("NumNodes",), "NODES", lambda v: str(v.node_count), lambda v: v.node_count),
            F("", ("NumTasks",), "TASKS", lambda v: str(v.task_count)),
            F("", ("Origin",), "ORIGIN", lambda v: "N/A"),
            F("", ("OriginRaw",), "ORIGIN_RAW", lambda v: "N/A"),
            F("h", ("OverSubscribe",), "OVER_SUBSCRIBE", lambda v: v.oversubscribe),
            F("P", ("Partition",), "PARTITION", lambda v: v.partition),
            F("", ("PendingTime",), "PENDING_TIME", pending_time),
            F("", ("Prefer",), "PREFER", lambda v: or_null(v.job.spec.prefer)),
            F(
                "p",
                ("Priority",),
                "PRIORITY",
                lambda v: f"{v.job.priority / 0xFFFFFFFF:.14f}",
                lambda v: v.job.priority,
            ),
            F(
                "Q",
                ("PriorityLong",),
                "PRIORITY",
                lambda v: str(v.job.priority),
                lambda v: v.job.priority,
            ),
            F("", ("Profile",), "PROFILE", lambda v: "NotSet"),
            F("q", ("QOS",), "QOS", lambda v: or_null(v.job.spec.qos)),
            F("r", ("Reason",), "REASON", lambda v: v.reason),
            F("R", ("ReasonList",), "NODELIST(REASON)", lambda v: v.nodes_or_reason),
            F("", ("Reboot",), "REBOOT", lambda v: str(int(v.job.spec.reboot))),
            F("n", ("ReqNodes",), "REQ_NODES", lambda v: _names(v.job.spec.shape.nodelist)),
            F("", ("ReqSwitch",), "REQ_SWITCH", lambda v: str(v.job.spec.switches)),
            F("", ("Requeue",), "REQUEUE", lambda v: str(int(v.job.spec.requeue is not False))),
            F("v", ("Reservation",), "RESERVATION", lambda v: or_null(v.reservation)),
            F("", ("ResizeTime",), "RESIZE_TIME", lambda v: "N/A"),
            F("", ("RestartCnt",), "RESTART_COUNT", lambda v: str(v.job.restarts)),
            F("Y", ("SchedNodes",), "SCHEDNODES", lambda v: or_null(v.expected_nodes)),
            F("z", ("SCT",), "S:C:T", _sct),
            F("", ("SegmentSize",), "SEGMENT_SIZE", lambda v: str(v.job.spec.shape.segment)),
            F("", ("SiblingsActive",), "ACTIVE_SIBLINGS", lambda v: "N/A"),
            F("", ("SiblingsActiveRaw",), "ACTIVE_SIBLINGS_RAW", lambda v: "N/A"),
            F("", ("SiblingsViable",), "VIABLE_SIBLINGS", lambda v: "N/A"),
            F("", ("SiblingsViableRaw",), "VIABLE_SIBLINGS_RAW", lambda v: "N/A"),
            F("s", ("SLUID",), "SLUID", lambda v: v.job.sluid),
            F(
                "H",
                ("Sockets",),
                "SOCKETS_PER_NODE",
                lambda v: _star(v.job.spec.shape.sockets_per_node),
            ),
            F("", ("SPerBoard",), "SOCKETS_PER_BOARD", lambda v: "0"),
            F("S", ("StartTime",), "START_TIME", when(lambda v: v.start), _start_key),
            F("T", ("State",), "STATE", lambda v: v.state),
            F("t", ("StateCompact",), "ST", lambda v: v.state_compact),
            F("", ("StdErr",), "STDERR", lambda v: or_null(v.std_err)),
            F("", ("StdIn",), "STDIN", lambda v: v.std_in if v.batch else or_null("")),
            F("", ("StdOut",), "STDOUT", lambda v: v.std_out),
            F(
                "V",
                ("SubmitTime",),
                "SUBMIT_TIME",
                when(lambda v: v.job.submit_time),
                lambda v: v.job.submit_time,
            ),
            F(
                "",
                ("system_comment", "SystemComment"),
                "SYSTEM_COMMENT",
                lambda v: or_null(v.job.system_comment),
            ),
            F(
                "J",
                ("Threads",),
                "THREADS_PER_CORE",
                lambda v: _star(v.job.spec.shape.threads_per_core),
            ),
            F("L", ("TimeLeft",), "TIME_LEFT", _left, lambda v: _endless(v.time_left)),
            F("l", ("TimeLimit",), "TIME_LIMIT", _limit, lambda v: _endless(v.job.time_limit)),
            F("M", ("TimeUsed",), "TIME", lambda v: elapsed(v.elapsed), lambda v: v.elapsed),
            F("", ("tres-alloc",), "TRES_ALLOC", lambda v: v.tres),
            F("", ("tres-bind",), "TRES_BIND", lambda v: _or_na(v.tres_per("bind"))),
            F("", ("tres-freq",), "TRES_FREQ", lambda v: _or_na(v.tres_per("freq"))),
            F("", ("tres-per-job",), "TRES_PER_JOB", lambda v: _or_na(v.tres_per("per_job"))),
            F(
                "b",
                ("tres-per-node", "gres"),
                "TRES_PER_NODE",
                lambda v: _or_na(v.tres_per("per_node")),
            ),
            F(
                "",
                ("tres-per-socket",),
                "TRES_PER_SOCKET",
                lambda v: _or_na(v.tres_per("per_socket")),
            ),
            F("", ("tres-per-task",), "TRES_PER_TASK", lambda v: _or_na(v.tres_per("per_task"))),
            F("U", ("UserId",), "UID", lambda v: str(v.job.uid), lambda v: v.job.uid),
            F("u", ("UserName",), "USER", lambda v: v.job.user or str(v.job.uid)),
            F("", ("Wait4Switch",), "WAIT4SWITCH", lambda v: str(v.job.spec.switch_wait)),
            F("w", ("WCKey",), "WCKEY", lambda v: or_null(v.job.spec.wckey)),
            F("Z", ("WorkDir",), "WORK_DIR", lambda v: v.job.spec.work_dir),
        ],
        unnamed="AccrueTime",
    )


def _endless(seconds: int | None) -> float:
    return seconds if seconds else float("inf")


def _start_key(view: JobView) -> object:
    # Whoever has no expected start comes after those who have.
    return view.start or float("inf")


def _names(names: tuple[str, ...]) -> str:
    from gsched.hostlist import compress

    return compress(names) if names else ""
