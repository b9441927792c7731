"""The rows of `scontrol show config`: every key with its effective value, in Slurm's spelling."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Mapping

from gsched.config.keys import OWN
from gsched.config.types import Config, Host
from gsched.units import format_padded

#: what Slurm prints for nothing
NULL = "(null)"

#: the words that a controller knows and a file does not; see `config_rows`
DYNAMIC = ("BOOT_TIME", "HASH_VAL", "NEXT_JOB_ID", "SLURM_CONF", "SLURM_VERSION")

# name = value of a cluster that does not set it, in the order of Slurm 26.05. A "%" stands for
# the value as written: "% sec" for KillWait=5 prints "5 sec". Rows without "=" are computed below.
_ROWS = """
AccountingStorageBackupHost=(null)
AccountingStorageEnforce
AccountingStorageHost=(null)
AccountingStorageExternalHost=(null)
AccountingStorageParameters=(null)
AccountingStoragePort=0
AccountingStorageTRES
AccountingStorageType
AccountingStoreFlags=(null)
AcctGatherEnergyType=(null)
AcctGatherFilesystemType=(null)
AcctGatherInterconnectType=(null)
AcctGatherNodeFreq=0|% sec
AcctGatherProfileType=(null)
AllowSpecResourcesUsage=no|yesno
AuthAltTypes=(null)
AuthAltParameters=(null)
AuthInfo=(null)
AuthType=(null)
BatchStartTimeout
BcastExclude=/lib,/usr/lib,/lib64,/usr/lib64
BcastParameters=(null)
BOOT_TIME
BurstBufferType=(null)
CertgenParameters=(null)
CertgenType=(null)
CertmgrParameters=(null)
CertmgrType=(null)
CliFilterParameters=(null)
CliFilterPlugins=(null)
ClusterName
CommunicationParameters
CompleteWait=0|% sec
CpuFreqDef=Unknown
CpuFreqGovernors=OnDemand,Performance,UserSpace
CredType=(null)
DataParserParameters=(null)
DebugFlags=(null)
DefMem
DependencyParameters=(null)
DisableRootJobs=no|yesno
EioTimeout=60
EnforcePartLimits
Epilog
EpilogMsgTime=2000|% usec
EpilogSlurmctld
FairShareDampeningFactor
FederationParameters=(null)
FirstJobId
GresTypes
GpuFreqDef=(null)
GroupUpdateForce=1
GroupUpdateTime=600|% sec
HASH_VAL
HashPlugin=hash/k12
HealthCheckInterval
HealthCheckNodeState
HealthCheckProgram
HealthCheckTimeout=0|% sec
HttpParserType=(null)
InactiveLimit
InteractiveStepOptions=--interactive --preserve-env --pty $SHELL
JobAcctGatherFrequency=30
JobAcctGatherType=(null)
JobAcctGatherParams=(null)
JobCompHost=localhost
JobCompLoc=(null)
JobCompParams=(null)
JobCompPass=(null)
JobCompPort=0
JobCompType=(null)
JobCompUser=root
JobDefaults
JobFileAppend=0
JobRequeue
JobSubmitPlugins
KillOnBadExit=0
KillWait
LaunchParameters
LicenseParameters=(null)
Licenses
LogTimeFormat=iso8601_ms
MailDomain=(null)
MailProg
MaxArraySize
MaxBatchRequeue=5
MaxDBDMsgs
MaxJobCount
MaxJobId
MaxMem
MaxNodeCount
MaxStepCount=40000
MaxTasksPerNode
MCSPlugin=(null)
MCSParameters=(null)
MessageTimeout
MetricsAuthUsers=(null)
MetricsParameters=(null)
MetricsType=(null)
MinJobAge
MpiDefault=(null)
MpiParams=(null)
MULTIPLE_SLURMD
NamespaceType=(null)
NEXT_JOB_ID
NodeFeaturesPlugins=(null)
OverTimeLimit
PluginDir=(null)
PlugStackConfig=(null)
PreemptMode
PreemptParameters
PreemptType
PreemptExemptTime
PrEpParameters=(null)
PrEpPlugins=prep/script
PriorityParameters
PrioritySiteFactorParameters
PrioritySiteFactorPlugin
PriorityDecayHalfLife
PriorityCalcPeriod
PriorityFavorSmall
PriorityFlags
PriorityMaxAge
PriorityType
PriorityUsageResetPeriod
PriorityWeightAge
PriorityWeightAssoc
PriorityWeightFairShare
PriorityWeightJobSize
PriorityWeightPartition
PriorityWeightQOS
PriorityWeightTRES
PrivateData
ProctrackType
Prolog
PrologEpilogTimeout
PrologSlurmctld
PrologFlags
PropagatePrioProcess=0
PropagateResourceLimits=ALL
PropagateResourceLimitsExcept=(null)
RebootProgram=(null)
ReconfigFlags=(null)
RequeueExit=(null)
RequeueExitHold=(null)
ResumeFailProgram=(null)
ResumeProgram=(null)
ResumeRate=300|% nodes/min
ResumeTimeout=60|% sec
ResvEpilog=(null)
ResvOverRun=0|% min
ResvProlog=(null)
ReturnToService
SchedulerParameters
SchedulerTimeSlice=30|% sec
SchedulerType
ScronParameters=(null)
SelectType
SelectTypeParameters
SlurmUser
SlurmctldAddr=(null)
SlurmctldDebug
SlurmctldHost
SlurmctldHttpAuthParameters=(null)
SlurmctldLogFile
SlurmctldPort
SlurmctldSyslogDebug=(null)
SlurmctldPrimaryOffProg=(null)
SlurmctldPrimaryOnProg=(null)
SlurmctldTimeout
SlurmctldParameters
SlurmdDebug
SlurmdHttpAuthParameters=(null)
SlurmdLogFile
SlurmdParameters
SlurmdPidFile
SlurmdPort
SlurmdSpoolDir
SlurmdSyslogDebug=(null)
SlurmdTimeout
SlurmdUser
SlurmSchedLogFile=(null)
SlurmSchedLogLevel=0
SlurmctldPidFile
SLURM_CONF
SLURM_VERSION
SrunEpilog=(null)
SrunPortRange=0-0
SrunProlog=(null)
StateSaveLocation
SuspendExcNodes=(null)
SuspendExcParts=(null)
SuspendExcStates=(null)
SuspendProgram=(null)
SuspendRate=60|% nodes/min
SuspendTime=INFINITE|% sec
SuspendTimeout=30|% sec
SwitchParameters=(null)
SwitchType=(null)
TaskEpilog=(null)
TaskPlugin
TaskPluginParam=(null type)
TaskProlog=(null)
TCPTimeout=2|% sec
TLSParameters=(null)
TLSType=tls/none
TmpFS
TopologyParam
TopologyPlugin
TrackWCKey=no|yesno
TreeWidth=16
UsePam=no|yesno
UnkillableStepProgram
UnkillableStepTimeout
UrlParserType=(null)
VSizeFactor=0|% percent
WaitTime=0|% sec
X11Parameters=(null)
"""


def _joined(parts: tuple[str, ...]) -> str:
    return ",".join(parts) or NULL


def _user(name: str) -> str:
    """name(uid), as Slurm shows users; the name alone where this host does not know it."""
    try:
        if name.isascii() and name.isdigit():
            entry = pwd.getpwuid(int(name))
        else:
            entry = pwd.getpwnam(name)
    except (KeyError, OverflowError, ValueError):
        return name
    return f"{entry.pw_name}({entry.pw_uid})"


def _host(host: Host) -> str:
    return host.name if host.addr == host.name else f"{host.name}({host.addr})"


def _seconds(value: int) -> str:
    return f"{value} sec"


def _shared_hosts(config: Config) -> bool:
    """Several node daemons on one host."""
    addrs = [node.addr for node in config.nodes.values()]
    return len(set(addrs)) < len(addrs)


def _tres(config: Config) -> str:
    base = ["cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"]
    asked = [name for name in config.accounting_storage_tres if name not in base]
    if any(name.startswith("gres/gpu") for name in asked):
        asked += [name for name in ("gres/gpumem", "gres/gpuutil") if name not in asked]
    return ",".join(base + asked)


def _memory(name: str, cpu: int | None, node: int | None) -> tuple[str, str]:
    if cpu is not None:
        return f"{name}PerCPU", str(cpu)
    return f"{name}PerNode", "UNLIMITED" if node is None else str(node)


def _job_defaults(config: Config) -> str:
    parts = []
    if config.def_cpu_per_gpu is not None:
        parts.append(f"DefCpuPerGPU={config.def_cpu_per_gpu}")
    if config.def_mem_per_gpu is not None:
        parts.append(f"DefMemPerGPU={config.def_mem_per_gpu}")
    return _joined(tuple(parts))


def _licenses(config: Config) -> str:
    return _joined(tuple(f"{name}:{count}" for name, count in config.licenses.items()))


#: words of PrivateData
_PRIVATE = (
    *("accounts", "cloud", "events", "jobs", "nodes", "partitions", "reservations", "usage"),
    "users",
)


def _private(config: Config) -> str:
    found = {word.lower() for word in config.private_data}
    return ",".join(word for word in _PRIVATE if "all" in found or word in found) or "none"


#: flags of PrologFlags as Slurm spells them, and what they bring along
_PROLOG_FLAGS: dict[str, tuple[str, ...]] = {
    "Alloc": (),
    "Contain": ("Alloc",),
    "DeferBatch": (),
    "ForceRequeueOnFail": (),
    "NoHold": (),
    "RunInJob": ("Alloc", "Contain"),
    "Serial": (),
    "X11": ("Alloc", "Contain"),
}


def _prolog_flags(config: Config) -> str:
    said = {flag.lower() for flag in config.prolog_flags}
    found = {flag for flag in _PROLOG_FLAGS if flag.lower() in said}
    found = found.union(*(_PROLOG_FLAGS[flag] for flag in found))
    return _joined(tuple(flag for flag in _PROLOG_FLAGS if flag in found))


def _messages(config: Config) -> int:
    """MaxDBDMsgs by Slurm's rule: room for every job and node, at least 10,000."""
    return max(10000, 2 * config.max_job_count + 4 * len(config.nodes))


