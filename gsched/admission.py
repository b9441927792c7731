"""What the controller checks of a decoded submission, never trusting the client.

Ranges and lengths, names against the configuration, the grammars of arrays, dependencies,
constraints and licences, and shapes that no configured node can hold. What depends on the state of
the cluster (which jobs exist, which GPUs were found) is the ledger's. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from gsched import dependency, features, licenses
from gsched.config import Config, PartitionConfig
from gsched.errors import message
from gsched.gpushare import KINDS, MAX_PARTS
from gsched.gres import GPU, MAX_GPUS, MOST_COUNTED, MOST_OF_A_KIND
from gsched.model import Alternative, JobSpec, Shape
from gsched.taskset import TaskSet, TaskSetError

MAX_SCRIPT = 4 << 20
MAX_ENVIRONMENT = 8 << 20
#: bytes of all texts of a spec together: it lives in memory and in every snapshot
MAX_TEXT = 256 << 10
MAX_NAME = 1024
MAX_PATH = 4096
#: largest count of nodes, tasks and CPUs that is not a typing error
MAX_COUNT = 1 << 24
MAX_MEMORY_MB = 1 << 50
#: GPU types in one request
MAX_KINDS = 8
YEAR_9999 = 253402300799

#: who may be sent mail: a mail program takes other words for files, commands or options
RECIPIENTS = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.%+=@-]*(?:,[A-Za-z0-9_][A-Za-z0-9_.%+=@-]*)*", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a submission is refused: Slurm's code and sentence, and remarks printed before it."""

    code: str
    message: str
    notes: tuple[str, ...] = ()


def _problem(code: str, *notes: str) -> Problem:
    return Problem(code, message(code), notes)


def validate(
    spec: JobSpec,
    config: Config,
    script: bytes = b"",
    environment: bytes = b"",
    *,
    held: bool = False,
) -> Problem | None:
    """The first thing that is wrong with a submission; None if it may become a job.

    Whether any node could hold it is not asked of a job that is `held`, as in Slurm. Of
    alternatives it is enough that one may. Cost: the size of the spec; nodes are looked at once
    per configuration.
    """
    if spec.alternatives:
        kept, problem = possible(spec, config, script, environment, held=held)
        return None if kept else problem
    if len(script) > MAX_SCRIPT or len(environment) > MAX_ENVIRONMENT:
        return _problem("ESLURM_PATHNAME_TOO_LONG")
    batch = not spec.interactive
    if batch and script and (not script.startswith(b"#!") or b"\0" in script):
        return Problem("ESLURM_JOB_SCRIPT_MISSING", "This does not look like a batch script.")
    checks = (_sizes, _ranges, _partitions, _names, _times, _part_sizes, _grammars, _fits)
    for check in checks[: -1 if held else None]:
        problem = check(spec, config)
        if problem is not None:
            return problem
    return None


def possible(
    spec: JobSpec,
    config: Config,
    script: bytes = b"",
    environment: bytes = b"",
    *,
    held: bool = False,
) -> tuple[list[Alternative], Problem | None]:
    """The alternatives of a submission that may become a job, and what is wrong with the first of
    the others."""
    kept, first = [], None
    for one in spec.alternatives:
        alone = msgspec.structs.replace(spec, shape=one.shape, tres=one.tres, alternatives=())
        problem = validate(alone, config, script, environment, held=held)
        if problem is None:
            kept.append(one)
        first = first or problem
    return kept, first


# ---- sizes and ranges ---------------------------------------------------------------------------

_PATHS = (
    *("work_dir", "std_in", "std_out", "std_err", "command", "container"),
    *("container_image", "container_workdir"),
)
_NAMES = ("name", "account", "qos", "reservation", "wckey", "mail_user", "alloc_node", "hint")


def _texts(spec: JobSpec) -> Iterator[str]:
    for value in msgspec.structs.astuple(spec):
        kind = type(value)
        if kind is str:
            yield value
        elif kind is tuple:
            yield from value
    for mapping in (spec.tres, spec.rlimits):
        yield from mapping
    yield from spec.tres.values()
    yield from (spec.shape.features, spec.shape.gpu_type, spec.shape.share)
    yield from spec.shape.nodelist
    yield from spec.shape.exclude


