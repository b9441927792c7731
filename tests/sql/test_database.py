"""Accounting: facts into SQL exactly once, questions answered from SQL and the state together."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from acct_support import T244, ended, job_244, never_ran, shown

from gsched.accounting import database as database_module
from gsched.accounting.database import Database, DatabaseDown, DatabaseRefuses
from gsched.accounting.outbox import Meta
from gsched.accounting.place import PlaceError, Settings, settings
from gsched.accounting.project import Projector
from gsched.client import ControllerDown
from gsched.config import parse_config
from gsched.frontend.accounting import Accounting, Live
from gsched.model import Fact, Job, JobState
from gsched.model.acct import AcctJob
from gsched.store import Snapshot, Store, StoreReader, number_key
from gsched.wire.codec import decode
from gsched.wire.messages import AcctQuery, AcctRows, AckOutbox, Done, FromFrontend, Refused, Write

STATE = "2108c059-7d8f-41b2-bb82-0a6d84b93ea1"
CONF = """\
ClusterName=peer
SlurmctldHost=vm
StateSaveLocation={0}/state
SlurmctldPidFile={0}/run/slurmctld.pid
AccountingStorageType=accounting_storage/slurmdbd
NodeName=node1
PartitionName=gpu Nodes=ALL Default=YES
"""


def config(folder: Path, more: str = "") -> Any:
    found = parse_config({"slurm.conf": CONF.format(folder) + more})
    return msgspec.structs.replace(found, path=str(folder / "slurm.conf"))


def job_row(n: int, **more: object) -> AcctJob:
    name = str(more.pop("name", f"job{n}"))
    return shown(ended(n, name, JobState.COMPLETED, **more))


def ids(database: Database, query: AcctQuery | None = None) -> list[int]:
    return [one.job_id for _, _, one in database.rows(query or AcctQuery(), 1000)]


# ---- SQL -------------------------------------------------------------------------------------


def test_a_row_comes_back_as_it_was(database: Database) -> None:
    job = job_244()
    job.comment = "ünïcode — 任务 🚀 'quoted' \\ %s :name"
    assert database.store(STATE, [(1, job)]) == 1
    ((state, seq, found),) = database.rows(AcctQuery(), 10)
    assert (state, seq) == (STATE, 1)
    assert found == job


def test_facts_are_stored_once(database: Database) -> None:
    facts = [(n, job_row(n)) for n in range(1, 8)]
    assert database.store(STATE, facts[:4]) == 4
    assert database.store(STATE, facts) == 7
    assert database.store(STATE, facts[:3]) == 7
    assert ids(database) == [1, 2, 3, 4, 5, 6, 7]
    assert database.last_seq(STATE) == 7
    # Another state (a cluster begun anew) counts from 1 again.
    assert database.last_seq("other") == 0
    assert database.store("other", [(1, job_row(99))]) == 1
    assert len(ids(database)) == 8


def test_all_of_a_batch_or_nothing(database: Database) -> None:
    bad = job_row(3)
    bad.name = None  # type: ignore[assignment]
    with pytest.raises((DatabaseRefuses, DatabaseDown)):
        database.store(STATE, [(1, job_row(1)), (2, job_row(2)), (3, bad)])
    assert database.last_seq(STATE) == 0
    assert ids(database) == []


def test_texts_of_any_length_and_kind(database: Database) -> None:
    job = job_row(1, submit_line="x" * 300_000, comment="a\0b")
    database.store(STATE, [(1, job)])
    ((_, _, found),) = database.rows(AcctQuery(), 10)
    assert len(found.submit_line) == 300_000
    assert found.comment == "a\N{REPLACEMENT CHARACTER}b"


def test_pages_in_sacct_order(database: Database) -> None:
    rows = [job_row(n, submit_time=T244 - n % 3, eligible_time=T244) for n in range(1, 30)]
    database.store(STATE, list(enumerate(rows, 1)))
    expected = sorted(rows, key=lambda one: one.order)
    found: list[AcctJob] = []
    query = AcctQuery()
    while page := database.rows(query, 4):
        found += [one for _, _, one in page]
        query = AcctQuery(after=list(page[-1][2].order))
    assert found == expected


def test_conditions_leave_out_only_what_cannot_match(database: Database) -> None:
    rows = [
        job_row(1, uid=0),
        job_row(2, uid=1001, array_job_id=9, array_task_id=0, name="mj"),
        job_row(3, end_time=T244 - 100, start_time=T244 - 200, submit_time=T244 - 300),
    ]
    database.store(STATE, list(enumerate(rows, 1)))
    assert ids(database, AcctQuery(uids=[1001])) == [2]
    assert ids(database, AcctQuery(ids=[(9, -1)])) == [2]
    assert ids(database, AcctQuery(ids=[(1, -1), (2, -1)])) == [1, 2]
    assert ids(database, AcctQuery(names=["mj"])) == [2]
    assert ids(database, AcctQuery(start=T244)) == [1, 2]
    assert ids(database, AcctQuery(end=T244 - 50)) == [3]


def test_migrating_twice_and_a_newer_database(url: str) -> None:
    database = Database(url)
    database.migrate()
    database.migrate()
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(DatabaseRefuses, match="9999"):
        database.migrate()
    database.close()


def test_a_migration_that_was_killed(url: str) -> None:
    """Every prefix of what it does may be all that was done."""
    import sqlalchemy as sa

    from gsched.accounting import schema

    engine = sa.create_engine(url)
    with engine.begin() as connection:
        schema.jobs.create(connection)
        connection.execute(sa.schema.DropIndex(next(iter(schema.jobs.indexes))))
    engine.dispose()
    database = Database(url)
    database.migrate()
    database.store(STATE, [(1, job_row(1))])
    assert ids(database) == [1]
    database.close()


def test_the_migrations_make_what_the_code_expects(url: str, database: Database) -> None:
    import sqlalchemy as sa

    from gsched.accounting import schema

    engine = sa.create_engine(url)
    there = sa.inspect(engine)
    for table in schema.metadata.tables.values():
        assert {c["name"] for c in there.get_columns(table.name)} == set(table.c.keys())
        found = {i["name"] for i in there.get_indexes(table.name)}
        assert found == {index.name for index in table.indexes}
    engine.dispose()


def test_an_index_leads_to_an_account(url: str) -> None:
    """Of a database of an earlier release, once it is brought up to date; the names of accounts
    have no limit there, nor one that compresses."""
    import random

    import sqlalchemy as sa

    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=9000))
    database = Database(url)
    database.migrate()
    rows = [job_row(n, account=f"lab{n % 40}") for n in range(1, 801)]
    database.store(STATE, list(enumerate(rows, 1)))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        on = " ON jobs" if connection.dialect.name in ("mysql", "mariadb") else ""
        connection.execute(sa.text(f"DROP INDEX jobs_by_account{on}"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0006'"))
    # SQLite explains by the tables as its connection saw them last.
    engine.dispose()
    database.migrate()
    others = [job_row(801, account=long), job_row(802, account=long[:190] + "x")]
    database.store(STATE, [(n, row) for n, row in enumerate(others, 801)])
    with engine.begin() as connection:
        if connection.dialect.name != "sqlite":
            table = "TABLE jobs" if connection.dialect.name in ("mysql", "mariadb") else "jobs"
            connection.execute(sa.text(f"ANALYZE {table}"))
    asked: list[tuple[str, object]] = []

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def note(_c: object, _k: object, text: str, values: object, *_: object) -> None:
        if "FROM jobs" in text:
            asked.append((text, values))

    try:
        found = {name: ids(database, AcctQuery(accounts=[name])) for name in ("lab7", long)}
        assert len(asked) == 2
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert found == {"lab7": list(range(7, 801, 40)), long: [801]}
    both = sorted([*range(7, 801, 40), *range(9, 801, 40)])
    assert ids(database, AcctQuery(accounts=["lab7", "lab9"])) == both
    explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    with engine.begin() as connection:
        for text, values in asked:
            plan = connection.exec_driver_sql(explain + text, values)
            # "key" is MariaDB's word for the index that it takes, among those that it might.
            taken = [str(row._mapping.get("key", row)) for row in plan]
            assert "jobs_by_account" in "".join(taken), taken
    engine.dispose()
    database.close()


def test_a_url_without_sense() -> None:
    with pytest.raises(DatabaseRefuses):
        Database("no url")
    with pytest.raises(DatabaseRefuses):
        Database("oracle+nothing://x/y")


# ---- where it is -----------------------------------------------------------------------------


def place(tmp_path: Path, text: str | None = None, more: str = "") -> Settings:
    if text is not None:
        (tmp_path / "slurmdbd.conf").write_text(text)
        (tmp_path / "slurmdbd.conf").chmod(0o600)
    return settings(config(tmp_path, more))


def test_places(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert place(tmp_path).url == f"sqlite:///{state}/accounting.sqlite"
    assert place(tmp_path).sqlite_file == f"{state}/accounting.sqlite"
    more = "AccountingStorageLoc=/var/db/a.sqlite\n"
    assert place(tmp_path, None, more).url == "sqlite:////var/db/a.sqlite"
    found = place(
        tmp_path,
        "# Slurm's own file\nDbdHost=localhost\nStorageType=accounting_storage/mysql\n"
        "StorageHost=db\nStorageUser=slurm\nStoragePass=p@ss/w:rd#1\nLogFile=/tmp/d.log\n",
    )
    assert found.url == "mysql+pymysql://slurm:p%40ss%2Fw%3Ard%231@db:3306/slurm_acct_db"
    assert found.shown == "mysql+pymysql://slurm@db:3306/slurm_acct_db"
    assert found.log_file == "/tmp/d.log"
    found = place(tmp_path, "StorageType=postgresql\nStoragePort=5433\nStorageLoc=acct\n")
    assert found.url == "postgresql+psycopg://slurm@localhost:5433/acct"
    found = place(tmp_path, "StorageURL=postgresql://u:p@h/acct\n")
    assert found.url == "postgresql+psycopg://u:p@h/acct"


@pytest.mark.parametrize(
    "text",
    [
        "StorageType=oracle\n",
        "StorageType=mysql\nStoragePort=x\n",
        "nonsense\n",
        "StorageURL=sqlite:///relative\n",
        "StorageURL=oracle://x\n",
    ],
)
def test_places_that_are_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(PlaceError):
        place(tmp_path, text)


def test_a_password_that_others_can_read_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "slurmdbd.conf"
    conf.write_text("StorageType=mysql\nStoragePass=secret\n")
    conf.chmod(0o640)
    with pytest.raises(PlaceError, match="open to others") as refused:
        settings(config(tmp_path))
    assert "secret" not in str(refused.value)
    conf.write_text("StorageType=mysql\n")
    with pytest.raises(PlaceError, match="is read by everybody"):
        place(tmp_path, "", "AccountingStorageLoc=postgresql://u:secret@h/x\n")


def test_a_password_in_a_file_of_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p@ss w/rd\n")
    text = f"StoragePassFile={secret}\n"
    more = "AccountingStorageLoc=postgresql://acct@db/x?sslmode=require\n"
    secret.chmod(0o644)
    with pytest.raises(PlaceError, match="open to others"):
        place(tmp_path, text, more)
    secret.chmod(0o400)
    found = place(tmp_path, text, more)
    assert found.url == "postgresql+psycopg://acct:p%40ss%20w%2Frd@db/x?sslmode=require"
    assert found.shown == "postgresql+psycopg://acct@db/x?sslmode=require"
    found = place(tmp_path, text + "StorageType=mysql\n")
    assert found.url == "mysql+pymysql://slurm:p%40ss%20w%2Frd@localhost:3306/slurm_acct_db"
    secret.write_text("\n")
    with pytest.raises(PlaceError, match="no password"):
        place(tmp_path, text, more)


# ---- the projector ---------------------------------------------------------------------------


class ShortReader(StoreReader):
    """Opens the files for each snapshot anew: one process must not have them open twice."""

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with super().snapshot() as found:
            yield found
        self.close()


class Controller:
    """The store with an outbox in it, and the answer to AckOutbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder / "state")
        self.meta = Meta(STATE)
        self.up = True
        self.put()

    def put(self, jobs: list[Job] | None = None) -> None:
        changes: dict[tuple[str, bytes], bytes | None] = {}
        for job in jobs or []:
            fact = Fact(self.meta.outbox_next, job.end_time, job)
            changes["outbox", number_key(fact.seq)] = msgspec.msgpack.encode(fact)
            self.meta.outbox_next += 1
        changes["meta", b"meta"] = msgspec.msgpack.encode(self.meta)
        self.commit(changes)

    def call(self, write: Write) -> Done:
        if not self.up:
            raise ControllerDown
        assert isinstance(write, AckOutbox)
        # As the ledger does it: at most some at a time.
        end = min(write.through + 1, self.meta.outbox_first + 3)
        changes: dict[tuple[str, bytes], bytes | None] = {
            ("outbox", number_key(seq)): None for seq in range(self.meta.outbox_first, end)
        }
        self.meta.outbox_first = end
        self.commit(changes)
        self.put()
        return Done(b"", 0, value=end)

    def commit(self, changes: dict[tuple[str, bytes], bytes | None]) -> None:
        store = Store.open(self.folder)
        store.commit(changes)
        store.close()

    def left(self) -> int:
        store = Store.open(self.folder)
        count = len(list(store.load("outbox")))
        store.close()
        return count


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


