"""What of the submitting process goes along with a job: environment, limits, names.

The node lays Slurm's own variables over what is sent here; what --export lets through is decided
here, where the user's words and environment are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gsched.request import Refusal

if TYPE_CHECKING:
    from gsched.config import Config

#: always taken along, whatever --export says
ALWAYS = ("SLURM_", "SPANK_")
#: frames are limited; a kernel gives a program 2 MB of environment by default
MAX_ENVIRONMENT = 8 << 20


def chosen(env: Mapping[str, str], export: str) -> dict[str, str]:
    """The variables that --export lets through: ALL, NONE, NIL, or a list of NAME and NAME=value
    (with ALL among them: everything, and these on top)."""
    if export.upper() in {"", "ALL"}:
        return dict(env)
    # Imported late: it brings the types of the configuration along.
    from gsched.environment import export_items

    items = [] if export.upper() in {"NONE", "NIL"} else export_items(export)
    if any(item.upper() == "ALL" for item in items):
        result = dict(env)
    else:
        result = {name: value for name, value in env.items() if name.startswith(ALWAYS)}
    for item in items:
        name, equals, value = item.partition("=")
        if equals and name:
            result[name] = value
        elif name in env:
            result[name] = env[name]
    return result


def from_file(data: bytes) -> dict[str, str]:
    """Variables of an --export-file: NAME=value, each ended by a NUL."""
    result = {}
    for item in data.split(b"\0"):
        name, equals, value = item.decode("utf-8", "surrogateescape").partition("=")
        if equals and name.strip():
            result[name.strip()] = value
    return result


def in_place(data: bytes, export: str) -> dict[str, str]:
    """What a job gets whose --export-file holds `data`: the file stands for the environment, and
    --export only sets NAME=value on top of it, as in Slurm."""
    from gsched.environment import export_items

    result = from_file(data)
    for item in export_items(export):
        name, equals, value = item.partition("=")
        if equals and name:
            result[name] = value
    return result


def packed(variables: Mapping[str, str]) -> bytes:
    """NUL-separated NAME=value, as the wire has it. Raises Refusal when it is too long."""
    parts = [f"{name}={value}" for name, value in variables.items() if name and "=" not in name]
    text = "\0".join(parts)
    if text.count("\0") >= len(parts):
        text = "\0".join(part for part in parts if "\0" not in part)
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > MAX_ENVIRONMENT:
        raise Refusal(
            f"environment of {len(data)} bytes is too large (at most {MAX_ENVIRONMENT}); "
            "--export chooses what to send"
        )
    return data


def propagated(words: str, soft: Callable[[str], int | None], config: Config) -> dict[str, int]:
    """Soft limits to take along, by name; -1 for infinite.

    `words` is the value of --propagate ("" takes what PropagateResourceLimits and
    PropagateResourceLimitsExcept say, all where they say nothing);
    `soft` reads one. Raises Refusal for a name that is none.
    """
    # Imported late: it brings the types of the configuration along.
    from gsched.config.types import RESOURCE_LIMITS

    if not words:
        words = ",".join(config.propagate_limits)
        if config.propagate_limits_except:
            but = config.propagate_limits_except
            left = () if but == ("ALL",) else [name for name in RESOURCE_LIMITS if name not in but]
            words = ",".join(left) or "NONE"
    wanted = [word.strip().upper().removeprefix("RLIMIT_") for word in words.split(",")]
    if wanted == ["NONE"]:
        return {}
    if wanted in ([""], ["ALL"]):
        wanted = list(RESOURCE_LIMITS)
    for word in wanted:
        if word not in RESOURCE_LIMITS:
            raise Refusal(f"Bad rlimit name: {words}", f"--propagate={words} is not valid.")
    limits = {name: soft(name) for name in RESOURCE_LIMITS if name in wanted}
    return {name: value for name, value in limits.items() if value is not None}
