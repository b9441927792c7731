"""Steps in accounting: stored as they end, shown with their job wherever they are known from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from acct_support import T244, ended
from sql.test_database import STATE, Desk, job_row, live

from gsched.accounting.database import Database
from gsched.accounting.steps import fact_row, step_row
from gsched.frontend import accounting as desk_module
from gsched.frontend import acct_steps
from gsched.frontend.accounting import Live
from gsched.model import Fact, Job, JobState, NodeAlloc, Step, StepNode, StepState, Usage
from gsched.model.acct import AcctJob, AcctStep, AcctSteps
from gsched.wire.messages import AcctQuery, AcctRows

KEY = (STATE, 7, 0)


def step(job_id: int, number: int, state: StepState = StepState.COMPLETED, **kw: object) -> Step:
    share = StepNode(NodeAlloc("node1", 2, 2, 4000, gpus=3), [0, 1])
    kw.setdefault("submit_line", f"srun s{number}")
    return Step(
        job_id,
        1,
        number,
        f"s{number}",
        2,
        [share],
        state=state,
        start_time=T244,
        end_time=0 if state == StepState.RUNNING else T244 + 5,
        gpu_types={"h100": 2},
        **kw,  # type: ignore[arg-type]
    )


def fact(*steps: Step, restarts: int = 0) -> AcctSteps:
    return fact_row(list(steps), restarts, T244 + 9)


def names(one: AcctJob) -> list[str]:
    return [s.step for s in one.steps]


def test_what_is_shown_of_a_step() -> None:
    # golden 035, 244.0: AllocTRES, NTasks, NCPUS; the peer shows 0:9 as CANCELLED
    shown = step_row(step(7, 0, usage=Usage(3, 1, 1692), max_rss_node="node1"), T244 + 50)
    assert shown.alloc_tres == "cpu=2,gres/gpu:h100=2,gres/gpu=2,mem=4000M,node=1"
    assert (shown.step, shown.name, shown.state) == ("0", "s0", "COMPLETED")
    assert (shown.ntasks, shown.ncpus, shown.nnodes, shown.nodes) == (2, 2, 1, "node1")
    assert (shown.elapsed_s, shown.max_rss_kb, shown.user_ms) == (5, 1692, 3)
    killed = step_row(step(7, 0, StepState.FAILED, wstatus=9), T244 + 50)
    assert killed.state == "CANCELLED"
    runs = step_row(step(7, 1, StepState.RUNNING), T244 + 50)
    assert (runs.state, runs.end, runs.elapsed_s, runs.max_rss_kb) == ("RUNNING", 0, 50, -1)
    oom = step_row(step(7, 1, StepState.OUT_OF_MEMORY, wstatus=9), T244 + 50)
    assert oom.wstatus == 125
    by = step_row(step(7, 1, StepState.CANCELLED, cancelled_by=1001), T244)
    assert by.cancelled_by == 1001
    assert step_row(step(7, -6), T244).step == "interactive"


def test_steps_are_stored_before_their_job_and_found_with_it(database: Database) -> None:
    facts: list[tuple[int, AcctJob | AcctSteps]] = [
        (1, fact(step(7, 1), step(7, 0))),
        (2, fact(step(7, 10), step(7, 2))),
        (3, fact(step(8, 0))),
        (4, fact(step(7, 0), restarts=1)),
    ]
    assert database.store(STATE, facts) == 4
    assert database.step_counts([KEY, (STATE, 8, 0), (STATE, 9, 0)]) == {
        KEY: 4,
        (STATE, 8, 0): 1,
        (STATE, 7, 1): 1,
    }
    found = database.steps_of([KEY], (STATE, 99))
    assert list(found) == [KEY] and list(found[KEY]) == [0, 1, 2, 10]
    assert found[KEY][10] == step_row(step(7, 10), 0)
    # What the state knew when it was read.
    assert list(database.steps_of([KEY], (STATE, 1))[KEY]) == [0, 1]
    assert list(database.steps_of([KEY], (STATE, 99), 0, 2)[KEY]) == [1, 2]
    # The job's own fact comes last, and brings its batch step.
    database.store(STATE, [(5, job_row(7))])
    ((_, _, one),) = database.rows(AcctQuery(), 10)
    assert names(one) == ["batch"]


def test_facts_of_steps_are_stored_once_and_cut_where_refused(database: Database) -> None:
    odd = fact(step(7, 0, submit_line="a\0b"))
    assert database.store(STATE, [(1, odd)]) == 1
    assert database.store(STATE, [(1, odd)]) == 1
    assert database.store_stripped(STATE, 2, fact(step(7, 1, submit_line="ü" * 300))) == 2
    found = database.steps_of([KEY], (STATE, 9))[KEY]
    assert found[0].submit_line == "a\N{REPLACEMENT CHARACTER}b"
    assert found[1].submit_line == "?" * 200


def test_a_database_of_the_release_before(url: str) -> None:
    """Rows that are there stay; whoever was killed in the middle goes on."""
    import sqlalchemy as sa
    from alembic import command
    from alembic.config import Config

    import gsched.accounting

    engine = sa.create_engine(url)
    config = Config()
    folder = Path(gsched.accounting.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    old = job_row(7)
    with engine.begin() as connection:
        tables = sa.MetaData()
        tables.reflect(connection)
        key = {"state_uuid": STATE, "seq": 1}
        fields = {k: v for k, v in msgspec.structs.asdict(old).items() if k != "steps"}
        connection.execute(sa.insert(tables.tables["jobs"]), fields | key)
        columns = set(tables.tables["steps"].c.keys())
        batch = msgspec.structs.asdict(old.steps[0])
        values = {k: v for k, v in batch.items() if k in columns} | key | {"n": 0}
        connection.execute(sa.insert(tables.tables["steps"]), values)
        connection.execute(sa.insert(tables.tables["progress"]), {**key, "last_seq": 1} | {})
        connection.execute(sa.text("ALTER TABLE steps ADD COLUMN ave_rss_kb BIGINT DEFAULT -1"))
    engine.dispose()
    made = Database(url)
    made.migrate()
    ((_, _, found),) = made.rows(AcctQuery(), 10)
    assert found == old
    made.store(STATE, [(2, fact(step(7, 0)))])
    assert list(made.steps_of([KEY], (STATE, 9))[KEY]) == [0]
    made.close()


# ---- the frontend's answers ----------------------------------------------------------------------


def with_steps(state: Live, running: list[Step], facts: dict[int, list[Step]]) -> Live:
    encode = msgspec.msgpack.encode
    state.steps = [encode(one) for one in running]
    for seq, steps in facts.items():
        state.facts.append((seq, encode(Fact(seq, T244 + 9, None, steps))))
    return state


def answered(desk: Desk, state: Live, query: AcctQuery | None = None) -> list[AcctJob]:
    rows = desk.ask(state, query)
    assert isinstance(rows, AcctRows), rows
    return rows.jobs


def running_job(job_id: int = 7) -> Job:
    return ended(job_id, "a", JobState.RUNNING, end_time=0)


def test_steps_of_a_job_that_runs_come_from_all_places(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.stored((1, fact(step(7, 1), step(7, 0))), (2, fact(step(7, 2))))  # type: ignore[arg-type]
    state = live([running_job()], first=2)
    # 2 has left the outbox into SQL, 3 has not; 2 still runs for whoever read the state before.
    with_steps(
        state, [step(7, n, StepState.RUNNING) for n in (2, 4)], {2: [step(7, 2)], 3: [step(7, 3)]}
    )
    [one] = answered(desk, state)
    assert names(one) == ["batch", "0", "1", "2", "3", "4"]
    assert [s.state for s in one.steps[3:]] == ["COMPLETED", "COMPLETED", "RUNNING"]
    # -X: none of them is read.
    state = with_steps(live([running_job()], first=2), [step(7, 4, StepState.RUNNING)], {})
    [one] = answered(desk, state, AcctQuery(allocations=True))
    assert names(one) == ["batch"]


def test_steps_before_there_is_a_database(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    state = with_steps(live([running_job()]), [], {1: [step(7, 0)]})
    assert names(answered(desk, state)[0]) == ["batch", "0"]


def test_steps_of_each_try(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first = job_row(7, requeue_after=True)
    desk.stored(
        (1, fact(step(7, 0))),  # type: ignore[arg-type]
        (2, first),
        (3, fact(step(7, 0), step(7, 1), restarts=1)),  # type: ignore[arg-type]
    )
    again = ended(7, "a", JobState.RUNNING, end_time=0, restarts=1, eligible_time=T244 + 9)
    found = answered(desk, live([again], first=4))
    assert [names(one) for one in found] == [["batch", "0"], ["batch", "0", "1"]]


def test_components_have_their_own_steps(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    het = {"het_job_id": 7, "het_size": 2}
    jobs = [running_job(7), running_job(8)]
    for offset, job in enumerate(jobs):
        job.het_job_id, job.het_offset, job.het_size = het["het_job_id"], offset, het["het_size"]
    both = step(7, 0, StepState.RUNNING)
    both.nodes = [*both.nodes, StepNode(NodeAlloc("node2", 1, 1, 1), [2], 1)]
    found = answered(desk, with_steps(live(jobs), [both], {}))
    assert [(one.job_id, names(one)) for one in found] == [(7, ["batch", "0"]), (8, ["0"])]
    assert [one.steps[-1].nodes for one in found] == ["node1", "node2"]


@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_many_steps_come_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(acct_steps, "MOST", most)
    desk = Desk(tmp_path)
    desk.stored(
        (1, fact(*(step(5, n) for n in range(4)))),  # type: ignore[arg-type]
        (2, job_row(5)),
        (3, fact(*(step(7, n) for n in range(0, 20, 2)))),  # type: ignore[arg-type]
        (4, job_row(6)),
    )

    def state() -> Live:
        some = {5: [step(7, n) for n in range(1, 10, 2)]}
        return with_steps(live([running_job()], first=4), [step(7, 50, StepState.RUNNING)], some)

    numbers = [str(n) for n in sorted({*range(0, 20, 2), *range(1, 10, 2), 50})]
    assert collected(desk, state) == [
        (5, ["batch", "0", "1", "2", "3"]),
        (6, ["batch"]),
        (7, ["batch", *numbers]),
    ]


def test_long_lines_make_smaller_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "PAGE_BYTES", 20_000)
    desk = Desk(tmp_path)
    some = [step(7, n, submit_line="x" * 3000) for n in range(40)]
    desk.stored((1, fact(*some)), (2, job_row(7)), (3, job_row(8)))  # type: ignore[arg-type]
    found = collected(desk, lambda: live(first=4))
    assert found == [(7, ["batch", *map(str, range(40))]), (8, ["batch"])]


def collected(desk: Desk, state: object) -> list[tuple[int, list[str]]]:
    """All pages, put together as sacct does."""
    found: list[AcctJob] = []
    query = AcctQuery()
    for _ in range(200):
        before = None if desk.accounting.goes_on("me", query) else state()  # type: ignore[operator]
        rows = desk.ask(before, query)
        assert isinstance(rows, AcctRows), rows
        if found and rows.jobs and found[-1].order == rows.jobs[0].order:
            found[-1].steps += rows.jobs.pop(0).steps
        found += rows.jobs
        if not rows.more:
            return [(one.job_id, names(one)) for one in found]
        query = AcctQuery(after=rows.last)
    raise AssertionError("pages without end")


def test_numbers_of_steps_that_no_srun_made() -> None:
    found = [AcctStep(name, "", "").number for name in ("interactive", "batch", "extern", "0")]
    assert found == [-6, -5, -4, 0]
