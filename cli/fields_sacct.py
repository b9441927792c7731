"""The columns of sacct: name, width, and how a row of a job or of a step is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gsched_cli.columns import CUT, ENDS, WHOLE, Column
from gsched_cli.text import duration, megabytes, timestamp

if TYPE_CHECKING:
    from gsched.model.acct import AcctJob, AcctStep

_UNITS = "KMGTPE"


class Look:
    """How values are shown: units, times, and the window that -T cuts to."""

    def __init__(
        self,
        env: Mapping[str, str],
        now: float,
        *,
        convert: bool = True,
        unit: str = "",
        window: tuple[int, int] | None = None,
        bitstr_len: int = 64,
        qos_ids: Mapping[str, int] | None = None,
    ) -> None:
        self.env = env
        self.now = now
        self.convert = convert
        #: letter of --units; "" as it comes
        self.unit = unit
        self.window = window
        self.bitstr_len = bitstr_len
        #: numbers of QOS, where they are shown
        self.qos_ids = qos_ids or {}

    def kilobytes(self, kb: int) -> str:
        """A size in KB with its unit: a larger one only where nothing is lost, unless --units
        says which."""
        if kb == 0:
            return "0"
        value = float(kb)
        place = 0
        if self.unit:
            place = _UNITS.index(self.unit)
            value /= 1024**place
        else:
            while self.convert and value >= 1024 and value % 512 == 0 and place < 5:
                value /= 1024
                place += 1
        return f"{_plain(value)}{_UNITS[place]}"

    def megabytes(self, mb: int) -> str:
        """A size in MB with its unit, "" for 0."""
        if not mb:
            return ""
        if self.unit:
            return self.kilobytes(mb * 1024)
        return megabytes(mb, self.convert)

    def tres(self, text: str) -> str:
        """TRES text with its memory in units."""
        if "mem=" not in text:
            return text
        parts = []
        for part in text.split(","):
            if part.startswith("mem=") and part.endswith("M") and part[4:-1].isdigit():
                part = f"mem={self.megabytes(int(part[4:-1]))}"
            parts.append(part)
        return ",".join(parts)

    def when(self, at: int, none: str = "Unknown") -> str:
        return timestamp(at, self.env, self.now, none)


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.2f}"


class Row:
    """One line of the report: a job, or one of its steps."""

    __slots__ = ("job", "look", "step", "total")

    def __init__(self, job: AcctJob, step: AcctStep | None, look: Look, total: bool) -> None:
        self.job = job
        self.step = step
        self.look = look
        #: a job's line sums up its steps (not with -X)
        self.total = total

    @property
    def id_text(self) -> str:
        """JobID: "17", "17_4", "17_[0-3%1]", "17+1", and a step behind a dot."""
        job = self.job
        if job.het_job_id:
            text = f"{job.het_job_id}+{job.het_offset}"
        elif job.array_task_id >= 0 and job.array_job_id:
            text = f"{job.array_job_id}_{job.array_task_id}"
        elif job.array_tasks:
            from gsched.taskset import TaskSet

            tasks = TaskSet.parse(job.array_tasks)
            shown = tasks.shown(job.array_throttle, self.look.bitstr_len)
            text = f"{job.array_job_id}_[{shown}]"
        else:
            text = str(job.job_id)
        return f"{text}.{self.step.step}" if self.step is not None else text

    @property
    def raw_id(self) -> str:
        text = str(self.job.job_id)
        return f"{text}.{self.step.step}" if self.step is not None else text

    @property
    def start(self) -> int:
        at = self.step.start if self.step is not None else self.job.start
        if self.look.window is not None and at:
            at = max(at, self.look.window[0])
        return at

    @property
    def end(self) -> int:
        at = self.step.end if self.step is not None else self.job.end_time
        if self.look.window is not None and (at > self.look.window[1] or not at):
            at = self.look.window[1] if self.start else at
        return at

    @property
    def elapsed(self) -> int:
        whole = self.step.elapsed_s if self.step is not None else self.job.elapsed_s
        if self.look.window is None:
            return whole
        if not self.start:
            return 0
        return max(min(self.end - self.start, whole), 0)

    @property
    def cpus(self) -> int:
        return self.step.ncpus if self.step is not None else self.job.alloc_cpus

    @property
    def cpu_ms(self) -> tuple[int, int]:
        """User and system time in ms."""
        if self.step is not None:
            return self.step.user_ms, self.step.system_ms
        if not self.total:
            return 0, 0
        steps = self.job.steps
        return sum(step.user_ms for step in steps), sum(step.system_ms for step in steps)

    @property
    def state(self) -> str:
        if self.step is not None:
            by = self.step.cancelled_by
            return f"CANCELLED by {by}" if by >= 0 else self.step.state
        if self.job.state == "CANCELLED" and self.job.cancelled_by >= 0:
            return f"CANCELLED by {self.job.cancelled_by}"
        return self.job.state

    @property
    def planned(self) -> int:
        """Seconds from being eligible to the start."""
        job = self.job
        if not job.eligible:
            return 0
        return max((job.start or job.end_time or int(self.look.now)) - job.eligible, 0)

    @property
    def nodes(self) -> str:
        if self.step is not None:
            return self.step.nodes
        return self.job.nodes or "None assigned"


def clock(ms: int) -> str:
    """CPU time: with thousandths below an hour ("00:00.039"), "00:00:00" for none."""
    seconds, rest = divmod(ms, 1000)
    if rest and seconds < 3600:
        return f"{seconds // 60:02d}:{seconds % 60:02d}.{rest:03d}"
    return duration(seconds)


def exit_text(wstatus: int) -> str:
    return f"{wstatus >> 8}:{wstatus & 0x7F}"


def _both(job: Callable[[Row], str], step: Callable[[Row, AcctStep], str]) -> Callable[[Row], str]:
    return lambda row: job(row) if row.step is None else step(row, row.step)


def _job(read: Callable[[Row], str]) -> Callable[[Row], str]:
    return lambda row: read(row) if row.step is None else ""


def _step(read: Callable[[Row, AcctStep], str]) -> Callable[[Row], str]:
    return lambda row: "" if row.step is None else read(row, row.step)


_BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _number_of(sluid: str) -> str:
    """The number that a SLUID is another way to write."""
    found = 0
    for letter in sluid[1:]:
        place = _BASE32.find(letter)
        if place < 0:
            return "0"
        found = found * 32 + place
    return str(found)


def _nothing(row: Row) -> str:
    return ""


def _kilobytes(row: Row, kb: int) -> str:
    return row.look.kilobytes(kb) if kb >= 0 else ""


def _average(step: AcctStep) -> tuple[int, int]:
    """CPU time in ms and memory in KB of a task on average."""
    memory = step.ave_rss_kb if step.ave_rss_kb >= 0 else step.max_rss_kb
    return (step.user_ms + step.system_ms) // max(step.ntasks, 1), memory


def _limit(row: Row) -> str:
    return duration(row.job.time_limit) if row.job.time_limit else "UNLIMITED"


def _limit_raw(row: Row) -> str:
    return str(row.job.time_limit // 60) if row.job.time_limit else "UNLIMITED"


def _frequency(row: Row, step: AcctStep) -> str:
    return "0" if step.step == "batch" else "Unknown"


def _usage(
    row: Row, step: AcctStep, cpu_ms: int, kb: int, gpu_util: int = -1, gpu_mb: int = -1
) -> str:
    """TRESUsageIn*: what was measured, once the step is over."""
    if not step.end:
        return ""
    if step.max_rss_kb < 0 and gpu_util < 0:
        return "energy=0"
    parts = [f"cpu={duration(cpu_ms // 1000)}"] if cpu_ms >= 0 else []
    parts.append("energy=0")
    if gpu_mb >= 0:
        parts.append(f"gres/gpumem={row.look.kilobytes(gpu_mb * 1024)}")
    if gpu_util >= 0:
        parts.append(f"gres/gpuutil={gpu_util}")
    if kb >= 0:
        parts.append(f"mem={row.look.kilobytes(kb)}")
    return ",".join(parts)


def _mean(row: Row, step: AcctStep) -> str:
    """TRESUsageInAve: of a task."""
    cpu_ms, kb = _average(step)
    return _usage(row, step, cpu_ms, kb, step.gpu_util_ave)


def _total(row: Row, step: AcctStep) -> str:
    """TRESUsageInTot: of all tasks together."""
    kb = _average(step)[1]
    total = kb * max(step.ntasks, 1) if kb >= 0 else -1
    return _usage(row, step, step.user_ms + step.system_ms, total)


def _most(row: Row, step: AcctStep) -> str:
    """TRESUsageInMax: of the task that used most; which used most CPU is not recorded."""
    if step.max_rss_kb < 0:
        return ""
    cpu_ms = step.user_ms + step.system_ms if step.ntasks == 1 else -1
    return _usage(row, step, cpu_ms, step.max_rss_kb, step.gpu_util_max, step.gpu_mem_max_mb)


def _least(row: Row, step: AcctStep) -> str:
    """TRESUsageInMin: of the task that used least, which is known where there is one."""
    return _most(row, step) if step.ntasks == 1 else ""


def _where(row: Row, step: AcctStep) -> str:
    """TRESUsageInMaxNode."""
    return f"mem={step.max_rss_node}" if step.max_rss_kb >= 0 and step.end else ""


def _which(row: Row, step: AcctStep) -> str:
    """TRESUsageInMaxTask."""
    return f"mem={step.max_rss_task}" if step.max_rss_kb >= 0 and step.end else ""


def _written(row: Row, step: AcctStep) -> str:
    return "energy=0" if step.end else ""


_USAGE = (
    *("InAve", "InMax", "InMaxNode", "InMaxTask", "InMin", "InMinNode", "InMinTask", "InTot"),
    *("OutAve", "OutMax", "OutMaxNode", "OutMaxTask", "OutMin", "OutMinNode", "OutMinTask"),
    "OutTot",
)
_USAGE_WIDTH = {"InMaxNode": 18, "InMaxTask": 18, "InMinNode": 18, "InMinTask": 18} | {
    "OutAve": 15,
    "OutMax": 15,
    "OutTot": 15,
    "OutMin": 15,
    "OutMaxNode": 19,
    "OutMaxTask": 19,
    "OutMinNode": 19,
    "OutMinTask": 19,
}
_USAGE_READ = {
    "InAve": _step(_mean),
    "InMax": _step(_most),
    "InMaxNode": _step(_where),
    "InMaxTask": _step(_which),
    "InMin": _step(_least),
    "InTot": _step(_total),
    "OutAve": _step(_written),
    "OutTot": _step(_written),
}


def _usage_columns() -> list[Column[Row]]:
    return [
        Column(f"TRESUsage{name}", _USAGE_WIDTH.get(name, 14), _USAGE_READ.get(name, _nothing))
        for name in _USAGE
    ]


#: In Slurm's order: a name may be cut short to any beginning, the first that fits is meant.
COLUMNS: list[Column[Row]] = [
    Column("Account", 10, lambda r: r.job.account),
    Column("AdminComment", 15, _job(lambda r: r.job.admin_comment)),
    Column("AllocCPUS", 10, lambda r: str(r.cpus)),
    Column("AllocNodes", 10, _both(lambda r: str(r.job.alloc_nodes), lambda r, s: str(s.nnodes))),
    Column(
        "AllocTRES",
        10,
        _both(lambda r: r.look.tres(r.job.alloc_tres), lambda r, s: r.look.tres(s.alloc_tres)),
    ),
    Column("AssocID", 7, lambda r: str(r.job.assoc_id)),
    Column(
        "AveCPU",
        10,
        _step(lambda r, s: "" if s.max_rss_kb < 0 else duration(_average(s)[0] // 1000)),
    ),
    Column("AveCPUFreq", 10, _step(lambda r, s: "0")),
    Column("AveDiskRead", 14, _nothing),
    Column("AveDiskWrite", 14, _nothing),
    Column("AvePages", 10, _nothing),
    Column("AveRSS", 10, _step(lambda r, s: _kilobytes(r, _average(s)[1]))),
    Column("AveVMSize", 10, _nothing),
    Column("BlockID", 16, _nothing),
    Column("Cluster", 10, lambda r: r.job.cluster),
    Column("Comment", 14, _job(lambda r: r.job.comment)),
    Column("Constraints", 19, _job(lambda r: r.job.constraints)),
    Column("ConsumedEnergy", 14, lambda r: "0"),
    Column("ConsumedEnergyRaw", 17, lambda r: "0"),
    Column("Container", 19, _job(lambda r: r.job.container)),
    Column("CPUTime", 10, lambda r: duration(r.elapsed * r.cpus)),
    Column("CPUTimeRAW", 10, lambda r: str(r.elapsed * r.cpus)),
    Column("DBIndex", -21, lambda r: _number_of(r.job.sluid)),
    Column("DerivedExitCode", 15, _job(lambda r: exit_text(r.job.derived_wstatus))),
    Column("Elapsed", 10, lambda r: duration(r.elapsed)),
    Column("ElapsedRaw", 10, lambda r: str(r.elapsed)),
    Column(
        "Eligible",
        19,
        _both(lambda r: r.look.when(r.job.eligible), lambda r, s: r.look.when(s.start)),
    ),
    Column("End", 19, lambda r: r.look.when(r.end)),
    Column("Exclusive", 9, _job(lambda r: r.job.exclusive)),
    Column(
        "ExitCode", 8, _both(lambda r: exit_text(r.job.wstatus), lambda r, s: exit_text(s.wstatus))
    ),
    Column("Extra", 15, _job(lambda r: r.job.extra)),
    Column("FailedNode", 15, _nothing),
    Column("Flags", 19, _nothing),
    Column("GID", 6, _job(lambda r: str(r.job.gid))),
    Column("Group", 9, _job(lambda r: r.job.group_name)),
    Column("JobID", -12, lambda r: r.id_text),
    Column("JobIDRaw", -12, lambda r: r.raw_id),
    Column("JobName", 10, _both(lambda r: r.job.name, lambda r, s: s.name)),
    Column("Layout", 9, _step(lambda r, s: s.layout)),
    Column("Licenses", 10, _job(lambda r: r.job.licenses)),
    Column("MaxDiskRead", 12, _nothing),
    Column("MaxDiskReadNode", 15, _nothing),
    Column("MaxDiskReadTask", 15, _nothing),
    Column("MaxDiskWrite", 12, _nothing),
    Column("MaxDiskWriteNode", 16, _nothing),
    Column("MaxDiskWriteTask", 16, _nothing),
    Column("MaxPages", 8, _nothing),
    Column("MaxPagesNode", 12, _nothing),
    Column("MaxPagesTask", 14, _nothing),
    Column("MaxRSS", 10, _step(lambda r, s: _kilobytes(r, s.max_rss_kb))),
    Column("MaxRSSNode", 10, _step(lambda r, s: s.max_rss_node)),
    Column("MaxRSSTask", 10, _step(lambda r, s: str(s.max_rss_task) if s.max_rss_kb >= 0 else "")),
    Column("MaxVMSize", 10, _nothing),
    Column("MaxVMSizeNode", 14, _nothing),
    Column("MaxVMSizeTask", 14, _nothing),
    Column("McsLabel", 12, _nothing),
    Column("MinCPU", 10, _nothing),
    Column("MinCPUNode", 10, _nothing),
    Column("MinCPUTask", 10, _nothing),
    Column("NCPUS", 10, lambda r: str(r.cpus)),
    Column(
        "NNodes",
        8,
        _both(lambda r: str(r.job.alloc_nodes or r.job.req_nodes), lambda r, s: str(s.nnodes)),
    ),
    Column("NodeList", 15, lambda r: r.nodes),
    Column("NTasks", 8, _step(lambda r, s: str(s.ntasks))),
    Column("OriginalSLUID", 14, lambda r: r.job.sluid),
    Column("OverSubscribe", 13, _job(lambda r: r.job.oversubscribe)),
    Column("Partition", 10, _job(lambda r: r.job.partition_name)),
    Column("Planned", 10, _job(lambda r: duration(r.planned))),
    Column("PlannedCPU", 10, _job(lambda r: duration(r.planned * r.job.req_cpus))),
    Column("PlannedCPURAW", 13, _job(lambda r: str(r.planned * r.job.req_cpus))),
    Column("Priority", 10, _job(lambda r: str(r.job.priority))),
    Column("QOS", 10, _job(lambda r: r.job.qos)),
    Column("QOSRAW", 6, _job(lambda r: str(r.look.qos_ids.get(r.job.qos, "")))),
    Column("QOSREQ", 10, _nothing),
    Column("Reason", 22, _job(lambda r: r.job.reason)),
    Column("ReqCPUFreq", 10, _both(lambda r: "Unknown", _frequency)),
    Column("ReqCPUFreqGov", 13, _both(lambda r: "Unknown", _frequency)),
    Column("ReqCPUFreqMax", 13, _both(lambda r: "Unknown", _frequency)),
    Column("ReqCPUFreqMin", 13, _both(lambda r: "Unknown", _frequency)),
    Column("ReqCPUS", 8, _both(lambda r: str(r.job.req_cpus), lambda r, s: str(s.ncpus))),
    Column("ReqMem", 10, _job(lambda r: r.look.megabytes(r.job.req_mem_mb))),
    Column("ReqNodes", 8, _both(lambda r: str(r.job.req_nodes), lambda r, s: str(s.nnodes))),
    Column("ReqTRES", 10, _job(lambda r: r.look.tres(r.job.req_tres))),
    Column("Reservation", 20, _job(lambda r: r.job.reservation)),
    Column("ReservationId", 8, _nothing),
    Column("ReqReservation", 20, _nothing),
    Column("Restarts", 8, _job(lambda r: str(r.job.restarts))),
    Column("SegmentSize", 11, _nothing),
    Column("SLUID", 14, lambda r: r.job.sluid),
    Column("Start", 19, lambda r: r.look.when(r.start)),
    Column("State", 10, lambda r: r.state),
    Column("StdErr", 20, _job(lambda r: r.job.std_err)),
    Column("StdIn", 20, _job(lambda r: r.job.std_in)),
    Column("StdOut", 20, _job(lambda r: r.job.std_out)),
    Column(
        "Submit",
        19,
        _both(lambda r: r.look.when(r.job.submit), lambda r, s: r.look.when(s.start)),
    ),
    Column("SubmitLine", 20, _both(lambda r: r.job.submit_line, lambda r, s: s.submit_line)),
    Column(
        "Suspended",
        10,
        _both(lambda r: duration(r.job.suspended_s), lambda r, s: duration(s.suspended_s)),
    ),
    Column("SystemComment", 15, _job(lambda r: r.job.system_comment)),
    Column("SystemCPU", 10, lambda r: clock(r.cpu_ms[1])),
    Column("Timelimit", 10, _job(_limit)),
    Column("TimelimitRaw", 10, _job(_limit_raw)),
    Column("TotalCPU", 10, lambda r: clock(sum(r.cpu_ms))),
    *_usage_columns(),
    Column("UID", 6, _job(lambda r: str(r.job.uid))),
    Column("User", 9, _job(lambda r: r.job.user_name)),
    Column("UserCPU", 10, lambda r: clock(r.cpu_ms[0])),
    Column("WCKey", 10, _job(lambda r: r.job.wckey)),
    Column("WCKeyID", 10, _job(lambda r: "0")),
    Column("WorkDir", 20, _job(lambda r: r.job.work_dir)),
]
#: numbers and durations are never cut, times merely end: as Slurm prints these
_FIT = dict.fromkeys(
    (
        *("AllocCPUS", "AllocNodes", "AssocID", "CPUTime", "CPUTimeRAW", "DBIndex", "Elapsed"),
        *("ElapsedRaw", "NCPUS", "NNodes", "NTasks", "Planned", "PlannedCPU", "PlannedCPURAW"),
        *("Priority", "ReqCPUS", "Restarts", "Suspended"),
    ),
    WHOLE,
) | dict.fromkeys(("Eligible", "End", "Start", "Submit"), ENDS)
COLUMNS = [column._replace(fit=_FIT.get(column.name, CUT)) for column in COLUMNS]

DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,"
    "maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,"
    "mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,"
    "reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,"
    "maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,"
    "reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,"
    "tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutmax,"
    "tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,tresusageouttot"
)


def expand_pattern(job: AcctJob, text: str) -> str:
    """--expand-pattern: the file name that a pattern stands for, from the working directory."""
    if "%" not in text:
        return os.path.join(job.work_dir, text) if text else ""
    marks = {
        "%": "%",
        "j": str(job.job_id),
        "J": str(job.job_id),
        "A": str(job.array_job_id or job.job_id),
        "a": str(max(job.array_task_id, 0)),
        "u": job.user_name,
        "x": job.name,
        "N": job.nodes.split(",")[0].split("[")[0],
        "n": "0",
        "t": "0",
        "s": "batch",
    }
    out = []
    at = 0
    while at < len(text):
        mark = text[at + 1 : at + 2] if text[at] == "%" else ""
        out.append(marks.get(mark, text[at]) if mark else text[at])
        at += 2 if mark in marks and mark else 1
    path = "".join(out)
    return os.path.join(job.work_dir, path) if path else ""
