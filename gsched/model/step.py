"""What is known of a step: a launch of tasks inside a job's allocation.

Records are msgspec arrays: new fields only at the end, with defaults. A step is owned by the agent
of the node that leads its job (the first node; of a heterogeneous job that of component 0).
"""

from __future__ import annotations

import enum

import msgspec

from gsched.model.job import NodeAlloc, Usage

#: ids of the steps that no srun made, as Slurm numbers them
PENDING_STEP = -3
EXTERN_STEP = -4
BATCH_STEP = -5
INTERACTIVE_STEP = -6
#: copies of files (sbcast) are numbered downwards from here: none of the user's steps, and not told
#: to the controller
COPY_STEPS = -1_000_000_000

#: StepSpec.stdin_task: to all tasks; to none
ALL_TASKS = -1
NO_TASK = -2


#: steps that no srun made, by name
NAMED_STEPS = {"interactive": INTERACTIVE_STEP, "batch": BATCH_STEP, "extern": EXTERN_STEP}
_NAMES = {number: name for name, number in NAMED_STEPS.items()}


def step_name(step: int) -> str:
    """What follows the dot in the name of a step: "0", "batch", "extern", "interactive"."""
    return _NAMES.get(step) or str(step)


def step_number(text: str) -> int | None:
    """The inverse of step_name; None for anything else."""
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    return NAMED_STEPS.get(text)


def step_key(job_id: int, step: int) -> bytes:
    """Key of a running step in the store: big-endian, so that a scan is in order of jobs."""
    return job_id.to_bytes(8, "big") + (step + (1 << 31)).to_bytes(4, "big")


