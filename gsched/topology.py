"""Where nodes are in the network: units of switches or blocks, from the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from gsched.config import Config, Switch
from gsched.hostlist import compress, compress_sorted, expand

#: seconds that a job waits for few switches, at most and without a word of its own
MAX_SWITCH_WAIT = 300


@dataclass
class Network:
    """Units above the nodes, as the core wants them: leaves first, then level by level."""

    #: leaf of each node in the order of the configuration, -1 none
    leaves: list[int] = field(default_factory=list)
    #: the unit above each unit, -1 none
    parents: list[int] = field(default_factory=list)
    #: blocks: nodes that each level is for
    sizes: list[int] = field(default_factory=list)
    #: only jobs that ask for it go by the network
    optional: bool = False

    def __bool__(self) -> bool:
        return bool(self.parents)


def blocks(config: Config) -> bool:
    """Whether the network is one of blocks."""
    return bool(config.switches) and config.switches[0].block


def switch_wait(asked: int, config: Config) -> int:
    """How many seconds a job waits for few switches."""
    word = config.scheduler_options.get("max_switch_wait", "")
    most = int(word) if word.isdecimal() else MAX_SWITCH_WAIT
    return min(asked, most) if asked else most


def network(config: Config) -> Network:
    """The units of a configuration; false without a topology. Cost: nodes + switches."""
    if not config.switches:
        return Network()
    optional = "topooptional" in {word.lower() for word in config.topology_param}
    leaf_switches = [switch for switch in config.switches if not switch.switches]
    leaf_of: dict[str, int] = {}
    for number, switch in enumerate(leaf_switches):
        for node in switch.nodes:
            leaf_of.setdefault(node, number)
    leaves = [leaf_of.get(node, -1) for node in config.nodes]
    if blocks(config):
        return Network(leaves, *_groups(len(leaf_switches), config.block_sizes), optional=optional)
    level = _levels(config.switches)
    above = parents_of(config.switches)
    inner = [switch.name for switch in config.switches if switch.switches]
    inner.sort(key=lambda name: level[name])
    number_of = {name: n for n, name in enumerate([s.name for s in leaf_switches] + inner)}
    parents = [number_of.get(above.get(name, ""), -1) for name in number_of]
    if optional and parents.count(-1) > 1:
        # What does not fit below one switch may lie anywhere.
        parents = [len(parents) if up < 0 else up for up in parents] + [-1]
    return Network(leaves, parents, optional=optional)


def parents_of(switches: Iterable[Switch]) -> dict[str, str]:
    """Switch -> the one above it."""
    above: dict[str, str] = {}
    for switch in switches:
        for child in switch.switches:
            above.setdefault(child, switch.name)
    return above


def _levels(switches: tuple[Switch, ...]) -> dict[str, int]:
    """Switch -> 0 for a leaf, else one more than the highest below it."""
    above = parents_of(switches)
    level = {switch.name: 0 for switch in switches}
    for switch in switches:
        if switch.switches:
            continue
        name, height = switch.name, 0
        while name in above:
            name, height = above[name], height + 1
            level[name] = max(level[name], height)
    return level


def _groups(n_blocks: int, sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Units above blocks, and what each level is for: groups of as many blocks as their size is of
    blocks of the first size, in order; and all."""
    parents: list[int] = []
    first, units, bounds = 0, n_blocks, [sizes[0]]
    for smaller, size in pairwise(sizes):
        if units == 1:
            break
        first += units
        parents += [first + unit // (size // smaller) for unit in range(units)]
        units = -(-units // (size // smaller))
        bounds.append(size)
    if units > 1:
        parents += [first + units] * units
        units = 1
        bounds.append(0)
    return [*parents, -1], bounds


def address(config: Config, node: str) -> tuple[str, str]:
    """SLURM_TOPOLOGY_ADDR of a node and its pattern: what is above it, from the top, and itself.
    Cost: nodes, where there is a topology."""
    name = next((s.name for s in config.switches if node in s.nodes), "")
    kind = "block" if blocks(config) else "switch"
    above = parents_of(config.switches)
    path, pattern = [node], ["node"]
    while name:
        path.insert(0, name)
        pattern.insert(0, kind)
        name = above.get(name, "")
    return ".".join(path), ".".join(pattern)


def show(config: Config, what: str | None = None) -> list[str] | None:
    """The lines of `scontrol show topology`: all switches or blocks, one by its name, or those that
    all of the named nodes are below. None: there is no such switch or node."""
    below = _nodes_below(config.switches)
    lines = _block_lines(config) if blocks(config) else _switch_lines(config.switches, below)
    if what is None or not config.switches:
        return [line for _, _, line in lines]
    named = [line for name, _, line in lines if name == what]
    if not named:
        nodes = set(expand(what))
        named = [line for _, under, line in lines if nodes <= under]
    return named or None


def _nodes_below(switches: tuple[Switch, ...]) -> dict[str, list[str]]:
    by_name = {switch.name: switch for switch in switches}

    def under(name: str) -> list[str]:
        switch = by_name[name]
        return [*switch.nodes, *(node for child in switch.switches for node in under(child))]

    return {switch.name: under(switch.name) for switch in switches}


Lines = list[tuple[str, set[str], str]]


def _switch_lines(switches: tuple[Switch, ...], below: dict[str, list[str]]) -> Lines:
    level = _levels(switches)
    lines: Lines = []
    for switch in switches:
        nodes = below[switch.name]
        text = compress_sorted(nodes) if switch.switches else compress(nodes)
        line = f"SwitchName={switch.name} Level={level[switch.name]} LinkSpeed={switch.link_speed}"
        line += f" Nodes={text}"
        if switch.switches:
            line += f" Switches={compress(switch.switches)}"
        lines.append((switch.name, set(nodes), line))
    return lines


def _block_lines(config: Config) -> Lines:
    lines: Lines = []
    number = 0
    sizes = config.block_sizes
    for size in sizes:
        many = size // sizes[0]
        for at in range(0, len(config.switches), many):
            group = config.switches[at : at + many]
            nodes = [node for block in group for node in block.nodes]
            name = compress([block.name for block in group])
            title = "BlockName" if many == 1 else "AggregatedBlock"
            line = f"{title}={name} BlockIndex={number} Nodes={compress_sorted(nodes)}"
            lines.append((name, set(nodes), f"{line} BlockSize={size}"))
            number += 1
    return lines
