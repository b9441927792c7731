"""sreport side by side with Slurm's answers on the same history (sreport.txt, of Slurm 22.05)."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from views_support import FakeReader

from gsched.accounting.calendar import Calendar
from gsched.accounting.database import Database
from gsched.accounting.report import LiveRows, answer
from gsched.accounting.sql_news import Told
from gsched.model import Account, Assoc, ClusterSize, Reservation, Reserved, ReservedNode
from gsched.model.acct import AcctJob
from gsched.wire.report import ReportQuery, ReportRows
from gsched_cli.common import Streams
from gsched_cli.sreport import run

STATE = "uuid"
HERE = Path(__file__).parent
DAY = int(datetime(2026, 11, 30, tzinfo=UTC).timestamp())
NOW = DAY + 9 * 3600 + 600
SIZE = {
    "cpu": 64,
    "mem": 256000,
    "node": 4,
    "billing": 64,
    "gres/gpu": 32,
    "gres/gpu:h100": 32,
}


def at(text: str) -> int:
    return int(datetime.fromisoformat(f"2026-11-30T{text}+00:00").timestamp())


def job(number: int, account: str, start: str, end: str, cpus: int, gpus: int = 0) -> AcctJob:
    more = f",gres/gpu:h100={gpus},gres/gpu={gpus}" if gpus else ""
    text = f"billing={cpus},cpu={cpus}{more},mem={cpus * 2000}M,node=1"
    first, last = at(start), at(end)
    return AcctJob(
        job_id=number,
        restarts=0,
        begun=first,
        group_id=number,
        sub_id=0,
        uid=0,
        gid=0,
        user_name="root",
        account=account,
        assoc_id={"root": 2, "research": 5, "prod": 7}[account],
        partition_name="gpu",
        state="COMPLETED",
        submit=first,
        eligible=first - 1,
        start=first,
        end_time=last,
        elapsed_s=last - first,
        alloc_tres=text,
        # Slurm counts waiting for CPUs only; here it is counted for GPUs too (compatibility.md).
        req_tres=f"cpu={cpus}",
        alloc_cpus=cpus,
        nodes="node1" if account == "prod" else "node2",
    )


@dataclass
class SqlReader(FakeReader):
    """Answers reports from a database."""

    database: Database | None = None
    live: LiveRows = field(default_factory=LiveRows)

    def report(self, query: ReportQuery) -> ReportRows:
        assert self.database is not None
        return answer(self.database, query, self.live)


@pytest.fixture
def reader(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlReader]:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    database = Database(url, calendar=Calendar(UTC))
    database.migrate()
    policy = [
        Account("root"),
        Account("prod"),
        Account("research"),
        Assoc(1, "root"),
        Assoc(2, "root", "root"),
        Assoc(3, "prod", parent="root"),
        Assoc(4, "research", parent="root"),
        Assoc(5, "research", "root"),
        Assoc(7, "prod", "root"),
    ]
    database.sync(STATE, "peer", policy, DAY)
    nodes = (ReservedNode("node4"),)
    course = Reservation(
        "course", at("08:14:48"), at("08:44:48"), ("SPEC_NODES",), nodes, users=("root",)
    )
    facts = [
        (1, Told(at("08:07:48"), ClusterSize("node[1-4]", SIZE, [], True))),
        (2, Told(at("08:13:48"), Reserved(course, False, {"cpu": 16}))),
        (3, job(4, "prod", "08:13:49", "08:20:29", 16, 4)),
        *((n + 3, job(n, "research", "08:13:49", "08:23:49", 4)) for n in (1, 2, 3)),
        (7, job(5, "research", "08:13:49", "08:28:49", 2, 2)),
        (8, Told(at("08:44:48"), Reserved(course, True, {"cpu": 16}))),
    ]
    database.store(STATE, facts)
    live = LiveRows(STATE, "peer", NOW, outbox_next=9)
    made = SqlReader(cluster="peer", clock=float(NOW), database=database, live=live)
    made.policy_records = list(policy)
    yield made
    database.close()
    monkeypatch.undo()
    time.tzset()


def cases() -> list[tuple[str, str, int]]:
    """(command line, what it printed, exit code)."""
    found = []
    for part in (HERE / "sreport.txt").read_text().split("$ sreport ")[1:]:
        command, _, rest = part.partition("\n")
        printed, _, code = rest.rpartition("rc=")
        found.append((command, printed, int(code)))
    return found


def sreport(reader: SqlReader, *words: str) -> tuple[str, str, int]:
    out, err = io.StringIO(), io.StringIO()
    code = run(list(words), {}, "/", Streams(io.StringIO(), out, err), reader)
    return out.getvalue(), err.getvalue(), code


def test_as_slurm_answers(reader: SqlReader) -> None:
    wrong = []
    for command, printed, code in cases():
        out, err, rc = sreport(reader, *shlex.split(command))
        if (err + out, rc) != (printed, code):
            wrong.append(
                f"$ sreport {command}\n--- Slurm ({code})\n{printed}--- here ({rc})\n{err}{out}"
            )
    assert not wrong, "\n\n".join(wrong)


def test_who_asks_for_users_is_told_no_sums(reader: SqlReader) -> None:
    """A 22.05 with users= lists the users' own lines alone."""
    times = ("start=2026-11-30T08:00:00", "end=2026-11-30T09:00:00")
    report = ("-nP", "cluster", "AccountUtilizationByUser", *times)
    all_, _, _ = sreport(reader, *report)
    alone, err, code = sreport(reader, *report, "users=root")
    assert (err, code) == ("", 0)
    lines = alone.splitlines()
    assert lines and all(line.split("|")[2] == "root" for line in lines)
    assert lines == [line for line in all_.splitlines() if line.split("|")[2] == "root"]


def test_lines_of_a_file_are_seen(reader: SqlReader) -> None:
    """As a 22.05 whose commands came through a pipe."""
    out, err = io.StringIO(), io.StringIO()
    streams = Streams(io.StringIO("time percent\nfoo\nexit\n"), out, err)
    assert run([], {}, "", streams, reader) == 1
    assert out.getvalue() == "sreport: time percent\nsreport: foo\nsreport: exit\n"
    assert err.getvalue() == "invalid keyword: foo\n"
    said = "too many arguments for keyword:quit\n"
    assert sreport(reader, "quit", "foo") == ("", said, 1)
