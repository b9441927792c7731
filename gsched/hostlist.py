"""Host lists: ``node[1-3,07],login`` to names and back, as `scontrol show hostnames` does it.

Order and duplicates are kept in both directions. Expansion also takes what Slurm refuses but
people write: text after a bracket (``gpu[1-4]-ib``). Compression folds the trailing number of a
name only, as Slurm does: ``a1b1,a1b2`` is ``a1b[1-2]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: largest number of names one range may stand for, as in Slurm
MAX_RANGE = 65536
#: largest number of names a whole list may stand for
MAX_HOSTS = 1 << 18

_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})\Z", re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?\Z", re.ASCII)
_SEPARATORS = ", \t\r\n"


class HostlistError(ValueError):
    """A host list that cannot be read. `str()` is Slurm's "Invalid hostlist: ..." sentence;
    `detail` says what is wrong with it, in the words Slurm logs before it ("" where it has none).
    """

    def __init__(self, text: str, detail: str = "") -> None:
        super().__init__(f"Invalid hostlist: {text}")
        self.text = text
        self.detail = detail


def expand(text: str) -> list[str]:
    """The names a host list stands for, in order, duplicates kept.

    Items are separated by commas or blanks; empty items are skipped, so "" gives []. Several
    brackets multiply, the last one running fastest; leading zeros of a range's first number give
    its width. Raises HostlistError. Cost: one string per name.
    """
    names: list[str] = []
    for item in _items(text):
        if "[" not in item:
            names.append(item)
        else:
            names.extend(_expand_item(text, item, MAX_HOSTS - len(names)))
        if len(names) > MAX_HOSTS:
            raise HostlistError(text, f"more than {MAX_HOSTS} hosts")
    return names


def count(text: str) -> int:
    """How many names `expand` gives."""
    return len(expand(text))


def _items(text: str) -> Iterator[str]:
    """Splits at separators outside brackets; refuses brackets that do not pair."""
    start, inside = 0, False
    for place, char in enumerate(text):
        if char == "[":
            if inside:
                raise HostlistError(text, f"bracket inside a bracket in `{text[start:]}'")
            inside = True
        elif char == "]":
            if not inside:
                raise HostlistError(text, f"`]' without `[' in `{text[start : place + 1]}'")
            inside = False
        elif char in _SEPARATORS and not inside:
            if place > start:
                yield text[start:place]
            start = place + 1
    if inside:
        raise HostlistError(text, f"`[' without `]' in `{text[start:]}'")
    if len(text) > start:
        yield text[start:]


def _expand_item(text: str, item: str, room: int) -> list[str]:
    names = [""]
    for piece in re.split(r"(\[[^\]]*\])", item):
        if not piece.startswith("["):
            names = [name + piece for name in names]
            continue
        numbers = [n for part in piece[1:-1].split(",") for n in _range(text, part.strip())]
        if len(names) * len(numbers) > room:
            raise HostlistError(text, f"more than {MAX_HOSTS} hosts in `{item}'")
        names = [name + number for name in names for number in numbers]
    return names


def _range(text: str, part: str) -> list[str]:
    found = _RANGE.match(part)
    if not found:
        raise HostlistError(text, f"_parse_single_range: Invalid range: `{part}'")
    low, high = found[1], found[2] or found[1]
    first, last = int(low), int(high)
    if last < first:
        raise HostlistError(text, f"_parse_single_range: Invalid range: `{part}'")
    if last - first >= MAX_RANGE:
        raise HostlistError(text, f"_parse_single_range: Too many hosts in range `{part}'")
    width = len(low)
    return [f"{number:0{width}d}" for number in range(first, last + 1)]


def split_number(name: str) -> tuple[str, str]:
    """A name's text before its trailing digits, and these digits ("" where it has none)."""
    found = _NUMBERED.match(name)
    return (found[1], found[2]) if found else (name, "")


def compress(names: Iterable[str]) -> str:
    """The shortest host list that Slurm would print for these names, in their order.

    Neighbours with the same text before their trailing number share a bracket, consecutive
    numbers of a fitting width a range: n1,n2,n4,x01,x02 is ``n[1-2,4],x[01-02]``. Duplicates
    stay: n1,n2,n1 is ``n[1-2,1]``. Cost: linear.
    """
    out: list[str] = []
    prefix: str | None = None
    ranges: list[list[str]] = []

    def flush() -> None:
        if not ranges:
            return
        parts = [low if low == high else f"{low}-{high}" for low, high in ranges]
        inner = ",".join(parts)
        single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        out.append(f"{prefix}{inner}" if single else f"{prefix}[{inner}]")
        ranges.clear()

    for name in names:
        text, digits = split_number(name)
        if not digits:
            flush()
            prefix = None
            out.append(name)
            continue
        if text != prefix:
            flush()
            prefix = text
        if ranges:
            low, high = ranges[-1]
            following = int(high) + 1
            # The width of a range is its first number's: 9,10 fits, 009,10 does not.
            if digits == f"{following:0{len(low)}d}" and following - int(low) < MAX_RANGE:
                ranges[-1][1] = digits
                continue
        ranges.append([digits, digits])
    flush()
    return ",".join(out)


def sort_key(name: str) -> tuple[list[tuple[str, int]], int, int]:
    """Slurm's order of host names: text (numbers inside it count as numbers), width, number."""
    text, digits = split_number(name)
    pieces = re.split(r"([0-9]+)", text)
    chunks = [
        (pieces[at], int(pieces[at + 1]) if at + 1 < len(pieces) else -1)
        for at in range(0, len(pieces), 2)
    ]
    return chunks, len(digits), int(digits) if digits else -1


def compress_sorted(names: Iterable[str]) -> str:
    """As `compress`, in the order of `scontrol show hostlistsorted`; duplicates stay."""
    return compress(sorted(names, key=sort_key))
