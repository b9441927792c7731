"""Roll-ups, policy, events and reservations in SQL, by arithmetic."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from gsched.accounting import schema, sql_usage
from gsched.accounting.calendar import HOUR, Calendar
from gsched.accounting.database import Database
from gsched.accounting.sql_news import Told
from gsched.accounting.usage import What
from gsched.model import (
    Account,
    Assoc,
    ClusterSize,
    NodeState,
    PolicyChange,
    Reservation,
    Reserved,
    Transaction,
)
from gsched.model.acct import AcctJob

STATE = "2108c059-7d8f-41b2-bb82-0a6d84b93ea1"
ZONE = "Europe/Berlin"
DAY = int(datetime(2026, 3, 28, tzinfo=ZoneInfo(ZONE)).timestamp())


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    made = Database(url, calendar=Calendar(ZoneInfo(ZONE)))
    made.migrate()
    made.sync(STATE, "peer", [], DAY)
    yield made
    made.close()


def attempt(number: int, **fields: object) -> AcctJob:
    base: dict[str, object] = {
        "job_id": number,
        "restarts": 0,
        "begun": DAY,
        "group_id": number,
        "sub_id": 0,
        "submit": DAY,
        "account": "physics",
        "user_name": "ada",
        "assoc_id": 7,
        "state": "COMPLETED",
    }
    return AcctJob(**(base | fields))  # type: ignore[arg-type]


def ran(number: int, begin: int, end: int, has: str = "cpu=1", **fields: object) -> AcctJob:
    return attempt(
        number, start=begin, end_time=end, elapsed_s=end - begin, alloc_tres=has, **fields
    )


def by_owner(database: Database, begin: int, end: int) -> dict[tuple[str, str], int]:
    """(account, TRES) -> seconds."""

    def ask(connection: sa.Connection) -> dict[tuple[str, str], int]:
        who = sql_usage.owners(connection, [STATE])
        found: dict[tuple[str, str], int] = defaultdict(int)
        for (state, ref, name), n in sql_usage.sums(
            connection, [STATE], database.calendar, begin, end
        ).items():
            found[who[state, ref][1], name] += n
        return dict(found)

    return database._do(ask)


def cluster(database: Database, what: What, name: str = "cpu") -> dict[int, int]:
    """Begin of the hour, from DAY on -> seconds."""
    found = database._do(
        lambda c: sql_usage.cluster_hours(
            c, [STATE], database.calendar, DAY - 30 * 86400, DAY + 60 * 86400
        )
    )
    return {at - DAY: n for (at, each, tres), n in found.items() if (each, tres) == (what, name)}


def test_a_job_over_a_boundary_counts_on_both_sides(database: Database) -> None:
    row = ran(1, DAY + HOUR - 10, DAY + HOUR + 30, "cpu=4,gres/gpu=1")
    database.store(STATE, [(1, row)])
    assert by_owner(database, DAY, DAY + HOUR) == {
        ("physics", "cpu"): 40,
        ("physics", "gres/gpu"): 10,
    }
    assert by_owner(database, DAY + HOUR, DAY + 2 * HOUR)["physics", "cpu"] == 120
    assert cluster(database, What.ALLOC) == {0: 40, HOUR: 120}


def test_a_late_fact_counts_where_it_belongs(database: Database) -> None:
    database.store(STATE, [(1, ran(1, DAY + 20 * HOUR, DAY + 21 * HOUR))])
    month = database.calendar.month(DAY)
    assert by_owner(database, *month) == {("physics", "cpu"): HOUR}
    database.store(STATE, [(2, ran(2, DAY + 60, DAY + 120)), (3, ran(3, DAY + 60, DAY + 90))])
    assert by_owner(database, *month) == {("physics", "cpu"): HOUR + 90}
    assert by_owner(database, DAY, DAY + HOUR) == {("physics", "cpu"): 90}
    # Once more: nothing is counted twice.
    database.store(STATE, [(2, ran(2, DAY + 60, DAY + 120)), (3, ran(3, DAY + 60, DAY + 90))])
    assert by_owner(database, *month) == {("physics", "cpu"): HOUR + 90}


def test_the_night_in_which_clocks_go_on(database: Database) -> None:
    begin, end = database.calendar.day(DAY + 30 * HOUR)
    assert end - begin == 23 * HOUR
    database.store(STATE, [(1, ran(1, DAY, end + 5))])
    assert by_owner(database, begin, end) == {("physics", "cpu"): 23 * HOUR}
    assert by_owner(database, DAY, begin) == {("physics", "cpu"): 24 * HOUR}
    assert by_owner(database, end, end + 86400) == {("physics", "cpu"): 5}


def test_random_histories_add_up_and_can_be_made_anew(database: Database) -> None:
    rng = random.Random(6)
    rows = []
    for number in range(1, 151):
        begin = DAY + rng.randrange(20 * 86400)
        length = rng.choice([0, 1, 59, 3600, rng.randrange(200_000)])
        used = length if rng.random() < 0.8 else rng.randrange(length + 1)
        rows.append(
            attempt(
                number,
                account=rng.choice(["physics", "bio"]),
                user_name=rng.choice(["ada", "max"]),
                assoc_id=rng.choice([0, 7, 8]),
                wckey=rng.choice(["", "lhc"]),
                eligible=begin - rng.randrange(1, 5000),
                start=begin,
                end_time=begin + length,
                elapsed_s=used,
                req_tres="cpu=3",
                alloc_tres=f"cpu={rng.randrange(1, 9)},mem=100M",
                reservation=rng.choice(["", "", "course"]),
            )
        )
    rng.shuffle(rows)
    facts = list(enumerate(rows, 1))
    while facts:
        some, facts = facts[:17], facts[17:]
        database.store(STATE, some)

    want: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        count = int(row.alloc_tres.partition(",")[0].removeprefix("cpu="))
        if row.elapsed_s:
            want[row.account, "cpu"] += count * row.elapsed_s
            want[row.account, "mem"] += 100 * row.elapsed_s
    whole = (DAY - 10 * 86400, DAY + 40 * 86400)
    assert by_owner(database, *whole) == dict(want)
    waited = sum(3 * (row.start - row.eligible) for row in rows)
    assert sum(cluster(database, What.WAIT).values()) == waited

    before = snapshot(database)
    database.reroll(STATE)
    assert snapshot(database) == before
    # The same in another zone: other hours, the same sums.
    other = Database(database.url, calendar=Calendar(ZoneInfo("Asia/Kolkata")))
    other.sync(STATE, "peer", [], DAY)
    assert by_owner(other, *whole) == dict(want)
    other.close()


def snapshot(database: Database) -> list[list[tuple[object, ...]]]:
    def ask(connection: sa.Connection) -> list[list[tuple[object, ...]]]:
        return [
            sorted(tuple(row) for row in connection.execute(sa.select(table)))
            for table in (schema.usage_hour, schema.usage_day, schema.usage_month)
        ]

    return database._do(ask)


def test_nodes_out_of_service(database: Database) -> None:
    has = {"cpu": 16, "gres/gpu": 8}
    database.store(
        STATE,
        [
            (1, Told(DAY, ClusterSize("node[1-2]", {"cpu": 32}, [], True))),
            (2, Told(DAY + 100, NodeState("node1", "DOWN*", "Not responding", 0, DAY + 40, has))),
            (3, Told(DAY + 150, NodeState("node1", "DRAINED", "fan", 0, 0, has))),
            (4, Told(DAY + HOUR + 10, NodeState("node1"))),
            (5, Told(DAY + HOUR + 20, NodeState("node2", "DOWN", "x", 0, 0, has))),
        ],
    )
    assert cluster(database, What.DOWN) == {0: 16 * (HOUR - 40), HOUR: 160}
    column = schema.events.c
    question = sa.select(
        column.node, column.begin, column.end_time, column.state, column.reason
    ).order_by(column.seq)
    found = database._do(lambda c: [tuple(row) for row in c.execute(question)])
    assert found == [
        ("", DAY, 0, "", "Cluster Registered TRES"),
        ("node1", DAY + 40, DAY + 150, "DOWN*", "Not responding"),
        ("node1", DAY + 150, DAY + HOUR + 10, "DRAINED", "fan"),
        ("node2", DAY + HOUR + 20, 0, "DOWN", "x"),
    ]
    # A controller that takes over tells what is so: node2 has come back meanwhile.
    database.store(
        STATE, [(6, Told(DAY + 2 * HOUR, ClusterSize("node[1-2]", {"cpu": 32}, [], True)))]
    )
    assert cluster(database, What.DOWN)[HOUR] == 160 + 16 * (HOUR - 20)
    database.store(STATE, [(7, Told(DAY + 3 * HOUR, ClusterSize("node[1-3]", {"cpu": 48})))])
    sizes = sa.select(column.cluster_nodes, column.begin, column.end_time).where(column.node == "")
    assert database._do(
        lambda c: [tuple(row) for row in c.execute(sizes.order_by(column.seq))]
    ) == [
        ("node[1-2]", DAY, DAY + 3 * HOUR),
        ("node[1-3]", DAY + 3 * HOUR, 0),
    ]
    before = snapshot(database)
    database.store(STATE, [(8, ran(1, DAY, DAY + 1))])
    database.reroll(STATE)
    assert cluster(database, What.DOWN)[HOUR] == 160 + 16 * (HOUR - 20)
    assert before != snapshot(database)


def test_reservations_count_while_they_keep_their_nodes(database: Database) -> None:
    course = Reservation("course", DAY + 100, DAY + HOUR + 50, ("SPEC_NODES",), users=("ada",))
    longer = Reservation("course", DAY + 100, DAY + 2 * HOUR, ("SPEC_NODES",), users=("ada",))
    maint = Reservation("maint", DAY, DAY + 60, ("MAINT",))
    around = Reservation("around", DAY, DAY + 60, ("IGNORE_JOBS",))
    has = {"cpu": 10}
    database.store(
        STATE,
        [
            (1, Told(DAY, Reserved(course, False, has))),
            (2, Told(DAY, Reserved(maint, False, has))),
            (3, Told(DAY, Reserved(around, False, has))),
            # The same once more, as after a start of the controller.
            (4, Told(DAY + 200, Reserved(course, False, has))),
            (5, Told(DAY + HOUR, Reserved(longer, False, {"cpu": 20}))),
            (6, Told(DAY + HOUR + 30, Reserved(longer, True, {"cpu": 20}))),
            (7, Told(DAY + 60, Reserved(maint, True, has))),
            (8, Told(DAY + 60, Reserved(around, True, has))),
        ],
    )
    assert cluster(database, What.RESERVED) == {0: 10 * (HOUR - 100), HOUR: 20 * 30}
    assert cluster(database, What.PLANNED_DOWN) == {0: 600}


def test_policy_is_kept_with_its_times(database: Database) -> None:
    add = PolicyChange(
        [Account("physics", "d"), Assoc(5, "physics", created=DAY + 1)],
        done=[Transaction("ada", "Add Accounts", "physics", "x")],
    )
    change = PolicyChange([Assoc(5, "physics", shares=9, created=DAY + 1)])
    gone = PolicyChange(gone=[Account("physics", "d")])
    database.store(
        STATE,
        [(1, Told(DAY + 1, add)), (2, Told(DAY + 2, change)), (3, Told(DAY + 3, gone))],
    )
    column = schema.policies.c
    question = sa.select(
        column.kind, column.name, column.created, column.modified, column.deleted
    ).order_by(column.kind, column.name)
    found = database._do(lambda c: [tuple(row) for row in c.execute(question)])
    assert found == [
        ("account", "physics", DAY + 1, DAY + 3, DAY + 3),
        ("assoc", "5", DAY + 1, DAY + 2, 0),
    ]
    who = sa.select(schema.transactions.c.actor, schema.transactions.c.action)
    assert database._do(lambda c: [tuple(row) for row in c.execute(who)]) == [
        ("ada", "Add Accounts")
    ]
    # What SQL does not know of is put right when the projector begins.
    database.sync(STATE, "peer", [Account("bio")], DAY + 4)
    found = database._do(lambda c: [tuple(row) for row in c.execute(question)])
    assert [(kind, name, deleted) for kind, name, _, _, deleted in found] == [
        ("account", "bio", 0),
        ("account", "physics", DAY + 3),
        ("assoc", "5", DAY + 4),
    ]
