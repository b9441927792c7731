"""Whether a request about a step can be meant at all.

srun refuses nonsense before it asks, but the socket of a node takes requests from whatever its
users have written, and the agent counts, formats and connects with what they say. Nothing past this
needs to mind numbers that are none, names with NUL bytes or lists without an end.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gsched.model.step import ALL_TASKS, NO_TASK, Callback, StepSpec

#: sizes of memory (MB) and of anything that is counted or numbered
MOST_MB = 1 << 50
MOST = (1 << 31) - 1
MOST_CPUS = 1 << 20
#: limits that the client has, "unlimited" included
MOST_LIMIT = (1 << 64) - 1
#: characters of a name, a path, an option: what Linux takes of a path. Longer may be only the
#: words of the program (as much as all of them may be), the command line, a --multi-prog file and a
#: list of mounts
MOST_TEXT = 4096
MOST_WORD = 2 << 20
MOST_LINE = 1 << 20
#: characters of a text that goes to the controller, which keeps it for ever
MOST_TOLD = 64 << 10
#: nodes and words of lists; components of a job
MOST_NODES = 65536
MOST_WORDS = 1 << 20
MOST_PARTS = 128

_HOST = re.compile(r"[0-9A-Za-z_.:%-]{1,255}")
_LONG = {"multi_prog": MOST_LINE, "submit_line": MOST_LINE, "container_mounts": MOST_TOLD}
_LEAST = {"relative": -1, "immediate": -1, "stdin_task": NO_TASK}
_LEAST |= {"stdout_task": ALL_TASKS, "stderr_task": ALL_TASKS}
_MOST = {"cpus_per_task": MOST_CPUS, "cpus_per_gpu": MOST_CPUS}
_MOST |= {"umask": 0o7777, "signal_num": 64, "verbose": 1000}
_MOST |= {"mem_per_node": MOST_MB, "mem_per_cpu": MOST_MB, "mem_per_gpu": MOST_MB}
_LISTS = {"argv": MOST_WORDS, "nodelist": MOST_NODES, "exclude": MOST_NODES}
_ORIGINS = ("", "srun", "sbcast", "salloc")


def unfit(spec: StepSpec) -> str:
    """What of a step cannot be meant, as the name of a field; "" nothing. Cost: its bytes."""
    return _unfit(spec, inner=False)


def unfit_callback(callback: Callback) -> str:
    """As `unfit`, of where a client listens."""
    if not _HOST.fullmatch(callback.host) or not 0 <= callback.port < 1 << 16:
        return "callback"
    return "" if len(callback.secret) == 32 else "callback"


def _unfit(spec: StepSpec, *, inner: bool) -> str:
    if len(spec.parts) > MOST_PARTS or (inner and spec.parts):
        return "parts"
    groups = spec.het_group
    if len(groups) > MOST_PARTS or (not spec.parts and len(set(groups)) < len(groups)):
        return "het_group"
    if spec.origin not in _ORIGINS:
        return "origin"
    for name in StepSpec.__struct_fields__:
        value = getattr(spec, name)
        if name == "rlimits":
            good = len(value) <= MOST_PARTS and all(
                _text(key) and -1 <= limit <= MOST_LIMIT for key, limit in value.items()
            )
        elif name != "parts":
            good = _good(name, value)
        else:
            continue
        if not good:
            return name
    return next((found for part in spec.parts if (found := _unfit(part, inner=True))), "")


def _good(name: str, value: Any) -> bool:
    if isinstance(value, str):
        # An empty word of the program's is one.
        return _text(value, _LONG.get(name, MOST_TEXT))
    if isinstance(value, list):
        if len(value) > _LISTS.get(name, MOST_PARTS):
            return False
        return all(
            _text(one, MOST_WORD if name == "argv" else MOST_TEXT)
            if isinstance(one, str)
            else 0 <= one <= MOST
            for one in value
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return _LEAST.get(name, 0) <= value <= _MOST.get(name, MOST)
    return True


def _text(value: str, most: int = MOST_TEXT) -> bool:
    return len(value) <= most and "\0" not in value


def told(text: str) -> str:
    """As much of a text as the controller is told."""
    return text[:MOST_TOLD]


def weight(spec: StepSpec) -> int:
    """About how many bytes a step's request holds."""
    return len(msgspec.msgpack.encode(spec))
