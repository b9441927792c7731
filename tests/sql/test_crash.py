"""Real processes killed at random points: each end is in SQL once, with what it was, whoever died.

GSCHED_KILL_ROUNDS and GSCHED_KILL_SEED choose how many rounds, and which.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from db_support import KINDS, Missing, Server, own_server
from wire_support import Daemons, until

from gsched.client import Client, ControllerDown
from gsched.model import JobSpec, Shape
from gsched.model.acct import AcctJob
from gsched.wire.messages import AcctQuery, CancelJobs, Done, SubmitJob

ROUNDS = int(os.environ.get("GSCHED_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("GSCHED_KILL_SEED", "1"))
BATCH = 60


class World:
    """Controller, frontend, slurmdbd and a database, any of which may be killed."""

    def __init__(self, kind: str) -> None:
        self.server: Server | None = None
        more = ""
        if kind != "sqlite":
            try:
                self.server = own_server(kind)
            except Missing as why:
                pytest.skip(str(why))
            self.url = self.server.url()
            more = f"AccountingStorageLoc={self.url}\n"
        self.daemons = Daemons(f"AccountingStorageType=accounting_storage/slurmdbd\n{more}")
        if kind == "sqlite":
            self.url = f"sqlite:///{self.daemons.dir}/state/accounting.sqlite"
        self.controller = self.daemons.controller()
        self.daemons.frontend()
        self.accounting = self.daemons.start("gsched.accounting.main")

    def again(self, what: str) -> None:
        """kill -9, and a new one."""
        if what == "controller":
            self.controller.kill()
            self.controller.wait()
            self.controller = self.daemons.controller()
        elif what == "accounting":
            self.accounting.kill()
            self.accounting.wait()
            self.accounting = self.daemons.start("gsched.accounting.main")
        elif self.server is not None:
            self.server.kill()
            self.server.start()

    def log(self) -> str:
        return (self.daemons.dir / "log/out").read_text()

    def query(self, statement: sa.Select[Any]) -> list[tuple[Any, ...]]:
        engine = sa.create_engine(self.url)
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(statement)]
        except sa.exc.SQLAlchemyError:
            return []
        finally:
            engine.dispose()

    def close(self) -> None:
        self.daemons.close()
        if self.server is not None:
            self.server.close()


@pytest.fixture(params=["sqlite", *KINDS])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.close()


def patiently(act: Callable[[], Any]) -> Any:
    """Again until the controller is there: a request is carried out once however often it comes."""

    def once() -> Any:
        try:
            return (act(),)
        except ControllerDown:
            return None

    found: Any = until("the controller", once, 60)
    return found[0]


def end_some(world: World, client: Client, rng: random.Random) -> dict[int, str]:
    """Jobs that are cancelled before they ran: id -> name."""
    found = {}
    for _ in range(BATCH // 20):
        names = [f"j{rng.randrange(10**9)}" for _ in range(20)]
        specs = [
            JobSpec(name=name, shape=Shape(), hold=True, time_limit=60, work_dir="/tmp")
            for name in names
        ]
        ids = []
        for spec in specs:
            reply = patiently(lambda spec=spec: client.call(SubmitJob(spec, b"#!/bin/sh\n", b"")))
            assert isinstance(reply, Done), reply
            ids.append(reply.value)
        found |= dict(zip(ids, names, strict=True))
        if rng.random() < 0.3:
            world.again(rng.choice(["controller", "accounting", "database"]))
        done = patiently(lambda ids=ids: client.call(CancelJobs([str(each) for each in ids])))
        assert isinstance(done, Done), done
    return found


def test_every_end_once_whoever_is_killed(world: World) -> None:
    from gsched.accounting import schema

    rng = random.Random(SEED)
    ended: dict[int, str] = {}
    for _ in range(ROUNDS):
        with world.daemons.client() as client:
            ended |= end_some(world, client, rng)
        for what in rng.sample(["controller", "accounting", "database"], rng.randrange(1, 4)):
            world.again(what)
            time.sleep(rng.uniform(0, 0.5))
    column = schema.jobs.c
    count = sa.select(sa.func.count()).select_from(schema.jobs)

    def all_there() -> bool:
        found = world.query(count)
        return bool(found) and found[0][0] >= len(ended)

    until("all ends in SQL", all_there, 90)
    with world.daemons.client() as client:
        live = patiently(lambda: client.accounting(AcctQuery(ineligible=True)))
    ledger: list[AcctJob] = live.jobs
    stored = world.query(
        sa.select(column.job_id, column.name, column.state, column.submit, column.end_time)
    )
    # Requests that were repeated after a kill may have made a job twice: those wait for ever.
    known = [
        (one.job_id, one.name, one.state, one.submit, one.end_time)
        for one in ledger
        if one.end_time
    ]
    assert sorted(stored) == sorted(known)
    assert {job_id: name for job_id, name, *_ in stored} == ended

    # The numbers of all facts, of whatever kind, have no gap: nothing was passed over.
    def caught_up() -> bool:
        last = world.query(sa.select(schema.progress.c.last_seq))
        return [tuple(row) for row in last] == [(_outbox_next(world.daemons.dir / "state") - 1,)]

    until("the last fact in SQL", caught_up, 60)


def _outbox_next(state: Path) -> int:
    from gsched.accounting.outbox import read_meta
    from gsched.store import StoreReader

    reader = StoreReader(str(state))
    try:
        with reader.snapshot() as snapshot:
            meta = read_meta(snapshot)
            assert meta is not None
            return meta.outbox_next
    finally:
        reader.close()


def test_hours_without_a_database(world: World) -> None:
    """Jobs go on, sacct shows what the controller holds; all is there once it is back."""
    from gsched.accounting import schema

    if world.server is None:
        pytest.skip("a file does not go away")
    rng = random.Random(SEED)
    column = schema.jobs.c
    with world.daemons.client() as client:
        first = end_some_quietly(client, rng, 5)
        until("the first ones", lambda: len(world.query(sa.select(column.job_id))) == 5, 60)
        until(
            "the controller's dropping them",
            lambda: not client.accounting(AcctQuery()).warning,
        )
        time.sleep(1.5)
        world.server.kill()
        more = end_some_quietly(client, rng, 20)
        rows = client.accounting(AcctQuery(ineligible=True))
        assert rows.warning
        assert set(more) <= {one.job_id for one in rows.jobs}
        world.server.start()
        until("all of them", lambda: len(world.query(sa.select(column.job_id))) == 25, 90)
        rows = client.accounting(AcctQuery(ineligible=True))
        assert not rows.warning
        assert {one.job_id for one in rows.jobs} == {*first, *more}


def end_some_quietly(client: Client, rng: random.Random, count: int) -> list[int]:
    spec = JobSpec(name="q", shape=Shape(), hold=True, time_limit=60, work_dir="/tmp")
    replies = client.call_many([SubmitJob(spec, b"#!/bin/sh\n", b"") for _ in range(count)])
    ids = [reply.value for reply in replies if isinstance(reply, Done)]
    assert len(ids) == count
    assert isinstance(client.call(CancelJobs([str(each) for each in ids])), Done)
    return ids


def test_a_newer_schema_is_said_and_waited_for(world: World) -> None:
    with world.daemons.client() as client:
        rng = random.Random(SEED)
        from gsched.accounting import schema

        count = sa.select(schema.jobs.c.job_id)
        end_some_quietly(client, rng, 2)
        until("the first ones", lambda: len(world.query(count)) == 2, 60)
        world.accounting.kill()
        world.accounting.wait()
        set_revision(world.url, "9999")
        world.accounting = world.daemons.start("gsched.accounting.main")
        until("the complaint", lambda: "9999" in world.log(), 60)
        ids = end_some_quietly(client, rng, 2)
        shown = {one.job_id for one in client.accounting(AcctQuery(ineligible=True)).jobs}
        assert set(ids) <= shown
        assert world.accounting.poll() is None
        from alembic.script import ScriptDirectory

        import gsched.accounting.migrations as home

        head = ScriptDirectory(str(Path(home.__file__).parent)).get_current_head()
        set_revision(world.url, str(head))
        until("the others", lambda: len(world.query(count)) == 4, 60)


def set_revision(url: str, number: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        table = sa.table("alembic_version", sa.column("version_num"))
        connection.execute(sa.update(table).values(version_num=number))
    engine.dispose()


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("mount"), reason="needs root and mount")
def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    import subprocess

    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=False
    )
    if mounted.returncode:
        pytest.skip("no tmpfs may be mounted here")
    path = place / "a.sqlite"
    daemons = Daemons(
        f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageLoc={path}\n"
    )
    try:
        daemons.controller()
        daemons.frontend()
        process = daemons.start("gsched.accounting.main")
        until("tables", lambda: path.exists() and path.stat().st_size > 0, 60)
        with daemons.client() as client:
            ids = end_some_quietly(client, random.Random(1), 2000)
            until("the complaint", lambda: "full" in (daemons.dir / "log/out").read_text(), 60)
            shown = client.accounting(AcctQuery(ids=[(ids[-1], -1)], ineligible=True)).jobs
            assert [one.job_id for one in shown] == [ids[-1]]
            assert process.poll() is None
            subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)

            def stored() -> bool:
                engine = sa.create_engine(f"sqlite:///{path}")
                with engine.connect() as connection:
                    found = connection.execute(sa.text("SELECT count(*) FROM jobs")).scalar()
                engine.dispose()
                return found == 2000

            until("all of them", stored, 90)
    finally:
        daemons.close()
        subprocess.run(["umount", str(place)], check=False)
