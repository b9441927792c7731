"""`scontrol show config`: the configuration in force, as Slurm lists it."""

from __future__ import annotations

from collections.abc import Mapping

from gsched.config import Config, keys
from gsched.wire.messages import Status
from gsched_cli.common import SLURM_VERSION
from gsched_cli.text import duration, timestamp


def config_items(
    config: Config, status: Status, env: Mapping[str, str], now: float
) -> list[tuple[str, str]]:
    """(key, value) in Slurm's order: the keys that have an effect here with the value in force,
    then all others of slurm.conf as written."""
    items = _known(config, status, env, now)
    listed = {key.lower().partition("[")[0] for key, _ in items}
    others = [
        (keys.WITHOUT_EFFECT.get(key) or keys.OWN.get(key) or key, value)
        for key, value in config.raw.items()
        if key not in listed
    ]
    return sorted(items + others, key=lambda item: item[0].lower())


def _known(
    config: Config, status: Status, env: Mapping[str, str], now: float
) -> list[tuple[str, str]]:
    def seconds(n: int | None) -> str:
        return "INFINITE" if n is None else f"{n} sec"

    def words(items: tuple[str, ...]) -> str:
        return ",".join(items) or "(null)"

    def text(value: str) -> str:
        return value or "(null)"

    items = [
        ("AccountingStorageEnforce", ",".join(config.accounting_storage_enforce) or "none"),
        ("AccountingStorageTRES", words(config.accounting_storage_tres)),
        ("AccountingStorageType", text(config.accounting_storage_type)),
        ("BatchStartTimeout", seconds(config.batch_start_timeout)),
        ("BOOT_TIME", timestamp(status.start, env, now, "Unknown")),
        ("ClusterName", config.cluster_name),
        ("CommunicationParameters", words(config.communication_parameters)),
        ("EnforcePartLimits", config.enforce_part_limits),
        ("FirstJobId", str(config.first_job_id)),
        ("GresTypes", words(config.gres_types)),
        ("HealthCheckInterval", seconds(config.health_check_interval)),
        ("HealthCheckNodeState", words(config.health_check_node_state or ("ANY",))),
        ("HealthCheckProgram", text(config.health_check_program)),
        ("InactiveLimit", seconds(config.inactive_limit)),
        ("JobRequeue", str(int(config.job_requeue))),
        ("JobSubmitPlugins", words(config.job_submit_plugins)),
        ("KillWait", seconds(config.kill_wait)),
        ("LaunchParameters", words(config.launch_parameters)),
        ("Licenses", ",".join(f"{k}:{n}" for k, n in config.licenses.items()) or "(null)"),
        ("MailProg", text(config.mail_prog)),
        ("MaxArraySize", str(config.max_array_size)),
        ("MaxJobCount", str(config.max_job_count)),
        ("MaxJobId", str(config.max_job_id)),
        ("MaxNodeCount", str(len(config.nodes))),
        ("MessageTimeout", seconds(config.message_timeout)),
        ("MinJobAge", seconds(config.min_job_age)),
        ("NEXT_JOB_ID", str(status.next_job_id)),
        ("OverTimeLimit", f"{config.over_time_limit} min"),
        ("PreemptMode", config.preempt_mode),
        ("PreemptType", config.preempt_type),
        ("PriorityDecayHalfLife", duration(config.priority_decay_half_life)),
        ("PriorityFavorSmall", "yes" if config.priority_favor_small else "no"),
        ("PriorityMaxAge", duration(config.priority_max_age)),
        ("PriorityType", config.priority_type),
        ("PriorityWeightAge", str(config.priority_weight_age)),
        ("PriorityWeightAssoc", str(config.priority_weight_assoc)),
        ("PriorityWeightFairShare", str(config.priority_weight_fairshare)),
        ("PriorityWeightJobSize", str(config.priority_weight_job_size)),
        ("PriorityWeightPartition", str(config.priority_weight_partition)),
        ("PriorityWeightQOS", str(config.priority_weight_qos)),
        ("PriorityWeightTRES", text(config.priority_weight_tres)),
        ("ProctrackType", config.proctrack_type),
        ("PrologFlags", words(config.prolog_flags)),
        ("ReturnToService", str(config.return_to_service)),
        ("SchedulerParameters", text(config.scheduler_parameters)),
        ("SchedulerType", config.scheduler_type),
        ("SelectType", config.select_type),
        ("SelectTypeParameters", words(config.select_type_parameters)),
        ("SlurmUser", _user(config.slurm_user)),
        ("SlurmctldDebug", config.slurmctld_debug),
        ("SlurmctldLogFile", text(config.slurmctld_log_file)),
        ("SlurmctldParameters", words(config.slurmctld_parameters)),
        ("SlurmctldPidFile", config.slurmctld_pid_file),
        ("SlurmctldPort", str(config.slurmctld_port)),
        ("SlurmctldTimeout", seconds(config.slurmctld_timeout)),
        ("SlurmdDebug", config.slurmd_debug),
        ("SlurmdLogFile", text(config.slurmd_log_file)),
        ("SlurmdParameters", words(config.slurmd_parameters)),
        ("SlurmdPidFile", config.slurmd_pid_file),
        ("SlurmdPort", str(config.slurmd_port)),
        ("SlurmdSpoolDir", config.slurmd_spool_dir),
        ("SlurmdTimeout", seconds(config.slurmd_timeout)),
        ("SlurmdUser", _user(config.slurmd_user)),
        ("SLURM_CONF", config.path),
        ("SLURM_VERSION", SLURM_VERSION),
        ("StateSaveLocation", config.state_save_location),
        ("TaskPlugin", words(config.task_plugin)),
        ("TmpFS", config.tmp_fs),
        ("TopologyParam", words(config.topology_param)),
        ("TopologyPlugin", config.topology_plugin),
        ("UnkillableStepProgram", text(config.unkillable_step_program)),
        ("UnkillableStepTimeout", seconds(config.unkillable_step_timeout)),
    ]
    items += [
        (f"SlurmctldHost[{at}]", f"{host.name}({host.addr})")
        for at, host in enumerate(config.slurmctld_host)
    ]
    for name, scripts in (
        ("Epilog", config.epilog),
        ("EpilogSlurmctld", config.epilog_slurmctld),
        ("Prolog", config.prolog),
        ("PrologSlurmctld", config.prolog_slurmctld),
    ):
        items += [(f"{name}[{at}]", path) for at, path in enumerate(scripts)]
    for which, per_cpu, per_node in (
        ("Def", config.def_mem_per_cpu, config.def_mem_per_node),
        ("Max", config.max_mem_per_cpu, config.max_mem_per_node),
    ):
        if per_cpu is not None:
            items.append((f"{which}MemPerCPU", str(per_cpu or "UNLIMITED")))
        else:
            items.append((f"{which}MemPerNode", str(per_node or "UNLIMITED")))
    return items


def _user(name: str) -> str:
    """ "slurm(64030)"; the bare name where there is no such user."""
    import pwd

    try:
        return f"{name}({pwd.getpwnam(name).pw_uid})"
    except (KeyError, ValueError):
        return name
