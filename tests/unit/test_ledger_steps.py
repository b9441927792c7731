"""Steps as nodes tell of them: kept once, in any order, and gone from memory at their end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import Ledger, Outcome
from gsched.ledger.steps import MOST_RUNS, add, has
from gsched.model import (
    Fact,
    Job,
    JobSpec,
    JobState,
    NodeAlloc,
    Phase,
    Shape,
    Step,
    StepNode,
    StepState,
    Usage,
)
from gsched.wire.messages import CancelJobs, Done, SubmitJob, UpdateJob
from gsched.wire.nodes import Signal, StepsKept

ACCOUNTING = CONF + "AccountingStorageType=accounting_storage/slurmdbd\n"


def running(bench: Bench, **kw: object) -> Job:
    job = bench.job(**kw)
    bench.schedule()
    for phase in (Phase.PREPARED, Phase.RUNNING):
        for part in job.alloc:
            bench.report(part.node, at(job, phase))
    return job


def begun(job: Job, number: int, age_s: float = 0, **kw: object) -> Step:
    """What the leading agent says of a step that it has started `age_s` ago."""
    part = job.alloc[0]
    share = StepNode(NodeAlloc(part.node, 1, 1, 100, gpus=part.gpus & 1), [0])
    kw.setdefault("name", f"s{number}")
    kw.setdefault("nodes", [share])
    return Step(job.id, job.attempt, number, start_time=int(age_s * 1000), **kw)  # type: ignore[arg-type]


def over(job: Job, number: int, age_s: float, end_s: float = 0, **kw: object) -> Step:
    kw.setdefault("state", StepState.COMPLETED)
    step = begun(job, number, age_s, **kw)
    step.end_time = int(end_s * 1000)
    return step


def tell(
    bench: Bench, job: Job, *steps: Step, phase: Phase = Phase.RUNNING, **kw: object
) -> Outcome:
    return bench.report(job.batch_host, at(job, phase, steps=list(steps), **kw))


def kept(out: Outcome) -> list[tuple[int, bool]]:
    return [entry for _, m in out.messages if isinstance(m, StepsKept) for entry in m.steps]


def facts(out: Outcome) -> list[Fact]:
    return [value for (table, _), value in out.puts.items() if table == "outbox"]  # type: ignore[misc]


def reloaded(bench: Bench) -> Ledger:
    """A ledger from what is durable: nothing but records counts."""
    copy = msgspec.msgpack.decode
    encode = msgspec.msgpack.encode
    return Ledger.load(
        bench.config,
        copy(encode(bench.led.meta), type=type(bench.led.meta)),
        [copy(encode(j), type=Job) for j in bench.led.jobs.values()],
        [copy(encode(n), type=type(n)) for n in bench.led.nodes.values()],
        step_records=[
            copy(encode(s), type=Step) for each in bench.led.steps.values() for s in each.values()
        ],
    )


def test_a_step_that_runs_is_a_record_with_dates() -> None:
    bench = Bench()
    job = running(bench)
    bench.now += 100
    out = tell(bench, job, begun(job, 0, age_s=40))
    assert kept(out) == [(0, False)]
    [record] = [v for (table, _), v in out.puts.items() if table == "step"]
    assert isinstance(record, Step)
    assert record.start_time == int(bench.now) - 40
    assert bench.led.steps[job.id][0] is record


def test_an_end_is_a_fact_once_and_nothing_stays() -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench)
    bench.now += 100
    tell(bench, job, begun(job, 0, age_s=40))
    bench.now += 10
    out = tell(bench, job, over(job, 0, 50, 5, wstatus=4 << 8, state=StepState.FAILED))
    assert kept(out) == [(0, True)]
    [fact] = facts(out)
    [step] = fact.steps
    assert (fact.job, fact.restarts) == (None, 0)
    assert (step.start_time, step.end_time) == (int(bench.now) - 50, int(bench.now) - 5)
    assert not bench.led.steps
    assert out.puts["step", job.id.to_bytes(8, "big") + (1 << 31).to_bytes(4, "big")] is None
    assert job.derived_wstatus == 4 << 8
    # Told again, doubled or late: kept, and no second fact.
    again = tell(bench, job, over(job, 0, 50, 5, wstatus=4 << 8, state=StepState.FAILED))
    assert kept(again) == [(0, True)] and not facts(again)
    late = tell(bench, job, begun(job, 0, age_s=41))
    assert kept(late) == [(0, True)] and not bench.led.steps


def test_a_step_that_is_told_of_only_at_its_end() -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench)
    bench.now += 9
    out = tell(bench, job, over(job, 0, 3, 1), over(job, 1, 1), begun(job, 2))
    assert [step.id for fact in facts(out) for step in fact.steps] == [0, 1]
    assert kept(out) == [(0, True), (1, True), (2, False)]
    assert list(bench.led.steps[job.id]) == [2]


def test_the_derived_exit_code_is_the_highest() -> None:
    # golden 030: 230 and 234 have 9:0 and 4:0, 231 0:9
    bench = Bench()
    job = running(bench)
    failed = StepState.FAILED
    tell(bench, job, over(job, 0, 1, wstatus=4 << 8, state=failed), over(job, 1, 0))
    tell(bench, job, over(job, 2, 1, wstatus=9, state=failed))
    assert job.derived_wstatus == 4 << 8


def test_only_the_leading_node_speaks_of_steps() -> None:
    bench = Bench()
    job = running(bench, shape=Shape(min_nodes=2, max_nodes=2, nodes_set=True))
    other = job.alloc[1].node
    out = bench.report(other, at(job, Phase.RUNNING, steps=[begun(job, 0)]))
    assert not bench.led.steps and not kept(out)


def test_steps_that_never_ended_end_with_their_job_and_before_it() -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench)
    tell(bench, job, begun(job, 0), begun(job, 1))
    bench.now += 5
    out = tell(bench, job, over(job, 1, 5), phase=Phase.RELEASED, wstatus=0)
    assert job.state == JobState.COMPLETED and not bench.led.steps
    order = [fact.job is not None or [s.id for s in fact.steps] for fact in facts(out)]
    assert order == [[1], [0], True]
    left = facts(out)[1].steps[0]
    assert (left.state, left.end_time) == (StepState.CANCELLED, job.end_time)


def test_a_lost_node_ends_its_steps() -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench, requeue=False)
    tell(bench, job, begun(job, 0))
    bench.now += 61
    out = bench.tick()
    assert job.state == JobState.NODE_FAIL
    assert [s.state for f in facts(out) for s in f.steps] == [StepState.NODE_FAIL]
    assert not bench.led.steps


def test_another_attempt_counts_from_the_beginning() -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench)
    tell(bench, job, over(job, 0, 1, wstatus=1 << 8, state=StepState.FAILED), begun(job, 1))
    first = job.attempt
    bench.write(UpdateJob([str(job.id)], "requeue"))
    stale = at(job, Phase.RELEASED, wstatus=0)
    out = bench.report(job.batch_host, stale)
    assert job.state == JobState.PENDING
    assert [f.restarts for f in facts(out) if f.steps] == [0]
    assert job.derived_wstatus == 0
    bench.write(UpdateJob([str(job.id)], "update", {"starttime": str(int(bench.now))}))
    bench.schedule()
    assert job.attempt == first + 1
    bench.report(job.batch_host, at(job, Phase.RUNNING))
    # A late word of the first attempt is not waited for, and none of it counts.
    old = begun(job, 7)
    stale.steps, stale.phase, stale.attempt = [old], Phase.RUNNING, first
    out = bench.report(job.batch_host, at(job, Phase.RUNNING), stale)
    assert kept(out) == [(7, False)] and not facts(out) and not bench.led.steps
    out = tell(bench, job, over(job, 0, 1))
    [fact] = facts(out)
    assert (fact.restarts, [s.id for s in fact.steps]) == (1, [0])


def test_a_restart_with_steps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench)
    tell(bench, job, over(job, 0, 1), begun(job, 1), begun(job, 2))
    led = reloaded(bench)
    assert led.steps == bench.led.steps
    assert led.jobs[job.id].steps_known == [(0, 2)]
    # It goes on where the other one was: what had ended is no second fact.
    bench.led = led
    from gsched.ledger import TakeOver

    bench.apply(TakeOver())
    node = job.batch_host
    job = led.jobs[job.id]
    outcomes: list[Outcome] = []
    monkeypatch.setattr(led, "apply", _noted(led.apply, outcomes))
    bench.register(node, [at(job, Phase.RUNNING, steps=[over(job, 0, 3, 2), over(job, 1, 3)])])
    assert list(led.steps[job.id]) == [2]
    told = [step.id for out in outcomes for one in facts(out) for step in one.steps]
    assert told == [1]


def _noted(apply: Callable[..., Outcome], outcomes: list[Outcome]) -> Callable[..., Outcome]:
    def noting(command: object, now: float) -> Outcome:
        outcomes.append(apply(command, now))
        return outcomes[-1]

    return noting


def test_a_hundred_thousand_steps_leave_one_run_of_numbers() -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench)
    for first in range(0, 100_000, 500):
        tell(bench, job, *(over(job, n, 0) for n in range(first, first + 500)))
    assert job.steps_known == [(0, 99_999)]
    assert not bench.led.steps
    assert len(msgspec.msgpack.encode(job)) < 2000


def test_components_of_a_heterogeneous_job_each_have_their_part() -> None:
    bench = Bench(ACCOUNTING)
    parts = [JobSpec(shape=Shape(nodelist=(f"node{n}",))) for n in (1, 2)]
    reply = bench.write(SubmitJob(parts[0], b"#!/bin/sh\n", b"", components=parts[1:]))
    bench.schedule()
    leader, other = (bench.led.jobs[reply.value + n] for n in (0, 1))  # type: ignore[union-attr]
    for job in (leader, other):
        bench.report(job.batch_host, at(job, Phase.PREPARED))
    shares = [
        StepNode(NodeAlloc("node1", 1, 1, 100), [0]),
        StepNode(NodeAlloc("node2", 1, 2, 100), [1, 2], het_offset=1),
    ]
    step = over(leader, 0, 1, nodes=shares, ntasks=3, wstatus=1 << 8, state=StepState.FAILED)
    step.usage = Usage(5, 6, 7)
    # The component that does not lead says nothing of steps.
    out = bench.report("node2", at(other, Phase.RUNNING, steps=[step]))
    assert not facts(out)
    out = tell(bench, leader, step)
    found = {s.job_id: s for fact in facts(out) for s in fact.steps}
    assert {i: (s.ntasks, [n.node for n in s.nodes]) for i, s in found.items()} == {
        leader.id: (1, ["node1"]),
        other.id: (2, ["node2"]),
    }
    assert [found[i].usage.user_ms for i in (leader.id, other.id)] == [5, 0]
    assert leader.derived_wstatus == other.derived_wstatus == 1 << 8


def test_gpus_are_counted_by_type_and_suspension_left_out() -> None:
    bench = Bench(ACCOUNTING)
    job = running(bench, shape=Shape(gpus_per_node=2))
    bench.now += 10
    tell(bench, job, begun(job, 0))
    assert bench.led.steps[job.id][0].gpu_types == {"h100": 1}
    bench.now += 10
    bench.write(UpdateJob([str(job.id)], "suspend"), uid=0)
    bench.now += 30
    bench.write(UpdateJob([str(job.id)], "resume"), uid=0)
    bench.now += 10
    [fact] = facts(tell(bench, job, over(job, 0, 50)))
    assert (fact.steps[0].suspended_s, fact.steps[0].gpu_types) == (30, {"h100": 1})


@pytest.mark.parametrize(
    "field, value",
    [("id", 1 << 40), ("wstatus", 1 << 20), ("start_time", -1), ("name", "x" * 100_000)],
)
def test_impossible_steps_are_no_measurement(field: str, value: object) -> None:
    bench = Bench()
    job = running(bench)
    step = begun(job, 0)
    setattr(step, field, value)
    out = tell(bench, job, step)
    assert any("not taken" in text for _, text in out.log)
    assert not bench.led.steps


def test_runs_of_numbers() -> None:
    runs: list[tuple[int, int]] = []
    for number in (-6, 0, 1, 3, 2, 9, 0, 8):
        runs = add(runs, number)
    assert runs == [(-6, -6), (0, 3), (8, 9)]
    assert [n for n in range(-7, 11) if has(runs, n)] == [-6, 0, 1, 2, 3, 8, 9]
    for number in range(0, 10 * MOST_RUNS, 2):
        runs = add(runs, number)
    assert len(runs) == MOST_RUNS


# ---- scancel ---------------------------------------------------------------------------------


def signals(bench: Bench, node: str) -> list[tuple[int, str, int | None]]:
    orders = bench.sent.get(node, [])
    return [(o.signum, o.target, o.step) for o in orders if isinstance(o, Signal)]


def test_a_step_is_ended_and_who_asked_is_recorded() -> None:
    # The peer: "91.0 CANCELLED by 0 0:9"
    bench = Bench(ACCOUNTING)
    job = running(bench, shape=Shape(min_nodes=2, max_nodes=2, nodes_set=True))
    tell(bench, job, begun(job, 0), begun(job, 1))
    reply = bench.write(CancelJobs([], steps=[(str(job.id), 0)]))
    assert isinstance(reply, Done) and (reply.value, reply.errors) == (1, [])
    # Only the leading node is told: it knows where the tasks are.
    assert signals(bench, job.batch_host) == [(0, "steps", 0)]
    assert signals(bench, job.alloc[1].node) == []
    assert job.state == JobState.RUNNING
    [fact] = facts(tell(bench, job, over(job, 0, 1, wstatus=9, state=StepState.CANCELLED)))
    assert (fact.steps[0].cancelled_by, fact.steps[0].wstatus) == (1000, 9)
    # A signal that ends nothing.
    bench.write(CancelJobs([], 10, steps=[(str(job.id), 1)]))
    assert signals(bench, job.batch_host)[-1] == (10, "steps", 1)
    assert bench.led.steps[job.id][1].cancelled_by == -1


def test_the_end_of_a_step_is_ordered_again() -> None:
    """The node does not hear of it: without a session, as after a restart of the controller."""
    bench = Bench(ACCOUNTING)
    job = running(bench, shape=Shape(min_nodes=2, max_nodes=2, nodes_set=True))
    tell(bench, job, *(begun(job, number) for number in range(4)))
    bench.led.live[job.batch_host].session = ""
    for number, signum in ((0, 0), (1, 10), (2, 15), (3, 9)):
        bench.write(CancelJobs([], signum, steps=[(str(job.id), number)]))
    assert signals(bench, job.batch_host) == []
    for part in job.alloc:
        bench.register(part.node, [at(job, Phase.RUNNING)], session=f"{part.node}.again")
    assert signals(bench, job.batch_host) == [
        (0, "steps", 0), (0, "steps", 3), (10, "steps", 1), (15, "steps", 2),
    ]  # fmt: skip
    assert signals(bench, job.alloc[1].node) == []
    # Ends are ordered until they have come; of other signals nobody knows whether they were sent.
    bench.register(job.batch_host, [at(job, Phase.RUNNING)], session="once.more")
    assert signals(bench, job.batch_host)[4:] == [(0, "steps", 0), (0, "steps", 3)]
    tell(bench, job, *(over(job, number, 1) for number in range(4)))
    bench.register(job.batch_host, [at(job, Phase.RUNNING)], session="the.last")
    assert len(signals(bench, job.batch_host)) == 6


def test_signals_wait_for_a_node_that_has_not_registered() -> None:
    """scancel -s USR1 has said that all is well: the controller has just been started, and its
    nodes come back in a moment."""
    bench = Bench(ACCOUNTING)
    jobs = [running(bench, shape=Shape(nodelist=(f"node{n}",))) for n in (1, 2)]
    for job in jobs:
        bench.led.live[job.batch_host].session = ""
        bench.write(CancelJobs([str(job.id)], 10))
        assert signals(bench, job.batch_host) == []
    gone, there = jobs
    bench.write(CancelJobs([str(gone.id)]))
    for job in jobs:
        bench.register(job.batch_host, [at(job, Phase.RUNNING)], session=f"{job.batch_host}.again")
    assert signals(bench, there.batch_host) == [(10, "all", None)]
    assert signals(bench, gone.batch_host) == []
    bench.register(there.batch_host, [at(there, Phase.RUNNING)], session="once.more")
    assert len(signals(bench, there.batch_host)) == 1


def test_steps_that_cannot_be_cancelled() -> None:
    bench = Bench()
    job = running(bench)
    tell(bench, job, begun(job, 0), over(job, 1, 0))
    text = str(job.id)
    gone = "Invalid job id specified"
    # golden 029: 218.99; a step that has ended is gone as well
    for which, uid, sentence in (
        ((text, 99), 1000, gone),
        ((text, 1), 1000, gone),
        (("999", 0), 1000, gone),
        ((text, 0), 1001, "Access/permission denied"),
    ):
        reply = bench.write(CancelJobs([], steps=[which]), uid=uid)
        assert isinstance(reply, Done) and reply.errors == [(f"step {which[0]}", sentence)]
    assert signals(bench, job.batch_host) == []
    # No other job is meant by naming none.
    assert job.state == JobState.RUNNING


def test_a_plain_signal_is_for_the_steps_of_all_nodes() -> None:
    bench = Bench()
    job = running(bench, shape=Shape(min_nodes=2, max_nodes=2, nodes_set=True))
    bench.write(CancelJobs([str(job.id)], 10, "steps"))
    assert [signals(bench, part.node) for part in job.alloc] == [[(10, "steps", None)]] * 2
