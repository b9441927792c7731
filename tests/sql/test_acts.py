"""What administrators do to the database, on each kind of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest
import sqlalchemy as sa

from gsched.accounting import schema
from gsched.accounting.acts import Asker, Denied, act
from gsched.accounting.calendar import HOUR, Calendar
from gsched.accounting.database import Database
from gsched.accounting.report import LiveRows, answer
from gsched.accounting.sql_news import Told
from gsched.model import Account, PolicyChange
from gsched.model.acct import AcctJob
from gsched.wire.messages import AcctQuery
from gsched.wire.report import ReportQuery, RunawayRow, TransactionRow, UsageRow

STATE = "2108c059-7d8f-41b2-bb82-0a6d84b93ea1"
#: begin of a day, UTC
DAY = 20718 * 86400
ROOT = Asker(0, True)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    made = Database(url, calendar=Calendar(UTC))
    made.migrate()
    made.sync(STATE, "peer", [], DAY)
    yield made
    made.close()


def attempt(number: int, begin: int, end: int, **fields: object) -> AcctJob:
    base: dict[str, object] = {"begun": DAY, "group_id": number, "sub_id": 0, "submit": DAY}
    base |= {"uid": os.getuid(), "account": "physics", "user_name": "ada", "assoc_id": 7}
    base |= {"start": begin, "end_time": end, "elapsed_s": max(0, end - begin)}
    return AcctJob(number, 0, **(base | {"alloc_tres": "cpu=2", "state": "FAILED"} | fields))  # type: ignore[arg-type]


def ask(database: Database, kind: str, **only: list[str]) -> list[object]:
    live = LiveRows(STATE, "peer", DAY + 86400, outbox_next=1 << 40)
    return list(answer(database, ReportQuery(kind, 0, DAY + 86400, only), live).rows)


def do(database: Database, kind: str, asker: Asker = ROOT, **only: list[str]) -> list[object]:
    return list(act(database, ReportQuery(kind, only=only), STATE, [], {}, asker).rows)


def used(database: Database) -> dict[str, int]:
    """WCKey -> CPU seconds."""
    rows = [row for row in ask(database, "usage") if isinstance(row, UsageRow)]
    return {row.wckey: row.tres["cpu"] for row in rows}


def test_attempts_without_an_end_are_mended(database: Database) -> None:
    """The end is the latest of their times, the state COMPLETED, as a real Slurm mended these."""
    rows = [
        attempt(1, DAY + 60, 0, eligible=DAY + 10, state="RUNNING"),
        attempt(2, 0, 0, eligible=DAY + 10, state="PENDING"),
        attempt(3, DAY + 60, 0, state="COMPLETED"),
        attempt(4, DAY + 60, DAY + 70),
    ]
    database.store(STATE, list(enumerate(rows, 1)))
    lost = [row for row in ask(database, "runaway") if isinstance(row, RunawayRow)]
    assert [row.job_id for row in lost] == [1, 2, 3]
    done = do(database, "mend", ids=[f"/{row.job_id}/0" for row in lost] + ["/4/0"])
    assert [(row.job_id, row.state, row.end - DAY) for row in done] == [  # type: ignore[attr-defined]
        (1, "COMPLETED", 60),
        (2, "COMPLETED", 10),
        (3, "COMPLETED", 60),
    ]
    assert ask(database, "runaway") == []
    assert used(database) == {"": 20}
    assert do(database, "mend", ids=["/1/0"]) == []


def test_fields_of_jobs_that_are_over_change(database: Database) -> None:
    database.store(STATE, [(1, attempt(1, DAY, DAY + 60)), (2, attempt(2, DAY, DAY + HOUR))])
    done = do(
        database,
        "change",
        ids=["/1/0", "/9/0"],
        comment=["Gr\u00fc\u00dfe"],
        derived_wstatus=["256"],
    )
    assert [row.job_id for row in done] == [1]  # type: ignore[attr-defined]
    one, two = (row for _, _, row in database.rows(AcctQuery(), 10))
    assert (one.comment, one.derived_wstatus) == ("Gr\u00fc\u00dfe", 256)
    assert (two.comment, two.derived_wstatus) == ("", 0)
    # What it used is the other WCKey's now.
    do(database, "change", ids=["/2/0"], wckey=["paper"])
    assert used(database) == {"": 120, "paper": 7200}


def test_who_may_change_what(database: Database) -> None:
    database.store(
        STATE, [(1, attempt(1, DAY, DAY + 60)), (2, attempt(2, DAY, DAY + 60, uid=4711))]
    )
    own = Asker(os.getuid(), False)
    do(database, "change", own, ids=["/1/0"], comment=["mine"])
    for only in ({"ids": ["/2/0"], "comment": ["x"]}, {"ids": ["/1/0"], "admin_comment": ["x"]}):
        with pytest.raises(Denied):
            do(database, "change", own, **only)
    for kind in ("mend", "archive", "load"):
        with pytest.raises(Denied):
            do(database, kind, own, ids=["/1/0"], file=["/x"])
    assert [row.comment for _, _, row in database.rows(AcctQuery(), 10)] == ["mine", ""]


def test_archive_and_back(database: Database, tmp_path: Path) -> None:
    database.store(STATE, [(1, attempt(1, DAY, DAY + 60))])
    only = {
        "purgejobafter": ["1days"],
        "archivejobs": ["yes"],
        "archivedir": [str(tmp_path / "old")],
    }
    found = act(database, ReportQuery("archive", only=only), STATE, [], {}, ROOT)
    assert found.totals == {"jobs": 1}
    assert database.rows(AcctQuery(), 10) == []
    (file,) = (tmp_path / "old").iterdir()
    query = ReportQuery("load", only={"file": [str(file)]})
    assert act(database, query, STATE, [], {}, ROOT).totals == {"rows": 1}
    assert act(database, query, STATE, [], {}, ROOT).totals == {"rows": 0}
    assert len(database.rows(AcctQuery(), 10)) == 1


def test_what_was_deleted(database: Database) -> None:
    """What went within a day and had no job was never there."""
    old = Account("old", "", "")
    made = [Account("x1", "", ""), Account("x2", "", "")]
    database.store(STATE, [(1, Told(DAY, PolicyChange([old, *made], [], [])))])
    database.store(STATE, [(2, attempt(1, DAY, DAY + 60, account="x1"))])
    database.store(STATE, [(3, Told(DAY + 100, PolicyChange([], made, [])))])
    database.store(STATE, [(4, Told(DAY + 86400, PolicyChange([], [old], [])))])
    rows = [row for row in ask(database, "deleted") if isinstance(row, TransactionRow)]
    assert [(row.action, row.actor, row.time - DAY) for row in rows] == [
        ("account", "x1", 100),
        ("account", "old", 86400),
    ]


def test_a_fact_on_its_way_is_waited_for(database: Database) -> None:
    """The job ended a moment ago and lies in the outbox."""
    import threading

    late = threading.Timer(0.3, lambda: database.store(STATE, [(1, attempt(1, DAY, DAY + 60))]))
    late.start()
    query = ReportQuery("change", only={"ids": ["/1/0"], "comment": ["x"]})
    rows = act(database, query, STATE, [1], {}, ROOT).rows
    late.join()
    assert len(rows) == 1


def test_a_row_of_another_state_is_left_alone(database: Database) -> None:
    database.store(STATE, [(1, attempt(1, DAY, DAY + 60))])
    database.sync("other", "peer", [], DAY)
    database.store("other", [(1, attempt(1, DAY, DAY + 60))])
    do(database, "change", ids=[f"{STATE}/1/0"], comment=["x"])
    with database._engine.connect() as connection:
        column = schema.jobs.c
        found = connection.execute(sa.select(column.state_uuid, column.comment)).all()
    assert sorted(map(tuple, found)) == [(STATE, "x"), ("other", "")]