def projector(tmp_path: Path, controller: Controller, database: Database) -> Projector:
    reader = ShortReader(str(tmp_path / "state"))
    log = structlog.get_logger()
    return Projector(config(tmp_path), database, reader, controller, log, lambda _: True)  # type: ignore[arg-type]


def jobs(*numbers: int) -> list[Job]:
    return [ended(n, f"job{n}", JobState.COMPLETED) for n in numbers]


def test_the_outbox_empties(tmp_path: Path, controller: Controller, database: Database) -> None:
    controller.put(jobs(*range(1, 11)))
    one = projector(tmp_path, controller, database)
    assert one.turn() is False
    assert ids(database) == list(range(1, 11))
    assert controller.left() == 0
    controller.put(jobs(11))
    one.turn()
    assert ids(database) == list(range(1, 12))


def test_a_dead_controller(tmp_path: Path, controller: Controller, database: Database) -> None:
    controller.put(jobs(1, 2))
    controller.up = False
    one = projector(tmp_path, controller, database)
    one.turn()
    assert ids(database) == [1, 2]
    assert controller.left() == 2
    controller.up = True
    # Another process, as after kill -9 between the commit and the acknowledgement.
    projector(tmp_path, controller, database).turn()
    assert ids(database) == [1, 2]
    assert controller.left() == 0


