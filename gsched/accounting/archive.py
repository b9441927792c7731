"""Old rows: into files, out of the database, and back.

Files are JSON lines, compressed with gzip; the first line says what they are of. A file is complete
before the rows in it are deleted: whatever dies in between leaves both, and loading a file inserts
only what is not there. Roll-ups stay when jobs go: they are purged by PurgeUsageAfter alone.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gsched.accounting import schema
from gsched.accounting.calendar import HOUR, Calendar
from gsched.accounting.database import Database
from gsched.units import parse_age

FORMAT = "gsched.accounting.archive/1"
#: rows that are deleted in one transaction
BATCH = 1000


class ArchiveError(Exception):
    """A key or a file makes no sense; the text is one sentence."""


@dataclass(frozen=True)
class Age:
    """How old rows may get."""

    number: int
    #: "hour", "day" or "month": rows go at the begin of one
    unit: str

    def cutoff(self, calendar: Calendar, now: int) -> int:
        """What ended before goes."""
        if self.unit == "hour":
            return calendar.hour(now)[0] - self.number * HOUR
        if self.unit == "day":
            at = calendar.day(now)[0]
            for _ in range(self.number):
                at = calendar.day(at - 1)[0]
            return at
        at = calendar.month(now)[0]
        for _ in range(self.number):
            at = calendar.month(at - 1)[0]
        return at


@dataclass(frozen=True)
class Kind:
    """What is purged together."""

    name: str
    #: of slurmdbd.conf, in lower case
    purge_key: str
    archive_key: str
    tables: tuple[sa.Table, ...]
    #: rows of the first table that are older than a time
    old: Callable[[int], sa.ColumnElement[bool]]


_JOBS, _STEPS, _EVENTS = schema.jobs, schema.steps, schema.events
_RESVS, _TXN = schema.reservations, schema.transactions
KINDS = (
    Kind(
        "steps",
        "purgestepafter",
        "archivesteps",
        (_STEPS,),
        lambda at: sa.and_(_STEPS.c.end > 0, _STEPS.c.end < at),
    ),
    Kind(
        "jobs",
        "purgejobafter",
        "archivejobs",
        (_JOBS, _STEPS),
        lambda at: sa.and_(_JOBS.c.end_time > 0, _JOBS.c.end_time < at),
    ),
    Kind(
        "events",
        "purgeeventafter",
        "archiveevents",
        (_EVENTS,),
        # Sizes of the cluster belong to its roll-ups.
        lambda at: sa.and_(_EVENTS.c.end_time > 0, _EVENTS.c.end_time < at, _EVENTS.c.node != ""),
    ),
    Kind(
        "reservations",
        "purgeresvafter",
        "archiveresvs",
        (_RESVS,),
        lambda at: sa.and_(_RESVS.c.open == 0, _RESVS.c.end_time < at),
    ),
    Kind("transactions", "purgetxnafter", "archivetxn", (_TXN,), lambda at: _TXN.c.time < at),
    *(
        Kind(
            table.name,
            "purgeusageafter",
            "archiveusage",
            (table,),
            lambda at, table=table: table.c.begin < at,  # type: ignore[misc]
        )
        for table in (
            *(schema.usage_hour, schema.usage_day, schema.usage_month),
            *(schema.size_day, schema.size_month),
        )
    ),
)


def ages(keys: Mapping[str, str]) -> dict[str, Age]:
    """Ages by key of slurmdbd.conf ("purgejobafter" -> ...): "12months", "30days", "24hours", or a
    number of months. Raises ArchiveError."""
    found = {}
    for kind in KINDS:
        text = keys.get(kind.purge_key, "").strip()
        if not text or text.lower() == "none":
            continue
        age = parse_age(text)
        if age is None:
            raise ArchiveError(f"{kind.purge_key}={text} is no age, such as 12months or 30days")
        found[kind.purge_key] = Age(*age)
    return found


def purge(database: Database, keys: Mapping[str, str], now: int) -> dict[str, int]:
    """Takes out what is too old, into files first where slurmdbd.conf says so. Returns the number
    of rows by kind. Raises ArchiveError, DatabaseDown, DatabaseRefuses."""
    gone: dict[str, int] = {}
    by_key = ages(keys)
    for kind in KINDS:
        age = by_key.get(kind.purge_key)
        if age is None:
            continue
        cutoff = age.cutoff(database.calendar, now)
        folder = None
        if keys.get(kind.archive_key, "").lower() in ("yes", "true", "1", "up"):
            folder = Path(keys.get("archivedir", "") or "/tmp")
        count = _purge(database, kind, cutoff, folder)
        if count:
            gone[kind.name] = count
    return gone


def _purge(database: Database, kind: Kind, cutoff: int, folder: Path | None) -> int:
    count = 0
    while True:
        some = database.work(lambda connection: _oldest(connection, kind, cutoff))
        if not some[0][1]:
            return count
        if folder is not None:
            write(folder, kind.name, cutoff, some)
        database.work(lambda connection, some=some: _delete(connection, kind, some, cutoff))  # type: ignore[misc]
        count += len(some[0][1])


#: table and rows of it
_Rows = list[tuple[sa.Table, list[dict[str, Any]]]]


def _oldest(connection: sa.Connection, kind: Kind, cutoff: int) -> _Rows:
    first = kind.tables[0]
    keys = list(first.primary_key.columns)
    question = sa.select(first).where(kind.old(cutoff)).order_by(*keys).limit(BATCH)
    rows = [dict(row) for row in connection.execute(question).mappings()]
    found: _Rows = [(first, rows)]
    for table in kind.tables[1:]:
        found.append((table, list(_steps_of(connection, table, rows))))
    return found


def _steps_of(
    connection: sa.Connection, table: sa.Table, jobs: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Steps that came with these attempts, or by themselves."""
    for state in {job["state_uuid"] for job in jobs}:
        mine = [job for job in jobs if job["state_uuid"] == state]
        attempts = {(job["job_id"], job["restarts"]) for job in mine}
        facts = {job["seq"] for job in mine}
        for at in range(0, len(mine), 250):
            some = mine[at : at + 250]
            question = sa.select(table).where(
                table.c.state_uuid == state,
                sa.or_(
                    table.c.seq.in_([job["seq"] for job in some]),
                    table.c.job_id.in_([job["job_id"] for job in some]),
                ),
            )
            for row in connection.execute(question).mappings():
                if row["seq"] in facts or (row["job_id"], row["restarts"]) in attempts:
                    yield dict(row)


