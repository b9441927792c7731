"""sreport reservation Utilization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gsched.units import format_time_point
from gsched.wire.report import ResvRow
from gsched_cli.columns import Column
from gsched_cli.common import Reader, Streams
from gsched_cli.sreport_cluster import in_slurms_words
from gsched_cli.sreport_settings import (
    Settings,
    amount,
    ask,
    chosen_tres,
    cluster_of,
    conditions,
    report,
    spans,
    usage_words,
)

NAME = "sreport"


@dataclass
class _Line:
    row: ResvRow
    tres: str

    @property
    def count(self) -> int:
        return self.row.tres.get(self.tres, 0)

    @property
    def total(self) -> int:
        """TRES-seconds that it kept."""
        return self.count * (self.row.end - self.row.begin)

    @property
    def used(self) -> int:
        return min(self.row.used.get(self.tres, 0), self.total)


def reservations(settings: Settings, words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """What reservations kept, and how much of it jobs used; their whole time, also beyond the
    window."""
    wanted = conditions(words, ("names", "nodes"), int(reader.now()), streams.stderr)
    found = ask(NAME, "reservations", wanted, settings, streams, reader)
    rows = [row for row in found.rows if isinstance(row, ResvRow)]
    lines = []
    for row in rows:
        # Without -T all that it keeps, but for what follows from the rest.
        mine = [name for name in row.tres if name not in ("mem", "node", "billing")]
        for name in chosen_tres(settings, row.tres, mine):
            if name in row.tres:
                lines.append(_Line(row, name))
    cluster = cluster_of(reader)
    wide = settings.unit.percent and settings.unit.seconds > 0
    width = 29 if wide else 20
    columns: list[Column[_Line]] = [
        Column("Allocated", width, lambda line: amount(settings, line.used, line.total)),
        Column("Associations", 15, lambda line: line.row.assocs),
        Column("Cluster", 9, lambda line: cluster),
        Column("End", 19, lambda line: format_time_point(line.row.end)),
        Column("Flags", 20, lambda line: line.row.flags),
        Column("Idle", width, lambda line: amount(settings, line.total - line.used, line.total)),
        Column("Name", 9, lambda line: line.row.name),
        Column("Nodes", 15, lambda line: line.row.nodes),
        Column("Id", 8, lambda line: str(line.row.id)),
        Column("Start", 19, lambda line: format_time_point(line.row.begin)),
        Column("TotalTime", 9, lambda line: _clock(line.row.end - line.row.begin)),
        Column("TRES count", 10, lambda line: str(line.count)),
        Column("TRES Name", 14, lambda line: line.tres),
        Column("TRES Time", 12, lambda line: _clock(line.total)),
    ]
    asked = {
        "reservationid": "Id",
        "trescount": "TRES count",
        "tresname": "TRES Name",
        "trestime": "TRES Time",
        "count": "TRES count",
        "cputime": "TRES Time",
    }
    title = [
        f"Reservation Utilization {spans(wanted, seconds=False)}",
        usage_words(settings, True, resv=True),
    ]
    default = "Cluster,Name,Start,End,TRES Name,Allocated,Idle"
    chosen = in_slurms_words(wanted.format, asked)
    return report(settings, title, columns, default, chosen, lines, streams)


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    text = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text
