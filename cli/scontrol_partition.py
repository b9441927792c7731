"""scontrol's create, update and delete of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from gsched.wire.messages import Refused, UpdatePartition
from gsched_cli.common import Reader
from gsched_cli.stop import UNREACHABLE, Stop

NAME = "scontrol"
_ENTITY = ("partitionname", "partition")
#: keys that may be changed, as slurm.conf has them
KEYS = frozenset(
    {
        *("allocnodes", "allowaccounts", "allowgroups", "allowqos", "alternate", "default"),
        *("defaulttime", "defmempercpu", "defmempernode", "denyaccounts", "denyqos"),
        *("disablerootjobs", "exclusiveuser", "gracetime", "hidden", "jobdefaults", "lln"),
        *("maxcpuspernode", "maxcpuspersocket", "maxmempercpu", "maxmempernode", "maxnodes"),
        *("maxtime", "minnodes", "nodes", "oversubscribe", "overtimelimit", "preemptmode"),
        *("priority", "priorityjobfactor", "prioritytier", "qos", "reqresv", "rootonly"),
        *("shared", "state", "tresbillingweights"),
    }
)
_STATES = ("UP", "DOWN", "DRAIN", "INACTIVE")


def name_of(words: Sequence[str]) -> str | None:
    """The partition that PartitionName= names; None: another entity is meant."""
    for word in words:
        key, equals, value = word.partition("=")
        if key.lower() in _ENTITY and equals:
            return value
    return None


def update(name: str, words: Sequence[str], reader: Reader) -> int:
    """`update partitionname=NAME KEY=VALUE ...`."""
    fields = _fields(words)
    if not fields:
        raise Stop(1, f"{NAME}: error: No changes specified\n")
    return _send(reader, UpdatePartition(name, "update", fields), "slurm_update error: ")


def create(words: Sequence[str], reader: Reader) -> int:
    """`create partitionname=NAME KEY=VALUE ...`."""
    name = name_of(words)
    if not name:
        raise Stop(
            1,
            "No valid entity in create command\n"
            'Input line must include "Reservation" or "PartitionName"\n',
        )
    request = UpdatePartition(name, "create", _fields(words))
    return _send(reader, request, "Error creating the partition: ")


def delete(name: str, word: str, reader: Reader) -> int:
    """`delete partitionname=NAME`; `word` is the first one after `delete`, as it was typed."""
    return _send(reader, UpdatePartition(name, "delete"), f"delete_partition {word}: ")


def _fields(words: Sequence[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    named = False
    for word in words:
        key, equals, value = word.partition("=")
        if key.lower() in _ENTITY and not named:
            named = True
            continue
        sign = key[-1:] if key[-1:] in ("+", "-") else ""
        name = _key(key.rstrip("+-"))
        if name is None or not equals:
            raise Stop(
                1,
                f"{NAME}: error: Update of this parameter is not supported: {word}\n\n"
                f"{NAME}: error: Request aborted\n",
            )
        if name == "state" and not _state(value):
            raise Stop(
                1,
                f"{NAME}: error: Invalid input: {word}\n"
                f"{NAME}: error: Acceptable State values are UP, DOWN, DRAIN and INACTIVE\n",
            )
        fields[name] = _state(value) if name == "state" else sign + value
    return fields


def _key(word: str) -> str | None:
    """A key, or what it may be cut to where that is clear."""
    low = word.lower()
    if low in KEYS:
        return low
    found = [key for key in KEYS if key.startswith(low)] if len(low) > 2 else []
    return found[0] if len(found) == 1 else None


def _state(value: str) -> str:
    return next((s for s in _STATES if value and s.startswith(value.upper())), "")


def _send(reader: Reader, request: UpdatePartition, prefix: str) -> int:
    from gsched.client import ControllerDown

    try:
        reply = reader.call(request)
    except ControllerDown:
        raise Stop(1, f"{prefix}{UNREACHABLE}\n") from None
    if isinstance(reply, Refused):
        if reply.message.startswith(("Invalid input", "Update of this")):
            raise Stop(1, f"{NAME}: error: {reply.message}\n")
        raise Stop(1, f"{prefix}{reply.message}\n")
    return 0
