"""The ways to ask for GPUs: `--gres=gpu:h100:2`, `--gpus=2`, `--tres-per-task=gres/gpu=1`.

One grammar for all of them: what is asked of one kind of GPU, how many, and how the request is
shown afterwards. Pure; costs a pass over the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gsched.errors import message
from gsched.gpushare import KINDS

if TYPE_CHECKING:
    from gsched.config import Config

GPU = "gpu"
#: kinds of resources that are only counted, of all nodes together
MOST_COUNTED = 7
#: bounds on the CPUs of a node that some jobs hold together are kinds of counted resources as well
FIRST_CAP, MOST_CAPS = 8, 4
#: no machine or cluster of this century holds more
MAX_GPUS = 1 << 20
#: nor so many of what is counted
MOST_OF_A_KIND = 1_000_000_000

_COUNT = r"([0-9]{1,9})([KMGTP]?)\Z"
_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]{0,63}\Z"
_TYPE = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}\Z"
_PROFILE = r"[0-9]{1,2}g\.[0-9]{1,4}gb(?:\+[a-z.+]{1,16})?\Z"
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}

WITH_AND_WITHOUT_TYPE = "Invalid GRES specification (with and without type identification)"


class GresError(ValueError):
    """A request for generic resources that cannot be read; the text is Slurm's sentence."""


class NothingNamed(GresError):
    """An item of the request is empty: Slurm's controller, not its client, refuses it."""

    def __init__(self) -> None:
        super().__init__(message("ESLURM_INVALID_TRES"))


def _invalid() -> GresError:
    return GresError(message("ESLURM_INVALID_GRES"))


class GpuRequest(msgspec.Struct, frozen=True):
    """GPUs asked for in one form."""

    count: int
    #: "" for any type
    type: str = ""
    #: as Slurm shows it, e.g. "gres/gpu:h100:2"
    shown: str = ""
    #: "shard" or "mps": not whole GPUs, but so many parts of one GPU on each node
    share: str = ""
    #: (type, count) of each, where there are several
    kinds: tuple[tuple[str, int], ...] = ()
    #: (name, type, count) of other resources that are asked for beside them
    counted: tuple[tuple[str, str, int], ...] = ()

    def of(self, kind: str) -> int:
        """How many of one type are asked for."""
        return dict(self.kinds or ((self.type, self.count),)).get(kind, 0)


def _count(text: str, most: int = MAX_GPUS) -> int:
    found = re.match(_COUNT, text)
    if not found:
        raise _invalid()
    number = int(found[1]) * _UNIT[found[2]]
    if number > most:
        raise _invalid()
    return number


def _one(text: str, most: int = MAX_GPUS) -> tuple[str, int]:
    """(type, count) of "2", "h100", "h100:2", "h100=2", ""; without a count it is 1."""
    text = text.replace("=", ":", 1) if ":" not in text else text
    kind, colon, number = text.partition(":")
    if not colon:
        if text == "":
            return "", 1
        if re.match(_COUNT, text):
            return "", _count(text, most)
        # "2k" is a spoilt number and not a type; 1g.10gb is one, of a slice of a GPU.
        if re.match(_TYPE, text) and (not text[0].isdigit() or re.match(_PROFILE, text)):
            return text, 1
        raise _invalid()
    if ":" in number or not re.match(_TYPE, kind):
        raise _invalid()
    return kind, _count(number, most)


def _merge(parts: list[tuple[str, int]]) -> tuple[str, int, tuple[tuple[str, int], ...]]:
    """(type, sum, count of each type where there are several); with a type or without, not both."""
    counts: dict[str, int] = {}
    for kind, number in parts:
        counts[kind] = counts.get(kind, 0) + number
    if "" in counts and len(counts) > 1:
        raise GresError(WITH_AND_WITHOUT_TYPE)
    kinds = {kind: number for kind, number in counts.items() if number}
    if len(kinds) > 1:
        return "", sum(kinds.values()), tuple(sorted(kinds.items()))
    return next(iter(kinds or counts)), sum(counts.values()), ()


