"""cgroup.conf."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gsched.config import values
from gsched.config.lexer import Line, Pair
from gsched.config.types import Cgroup


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
