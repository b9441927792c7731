"""Old rows go by age, into files first, and come back; roll-ups stay."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sql.test_rollups import DAY, STATE, attempt, by_owner, database, ran, snapshot

from gsched.accounting import archive, schema
from gsched.accounting.archive import Age, ArchiveError, ages, load, purge
from gsched.accounting.calendar import Calendar
from gsched.accounting.database import Database
from gsched.accounting.sql_news import Told
from gsched.model import NodeState, PolicyChange, Transaction
from gsched.model.acct import AcctStep, AcctSteps

__all__ = ["database"]

MONTH = 31 * 86400


def count(database: Database, table: sa.Table) -> int:
    question = sa.select(sa.func.count()).select_from(table)
    return int(database.work(lambda c: c.execute(question).scalar()) or 0)


def rows(database: Database) -> list[list[tuple[object, ...]]]:
    def ask(connection: sa.Connection) -> list[list[tuple[object, ...]]]:
        return [
            sorted(tuple(row) for row in connection.execute(sa.select(table)))
            for table in (schema.jobs, schema.steps, schema.events, schema.transactions)
        ]

    return database.work(ask)


def filled(database: Database) -> None:
    step = AcctStep("0", "a", "COMPLETED", start=DAY, end=DAY + 5)
    old = ran(1, DAY, DAY + 10, "cpu=2")
    old.steps = [step]
    down = NodeState("node1", "DOWN", "x", 0, 0, {"cpu": 1})
    change = PolicyChange(done=[Transaction("ada", "Add Users", "ünïcode 任务")])
    database.store(
        STATE,
        [
            (1, AcctSteps(1, 0, [step])),
            (2, old),
            (3, Told(DAY, down)),
            (4, Told(DAY + 50, NodeState("node1"))),
            (5, Told(DAY, change)),
            (6, ran(2, DAY + 3 * MONTH, DAY + 3 * MONTH + 10, "cpu=2")),
            (7, attempt(3, end_time=DAY + 3 * MONTH)),
        ],
    )


def test_purged_archived_and_back(database: Database, tmp_path: Path) -> None:
    filled(database)
    before, sums = rows(database), snapshot(database)
    keys = {
        "purgejobafter": "2months",
        "purgeeventafter": "60days",
        "purgetxnafter": "24hours",
        "archivejobs": "yes",
        "archiveevents": "yes",
        "archivetxn": "yes",
        "archivedir": str(tmp_path / "old"),
    }
    now = DAY + 3 * MONTH + 86400
    assert purge(database, keys, now) == {"jobs": 1, "events": 1, "transactions": 1}
    assert purge(database, keys, now) == {}
    assert count(database, schema.jobs) == 2 and count(database, schema.steps) == 0
    assert count(database, schema.events) == count(database, schema.transactions) == 0
    assert snapshot(database) == sums
    files = sorted((tmp_path / "old").iterdir())
    assert [file.name.partition("_")[0] for file in files] == ["events", "jobs", "transactions"]
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    # What cannot be made anew is left as it is.
    database.reroll(STATE)
    assert by_owner(database, DAY, DAY + 86400) == {("physics", "cpu"): 20}
    assert sum(load(database, file) for file in files) == 5
    assert rows(database) == before
    assert sum(load(database, file) for file in files) == 0
    assert snapshot(database) == sums


def test_killed_between_the_file_and_the_deletion(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(database)
    before = rows(database)
    keys = {"purgejobafter": "1", "archivejobs": "yes", "archivedir": str(tmp_path)}
    now = DAY + 4 * MONTH

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archive, "_delete", die)
        with pytest.raises(KeyboardInterrupt):
            purge(database, keys, now)
    assert rows(database) == before
    assert purge(database, keys, now) == {"jobs": 1}
    files = sorted(tmp_path.glob("jobs_*"))
    assert len(files) == 2
    assert [load(database, file) for file in files] == [3, 0]
    assert rows(database) == before


def test_roll_ups_have_an_age_of_their_own(database: Database) -> None:
    filled(database)
    assert set(purge(database, {"purgeusageafter": "1month"}, DAY + 4 * MONTH)) == {
        "usage_hour",
        "usage_day",
        "usage_month",
        "size_day",
        "size_month",
    }
    assert by_owner(database, DAY, DAY + 86400) == {}
    assert count(database, schema.jobs) == 3


def test_ages() -> None:
    assert ages({"purgejobafter": "12", "purgestepafter": "3days"}) == {
        "purgejobafter": Age(12, "month"),
        "purgestepafter": Age(3, "day"),
    }
    zone = ZoneInfo("Europe/Berlin")
    calendar = Calendar(zone)
    now = int(datetime(2026, 3, 31, 15, 30, tzinfo=zone).timestamp())

    def at(*words: int) -> int:
        return int(datetime(*words, tzinfo=zone).timestamp())  # type: ignore[arg-type]

    assert Age(2, "hour").cutoff(calendar, now) == at(2026, 3, 31, 13)
    # Over the night in which the clock goes on.
    assert Age(3, "day").cutoff(calendar, now) == at(2026, 3, 28)
    assert Age(1, "month").cutoff(calendar, now) == at(2026, 2, 1)
    for bad in ("x", "0", "-1months", "5years", "1.5days"):
        with pytest.raises(ArchiveError, match="no age"):
            ages({"purgejobafter": bad})


def test_files_that_are_none(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    with pytest.raises(ArchiveError, match="No such file"):
        load(database, path)
    path.write_bytes(b"no gzip")
    with pytest.raises(ArchiveError, match="cannot read"):
        load(database, path)
    with gzip.open(path, "wt") as file:
        file.write('{"format": "other"}\n')
    with pytest.raises(ArchiveError, match="no archive"):
        load(database, path)
    with gzip.open(path, "wt") as file:
        file.write('{"format": "gsched.accounting.archive/1"}\n["alembic_version", {}]\n')
    with pytest.raises(ArchiveError, match="unknown kind"):
        load(database, path)