#: rows with typed values behind them
_COMPUTED: dict[str, Callable[[Config], object]] = {
    "AccountingStorageEnforce": lambda c: ",".join(c.accounting_storage_enforce) or "none",
    "AccountingStorageTRES": _tres,
    "AccountingStorageType": lambda c: c.accounting_storage_type or NULL,
    "BatchStartTimeout": lambda c: _seconds(c.batch_start_timeout),
    "ClusterName": lambda c: c.cluster_name,
    "CommunicationParameters": lambda c: _joined(c.communication_parameters),
    "EnforcePartLimits": lambda c: c.enforce_part_limits,
    "FirstJobId": lambda c: c.first_job_id,
    "GresTypes": lambda c: _joined(c.gres_types),
    "HealthCheckInterval": lambda c: _seconds(c.health_check_interval),
    "HealthCheckNodeState": lambda c: _joined(c.health_check_node_state or ("ANY",)),
    "HealthCheckProgram": lambda c: c.health_check_program or NULL,
    "InactiveLimit": lambda c: _seconds(c.inactive_limit),
    "JobDefaults": _job_defaults,
    "JobRequeue": lambda c: int(c.job_requeue),
    "JobSubmitPlugins": lambda c: _joined(c.job_submit_plugins),
    "KillWait": lambda c: _seconds(c.kill_wait),
    "LaunchParameters": lambda c: _joined(c.launch_parameters),
    "Licenses": _licenses,
    "MailProg": lambda c: c.mail_prog or NULL,
    "MaxArraySize": lambda c: c.max_array_size,
    "MaxDBDMsgs": _messages,
    "MaxJobCount": lambda c: c.max_job_count,
    "MaxJobId": lambda c: c.max_job_id,
    "MaxNodeCount": lambda c: len(c.nodes),
    "MaxTasksPerNode": lambda c: c.max_tasks_per_node,
    "MessageTimeout": lambda c: _seconds(c.message_timeout),
    "MinJobAge": lambda c: _seconds(c.min_job_age),
    "MULTIPLE_SLURMD": lambda c: "yes" if _shared_hosts(c) else "no",
    "OverTimeLimit": lambda c: "UNLIMITED" if c.over_time_limit >= 65534 else _min(c),
    "PreemptMode": lambda c: ",".join(sorted(c.preempt_mode.split(","))),
    "PreemptParameters": lambda c: c.preempt_parameters or NULL,
    "PreemptExemptTime": lambda c: format_padded(c.preempt_exempt_time),
    "PreemptType": lambda c: NULL if c.preempt_type == "preempt/none" else c.preempt_type,
    "PriorityCalcPeriod": lambda c: format_padded(c.priority_calc_period),
    "PriorityFlags": lambda c: ",".join(c.priority_flags),
    "PriorityParameters": lambda c: c.priority_parameters or NULL,
    "PrioritySiteFactorParameters": lambda c: c.priority_site_factor_parameters or NULL,
    "PrioritySiteFactorPlugin": lambda c: c.priority_site_factor_plugin or NULL,
    "PriorityUsageResetPeriod": lambda c: c.priority_usage_reset_period,
    "FairShareDampeningFactor": lambda c: c.fair_share_dampening_factor,
    "PriorityDecayHalfLife": lambda c: format_padded(c.priority_decay_half_life),
    "PriorityFavorSmall": lambda c: "yes" if c.priority_favor_small else "no",
    "PriorityMaxAge": lambda c: format_padded(c.priority_max_age),
    "PriorityType": lambda c: c.priority_type,
    "PriorityWeightAge": lambda c: c.priority_weight_age,
    "PriorityWeightAssoc": lambda c: c.priority_weight_assoc,
    "PriorityWeightFairShare": lambda c: c.priority_weight_fairshare,
    "PriorityWeightJobSize": lambda c: c.priority_weight_job_size,
    "PriorityWeightPartition": lambda c: c.priority_weight_partition,
    "PriorityWeightQOS": lambda c: c.priority_weight_qos,
    "PriorityWeightTRES": lambda c: c.priority_weight_tres or NULL,
    "PrivateData": _private,
    "ProctrackType": lambda c: c.proctrack_type,
    "PrologEpilogTimeout": lambda c: c.prolog_epilog_timeout or 65534,
    "PrologFlags": _prolog_flags,
    "PropagateResourceLimits": lambda c: (
        _joined(c.propagate_limits) if c.propagate_limits or c.propagate_limits_except else "ALL"
    ),
    "PropagateResourceLimitsExcept": lambda c: _joined(c.propagate_limits_except),
    "ReturnToService": lambda c: c.return_to_service,
    "SchedulerParameters": lambda c: c.scheduler_parameters or NULL,
    "SchedulerType": lambda c: c.scheduler_type,
    "SelectType": lambda c: c.select_type,
    "SelectTypeParameters": lambda c: _joined(c.select_type_parameters),
    "SlurmUser": lambda c: _user(c.slurm_user),
    "SlurmctldDebug": lambda c: c.slurmctld_debug,
    "SlurmctldLogFile": lambda c: c.slurmctld_log_file or NULL,
    "SlurmctldPort": lambda c: c.slurmctld_port,
    "SlurmctldTimeout": lambda c: _seconds(c.slurmctld_timeout),
    "SlurmctldParameters": lambda c: _joined(c.slurmctld_parameters),
    "SlurmdDebug": lambda c: c.slurmd_debug,
    "SlurmdLogFile": lambda c: c.slurmd_log_file or NULL,
    "SlurmdParameters": lambda c: _joined(c.slurmd_parameters),
    "SlurmdPidFile": lambda c: c.slurmd_pid_file,
    "SlurmdPort": lambda c: c.slurmd_port,
    "SlurmdSpoolDir": lambda c: c.slurmd_spool_dir,
    "SlurmdTimeout": lambda c: _seconds(c.slurmd_timeout),
    "SlurmdUser": lambda c: _user(c.slurmd_user),
    "SlurmctldPidFile": lambda c: c.slurmctld_pid_file,
    "StateSaveLocation": lambda c: c.state_save_location,
    "TaskPlugin": lambda c: _joined(tuple(p for p in c.task_plugin if p != "task/none")),
    "TmpFS": lambda c: c.tmp_fs,
    "TopologyParam": lambda c: _joined(c.topology_param),
    "TopologyPlugin": lambda c: c.topology_plugin,
    "UnkillableStepProgram": lambda c: c.unkillable_step_program or NULL,
    "UnkillableStepTimeout": lambda c: _seconds(c.unkillable_step_timeout),
}

