"""What a worker reads and allows, without a process: real store, real records."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest

from gsched.controller.clock import Clock
from gsched.controller.orders import pack
from gsched.frontend.limits import Accounts, Limits
from gsched.frontend.reader import Behind, Mirror, Reads
from gsched.model import Job, JobSpec, JobState, Node, NodeAlloc, Verdict
from gsched.store import Store, StoreReader, ViewStore, number_key
from gsched.wire.codec import decode
from gsched.wire.messages import (
    Blob,
    BlobQuery,
    FromFrontend,
    JobQuery,
    JobRows,
    NodeQuery,
    NodeRows,
    Read,
    Refused,
    Status,
    StatusQuery,
)
from gsched.wire.nodes import Forget, LaunchSpec, Prepare

SMALL = 64 << 20


def job(number: int, uid: int = 1000, state: JobState = JobState.PENDING, **more: object) -> Job:
    return Job(number, uid, uid, "user", "group", JobSpec(name=f"j{number}"), state=state, **more)  # type: ignore[arg-type]


def record(value: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(value)


JOBS = [
    job(1, state=JobState.COMPLETED, script="s" * 40),
    job(2, uid=1001),
    job(3, state=JobState.FAILED, completing=True),
    job(4, state=JobState.RUNNING),
]


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    store = Store.open(str(tmp_path), map_size=SMALL)
    store.commit(
        {
            **{("job", number_key(j.id)): record(j) for j in JOBS},
            ("node", b"n1"): record(Node("n1")),
            ("blob", b"s" * 40): b"#!/bin/sh\n",
        }
    )
    store.close()
    view = ViewStore(str(tmp_path))
    verdict = Verdict(2, "Resources")
    view.put({("verdict", number_key(2)): record(verdict)})
    view.close()
    return Reads(str(tmp_path), "cluster", frozenset({0}))


def ask(reads: Reads, query: Read, uid: int = 1000) -> FromFrontend:
    return decode(FromFrontend, reads.answer(query, uid, True))


def ids(reads: Reads, query: JobQuery) -> list[int]:
    rows = ask(reads, query)
    assert isinstance(rows, JobRows)
    return [found.id for found in rows.jobs]


def test_rows_are_the_records(reads: Reads) -> None:
    rows = ask(reads, JobQuery())
    assert isinstance(rows, JobRows)
    assert rows.jobs == JOBS
    assert rows.verdicts == {2: Verdict(2, "Resources")}
    nodes = ask(reads, NodeQuery())
    assert isinstance(nodes, NodeRows) and nodes.nodes == [Node("n1")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (JobQuery(ids=[4, 2, 2, 77, -3]), [2, 4]),
        (JobQuery(uids=[1001]), [2]),
        (JobQuery(uids=[1000], ids=[2, 3]), [3]),
        (JobQuery(active_only=True), [2, 3, 4]),
        (JobQuery(active_only=True, uids=[1000]), [3, 4]),
        (JobQuery(uids=[5]), []),
    ],
)
def test_filters(reads: Reads, query: JobQuery, expected: list[int]) -> None:
    assert ids(reads, query) == expected


def test_a_version_that_is_not_there_yet_is_waited_for(reads: Reads) -> None:
    version = ask(reads, JobQuery()).version  # type: ignore[union-attr]
    reads.answer(JobQuery(min_version=version), 0, True)
    with pytest.raises(Behind):
        reads.answer(JobQuery(min_version=version + 1), 0, True)


def promise(state: Path, number: int) -> None:
    """As a controller does that has not settled it yet."""
    with (state / "main" / "journal").open("r+b") as file:
        file.write(number.to_bytes(8, "little"))


def test_what_others_were_told_is_waited_for(tmp_path: Path) -> None:
    """The answer to a write may be there before readers see what it did: who reads after it sees
    it. If the controller was killed between the two, reads do not stop for that."""
    store = Store.open(str(tmp_path), map_size=SMALL)
    store.commit({("job", number_key(1)): record(JOBS[1])})
    store.close()
    ViewStore(str(tmp_path)).close()
    reads = Reads(str(tmp_path), "cluster", frozenset({0}))
    assert ids(reads, JobQuery()) == [2]
    version = ask(reads, JobQuery()).version  # type: ignore[union-attr]
    promise(tmp_path, version)
    assert ids(reads, JobQuery()) == [2]
    promise(tmp_path, version + 1)
    for query in (JobQuery(), JobQuery(ids=[2]), NodeQuery(), BlobQuery(2, "script")):
        with pytest.raises(Behind):
            reads.answer(query, 0, True)
    assert reads.give_up()
    assert ids(reads, JobQuery()) == [2]
    assert not reads.give_up()
    # Of the next one it is not known that it is in vain.
    promise(tmp_path, version + 2)
    with pytest.raises(Behind):
        reads.answer(JobQuery(), 0, True)


def test_a_question_waits_for_no_later_promise(tmp_path: Path) -> None:
    """Under writes without a pause the last one is never in the database yet: a question is owed
    what had been told when it came."""
    store = Store.open(str(tmp_path), map_size=SMALL)
    store.commit({("job", number_key(1)): record(JOBS[1])})
    version = store.version
    store.close()
    ViewStore(str(tmp_path)).close()
    reads = Reads(str(tmp_path), "cluster", frozenset({0}))
    promise(tmp_path, version)
    known = reads.promised
    assert known == version
    promise(tmp_path, version + 1)
    reads.answer(JobQuery(), 0, True, known)
    with pytest.raises(Behind):
        reads.answer(JobQuery(), 0, True, reads.promised)
    # What a state that lay here before had promised says nothing of this one.
    promise(tmp_path, 0)
    reads.answer(JobQuery(), 0, True, version + 7)


def test_what_does_not_come_is_waited_for_once(tmp_path: Path) -> None:
    """Not once more in every worker, long after the controller was killed."""
    store = Store.open(str(tmp_path), map_size=SMALL)
    version = store.version
    store.close()
    ViewStore(str(tmp_path)).close()
    reads = Reads(str(tmp_path), "cluster", frozenset({0}))
    promise(tmp_path, version + 1)
    for now, waits in ((100.0, True), (104.9, True), (105.0, False), (500.0, False)):
        reads.watch(now, 5.0)
        if waits:
            with pytest.raises(Behind):
                reads.answer(JobQuery(), 0, False)
        else:
            reads.answer(JobQuery(), 0, False)
    promise(tmp_path, version + 2)
    reads.watch(501.0, 5.0)
    with pytest.raises(Behind):
        reads.answer(JobQuery(), 0, True)


def test_a_journal_made_anew_or_cut_off_is_noticed(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path), map_size=SMALL)
    version = store.version
    store.close()
    ViewStore(str(tmp_path)).close()
    reads = Reads(str(tmp_path), "cluster", frozenset({0}))
    promise(tmp_path, version)
    reads.answer(JobQuery(), 0, True)
    journal = tmp_path / "main" / "journal"
    journal.unlink()
    reads.refresh()
    reads.answer(JobQuery(), 0, True)
    journal.write_bytes(bytes(128 << 10))
    promise(tmp_path, version + 1)
    reads.refresh()
    with pytest.raises(Behind):
        reads.answer(JobQuery(), 0, True)
    # A mapped file would end the process here.
    os.truncate(journal, 0)
    reads.answer(JobQuery(), 0, True)


def test_scripts_are_their_owners(reads: Reads) -> None:
    assert ask(reads, BlobQuery(1, "script"), 1000) == Blob(b"#!/bin/sh\n")
    assert ask(reads, BlobQuery(1, "script"), 0) == Blob(b"#!/bin/sh\n")
    assert ask(reads, BlobQuery(1, "environment"), 1000) == Blob(b"")
    for query, uid, text in (
        (BlobQuery(1, "script"), 1001, "Invalid user id"),
        (BlobQuery(99, "script"), 1000, "Invalid job id specified"),
        (BlobQuery(-1, "script"), 1000, "Invalid job id specified"),
        (BlobQuery(1, "password"), 1000, "a job has no 'password'"),
    ):
        answer = ask(reads, query, uid)
        assert isinstance(answer, Refused) and answer.message == text


def test_nothing_to_read(tmp_path: Path) -> None:
    reads = Reads(str(tmp_path / "absent"), "cluster", frozenset())
    answer = ask(reads, JobQuery())
    assert isinstance(answer, Refused) and answer.temporary
    status = ask(reads, StatusQuery())
    assert isinstance(status, Status) and status.cluster_name == "cluster"


def test_mirror_follows_the_index(tmp_path: Path) -> None:
    """Whatever happens to the records, an updated mirror equals a new one."""
    rng = random.Random(7)
    mirror = Mirror()
    for _ in range(12):
        store = Store.open(str(tmp_path), map_size=SMALL)
        for _ in range(rng.randint(1, 4)):
            changes: dict[tuple[str, bytes], bytes | None] = {}
            for number in rng.sample(range(1, 30), 6):
                state = rng.choice([JobState.PENDING, JobState.RUNNING, JobState.COMPLETED])
                gone = rng.random() < 0.3
                value = job(number, 1000 + number % 3, state)
                changes["job", number_key(number)] = None if gone else record(value)
            store.commit(changes)
        store.close()
        fresh = Mirror()
        reader = StoreReader(str(tmp_path))
        with reader.snapshot() as snapshot:
            mirror.update(snapshot)
            fresh.update(snapshot)
        reader.close()
        assert mirror.jobs == fresh.jobs
        assert mirror.by_uid == fresh.by_uid
        assert mirror.active == fresh.active


def test_rate_limit_is_slurms_bucket() -> None:
    limits = Limits.from_parameters(["rl_enable", "rl_bucket_size=3", "rl_refill_rate=2", "odd"])
    accounts = Accounts(limits)
    user = accounts.user(1000, 10.0)
    assert [accounts.take_token(user, 10.0) for _ in range(4)] == [True, True, True, False]
    # Two more each second, never above three.
    assert [accounts.take_token(user, 10.5) for _ in range(2)] == [True, False]
    assert [accounts.take_token(user, 99.0) for _ in range(4)] == [True, True, True, False]
    accounts.purge(99.1)
    assert accounts.users == {1000: user}
    accounts.purge(101.0)
    assert accounts.users == {}


def test_without_rl_enable_there_is_no_rate() -> None:
    accounts = Accounts(Limits.from_parameters(["rl_bucket_size=1"]))
    user = accounts.user(1000, 0.0)
    assert all(accounts.take_token(user, 0.0) for _ in range(1000))


def test_orders_get_their_content_and_stay_small() -> None:
    started = job(1, alloc=[NodeAlloc("n1", 1, 1, 1), NodeAlloc("n2", 1, 1, 1)], script="a" * 40)
    launches = [LaunchSpec(started, index, [], 0) for index in (0, 1)]
    orders = [
        Prepare(1, launches[0], False),
        Prepare(2, launches[1], False),
        Forget(3, 7, 1),
        *(Prepare(n, launches[0], True) for n in range(4, 10)),
    ]
    packed = list(pack(5, "s", orders, lambda digest: b"x" * (1 << 20)))
    assert [order.n for message in packed for order in message.orders] == list(range(1, 10))
    assert len(packed) == 2
    first, second = packed[0].orders[:2]
    assert isinstance(first, Prepare) and first.launch.script == b"x" * (1 << 20)
    # Only the batch host gets the script, and the ledger's own order stays without it.
    assert isinstance(second, Prepare) and second.launch.script == b""
    assert launches[0].script == b""
    (empty,) = pack(5, "s", orders[:1], lambda digest: None)
    assert isinstance(empty.orders[0], Prepare) and empty.orders[0].launch.script == b""


def test_time_does_not_go_back_across_a_restart() -> None:
    ahead = Clock(4e9)
    assert ahead.behind > 0
    first = ahead.now()
    assert 4e9 <= first <= ahead.now() < 4e9 + 60
    assert Clock(0.0).behind == 0.0