def _sizes(spec: JobSpec, config: Config) -> Problem | None:
    # One look at all of them together: nearly every job has short and clean texts.
    whole = "".join(_texts(spec))
    if "\0" in whole:
        return _problem("ESLURM_PATHNAME_TOO_LONG", "A text of the request contains a NUL.")
    if len(whole) > MAX_NAME:
        long = [name for name in _NAMES if len(getattr(spec, name)) > MAX_NAME]
        long += [name for name in _PATHS if len(getattr(spec, name)) > MAX_PATH]
        if len(whole) > MAX_TEXT or long:
            return _problem("ESLURM_PATHNAME_TOO_LONG")
    if not spec.work_dir.startswith("/"):
        return _problem("ESLURM_PATHNAME_TOO_LONG", "The working directory is not absolute.")
    return None


_COUNTS = (
    *("max_nodes", "ntasks", "ntasks_per_node", "cpus_per_task", "min_cpus_node", "cpus_per_gpu"),
    *("sockets_per_node", "cores_per_socket", "threads_per_core", "ntasks_per_socket"),
    *("ntasks_per_core", "ntasks_per_gpu"),
)
_GPU_COUNTS = ("gpus_per_node", "gpus_per_task", "gpus_per_socket", "gpus_total")


def _ranges(spec: JobSpec, config: Config) -> Problem | None:
    shape = spec.shape
    if not 1 <= shape.min_nodes <= MAX_COUNT or (
        shape.max_nodes and shape.max_nodes < shape.min_nodes
    ):
        return _problem("ESLURM_INVALID_NODE_COUNT")
    if any(not 0 <= getattr(shape, name) <= MAX_COUNT for name in _COUNTS):
        return _problem("ESLURM_TOO_MANY_REQUESTED_CPUS")
    if shape.cpus_per_task < 1 or max(1, shape.ntasks) * shape.cpus_per_task > MAX_COUNT:
        return _problem("ESLURM_TOO_MANY_REQUESTED_CPUS")
    if any(not 0 <= getattr(shape, name) <= MAX_GPUS for name in _GPU_COUNTS):
        return _problem("ESLURM_INVALID_GRES")
    problem = _parts(shape, config) or _counted(shape, config)
    if problem is not None:
        return problem
    if any(not 0 <= n <= MAX_GPUS for _, *counts in shape.gpu_kinds for n in counts):
        return _problem("ESLURM_INVALID_GRES")
    if len(shape.gpu_kinds) > MAX_KINDS or not 0 <= shape.gres_binding <= 2:
        return _problem("ESLURM_INVALID_GRES")
    sizes = [
        size
        for size in (shape.mem_per_node, shape.mem_per_cpu, shape.mem_per_gpu)
        if size is not None
    ]
    if len(sizes) > 1 or any(not 0 <= size <= MAX_MEMORY_MB for size in sizes):
        return _problem("ESLURM_INVALID_TRES", "Memory specification can not be satisfied")
    if not 0 <= shape.tmp_disk_mb <= MAX_MEMORY_MB or shape.exclusive not in (0, 1, 2):
        return _problem("ESLURM_INVALID_TRES")
    if not 0 <= spec.umask <= 0o777 or spec.open_mode not in ("", "append", "truncate"):
        return _problem("ESLURM_INVALID_TRES", "umask or open mode out of range")
    if not 0 <= spec.signal_num <= 64 or not 0 <= spec.signal_before <= 65535:
        return _problem("ESLURM_INVALID_TRES", "signal out of range")
    if spec.interactive not in ("", "srun", "salloc") or not -1 <= spec.immediate < 1 << 31:
        return _problem("ESLURM_INVALID_TIME_VALUE")
    if spec.priority is not None and not 0 <= spec.priority < 1 << 32:
        return _problem("ESLURM_INVALID_TRES", "priority out of range")
    if abs(spec.nice) >= 1 << 31 or any(
        not -1 <= value < 1 << 64 for value in spec.rlimits.values()
    ):
        return _problem("ESLURM_INVALID_TRES", "nice value or resource limit out of range")
    return None


def _parts(shape: Shape, config: Config) -> Problem | None:
    """Parts of a GPU are of a resource that the cluster has, and stand alone."""
    if not shape.share and not shape.share_count:
        return None
    known = shape.share in KINDS and shape.share in config.gres_types
    if not known or any(getattr(shape, name) for name in _GPU_COUNTS):
        return _problem("ESLURM_INVALID_GRES")
    if not 1 <= shape.share_count <= MAX_GPUS:
        return _problem("ESLURM_INVALID_GRES")
    if shape.share_count > MAX_PARTS:
        return _problem("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE")
    return None


