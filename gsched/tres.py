"""Trackable resources: what a job asks for and has, what that costs, and how it is written.

TRES are dicts of count by name: "cpu", "mem" (MB), "node", "billing", "gres/gpu", "gres/gpu:h100",
"gres/shard", "license/matlab". This is the one place that counts them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from gsched.gres import by_type
from gsched.model.policy import Tres

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model.job import Job, JobSpec, NodeAlloc, Shape

#: what every cluster tracks, in Slurm's order (by number)
BASE = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
#: largest count, and what says that there is no limit
MOST = (1 << 62) - 1
NONE = -1

_ITEM = re.compile(r"\s*([^\s=,]+)\s*=\s*(-?[0-9]+(?:\.[0-9]+)?)([kmgtpe]?)(?:i?b)?\s*\Z", re.I)
_UNITS = "kmgtpe"


class TresError(ValueError):
    """A text that is no list of TRES."""


# ---- what a request asks for -----------------------------------------------------------------


def asked_nodes(shape: Shape) -> int:
    """Nodes that it needs at least."""
    least = max(shape.min_nodes, 1)
    if shape.ntasks and shape.ntasks_per_node and not shape.nodes_set:
        least = max(least, -(-shape.ntasks // shape.ntasks_per_node))
    return least


def asked_tasks(shape: Shape) -> int:
    """Tasks on so many nodes."""
    return shape.ntasks or asked_nodes(shape) * max(shape.ntasks_per_node, 1)


def asked_cpus(shape: Shape) -> int:
    """CPUs that it asks for, as Slurm counts them before it has any."""
    nodes = least = asked_nodes(shape)
    tasks = asked_tasks(shape)
    if shape.overcommit:
        tasks = nodes
    elif not shape.ntasks and not shape.ntasks_per_node and shape.max_nodes > nodes:
        # How many tasks there will be is open: Slurm counts one.
        tasks = least = 1
    return max(
        tasks * max(shape.cpus_per_task, 1),
        nodes * shape.min_cpus_node,
        asked_gpus(shape) * shape.cpus_per_gpu,
        least,
    )


def asked_gpus(shape: Shape) -> int:
    """Whole GPUs in all."""
    if shape.gpus_total:
        return shape.gpus_total
    if shape.gpus_per_node:
        return asked_nodes(shape) * shape.gpus_per_node
    if shape.gpus_per_task:
        return asked_tasks(shape) * shape.gpus_per_task
    return asked_nodes(shape) * shape.gpus_per_socket * max(shape.sockets_per_node, 1)


def asked_kinds(shape: Shape) -> dict[str, int]:
    """Of these GPUs those that are asked for by type."""
    gpus = asked_gpus(shape)
    if shape.gpu_kinds:
        return by_type(shape.gpu_kinds, gpus)
    return {shape.gpu_type: gpus} if shape.gpu_type and gpus else {}


def asked_memory(shape: Shape, alloc: Sequence[NodeAlloc] = ()) -> int:
    """MB in all; 0 is all that its nodes have: what that is shows in `alloc`, once it has them."""
    if shape.mem_per_node is not None:
        return shape.mem_per_node * asked_nodes(shape) or sum(part.mem_mb for part in alloc)
    if shape.mem_per_cpu is not None:
        return shape.mem_per_cpu * asked_cpus(shape)
    if shape.mem_per_gpu is not None:
        return shape.mem_per_gpu * asked_gpus(shape)
    return 0


def requested(
    spec: JobSpec,
    alloc: Sequence[NodeAlloc] = (),
    *,
    others: bool = True,
    shape: Shape | None = None,
) -> Tres:
    """What a job asks for, as Slurm counts it for limits before it has nodes (without billing, and
    without licences of which it takes one kind or another). `others`: also what only some clusters
    track, GRES that are just counted, and licences; `shape`: in place of the request's own. Cost:
    constant."""
    shape = spec.shape if shape is None else shape
    nodes = asked_nodes(shape)
    found = _whole(
        asked_cpus(shape), asked_memory(shape, alloc), nodes, asked_gpus(shape), asked_kinds(shape)
    )
    if shape.share_count:
        found[f"gres/{shape.share}"] = shape.share_count * nodes
    if not others:
        return found
    for name, kind, number in shape.counted:
        _counted(found, name, kind, number * nodes)
    if "|" not in spec.licenses:
        _licences(found, spec.licenses)
    return found


def allocated(job: Job, *, others: bool = True) -> Tres:
    """What a job's current (or, when it has ended, last known) allocation holds, without billing;
    {} it has none. `others` as in `requested`. Cost: its nodes."""
    alloc, shape = job.alloc, job.spec.shape
    if not alloc:
        return {}
    found = held(alloc, job.gpu_types, shape.share)
    if not others:
        return found
    for name, kind, number in shape.counted:
        _counted(found, name, kind, number * len(alloc))
    _licences(found, job.licenses_alloc)
    return found


def held(shares: Sequence[NodeAlloc], kinds: Mapping[str, int], share: str = "") -> Tres:
    """What these shares of nodes hold: `kinds` are their GPUs by type, `share` what parts of GPUs
    are called. Cost: the shares."""
    found = _whole(
        sum(part.cpus for part in shares),
        sum(part.mem_mb for part in shares),
        len(shares),
        sum(part.whole_gpus for part in shares),
        kinds,
    )
    parts = sum(part.shares for part in shares)
    if parts:
        found[f"gres/{share}"] = parts
    return found


def _whole(cpus: int, mb: int, nodes: int, gpus: int, kinds: Mapping[str, int]) -> Tres:
    found = {"cpu": cpus, "node": nodes}
    if mb:
        found["mem"] = mb
    if gpus:
        found["gres/gpu"] = gpus
        found |= {f"gres/gpu:{kind}": n for kind, n in sorted(kinds.items()) if kind and n}
    return found


def _counted(found: Tres, name: str, kind: str, number: int) -> None:
    for each in (f"gres/{name}", f"gres/{name}:{kind}" if kind else ""):
        if each:
            found[each] = found.get(each, 0) + number


def _licences(found: Tres, text: str) -> None:
    for item in text.replace(";", ",").split(","):
        name, _, number = item.replace("=", ":").partition(":")
        if name:
            found[f"license/{name}"] = found.get(f"license/{name}", 0) + int(number or 1)


# ---- billing ---------------------------------------------------------------------------------


@cache
def weights(text: str) -> dict[str, float]:
    """TRESBillingWeights: "CPU=1.0,Mem=0.25G,GRES/gpu=2.0" -> weight by name; of memory for each MB
    (a unit after the number says of how much one is meant). Raises TresError."""
    found: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _ITEM.match(item)
        if match is None or match[2].startswith("-"):
            raise TresError(item)
        name = plain(match[1])
        value = float(match[2])
        if match[3]:
            place = _UNITS.index(match[3].lower())
            # Megabytes are the unit of memory, single ones that of the others.
            value /= 1024.0 ** (place - 1 if name == "mem" else place + 1)
        found[name] = value
    return found


def billing(tres: Mapping[str, int], weight: Mapping[str, float], flags: Iterable[str] = ()) -> int:
    """What a job is billed for: without weights its CPUs; else the weighed sum, rounded down. With
    PriorityFlags=MAX_TRES the largest of what a node has (CPUs, memory, GRES) and the sum of the
    rest; with MAX_TRES_GRES the largest of CPUs and memory, and all GRES and the rest."""
    if not weight:
        return tres.get("cpu", 0)
    costs = {name: tres[name] * weight[name] for name in weight if tres.get(name)}
    lowered = {flag.lower() for flag in flags}
    total = sum(costs.values())
    if "max_tres_gres" in lowered:
        total = _largest(costs, ("cpu", "mem"))
    elif "max_tres" in lowered:
        total = _largest(costs, ("cpu", "mem", *(n for n in costs if n.startswith("gres/"))))
    # What binary fractions make of 0.1 * 30 must not cost a whole unit.
    return int(total + 1e-9)


def _largest(costs: Mapping[str, float], of: Iterable[str]) -> float:
    group = set(of)
    most = max((costs.get(name, 0.0) for name in group), default=0.0)
    return most + sum(cost for name, cost in costs.items() if name not in group)


def with_billing(config: Config, partition: str, tres: Tres) -> Tres:
    """The same with "billing" as the partition counts it."""
    part = config.partitions.get(partition)
    text = part.tres_billing_weights if part is not None else ""
    weight = weights(text) if text else {}
    return tres | {"billing": billing(tres, weight, getattr(config, "priority_flags", ()))}


# ---- names -----------------------------------------------------------------------------------


def tracked(config: Config) -> tuple[str, ...]:
    """Names of all TRES that the cluster counts, in Slurm's order."""
    asked = [plain(name) for name in config.accounting_storage_tres]
    if any(name.startswith("gres/gpu") for name in asked):
        asked += ["gres/gpumem", "gres/gpuutil"]
    return tuple(dict.fromkeys((*BASE, *asked)))


