"""What is known of a job. Records are msgspec arrays: new fields only at the end, with defaults."""

from __future__ import annotations

import msgspec

from gsched.model.preempt import Claim, MakingWay
from gsched.model.states import Hold, JobState, Phase


class Shape(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The request, normalised once at submission: how much of what, in which arrangement.

    Jobs with equal shapes (and partition) form one request class.
    """

    #: node count asked for; max_nodes 0 means "no upper bound but what ntasks needs"
    min_nodes: int = 1
    max_nodes: int = 0
    #: True when the user named a node count (-N); shows in the environment and in scontrol
    nodes_set: bool = False
    #: tasks in all; 0 when not named (then one per node, or what --ntasks-per-node gives)
    ntasks: int = 0
    ntasks_per_node: int = 0
    cpus_per_task: int = 1
    cpus_per_task_set: bool = False
    #: --mincpus
    min_cpus_node: int = 0
    #: memory in MB; at most one of the three is not None; 0 means all memory of the node
    mem_per_node: int | None = None
    mem_per_cpu: int | None = None
    mem_per_gpu: int | None = None
    #: GPUs; 0 means not asked in that form. gres_* tell how it was said (for display)
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    gpus_per_socket: int = 0
    gpus_total: int = 0
    #: GPU type ("" any); the same for all forms in this release
    gpu_type: str = ""
    #: 0 share, 1 whole nodes (--exclusive), 2 --exclusive=user
    exclusive: int = 0
    #: constraint expression as given ("" none)
    features: str = ""
    #: node names, expanded; all of them must be in the allocation
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    cpus_per_gpu: int = 0
    tmp_disk_mb: int = 0
    contiguous: bool = False
    #: -S/--core-spec, --sockets-per-node, --cores-per-socket, --threads-per-core; 0 not asked
    sockets_per_node: int = 0
    cores_per_socket: int = 0
    threads_per_core: int = 0
    ntasks_per_socket: int = 0
    ntasks_per_core: int = 0
    ntasks_per_gpu: int = 0
    oversubscribe: bool = False
    #: -O: more tasks than CPUs; one CPU per node is enough
    overcommit: bool = False
    #: so many parts of one GPU on each node, and which: "shard" or "mps" ("" none)
    share_count: int = 0
    share: str = ""
    #: GPUs of several types: (type, per node, per task, in all) each; the three gpus_* are the sums
    gpu_kinds: tuple[tuple[str, int, int, int], ...] = ()
    #: --gres-flags: 1 cores near the GPUs only, 2 cores anywhere, 0 near where there are any
    gres_binding: int = 0
    #: --gres-flags=one-island: the GPUs of each node on one island
    one_island: bool = False
    #: --prefer: tried before `features`, which it takes the place of
    prefer: str = ""
    #: over as many nodes as possible; of a range of node counts the smallest; nodes in groups of so
    #: many, each within one block (0: no groups)
    spread: bool = False
    use_min_nodes: bool = False
    segment: int = 0
    #: uid whose jobs alone may be on its nodes, where that is wanted (--exclusive=user, or a
    #: partition with ExclusiveUser); the controller puts it in; -1 it does not matter
    owner: int = -1
    #: (name, type, count) of other generic resources of each node: Slurm's --gres=dongle:2
    counted: tuple[tuple[str, str, int], ...] = ()


class Alternative(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One of several requests any of which will do: what then are `JobSpec.shape` and `.tres`."""

    shape: Shape
    tres: dict[str, str]


class JobSpec(msgspec.Struct, array_like=True, gc=False):
    """What the user submitted, after normalising: never changed but by `scontrol update`."""

    name: str = "sbatch"
    shape: Shape = Shape()
    #: partitions in the order given; () takes the default partition
    partitions: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    #: seconds; None: the partition's default; 0: unlimited
    time_limit: int | None = None
    time_min: int | None = None
    #: epoch seconds; 0: at once
    begin: int = 0
    deadline: int = 0
    nice: int = 0
    #: priority set with --priority; None: computed
    priority: int | None = None
    hold: bool = False
    #: None: the cluster's JobRequeue
    requeue: bool | None = None
    reboot: bool = False
    work_dir: str = "/"
    #: file name patterns as given ("" default); expanded on the node
    std_in: str = ""
    std_out: str = ""
    std_err: str = ""
    #: "", "append" or "truncate"
    open_mode: str = ""
    umask: int = 0o022
    #: script path as shown in Command= ("" for --wrap and standard input)
    command: str = ""
    args: tuple[str, ...] = ()
    submit_line: str = ""
    alloc_node: str = ""
    alloc_sid: int = 0
    comment: str = ""
    admin_comment: str = ""
    wckey: str = ""
    dependency: str = ""
    array: str = ""
    reservation: str = ""
    licenses: str = ""
    mail_type: int = 0
    mail_user: str = ""
    #: --signal: number, seconds before the end, True for the batch shell only (B:)
    signal_num: int = 0
    signal_before: int = 60
    signal_batch: bool = False
    #: soft limits of the submitting process to carry over: name -> value (-1 infinite)
    rlimits: dict[str, int] = {}
    #: how --export was given: "ALL", "NONE", "NIL" or the list as given
    export: str = "ALL"
    get_user_env: bool = False
    #: how the user spelled the GPU request: TRES text by scope, for display and environment,
    #: e.g. {"per_node": "gres/gpu:2", "per_task": "gres/gpu:h100=1", "per_job": ...}
    tres: dict[str, str] = {}
    kill_on_node_fail: bool = True
    spread: bool = False
    network: str = ""
    switches: int = 0
    switch_wait: int = 0
    distribution: str = ""
    core_spec: int = 0
    thread_spec: int = 0
    hint: str = ""
    gpu_bind: str = ""
    gpu_freq: str = ""
    cpu_freq: str = ""
    mem_bind: str = ""
    kill_on_invalid_dep: bool | None = None
    extra: str = ""
    container: str = ""
    prefer: str = ""
    batch_features: str = ""
    power: str = ""
    burst_buffer: str = ""
    cluster_features: str = ""
    delay_boot: int = 0
    wait_all_nodes: int | None = None
    #: options given that have no effect here, by name (the client said so once)
    ignored: tuple[str, ...] = ()
    #: "": a batch job; "srun", "salloc": its end is the step's or the client's, and what lies in
    #: the place of the script is a `wire.steps.Interactive`
    interactive: str = ""
    #: --immediate: seconds within which it must start, else it is refused; -1 none
    immediate: int = -1
    #: requests any of which will do, in the order of preference (--gpus=h100:4|a100:8); (): `shape`
    #: alone. While it waits `shape` is the first, once it has started the one it runs with
    alternatives: tuple[Alternative, ...] = ()
    #: --container-image, -mounts and -workdir of sbatch and salloc: where the script runs, and
    #: steps that name no image; "" on the node as it is
    container_image: str = ""
    container_mounts: str = ""
    container_workdir: str = ""


class NodeAlloc(msgspec.Struct, array_like=True, gc=False):
    """One node's share of an attempt."""

    node: str
    cpus: int
    tasks: int
    mem_mb: int
    #: bitmap of GPU bits of that node (bits are bound to UUIDs in the node's record)
    gpus: int = 0
    #: `cpu_ids` in words of 64 bits, lowest first: more than an integer of msgpack can hold
    cpu_words: list[int] = []
    phase: Phase = Phase.PLACED
    #: > 0: only so many parts of the one GPU in `gpus` (shards, or mps)
    shares: int = 0

    @property
    def whole_gpus(self) -> int:
        """How many GPUs it holds for itself alone."""
        return 0 if self.shares else self.gpus.bit_count()

    @property
    def cpu_ids(self) -> int:
        """Bitmap of CPU numbers (Slurm's abstract ids: 0..CPUs-1)."""
        return sum(word << (64 * index) for index, word in enumerate(self.cpu_words))

    @cpu_ids.setter
    def cpu_ids(self, bitmap: int) -> None:
        words = []
        while bitmap:
            words.append(bitmap & 0xFFFF_FFFF_FFFF_FFFF)
            bitmap >>= 64
        self.cpu_words = words


class Dep(msgspec.Struct, array_like=True, gc=False):
    """One item of a dependency list. A failed or fulfilled one keeps its place until the whole
    list is decided."""

    #: after, afterany, afterok, afternotok, aftercorr, afterburstbuffer, singleton
    kind: str
    job_id: int = 0
    #: task of an array; -1: the job, or all tasks
    task: int = -1
    #: minutes after the start (after:ID+MIN)
    minutes: int = 0
    #: 0 waiting, 1 fulfilled, 2 failed
    state: int = 0
    #: alternatives (?) instead of all (,)
    alternative: bool = False
    #: the job is an array (shown as ID_*)
    array: bool = False


class Usage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the batch step used, from the node."""

    user_ms: int = 0
    system_ms: int = 0
    max_rss_kb: int = 0


class Job(msgspec.Struct, array_like=True, gc=False):
    """A job: who, what (spec) and where it stands. One record in the store."""

    id: int
    uid: int
    gid: int
    #: names at submission (resolved by the client's side: no name service in the controller)
    user: str
    group: str
    spec: JobSpec
    #: content hashes of script and environment in the blob table ("" none)
    script: str = ""
    environment: str = ""
    state: JobState = JobState.PENDING
    #: the end is recorded, but some node has not released its share yet
    completing: bool = False
    #: array: id of the array (0 none) and this task's index (-1: tasks still together)
    array_job_id: int = 0
    array_task_id: int = -1
    #: started by the controller, not all nodes have said `prepared`/`running` yet
    configuring: bool = False
    #: the partition it runs in, or is considered for
    partition: str = ""
    #: effective time limit in seconds; 0 unlimited
    time_limit: int = 0
    priority: int = 0
    held: Hold = Hold.NONE
    #: reason that is a fact and not a verdict ("TimeLimit", "NonZeroExitCode", ...; "" none)
    reason: str = ""
    submit_time: int = 0
    #: earliest time it may run; 0: not eligible yet
    eligible_time: int = 0
    start_time: int = 0
    end_time: int = 0
    #: number of the current or last attempt; 0: never tried
    attempt: int = 0
    #: what users see: how often it was requeued
    restarts: int = 0
    alloc: list[NodeAlloc] = []
    #: wait status of the batch script (exit code << 8 | signal), as waitpid gives it
    wstatus: int = 0
    derived_wstatus: int = 0
    #: state to take when the attempt has ended and kill orders are out (None: by exit status)
    ending: JobState | None = None
    #: the user (uid) who cancelled it; -1 nobody
    cancelled_by: int = -1
    #: the attempt's end is to be followed by another try
    requeue_after: bool = False
    hold_after: bool = False
    usage: Usage = Usage()
    last_sched_eval: int = 0
    suspend_time: int = 0
    pre_suspend_s: int = 0
    het_job_id: int = 0
    het_offset: int = 0
    sluid: str = ""
    #: GPU count by type that the current or last allocation holds, e.g. {"h100": 2}
    gpu_types: dict[str, int] = {}
    #: the last allocation of a finished job, kept for display when alloc is given back
    last_nodes: str = ""
    #: text from the node when the attempt could not be launched
    system_comment: str = ""
    #: tasks of an array that are still together in this record: "0-3,7,10-20:2"; else ""
    array_pending: str = ""
    #: most tasks of the array that may run at once (0: any number)
    array_throttle: int = 0
    #: what it waits for; [] once all is fulfilled
    deps: list[Dep] = []
    #: once it is queued again: seconds until it may start, and the reason of its hold ("" none)
    requeue_wait: int = 0
    hold_reason: str = ""
    #: components of the heterogeneous job (0: none); their ids follow het_job_id
    het_size: int = 0
    #: licences it holds, "a:2,b:1"; of alternatives those that it got
    licenses_alloc: str = ""

    #: the advance reservation that it runs in, or ran in; "" none
    reservation: str = ""
    #: numbers of the attempt's steps that are known, as runs (first, last)
    steps_known: list[tuple[int, int]] = []
    #: its association (Assoc.id); 0 none: associations are not enforced and it has none
    assoc_id: int = 0
    #: what its request, and its current or last allocation, is billed for (TRESBillingWeights);
    #: -1: its CPUs
    billing_asked: int = -1
    billing: int = -1
    #: of an attempt that a lost node ended: when that node was last heard of (epoch seconds): what
    #: it used after that is not known; 0: its end was reported
    last_report: int = 0
    #: it makes way for another, until its attempt is over
    way: MakingWay | None = None
    #: what is kept for it while it waits for those that make way
    claim: Claim | None = None
    #: how often it has made way, and for which jobs: it never preempts those
    preempted: int = 0
    above: list[int] = []
    #: when the attempt last made way (epoch seconds), for display; 0 never
    preempt_time: int = 0
    #: from when on the attempt may have to make way (epoch seconds)
    preempt_eligible: int = 0
    #: when the attempt last said that its work is saved (epoch seconds); 0 never
    checkpoint_time: int = 0
    #: why the last attempt was followed by another: "preempted", "node_fail", ...; "" none was
    restart_reason: str = ""
    #: PrologSlurmctld has not ended yet: no node knows of the attempt
    prolog_due: bool = False
    #: added to its priority by administrators (SiteFactor)
    site_factor: int = 0
    #: it started, or has been promised a place, within what its account is guaranteed
    guaranteed: bool = False
    #: since when its age counts where the number of jobs that grow older is limited: 0 not yet; -1:
    #: since it may start
    accrue_time: int = -1
    #: it stands still so that others have its CPUs and GPUs, since then (epoch seconds); 0: it does
    #: not
    paused: int = 0
    #: of those that have the same CPUs or GPUs who gets them back first, the highest number: one
    #: more than those had that stood still for it when it started
    turn: int = 0
    #: the account in whose whole nodes or islands it is guaranteed, or has been promised a place;
    #: "" none
    pool: str = ""
    #: it waits for its turn on CPUs that it shares with others, since then (epoch seconds); 0: it
    #: does not. Of one that is over, until it is released: it stood still then, for whatever reason
    sliced: int = 0

    @property
    def finished(self) -> bool:
        return self.state >= JobState.COMPLETED

    @property
    def unreleased(self) -> list[NodeAlloc]:
        """What it has of nodes still."""
        return [part for part in self.alloc if part.phase < Phase.RELEASED]

    @property
    def batch_host(self) -> str:
        """Name of the node that runs the script ("" before the first start)."""
        return self.alloc[0].node if self.alloc else ""
