"""cgroup.conf and topology.conf."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gsched.config import values
from gsched.config.lexer import Line, Pair
from gsched.config.types import Cgroup, Switch


def _plugin(pair: Pair) -> str:
    return values.choice(pair, "autodetect", "cgroup/v1", "cgroup/v2", "disabled")


def _swappiness(pair: Pair) -> int:
    return values.number(pair, 0, 100)


_CGROUP: dict[str, tuple[str, Callable[[Pair], Any]]] = {
    "allowedramspace": ("allowed_ram_space", values.percent),
    "allowedswapspace": ("allowed_swap_space", values.percent),
    "cgroupmountpoint": ("mountpoint", lambda pair: _mountpoint(pair)),
    "cgroupplugin": ("plugin", _plugin),
    "constraincores": ("constrain_cores", values.yes_no),
    "constraindevices": ("constrain_devices", values.yes_no),
    "constrainramspace": ("constrain_ram_space", values.yes_no),
    "constrainswapspace": ("constrain_swap_space", values.yes_no),
    "maxrampercent": ("max_ram_percent", values.percent),
    "maxswappercent": ("max_swap_percent", values.percent),
    "memoryswappiness": ("memory_swappiness", _swappiness),
    "minramspace": ("min_ram_space", values.number),
    "signalchildrenprocesses": ("signal_children_processes", values.yes_no),
}

_CGROUP_WITHOUT_EFFECT = {
    *("allowedkmemspace", "allowedkmemspace", "cgroupautomount", "cgroupreleaseagentdir"),
    *("constrainkmemspace", "enablecontrollers", "enableextracontrollers", "ignoresystemd"),
    *("ignoresystemdonfailure", "maxkmempercent", "minkmemspace", "systemdtimeout"),
    *("taskaffinity", "alloweddevicesfile", "cgroupslice"),
}


def _mountpoint(pair: Pair) -> str:
    if not pair.value.startswith("/"):
        raise pair.bad("an absolute path is expected")
    return pair.value


def parse_cgroup(lines: Iterable[Line]) -> tuple[Cgroup, dict[str, str]]:
    """cgroup.conf, and its keys without effect (name -> file:line)."""
    found: dict[str, Any] = {}
    ignored: dict[str, str] = {}
    for line in lines:
        for pair in line.pairs:
            if pair.name in _CGROUP:
                field, parse = _CGROUP[pair.name]
                found[field] = parse(pair)
            elif pair.name in _CGROUP_WITHOUT_EFFECT:
                ignored[pair.key] = f"{pair.file}:{pair.line}"
            else:
                raise pair.error(f'"{pair.key}" is not a key of cgroup.conf')
    return Cgroup(**found), ignored


def parse_topology(
    lines: Iterable[Line], nodes: Iterable[str]
) -> tuple[tuple[Switch, ...], dict[str, str]]:
    """topology.conf: switches (tree) and blocks, and its keys without effect.

    Every node and child switch must exist; the switches form a forest.
    """
    defined = set(nodes)
    found: dict[str, Switch] = {}
    places: dict[str, Pair] = {}
    ignored: dict[str, str] = {}
    for line in lines:
        first = line.first
        if first.name == "blocksizes":
            ignored[first.key] = f"{first.file}:{first.line}"
            continue
        if first.name not in {"switchname", "blockname"}:
            raise first.error(f'"{first.key}" is not a key of topology.conf')
        if first.value in found:
            raise first.error(f'duplicate {first.key} "{first.value}"')
        children: dict[str, tuple[str, ...]] = {"nodes": (), "switches": ()}
        for pair in line.pairs[1:]:
            if pair.name in children:
                children[pair.name] = tuple(values.hosts(pair))
                places[f"{first.value} {pair.name}"] = pair
            elif pair.name == "linkspeed":
                ignored[pair.key] = f"{pair.file}:{pair.line}"
            else:
                raise pair.error(f'"{pair.key}" is not a key of topology.conf')
        for name in children["nodes"]:
            if name not in defined:
                raise first.error(f'{first.key} {first.value}: node "{name}" is not defined')
        if not children["nodes"] and not children["switches"]:
            raise first.error(f"{first.key} {first.value}: neither Nodes nor Switches is given")
        block = first.name == "blockname"
        found[first.value] = Switch(name=first.value, block=block, **children)
    _check_tree(found, places)
    return tuple(found.values()), ignored


def _check_tree(found: dict[str, Switch], places: dict[str, Pair]) -> None:
    """Children exist, have one parent, and no switch is below itself."""
    parent: dict[str, str] = {}
    for switch in found.values():
        for child in switch.switches:
            pair = places[f"{switch.name} switches"]
            if child not in found:
                raise pair.bad(f'switch "{child}" is not defined')
            if child in parent:
                raise pair.bad(f'switch "{child}" is below {parent[child]} already')
            parent[child] = switch.name
            above: str | None = switch.name
            while above is not None:
                if above == child:
                    raise pair.bad(f'switch "{child}" is below itself')
                above = parent.get(above)
