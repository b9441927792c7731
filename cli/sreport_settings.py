"""What sreport's reports have in common: units of time, conditions, the window, lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gsched import tres
from gsched.hostlist import HostlistError, expand
from gsched.units import UnitError, format_time_point, parse_time_point
from gsched.wire.report import ReportQuery, ReportRows
from gsched_cli.columns import BadField, Column, Shown, delimited, parse_format, table
from gsched_cli.common import Reader, Streams
from gsched_cli.stop import Stop

LINE = "-" * 80 + "\n"
HOUR = 3600
T = TypeVar("T")


@dataclass(frozen=True)
class Unit:
    """How usage is written."""

    title: str
    #: seconds; 0: only the share
    seconds: int
    percent: bool = False


UNITS = {
    "SecPer": Unit("Seconds/Percentage of Total", 1, True),
    "MinPer": Unit("Minutes/Percentage of Total", 60, True),
    "HourPer": Unit("Hours/Percentage of Total", HOUR, True),
    "Seconds": Unit("Seconds", 1),
    "Minutes": Unit("Minutes", 60),
    "Hours": Unit("Hours", HOUR),
    "Percent": Unit("Percentage of Total", 0, True),
}


def unit_named(text: str) -> str | None:
    """The unit that a word, cut short or not, means. None: none."""
    low = text.lower()
    if not low:
        return None
    for name in ("SecPer", "MinPer", "HourPer"):
        if low == name.lower():
            return name
    return next(
        (
            name
            for name in ("Seconds", "Minutes", "Hours", "Percent")
            if name.lower().startswith(low)
        ),
        None,
    ) or next((name for name in UNITS if name.lower().startswith(low)), None)


class BadCondition(Exception):
    """A condition that is not understood; the text is Slurm's sentence."""


class Settings:
    """What the options say, for all reports of one run."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.header = True
        #: "" a table, "p" or "P": |
        self.parsable = ""
        self.quiet = False
        self.unit = UNITS["Minutes"]
        #: as given; []: not given
        self.tres = [w for w in env.get("SREPORT_TRES", "").split(",") if w]
        self.all_clusters = False
        self.clusters = [w for w in env.get("SREPORT_CLUSTER", "").split(",") if w]


@dataclass
class Conditions:
    """The words after a report's name."""

    start: int = 0
    end: int = 0
    format: str = ""
    clusters: list[str] = field(default_factory=list)
    only: dict[str, list[str]] = field(default_factory=dict)
    #: words that stand alone: "tree", "group", "flatview", "acctasparent", "printjobcount"
    flags: set[str] = field(default_factory=set)
    grouping: str = ""
    top: int = 10


#: name of a condition, from which it may be cut short -> key of ReportQuery.only
_LISTS = {
    "accounts": "accounts",
    "users": "users",
    "wckeys": "wckeys",
    "gid": "gids",
    "jobs": "ids",
    "partitions": "partitions",
    "nodes": "nodes",
    "names": "names",
}
_FLAGS = ("tree", "group", "flatview", "acctasparent", "printjobcount", "all_clusters")


def conditions(words: Sequence[str], known: Iterable[str], now: int, err: Any) -> Conditions:
    """Reads KEY=value words and flags; `known` are the lists and flags that this report has.
    Raises BadCondition."""
    found = Conditions()
    known = set(known)
    start = end = ""
    for word in words:
        key, equals, value = word.partition("=")
        low = key.lower()
        if not equals:
            name = _first(low, (*(f for f in _FLAGS if f in known), "all_clusters"))
            if name is None:
                raise BadCondition(f" Unknown condition: {word}")
            found.flags.add(name)
            continue
        if not value:
            raise BadCondition(f" Unknown condition: {word}")
        name = _first(
            low,
            ("start", "end", "format", "clusters", "all_clusters", *_LISTS, "grouping", "topcount"),
        )
        if name == "start":
            start = value
        elif name == "end":
            end = value
        elif name == "format":
            found.format += ("," if found.format else "") + value
        elif name == "clusters":
            found.clusters += [item for item in value.split(",") if item]
        elif name == "grouping" and "grouping" in known:
            found.grouping = value
        elif name == "topcount" and "topcount" in known:
            if not (value.isascii() and value.isdigit()):
                raise BadCondition(f" Bad topcount: {value}")
            found.top = int(value)
        elif name in _LISTS and name in known:
            found.only.setdefault(_LISTS[name], []).extend(_items(name, value))
        else:
            raise BadCondition(f" Unknown condition: {word}\nUse keyword set to modify value")
    found.start, found.end = window(start, end, now, err)
    return found


def _items(name: str, value: str) -> list[str]:
    if name == "nodes":
        try:
            return expand(value)
        except HostlistError:
            raise BadCondition(f" Bad node list: {value}") from None
    items = [item.strip() for item in value.split(",") if item.strip()]
    if name == "jobs":
        return [item.partition(".")[0] for item in items]
    return items


