"""`scontrol show node` and `show partition`: everything about them as text."""

from __future__ import annotations

from collections.abc import Mapping

from gsched import gpushare
from gsched.config import Config, PartitionConfig
from gsched.cpuset import specialized
from gsched.hostlist import compress
from gsched_cli.nodeview import NodeView, share_texts, tres_text, user_name
from gsched_cli.text import duration, or_null, timestamp


def node_lines(
    view: NodeView, config: Config, env: Mapping[str, str], now: float, detail: int
) -> list[str]:
    """The lines of one node, without indentation and line ends (some end in a blank, as
    Slurm's)."""

    def when(moment: int, none: str) -> str:
        return timestamp(moment, env, now, none)

    conf, node, use = view.conf, view.node, view.use
    arch = f"Arch={node.arch} " if node.arch else ""
    gres = view.gres
    lines = [
        f"NodeName={conf.name} {arch}CoresPerSocket={conf.cores_per_socket} ",
        f"CPUAlloc={use.cpus_alloc} CPUEfctv={conf.cpus - specialized(conf).bit_count()} "
        f"CPUTot={conf.cpus} CPULoad={view.load}",
        f"AvailableFeatures={view.features}",
        f"ActiveFeatures={view.active_features}",
        f"Gres={gres}",
    ]
    if detail:
        lines += ["GresDrain=N/A", f"GresUsed={view.gres_used}"]
    version = f" Version={node.version}" if node.version else ""
    lines.append(
        f"NodeAddr={conf.addr} NodeHostName={conf.hostname} Port={config.port_of(conf.name)}"
        f"{version}"
    )
    if node.os:
        lines.append(f"OS={node.os} ")
    partitions = ",".join(config.partitions_of(conf.name))
    lines += [
        f"RealMemory={conf.real_memory} AllocMem={use.mem_alloc_mb} FreeMem={view.free_memory} "
        f"Sockets={conf.sockets} Boards={conf.boards}",
        f"State={view.full_state} ThreadsPerCore={conf.threads_per_core} TmpDisk={conf.tmp_disk} "
        f"Weight={conf.weight} Owner=N/A MCS_label=N/A",
    ]
    if partitions:
        lines.append(f"Partitions={partitions} ")
    busy = use.last_busy or node.start_time
    lines += [
        f"BootTime={when(node.boot_time, 'None')} SlurmdStartTime={when(node.start_time, 'None')}",
        f"LastBusyTime={when(busy, 'Unknown')} ResumeAfterTime=None SuspendTime=INFINITE",
        f"CfgTRES={view.configured_tres}",
        f"AllocTRES={view.allocated_tres}",
        "CurrentWatts=0 AveWatts=0",
    ]
    if view.reason:
        by = ""
        if node.reason_time:
            by = f" [{user_name(node.reason_uid)}@{when(node.reason_time, 'Unknown')}]"
        lines.append(f"Reason={view.reason}{by}")
    if node.conf_differs:
        lines.append(f"ConfigDiffers={node.conf_differs}")
    if node.comment:
        lines.append(f"Comment={node.comment}")
    if node.extra:
        lines.append(f"Extra={node.extra}")
    return lines