def _counted(shape: Shape, config: Config) -> Problem | None:
    """Other resources are among those of the cluster."""
    if len(shape.counted) > MOST_COUNTED:
        return _problem("ESLURM_INVALID_GRES")
    for name, _, count in shape.counted:
        known = name in config.gres_types and name != GPU and name not in KINDS
        if not known or not 1 <= count <= MOST_OF_A_KIND:
            return _problem("ESLURM_INVALID_GRES")
    return None


# ---- names -------------------------------------------------------------------------------------


def _partitions(spec: JobSpec, config: Config) -> Problem | None:
    for name in spec.partitions:
        if name not in config.partitions:
            return _problem("ESLURM_INVALID_PARTITION_NAME", f"invalid partition specified: {name}")
    return None


def _names(spec: JobSpec, config: Config) -> Problem | None:
    shape = spec.shape
    if any(name not in config.nodes for name in (*shape.nodelist, *shape.exclude)):
        return _problem("ESLURM_INVALID_NODE_NAME")
    if set(shape.nodelist) & set(shape.exclude):
        return _problem("ESLURM_INVALID_NODE_NAME")
    problem = _wrong_features(spec, config)
    if problem is not None:
        return problem
    if spec.mail_user and RECIPIENTS.fullmatch(spec.mail_user) is None:
        return Problem("ESLURM_INVALID_MAIL_USER", "Invalid --mail-user specification")
    if spec.licenses and not licenses.exist(spec.licenses, config.licenses):
        return _problem("ESLURM_INVALID_LICENSES")
    return None


def feature_names(text: str) -> set[str] | None:
    """The features that a constraint ("a&b", "a|b", "[a*2&b]", "(a&b)|c") names; None where it
    is not one."""
    try:
        variants = features.constraint(text)
    except features.FeatureError:
        return None
    if not variants:
        return None
    options = [option for variant in variants for option in variant.alternatives]
    options += [o for variant in variants for _, group in variant.groups for o in group]
    return {name for option in options for name in option}


def _wrong_features(spec: JobSpec, config: Config) -> Problem | None:
    shape = spec.shape
    known = _facts(config).features
    named = feature_names(shape.features) if shape.features else set()
    if named is None or not named <= known:
        return _problem("ESLURM_INVALID_FEATURE")
    if shape.prefer:
        wanted = feature_names(shape.prefer)
        if wanted is None or not wanted <= known:
            return _problem("ESLURM_INVALID_PREFER")
    if spec.batch_features:
        wanted = feature_names(spec.batch_features)
        if wanted is None or not wanted <= named:
            return _problem("ESLURM_BATCH_NOT_SUBSET")
    return None


# ---- times and grammars --------------------------------------------------------------------------


def _times(spec: JobSpec, config: Config) -> Problem | None:
    for limit in (spec.time_limit, spec.time_min):
        if limit is not None and not 0 <= limit < 1 << 33:
            return _problem("ESLURM_INVALID_TIME_LIMIT")
    if any(not 0 <= moment <= YEAR_9999 for moment in (spec.begin, spec.deadline)):
        return _problem("ESLURM_INVALID_TIME_VALUE")
    if spec.time_min is not None and not _time_min_fits(spec, config):
        return _problem("ESLURM_INVALID_TIME_MIN_LIMIT")
    if config.enforce_part_limits in ("ALL", "ANY") and spec.time_limit is not None:
        limits = [partition.max_time for partition in _asked(spec, config)]
        over = [bool(limit) and not 0 < spec.time_limit <= limit for limit in limits]
        enforced = any(over) if config.enforce_part_limits == "ALL" else bool(over) and all(over)
        if enforced:
            return _problem("ESLURM_INVALID_TIME_LIMIT")
    return None


def _time_min_fits(spec: JobSpec, config: Config) -> bool:
    """Whether the least time is within the limit: its own, or that of the first partition."""
    asked = _asked(spec, config)
    limit = spec.time_limit
    if limit is None and asked:
        first = asked[0]
        limit = first.max_time if first.default_time is None else first.default_time
    return not limit or 0 < (spec.time_min or 0) <= limit


