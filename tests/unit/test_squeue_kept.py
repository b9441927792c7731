"""Reports that a worker keeps: as if made anew, whatever has changed, and nobody sees another's."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gsched.client import RequestRefused
from gsched.frontend import changes as changes_module
from gsched.frontend.reader import Reads
from gsched.model import (
    Hold,
    Job,
    JobSpec,
    JobState,
    NodeAlloc,
    Phase,
    Shape,
    StartEstimates,
    Verdict,
)
from gsched.store import Snapshot, Store, ViewStore, number_key
from gsched.store.versioned import Versioned
from gsched.wire.changes import JobChanges, JobDelta
from gsched.wire.codec import decode
from gsched.wire.messages import FromFrontend, JobQuery, JobRows, Refused, Status, StatusQuery
from gsched_cli import queue_kept, queue_records
from gsched_cli.common import Streams
from gsched_cli.fields_job import job_table
from gsched_cli.kept import Kept
from gsched_cli.queue_lines import QueueLines
from gsched_cli.queue_records import Records
from gsched_cli.squeue import run

SMALL = 64 << 20
T0 = 1_800_000_000
#: reports that look at different things
REPORTS: list[tuple[list[str], dict[str, str]]] = [
    ([], {}),
    (["-l"], {}),
    (["-t", "all", "-o", "%all"], {}),
    (["-t", "all", "-O", "all"], {}),
    (["-r", "-o", "%i %T %M"], {}),
    (["-o", "%i|%K|%r|%R|%p|%S"], {}),
    (["--start"], {}),
    (["-u", "1001", "-S", "-M,i"], {}),
    (["--me"], {}),
    (["-S", "S,-j", "-o", "%i|%S|%e|%L|%Y|%r"], {"SLURM_TIME_FORMAT": "relative"}),
    (["-O", "JobArrayId,PendingTime,AccrueTime"], {"TZ": "UTC"}),
    (["-t", "PD,CG", "-p", "debug", "-o", "%i %P %r %%"], {}),
    (["-t", "R", "-S", "-j", "-o", "%i%%s %j %N"], {}),
    (["-w", "n1"], {}),
]


class SameProcess:
    """A reader's side on the writer's environment: one process must not have it open twice."""

    def __init__(self, db: Versioned) -> None:
        self._db = db
        self.inode = 1
        self.reopened = 1
        self.promised = 0

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        dbs = self._db._dbs | {"changes": self._db._ring, "_version": self._db._state}
        with self._db._env.begin(buffers=True) as txn:
            yield Snapshot(txn, dbs)


class Cluster:
    """Both stores as the controller writes them, and a reader as a worker has one."""

    def __init__(self, folder: Path, *, private: bool = False) -> None:
        self.store = Store.open(str(folder), map_size=SMALL)
        self.view = ViewStore(str(folder))
        self.view.put(
            {("status", b"controller"): msgspec.msgpack.encode(Status("u", "c", 1, 1, True))}
        )
        self.store.commit({("node", b"n1"): b"\x90"})
        self.reads = Reads(str(folder), "c", frozenset({0}), private=private)
        self.reads._main = SameProcess(self.store._db)  # type: ignore[assignment]
        self.reads._view = SameProcess(self.view._db)  # type: ignore[assignment]
        self.jobs: dict[int, Job] = {}
        self.now = float(T0)
        self.uid = 1001
        self.asked: list[str] = []
        self.rows = 0

    def close(self) -> None:
        self.reads.close()
        self.view.close()
        self.store.close()

    def write(self, *jobs: Job) -> None:
        self.jobs |= {job.id: job for job in jobs}
        self.store.commit({("job", number_key(j.id)): msgspec.msgpack.encode(j) for j in jobs})

    def forget(self, job_id: int) -> None:
        del self.jobs[job_id]
        self.store.commit({("job", number_key(job_id)): None})
        self.view.put({("verdict", number_key(job_id)): None})

    def tell(self, *verdicts: Verdict, words: dict[int, str] | None = None) -> None:
        found = {("verdict", number_key(v.job_id)): msgspec.msgpack.encode(v) for v in verdicts}
        self.view.put({**found}, words)

    def expect(self, late: dict[int, int]) -> None:
        import array

        packed = StartEstimates(
            array.array("q", late.keys()).tobytes(), array.array("q", late.values()).tobytes()
        )
        self.view.put({("plan", b"estimates"): msgspec.msgpack.encode(packed)})

    # ---- as a Reader

    def jobs_of(self, query: JobQuery) -> JobRows:
        found = decode(FromFrontend, self.reads.answer(query, self.uid, True))
        assert isinstance(found, JobRows)
        self.asked.append("jobs")
        self.rows += len(found.jobs)
        return found

    def changes(self, query: JobChanges) -> JobDelta:
        found = decode(FromFrontend, self.reads.answer(query, self.uid, True))
        assert isinstance(found, JobDelta)
        self.asked.append("whole" if found.whole else "changes")
        self.rows += len(found.jobs)
        return found


class Reader:
    """What squeue is given; only what it asks for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.jobs = cluster.jobs_of
        self.changes = cluster.changes
        self.gid = 0

    @property
    def uid(self) -> int:
        return self._cluster.uid

    def now(self) -> float:
        return self._cluster.now

    def status(self) -> Status:
        found = decode(FromFrontend, self._cluster.reads.answer(StatusQuery(), 0, True))
        assert isinstance(found, Status)
        return found

    def nodes(self, _: object) -> object:
        from types import SimpleNamespace

        return SimpleNamespace(nodes=[SimpleNamespace(name="n1")])


