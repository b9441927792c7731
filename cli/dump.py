"""`--json` and `--yaml`: records as Slurm's data parser lays them out.

A table of a record kind is a nested dict whose leaves are constants, `Read`, `Num`, `Made`, `Many`,
`Maybe` and `Plain`. It is compiled once into a text with gaps, and what was written once is kept,
so that a record costs little more than reading its values: ten thousand jobs are eighty megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gsched_cli.common import SLURM_VERSION, Reader
from gsched_cli.stop import Stop, cluster_config

#: the one layout there is, that of Slurm 26.05
DATA_PARSER = "v0.0.45"
#: a number without an upper end, where `Num` reads one
INFINITE = float("inf")
#: texts that are kept of one field
_MOST_KEPT = 20_000
_TYPES = {"json": "application/json", "yaml": "application/x-yaml"}

Shape = Any


class Read(NamedTuple):
    """A leaf: text, a number, true or false, or a tuple of these, read from the record."""

    read: Callable[[Any], Hashable]


class Num(NamedTuple):
    """A leaf that is Slurm's {"set", "infinite", "number"}: None is not set."""

    read: Callable[[Any], float | None]


class Made(NamedTuple):
    """A leaf that is made of a key, the same of equal ones."""

    read: Callable[[Any], Hashable]
    make: Callable[[Any], object]


class Plain(NamedTuple):
    """A leaf: any value that JSON has."""

    read: Callable[[Any], object]


class Many(NamedTuple):
    """A leaf that is a list of records of another table."""

    read: Callable[[Any], Sequence[Any]]
    shape: Any


class Maybe(NamedTuple):
    """A leaf that is a record of another table, or null where None is read."""

    read: Callable[[Any], Any]
    shape: Any


class Rendered(NamedTuple):
    """Text that is in its form already."""

    text: str


def number(value: float | None) -> dict[str, object]:
    """Slurm's way to say that a number may be missing, or infinite."""
    if value == INFINITE:
        return {"set": False, "infinite": True, "number": 0}
    return {"set": value is not None, "infinite": False, "number": 0 if value is None else value}


class _Kept(dict[Any, str]):
    """What was written of values, which are its keys."""

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[Any], str]) -> None:
        self._write = write

    def __missing__(self, value: Hashable) -> str:
        if len(self) > _MOST_KEPT:
            self.clear()
        text = self[value] = self._write(value)
        return text


class _Anew:
    """The same of values that are no keys."""

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[Any], str]) -> None:
        self._write = write

    def __getitem__(self, value: object) -> str:
        return self._write(value)


#: what is read of a record, and what writes it
_Gap = tuple[Callable[[Any], Any], "_Kept | _Anew"]


