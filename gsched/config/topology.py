"""topology.conf: the switches of topology/tree, or the blocks of topology/block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gsched.config import values
from gsched.config.lexer import Line, Pair
from gsched.config.types import Switch
from gsched.hostlist import compress

TREE = "topology/tree"
BLOCK = "topology/block"

#: keys of each kind of line
_KEYS = {
    "switchname": {"nodes", "switches", "linkspeed"},
    "blockname": {"nodes"},
}


@dataclass
class TopologyFile:
    """What the file says to the plugin in force."""

    #: in the order of the file
    switches: tuple[Switch, ...] = ()
    #: nodes that blocks of each level are for
    block_sizes: tuple[int, ...] = ()
    warnings: list[str] = field(default_factory=list)


def parse_topology(lines: Sequence[Line], nodes: Iterable[str], plugin: str) -> TopologyFile:
    """The lines for `plugin`; those for the other one are only read. Without either the file means
    nothing. As in Slurm, a name of no node is passed over with a warning, and what is no tree is
    an error."""
    if plugin not in (TREE, BLOCK):
        return TopologyFile()
    found: dict[str, Switch] = {}
    sizes: tuple[int, ...] = ()
    out = TopologyFile()
    known = set(nodes)
    unknown: list[str] = []
    for line in lines:
        first = line.first
        if first.name == "blocksizes":
            sizes = _sizes(first)
            continue
        if first.name not in _KEYS:
            raise first.error(f'"{first.key}" is not a key of topology.conf')
        switch = _switch(line)
        if switch.block != (plugin == BLOCK):
            continue
        if switch.name in found:
            kind = "Block" if switch.block else "Switch"
            raise first.error(f"{kind} ({switch.name}) has already been defined")
        if not switch.block and switch.nodes and switch.switches:
            raise first.error(f"switch {switch.name} has both child switches and nodes")
        if not switch.nodes and not switch.switches:
            lack = "no nodes" if switch.block else "neither child switches nor nodes"
            raise first.error(f"{first.name[:-4]} {switch.name} has {lack}")
        unknown += [name for name in switch.nodes if name not in known]
        found[switch.name] = Switch(
            name=switch.name,
            nodes=tuple(name for name in switch.nodes if name in known),
            switches=switch.switches,
            block=switch.block,
            link_speed=switch.link_speed,
        )
        for child in switch.switches:
            if child == switch.name:
                raise first.error("Switch configuration is not a tree")
    out.switches = tuple(found.values())
    if unknown:
        kind = "block" if plugin == BLOCK else "switch"
        out.warnings.append(f"Invalid hostnames in {kind} configuration: {compress(unknown)}")
    _check_tree(out, lines)
    _check_nodes(out, known, plugin)
    if plugin == BLOCK and out.switches:
        out.block_sizes = sizes or (min(len(block.nodes) for block in out.switches) or 1,)
        small = [block.name for block in out.switches if len(block.nodes) < out.block_sizes[0]]
        if small:
            least = out.block_sizes[0]
            out.warnings.append(f"blocks with fewer than {least} nodes: {','.join(small)}")
    return out


def _switch(line: Line) -> Switch:
    first = line.first
    children: dict[str, tuple[str, ...]] = {"nodes": (), "switches": ()}
    speed = 1
    for pair in line.pairs[1:]:
        if pair.name not in _KEYS[first.name]:
            raise pair.error(f'"{pair.key}" is not a key of topology.conf')
        if pair.name == "linkspeed":
            speed = values.number(pair)
        else:
            children[pair.name] = tuple(dict.fromkeys(values.hosts(pair)))
    block = first.name == "blockname"
    return Switch(name=first.value, block=block, link_speed=speed, **children)


def _sizes(pair: Pair) -> tuple[int, ...]:
    """Each a power of two times the first, rising."""
    texts = values.words(pair)
    if not texts or not all(text.isdecimal() and 0 < int(text) < 1 << 31 for text in texts):
        raise pair.bad("sizes of blocks are expected")
    sizes = sorted({int(text) for text in texts})
    for size in sizes[1:]:
        times, rest = divmod(size, sizes[0])
        if rest or times & (times - 1):
            raise pair.bad(f"{size} is not a power of two times {sizes[0]}")
    return tuple(sizes)


def _check_tree(out: TopologyFile, lines: Sequence[Line]) -> None:
    """Children exist, and no switch is below itself."""
    by_name = {switch.name: switch for switch in out.switches}
    parent: dict[str, str] = {}
    places = {line.first.value: line.first for line in lines}
    for switch in out.switches:
        for child in switch.switches:
            if child not in by_name:
                raise places[switch.name].error(
                    f"Switch configuration {switch.name} has invalid child ({child})"
                )
            if child in parent:
                above = parent[child]
                out.warnings.append(
                    f"switch {child} is below {above} and {switch.name}: taken as below {above}"
                )
                continue
            parent[child] = switch.name
            up: str | None = switch.name
            while up is not None:
                if up == child:
                    raise places[switch.name].error("Switch configuration is not a tree")
                up = parent.get(up)


def _check_nodes(out: TopologyFile, known: set[str], plugin: str) -> None:
    """Every node should be below one leaf."""
    if not out.switches:
        kind = "blocks" if plugin == BLOCK else "switches"
        out.warnings.append(f"No {kind} configured")
        return
    below: set[str] = set()
    twice: dict[str, None] = {}
    for switch in out.switches:
        twice.update(dict.fromkeys(name for name in switch.nodes if name in below))
        below.update(switch.nodes)
    leaves, kind = ("blocks", "blocks") if plugin == BLOCK else ("leaf switches", "switches")
    missing = [name for name in known if name not in below]
    if missing:
        names = compress(sorted(missing))
        out.warnings.append(f"{kind} lack access to {len(missing)} nodes: {names}")
    if twice:
        out.warnings.append(f"Multiple {leaves} contain nodes: {compress(twice)}")
