"""The typed configuration: what slurm.conf and the files beside it say, defaults filled in.

Sizes are MB, times seconds. Time limits: 0 is unlimited. Other limits: None is no limit, None for
a default is "not set".
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import msgspec


class GresCount(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a node's Gres=: "gpu:h100:8"."""

    name: str
    #: "" where no type is given
    type: str = ""
    count: int = 1
    #: no_consume: requests do not use it up
    no_consume: bool = False
    #: text of a "(S:0-1)" socket list, "" none
    sockets: str = ""

    def __str__(self) -> str:
        parts = [self.name, *([self.type] if self.type else [])]
        if self.no_consume:
            parts.append("no_consume")
        text = ":".join([*parts, str(self.count)])
        return f"{text}(S:{self.sockets})" if self.sockets else text


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One node, after DEFAULT lines and host lists are resolved."""

    name: str
    hostname: str
    addr: str
    #: 0: the cluster's SlurmdPort
    port: int = 0
    cpus: int = 1
    boards: int = 1
    #: sockets of all boards together
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    #: MB
    real_memory: int = 1
    tmp_disk: int = 0
    weight: int = 1
    features: tuple[str, ...] = ()
    gres: tuple[GresCount, ...] = ()
    #: UNKNOWN, DOWN, DRAIN, FAIL, FUTURE or CLOUD
    state: str = "UNKNOWN"
    reason: str = ""
    core_spec_count: int = 0
    cpu_spec_list: str = ""
    #: MB kept for the system
    mem_spec_limit: int = 0
    #: cores for each GPU that jobs without GPUs never get
    restricted_cores_per_gpu: int = 0

    @property
    def gpus(self) -> int:
        """How many GPUs the configuration promises."""
        return sum(item.count for item in self.gres if item.name == "gpu")

    @property
    def gpu_types(self) -> dict[str, int]:
        """GPUs by type ("" for those without one)."""
        types: dict[str, int] = {}
        for item in self.gres:
            if item.name == "gpu":
                types[item.type] = types.get(item.type, 0) + item.count
        return types

    @property
    def gres_text(self) -> str:
        """As scontrol shows it: "gpu:h100:8"; "" for none."""
        return ",".join(str(item) for item in self.gres)

    def expand(self, text: str) -> str:
        """A path of this node: %n is its name, %h its host name, %% a percent sign."""
        marks = {"%n": self.name, "%h": self.hostname, "%%": "%"}
        pieces = []
        at = 0
        while at < len(text):
            mark = text[at : at + 2]
            pieces.append(marks.get(mark, text[at]))
            at += 2 if mark in marks else 1
        return "".join(pieces)


class PartitionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, after DEFAULT lines are resolved."""

    name: str
    #: its nodes in the order of the configuration, each once
    nodes: tuple[str, ...] = ()
    #: Nodes= as written ("ALL", "node[1-4]")
    nodes_text: str = ""
    default: bool = False
    #: seconds; 0 unlimited
    max_time: int = 0
    #: seconds; None: jobs without a limit get max_time; 0 unlimited
    default_time: int | None = None
    #: UP, DOWN, DRAIN or INACTIVE
    state: str = "UP"
    priority_tier: int = 1
    priority_job_factor: int = 1
    max_nodes: int | None = None
    min_nodes: int = 0
    #: MB; at most one of the first two is set
    def_mem_per_cpu: int | None = None
    def_mem_per_node: int | None = None
    def_mem_per_gpu: int | None = None
    def_cpu_per_gpu: int | None = None
    max_mem_per_cpu: int | None = None
    max_mem_per_node: int | None = None
    max_cpus_per_node: int | None = None
    max_cpus_per_socket: int | None = None
    #: () means all
    allow_groups: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    allow_alloc_nodes: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    hidden: bool = False
    root_only: bool = False
    req_resv: bool = False
    disable_root_jobs: bool = False
    exclusive_user: bool = False
    lln: bool = False
    #: NO, YES, FORCE or EXCLUSIVE
    oversubscribe: str = "NO"
    #: jobs per resource with YES and FORCE
    oversubscribe_count: int = 4
    #: seconds
    grace_time: int = 0
    #: minutes past the limit; None: the cluster's OverTimeLimit
    over_time_limit: int | None = None
    #: OFF, CANCEL, REQUEUE, SUSPEND, GANG...; "" the cluster's
    preempt_mode: str = ""
    qos: str = ""
    alternate: str = ""
    tres_billing_weights: str = ""
    select_type_parameters: str = ""


class GresLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of gres.conf."""

    file: str
    line: int
    #: nodes it is for; None: all
    nodes: frozenset[str] | None = None
    #: "" where the line only says AutoDetect
    name: str = ""
    type: str = ""
    #: device files, expanded
    files: tuple[str, ...] = ()
    #: files of one device (MultipleFiles)
    multiple_files: tuple[str, ...] = ()
    count: int = 1
    #: core numbers, () any
    cores: tuple[int, ...] = ()
    #: links to device 0, 1, ... (-1 itself); () not said
    links: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    #: "nvml", "off" or "" (not said)
    autodetect: str = ""


class Cgroup(msgspec.Struct, frozen=True, kw_only=True):
    """cgroup.conf. Percentages are of what the job was given, or of the node's memory (max_*)."""

    #: autodetect, cgroup/v1, cgroup/v2 or disabled
    plugin: str = "autodetect"
    mountpoint: str = "/sys/fs/cgroup"
    constrain_cores: bool = False
    constrain_devices: bool = False
    constrain_ram_space: bool = False
    constrain_swap_space: bool = False
    allowed_ram_space: float = 100.0
    allowed_swap_space: float = 0.0
    max_ram_percent: float = 100.0
    max_swap_percent: float = 100.0
    #: MB below which no limit is set
    min_ram_space: int = 30
    memory_swappiness: int | None = None
    signal_children_processes: bool = False


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One SwitchName (tree) or BlockName (block) line of topology.conf."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    block: bool = False
    #: of no meaning but to whoever looks at it
    link_speed: int = 1


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """One SlurmctldHost: name(address)."""

    name: str
    addr: str


