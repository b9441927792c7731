"""Parts of GPUs: `gres/shard` and `gres/mps`, of which several jobs may each have some of one GPU.

How many parts each GPU of a node has, as slurm.conf and gres.conf say it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gsched.bits import bits

if TYPE_CHECKING:
    from gsched.config import Config, GresLine, NodeConfig
    from gsched.model import Gpu, NodeAlloc

#: the resources of which a GPU is made up in parts -> their kind in the core
KINDS = {"shard": 1, "mps": 2}
#: no GPU has more parts
MAX_PARTS = (1 << 14) - 1

#: a GPU's parts: what they are called ("" it has none) and how many
Parts = tuple[str, int]


def spread(count: int, places: int) -> list[int]:
    """As even as can be: 7 over 3 is [3, 2, 2]."""
    return [count // places + (place < count % places) for place in range(places)]


def parts(config: Config, node: str, gpus: Sequence[Gpu] = ()) -> list[Parts] | None:
    """The parts of each GPU of a node by bit; None if it has none at all.

    `gpus` as the node reports them; without them as slurm.conf counts them. A line of gres.conf
    with File= gives its Count to those GPUs; otherwise the count of Gres= is spread over all GPUs
    (those of its type). Cost: GPUs x lines.
    """
    conf = config.nodes[node]
    if not any(item.name in KINDS and item.count for item in conf.gres):
        return None
    if gpus:
        types = [gpu.type for gpu in gpus]
        minors = [gpu.minor for gpu in gpus]
    else:
        types = [kind for kind, count in conf.gpu_types.items() for _ in range(count)]
        minors = list(range(len(types)))
    found: list[Parts] = [("", 0)] * len(types)
    for name in KINDS:
        for item in conf.gres:
            if item.name != name or not item.count:
                continue
            named = _by_file(config.gres_lines(node, name))
            suited = [
                bit
                for bit, kind in enumerate(types)
                if item.type in ("", kind) and found[bit][0] in ("", name)
            ]
            if named:
                counts = {bit: named.get(minors[bit], 0) for bit in suited}
            else:
                counts = _evenly(item.count, suited, conf)
            for bit, number in counts.items():
                if number:
                    found[bit] = (name, number)
    return found


def _by_file(lines: Iterable[GresLine]) -> dict[int, int]:
    """Minor number of a device -> its parts, from the lines that name devices."""
    found: dict[int, int] = {}
    for line in lines:
        if not line.files:
            continue
        for path, number in zip(line.files, spread(line.count, len(line.files)), strict=True):
            digits = path[len(path.rstrip("0123456789")) :]
            if digits:
                found[int(digits)] = found.get(int(digits), 0) + number
    return found


def _evenly(count: int, suited: list[int], conf: NodeConfig) -> dict[int, int]:
    # A GPU that came for one that is gone has a bit beyond those configured.
    first = [bit for bit in suited if bit < conf.gpus]
    if not first:
        return {}
    counts = dict(zip(first, spread(count, len(first)), strict=True))
    return {bit: counts.get(bit, count // len(first)) for bit in suited}


def one_shared(config: Config, name: str) -> bool:
    """Whether only one GPU of a node may be in parts at a time: Flags=one_sharing, which mps has
    unless it says all_sharing. As in Slurm a flag holds for all nodes."""
    flags = {flag for line in config.gres if line.name == name for flag in line.flags}
    return "all_sharing" not in flags and ("one_sharing" in flags or name == "mps")


def used(shares: Iterable[NodeAlloc]) -> dict[int, int]:
    """GPU bit -> parts of it that these shares of one node hold."""
    found: dict[int, int] = {}
    for share in shares:
        if share.shares:
            for bit in bits(share.gpus):
                found[bit] = found.get(bit, 0) + share.shares
    return found


def gres_texts(
    conf: NodeConfig, parts: Sequence[Parts] | None, taken: Mapping[int, int]
) -> Iterator[str]:
    """What is in use, as Slurm shows it: "shard:3(1/4,2/4)", each GPU's beside what it has."""
    for name in KINDS:
        mine = [(bit, number) for bit, (kind, number) in enumerate(parts or ()) if kind == name]
        if mine:
            each = ",".join(f"{taken.get(bit, 0)}/{number}" for bit, number in mine)
            types = {item.type for item in conf.gres if item.name == name}
            shown = ":".join(filter(None, (name, *(types if len(types) == 1 else ()))))
            yield f"{shown}:{sum(taken.get(bit, 0) for bit, _ in mine)}({each})"


def configured(nodes: Iterable[NodeConfig]) -> dict[str, int]:
    """Parts by name that slurm.conf promises of some nodes, for TRES texts."""
    found: dict[str, int] = {}
    for node in nodes:
        for item in node.gres:
            if item.name in KINDS and item.count:
                found[item.name] = found.get(item.name, 0) + item.count
    return found


def counts(parts: Sequence[Parts] | None, taken: Mapping[int, int]) -> dict[str, int]:
    """Parts in use by name, for TRES texts."""
    found: dict[str, int] = {}
    for bit, number in taken.items():
        name = parts[bit][0] if parts and bit < len(parts) else ""
        found[name or "shard"] = found.get(name or "shard", 0) + number
    return found