def parse_gpus(text: str) -> GpuRequest:
    """A value of --gpus, --gpus-per-node, -per-task or -per-socket: "[type:]count,...".

    A bare word is a type and means one GPU of it, as in Slurm. Raises GresError.
    """
    parts = [_one(item) for item in text.split(",")]
    kind, number, kinds = _merge(parts)
    shown = ",".join(f"gres/gpu:{item}" for item in text.split(","))
    return GpuRequest(number, kind, shown, kinds=kinds)


def parse_gres(text: str) -> GpuRequest:
    """A value of --gres: "name[:type][:count],...". GPUs are given whole or in parts: of gpu, shard
    and mps there is one at most. Others are counted; whether the cluster has such is not known
    here. "none" asks for nothing, and must stand alone.

    Raises GresError, NothingNamed where an item is empty.
    """
    if text.lower() == "none":
        return GpuRequest(0)
    parts: list[tuple[str, int]] = []
    shown: list[str] = []
    names: set[str] = set()
    counted: dict[tuple[str, str], int] = {}
    for item in text.split(","):
        if not item:
            raise NothingNamed
        name, separator, rest = item.removeprefix("gres/").removeprefix("gres:").partition(":")
        if not re.match(_NAME, name) or (separator and not rest):
            raise _invalid()
        if name in (GPU, *KINDS):
            names.add(name)
            if len(names) > 1:
                raise _invalid()
            parts.append(_one(rest))
        else:
            kind, number = _one(rest, MOST_OF_A_KIND)
            counted[name, kind] = counted.get((name, kind), 0) + number
        shown.append(f"gres/{name}:{rest}" if separator else f"gres/{name}")
    others = tuple(sorted((*key, number) for key, number in counted.items() if number))
    if not parts:
        return GpuRequest(0, shown=",".join(shown) if others else "", counted=others)
    kind, number, kinds = _merge(parts)
    if kinds and names != {GPU}:
        raise _invalid()
    share = "" if names == {GPU} or not number else names.pop()
    return GpuRequest(number, kind, ",".join(shown), share, kinds, others)


def counted_kinds(config: Config) -> dict[tuple[str, str], int]:
    """The resources of a cluster that are only counted, (name, type) and (name, "" of all types),
    and their numbers: at most MOST_COUNTED, in the order of names. Cost: nodes."""
    found = set()
    for conf in config.nodes.values():
        for item in conf.gres:
            if item.name not in (GPU, *KINDS):
                found |= {(item.name, ""), (item.name, item.type)}
    return {kind: number for number, kind in enumerate(sorted(found)[:MOST_COUNTED])}


def parse_tres_per_task(text: str) -> tuple[int, GpuRequest | None]:
    """(CPUs per task or 0, GPUs per task or None) of --tres-per-task: "cpu=2,gres/gpu:h100=1".

    Raises GresError for other resources.
    """
    cpus, parts = 0, list[tuple[str, int]]()
    for item in filter(None, text.split(",")):
        name, _, rest = item.replace(":", "=").partition("=")
        if name == "cpu" and re.match(_COUNT, rest):
            cpus = _count(rest)
        elif name == "gres/gpu":
            parts.append(_one(rest.replace("=", ":")))
        else:
            raise GresError(message("ESLURM_INVALID_TRES"))
    return cpus, per_task(parts) if parts else None


def per_task(parts: list[tuple[str, int]]) -> GpuRequest:
    """GPUs per task of these types and counts. Raises GresError."""
    kind, number, kinds = _merge(parts)
    shown = ",".join(per_task_text(*item) for item in kinds or ((kind, number),))
    return GpuRequest(number, kind, shown, kinds=kinds)


def by_type(kinds: tuple[tuple[str, int, int, int], ...], gpus: int) -> dict[str, int]:
    """Of `gpus` GPUs in all those of each type, in the proportion of what is asked for."""
    sizes = {kind: max(counts) for kind, *counts in kinds}
    total = sum(sizes.values()) or 1
    return {kind: gpus * size // total for kind, size in sizes.items()}


def per_task_text(kind: str, number: int) -> str:
    """How a request per task is shown: "gres/gpu=1", "gres/gpu:h100=1"."""
    return f"gres/gpu:{kind}={number}" if kind else f"gres/gpu={number}"
