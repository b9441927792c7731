"""The global keys of slurm.conf: those that mean something here, and those only known by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gsched.config import values
from gsched.config.lexer import Pair
from gsched.config.types import RESOURCE_LIMITS, Host
from gsched.periods import PERIODS

Parse = Callable[[Pair], Any]


def _text(pair: Pair) -> str:
    return "" if pair.value.lower() == "(null)" else pair.value


def _path(pair: Pair) -> str:
    text = _text(pair)
    if text and not text.startswith("/"):
        raise pair.bad("an absolute path is expected")
    return text


def _needed_path(pair: Pair) -> str:
    text = _path(pair)
    if not text:
        raise pair.bad("an absolute path is expected")
    return text


def _limits(pair: Pair) -> tuple[str, ...]:
    """Names of resource limits; ALL and NONE stand alone."""
    words = tuple(word.upper().removeprefix("RLIMIT_") for word in values.words(pair))
    if words not in (("ALL",), ("NONE",)):
        for word in words:
            if word not in RESOURCE_LIMITS:
                raise pair.bad(f"{word} is no resource limit")
    return words


def _name(pair: Pair) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.\-]+", pair.value, re.ASCII):
        raise pair.bad("letters, digits, - and _ are expected")
    return pair.value


def _cluster_name(pair: Pair) -> str:
    # Slurm keeps cluster names in lower case.
    name = _name(pair).lower()
    if len(name) > 40:
        raise pair.bad("at most 40 characters are allowed")
    return name


def _user(pair: Pair) -> str:
    # Slurm takes "name" and "name(uid)" back from its own output.
    found = re.fullmatch(r"([A-Za-z0-9_.\-@\\$]+)(?:\([0-9]+\))?", pair.value, re.ASCII)
    if not found:
        raise pair.bad("a user name is expected")
    return found[1]


def host(pair: Pair) -> Host:
    """name or name(address)."""
    found = re.fullmatch(r"([^\s()]+)(?:\(([^\s()]+)\))?", pair.value)
    if not found:
        raise pair.bad("name or name(address) is expected")
    return Host(name=found[1], addr=found[2] or found[1])


def _upper_words(pair: Pair) -> tuple[str, ...]:
    return tuple(word.upper() for word in values.words(pair))


def _plugin(prefix: str, empty: str = "") -> Parse:
    """A plugin by its name; the part before the slash may be left out."""

    def parse(pair: Pair) -> str:
        text = _text(pair)
        if not text:
            return empty
        return text if "/" in text else f"{prefix}/{text}"

    return parse


def _task_plugins(pair: Pair) -> tuple[str, ...]:
    return tuple(word if "/" in word else f"task/{word}" for word in values.words(pair))


def _job_requeue(pair: Pair) -> bool:
    return values.yes_no(pair)


def _seconds_or_minutes(pair: Pair) -> int:
    """PriorityMaxAge and the like: a number is minutes, as in every time of Slurm."""
    return values.duration(pair) or 0


def _calc_period(pair: Pair) -> int:
    """PriorityCalcPeriod: minutes, at least one."""
    return max(60, values.duration(pair) or 0)


def _priority_flags(pair: Pair) -> tuple[str, ...]:
    flags = tuple(dict.fromkeys(word.upper() for word in values.words(pair)))
    for flag in flags:
        if flag not in PRIORITY_FLAGS:
            raise pair.bad(f'"{flag}" is not a flag')
    return flags


def _reset_period(pair: Pair) -> str:
    return values.choice(pair, *PERIODS)


def _weights(pair: Pair) -> str:
    """PriorityWeightTRES: TRES=weight,..., negative ones too."""
    for word in values.words(pair):
        name, _, number = word.partition("=")
        if not name or not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", number):
            raise pair.bad(f'"{word}" is not TRES=weight')
    return pair.value


def _over_time(pair: Pair) -> int:
    # 65533 minutes and more are Slurm's way to say unlimited.
    found = values.limit(pair)
    return 65534 if found is None else found


def _epilog_timeout(pair: Pair) -> int | None:
    found = values.limit(pair)
    return None if found is None or found >= 65534 else found


def _licenses(pair: Pair) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in values.words(pair):
        name, separator, count = re.sub(r"[=*]", ":", word).partition(":")
        if not name or (separator and not re.fullmatch(r"[0-9]{1,9}", count)):
            raise pair.bad(f'"{word}" is not name:count')
        found[name] = int(count) if separator else 1
    return found


def _preempt_mode(pair: Pair) -> str:
    for word in values.words(pair):
        if word.upper() not in {"OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "WITHIN"}:
            raise pair.bad(f'"{word}" is not a mode')
    return pair.value.upper()


def _exempt(pair: Pair) -> int:
    # -1 and UNLIMITED: there is none.
    return 0 if pair.value.strip() == "-1" else values.duration(pair) or 0


def _debug(pair: Pair) -> str:
    return values.debug_level(pair)


def _bounded(low: int, high: int) -> Parse:
    return lambda pair: values.number(pair, low, high)


def _fence(pair: Pair) -> str:
    return values.choice(pair, "timeout", "proof")


#: PriorityFlags. FAIR_TREE is what counts unless another says otherwise
PRIORITY_FLAGS = frozenset(
    (
        *("ACCRUE_ALWAYS", "CALCULATE_RUNNING", "DEPTH_OBLIVIOUS", "FAIR_TREE", "NO_FAIR_TREE"),
        *("INCR_ONLY", "MAX_TRES", "MAX_TRES_GRES", "NO_NORMAL_ALL", "NO_NORMAL_ASSOC"),
        *("NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES", "SMALL_RELATIVE_TO_TIME"),
    )
)

#: lower-case key -> (field of Config, how its value is read)
FIELDS: dict[str, tuple[str, Parse]] = {
    "accountingstorageenforce": ("accounting_storage_enforce", values.words),
    "accountingstorageloc": ("accounting_storage_loc", _text),
    "accountingstoragetres": ("accounting_storage_tres", values.words),
    "accountingstoragetype": ("accounting_storage_type", _plugin("accounting_storage")),
    "batchstarttimeout": ("batch_start_timeout", values.number),
    "clustername": ("cluster_name", _cluster_name),
    "communicationparameters": ("communication_parameters", values.words),
    "defcpupergpu": ("def_cpu_per_gpu", values.number),
    "defmempercpu": ("def_mem_per_cpu", values.memory_limit),
    "defmempergpu": ("def_mem_per_gpu", values.memory_limit),
    "defmempernode": ("def_mem_per_node", values.memory_limit),
    "enforcepartlimits": ("enforce_part_limits", lambda pair: _enforce(pair)),
    "firstjobid": ("first_job_id", _bounded(1, 67043328)),
    "grestypes": ("gres_types", values.words),
    "healthcheckinterval": ("health_check_interval", values.number),
    "healthchecknodestate": ("health_check_node_state", values.words),
    "healthcheckprogram": ("health_check_program", _path),
    "inactivelimit": ("inactive_limit", values.number),
    "jobrequeue": ("job_requeue", _job_requeue),
    "jobsubmitplugins": ("job_submit_plugins", values.words),
    "killwait": ("kill_wait", _bounded(0, 65533)),
    "launchparameters": ("launch_parameters", values.words),
    "licenses": ("licenses", _licenses),
    "mailprog": ("mail_prog", _path),
    "maxarraysize": ("max_array_size", _bounded(0, 4000001)),
    "maxjobcount": ("max_job_count", _bounded(1, 1 << 30)),
    "maxjobid": ("max_job_id", _bounded(1, 67043328)),
    "maxmempercpu": ("max_mem_per_cpu", values.memory_limit),
    "maxmempernode": ("max_mem_per_node", values.memory_limit),
    "maxtaskspernode": ("max_tasks_per_node", _bounded(1, 65533)),
    "messagetimeout": ("message_timeout", _bounded(1, 65533)),
    "minjobage": ("min_job_age", values.number),
    "overtimelimit": ("over_time_limit", _over_time),
    "preemptexempttime": ("preempt_exempt_time", _exempt),
    "preemptmode": ("preempt_mode", _preempt_mode),
    "preemptparameters": ("preempt_parameters", _text),
    "preempttype": ("preempt_type", _plugin("preempt", "preempt/none")),
    "fairsharedampeningfactor": ("fair_share_dampening_factor", _bounded(1, 65533)),
    "prioritycalcperiod": ("priority_calc_period", _calc_period),
    "prioritydecayhalflife": ("priority_decay_half_life", _seconds_or_minutes),
    "priorityfavorsmall": ("priority_favor_small", values.yes_no),
    "priorityflags": ("priority_flags", _priority_flags),
    "prioritymaxage": ("priority_max_age", _seconds_or_minutes),
    "priorityparameters": ("priority_parameters", _text),
    "prioritysitefactorparameters": ("priority_site_factor_parameters", _text),
    "prioritysitefactorplugin": ("priority_site_factor_plugin", _text),
    "prioritytype": ("priority_type", _plugin("priority", "priority/basic")),
    "priorityusageresetperiod": ("priority_usage_reset_period", _reset_period),
    "priorityweightage": ("priority_weight_age", values.number),
    "priorityweightassoc": ("priority_weight_assoc", values.number),
    "priorityweightfairshare": ("priority_weight_fairshare", values.number),
    "priorityweightjobsize": ("priority_weight_job_size", values.number),
    "priorityweightpartition": ("priority_weight_partition", values.number),
    "priorityweightqos": ("priority_weight_qos", values.number),
    "priorityweighttres": ("priority_weight_tres", _weights),
    "proctracktype": ("proctrack_type", _plugin("proctrack", "proctrack/cgroup")),
    "privatedata": ("private_data", values.words),
    "propagateresourcelimits": ("propagate_limits", _limits),
    "propagateresourcelimitsexcept": ("propagate_limits_except", _limits),
    "prologepilogtimeout": ("prolog_epilog_timeout", _epilog_timeout),
    "prologflags": ("prolog_flags", values.words),
    "returntoservice": ("return_to_service", _bounded(0, 2)),
    "schedulerparameters": ("scheduler_parameters", _text),
    "schedulertimeslice": ("scheduler_time_slice", _bounded(5, 65533)),
    "schedulertype": ("scheduler_type", _plugin("sched", "sched/backfill")),
    "selecttype": ("select_type", _plugin("select", "select/cons_tres")),
    "selecttypeparameters": ("select_type_parameters", _upper_words),
    "slurmctlddebug": ("slurmctld_debug", _debug),
    "slurmctldlogfile": ("slurmctld_log_file", _path),
    "slurmctldparameters": ("slurmctld_parameters", values.words),
    "slurmctldpidfile": ("slurmctld_pid_file", _needed_path),
    "slurmctldport": ("slurmctld_port", values.port),
    "slurmctldtimeout": ("slurmctld_timeout", values.number),
    "slurmddebug": ("slurmd_debug", _debug),
    "slurmdlogfile": ("slurmd_log_file", _path),
    "slurmdparameters": ("slurmd_parameters", values.words),
    "slurmdpidfile": ("slurmd_pid_file", _needed_path),
    "slurmdport": ("slurmd_port", values.port),
    "slurmdspooldir": ("slurmd_spool_dir", _needed_path),
    "slurmdtimeout": ("slurmd_timeout", values.number),
    "slurmduser": ("slurmd_user", _user),
    "slurmuser": ("slurm_user", _user),
    "statesavelocation": ("state_save_location", _needed_path),
    "taskplugin": ("task_plugin", _task_plugins),
    "tmpfs": ("tmp_fs", _needed_path),
    "topologyparam": ("topology_param", values.words),
    "topologyplugin": ("topology_plugin", _plugin("topology", "topology/flat")),
    "trackwckey": ("track_wckey", values.yes_no),
    "unkillablestepprogram": ("unkillable_step_program", _path),
    "unkillablesteptimeout": ("unkillable_step_timeout", _bounded(0, 65533)),
    # gsched's own
    "containerlauncher": ("container_launcher", _path),
    "frontends": ("frontends", _bounded(0, 1024)),
    "frontendport": ("frontend_port", _bounded(0, 65535)),
    "maxjobprocesses": ("max_job_processes", _bounded(0, 1 << 22)),
    "nvmllibrary": ("nvml_library", _path),
    "nvmltopology": ("nvml_topology", _path),
    "requeuefence": ("requeue_fence", _fence),
}


def _enforce(pair: Pair) -> str:
    word = values.choice(pair, "NO", "ALL", "ANY", "YES")
    # YES is of older releases.
    return "ANY" if word == "YES" else word


#: keys that may be given several times, each adding a script
SCRIPTS = {
    "epilog": "epilog",
    "epilogslurmctld": "epilog_slurmctld",
    "prolog": "prolog",
    "prologslurmctld": "prolog_slurmctld",
}

#: handled one by one in parse.py
SPECIAL = {"slurmctldhost", "controlmachine", "controladdr", "jobdefaults"}

#: keys of our own: `scontrol show config` of Slurm does not have them
OWN = {
    "containerlauncher": "ContainerLauncher",
    "frontends": "Frontends",
    "frontendport": "FrontendPort",
    "maxjobprocesses": "MaxJobProcesses",
    "nvmllibrary": "NvmlLibrary",
    "nvmltopology": "NvmlTopology",
    "requeuefence": "RequeueFence",
}

#: keys whose text is read where it is needed, from Config.raw
_AS_WRITTEN = """
    BcastParameters DebugFlags DependencyParameters InteractiveStepOptions JobFileAppend
    KillOnBadExit MailDomain MpiDefault ReconfigFlags ResvOverRun SallocDefaultCommand
    SrunEpilog SrunPortRange SrunProlog TaskEpilog TaskPluginParam TaskProlog WaitTime
