"""The cluster of a replay: from slurm.conf, from a flag, or made to the trace's measure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gsched.config import Config, ConfigError, load_config, parse_config
from gsched.simulate.traces import Trace, TraceError, read_nodes
from gsched.units import UnitError, parse_memory

#: what a node has where nobody says: so much that it is not what jobs wait for
CPUS_PER_GPU = 16
CPUS = 64
MEMORY_MB = 1 << 26

#: GPUs of a node made to the measure of a trace that does not tell of nodes
GPUS = 8
#: share of a cluster made to measure that the trace's jobs would fill
FULL = 0.8

#: parts of a GPU where the trace's jobs want less than one
SHARDS = 1000

MAX_NODES = 100_000
MAX_GPUS = 64

_NODES = re.compile(r"([0-9]{1,6})(?:x([0-9]{1,3}))?(?::(.+))?\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")


class ClusterError(Exception):
    """One sentence for the user: what is wrong with the cluster he asked for."""


@dataclass(frozen=True)
class Nodes:
    """So many nodes that are alike. 0 CPUs or memory: not said."""

    count: int
    gpus: int
    cpus: int = 0
    mem_mb: int = 0
    type: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wish:
    """What cluster the user asked for. Without `conf` and `nodes` it is made to the trace's
    measure; `lines` are laid over the slurm.conf."""

    conf: Path | None = None
    nodes: tuple[Nodes, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """The cluster, and sentences on how it came to be."""

    config: Config
    remarks: list[str] = field(default_factory=list)


def parse_nodes(text: str) -> tuple[Nodes, ...]:
    """`128x8`, `128x8:type=h100,cpus=64,mem=512G,features=a+b`, `64` (without GPUs), or a file
    with a list of nodes. ClusterError for anything else."""
    path = Path(text)
    if not _NODES.match(text) and path.exists():
        return nodes_of(path)
    found = _NODES.match(text)
    if not found or not 1 <= int(found[1]) <= MAX_NODES or int(found[2] or 0) > MAX_GPUS:
        raise ClusterError(
            f'--nodes "{text}" is neither NODES x GPUS, as 128x8 or 128x8:type=h100,cpus=64,'
            f"mem=512G (up to {MAX_NODES} nodes of up to {MAX_GPUS} GPUs), nor a file"
        )
    said: dict[str, str] = {}
    for item in filter(None, (found[3] or "").split(",")):
        key, _, value = item.partition("=")
        if key not in ("type", "cpus", "mem", "features") or not value:
            raise ClusterError(f'--nodes "{text}": "{item}" is not type=, cpus=, mem= or features=')
        said[key] = value
    cpus, kind = said.get("cpus", "0"), said.get("type", "")
    features = tuple(filter(None, said.get("features", "").split("+")))
    if not cpus.isdecimal() or not int(cpus) <= 1 << 16 or ("cpus" in said and not int(cpus)):
        raise ClusterError(f'--nodes "{text}": "{cpus}" is not a number of CPUs')
    for name in (kind, *features):
        if name and not _NAME.match(name):
            raise ClusterError(f'--nodes "{text}": "{name}" is not a name')
    try:
        memory = parse_memory(said["mem"]) if "mem" in said else 0
    except UnitError as error:
        raise ClusterError(f'--nodes "{text}": {error}') from None
    return (Nodes(int(found[1]), int(found[2] or 0), int(cpus), memory, kind, features),)


def nodes_of(path: Path) -> tuple[Nodes, ...]:
    """A list of nodes; those that follow each other and are alike in one."""
    made: list[Nodes] = []
    try:
        rows = read_nodes(path)
    except TraceError as error:
        raise ClusterError(str(error)) from None
    for row in rows:
        model = (row.model,) if row.model else ()
        one = Nodes(1, row.gpus, row.cpus, row.mem_mb, row.model if row.gpus else "", model)
        if made and _alike(made[-1], one):
            made[-1] = _times(one, made[-1].count + 1)
        else:
            made.append(one)
    return tuple(made)


def _alike(one: Nodes, other: Nodes) -> bool:
    return _times(one, 1) == _times(other, 1)


def _times(nodes: Nodes, count: int) -> Nodes:
    return Nodes(count, nodes.gpus, nodes.cpus, nodes.mem_mb, nodes.type, nodes.features)


# ---- the configuration --------------------------------------------------------------------------


def build(wish: Wish, trace: Trace) -> Built:
    """Cost: as reading a configuration. ClusterError for one that is wrong."""
    extra = "\n".join(wish.lines)
    remarks: list[str] = []
    try:
        if wish.conf is not None:
            config = load_config(str(wish.conf), extra)
        else:
            nodes = wish.nodes
            if not nodes:
                nodes, remark = measured(trace)
                remarks.append(remark)
            shards = any(job.gpu_milli for job in trace.jobs)
            config = parse_config({"slurm.conf": f"{_text(nodes, shards)}\n{extra}\n"})
    except ConfigError as error:
        raise ClusterError(str(error)) from None
    if not config.default_partition and len(config.partitions) != 1:
        first = next(iter(config.partitions), "")
        if not first:
            raise ClusterError(f"{wish.conf}: there is no partition")
        remarks.append(f"there is no default partition: {first} is taken for it")
    return Built(_for_replay(config), remarks)


def _for_replay(config: Config) -> Config:
    """What a replay cannot know or does not play is left out of the rules: nodes never fall
    silent, users have no groups, and queues may be as long as they get."""
    default = config.default_partition or next(iter(config.partitions))
    partitions = {
        name: msgspec.structs.replace(part, allow_groups=(), default=name == default)
        for name, part in config.partitions.items()
    }
    nodes = {
        name: msgspec.structs.replace(conf, state="UNKNOWN") if conf.state == "CLOUD" else conf
        for name, conf in config.nodes.items()
    }
    return msgspec.structs.replace(
        config,
        slurmd_timeout=0,
        slurmd_user="root",
        max_job_count=1 << 30,
        accounting_storage_type="accounting_storage/none",
        partitions=partitions,
        nodes=nodes,
    )


def _text(groups: Iterable[Nodes], shards: bool) -> str:
    lines = [
        "ClusterName=replay",
        "SlurmctldHost=replay",
        "GresTypes=gpu,shard",
        "DefMemPerCPU=1",
        "SchedulerType=sched/backfill",
    ]
    groups = list(groups)
    width = len(str(sum(group.count for group in groups)))
    first = 1
    for group in groups:
        last = first + group.count - 1
        name = f"n[{first:0{width}d}-{last:0{width}d}]" if last > first else f"n{first:0{width}d}"
        cpus = group.cpus or max(CPUS, CPUS_PER_GPU * group.gpus)
        line = f"NodeName={name} CPUs={cpus} RealMemory={group.mem_mb or MEMORY_MB} State=UNKNOWN"
        if group.gpus:
            line += f" Gres=gpu:{group.type + ':' if group.type else ''}{group.gpus}"
            if shards:
                line += f",shard:{SHARDS * group.gpus}"
        if group.features:
            line += f" Features={','.join(group.features)}"
        lines.append(line)
        first = last + 1
    lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines)


# ---- to measure ---------------------------------------------------------------------------------


def measured(trace: Trace) -> tuple[tuple[Nodes, ...], str]:
    """(nodes that suit a trace, the sentence that tells so): as its header says, else as many as
    its jobs fill to four fifths, and never fewer than the largest job needs."""
    if trace.cpus or trace.gpus:
        return _as_told(trace)
    gpus = any(job.gpus for job in trace.jobs)
    node, least = _node_for(trace, gpus)
    span = trace.jobs[-1].submit - trace.jobs[0].submit
    work = sum(job.run * (job.gpus if gpus else max(1, job.cpus)) for job in trace.jobs)
    size = node.gpus if gpus else node.cpus
    wanted = math.ceil(work / span / FULL / size) if span > 0 else 0
    count = min(MAX_NODES, max(least, wanted))
    what = f"{count} nodes x {size} {'GPUs' if gpus else 'CPUs'}"
    why = "which its largest job needs"
    if wanted >= least:
        why = f"of which its jobs would fill {round(100 * work / span / (count * size))} %"
    return (_times(node, count),), (
        f"the trace does not say how large its cluster was: {what} are taken, {why} (say --nodes "
        "or --conf)"
    )


def _as_told(trace: Trace) -> tuple[tuple[Nodes, ...], str]:
    """Where the header tells of processors alone, or of nodes with one each, they are a pool, and
    large nodes are as good: which processors a job had on which node the trace does not tell."""
    total = trace.cpus or trace.gpus
    most = MAX_GPUS if trace.gpus else 1 << 16
    each = -(-total // trace.nodes) if trace.nodes else 1
    if not 1 < each <= most:
        each = min(total, GPUS if trace.gpus else CPUS)
    sizes = [(total // each, each), (1, total % each)]
    made = [
        Nodes(count, size) if trace.gpus else Nodes(count, 0, cpus=size)
        for count, size in sizes
        if count and size
    ]
    what = "GPUs" if trace.gpus else "CPUs"
    words = " and ".join(f"{nodes.count} x {nodes.gpus or nodes.cpus}" for nodes in made)
    return tuple(made), f"{total} {what} as the trace's header says: nodes {words}"


def _node_for(trace: Trace, gpus: bool) -> tuple[Nodes, int]:
    """(a node that holds any job's share, how many of them the largest job needs)."""
    shares = [
        (-(-job.gpus // job.nodes), -(-job.cpus // job.nodes), job.mem_mb)
        for job in trace.jobs
        if job.nodes
    ]
    per = max((share[0] for share in shares), default=0)
    loose = [job for job in trace.jobs if not job.nodes]
    if gpus and (loose or not per):
        per = max(per, min(GPUS, max(job.gpus for job in trace.jobs)))
    cpus = max((share[1] for share in shares), default=0)
    mem = max((share[2] for share in shares), default=0)
    node = Nodes(1, min(per, MAX_GPUS), max(cpus, CPUS, CPUS_PER_GPU * per), max(mem, MEMORY_MB))
    size = node.gpus if gpus else node.cpus
    least = [job.nodes or -(-(job.gpus if gpus else job.cpus) // size) for job in trace.jobs]
    return node, max(1, *least)


def check_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """--set values: KEY=VALUE each. ClusterError else."""
    for line in lines:
        if not re.match(r"[A-Za-z]+\s*\+?=", line) or "\n" in line:
            raise ClusterError(f'"{line}" is not KEY=VALUE of slurm.conf')
        if re.match(r"(NodeName|PartitionName|NodeSet|DownNodes|Include)\b", line, re.IGNORECASE):
            raise ClusterError(f'"{line}" is no global setting of slurm.conf: write it into a file')
    return tuple(lines)
