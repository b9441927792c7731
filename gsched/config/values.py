"""The kinds of values in configuration files; each function raises the Pair's error."""

from __future__ import annotations

import re

from gsched import hostlist, units
from gsched.config.lexer import Pair

_NUMBER = re.compile(r"-?[0-9]{1,15}\Z")
_FLOAT = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?%?\Z")
_WITHOUT_LIMIT = {"unlimited", "infinite", "none"}

_DEBUG_LEVELS = (
    *("quiet", "fatal", "error", "info", "verbose"),
    *("debug", "debug2", "debug3", "debug4", "debug5"),
)


def number(pair: Pair, low: int = 0, high: int = (1 << 32) - 2) -> int:
    """A plain integer within bounds."""
    if not _NUMBER.match(pair.value):
        raise pair.bad("a number is expected")
    value = int(pair.value)
    if not low <= value <= high:
        raise pair.bad(f"it must lie between {low} and {high}")
    return value


def limit(pair: Pair, low: int = 0) -> int | None:
    """A number, or None for UNLIMITED, INFINITE and -1."""
    if pair.value.lower() in _WITHOUT_LIMIT or pair.value == "-1":
        return None
    return number(pair, low)


def percent(pair: Pair) -> float:
    """A number with or without fraction and percent sign."""
    if not _FLOAT.match(pair.value):
        raise pair.bad("a percentage is expected")
    return float(pair.value.rstrip("%"))


def yes_no(pair: Pair) -> bool:
    """YES, NO, TRUE, FALSE, 1 or 0."""
    word = pair.value.lower()
    if word in {"yes", "true", "1", "y", "t"}:
        return True
    if word in {"no", "false", "0", "n", "f"}:
        return False
    raise pair.bad("YES or NO is expected")


def words(pair: Pair) -> tuple[str, ...]:
    """A comma-separated list; (null) and "" are empty."""
    if pair.value.lower() == "(null)":
        return ()
    return tuple(word.strip() for word in pair.value.split(",") if word.strip())


def choice(pair: Pair, *allowed: str) -> str:
    """One of the words, in any case; given back as in `allowed`."""
    for word in allowed:
        if pair.value.lower() == word.lower():
            return word
    raise pair.bad(f"one of {', '.join(allowed)} is expected")


def time_limit(pair: Pair) -> int:
    """A time limit in seconds, whole minutes; 0 unlimited."""
    try:
        return units.parse_time_limit(pair.value)
    except units.UnitError:
        raise pair.bad("minutes, h:m:s or d-h:m:s is expected") from None


def duration(pair: Pair) -> int | None:
    """A duration written like a time limit, not rounded; None unlimited."""
    try:
        return units.parse_duration(pair.value)
    except units.UnitError:
        raise pair.bad("minutes, h:m:s or d-h:m:s is expected") from None


def memory(pair: Pair) -> int:
    """A size in MB."""
    try:
        return units.parse_memory(pair.value)
    except units.UnitError:
        raise pair.bad("a size in MB is expected") from None


def memory_limit(pair: Pair) -> int | None:
    """A size in MB; None for 0, UNLIMITED and INFINITE."""
    if pair.value.lower() in _WITHOUT_LIMIT:
        return None
    return memory(pair) or None


def hosts(pair: Pair) -> list[str]:
    """A host list, expanded."""
    try:
        return hostlist.expand(pair.value)
    except hostlist.HostlistError as error:
        raise pair.bad(error.detail) from None


def debug_level(pair: Pair) -> str:
    """A level by name or number."""
    if pair.value.isascii() and pair.value.isdigit() and len(pair.value) == 1:
        return _DEBUG_LEVELS[int(pair.value)]
    if pair.value.lower() == "debug1":
        return "debug"
    return choice(pair, *_DEBUG_LEVELS)


def port(pair: Pair) -> int:
    """The first of a port or a range of ports."""
    first, dash, last = pair.value.partition("-")
    for text in (first, last) if dash else (first,):
        if not _NUMBER.match(text) or not 0 < int(text) < 65536:
            raise pair.bad("a port number is expected")
    return int(first)


def integers(pair: Pair) -> tuple[int, ...]:
    """A list of numbers and ranges: "0,2-4"; ranges of at most 4096."""
    found: list[int] = []
    for item in words(pair):
        match = re.match(r"(-?[0-9]{1,6})(?:-([0-9]{1,6}))?\Z", item)
        if not match:
            raise pair.bad(f'"{item}" is not a number')
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high - low > 4096:
            raise pair.bad(f'"{item}" is not a range')
        found.extend(range(low, high + 1))
        if len(found) > 65536:
            raise pair.bad("too many numbers")
    return tuple(found)