def _part_sizes(spec: JobSpec, config: Config) -> Problem | None:
    """With EnforcePartLimits what its partitions are too small for is refused; else it waits."""
    if config.enforce_part_limits not in ("ALL", "ANY"):
        return None
    codes = [_too_large(spec.shape, part, config) for part in _asked(spec, config)]
    enforce = any if config.enforce_part_limits == "ALL" else all
    if codes and enforce(codes):
        return _problem(next(filter(None, codes)))
    return None


def _too_large(shape: Shape, part: PartitionConfig, config: Config) -> str:
    """Slurm's code for what a partition's size and limits do not allow; "" fits."""
    most = min(part.max_nodes or len(part.nodes), len(part.nodes))
    if shape.min_nodes > most or (
        shape.nodes_set and shape.max_nodes and shape.max_nodes < part.min_nodes
    ):
        return "ESLURM_INVALID_NODE_COUNT"
    tasks = shape.ntasks or shape.min_nodes * max(1, shape.ntasks_per_node)
    if tasks * shape.cpus_per_task > _facts(config).cpus[part.name]:
        return "ESLURM_TOO_MANY_REQUESTED_CPUS"
    return ""


def _grammars(spec: JobSpec, config: Config) -> Problem | None:
    try:
        if spec.array and TaskSet.asked(spec.array)[0].last >= config.max_array_size:
            return _problem("ESLURM_INVALID_ARRAY")
    except TaskSetError:
        return _problem("ESLURM_INVALID_ARRAY")
    try:
        dependency.parse(spec.dependency)
    except dependency.DependencyError:
        return _problem("ESLURM_DEPENDENCY")
    return None


# ---- what no configured node can hold ------------------------------------------------------------


def _asked(spec: JobSpec, config: Config) -> list[PartitionConfig]:
    names = spec.partitions or ((config.default_partition,) if config.default_partition else ())
    return [config.partitions[name] for name in names if name in config.partitions]


class Kind(NamedTuple):
    """What can be asked of a node; a large cluster has few different ones."""

    cpus: int
    real_memory: int
    tmp_disk: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int


class _Facts:
    """What validate needs of a configuration, gathered once instead of for every submission."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.features = frozenset(
            feature for node in config.nodes.values() for feature in node.features
        )
        kinds = {
            name: Kind(*(getattr(node, field) for field in Kind._fields))
            for name, node in config.nodes.items()
        }
        self.cpus = {
            name: sum(config.nodes[node].cpus for node in partition.nodes if node in config.nodes)
            for name, partition in config.partitions.items()
        }
        self.kinds = {
            name: frozenset(kinds[node] for node in partition.nodes if node in kinds)
            for name, partition in config.partitions.items()
        }


_latest: _Facts | None = None


def _facts(config: Config) -> _Facts:
    """Of the configuration asked about last: a process has one until it is reconfigured."""
    global _latest
    if _latest is None or _latest.config is not config:
        _latest = _Facts(config)
    return _latest


def _fits(spec: JobSpec, config: Config) -> Problem | None:
    """Per-node demands against the configured nodes of the partitions asked for."""
    facts = _facts(config)
    kinds: set[Kind] = set()
    for partition in _asked(spec, config):
        kinds |= facts.kinds[partition.name]
    note = impossible(spec.shape, kinds) if kinds else ""
    return _problem("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", note) if note else None


def impossible(shape: Shape, kinds: Collection[Kind]) -> str:
    """Slurm's remark on the demand that none of `kinds` meets, "" if some node meets each."""
    tasks = max(1, shape.ntasks_per_node)
    cpus = 1 if shape.overcommit else max(shape.min_cpus_node, tasks * shape.cpus_per_task)
    if all(node.cpus < cpus for node in kinds):
        return "CPU count per node can not be satisfied"
    memory = max(shape.mem_per_node or 0, (shape.mem_per_cpu or 0) * cpus)
    if all(node.real_memory < memory for node in kinds):
        return "Memory specification can not be satisfied"
    if all(node.tmp_disk < shape.tmp_disk_mb for node in kinds):
        return "Temporary disk specification can not be satisfied"
    if all(
        node.sockets < shape.sockets_per_node
        or node.cores_per_socket < shape.cores_per_socket
        or node.threads_per_core < shape.threads_per_core
        for node in kinds
    ):
        return "Socket, core and/or thread specification can not be satisfied"
    return ""
