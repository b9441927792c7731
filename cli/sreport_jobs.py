"""sreport job SizesBy...: how much time went to jobs of which size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gsched import tres
from gsched.model.policy import Assoc
from gsched.wire.policy import PolicyQuery
from gsched.wire.report import SizeRow
from gsched_cli.columns import Column
from gsched_cli.common import Reader, Streams
from gsched_cli.sreport_settings import (
    BadCondition,
    Conditions,
    Settings,
    amount,
    ask,
    cluster_of,
    conditions,
    report,
    spans,
)
from gsched_cli.stop import Stop

NAME = "sreport"
DEFAULT_SIZES = (50, 250, 500, 1000)
_KNOWN = (
    *("accounts", "acctasparent", "flatview", "gid", "grouping", "jobs", "nodes"),
    *("partitions", "printjobcount", "users", "wckeys"),
)


@dataclass
class _Line:
    """Sizes of one account or WCKey."""

    name: str
    #: size (first one of its group) -> TRES-seconds, jobs
    seconds: dict[int, int] = field(default_factory=dict)
    jobs: dict[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.seconds.values())


def sizes_by_account(
    settings: Settings, words: Sequence[str], streams: Streams, reader: Reader
) -> int:
    """By accounts, with all that is below them."""
    return _sizes(settings, words, streams, reader, "Job Sizes", "Account", 9, _accounts)


def sizes_by_account_and_wckey(
    settings: Settings, words: Sequence[str], streams: Streams, reader: Reader
) -> int:
    """By accounts and WCKeys ("account:wckey")."""

    def named(row: SizeRow, account: str) -> str:
        return f"{account}:{row.wckey}" if row.wckey else ""

    def group(rows: Sequence[SizeRow], wanted: Conditions, reader: Reader) -> _Named:
        return [(named(row, account), row) for account, row in _accounts(rows, wanted, reader)]

    return _sizes(settings, words, streams, reader, "Job Sizes", "Account", -20, group)


def sizes_by_wckey(
    settings: Settings, words: Sequence[str], streams: Streams, reader: Reader
) -> int:
    """By WCKeys."""

    def group(rows: Sequence[SizeRow], wanted: Conditions, reader: Reader) -> _Named:
        return [(row.wckey, row) for row in rows]

    return _sizes(settings, words, streams, reader, "Job Sizes by Wckey", "Wckey", 9, group)


_Named = list[tuple[str, SizeRow]]


def _accounts(rows: Sequence[SizeRow], wanted: Conditions, reader: Reader) -> _Named:
    """Each row with the account on whose line it counts; "" none."""
    if "flatview" in wanted.flags:
        only = wanted.only.get("accounts")
        return [(row.account or "root", row) for row in rows if not only or row.account in only]
    parents: dict[str, str] = {}
    for record in reader.policy(PolicyQuery()).records:
        if isinstance(record, Assoc) and not record.user:
            parents[record.account] = record.parent
    tops = wanted.only.get("accounts") or ["root"]
    children = "acctasparent" in wanted.flags

    def line_of(account: str) -> str:
        below = ""
        seen: set[str] = set()
        at = account or "root"
        while at and at not in seen:
            if at in tops:
                return below if children else at
            seen.add(at)
            below = at
            # Accounts that are gone hang below root.
            at = parents.get(at, "root" if at != "root" else "")
        return ""

    lines = {row.account: line_of(row.account) for row in rows}
    return [(lines[row.account], row) for row in rows]


def _sizes(
    settings: Settings,
    words: Sequence[str],
    streams: Streams,
    reader: Reader,
    title: str,
    column: str,
    width: int,
    group: Callable[[Sequence[SizeRow], Conditions, Reader], _Named],
) -> int:
    wanted = conditions(words, _KNOWN, int(reader.now()), streams.stderr)
    if len(settings.tres) > 1:
        raise Stop(1, f"{NAME}: fatal: Only a single TRES can be reported on\n")
    kind = tres.plain(settings.tres[0]) if settings.tres else "cpu"
    accounts = wanted.only.pop("accounts", [])
    found = ask(NAME, "sizes", wanted, settings, streams, reader)
    if accounts:
        wanted.only["accounts"] = accounts
    rows = [row for row in found.rows if isinstance(row, SizeRow)]
    counted = [(name, row, _count(row, kind)) for name, row in group(rows, wanted, reader) if name]
    bounds = _bounds(wanted.grouping, (count for _, _, count in counted))
    lines: dict[str, _Line] = {}
    for name, row, count in counted:
        line = lines.setdefault(name, _Line(name))
        size = max((bound for bound in bounds if bound <= count), default=0)
        line.seconds[size] = line.seconds.get(size, 0) + count * row.seconds
        line.jobs[size] = line.jobs.get(size, 0) + row.jobs
    total = sum(line.total for line in lines.values())
    cluster = cluster_of(reader)
    jobs = "printjobcount" in wanted.flags
    columns: list[Column[_Line]] = [
        Column("Cluster", 9, lambda line: cluster),
        Column(column, width, lambda line: line.name),
    ]
    more = [
        _size_column(settings, bounds, place, bool(settings.tres), jobs, wanted.grouping)
        for place in range(len(bounds))
    ]
    more.append(Column("% of cluster", 12, lambda line: _share(line.total, total)))
    heads = [f"{title} {spans(wanted, seconds=True)}"]
    if settings.tres:
        heads.append(f"TRES type is {kind}")
    heads.append(
        "Units are in number of jobs ran" if jobs else f"Time reported in {settings.unit.title}"
    )
    ordered = [lines[name] for name in sorted(lines)]
    default = f"Cluster,{column}"
    return report(settings, heads, columns, default, wanted.format, ordered, streams, more)


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.2f}%" if total else "0.00%"


def _count(row: SizeRow, kind: str) -> int:
    try:
        return tres.parse(row.alloc_tres).get(kind, 0)
    except tres.TresError:
        return 0


def _bounds(grouping: str, counts: Iterable[int]) -> list[int]:
    """Where groups begin: 0 and those that were named; each size of its own for "individual"."""
    if "individual".startswith(grouping.lower()) and grouping:
        return sorted(set(counts))
    if not grouping:
        return [0, *DEFAULT_SIZES]
    found: set[int] = set()
    for item in grouping.split(","):
        if not (item.strip().isascii() and item.strip().isdigit()):
            raise BadCondition(f" Bad grouping: {grouping}")
        found.add(int(item))
    return sorted(found | {0})


def _size_column(
    settings: Settings,
    bounds: Sequence[int],
    place: int,
    by_tres: bool,
    jobs: bool,
    grouping: str,
) -> Column[_Line]:
    bound = bounds[place]
    word = "TRES" if by_tres else "CPUs"
    if grouping and "individual".startswith(grouping.lower()):
        header = f"{bound} {word}"
    elif place + 1 < len(bounds):
        header = f"{bound}-{bounds[place + 1] - 1} {word}"
    else:
        header = f">= {bound} {word}"

    def read(line: _Line) -> str:
        if jobs:
            return str(line.jobs.get(bound, 0))
        return amount(settings, line.seconds.get(bound, 0), line.total)

    return Column(header, 13, read)
