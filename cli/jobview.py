"""What the commands show of a job: values derived from its record, its verdict and the time.

One JobView per job and run of a command; nothing here formats columns.
"""

from __future__ import annotations

from gsched import tres
from gsched.hostlist import compress, count
from gsched.model.job import Job, NodeAlloc
from gsched.model.node import Verdict
from gsched.model.policy import Tres
from gsched.model.states import Hold, JobState, Phase
from gsched.reserve import is_deleted

#: ends whose explanation takes the place of the node list in NODELIST(REASON)
_EXPLAINED = frozenset(
    {
        JobState.PENDING,
        JobState.TIMEOUT,
        JobState.OUT_OF_MEMORY,
        JobState.DEADLINE,
        JobState.FAILED,
    }
)
#: Slurm cuts the task list of an array at this many bytes (SLURM_BITSTR_LEN)
BITSTR_LEN = 64
#: a started job whose nodes have not all answered for so many seconds is shown as CONFIGURING
CONFIGURING_S = 2
#: later than any moment
FOREVER = 1 << 62


class JobView:
    """A job as users see it. Every value is computed when asked for; none costs more than the
    job's nodes. Whoever keeps values learns from `until` when one of those that were read may be
    another only because time has passed."""

    __slots__ = ("_now", "bitstr_len", "convert", "job", "late", "until", "verdict")

    def __init__(
        self,
        job: Job,
        verdict: Verdict | None,
        now: float,
        *,
        convert: bool = True,
        bitstr_len: int = BITSTR_LEN,
        late: int = 0,
    ) -> None:
        """`late`: it will not start before, where no verdict says when; 0 not known."""
        self.job = job
        self.verdict = verdict
        self.late = late
        #: all that was read is true before this moment, whatever the time
        self.until = FOREVER
        #: False with --noconvert: sizes stay in megabytes
        self.convert = convert
        self.bitstr_len = bitstr_len
        self._now = int(now)

    # ---- the time ----------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The time; what is made of it is another in a second."""
        self.until = self._now + 1
        return self._now

    def at(self, now: float) -> None:
        """It is later: everything may be read anew."""
        self._now = int(now)
        self.until = FOREVER

    def past(self, moment: int) -> bool:
        """Whether that moment has come."""
        if moment <= self._now:
            return True
        self.until = min(self.until, moment)
        return False

    # ---- identity ----------------------------------------------------------------------

    @property
    def array_job_id(self) -> int:
        """The array's id; a job that is in none is its own array, as in Slurm."""
        return self.job.array_job_id or self.job.id

    @property
    def is_array(self) -> bool:
        return bool(self.job.array_job_id)

    @property
    def together(self) -> bool:
        """Whether this record stands for several tasks of an array."""
        return bool(self.job.array_pending) and self.job.array_task_id < 0

    @property
    def task_text(self) -> str:
        """ "4" for a task, "1-5%2" for the tasks still together in one record, "N/A" otherwise."""
        if self.job.array_task_id >= 0:
            return str(self.job.array_task_id)
        if self.job.array_pending:
            from gsched.taskset import TaskSet

            tasks = TaskSet.parse(self.job.array_pending)
            return tasks.shown(self.job.array_throttle, self.bitstr_len)
        return "N/A"

    @property
    def id_text(self) -> str:
        """JOBID as `squeue` shows it: "17", "17_4", "17_[1-3]" or "17+1"."""
        job = self.job
        if job.het_job_id:
            return f"{job.het_job_id}+{job.het_offset}"
        if job.array_task_id >= 0:
            return f"{self.array_job_id}_{job.array_task_id}"
        if job.array_pending:
            return f"{self.array_job_id}_[{self.task_text}]"
        return str(job.id)

    @property
    def het_ids(self) -> str:
        """The ids of all components, "188-190"; "" for an ordinary job."""
        job = self.job
        return f"{job.het_job_id}-{job.het_job_id + job.het_size - 1}" if job.het_job_id else ""

    @property
    def partition(self) -> str:
        """Where it runs; a waiting job names all the partitions it would take."""
        if self.pending and self.job.spec.partitions:
            return ",".join(self.job.spec.partitions)
        return self.job.partition

    @property
    def dependency(self) -> str:
        """What it still waits for; "" nothing."""
        if not self.job.deps:
            return ""
        from gsched.dependency import shown

        return shown(self.job.deps)

    # ---- state -------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Long state name; the flags COMPLETING and CONFIGURING hide the base state."""
        if self.job.completing:
            return "COMPLETING"
        if self.configuring:
            return "CONFIGURING"
        if self._bereft:
            return "RESV_DEL_HOLD"
        return self.job.state.name

    @property
    def configuring(self) -> bool:
        """Its nodes are being made ready, and that takes time: a node that answers at once is never
        seen waiting for, as with Slurm."""
        if self.job.state is JobState.SUSPENDED:
            return False
        if self.job.prolog_due:
            return True
        return self.job.configuring and self.past(self.job.start_time + CONFIGURING_S)

    @property
    def _bereft(self) -> bool:
        """Held because its reservation is gone."""
        job = self.job
        return job.state is JobState.PENDING and bool(job.held) and is_deleted(job.reason)

    @property
    def reservation(self) -> str:
        """The advance reservation that it is in, or those that it asks for."""
        return self.job.reservation or self.job.spec.reservation

    @property
    def state_compact(self) -> str:
        if self.job.completing:
            return "CG"
        if self.configuring:
            return "CF"
        return "RD" if self._bereft else self.job.state.compact

    @property
    def active(self) -> bool:
        """Shown by `squeue` unless other states are asked for."""
        return not self.job.state.finished or self.job.completing

    @property
    def reason(self) -> str:
        """Slurm's reason text ("Resources", "NonZeroExitCode"); "None" where there is none."""
        job = self.job
        if job.state is JobState.PENDING and not job.completing:
            return self._waiting()
        if job.reason.startswith("RaisedSignal"):
            number = job.wstatus & 0x7F
            return f"RaisedSignal:{number}({_signal_text(number)})"
        if job.state.finished and not job.start_time and not job.reason:
            return self._waiting()
        if job.held is not Hold.NONE and not job.state.finished:
            # Told to wait when it is queued again.
            return "JobHeldUser" if job.held is Hold.USER else "JobHeldAdmin"
        if job.sliced and not job.state.finished:
            return "TimeSlice"
        return job.reason or "None"

    def _waiting(self) -> str:
        job = self.job
        if job.held is not Hold.NONE:
            if job.reason:
                return job.reason
            return "JobHeldUser" if job.held is Hold.USER else "JobHeldAdmin"
        if self.verdict is not None and self.verdict.reason:
            return self.verdict.reason
        if job.reason:
            return job.reason
        begin = max(job.spec.begin, job.eligible_time)
        return "None" if self.past(begin) else "BeginTime"

    @property
    def nodes_or_reason(self) -> str:
        """NODELIST(REASON)."""
        if self.job.state in _EXPLAINED and not self.job.completing:
            return f"({self.reason})"
        return self.node_text

    @property
    def exit_text(self) -> str:
        return exit_text(self.job.wstatus)

    # ---- time --------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Waiting, and nothing of an earlier try is left."""
        return self.job.state is JobState.PENDING

    @property
    def elapsed(self) -> int:
        """Seconds it has run, without the time it was suspended; 0 before the start."""
        job = self.job
        if self.pending or not job.start_time:
            return 0
        if job.state is JobState.SUSPENDED:
            return job.pre_suspend_s
        end = job.end_time if job.state.finished else self.now
        if job.suspend_time:
            return end - job.suspend_time + job.pre_suspend_s
        return max(end - job.start_time, 0)

    @property
    def time_left(self) -> int | None:
        """Seconds until its limit (negative past it); None without a limit."""
        return self.job.time_limit - self.elapsed if self.job.time_limit else None

    @property
    def start(self) -> int:
        """Actual or expected start; 0 unknown."""
        job = self.job
        if not self.pending:
            return job.start_time
        if self.verdict is not None and self.verdict.start:
            return self.verdict.start
        if self.verdict is not None and self.late and not self.past(self.late):
            return self.late
        begin = max(job.spec.begin, job.eligible_time)
        return 0 if self.past(begin) else begin

    @property
    def end(self) -> int:
        """Actual or expected end; 0 unknown (also: no limit)."""
        job = self.job
        if job.state.finished:
            return job.end_time
        if job.suspend_time and job.time_limit:
            return job.suspend_time + job.time_limit - job.pre_suspend_s
        start = self.start
        return start + job.time_limit if start and job.time_limit else 0

    @property
    def endless(self) -> bool:
        """Running without a time limit."""
        return not self.job.time_limit and not self.job.state.finished and not self.pending

    # ---- nodes -------------------------------------------------------------------------

    @property
    def shares(self) -> list[NodeAlloc]:
        """The nodes' shares; while COMPLETING only those not given back yet."""
        alloc = self.job.alloc
        if self.job.completing:
            return [share for share in alloc if share.phase < Phase.RELEASED] or alloc
        if self.pending:
            return []
        return alloc

    @property
    def node_text(self) -> str:
        """Its nodes as a host list; "" where it has none."""
        shares = self.shares
        if shares:
            return compress(share.node for share in shares)
        return "" if self.pending else self.job.last_nodes

    @property
    def batch_host(self) -> str:
        return (self.shares and self.job.alloc[0].node) or _first(self.node_text)

    @property
    def expected_nodes(self) -> str:
        """Nodes laid aside for it, as a host list; "" none."""
        if not self.pending or self.verdict is None or not self.verdict.nodes:
            return ""
        from gsched.hostlist import expand

        return compress(expand(self.verdict.nodes))

    @property
    def node_count(self) -> int:
        """Nodes allocated, or the fewest it asks for."""
        shares = self.shares
        if shares:
            return len(shares)
        if not self.pending and self.job.last_nodes:
            return count(self.job.last_nodes)
        return self.requested_nodes

    @property
    def requested_nodes(self) -> int:
        return tres.asked_nodes(self.job.spec.shape)

    @property
    def node_count_text(self) -> str:
        """`scontrol`'s NumNodes: a waiting job may show the range it accepts."""
        if not self.open_nodes:
            return str(self.node_count)
        return f"{self.requested_nodes}-{self.most_nodes}"

    @property
    def open_nodes(self) -> bool:
        """Whether it shows a range: it waits, and named one, or nobody has looked yet where it
        would fit (while it is held, or a heterogeneous component)."""
        open_yet = self.job.spec.shape.nodes_set or self.job.held is not Hold.NONE
        return self.pending and (open_yet or bool(self.job.het_job_id))

    @property
    def most_nodes(self) -> int:
        """The upper end of that range."""
        return self.job.spec.shape.max_nodes or max(self.task_count, self.requested_nodes)

    # ---- tasks, CPUs, memory, GPUs -----------------------------------------------------

    @property
    def task_count(self) -> int:
        shape = self.job.spec.shape
        if shape.ntasks:
            return shape.ntasks
        nodes = self.node_count
        return nodes * shape.ntasks_per_node if shape.ntasks_per_node else nodes

    @property
    def requested_cpus(self) -> int:
        return tres.asked_cpus(self.job.spec.shape)

    @property
    def cpu_count(self) -> int:
        """CPUs allocated (while COMPLETING: still held), else those asked for."""
        shares = self.shares
        return sum(share.cpus for share in shares) if shares else self.requested_cpus

    @property
    def min_cpus_node(self) -> int:
        shape = self.job.spec.shape
        per_node = max(shape.ntasks_per_node, 1) * max(shape.cpus_per_task, 1)
        return max(shape.min_cpus_node, per_node)

    @property
    def requested_gpus(self) -> int:
        return tres.asked_gpus(self.job.spec.shape)

    @property
    def requested_mb(self) -> int:
        """Memory asked for in all, MB; 0 unknown, or all of nodes that it does not have yet."""
        return tres.asked_memory(self.job.spec.shape, self.job.alloc)

    @property
    def memory_field(self) -> tuple[str, int]:
        """How its memory was asked for: `scontrol`'s field name and the megabytes."""
        shape = self.job.spec.shape
        if shape.mem_per_cpu is not None:
            return "MinMemoryCPU", shape.mem_per_cpu
        if shape.mem_per_gpu is not None:
            return "MinMemoryTRES", shape.mem_per_gpu
        return "MinMemoryNode", shape.mem_per_node or 0

    @property
    def requested_tres(self) -> str:
        """ReqTRES text."""
        asked = tres.requested(self.job.spec, self.job.alloc, others=False)
        return self._tres(asked, self.job.billing_asked)

    @property
    def allocated_tres(self) -> str:
        """AllocTRES text; "" before the first start."""
        if self.pending or not self.job.alloc:
            return ""
        return self._tres(tres.allocated(self.job, others=False), self.job.billing)

    @property
    def tres(self) -> str:
        """`squeue -O tres-alloc`: what it has, or what it asks for."""
        return self.allocated_tres or self.requested_tres

    def _tres(self, counts: Tres, billing: int) -> str:
        bill = {"billing": counts["cpu"] if billing < 0 else billing}
        return tres.text(counts | bill, convert=self.convert)

    def tres_per(self, scope: str) -> str:
        """The GPU request of one scope ("per_node", "per_job", ...) as given; "" none."""
        spec = self.job.spec
        if spec.alternatives and self.job.state == JobState.PENDING:
            return "|".join(one.tres.get(scope, "") for one in spec.alternatives).strip("|")
        return spec.tres.get(scope, "")

    @property
    def cpus_per_tres(self) -> str:
        n = self.job.spec.shape.cpus_per_gpu
        return f"gres/gpu:{n}" if n else ""

    @property
    def mem_per_tres(self) -> str:
        mb = self.job.spec.shape.mem_per_gpu
        return f"gres/gpu:{mb}" if mb is not None else ""

    @property
    def oversubscribe(self) -> str:
        return "YES" if self.job.spec.shape.oversubscribe else "NO"

    @property
    def exclusive(self) -> str:
        return {1: "NODE", 2: "USER", 3: "MCS"}.get(self.job.spec.shape.exclusive, "NO")

    # ---- files -------------------------------------------------------------------------

    @property
    def command(self) -> str:
        """The script and its arguments, or what srun and salloc run; "" where that has no file."""
        spec = self.job.spec
        if spec.interactive:
            return spec.command
        return " ".join((spec.command, *spec.args)) if spec.command else ""

    @property
    def batch(self) -> bool:
        """Has a script; srun and salloc have none."""
        return not self.job.spec.interactive

    @property
    def exec_host(self) -> str:
        """Where the script runs, or srun and salloc; "" not yet known."""
        return self.batch_host if self.batch else self.job.spec.alloc_node

    @property
    def std_in(self) -> str:
        return self._path(self.job.spec.std_in) or "/dev/null"

    @property
    def std_out(self) -> str:
        default = "slurm-%A_%a.out" if self.is_array else "slurm-%j.out"
        return self._path(self.job.spec.std_out or default)

    @property
    def std_err(self) -> str:
        """ "" where it goes to the same file as standard output."""
        return self._path(self.job.spec.std_err)

    def _path(self, pattern: str) -> str:
        if not pattern:
            return ""
        from gsched.patterns import expand

        text = expand(pattern, self.job, self.batch_host or "(null)", 0)
        if text.startswith("/"):
            return text
        return f"{self.job.spec.work_dir.rstrip('/')}/{text}"


def exit_text(wstatus: int) -> str:
    """A wait status as "code:signal"."""
    return f"{wstatus >> 8 & 0xFF}:{wstatus & 0x7F}"


def cpu_id_text(bits: int) -> str:
    """A bitmap as a range list ("0-1,8"); "" for none. Cost: one step per bit."""
    parts = []
    start = -1
    for place in range(bits.bit_length() + 1):
        if bits >> place & 1:
            if start < 0:
                start = place
        elif start >= 0:
            parts.append(str(start) if place - start == 1 else f"{start}-{place - 1}")
            start = -1
    return ",".join(parts)


def gres_text(total: int, types: dict[str, int]) -> str:
    """GPUs as GRES text by type ("gpu:h100:6"); "" for none."""
    named = [f"gpu:{kind}:{n}" for kind, n in sorted(types.items()) if kind and n]
    return ",".join(named) or (f"gpu:{total}" if total else "")


def _signal_text(number: int) -> str:
    import signal

    text = signal.strsignal(number) if 0 < number < signal.NSIG else None
    return text or f"Unknown signal {number}"


def _first(nodes: str) -> str:
    if not nodes:
        return ""
    from gsched.hostlist import expand

    return expand(nodes)[0]