def test_a_dead_database(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_S", 0.05)
    path = tmp_path / "accounting.sqlite"
    database = Database(f"sqlite:///{path}")
    one = projector(tmp_path, controller, database)
    one.turn()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    controller.put(jobs(1, 2, 3))
    with pytest.raises(DatabaseDown, match="locked"):
        one.turn()
    assert controller.left() == 3
    other.execute("ROLLBACK")
    other.close()
    one.run()
    assert ids(database) == [1, 2, 3]
    assert controller.left() == 0
    database.close()


def test_a_fact_no_database_takes(
    tmp_path: Path, controller: Controller, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored with its texts cut, the others whole."""
    controller.put(jobs(1, 2, 3))
    whole = Database.store

    def store(self: Database, state: str, facts: list[tuple[int, AcctJob]]) -> int:
        if any(one.name == "job2" and one.steps for _, one in facts):
            raise DatabaseRefuses("not to my taste")
        return whole(self, state, facts)

    monkeypatch.setattr(Database, "store", store)
    projector(tmp_path, controller, database).turn()
    found = {one.job_id: len(one.steps) for _, _, one in database.rows(AcctQuery(), 10)}
    assert found == {1: 1, 2: 0, 3: 1}
    assert controller.left() == 0


def test_an_empty_database_after_facts_were_dropped(
    tmp_path: Path, controller: Controller, database: Database
) -> None:
    controller.meta.outbox_first = controller.meta.outbox_next = 6
    controller.put(jobs(6))
    one = projector(tmp_path, controller, database)
    one.turn()
    assert ids(database) == [6]
    assert database.last_seq(STATE) == 6


# ---- the frontend's answers ------------------------------------------------------------------


class Desk:
    """A frontend's accounting over a database file and a state made by hand."""

    def __init__(self, tmp_path: Path, more: str = "") -> None:
        (tmp_path / "state").mkdir(exist_ok=True)
        self.path = tmp_path / "state/accounting.sqlite"
        self.accounting = Accounting(config(tmp_path, more), frozenset({0}))

    def stored(self, *rows: tuple[int, AcctJob]) -> None:
        database = Database(f"sqlite:///{self.path}")
        database.migrate()
        database.store(STATE, rows)
        database.close()

    def ask(
        self, live: Live | None, query: AcctQuery | None = None, uid: int = 0, who: str = "me"
    ) -> AcctRows | Refused:
        self.accounting.ask(who, query or AcctQuery(), uid, live)
        until = time.monotonic() + 20
        while (answer := self.accounting.answer(who)) is None:
            assert time.monotonic() < until
            os.sched_yield()
        found = decode(FromFrontend, answer)
        assert isinstance(found, AcctRows | Refused)
        return found


def live(
    jobs: list[Job] | None = None, facts: dict[int, Job] | None = None, first: int = 1
) -> Live:
    return Live(
        1,
        STATE,
        first,
        [msgspec.msgpack.encode(job) for job in jobs or []],
        [
            (n, msgspec.msgpack.encode(Fact(n, job.end_time, job)))
            for n, job in (facts or {}).items()
        ],
    )


def states(found: AcctRows | Refused) -> list[tuple[int, int, str]]:
    assert isinstance(found, AcctRows), found
    return [(one.job_id, one.restarts, one.state) for one in found.jobs]


def test_sql_outbox_and_queue_together(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.stored((1, job_row(1)), (2, job_row(2)))
    over = ended(3, "a", JobState.FAILED, 256)
    running = ended(4, "a", JobState.RUNNING, end_time=0)
    # 2 has been stored but not dropped yet and is still in the job table; 3 is not in SQL yet.
    state = live(
        [ended(2, "job2", JobState.COMPLETED), over, running, never_ran(5, "w", JobState.PENDING)],
        {2: ended(2, "job2", JobState.COMPLETED), 3: over},
        first=2,
    )
    assert states(desk.ask(state)) == [
        (1, 0, "COMPLETED"),
        (2, 0, "COMPLETED"),
        (3, 0, "FAILED"),
        (4, 0, "RUNNING"),
        (5, 0, "PENDING"),
    ]


def test_each_try_of_a_job(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first = ended(1, "a", JobState.CANCELLED, requeue_after=True)
    desk.stored((1, shown(first)))
    again = never_ran(1, "a", JobState.PENDING, restarts=1, eligible_time=T244 + 9)
    assert states(desk.ask(live([again], first=2))) == [(1, 0, "REQUEUED"), (1, 1, "PENDING")]
    # The state was read before the end, SQL after it: the end counts.
    stale = ended(1, "a", JobState.RUNNING, end_time=0)
    assert states(desk.ask(live([stale], first=2))) == [(1, 0, "REQUEUED")]


def test_before_and_without_a_database(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    over = ended(1, "a", JobState.COMPLETED)
    assert states(desk.ask(live([over], {1: over}))) == [(1, 0, "COMPLETED")]
    # From here on something is known to SQL alone: what is here is shown, and said to be half.
    found = desk.ask(live([over], {5: over}, first=5))
    assert states(found) == [(1, 0, "COMPLETED")]
    assert isinstance(found, AcctRows) and "is slurmdbd up?" in found.warning
    off = Desk(tmp_path, "")
    off.accounting._config = msgspec.structs.replace(
        off.accounting._config, accounting_storage_type="accounting_storage/none"
    )
    assert desk.ask(live()) is not None
    found = off.ask(live())
    assert isinstance(found, Refused)
    assert found.message == "Slurm accounting storage is disabled"


def test_a_database_that_dies_between_two_questions(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.stored((1, job_row(1)), (2, job_row(2)))
    over = ended(2, "a", JobState.COMPLETED)
    running = ended(4, "a", JobState.RUNNING, end_time=0)
    assert len(states(desk.ask(live([running], {2: over}, first=2)))) == 3

    class Dead:
        def last_seq(self, state: str) -> int:
            return 2

        def rows(self, query: AcctQuery, limit: int) -> None:
            raise DatabaseDown("gone")

    desk.accounting._database = Dead()  # type: ignore[assignment]
    found = desk.ask(live([running], {2: over}, first=2))
    # Fact 2 is in SQL, and in the outbox still: it is shown from there.
    assert states(found) == [(2, 0, "COMPLETED"), (4, 0, "RUNNING")]
    assert isinstance(found, AcctRows) and found.warning == "gone"


def test_many_rows_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gsched.frontend import accounting

    monkeypatch.setattr(accounting, "PAGE", 7)
    desk = Desk(tmp_path)
    desk.stored(*((n, job_row(n)) for n in range(1, 40, 2)))
    waiting = [never_ran(n, "w", JobState.PENDING) for n in range(2, 61, 2)]
    found: list[int] = []
    query = AcctQuery()
    state: Live | None = live(waiting, first=40)
    while True:
        rows = desk.ask(state, query)
        assert isinstance(rows, AcctRows)
        found += [one.job_id for one in rows.jobs]
        if not rows.more:
            break
        query = AcctQuery(after=rows.last)
        # The next page needs no snapshot.
        state = None if desk.accounting.goes_on("me", query) else live(waiting, first=40)
    assert sorted(found) == sorted([*range(1, 40, 2), *range(2, 61, 2)])
    assert len(found) == len(set(found))


def test_private_jobs(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "PrivateData=jobs\n")
    desk.stored((1, job_row(1, uid=0)), (2, job_row(2, uid=1001)))
    assert states(desk.ask(live(first=3), uid=1001)) == [(2, 0, "COMPLETED")]
    assert states(desk.ask(live(first=3), AcctQuery(uids=[0]), uid=1001)) == [(2, 0, "COMPLETED")]
    assert len(states(desk.ask(live(first=3), uid=0))) == 2