class Form:
    """How values are written: pretty JSON, as Slurm indents it."""

    name = "json"
    #: of the outermost mapping
    top = 0
    #: how much deeper than the key the items of a list are
    deeper = 1

    def value(self, value: object, depth: int) -> str:
        """Any value of a key that stands at this depth."""
        # Most are numbers and texts: these two are told from the rest with the least effort.
        kind = type(value)
        if kind is int:
            return self.scalar(value)
        if kind is str or isinstance(value, str):
            return self._text(value)
        if isinstance(value, Rendered):
            return value.text
        if isinstance(value, Mapping):
            items = [(key, self.value(each, depth + 1)) for key, each in value.items()]
            return self.mapping(items, depth)
        if isinstance(value, list | tuple):
            within = depth + self.deeper
            return self.sequence([self.value(each, within) for each in value], depth)
        return self.scalar(value)

    def compile(self, shape: Shape) -> Callable[[Any], str]:
        """What writes a record of a list that the outermost mapping holds."""
        return self._compiled(shape, self.top + 1 + self.deeper)

    def _compiled(self, shape: Shape, depth: int) -> Callable[[Any], str]:
        gaps: list[_Gap] = []
        template = self._gaps(shape, depth, gaps)

        def write(record: Any) -> str:
            return template % tuple([texts[read(record)] for read, texts in gaps])

        return write

    def _gaps(self, shape: Shape, depth: int, gaps: list[_Gap]) -> str:
        value = self.value
        if isinstance(shape, Mapping):
            items = [(key, self._gaps(each, depth + 1, gaps)) for key, each in shape.items()]
            return self.mapping(items, depth)
        if isinstance(shape, Read):
            gaps.append((shape.read, _Kept(lambda each: value(each, depth))))
        elif isinstance(shape, Num):
            some = value(number(0) | {"number": Rendered("%s")}, depth).split("%s")
            gaps.append((shape.read, _Kept(lambda each: self._number(each, some, depth))))
        elif isinstance(shape, Made):
            make = shape.make
            gaps.append((shape.read, _Kept(lambda key: value(make(key), depth))))
        elif isinstance(shape, Many):
            write = self._compiled(shape.shape, depth + self.deeper)
            list_ = self.sequence
            gaps.append((shape.read, _Anew(lambda some: list_([write(x) for x in some], depth))))
        elif isinstance(shape, Maybe):
            one, null = self._compiled(shape.shape, depth), self.scalar(None)
            gaps.append((shape.read, _Anew(lambda x: null if x is None else one(x))))
        elif isinstance(shape, Plain):
            gaps.append((shape.read, _Anew(lambda each: value(each, depth))))
        else:
            return value(shape, depth).replace("%", "%%")
        return "%s"

    def _number(self, value: float | None, around: Sequence[str], depth: int) -> str:
        """A `Num`; `around` is what stands before and after a number that is set."""
        if value is None or value == INFINITE:
            return self.value(number(value), depth)
        return f"{around[0]}{self.scalar(value)}{around[1]}"

    def whole(self, data: Mapping[str, object]) -> str:
        """The document."""
        return self.value(data, self.top) + "\n"

    # ---- of this form ----------------------------------------------------------------------

    def _text(self, value: str) -> str:
        # Slurm escapes slashes.
        if not value.isascii():
            value = value.encode("utf-8", "replace").decode()
        return msgspec.json.encode(value).decode().replace("/", "\\/")

    def scalar(self, value: object) -> str:
        """Numbers, true and false, null."""
        if type(value) is int:
            return str(value)
        return msgspec.json.encode(value).decode()

    def mapping(self, items: Sequence[tuple[str, str]], depth: int) -> str:
        """Keys, which stand one deeper, and their written values."""
        pad = "  " * depth
        lines = ",\n".join(f'{pad}  "{key}": {value}' for key, value in items)
        return f"{{\n{lines}\n{pad}}}" if items else f"{{\n{pad}}}"

    def sequence(self, items: Sequence[str], depth: int) -> str:
        """Written items."""
        pad = "  " * depth
        lines = ",\n".join(f"{pad}  {item}" for item in items)
        return f"[\n{lines}\n{pad}]" if items else f"[\n{pad}]"


class Compact(Form):
    """JSON in as few bytes as it takes (SLURM_JSON=compact)."""

    def mapping(self, items: Sequence[tuple[str, str]], depth: int) -> str:
        return "{" + ",".join(f'"{key}":{value}' for key, value in items) + "}"

    def sequence(self, items: Sequence[str], depth: int) -> str:
        return "[" + ",".join(items) + "]"


class Yaml(Form):
    """YAML 1.1, with the tags that Slurm writes."""

    name = "yaml"
    top = -1
    deeper = 0

    def _text(self, value: str) -> str:
        if not value:
            return "!!str"
        if value[0].isalnum() and value.isascii() and _PLAIN.issuperset(value):
            return f"!!str {value}"
        # A string of JSON is one of YAML too.
        data = msgspec.json.encode(value.encode("utf-8", "replace").decode()).decode()
        return f"!!str {data}"

    def scalar(self, value: object) -> str:
        if value is None:
            return "!!null null"
        if isinstance(value, bool):
            return "!!bool true" if value else "!!bool false"
        return f"!!{'float' if isinstance(value, float) else 'int'} {value}"

    def mapping(self, items: Sequence[tuple[str, str]], depth: int) -> str:
        pad = "  " * (depth + 1)
        lines = "".join(f"\n{pad}!!str {key}: {value}" for key, value in items)
        return f"!!map{lines}" if items else "!!map {}"

    def sequence(self, items: Sequence[str], depth: int) -> str:
        pad = "  " * depth
        return "!!seq" + "".join(f"\n{pad}- {item}" for item in items) if items else "!!seq []"

    def whole(self, data: Mapping[str, object]) -> str:
        return f"%YAML 1.1\n--- {self.value(data, self.top)}\n"