def _first(text: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if text and name.startswith(text)), None)


def window(start: str, end: str, now: int, err: Any) -> tuple[int, int]:
    """[begin, end) in whole hours, as Slurm rounds it: yesterday unless told otherwise, never
    beyond now, and an hour at least."""
    today = parse_time_point("today", now, past=True)

    def point(text: str, default: int) -> int:
        if not text:
            return default
        try:
            return parse_time_point(text, now, past=True)
        except UnitError as problem:
            err.write(f"{problem}\n")
            return default

    yesterday = parse_time_point(format_time_point(today - HOUR)[:10], now, past=True)
    first = _whole_hour(point(start, yesterday))
    last = _whole_hour(min(point(end, today), now))
    return first, max(last, first + HOUR)


def _whole_hour(at: int) -> int:
    """Half a minute is a whole one, and half an hour a whole one, of the local clock."""
    minutes = (at + 30) // 60
    offset = 60 * int(format_time_point(at)[14:16]) - at % HOUR + at % 60
    shifted = minutes * 60 + offset
    return (shifted + 1800) // HOUR * HOUR - offset


# ---- asking ----------------------------------------------------------------------------------


def ask(
    name: str, kind: str, wanted: Conditions, settings: Settings, streams: Streams, reader: Reader
) -> ReportRows:
    """The rows; none where another cluster is meant. Raises Stop where nobody can say."""
    from gsched.client import ControllerDown, RequestRefused

    clusters = {each.lower() for each in wanted.clusters or settings.clusters}
    try:
        if clusters and not settings.all_clusters and "all_clusters" not in wanted.flags:
            if reader.status().cluster_name.lower() not in clusters:
                return ReportRows([])
        query = ReportQuery(kind, wanted.start, wanted.end, wanted.only)
        return reader.report(query)
    except (ControllerDown, RequestRefused) as problem:
        if str(problem) == "Slurm accounting storage is disabled":
            raise Stop(1, f"{problem}\n") from None
        raise Stop(1, f"{name}: error: Problem talking to the database: {problem}\n") from None


def cluster_of(reader: Reader) -> str:
    """The name that is in the first column."""
    return reader.status().cluster_name


def chosen_tres(settings: Settings, known: Iterable[str], default: Sequence[str]) -> list[str]:
    """Names of the TRES to report on, in Slurm's order. Raises Stop where none is known."""
    have = list(known)
    if not settings.tres:
        return list(default)
    if [word.lower() for word in settings.tres] == ["all"]:
        return tres.order(dict.fromkeys([*tres.BASE, *have]))
    wanted = [tres.plain(word) for word in settings.tres]
    good = [name for name in wanted if name in (*tres.BASE, *have) or name.startswith("gres/")]
    if not good:
        raise Stop(1, "sreport: fatal: No valid TRES given\n")
    return good


# ---- writing ---------------------------------------------------------------------------------


def usage_words(settings: Settings, wanted_tres: bool, *, resv: bool = False) -> str:
    """ "Usage reported in CPU Minutes"."""
    unit = settings.unit
    if not unit.seconds:
        return f"Usage reported in {unit.title}"
    what = "TRES" if wanted_tres or resv else "CPU"
    return f"Usage reported in {what} {unit.title}"


def amount(settings: Settings, seconds: int, total: int) -> str:
    """TRES-seconds as the unit has it."""
    unit = settings.unit
    share = f"{100 * seconds / total:.2f}%" if total else "0.00%"
    if not unit.seconds:
        return share
    text = f"{seconds / unit.seconds:.0f}"
    return f"{text}({share})" if unit.percent else text


def spans(wanted: Conditions, *, seconds: bool) -> str:
    """ "2026-11-30T08:00:00 - 2026-11-30T08:59:59 (3600 secs)"."""
    text = f"{format_time_point(wanted.start)} - {format_time_point(wanted.end - 1)}"
    return f"{text} ({wanted.end - wanted.start} secs)" if seconds else text


def report(
    settings: Settings,
    title: Sequence[str],
    columns: Sequence[Column[T]],
    default: str,
    chosen: str,
    rows: Iterable[T],
    streams: Streams,
    more: Sequence[Column[T]] = (),
) -> int:
    """Title, header and lines; `more` are columns that follow whatever is asked for. Returns the
    exit code."""
    code = 0
    shown: list[Shown[T]] = []
    for name in (chosen or default).split(","):
        try:
            shown += parse_format(name, columns, everything=False)
        except BadField as bad:
            streams.stderr.write(f" Unknown field '{bad}'\n")
            code = 1
    shown += [Shown(column, column.width) for column in more]
    if settings.header:
        streams.stdout.write(LINE + "".join(f"{line}\n" for line in title) + LINE)
    if settings.parsable:
        last = settings.parsable == "p"
        streams.stdout.writelines(delimited(shown, rows, settings.header, "|", last=last))
    else:
        streams.stdout.writelines(table(shown, rows, settings.header))
    return code