def shown(
    cluster: Cluster, kept: Kept[QueueLines | Records] | None, argv: list[str], env: dict[str, str]
) -> tuple[str, str, int]:
    out, err = io.StringIO(), io.StringIO()
    code = run(argv, env, "/", Streams(io.StringIO(), out, err, kept=kept), Reader(cluster))  # type: ignore[arg-type]
    return out.getvalue(), err.getvalue(), code


def make(number: int, rng: random.Random, now: int) -> Job:
    spec = JobSpec(
        name=rng.choice(["a", "train", "ünï", "%s"]),
        shape=Shape(ntasks=rng.randint(1, 4)),
        partitions=rng.choice([("debug",), ("gpu", "debug")]),
        begin=rng.choice([0, now + 3]),
        time_limit=600,
    )
    job = Job(number, rng.choice([1001, 1002]), 100, "u", "g", spec, script="s")
    job.partition, job.time_limit = spec.partitions[0], rng.choice([0, 600])
    job.priority = rng.randint(1, 5)
    job.submit_time = job.eligible_time = now
    if rng.random() < 0.2:
        job.array_job_id, job.array_pending = number, rng.choice(["0-3", "1,5"])
    elif rng.random() < 0.4:
        # It was one of those.
        job.array_job_id, job.array_task_id = rng.randint(1, number), 10 + number
    return job


