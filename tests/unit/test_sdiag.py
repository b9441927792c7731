"""sdiag: lines as in the transcript of Slurm 26.05 (035), and what is counted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from views_support import invoke, peer_cluster, transcript

from gsched.controller.statistics import Counter, stopwatch
from gsched.ledger import Start
from gsched.model import JobState, Phase
from gsched.model.statistics import Cycles, JobCounts, Served, Statistics
from gsched.scheduling import run_pass
from gsched.wire.messages import Call, CancelJobs, Diagnose, Done, Refused
from gsched_cli import sdiag
from tests.unit.ledger_support import Bench, at

#: what the transcript says, but for what has no counterpart here
FOUND = Statistics(
    now=1795960484,
    since=1795960007,
    jobs=JobCounts(249, 148, 132, 95, 0),
    pending=1,
    running=0,
    passes=Cycles(127, 1449, 4024, 576 * 127, 1, 127, 1, 127, 1795960457),
    complete=127,
    backfilled=8,
    backfilled_ever=8,
    backfilled_het=2,
    plans=Cycles(8, 443, 813, 509 * 8, 3, 8, 4, 8, 1795960337),
    messages={
        "SubmitJob": Served(247, 131201),
        "CancelJobs": Served(102, 67443),
        "UpdateJob": Served(36, 6429),
        "UpdateNode": Served(9, 2575),
        "ManagePolicy": Served(8, 374),
        "Register": Served(8, 1261),
        "UpdatePartition": Served(4, 785),
        "Ping": Served(3, 142),
        "Reconfigure": Served(1, 0),
        "Shutdown": Served(1, 73),
    },
    users={0: Served(4832, 657340), 1001: Served(10, 2433), 64030: Served(9, 374)},
    names={0: "root", 1001: "alice", 64030: "slurm"},
)
#: lines of Slurm's that tell of what there is none of here
NOT_HERE = re.compile(
    r"default_queue_depth|licenses|max_rpc_cnt|Timeout|try |table size|Backfill exit|bf_max_job"
    r"|System state|End of job queue: 8|REQUEST_|MESSAGE_|Latency|Job states ts"
)
OURS = ("SUBMIT_BATCH_JOB", "KILL_JOB", "UPDATE_", "_PING", "RECONFIGURE", "SHUTDOWN")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.shared
def test_lines_are_those_of_the_transcript(shared: Path) -> None:
    case = transcript(shared, "035")["sdiag"]
    told = sdiag.report(FOUND, sdiag._ORDERS[""], 22)
    expected = [line for line in case.stdout.splitlines() if line and not NOT_HERE.search(line)]
    expected += [line for line in case.stdout.splitlines() if any(w in line for w in OURS)]
    missing = [line for line in expected if line not in told]
    assert missing == []


def test_orders() -> None:
    def names(letter: str) -> list[str]:
        lines = sdiag.report(FOUND, sdiag._ORDERS[letter], 0)
        return [line.split()[0] for line in lines if line.startswith("\tREQUEST")]

    assert names("")[:2] == ["REQUEST_SUBMIT_BATCH_JOB", "REQUEST_KILL_JOB"]
    assert names("i")[:2] == ["REQUEST_RECONFIGURE", "REQUEST_SHUTDOWN"]
    assert names("t")[:2] == ["REQUEST_SUBMIT_BATCH_JOB", "REQUEST_KILL_JOB"]
    assert names("T")[:2] == ["REQUEST_KILL_JOB", "REQUEST_SUBMIT_BATCH_JOB"]


def asked(*argv: str, answer: Done | Refused | None = None) -> tuple[str, str, int]:
    data = msgspec.json.encode(FOUND).decode()
    reader = peer_cluster()
    reader.answers = [answer or Done(b"", 1, data=data)]
    return invoke(sdiag.run, argv, reader, {})


def test_the_command() -> None:
    out, err, code = asked()
    assert (out.splitlines()[11], err, code) == ("Jobs submitted: 249", "", 0)
    out, _, code = asked("--json")
    told = msgspec.json.decode(out)["statistics"]
    assert (told["jobs_submitted"], told["schedule_cycle_mean"], code) == (249, 576, 0)
    assert asked("-r", answer=Refused(b"", "Access/permission denied")) == (
        "",
        "slurm_get_statistics: Access/permission denied\n",
        1,
    )
    assert asked("--usage") == ("Usage: sdiag [-M cluster] [-aritT]\n", "", 0)
    assert asked("--bogus")[2] == 1


def test_what_is_counted() -> None:
    b = Bench()
    counter = Counter(b.now)

    def run() -> None:
        plan = run_pass(b.led, b.now)
        b.apply(Start(plan))
        counter.passed(b.led, plan, 100, b.now)

    first, second = b.job(), b.job()
    b.job(array="1-3")
    run()
    b.report(first.alloc[0].node, at(first, Phase.RELEASED, wstatus=0))
    write = CancelJobs([str(second.id)])
    counter.request(Call(b"1", write, uid=1000, user="alice"), stopwatch())
    b.write(write)
    assert b.led.counts.submitted == 5
    assert b.led.counts.started == 5
    assert b.led.jobs[first.id].state == JobState.COMPLETED
    assert (b.led.counts.completed, b.led.counts.failed) == (1, 0)
    reply = counter.answer(Call(b"2", Diagnose(), uid=1000), Diagnose(), b.led, b.now + 9)
    assert isinstance(reply, Done)
    found = msgspec.json.decode(reply.data, type=Statistics)
    assert (found.now - found.since, found.passes.count, found.passes.total) == (9, 1, 100)
    assert (found.messages["CancelJobs"].count, found.names) == (1, {1000: "alice"})
    reset = Diagnose(reset=True)
    assert isinstance(counter.answer(Call(b"3", reset, uid=1000), reset, b.led, b.now), Refused)
    assert isinstance(counter.answer(Call(b"4", reset, uid=0), reset, b.led, b.now), Done)
    assert b.led.counts == JobCounts()
