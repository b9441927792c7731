"""Tables as accounting's commands print them: columns by name, with a width, cut where they do not
fit, or between delimiters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

Row = TypeVar("Row")
#: it is cut, its last character a +; numbers and durations stay; a time merely ends, also between
#: delimiters
CUT, WHOLE, ENDS = "cut", "whole", "ends"


class Column(NamedTuple, Generic[Row]):
    """One field that can be asked for."""

    name: str
    #: characters; negative: left justified
    width: int
    read: Callable[[Row], str]
    #: what becomes of a text that is too long: CUT, WHOLE or ENDS
    fit: str = CUT


class Shown(NamedTuple, Generic[Row]):
    """A column as asked for."""

    column: Column[Row]
    width: int
    #: the width was asked for
    given: bool = False


class BadField(Exception):
    """No column has that name; the text is the name as given."""


def parse_format(
    text: str, columns: Sequence[Column[Row]], *, everything: bool = True
) -> list[Shown[Row]]:
    """Reads a --format list (`name[%[-]width]`, separated by commas); a name may be cut short to
    any beginning, the first that fits is meant. `everything`: "all" (or "a") stands for all. Raises
    BadField."""
    shown: list[Shown[Row]] = []
    for item in text.split(","):
        name, percent, size = item.strip().partition("%")
        if not name:
            continue
        low = name.lower()
        if everything and "all".startswith(low):
            shown += [Shown(column, column.width) for column in columns]
            continue
        column = next((one for one in columns if one.name.lower() == low), None) or next(
            (one for one in columns if one.name.lower().startswith(low)), None
        )
        if column is None:
            raise BadField(name)
        width = _width(size) if percent else column.width
        shown.append(Shown(column, width, bool(percent)))
    return shown


def _width(text: str) -> int:
    """As C's atoi has it: what is no number is 0."""
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("-")
    count = 0
    while count < min(len(digits), 6) and digits[count] in "0123456789":
        count += 1
    return sign * int(digits[:count] or "0")


def table(shown: list[Shown[Row]], rows: Iterable[Row], header: bool) -> Iterator[str]:
    """The lines of a table: what does not fit is cut, its last character a +."""
    if header:
        yield "".join(_cell(one.column.name[: abs(one.width)], one.width) for one in shown) + "\n"
        yield "".join("-" * abs(one.width) + " " for one in shown) + "\n"
    for row in rows:
        yield (
            "".join(_cell(one.column.read(row), one.width, one.column.fit) for one in shown) + "\n"
        )


def delimited(
    shown: list[Shown[Row]], rows: Iterable[Row], header: bool, delimiter: str, *, last: bool
) -> Iterator[str]:
    """Lines of whole fields with a delimiter between them, with `last` one behind the last too."""
    end = f"{delimiter}\n" if last else "\n"
    if header:
        yield delimiter.join(one.column.name for one in shown) + end
    sizes = [abs(one.width) if one.column.fit == ENDS else None for one in shown]
    for row in rows:
        texts = [one.column.read(row)[:size] for one, size in zip(shown, sizes, strict=True)]
        yield delimiter.join(texts) + end


def _cell(text: str, width: int, fit: str = CUT) -> str:
    size = abs(width)
    if fit == ENDS:
        text = text[:size]
    elif fit == CUT and len(text) > size:
        text = text[: size - 1] + "+" if size else ""
    return (text.ljust(size) if width < 0 else text.rjust(size)) + " "


def help_names(columns: Sequence[Column[Row]]) -> str:
    """--helpformat: all names in four columns."""
    names = [column.name for column in columns]
    rows = [names[at : at + 4] for at in range(0, len(names), 4)]
    return "".join(" ".join(f"{name:<19}" for name in row) + "\n" for row in rows)