def change(cluster: Cluster, rng: random.Random) -> None:
    """Something happens."""
    now = int(cluster.now)
    waiting = [job for job in cluster.jobs.values() if job.state is JobState.PENDING]
    running = [job for job in cluster.jobs.values() if job.state is JobState.RUNNING]
    what = rng.randrange(11)
    if what == 0 or not cluster.jobs:
        first = max(cluster.jobs, default=0) + 1
        cluster.write(*(make(first + n, rng, now) for n in range(rng.randint(1, 5))))
    elif what == 1 and waiting:
        job = rng.choice(waiting)
        job.state, job.start_time, job.configuring = JobState.RUNNING, now, rng.random() < 0.5
        job.array_pending, job.attempt = "", 1
        job.alloc = [NodeAlloc("n1", 1, 1, 1, phase=Phase.PLACED)]
        cluster.write(job)
        cluster.tell(words={job.id: ""})
    elif what == 2 and running:
        job = rng.choice(running)
        job.configuring = False
        if rng.random() < 0.5:
            job.state, job.end_time = JobState.COMPLETED, now
            job.completing, job.last_nodes = rng.random() < 0.5, "n1"
        elif rng.random() < 0.5:
            job.state, job.pre_suspend_s, job.suspend_time = JobState.SUSPENDED, 4, now
        cluster.write(job)
    elif what == 3:
        cluster.forget(rng.choice(list(cluster.jobs)))
    elif what == 4 and waiting:
        cluster.tell(words={j.id: rng.choice(["Resources", "Priority"]) for j in waiting[:3]})
    elif what == 5 and waiting:
        job = rng.choice(waiting)
        cluster.tell(Verdict(job.id, "Resources", rng.choice([0, now + 9]), rng.choice(["", "n1"])))
    elif what == 6:
        cluster.expect({job.id: now + rng.randint(1, 5) for job in waiting if rng.random() < 0.7})
    elif what == 7 and waiting:
        job = rng.choice(waiting)
        job.priority = rng.randint(1, 5)
        job.held = rng.choice([Hold.NONE, Hold.USER])
        cluster.write(job)
    elif what == 8:
        # Many at once: the order is made anew.
        for job in waiting:
            job.priority = rng.randint(1, 1000)
        cluster.write(*waiting)
    else:
        cluster.now += rng.choice([0.0, 0.25, 1.0, 3.0, 90_000.0])
        if rng.random() < 0.05:
            cluster.now -= 2


def some_report(rng: random.Random) -> tuple[list[str], dict[str, str]]:
    """One that was hardly asked for before, of fields that others have shown."""
    table = job_table({})
    letters = "".join(table.letters)
    shown_of = "|".join(f"%{rng.choice(['', '5', '.9'])}{x}" for x in rng.sample(letters, 4))
    argv = ["-o", shown_of]
    if rng.random() < 0.3:
        names = [field.names[0] for field in rng.sample(table.fields, 3)]
        argv = ["-O", ",".join(f"{name}:{rng.choice(['', '7', '.4'])}" for name in names)]
    if rng.random() < 0.5:
        argv += ["-S", ",".join(rng.choice(["", "-"]) + x for x in rng.sample(letters, 2))]
    some = ["-t", "all"], ["-r"], ["-u", "1002"], ["-p", "gpu"], ["-n", "a"], ["--noconvert"], []
    env = {"SLURM_BITSTR_LEN": "3"} if rng.random() < 0.2 else {}
    return argv + rng.choice(some), env


@pytest.mark.parametrize("seed", range(6))
def test_kept_says_what_fresh_says(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(tmp_path)
    kept: Kept[QueueLines | Records] = Kept()
    try:
        for _ in range(120):
            for _ in range(rng.choice([0, 1, 1, 2, 5])):
                change(cluster, rng)
            cluster.uid = rng.choice([0, 1001, 1002])
            for argv, env in (*rng.sample(REPORTS, 4), some_report(rng)):
                assert shown(cluster, kept, argv, env) == shown(cluster, None, argv, env), argv
    finally:
        cluster.close()
    # It is really the changes that were asked for.
    assert cluster.asked.count("changes") > 3 * cluster.asked.count("whole")


def test_a_new_report_is_made_of_what_is_kept(cluster: Cluster) -> None:
    """Nobody has asked for it: the jobs are there all the same, and what has changed is in it."""
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(*(job(n) for n in range(1, 1001)))
    ids(cluster, kept)
    cluster.write(job(7, state=JobState.CANCELLED), job(9, priority=5), job(1001))
    cluster.tell(words={8: "Resources"})
    cluster.rows = 0
    out, err, code = shown(cluster, kept, ["-h", "-S", "-i", "-o", "%i %j %r"], {})
    lines = [
        f"{n} j{n} {'Resources' if n == 8 else 'None'}\n" for n in range(1001, 0, -1) if n != 7
    ]
    assert (out, err, code) == ("".join(lines), "", 0)
    assert (cluster.asked, cluster.rows) == (["whole", "changes"], 2)
    # One user's few jobs are not a reason to ask for everybody's, but they serve if they are there.
    assert ids(cluster, kept, "-u", "1001", "-S", "i") == [n for n in range(1, 1002) if n != 7]
    assert cluster.rows == 2


def test_a_few_jobs_of_one_user_are_asked_for_alone(cluster: Cluster) -> None:
    cluster.write(*(job(n, 1001 if n % 100 else 1002) for n in range(1, 1001)))
    kept: Kept[QueueLines | Records] = Kept()
    assert ids(cluster, kept, "-u", "1002") == [*range(100, 1001, 100)]
    assert cluster.rows == 10


def test_cells_that_many_fields_left_behind_are_bounded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_records, "CELLS", 12 * queue_records.CELL_BYTES)
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(*(job(n) for n in range(1, 6)))
    for argv in (["-O", "all"], ["-o", "%i %j"], ["-o", "%j %i"]):
        assert shown(cluster, kept, argv, {}) == shown(cluster, None, argv, {})
    records = kept.take((None, (Records, True)))
    assert isinstance(records, Records)
    assert records.bytes <= 5 * queue_records.RECORD_BYTES + 5 * 2200 + 12 * 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()