"""
AS_WRITTEN = frozenset(name.lower() for name in _AS_WRITTEN.split())

#: Slurm's other keys, present and past: accepted, without effect, named once by the daemons.
_WITHOUT_EFFECT = """
    AccountingStorageBackupHost AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageParameters AccountingStoragePass AccountingStoragePort
    AccountingStorageUser AccountingStoreFlags AccountingStoreJobComment AcctGatherEnergyType
    AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType
    AcctGatherNodeFreq AcctGatherProfileType AllowSpecResourcesUsage AuthAltParameters
    AuthAltTypes AuthInfo AuthType BackupAddr BackupController BcastExclude
    BurstBufferParameters BurstBufferType CacheGroups CertgenParameters CertgenType
    CertmgrParameters CertmgrType CheckpointType ChosLoc CliFilterParameters CliFilterPlugins
    CompleteWait CoreSpecPlugin CpuFreqDef CpuFreqGovernors CredType CryptoType
    DataParserParameters DefaultStorageHost DefaultStorageLoc DefaultStoragePass
    DefaultStoragePort DefaultStorageType DefaultStorageUser DisableRootJobs DynAllocPort
    EioTimeout EpilogMsgTime EpilogTimeout ExtSensorsFreq ExtSensorsType
    FastSchedule FederationParameters GetEnvTimeout GpuFreqDef
    GroupUpdateForce GroupUpdateTime HashPlugin HealthCheckTimeout
    HttpParserType JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType JobCheckpointDir
    JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript JobCompPort JobCompType
    JobCompUser JobContainerPlugin JobContainerType JobCredentialPrivateKey
    JobCredentialPublicCertificate KeepAliveTime LaunchType LicenseParameters LogTimeFormat
    MaxBatchRequeue MaxDBDMsgs MaxNodeCount MaxStepCount MCSParameters MCSPlugin
    MemLimitEnforce MetricsAuthUsers MetricsParameters MetricsType MpiParams
    MsgAggregationParams NamespacePlugin NamespaceType NodeFeaturesPlugins PluginDir
    PlugStackConfig PowerParameters PowerPlugin
    PrEpParameters PrEpPlugins PrologTimeout
    PropagatePrioProcess RebootProgram
    RequeueExit RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout
    ResvEpilog ResvProlog RoutePlugin SbcastParameters SchedulerAuth SchedulerPort
    SchedulerRootFilter ScronParameters SlurmctldAddr
    SlurmctldHttpAuthParameters SlurmctldPlugstack SlurmctldPrimaryOffProg
    SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmdHttpAuthParameters SlurmdPlugstack
    SlurmdSyslogDebug SlurmSchedLogFile SlurmSchedLogLevel StepMgrParameters
    SuspendExcNodes SuspendExcParts SuspendExcStates SuspendProgram SuspendRate SuspendTime
    SuspendTimeout SwitchName SwitchParameters SwitchType TCPTimeout TLSParameters TLSType
    TreeWidth UrlParserType UsePAM UseSpecResources VSizeFactor
    X11Parameters
"""

#: lower-case key -> as Slurm spells it
WITHOUT_EFFECT: dict[str, str] = {name.lower(): name for name in _WITHOUT_EFFECT.split()}