#: limits that Slurm takes along, in the order it names them
RESOURCE_LIMITS = (
    *("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS"),
    *("NPROC", "NOFILE", "MEMLOCK", "AS"),
)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Field names are Slurm's keys in lower case."""

    #: path of slurm.conf as it was opened ("" when parsed from text)
    path: str = ""
    #: files that the reader can do without and that are wrong: name -> "file:line: sentence"; what
    #: they would have said is absent
    broken: dict[str, str] = {}
    cluster_name: str
    slurmctld_host: tuple[Host, ...]
    slurmctld_port: int = 6817
    slurmd_port: int = 6818
    slurm_user: str = "root"
    slurmd_user: str = "root"
    state_save_location: str = "/var/spool"
    #: may hold %n and %h, as may the next two of slurmd: NodeConfig.expand
    slurmd_spool_dir: str = "/var/spool/slurmd"
    slurmctld_pid_file: str = "/var/run/slurmctld.pid"
    slurmd_pid_file: str = "/var/run/slurmd.pid"
    #: "" none
    slurmctld_log_file: str = ""
    slurmd_log_file: str = ""
    #: quiet, fatal, error, info, verbose, debug, debug2 ... debug5
    slurmctld_debug: str = "info"
    slurmd_debug: str = "info"
    #: seconds; 0 never
    slurmd_timeout: int = 300
    slurmctld_timeout: int = 120
    kill_wait: int = 30
    unkillable_step_timeout: int = 60
    #: seconds a finished job stays; 0 for ever
    min_job_age: int = 300
    max_job_count: int = 10000
    max_array_size: int = 1001
    #: of one step; with --overcommit too
    max_tasks_per_node: int = 512
    def_mem_per_cpu: int | None = None
    def_mem_per_node: int | None = None
    def_mem_per_gpu: int | None = None
    def_cpu_per_gpu: int | None = None
    max_mem_per_cpu: int | None = None
    max_mem_per_node: int | None = None
    job_requeue: bool = True
    #: NO, ALL or ANY
    enforce_part_limits: str = "NO"
    first_job_id: int = 1
    max_job_id: int = 67043328
    return_to_service: int = 0
    #: scripts, in order; glob patterns as written
    epilog: tuple[str, ...] = ()
    prolog: tuple[str, ...] = ()
    epilog_slurmctld: tuple[str, ...] = ()
    prolog_slurmctld: tuple[str, ...] = ()
    prolog_flags: tuple[str, ...] = ()
    #: names of limits that jobs take along, ("ALL",) or ("NONE",); () not said; and all but these
    propagate_limits: tuple[str, ...] = ()
    propagate_limits_except: tuple[str, ...] = ()
    #: seconds; None unlimited
    prolog_epilog_timeout: int | None = None
    tmp_fs: str = "/tmp"
    scheduler_parameters: str = ""
    #: seconds for which jobs that share CPUs work in turn (PreemptMode=GANG)
    scheduler_time_slice: int = 30
    scheduler_type: str = "sched/backfill"
    select_type: str = "select/cons_tres"
    #: upper case, e.g. ("CR_CORE_MEMORY",)
    select_type_parameters: tuple[str, ...] = ("CR_CORE_MEMORY",)
    priority_type: str = "priority/multifactor"
    priority_weight_age: int = 0
    priority_weight_assoc: int = 0
    priority_weight_fairshare: int = 0
    priority_weight_job_size: int = 0
    priority_weight_partition: int = 0
    priority_weight_qos: int = 0
    priority_weight_tres: str = ""
    #: seconds
    priority_max_age: int = 7 * 86400
    priority_decay_half_life: int = 7 * 86400
    priority_favor_small: bool = False
    #: seconds
    priority_calc_period: int = 300
    #: upper case
    priority_flags: tuple[str, ...] = ()
    priority_parameters: str = ""
    priority_site_factor_parameters: str = ""
    priority_site_factor_plugin: str = ""
    #: NONE, NOW, DAILY, WEEKLY, MONTHLY, QUARTERLY, YEARLY
    priority_usage_reset_period: str = "NONE"
    fair_share_dampening_factor: int = 1
    preempt_type: str = "preempt/none"
    preempt_mode: str = "OFF"
    #: seconds that a job runs before it may be preempted
    preempt_exempt_time: int = 0
    preempt_parameters: str = ""
    gres_types: tuple[str, ...] = ()
    launch_parameters: tuple[str, ...] = ()
    communication_parameters: tuple[str, ...] = ()
    slurmctld_parameters: tuple[str, ...] = ()
    slurmd_parameters: tuple[str, ...] = ()
    proctrack_type: str = "proctrack/cgroup"
    task_plugin: tuple[str, ...] = ()
    inactive_limit: int = 0
    batch_start_timeout: int = 10
    message_timeout: int = 10
    #: minutes
    over_time_limit: int = 0
    health_check_program: str = ""
    #: seconds; 0 never
    health_check_interval: int = 0
    #: states of a node in which it runs: ANY, ALLOC, IDLE, MIXED, CYCLE
    health_check_node_state: tuple[str, ...] = ()
    unkillable_step_program: str = ""
    #: name -> count
    licenses: dict[str, int] = {}
    #: "" none
    accounting_storage_type: str = ""
    #: URL of the database or path of an SQLite file; "" the default one, in StateSaveLocation
    accounting_storage_loc: str = ""
    accounting_storage_enforce: tuple[str, ...] = ()
    accounting_storage_tres: tuple[str, ...] = ()
    #: what ordinary users see of their own only: "jobs", "all", ... (lower or upper case)
    private_data: tuple[str, ...] = ()
    job_submit_plugins: tuple[str, ...] = ()
    mail_prog: str = "/bin/mail"
    #: jobs have WCKeys: the user's default where none is named
    track_wckey: bool = False
    topology_plugin: str = "topology/flat"
    topology_param: tuple[str, ...] = ()

    # ---- gsched's own
    #: library to load as NVML ("" the system's); may hold %n
    nvml_library: str = ""
    #: topology file of the fake NVML library; may hold %n
    nvml_topology: str = ""
    #: when a silent node's jobs may run elsewhere: timeout (SlurmdTimeout) or proof
    requeue_fence: str = "timeout"
    #: frontend workers; 0: one per two CPUs, at least two
    frontends: int = 0
    #: port of the controller's host for frontends of other hosts; 0: there are none
    frontend_port: int = 0
    #: what enters the image of --container-image; "" there are no containers
    container_launcher: str = ""
    #: most processes and threads that a job may have on a node; 0: no limit
    max_job_processes: int = 0

    # ---- the other lines and files
    #: name -> node, in the order of the file
    nodes: dict[str, NodeConfig] = {}
    partitions: dict[str, PartitionConfig] = {}
    gres: tuple[GresLine, ...] = ()
    cgroup: Cgroup = Cgroup()
    #: of the topology plugin in force, in the order of the file
    switches: tuple[Switch, ...] = ()
    #: topology/block: nodes that blocks are for, then groups of them, then groups of these
    block_sizes: tuple[int, ...] = ()
    #: known keys that have no effect here: name -> "file:line"; the daemons name them once
    ignored: dict[str, str] = {}
    #: sentences for the log: accepted, but not as written
    warnings: tuple[str, ...] = ()
    #: checksum of slurm.conf with what it includes, as read: comments, blanks and places of lines
    #: in files do not count; "" where it was not read from text
    checksum: str = ""
    #: every global key of slurm.conf as written: lower-case key -> value (for `show config`)
    raw: dict[str, str] = {}

    @property
    def default_partition(self) -> str:
        """Name of the default partition; "" if there is none."""
        for partition in self.partitions.values():
            if partition.default:
                return partition.name
        return ""

    @property
    def run_dir(self) -> str:
        """Where the daemons' local sockets lie: the directory of SlurmctldPidFile."""
        return os.path.dirname(self.slurmctld_pid_file)

    @property
    def frontend_socket(self) -> str:
        """Path of the socket that commands connect to."""
        return os.path.join(self.run_dir, "frontend.sock")

    @property
    def scheduler_options(self) -> dict[str, str]:
        """SchedulerParameters as name -> value ("" where there is none), names in lower case."""
        options = {}
        for item in self.scheduler_parameters.split(","):
            name, _, value = item.strip().partition("=")
            if name:
                options[name.lower()] = value
        return options

    @property
    def nohold_on_prolog_fail(self) -> bool:
        """SchedulerParameters=nohold_on_prolog_fail: what a Prolog has refused is queued again
        without a hold."""
        return "nohold_on_prolog_fail" in self.scheduler_options

    def port_of(self, node: str) -> int:
        """The slurmd port of a node."""
        return self.nodes[node].port or self.slurmd_port

    def partitions_of(self, node: str) -> list[str]:
        """Names of the partitions a node is in, in the order of the file."""
        return [part.name for part in self.partitions.values() if node in part.nodes]

    def def_mem(self, partition: str = "") -> tuple[str, int] | None:
        """The default memory of a job: ("cpu" | "node" | "gpu", MB); None: all of the node.

        A partition's own default goes before the cluster's; one per GPU counts only for jobs
        with GPUs, so it is given last: see `def_mem_gpu`.
        """
        for place in self._places(partition):
            if place.def_mem_per_cpu is not None:
                return ("cpu", place.def_mem_per_cpu) if place.def_mem_per_cpu else None
            if place.def_mem_per_node is not None:
                return ("node", place.def_mem_per_node) if place.def_mem_per_node else None
        return None

    def def_mem_gpu(self, partition: str = "") -> int | None:
        """DefMemPerGPU for a job in a partition, MB; None: not set."""
        for place in self._places(partition):
            if place.def_mem_per_gpu is not None:
                return place.def_mem_per_gpu
        return None

    def def_cpu_gpu(self, partition: str = "") -> int | None:
        """DefCpuPerGPU for a job in a partition; None: not set."""
        for place in self._places(partition):
            if place.def_cpu_per_gpu is not None:
                return place.def_cpu_per_gpu
        return None

    def _places(self, partition: str) -> Iterator[PartitionConfig | Config]:
        found = self.partitions.get(partition)
        if found is not None:
            yield found
        yield self

    def gres_lines(self, node: str, name: str = "gpu") -> list[GresLine]:
        """The lines of gres.conf that describe devices of a node."""
        return [
            line
            for line in self.gres
            if line.name == name and (line.nodes is None or node in line.nodes)
        ]

    def gres_checksum(self, node: str) -> str:
        """Of what gres.conf says of a node, as `checksum`; "" where it says nothing of it."""
        lines = [
            msgspec.structs.replace(line, nodes=None, file="", line=0)
            for line in self.gres
            if line.nodes is None or node in line.nodes
        ]
        return f"{zlib.crc32(repr(lines).encode(errors='replace')):08x}" if lines else ""

    def gres_flags(self, node: str) -> frozenset[str]:
        """The words of Flags= for a node's GPUs, also from a line that only says AutoDetect."""
        return frozenset(
            flag
            for line in self.gres
            if line.name in ("", "gpu") and (line.nodes is None or node in line.nodes)
            for flag in line.flags
        )

    def autodetect(self, node: str) -> str:
        """AutoDetect of a node: "nvml" or "off". A line for the node goes before a global one."""
        for_all = for_node = ""
        for line in self.gres:
            if not line.autodetect:
                continue
            if line.nodes is None:
                for_all = line.autodetect
            elif node in line.nodes:
                for_node = line.autodetect
        return for_node or for_all or "off"