class Callback(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a client listens for the agent and the supervisors of its step, and how they prove
    that they belong to it."""

    host: str
    port: int
    #: 32 random bytes of the client's own
    secret: bytes


class StepSpec(msgspec.Struct, array_like=True, gc=False):
    """What srun was asked for. 0, -1 for `relative`, None or "" means "not said" unless noted."""

    job_id: int
    name: str = ""
    argv: list[str] = []
    cwd: str = "/"
    umask: int = 0o022
    min_nodes: int = 0
    max_nodes: int = 0
    #: expanded, order kept
    nodelist: list[str] = []
    exclude: list[str] = []
    relative: int = -1
    ntasks: int = 0
    ntasks_per_node: int = 0
    ntasks_per_socket: int = 0
    ntasks_per_core: int = 0
    ntasks_per_gpu: int = 0
    cpus_per_task: int = 0
    cpus_per_gpu: int = 0
    #: MB; 0: all that the job has on the node
    mem_per_node: int | None = None
    mem_per_cpu: int | None = None
    mem_per_gpu: int | None = None
    gpus_total: int = 0
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    gpus_per_socket: int = 0
    gpu_type: str = ""
    #: --gres=none or gpu:0: no GPU although the job has some
    no_gpus: bool = False
    #: an option (not the job's environment) named GPUs
    gpus_set: bool = False
    overlap: bool = False
    exact: bool = False
    exclusive: bool = False
    whole: bool = False
    overcommit: bool = False
    threads_per_core: int = 0
    hint: str = ""
    #: as given: "block", "cyclic:block,NoPack", "plane=4", "arbitrary"
    distribution: str = ""
    cpu_bind: str = ""
    mem_bind: str = ""
    gpu_bind: str = ""
    gres_flags: str = ""
    tres_per_task: str = ""
    #: seconds; 0: unlimited; None: the job's
    time_limit: int | None = None
    #: -I: seconds to wait for resources; -1 without end
    immediate: int = -1
    #: -K; None: the cluster's KillOnBadExit
    kill_on_bad_exit: bool | None = None
    #: -W: seconds after the first task's end; None: the cluster's WaitTime; 0 without end
    wait: int | None = None
    no_kill: bool = False
    label: bool = False
    unbuffered: bool = False
    pty: bool = False
    quiet: bool = False
    #: "" through the client; else an absolute pattern (%t %n %N %j %J %s ... left in) or /dev/null,
    #: opened on the node as the user
    std_in: str = ""
    std_out: str = ""
    std_err: str = ""
    #: who gets the client's standard input: a task, ALL_TASKS or NO_TASK
    stdin_task: int = ALL_TASKS
    append: bool = False
    #: text of a --multi-prog file; "" none
    multi_prog: str = ""
    #: as given to --export
    export: str = "ALL"
    task_prolog: str = ""
    task_epilog: str = ""
    #: "none", "pmi2", "pmix" ...; "" the cluster's MpiDefault
    mpi: str = ""
    signal_num: int = 0
    signal_before: int = 60
    rlimits: dict[str, int] = {}
    #: components of a heterogeneous job that it runs on; [] component 0 (or no such job)
    het_group: list[int] = []
    network: str = ""
    #: "": srun; else what has made it ("sbcast", "salloc": an interactive shell)
    origin: str = ""
    #: warnings and errors carry these words' names: "srun", "sbcast"
    program: str = "srun"
    #: process that asked, for the log
    client_host: str = ""
    #: --quit-on-interrupt; --disable-status: the first interrupt already ends it
    quit_on_interrupt: bool = False
    disable_status: bool = False
    container: str = ""
    cpu_freq: str = ""
    gpu_freq: str = ""
    submit_line: str = ""
    #: only this task's output goes to the client, that of the others nowhere; -1: of all
    stdout_task: int = -1
    stderr_task: int = -1
    #: how often -v was given
    verbose: int = 0
    #: `srun a : b`: of each component in `het_group` its own program, size, files and --export;
    #: what is of the whole step (name, signals, ends) is said here. [] all alike
    parts: list[StepSpec] = []
    #: -E: SLURM_NNODES, SLURM_NTASKS and their like stay as they are in the client's environment
    preserve_env: bool = False
    #: --container-image, -mounts and -workdir; no image: the tasks run on the node as it is
    container_image: str = ""
    container_mounts: str = ""
    container_workdir: str = ""

    def of_part(self, index: int) -> StepSpec:
        """What is asked of one of several parts."""
        return self.parts[index] if index < len(self.parts) else self


class StepState(enum.IntEnum):
    """Where a step stands. Values are stored: never renumber."""

    RUNNING = 1
    COMPLETED = 3
    CANCELLED = 4
    FAILED = 5
    TIMEOUT = 6
    NODE_FAIL = 7
    OUT_OF_MEMORY = 11


class StepNode(msgspec.Struct, array_like=True, gc=False):
    """One node's share of a step: `alloc.tasks` of its tasks, on parts of what the job has."""

    alloc: NodeAlloc
    #: global task ids in the order of their local ids
    tasks: list[int] = []
    #: component of the heterogeneous job that the node is of
    het_offset: int = 0
    #: which of StepSpec.parts runs here
    part: int = 0

    @property
    def node(self) -> str:
        return self.alloc.node


class Step(msgspec.Struct, array_like=True, gc=False):
    """A step and its layout, and in the end what became of it."""

    job_id: int
    attempt: int
    #: its number in the job
    id: int
    name: str = ""
    ntasks: int = 1
    nodes: list[StepNode] = []
    #: CPUs per task as laid out
    cpus_per_task: int = 1
    state: StepState = StepState.RUNNING
    #: highest wait status of a task; valid once it has ended
    wstatus: int = 0
    #: uid that ended it, -1 nobody
    cancelled_by: int = -1
    usage: Usage = Usage()
    #: epoch seconds, put in by the controller
    start_time: int = 0
    end_time: int = 0
    submit_line: str = ""
    cwd: str = ""
    #: "", "block", "cyclic" ...: how its tasks lie, for accounting
    layout: str = ""
    #: node and task with max_rss_kb; average over tasks, KB
    max_rss_node: str = ""
    max_rss_task: int = 0
    ave_rss_kb: int = 0
    #: GPU utilisation, percent (average, most) and memory, MB (most); -1 unknown
    gpu_util_ave: int = -1
    gpu_util_max: int = -1
    gpu_mem_max_mb: int = -1
    #: seconds; 0 unlimited
    time_limit: int = 0
    #: GPUs by type, and seconds for which the job was suspended: before it began, and once it has
    #: ended while it ran. Both put in by the controller
    gpu_types: dict[str, int] = {}
    suspended_s: int = 0
    #: "host:pid" of the client that asked for it (pid 0: not known); "" not known
    srun: str = ""
    #: somebody wants it ended: its node is told again when it registers anew
    ends: bool = False

    @property
    def running(self) -> bool:
        return self.state == StepState.RUNNING

    def by_component(self) -> list[Step]:
        """The step as each component of a heterogeneous job that it runs in has it, with that
        component's id; itself where there is but the first. What it used counts once."""
        offsets = sorted({share.het_offset for share in self.nodes})
        if offsets in ([], [0]):
            return [self]
        found = []
        for offset in offsets:
            nodes = [share for share in self.nodes if share.het_offset == offset]
            part = msgspec.structs.replace(self, job_id=self.job_id + offset, nodes=nodes)
            part.ntasks = sum(len(share.tasks) for share in nodes)
            if offset != offsets[0]:
                part.usage, part.max_rss_node, part.ave_rss_kb = Usage(), "", 0
            found.append(part)
        return found