def _delete(connection: sa.Connection, kind: Kind, some: _Rows, cutoff: int) -> None:
    for table, rows in some:
        columns = list(table.primary_key.columns)
        unique = {tuple(row[column.name] for column in columns) for row in rows}
        if unique:
            change = sa.delete(table).where(
                *(column == sa.bindparam(f"k{n}") for n, column in enumerate(columns))
            )
            values = [{f"k{n}": value for n, value in enumerate(key)} for key in sorted(unique)]
            connection.execute(change, values)
    if kind.name == "jobs":
        states = {row["state_uuid"] for row in some[0][1]}
        table = schema.clusters
        # Roll-ups up to here cannot be made anew.
        connection.execute(
            sa.update(table)
            .where(table.c.state_uuid.in_(states), table.c.purged < cutoff)
            .values(purged=cutoff)
        )


# ---- files -----------------------------------------------------------------------------------


def write(folder: Path, name: str, cutoff: int, some: _Rows) -> Path:
    """A file of rows; complete, or not there. Raises ArchiveError."""
    day = datetime.fromtimestamp(cutoff).strftime("%Y-%m-%dT%H%M%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while (path := folder / f"{name}_{day}_{number:04}.jsonl.gz").exists():
            number += 1
        draft = path.with_name(path.name + ".part")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
                head = {"format": FORMAT, "kind": name, "before": cutoff}
                packed.write(json.dumps(head).encode() + b"\n")
                for table, rows in some:
                    for row in rows:
                        line = json.dumps([table.name, row], ensure_ascii=False)
                        packed.write(line.encode() + b"\n")
            raw.flush()
            os.fsync(raw.fileno())
        os.rename(draft, path)
        home = os.open(folder, os.O_RDONLY)
        os.fsync(home)
        os.close(home)
    except OSError as problem:
        raise ArchiveError(f"cannot write to {folder}: {problem.strerror}") from None
    return path


def load(database: Database, path: Path) -> int:
    """Brings a file's rows back; those that are there stay. Returns how many were missing. Raises
    ArchiveError, DatabaseDown, DatabaseRefuses."""
    known = {table.name: table for kind in KINDS for table in kind.tables}
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            head = json.loads(file.readline())
            if not isinstance(head, dict) or head.get("format") != FORMAT:
                raise ArchiveError(f"{path} is no archive of this kind")
            rows = [json.loads(line) for line in file]
    except (OSError, EOFError, ValueError) as problem:
        if isinstance(problem, ArchiveError):
            raise
        reason = getattr(problem, "strerror", None) or "it is damaged"
        raise ArchiveError(f"cannot read {path}: {reason}") from None
    by_table: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if not isinstance(row, list) or len(row) != 2 or row[0] not in known:
            raise ArchiveError(f"{path} has a row of an unknown kind")
        by_table.setdefault(row[0], []).append(row[1])
    return database.work(
        lambda connection: sum(
            _insert(connection, known[name], some) for name, some in by_table.items()
        )
    )


def _insert(connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> int:
    keys = list(table.primary_key.columns)
    defaults = {column.name: "" if _is_text(column) else 0 for column in table.columns}
    wanted = {
        tuple(row[column.name] for column in keys): {
            name: row.get(name, value) for name, value in defaults.items()
        }
        for row in rows
    }
    states = {row["state_uuid"] for row in wanted.values()}
    second = keys[1]
    numbers = sorted({row[second.name] for row in wanted.values()})
    for at in range(0, len(numbers), 500):
        question = sa.select(*keys).where(
            table.c.state_uuid.in_(states), second.in_(numbers[at : at + 500])
        )
        for key in connection.execute(question):
            wanted.pop(tuple(key), None)
    if wanted:
        connection.execute(sa.insert(table), list(wanted.values()))
    return len(wanted)


def _is_text(column: sa.Column[Any]) -> bool:
    return isinstance(column.type, sa.String)