def partition_lines(part: PartitionConfig, config: Config) -> list[str]:
    """The lines of one partition, without indentation and line ends."""
    nodes = [config.nodes[name] for name in part.nodes]
    cpus = sum(node.cpus for node in nodes)
    accounts = _names("AllowAccounts", part.allow_accounts)
    if part.deny_accounts:
        accounts = _names("DenyAccounts", part.deny_accounts)
    qos = _names("AllowQos", part.allow_qos)
    if part.deny_qos:
        qos = _names("DenyQos", part.deny_qos)
    default_time = "NONE"
    if part.default_time is not None:
        default_time = _limit(part.default_time)
    over = "NONE" if part.over_time_limit is None else str(part.over_time_limit)
    oversubscribe = part.oversubscribe
    if oversubscribe in ("YES", "FORCE"):
        oversubscribe += f":{part.oversubscribe_count}"
    alternate = f" Alternate={part.alternate}" if part.alternate else ""
    # Slurm names what is in force in an order of its own: GANG,SUSPEND.
    modes = (part.preempt_mode or config.preempt_mode).split(",")
    preempt_mode = ",".join(sorted(modes))
    lines = [
        f"PartitionName={part.name}",
        f"{_names('AllowGroups', part.allow_groups)} {accounts} {qos}",
        f"{_names('AllocNodes', part.allow_alloc_nodes)} Default={_yes(part.default)} "
        f"QoS={part.qos or 'N/A'}{alternate}",
        f"DefaultTime={default_time} DisableRootJobs={_yes(part.disable_root_jobs)} "
        f"Exclusive={'USER' if part.exclusive_user else 'NO'} GraceTime={part.grace_time} "
        f"Hidden={_yes(part.hidden)}",
        f"MaxNodes={_count(part.max_nodes)} MaxTime={_limit(part.max_time)} "
        f"MinNodes={part.min_nodes} LLN={_yes(part.lln)} "
        f"MaxCPUsPerNode={_count(part.max_cpus_per_node)} "
        f"MaxCPUsPerSocket={_count(part.max_cpus_per_socket)}",
        f"Nodes={compress(part.nodes)}",
        f"PriorityJobFactor={part.priority_job_factor} PriorityTier={part.priority_tier} "
        f"RootOnly={_yes(part.root_only)} ReqResv={_yes(part.req_resv)} "
        f"OverSubscribe={oversubscribe}",
        f"OverTimeLimit={over} PreemptMode={preempt_mode}",
        f"State={part.state} TotalCPUs={cpus} TotalNodes={len(nodes)} "
        f"SelectTypeParameters={part.select_type_parameters or 'NONE'}",
        f"JobDefaults={or_null(job_defaults(part))}",
        f"{_memory('Def', part.def_mem_per_cpu, part.def_mem_per_node)} "
        f"{_memory('Max', part.max_mem_per_cpu, part.max_mem_per_node)}",
        f"TRES={partition_tres(part, config)}",
    ]
    if part.tres_billing_weights:
        lines.append(f"TRESBillingWeights={part.tres_billing_weights}")
    return lines


def partition_tres(part: PartitionConfig, config: Config) -> str:
    """What its nodes have, as TRES text. Cost: its nodes."""
    nodes = [config.nodes[name] for name in part.nodes]
    types: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.gpu_types.items():
            types[kind] = types.get(kind, 0) + count
    cpus, mb = sum(node.cpus for node in nodes), sum(node.real_memory for node in nodes)
    text = tres_text(cpus, mb, len(nodes), sum(types.values()), types)
    return ",".join([text, *share_texts(gpushare.configured(nodes))])


def _yes(flag: bool) -> str:
    return "YES" if flag else "NO"


def _names(key: str, names: tuple[str, ...]) -> str:
    return f"{key}={','.join(names) or 'ALL'}"


def _count(n: int | None) -> str:
    return "UNLIMITED" if n is None else str(n)


def _limit(seconds: int) -> str:
    return duration(seconds) if seconds else "UNLIMITED"


def _memory(which: str, per_cpu: int | None, per_node: int | None) -> str:
    if per_cpu is not None:
        return f"{which}MemPerCPU={per_cpu or 'UNLIMITED'}"
    return f"{which}MemPerNode={per_node or 'UNLIMITED'}"


def job_defaults(part: PartitionConfig) -> str:
    """JobDefaults as they are written; "" none."""
    items = []
    if part.def_cpu_per_gpu is not None:
        items.append(f"DefCpuPerGPU={part.def_cpu_per_gpu}")
    if part.def_mem_per_gpu is not None:
        items.append(f"DefMemPerGPU={part.def_mem_per_gpu}")
    return ",".join(items)