def job(number: int, uid: int = 1001, **more: object) -> Job:
    return Job(number, uid, 100, "u", "g", JobSpec(name=f"j{number}"), partition="debug", **more)  # type: ignore[arg-type]


def ids(cluster: Cluster, kept: Kept[QueueLines | Records], *argv: str) -> list[int]:
    out, err, code = shown(cluster, kept, ["-h", "-o", "%i", *argv], {})
    assert (err, code) == ("", 0)
    return [int(line) for line in out.split()]


def test_only_what_changed_is_asked_for(cluster: Cluster) -> None:
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(*(job(n) for n in range(1, 1001)))
    assert len(ids(cluster, kept)) == 1000
    cluster.write(job(7, state=JobState.CANCELLED), job(1001))
    cluster.tell(words={8: "Resources"})
    cluster.rows = 0
    assert ids(cluster, kept) == [n for n in range(1, 1002) if n != 7]
    # The new job, and the one of which something else is told; the ended one is only named.
    assert cluster.rows == 2
    assert cluster.asked == ["whole", "changes", "jobs"]


def test_private_jobs_stay_private(tmp_path: Path) -> None:
    """PrivateData=jobs: a user sees his own jobs, whoever asked the same before; root sees all."""
    cluster = Cluster(tmp_path, private=True)
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(job(1, 1001), job(2, 1002), job(3, 1001))
    for _ in range(3):
        for uid, own in ((0, [1, 2, 3]), (1001, [1, 3]), (1002, [2]), (1003, [])):
            cluster.uid = uid
            assert ids(cluster, kept) == own
            assert ids(cluster, kept, "-u", "1002") == [n for n in own if n == 2]
    cluster.write(job(4, 1002), job(1, 1001, priority=9))
    for uid, own in ((1001, [1, 3]), (1002, [2, 4]), (0, [1, 2, 3, 4])):
        cluster.uid = uid
        assert ids(cluster, kept) == own
    cluster.close()


def test_a_state_of_another_is_of_no_use(tmp_path: Path) -> None:
    """What a user may see is the frontend's to say, whatever state he shows it."""
    cluster = Cluster(tmp_path, private=True)
    cluster.write(job(1, 1001), job(2, 1002))
    cluster.uid = 0
    state = cluster.changes(JobChanges()).state
    cluster.write(job(3, 1001), job(4, 1002))
    cluster.uid = 1002
    for said in (state, b"", b"nonsense", b"\x95"):
        delta = cluster.changes(JobChanges(state=said))
        assert (delta.whole, delta.whose) == (True, 1002)
        assert [msgspec.msgpack.decode(raw, type=Job).id for raw in delta.jobs] == [2, 4]
    cluster.close()