def plain(name: str) -> str:
    """A name as it is kept: what Slurm compares without regard to case in lower case, the rest as
    it is ("GRES/gpu:H100" -> "gres/gpu:H100", "CPU" -> "cpu")."""
    kind, slash, rest = name.partition("/")
    return f"{kind.lower()}{slash}{rest}"


def order(names: Iterable[str], known: Sequence[str] = BASE) -> list[str]:
    """Names in Slurm's order: those of `known` (see `tracked`) as they stand there, others after
    them by name."""
    place = {name: number for number, name in enumerate(known)}
    return sorted(names, key=lambda name: (place.get(name, len(place)), name))


# ---- text ------------------------------------------------------------------------------------


def parse(text: str) -> Tres:
    """ "cpu=4,mem=8G,gres/gpu:h100=2" -> counts; memory in MB (no unit: MB); -1 takes a limit away.
    Whether a name is tracked is for the caller to say. Raises TresError with the item."""
    found: Tres = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _ITEM.match(item)
        if match is None:
            raise TresError(item)
        name, number, unit = plain(match[1]), match[2], match[3].lower()
        value = float(number)
        if value < 0:
            if value != NONE or unit:
                raise TresError(item)
            found[name] = NONE
            continue
        if unit:
            place = _UNITS.index(unit)
            value *= 1024.0 ** (place - 1 if name == "mem" else place + 1)
        whole = int(number) if not unit and number.isdigit() else int(value)
        if whole > MOST:
            raise TresError(item)
        found[name] = whole
    return found


def text(tres: Mapping[str, int], known: Sequence[str] = BASE, *, convert: bool = True) -> str:
    """Counts as Slurm writes them: "cpu=4,mem=8G,gres/gpu:h100=2". `convert`: memory in the largest
    unit of which at most half is cut off, else in megabytes ("8192M")."""
    return ",".join(
        f"{name}={megabytes(tres[name], convert) if name == 'mem' else tres[name]}"
        for name in order(tres, known)
    )


def sorted_text(tres: Mapping[str, int], *, convert: bool = False) -> str:
    """The same in accounting's order (by what is written), memory in megabytes."""
    return ",".join(sorted(text(tres, convert=convert).split(",")))


def megabytes(mb: int, convert: bool = True) -> str:
    """Memory in MB with its unit: a larger unit only where at most half of one is cut off
    ("2000M", "3G", "62.50G"); 0 is "0"."""
    if mb <= 0:
        return str(mb)
    value: float = mb
    place = 0
    units = "MGTPE"
    while convert and value >= 1024 and value % 512 == 0 and place < len(units) - 1:
        value /= 1024
        place += 1
    shown = f"{int(value)}" if value == int(value) else f"{value:.2f}"
    return f"{shown}{units[place]}"
