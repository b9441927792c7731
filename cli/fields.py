"""Columns of output: one table of fields per object, two grammars that choose from it, one printer.

A table is a list of Field. `-o` names fields by letter (`%[[.]size]type[suffix]`), `-O` by long
name (`type[:[.][size][suffix]]`); both end up as a Format, which renders header and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

View = TypeVar("View")

#: width of a column named by -O without a size
LONG_WIDTH = 20


class Field(NamedTuple, Generic[View]):
    """One thing that can be shown of an object."""

    #: letter for -o and -S; "" none
    letter: str
    #: names for -O in Slurm's spelling, the first one is the one listed by --helpFormat
    names: tuple[str, ...]
    header: str
    #: the cell's text
    read: Callable[[View], str]
    #: what -S compares; None: the cell's text
    key: Callable[[View], object] | None = None

    def order(self, view: View) -> object:
        """Sort key of one object."""
        return self.read(view) if self.key is None else self.key(view)


class Column(NamedTuple, Generic[View]):
    """A field as asked for. Without a field it is literal text."""

    field: Field[View] | None
    width: int
    right: bool
    suffix: str


class Table(Generic[View]):
    """The fields of one kind of object, by letter and by name (case does not matter in names)."""

    def __init__(self, fields: Iterable[Field[View]], unnamed: str = "") -> None:
        self.fields = list(fields)
        self.letters = {field.letter: field for field in self.fields if field.letter}
        self.names = {name.lower(): field for field in self.fields for name in field.names}
        #: name of the field that "%5" (a size without a type) shows: an accident of Slurm's, kept
        self.unnamed = unnamed

    def help_names(self, width: int = 20) -> str:
        """--helpFormat: the listed names in four columns."""
        listed = [field.names[0] for field in self.fields if field.names]
        listed.sort(key=str.lower)
        rows = [listed[at : at + 4] for at in range(0, len(listed), 4)]
        return "".join("".join(f"{name:<{width}}" for name in row) + "\n" for row in rows)


class Format(Generic[View]):
    """A parsed format: what to print in a line."""

    def __init__(self, prefix: str, columns: list[Column[View]], bad: list[str]) -> None:
        self.prefix = prefix
        self.columns = columns
        #: types that no field has, for the error messages
        self.bad = bad
        #: what is shown, in the order of the line, and what each field reads of an object
        self.fields = [column.field for column in columns if column.field is not None]
        self.reads = [field.read for field in self.fields]
        parts = [prefix.replace("%", "%%")]
        for column in columns:
            if column.field is not None:
                sign, width = "" if column.right else "-", column.width
                # Cut and padded to exactly so many characters; 0 leaves a text alone.
                parts.append(f"%{sign}{width}.{width}s" if width else "%s")
            parts.append(column.suffix.replace("%", "%%"))
        #: of a line with its end, to be filled with what the fields say
        self.pattern = "".join(parts) + "\n"

    def uses(self, *names: str) -> bool:
        """Whether one of the fields (by first long name) is shown."""
        return any(
            column.field is not None and column.field.names[0] in names for column in self.columns
        )

    def header(self) -> str:
        """The header line with its line end."""
        return self.joined([field.header for field in self.fields])

    def row(self, view: View) -> str:
        """The line of one object with its line end."""
        return self.joined([read(view) for read in self.reads])

    def joined(self, texts: Iterable[str]) -> str:
        """The line of what the fields say, with its line end."""
        return self.pattern % tuple(texts)


def parse_short(text: str, table: Table[View]) -> Format[View]:
    """Reads an -o format. Never fails: what it does not know is printed as it stands, and named
    in `bad`."""
    if text.startswith("%all") or text == "all":
        text = "|".join(f"%{letter}" for letter in table.letters)
    # Runs of % count as one: "%%i" is "%i".
    pieces = text.split("%")
    columns: list[Column[View]] = []
    bad: list[str] = []
    for piece in pieces[1:]:
        if not piece:
            continue
        right, width, rest = _size(piece)
        letter, suffix = rest[:1], rest[1:]
        field = table.letters.get(letter) if letter else table.names.get(table.unnamed.lower())
        if field is None:
            columns.append(Column(None, 0, False, f"%{piece}"))
            bad.append(letter)
        else:
            columns.append(Column(field, width, right, suffix))
    return Format(pieces[0], columns, bad)


def parse_long(text: str, table: Table[View]) -> Format[View]:
    """Reads an -O format. Never fails; fields that do not exist are left out and named in
    `bad`."""
    columns: list[Column[View]] = []
    bad: list[str] = []
    for item in text.split(","):
        if not item:
            continue
        name, colon, spec = item.partition(":")
        if name.lower() == "all":
            columns += [Column(field, 0, False, "|") for field in table.fields]
            continue
        field = table.names.get(name.lower())
        if field is None:
            bad.append(name)
            continue
        right, width, suffix = _size(spec) if colon else (False, LONG_WIDTH, "")
        columns.append(Column(field, width, right, suffix))
    return Format("", columns, bad)


def _size(text: str) -> tuple[bool, int, str]:
    """Splits "[.][size]rest" into (right, size, rest)."""
    right = text.startswith(".")
    rest = text[1:] if right else text
    digits = 0
    while digits < len(rest) and rest[digits] in "0123456789":
        digits += 1
    # A width beyond any terminal would only serve to exhaust memory.
    width = min(int(rest[: min(digits, 9)] or "0"), 100_000)
    return right, width, rest[digits:]


def sort_views(
    views: list[View],
    spec: str,
    table: Table[View],
    special: Mapping[str, Field[View]] | None = None,
) -> None:
    """Sorts in place by an -S list ("P,t,-p"; "+" and "-" say which way); stable. `special`: see
    `sort_fields`."""
    for field, down in reversed(sort_fields(spec, table, special)):
        views.sort(key=field.order, reverse=down)  # type: ignore[arg-type]


def sort_fields(
    spec: str, table: Table[View], special: Mapping[str, Field[View]] | None = None
) -> list[tuple[Field[View], bool]]:
    """The fields of an -S list, and whether the largest comes first; the first one weighs most.
    Letters that do not exist are skipped, as Slurm does. `special` overrides fields by name
    ("#P")."""
    found: list[tuple[Field[View], bool]] = []
    for item in spec.split(","):
        down = False
        name = item.strip()
        while name[:1] in ("+", "-") and name:
            down = name[0] == "-"
            name = name[1:]
        if not name:
            continue
        if special and name in special:
            found.append((special[name], down))
            continue
        field = table.letters.get(name[0]) or table.names.get(name.lower())
        if field is not None:
            found.append((field, down))
    return found