def test_same_report_in_another_zone_or_form_is_another(cluster: Cluster) -> None:
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(job(1, submit_time=T0))
    argv = ["-h", "-o", "%V"]
    one = shown(cluster, kept, argv, {"SLURM_TIME_FORMAT": "%Y"})
    other = shown(cluster, kept, argv, {"SLURM_TIME_FORMAT": "%H"})
    assert one[0] == "2027\n"
    assert other[0] != one[0]


def test_long_queue_comes_in_parts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "PART", 10)
    monkeypatch.setattr(queue_kept, "PART", 10)
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(*(job(n) for n in range(1, 36)))
    assert ids(cluster, kept) == [*range(1, 36)]
    assert cluster.asked == ["whole"] * 4 + ["changes"]
    cluster.tell(words=dict.fromkeys(range(1, 36), "Priority"))
    argv = ["-h", "-o", "%i%r"]
    assert shown(cluster, kept, argv, {}) == shown(cluster, None, argv, {})
    cluster.tell(words=dict.fromkeys(range(1, 30), "Resources"))
    assert shown(cluster, kept, argv, {}) == shown(cluster, None, argv, {})


def test_what_changes_between_the_parts_is_seen(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "PART", 10)
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(*(job(n) for n in range(1, 36)))
    asked = cluster.changes

    def meddling(query: JobChanges) -> JobDelta:
        if query.after == 20:
            cluster.write(job(3, state=JobState.CANCELLED), job(40))
        return asked(query)

    monkeypatch.setattr(cluster, "changes", meddling)
    assert ids(cluster, kept) == [n for n in (*range(1, 36), 40) if n != 3]


@pytest.mark.parametrize("what", ["inode", "run"])
def test_other_files_or_another_controller_mean_all_anew(cluster: Cluster, what: str) -> None:
    """A restored state has versions that look like the old one's."""
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(job(1), job(2))
    assert ids(cluster, kept) == [1, 2]
    if what == "inode":
        cluster.reads._main.inode = 2  # type: ignore[misc]
    else:
        status = Status("u", "c", 1, 1, True, pid=77)
        cluster.view.put({("status", b"controller"): msgspec.msgpack.encode(status)})
    assert ids(cluster, kept) == [1, 2]
    assert cluster.asked == ["whole", "whole"]


def test_nothing_half_done_is_kept(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Kept[QueueLines | Records] = Kept()
    cluster.write(job(1))
    assert ids(cluster, kept) == [1]
    cluster.write(job(2), job(3))
    with monkeypatch.context() as broken:
        broken.setattr(queue_kept, "_job", None)
        broken.setattr(queue_records, "_loose", None)
        with pytest.raises(AttributeError):
            ids(cluster, kept)
        # The same of the jobs that reports are made of.
        with pytest.raises(AttributeError):
            ids(cluster, kept, "-S", "-i")
    assert len(kept) == 0
    assert ids(cluster, kept) == [1, 2, 3]


def test_frontend_of_an_earlier_release(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the question, and says so."""

    def refusing(query: JobChanges) -> JobDelta:
        raise RequestRefused(Refused(b"", "malformed request: Invalid value 'JobChanges'"))

    monkeypatch.setattr(cluster, "changes", refusing)
    cluster.write(job(1))
    assert ids(cluster, Kept()) == [1]


def test_kept_is_bounded() -> None:
    """What was asked for longest ago goes first; what is too large is not kept at all."""
    kept: Kept[str] = Kept(budget=100)
    for name in "abc":
        kept.put(name, name, 40)
    assert (len(kept), kept.bytes, kept.take("a")) == (2, 80, None)
    assert kept.take("b") == "b"
    assert (kept.take("b"), kept.bytes) == (None, 40)
    kept.put("c", "c", 30)
    kept.put("d", "d", 101)
    assert (kept.take("d"), kept.bytes, kept.take("c")) == (None, 30, "c")
