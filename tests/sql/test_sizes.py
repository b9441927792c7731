"""Attempts counted by owner and resources: by roll-ups where there are any, by looking at attempts
where there are none, and always the same."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from gsched.accounting import archive, schema
from gsched.accounting.calendar import HOUR, Calendar
from gsched.accounting.database import Database
from gsched.accounting.report import LiveRows, answer
from gsched.model.acct import AcctJob
from gsched.wire.report import BillRow, ReportQuery, SizeRow

STATE = "2108c059-7d8f-41b2-bb82-0a6d84b93ea1"
ZONE = ZoneInfo("Europe/Berlin")
#: the last day of a month, on which clocks go on three days before
BEGIN = int(datetime(2026, 3, 31, tzinfo=ZONE).timestamp())
NOW = BEGIN + 200 * 86400


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    made = Database(url, calendar=Calendar(ZONE))
    made.migrate()
    made.sync(STATE, "peer", [], BEGIN)
    yield made
    made.close()


def attempt(number: int, start: int, end: int, **fields: object) -> AcctJob:
    base: dict[str, object] = {"begun": BEGIN, "group_id": number, "sub_id": 0, "submit": BEGIN}
    base |= {"account": "physics", "user_name": "ada", "assoc_id": 7, "state": "COMPLETED"}
    base |= {"start": start, "end_time": end, "elapsed_s": end - start, "alloc_tres": "cpu=1"}
    return AcctJob(number, 0, **(base | fields))  # type: ignore[arg-type]


def drawn(seed: int, count: int) -> list[AcctJob]:
    rng = random.Random(seed)
    rows = []
    for number in range(1, count + 1):
        start = BEGIN + rng.choice([0, 86400, rng.randrange(90 * 86400)])
        length = rng.choice([0, 1, HOUR, 86400, rng.randrange(1, 40 * 86400)])
        row = attempt(number, start, start + length)
        row.account, row.user_name = rng.choice([("physics", "ada"), ("art", "kim")])
        row.assoc_id = 7 if row.user_name == "ada" else 8
        row.state = rng.choice(["COMPLETED", "FAILED", "NODE_FAIL"])
        row.alloc_tres = rng.choice(["cpu=1", "cpu=8,gres/gpu=1"])
        row.partition_name = rng.choice(["gpu", "debug"])
        if rng.random() < 0.3:
            row.elapsed_s = rng.randrange(length + 1)
        if row.state == "NODE_FAIL" and length:
            row.last_report = start + rng.randrange(length)
        if rng.random() < 0.1:
            row.start = row.elapsed_s = 0
        rows.append(row)
    return rows


def sizes(database: Database, begin: int, end: int, **only: list[str]) -> dict[object, object]:
    live = LiveRows(STATE, "peer", NOW, outbox_next=1 << 40)
    rows = answer(database, ReportQuery("sizes", begin, end, only), live).rows
    return {
        (row.account, row.user, row.alloc_tres): (row.jobs, row.seconds)
        for row in rows
        if isinstance(row, SizeRow)
    }


def by_hand(rows: list[AcctJob], begin: int, end: int) -> dict[object, tuple[int, float]]:
    """What was there, and the seconds that lie in the time where those used lie evenly."""
    found: dict[object, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for row in rows:
        until = row.last_report or row.end_time
        if not row.start or row.start >= end or until < begin:
            continue
        whole = until - row.start
        part = max(0, min(until, end) - max(row.start, begin))
        used = min(row.elapsed_s, whole)
        jobs, seconds = found[row.account, row.user_name, row.alloc_tres]
        key = row.account, row.user_name, row.alloc_tres
        found[key] = jobs + 1, seconds + (part * used / whole if whole else 0)
    return dict(found)


def test_any_time_is_counted_as_by_hand(database: Database) -> None:
    rows = drawn(1, 300)
    database.store(STATE, [(n, row) for n, row in enumerate(rows, 1)])
    day, month = database.calendar.day, database.calendar.month
    rng = random.Random(2)
    for _ in range(40):
        begin, end = sorted(BEGIN + rng.randrange(-86400, 130 * 86400) for _ in range(2))
        cut = rng.choice([day, month, None])
        if cut is not None:
            begin, end = cut(begin)[0], cut(end)[1]
        expected = by_hand(rows, begin, end)
        got = sizes(database, begin, end)
        assert {key: jobs for key, (jobs, _) in expected.items()} == {
            key: jobs
            for key, (jobs, _) in got.items()  # type: ignore[misc]
        }
        for key, (jobs, seconds) in expected.items():
            # Each attempt is off by less than a second at either end.
            assert abs(got[key][1] - seconds) <= 2 * jobs  # type: ignore[index]
        # Conditions that no roll-up knows look at attempts: nothing differs.
        both = sizes(database, begin, end, partitions=["gpu", "debug"])
        assert both == got
        assert sizes(database, begin, end, users=["kim"]) == {
            key: value
            for key, value in got.items()
            if key[1] == "kim"  # type: ignore[index]
        }


def test_parts_of_a_time_add_up(database: Database) -> None:
    rows = drawn(3, 200)
    database.store(STATE, [(n, row) for n, row in enumerate(rows, 1)])
    cuts = sorted(random.Random(4).randrange(140 * 86400) for _ in range(30))
    times = [BEGIN, *(BEGIN + cut for cut in cuts), NOW]
    total: dict[object, int] = defaultdict(int)
    for begin, end in itertools.pairwise(times):
        for key, (_, seconds) in sizes(database, begin, end).items():  # type: ignore[misc]
            total[key] += seconds
    expected: dict[object, int] = defaultdict(int)
    for row in rows:
        if row.start:
            until = row.last_report or row.end_time
            expected[row.account, row.user_name, row.alloc_tres] += min(
                row.elapsed_s, until - row.start
            )
    assert total == expected


def bill(database: Database, begin: int, end: int) -> list[tuple[object, ...]]:
    live = LiveRows(STATE, "peer", NOW, outbox_next=1 << 40)
    rows = answer(database, ReportQuery("bill", begin, end), live).rows
    return sorted(
        (row.account, row.month, row.alloc_tres, row.state, row.jobs, row.seconds)
        for row in rows
        if isinstance(row, BillRow)
    )


def test_a_bill_outlives_the_attempts(database: Database) -> None:
    month = database.calendar.month(BEGIN)
    rows = [
        attempt(1, BEGIN + 10, BEGIN + 70),
        attempt(2, month[1] - 30, month[1] + 50, state="NODE_FAIL"),
        attempt(3, 0, BEGIN + 70),
    ]
    database.store(STATE, [(n, row) for n, row in enumerate(rows, 1)])
    expected = [
        ("physics", month[0], "cpu=1", "COMPLETED", 1, 60),
        ("physics", month[0], "cpu=1", "NODE_FAIL", 1, 30),
        ("physics", month[1], "cpu=1", "NODE_FAIL", 1, 50),
    ]
    until = month[1] + 40 * 86400
    assert bill(database, 0, until) == expected
    gone = archive.purge(database, {"purgejobafter": "1month"}, month[1] + 70 * 86400)
    assert gone == {"jobs": 3}
    assert bill(database, 0, until) == expected


def test_roll_ups_of_an_earlier_release_are_filled_in(database: Database) -> None:
    rows = drawn(5, 100)
    database.store(STATE, [(n, row) for n, row in enumerate(rows, 1)])
    before = bill(database, 0, NOW)
    tables = (schema.size_day, schema.size_month, schema.shapes)

    def undo(connection: sa.Connection) -> None:
        for table in tables:
            connection.execute(sa.delete(table))
        connection.execute(sa.update(schema.clusters).values(rolled=0))

    database.work(undo)
    assert bill(database, 0, NOW) == []
    database.sync(STATE, "peer", [], BEGIN)
    assert bill(database, 0, NOW) == before
    # And again, by making all roll-ups anew.
    database.reroll(STATE)
    assert bill(database, 0, NOW) == before
