"""Tables of sacctmgr: columns by name, with their headers and widths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from gsched_cli.columns import Column, Shown, delimited, table
from gsched_cli.stop import Stop

Row = TypeVar("Row")


class Field(NamedTuple, Generic[Row]):
    """A column of a listing."""

    #: what it may be called: the first letters of any are enough
    names: tuple[str, ...]
    header: str
    #: characters; negative: left justified
    width: int
    read: Callable[[Row], str]
    least: int = 2


class Look(NamedTuple):
    """How a listing is written."""

    header: bool = True
    #: "" a table, "p" and "P" between bars, with one at the end of a line or none
    parsable: str = ""


def chosen(
    form: str, fields: Sequence[Field[Row]], others: Sequence[Field[Row]] = ()
) -> list[Shown[Row]]:
    """The columns of a format; a width may follow (`name%20`, `name%-10`). `others` are those that
    are meant where none of `fields` is. Stop for a name that there is not."""
    shown: list[Shown[Row]] = []
    for item in form.split(","):
        name, percent, size = item.strip().partition("%")
        if not name:
            continue
        field = _find(name, fields) or _find(name, others)
        if field is None:
            raise Stop(1, f"Unknown field '{name}'\n")
        width = field.width
        if percent:
            digits = size.lstrip("-")
            width = int(digits) if digits.isdigit() and len(digits) < 6 else field.width
            width = -width if size.startswith("-") else width
        shown.append(Shown(Column(field.header, width, field.read), width))
    return shown


def _find(name: str, fields: Sequence[Field[Row]]) -> Field[Row] | None:
    low = name.lower()
    for field in fields:
        if any(low == one.lower() for one in field.names):
            return field
    for field in fields:
        if len(low) >= field.least and any(one.lower().startswith(low) for one in field.names):
            return field
    return None


def written(shown: Sequence[Shown[Row]], rows: Iterable[Row], look: Look) -> str:
    """The listing."""
    columns = list(shown)
    if look.parsable:
        lines = delimited(columns, rows, look.header, "|", last=look.parsable == "p")
    else:
        lines = table(columns, rows, look.header)
    return "".join(lines)
