"""Generic resources: the items of a node's Gres=, and gres.conf."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gsched import hostlist
from gsched.config import values
from gsched.config.lexer import Line, Pair
from gsched.config.types import GresCount, GresLine
from gsched.gpushare import KINDS, MAX_PARTS

_COUNT = re.compile(r"([0-9]{1,12})([KMGTP]?)\Z", re.IGNORECASE | re.ASCII)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*\Z", re.ASCII)
_TYPE = re.compile(r"[A-Za-z0-9_.+\-]+\Z", re.ASCII)

MAX_FILES = 1024
#: one node's devices are bits of a 64-bit word in the core
MAX_GPUS = 64

_FLAGS = {
    *("countonly", "one_sharing", "all_sharing", "explicit"),
    *("nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env", "no_gpu_env"),
}


def parse_count(text: str) -> int | None:
    """A number with a suffix K, M, G, T or P (powers of 1024); None if it is not one."""
    found = _COUNT.match(text)
    return int(found[1]) << _UNITS[found[2].lower()] if found else None


def split_items(text: str) -> list[str]:
    """Splits at the commas that do not stand in parentheses."""
    items, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def parse_item(item: str) -> GresCount | None:
    """name[:type][:no_consume][:count][(S:sockets)]; None if it is not one."""
    text, opening, rest = item.partition("(")
    sockets = ""
    if opening:
        found = re.fullmatch(r"S:([0-9,\-]+)\)", rest)
        if not found:
            return None
        sockets = found[1]
    name, *parts = text.split(":")
    count, no_consume, kind = 1, False, ""
    if parts and (number := parse_count(parts[-1])) is not None:
        count = number
        parts.pop()
    if parts and parts[-1].lower() == "no_consume":
        no_consume = True
        parts.pop()
    if parts:
        kind = parts.pop(0)
        if not _TYPE.match(kind):
            return None
    if parts or not _WORD.match(name):
        return None
    return GresCount(name=name, type=kind, count=count, no_consume=no_consume, sockets=sockets)


def node_gres(pair: Pair, known: Iterable[str]) -> tuple[GresCount, ...]:
    """The value of a node's Gres=; `known` is GresTypes."""
    if pair.value.lower() in {"", "(null)", "none"}:
        return ()
    found = []
    names = set(known)
    for text in split_items(pair.value):
        item = parse_item(text)
        if item is None:
            raise pair.bad(f'"{text}" is not name[:type]:count')
        if item.name not in names:
            raise pair.bad(f'"{item.name}" is not in GresTypes')
        found.append(item)
    if sum(item.count for item in found if item.name == "gpu") > MAX_GPUS:
        raise pair.bad(f"a node has at most {MAX_GPUS} GPUs")
    parts = [item for item in found if item.name in KINDS and item.count]
    gpus = sum(item.count for item in found if item.name == "gpu")
    if parts and not gpus:
        raise pair.bad(f'"{parts[0]}" is parts of GPUs, and the node has none')
    for name in KINDS:
        total = sum(item.count for item in parts if item.name == name)
        if total > MAX_PARTS * gpus:
            raise pair.bad(f"a GPU has at most {MAX_PARTS} parts")
    return tuple(found)


def _files(pair: Pair) -> tuple[str, ...]:
    try:
        files = hostlist.expand(pair.value)
    except hostlist.HostlistError as error:
        raise pair.bad(error.detail) from None
    if not files or len(files) > MAX_FILES or not all(name.startswith("/") for name in files):
        raise pair.bad(f"absolute paths, at most {MAX_FILES} of them, are expected")
    return tuple(files)


def parse_lines(
    lines: Iterable[Line], nodes: Iterable[str], known: Iterable[str]
) -> tuple[tuple[GresLine, ...], dict[str, str]]:
    """gres.conf: its lines, and the keys without effect (name -> file:line).

    Nodes that slurm.conf does not define are skipped, as Slurm does: one gres.conf often serves
    several clusters.
    """
    defined, names = set(nodes), set(known)
    found: list[GresLine] = []
    ignored: dict[str, str] = {}
    for line in lines:
        made = _one_line(line, defined, names, ignored)
        if made is not None:
            found.append(made)
    return tuple(found), ignored


def _one_line(
    line: Line, defined: set[str], known: set[str], ignored: dict[str, str]
) -> GresLine | None:
    pairs = {pair.name: pair for pair in line.pairs}
    first = line.first
    for each in line.pairs:
        if each.name in {"link", "ignore", "uniqueid"}:
            ignored[each.key] = f"{each.file}:{each.line}"
        elif each.name not in _KEYS:
            raise each.error(f'"{each.key}" is not a key of gres.conf')
    made = dict[str, object](file=first.file, line=first.line)
    if pair := pairs.get("nodename"):
        made["nodes"] = frozenset(values.hosts(pair)) & defined
        if not made["nodes"]:
            return None
    if pair := pairs.get("autodetect"):
        made["autodetect"] = _autodetect(pair)
    if pair := pairs.get("name"):
        if pair.value not in known:
            raise pair.bad("it is not in GresTypes")
        made["name"] = pair.value
    elif not pairs.get("autodetect"):
        raise first.error(f'"{first.key}={first.value}": the line has neither Name nor AutoDetect')
    if (pair := pairs.get("type")) and pair.value:
        if not _TYPE.match(pair.value):
            raise pair.bad("letters, digits, - and _ are expected")
        made["type"] = pair.value
    devices = _devices(pairs, made)
    if pair := pairs.get("cores", pairs.get("cpus")):
        made["cores"] = values.integers(pair)
    if pair := pairs.get("links"):
        if devices > 1:
            raise pair.bad("a line with Links describes one device")
        made["links"] = _links(pair)
    if pair := pairs.get("flags"):
        for word in values.words(pair):
            if word.lower() not in _FLAGS:
                raise pair.bad(f'"{word}" is not a flag')
        made["flags"] = tuple(word.lower() for word in values.words(pair))
    return GresLine(**made)  # type: ignore[arg-type]


def _devices(pairs: dict[str, Pair], made: dict[str, object]) -> int:
    """File, MultipleFiles and Count; how many devices the line stands for."""
    single, multiple = pairs.get("file"), pairs.get("multiplefiles")
    if single and multiple:
        raise multiple.error("File and MultipleFiles exclude each other")
    count = 1
    if single:
        made["files"] = _files(single)
        count = len(_files(single))
    if multiple:
        made["multiple_files"] = _files(multiple)
    made["count"] = count
    if pair := pairs.get("count"):
        given = parse_count(pair.value)
        if given is None:
            raise pair.bad("a number is expected")
        shared = made.get("name") in {"mps", "shard"}
        if single and given != count and not shared:
            raise pair.bad(f"File names {count} devices")
        made["count"] = given
    return count


def _links(pair: Pair) -> tuple[int, ...]:
    found = []
    for word in values.words(pair):
        if not re.fullmatch(r"-1|[0-9]{1,4}", word):
            raise pair.bad(f'"{word}" is not a number of links')
        found.append(int(word))
    return tuple(found)


def _autodetect(pair: Pair) -> str:
    word = values.choice(pair, "nvml", "off", "nvidia", "rsmi", "oneapi", "nrt", "full")
    if word in {"rsmi", "oneapi", "nrt"}:
        raise pair.bad("only nvml and off are supported")
    return "off" if word == "off" else "nvml"


_KEYS = {
    *("nodename", "name", "type", "file", "multiplefiles", "count", "cores", "cpus"),
    *("links", "flags", "autodetect"),
}