_SCRIPTS: dict[str, Callable[[Config], tuple[str, ...]]] = {
    "Epilog": lambda c: c.epilog,
    "EpilogSlurmctld": lambda c: c.epilog_slurmctld,
    "Prolog": lambda c: c.prolog,
    "PrologSlurmctld": lambda c: c.prolog_slurmctld,
}


def _min(config: Config) -> str:
    return f"{config.over_time_limit} min"


def _as_written(config: Config, name: str, rest: str) -> str:
    """A key without effect: what the file says, in Slurm's dress."""
    default, _, dress = rest.partition("|")
    value = config.raw.get(name.lower(), "")
    if not value or value.lower() == NULL:
        value = default
    elif value.lower().endswith("/none") and default == NULL:
        # 26.05 shows plugins called none as no plugin.
        return NULL
    elif name == "MpiDefault" and value.lower() == "none":
        return NULL
    if dress == "yesno":
        return "yes" if value.lower() in {"1", "yes", "true", "y"} else "no"
    if dress and value.lstrip("-").isdigit():
        return dress.replace("%", value)
    return value


def config_rows(config: Config, dynamic: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, value) of each row, in Slurm's order, then gsched's own keys.

    `dynamic` has the words of DYNAMIC that the controller knows; those it lacks are left out.
    Slurm prints each row as ``f"{name:<23} = {value}"``.
    """
    rows: list[tuple[str, str]] = []
    for line in _ROWS.split("\n"):
        name, separator, rest = line.partition("=")
        if not name:
            continue
        if separator:
            rows.append((name, _as_written(config, name, rest)))
        elif name in _COMPUTED:
            rows.append((name, str(_COMPUTED[name](config))))
        elif name in _SCRIPTS:
            scripts = _SCRIPTS[name](config)
            rows += [(f"{name}[{at}]", script) for at, script in enumerate(scripts)]
        elif name == "SlurmctldHost":
            hosts = enumerate(config.slurmctld_host)
            rows += [(f"{name}[{at}]", _host(host)) for at, host in hosts]
        elif name == "DefMem":
            rows.append(_memory(name, config.def_mem_per_cpu, config.def_mem_per_node))
        elif name == "MaxMem":
            rows.append(_memory(name, config.max_mem_per_cpu, config.max_mem_per_node))
        elif name in dynamic:
            rows.append((name, dynamic[name]))
    own = {
        "containerlauncher": config.container_launcher or NULL,
        "nvmllibrary": config.nvml_library or NULL,
        "nvmltopology": config.nvml_topology or NULL,
        "maxjobprocesses": str(config.max_job_processes),
        "requeuefence": config.requeue_fence,
        "frontends": str(config.frontends),
        "frontendport": str(config.frontend_port),
    }
    return rows + [(OWN[name], own[name]) for name in sorted(OWN)]
