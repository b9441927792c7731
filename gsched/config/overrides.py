"""What administrators changed at run time, laid over what the files say.

The controller and the commands that show partitions use the same functions, so both see the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gsched.config.errors import ConfigError
from gsched.config.lexer import Pair
from gsched.config.partitions import job_defaults, oversubscribe, parsers
from gsched.config.types import Config, PartitionConfig
from gsched.hostlist import HostlistError, compress, expand

if TYPE_CHECKING:
    from gsched.model import PartitionChange

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}\Z")


class OverrideError(ValueError):
    """A value that a partition cannot have; the text is Slurm's sentence."""


def changed_partition(
    base: PartitionConfig, fields: Mapping[str, str], nodes: Iterable[str]
) -> PartitionConfig:
    """`base` with `fields` (lower-case keys as in slurm.conf). Raises OverrideError.

    `nodes` are all nodes of the cluster in order.
    """
    changes: dict[str, Any] = {}
    simple = parsers()
    for key, value in fields.items():
        pair = Pair(key, value, "", 0)
        try:
            if key == "nodes":
                changes |= _nodes(base, value, nodes)
            elif key in ("oversubscribe", "shared"):
                changes |= oversubscribe(pair)
            elif key == "jobdefaults":
                changes |= job_defaults(pair)
            elif key == "priority":
                changes["priority_tier"] = changes["priority_job_factor"] = int(value)
            elif key in simple:
                field, parse = simple[key]
                changes[field] = parse(pair)
            else:
                raise OverrideError(f"Update of this parameter is not supported: {key}={value}")
        except (ConfigError, ValueError) as error:
            if isinstance(error, OverrideError):
                raise
            raise OverrideError(f"Invalid input {key}={value}") from None
    for one, other in (
        ("def_mem_per_cpu", "def_mem_per_node"),
        ("max_mem_per_cpu", "max_mem_per_node"),
    ):
        if one in changes:
            changes.setdefault(other, None)
        elif other in changes:
            changes[one] = None
    return msgspec.structs.replace(base, **changes)


def _nodes(base: PartitionConfig, value: str, nodes: Iterable[str]) -> dict[str, Any]:
    known = dict.fromkeys(nodes)
    sign, text = (value[0], value[1:]) if value[:1] in "+-" and value else ("", value)
    try:
        wanted = list(known) if text.upper() == "ALL" else list(dict.fromkeys(expand(text)))
    except HostlistError:
        raise OverrideError("Invalid node name specified") from None
    if any(name not in known for name in wanted):
        raise OverrideError("Invalid node name specified")
    if sign == "+":
        wanted = list(dict.fromkeys([*base.nodes, *wanted]))
    elif sign == "-":
        wanted = [name for name in base.nodes if name not in set(wanted)]
    return {"nodes": tuple(wanted), "nodes_text": compress(wanted)}


def new_partition(name: str) -> PartitionConfig:
    """A partition as it is before anything is said of it. Raises OverrideError."""
    if not _NAME.match(name):
        raise OverrideError("Invalid partition name specified")
    return PartitionConfig(name=name)


def with_partitions(config: Config, changes: Sequence[PartitionChange]) -> Config:
    """The configuration with partitions made, changed and deleted at run time. What does not suit
    the files any more (a node that is gone) is left out. Cost: the changes."""
    if not changes:
        return config
    partitions = dict(config.partitions)
    default = config.default_partition
    for change in changes:
        if change.deleted:
            partitions.pop(change.name, None)
            continue
        try:
            base = partitions.get(change.name) or new_partition(change.name)
            made = changed_partition(base, change.fields, config.nodes)
        except OverrideError:
            continue
        partitions[change.name] = made
        if "default" in change.fields:
            if made.default:
                default = change.name
            elif default == change.name:
                default = ""
    for name, part in partitions.items():
        if part.default != (name == default):
            partitions[name] = msgspec.structs.replace(part, default=name == default)
    return msgspec.structs.replace(config, partitions=partitions)