#: characters of a string that needs no quotes in YAML, where its tag says that it is one
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=@()[]%")


def form(kind: str, env: Mapping[str, str]) -> Form:
    """The form for "json" or "yaml", as SLURM_JSON wants it."""
    if kind == "yaml":
        return Yaml()
    return Compact() if env.get("SLURM_JSON", "").lower() == "compact" else Form()


def asked(kind: str, value: str | None, name: str) -> str:
    """What --json or --yaml asks for, given its value: `kind`. Raises Stop for `list`, which names
    the layouts there are, and for a layout that is not there."""
    layout = (value or DATA_PARSER).partition("+")[0].removeprefix("data_parser/")
    if layout.lower() == "list":
        raise Stop(0, f"Possible data_parser plugins:\ndata_parser/{DATA_PARSER}\n")
    if layout != DATA_PARSER:
        raise Stop(1, f"{name}: error: {_TYPES[kind]} output not supported by {value}\n")
    return kind


class Asked:
    """What was asked for, and by which command: "json" or "yaml"."""

    def __init__(
        self, kind: str, name: str, argv: Sequence[str], env: Mapping[str, str], reader: Reader
    ) -> None:
        self.form = form(kind, env)
        self.name = name
        self.argv = argv
        self.env = env
        self.reader = reader
        #: whether a layout was named: who does so knows what is in it
        self.layout_named = any(re.match(r"--(js?o?n?|ya?m?l?)=", word) for word in argv)
        #: Stop where it is bad
        self.config = cluster_config(reader, name)

    def records(self, shape: Shape, found: Iterable[object]) -> list[Rendered]:
        """Records by their table, for document()."""
        write = self.form.compile(shape)
        return [Rendered(write(record)) for record in found]

    def document(self, **parts: object) -> str:
        """The whole output: the parts, and what Slurm says with every answer. Raises Stop if nobody
        answers."""
        meta = _meta(self.name, self.argv, self.reader)
        return self.form.whole(parts | {"meta": meta, "errors": [], "warnings": []})


def _meta(name: str, argv: Sequence[str], reader: Reader) -> dict[str, object]:
    from gsched.client import ControllerDown
    from gsched_cli.process import group_name, user_name

    major, minor, micro = SLURM_VERSION.split(".")
    try:
        cluster = reader.status().cluster_name
    except ControllerDown:
        cluster = reader.settings().cluster_name
    return {
        "plugin": {
            "type": "",
            "name": "",
            "data_parser": f"data_parser/{DATA_PARSER}",
            "accounting_storage": reader.settings().accounting_storage_type,
        },
        "client": {
            "source": "",
            "user": user_name(reader.uid),
            "group": group_name(reader.gid),
        },
        "command": [name, *argv],
        "slurm": {
            "version": {"major": major, "micro": micro, "minor": minor},
            "release": SLURM_VERSION,
            "cluster": cluster,
        },
    }


def wait_status(wstatus: int) -> dict[str, object]:
    """How something ended: a wait status."""
    import signal

    code, number_ = wstatus >> 8 & 0xFF, wstatus & 0x7F
    try:
        word = signal.Signals(number_).name.removeprefix("SIG") if number_ else ""
    except ValueError:
        word = ""
    status = "SIGNALED" if number_ else "ERROR" if code else "SUCCESS"
    return {
        "status": [status],
        "return_code": number(code),
        "signal": {"id": number(number_ or None), "name": word},
    }
