"""Job arrays and dependencies; ids, states and reasons as in Slurm's transcripts 007 and 008."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.ledger_support import CONF, Bench, at, told

from gsched import dependency
from gsched.ledger import Ledger, Tick
from gsched.ledger.invariants import check
from gsched.model import Hold, Job, JobState, Phase, Shape
from gsched.taskset import TaskSet, TaskSetError
from gsched.wire.messages import CancelJobs, Refused, UpdateJob


def run(b: Bench, job: Job, wstatus: int = 0) -> None:
    """The node runs it to its end, with all else it holds still running."""
    node = job.alloc[0].node
    others = [at(b.led.jobs[j], Phase.RUNNING) for j in sorted(b.led.parts[node]) if j != job.id]
    b.report(node, *others, at(job, Phase.RELEASED, wstatus=wstatus))


# ---- sets of tasks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tasks", "shown"),
    [
        ("1,3,5-9:2", [1, 3, 5, 7, 9], "1,3,5,7,9"),
        ("0-3", [0, 1, 2, 3], "0-3"),
        ("1-7:3,20,10-11", [1, 4, 7, 10, 11, 20], "1,4,7,10-11,20"),
        ("5,3,4", [3, 4, 5], "3-5"),
        ("1-5,3-7", [1, 2, 3, 4, 5, 6, 7], "1-7"),
    ],
)
def test_forms(text: str, tasks: list[int], shown: str) -> None:
    assert list(TaskSet.parse(text)) == tasks
    assert TaskSet.parse(text).shown() == shown


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_sets_behave_as_sets(numbers: set[int], data: st.DataObject) -> None:
    tasks = TaskSet.parse(",".join(map(str, sorted(numbers))))
    gone = data.draw(st.sampled_from(sorted(numbers)))
    tasks.remove(gone)
    left = sorted(numbers - {gone})
    assert list(tasks) == left and len(tasks) == len(left)
    if left:
        assert list(TaskSet.parse(tasks.text())) == left


@pytest.mark.parametrize(
    ("text", "tasks", "throttle"),
    [
        ("1,3,5-9:2%2", [1, 3, 5, 7, 9], 2),
        ("1,1", [1], 0),
        ("20000", [20000], 0),
        # as Slurm 22.05 took them
        ("[1-3]", [1, 2, 3], 0),
        ("[1-3]%2", [1, 2, 3], 2),
        ("[1-3%2]", [1, 2, 3], 2),
        ("1-3%", [1, 2, 3], 0),
        ("1-3%2,5", [1, 2, 3, 5], 2),
        ("[1%2,7-9]", [1, 7, 8, 9], 2),
        ("1,,2", [1, 2], 0),
        ("1-3,", [1, 2, 3], 0),
        (",1", [1], 0),
        (" 1", [1], 0),
        ("01-03", [1, 2, 3], 0),
    ],
)
def test_what_is_asked_for(text: str, tasks: list[int], throttle: int) -> None:
    found, most = TaskSet.asked(text)
    assert (list(found), most) == (tasks, throttle)


@pytest.mark.parametrize(
    "text", ["", "x", "1 - 3", "1-2-3", "5-1", "1-", "1-3:0", "1e3", "-1", "1-3%x"]
)
def test_what_slurm_refuses_is_refused(text: str) -> None:
    with pytest.raises(TaskSetError):
        TaskSet.asked(text)


def shown_dependencies(text: str) -> str:
    return dependency.shown(dependency.parse(text)).replace("(unfulfilled)", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("afterany:61,afterok:62", "afterany:61,afterok:62"),
        ("afterok:61?afternotok:61", "afterok:61?afternotok:61"),
        ("afterok:1:2:3", "afterok:1,afterok:2,afterok:3"),
        ("aftercorr:61", "aftercorr:61"),
        ("afterburstbuffer:61", "afterburstbuffer:61"),
        ("afterok:17_4", "afterok:17_4"),
        # as Slurm 22.05 took them
        ("61", "afterany:61"),
        ("61,62", "afterany:61,afterany:62"),
        ("61_1", "afterany:61_1"),
        ("afterok:61,62", "afterok:61,afterany:62"),
        ("afterok:61?62", "afterok:61?afterany:62"),
        ("after:61+2,62", "after:61+2,afterany:62"),
        ("singleton,61", "singleton,afterany:61"),
        ("afterok:61:61", "afterok:61"),
        ("afterok:61,afterok:61", "afterok:61"),
        ("afterok:61,afternotok:61", "afterok:61,afternotok:61"),
        ("singleton,singleton", "singleton"),
        ("afterok: 61", "afterok:61"),
        ("afterok:061", "afterok:61"),
        ("AfterOk:61", "afterok:61"),
        ("afterok:61+1", "afterok:61+1"),
    ],
)
def test_lists_of_dependencies(text: str, shown: str) -> None:
    assert shown_dependencies(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("afterok:", "foo:1", "61:62", "61?62:63", "afterok:61:", "after:61+x", "afterok:abc"),
        *("afterok :61", "+61", "after:61+0", "afterok:61;", "afterok:61_x", "afterok:61_1_2"),
        *("singleton:3", "afterok:61,,", ",afterok:61", "afterok=61", "afterok:61.0", "expand:61"),
    ],
)
def test_lists_that_slurm_refuses(text: str) -> None:
    with pytest.raises(dependency.DependencyError):
        dependency.parse(text)


@given(st.text(max_size=20))
def test_any_text_is_a_set_or_refused(text: str) -> None:
    with contextlib.suppress(TaskSetError):
        TaskSet.parse(text)


def test_a_long_list_is_cut_as_slurm_cuts_it() -> None:
    text = TaskSet.parse("1-999:2").shown(room=64)
    assert text.endswith("...") and len(text) <= 64


# ---- arrays -----------------------------------------------------------------------------------


def test_tasks_take_the_next_ids_and_the_last_keeps_the_arrays() -> None:
    b = Bench()
    array = b.job(array="1,3,5-9:2")
    b.schedule()
    ids = {job.array_task_id: job.id for job in b.led.jobs.values()}
    assert ids == {1: 2, 3: 3, 5: 4, 7: 5, 9: 1}
    assert array.array_task_id == 9 and array.array_pending == ""
    assert all(job.state == JobState.RUNNING for job in b.led.jobs.values())


def test_the_throttle_holds() -> None:
    b = Bench()
    b.job(array="0-5%2")
    b.schedule()
    running = [j for j in b.led.jobs.values() if j.state == JobState.RUNNING]
    assert [j.array_task_id for j in running] == [0, 1]
    assert b.verdict(b.led.jobs[1]) in ("JobArrayTaskLimit", "")
    run(b, running[0])
    b.schedule()
    assert sum(j.state == JobState.RUNNING for j in b.led.jobs.values()) == 2
    b.write(UpdateJob(["1"], "update", {"ArrayTaskThrottle": "0"}))
    b.schedule()
    assert sum(j.state == JobState.RUNNING for j in b.led.jobs.values()) == 5


def test_cancel_of_a_range_leaves_the_others() -> None:
    b = Bench()
    b.job(array="0-3", hold=True)
    reply = b.write(CancelJobs(["1_[1-2]"]))
    assert reply.value == 2  # type: ignore[union-attr]
    states = {j.array_task_id: j.state for j in b.led.jobs.values()}
    assert states == {-1: JobState.PENDING, 1: JobState.CANCELLED, 2: JobState.CANCELLED}
    assert b.led.jobs[1].array_pending == "0,3"
    assert b.write(CancelJobs(["1_7"])).errors  # type: ignore[union-attr]
    assert b.write(CancelJobs(["1"])).value == 1  # type: ignore[union-attr]


def test_one_task_is_held_by_itself() -> None:
    b = Bench()
    b.job(array="0-2")
    b.write(UpdateJob(["1_1"], "hold"))
    b.schedule()
    held = [j for j in b.led.jobs.values() if j.held]
    assert [j.array_task_id for j in held] == [1] and held[0].held == Hold.USER
    assert sum(j.state == JobState.RUNNING for j in b.led.jobs.values()) == 2


def test_a_requeued_task_runs_again_under_its_own_id() -> None:
    b = Bench()
    b.job(array="0-1")
    b.schedule()
    task = b.led.jobs[2]
    assert task.array_task_id == 0
    b.write(UpdateJob(["1_0"], "requeue"))
    run(b, task, 15)
    assert task.state == JobState.PENDING and task.array_task_id == 0 and task.restarts == 1


def test_more_tasks_than_rows_all_run() -> None:
    b = Bench()
    b.job(array="0-199", shape=Shape(mem_per_node=10))
    for _ in range(30):
        b.schedule()
        for job in [j for j in b.led.jobs.values() if j.state == JobState.RUNNING]:
            run(b, job)
    assert len(b.led.jobs) == 200
    assert all(j.state == JobState.COMPLETED for j in b.led.jobs.values())


def test_max_job_count_counts_tasks() -> None:
    b = Bench(CONF + "MaxJobCount=10\n")
    b.job(array="0-7", hold=True)
    reply = b.submit(array="0-2")
    assert isinstance(reply, Refused) and reply.temporary
    assert not isinstance(b.submit(array="0-1"), Refused)


@pytest.mark.parametrize("array", ["abc", "5-1", "1-99999999", "", "1-3%x"])
def test_bad_arrays_are_refused(array: str) -> None:
    b = Bench()
    reply = b.submit(array=array)
    assert isinstance(reply, Refused) == bool(array)


def test_arrays_and_dependencies_survive_a_restart() -> None:
    b = Bench()
    b.job(array="0-5%2")
    b.job(dependency="afterok:1")
    b.job(dependency="singleton")
    b.schedule()
    records = list(b.led.jobs.values())
    again = Ledger.load(b.config, b.led.meta, records, b.led.nodes.values())
    check(again)
    assert again.array_running == b.led.array_running == {1: 2}
    assert again.waiters == b.led.waiters and again.singletons == b.led.singletons


# ---- dependencies -----------------------------------------------------------------------------


def test_kinds_after_a_failure() -> None:
    """The states that transcript 008 shows after the first job failed."""
    b = Bench(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=600"))
    first = b.job(name="first")
    waiting = {
        kind: b.job(name=kind, dependency=f"{kind}:1")
        for kind in ("after", "afterany", "afterok", "afternotok", "aftercorr")
    }
    multi = b.job(name="multi", dependency="afterany:1,afterok:2")
    either = b.job(name="either", dependency="afterok:1?afternotok:1")
    plus = b.job(name="plus", dependency="after:1+1")
    kill = b.job(name="kill", dependency="afterok:1", kill_on_invalid_dep=True)
    out = b.schedule()
    words = told(out)
    assert first.state == JobState.RUNNING
    assert waiting["after"].deps == []
    assert {words.get(waiting[k].id) for k in ("afterany", "afterok", "afternotok")} == {
        "Dependency"
    }
    run(b, first, 1 << 8)
    out = b.schedule()
    for name in ("afterany", "afternotok"):
        assert waiting[name].state == JobState.RUNNING, name
    assert either.state == JobState.RUNNING
    for name in ("afterok", "aftercorr"):
        job = waiting[name]
        assert job.state == JobState.PENDING
        assert dependency.shown(job.deps) == f"{name}:1(failed)"
    words = told(out)
    assert words[waiting["afterok"].id] == "DependencyNeverSatisfied"
    assert kill.state == JobState.CANCELLED
    assert dependency.shown(multi.deps) == "afterok:2(unfulfilled)"
    assert dependency.shown(plus.deps) == "after:1+1(unfulfilled)"
    b.now += 61
    b.apply(Tick())
    b.schedule()
    assert plus.state == JobState.RUNNING
    b.write(UpdateJob([str(waiting["afterok"].id)], "update", {"dependency": ""}))
    b.schedule()
    assert waiting["afterok"].state == JobState.RUNNING


def test_singletons_run_one_after_the_other() -> None:
    b = Bench()
    one = b.job(name="s", dependency="singleton")
    two = b.job(name="s", dependency="singleton")
    b.schedule()
    assert one.state == JobState.RUNNING and two.state == JobState.PENDING
    run(b, one)
    b.schedule()
    assert two.state == JobState.RUNNING


def test_a_job_waits_for_a_whole_array() -> None:
    b = Bench()
    b.job(array="0-1")
    after = b.job(dependency="afterok:1")
    one = b.job(dependency="afterok:1_0")
    b.schedule()
    assert dependency.shown(after.deps) == "afterok:1_*(unfulfilled)"
    by_task = {j.array_task_id: j for j in b.led.jobs.values() if j.array_job_id}
    run(b, by_task[0])
    b.schedule()
    assert one.state == JobState.RUNNING and after.state == JobState.PENDING
    run(b, by_task[1])
    b.schedule()
    assert after.state == JobState.RUNNING


def test_aftercorr_goes_task_by_task() -> None:
    b = Bench()
    b.job(array="0-2")
    second = b.job(array="0-2", dependency="aftercorr:1")
    b.schedule()
    assert second.state == JobState.PENDING
    first = {j.array_task_id: j for j in b.led.jobs.values() if j.array_job_id == 1}
    run(b, first[1])
    run(b, first[2], 1 << 8)
    b.schedule()
    mine = {j.array_task_id: j for j in b.led.jobs.values() if j.array_job_id == second.id}
    assert mine[1].state == JobState.RUNNING
    assert mine[2].state == JobState.PENDING and dependency.failed(mine[2].deps)
    run(b, first[0])
    b.schedule()
    mine = {j.array_task_id: j for j in b.led.jobs.values() if j.array_job_id == second.id}
    assert mine[0].state == JobState.RUNNING


@pytest.mark.parametrize(
    "text", ["foo:1", "afterok:99999999", "afterok", "afterok:x", "after:1,afterok:1?2"]
)
def test_bad_dependencies_are_refused(text: str) -> None:
    b = Bench()
    b.job()
    reply = b.submit(dependency=text)
    assert isinstance(reply, Refused) and reply.message == "Job dependency problem"


def test_nobody_waits_for_himself() -> None:
    b = Bench()
    b.job(hold=True)
    b.job(dependency="afterok:1")
    # The words are those of Slurm 22.05.
    reply = b.write(UpdateJob(["1"], "update", {"dependency": "afterok:2"}))
    assert reply.errors == [("1", "Circular job dependency")]  # type: ignore[union-attr]
    reply = b.write(UpdateJob(["1"], "update", {"dependency": "afterok:1"}))
    assert reply.errors == [("1", "Job dependency problem")]  # type: ignore[union-attr]


def test_what_all_tasks_refuse_is_said_once() -> None:
    b = Bench()
    b.job(array="0-3", hold=True)
    b.write(UpdateJob(["1_1"], "update", {"timelimit": "7"}))
    b.write(UpdateJob(["1_2"], "update", {"timelimit": "7"}))
    reply = b.write(UpdateJob(["1"], "suspend"), 0)
    assert reply.errors == [("1", "Job is pending execution")]  # type: ignore[union-attr]


def test_a_task_that_was_cancelled_before_it_ran_is_not_queued_again() -> None:
    """In Slurm nothing is left of it."""
    b = Bench()
    b.job(array="0-1", hold=True)
    b.write(CancelJobs(["1_1"]))
    b.write(UpdateJob(["1"], "requeue"))
    states = {j.array_task_id: j.state for j in b.led.jobs.values() if j.array_task_id >= 0}
    assert states[1] == JobState.CANCELLED


def test_a_cancelled_job_fulfils_after_and_afterany() -> None:
    b = Bench()
    b.job(hold=True)
    jobs = [b.job(dependency=f"{kind}:1") for kind in ("after", "afterany", "afternotok")]
    b.write(CancelJobs(["1"]))
    b.schedule()
    assert all(job.state == JobState.RUNNING for job in jobs)
