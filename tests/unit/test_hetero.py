"""Heterogeneous jobs: consecutive ids; started, ended, cancelled and queued again as one.

What is asserted of cancel, requeue and hold was seen on a real Slurm; the transcript is
023-env-het.
"""

from __future__ import annotations

from unit.ledger_support import Bench, at

from gsched.ledger import Ledger
from gsched.model import Job, JobSpec, JobState, Phase, Shape
from gsched.wire.messages import CancelJobs, Done, Refused, SubmitJob, UpdateJob, UpdateNode
from gsched.wire.nodes import Go, Kill, Prepare

GPUS_8 = Shape(gpus_per_node=8)
WHOLE = Shape(exclusive=1)


def submit(bench: Bench, *shapes: Shape, uid: int = 1000, **kw: object) -> list[Job]:
    specs = [JobSpec(shape=shape, **kw) for shape in shapes]  # type: ignore[arg-type]
    write = SubmitJob(specs[0], b"#!/bin/sh\ntrue\n", b"A=1", "user", "group", specs[1:])
    reply = bench.write(write, uid)
    assert isinstance(reply, Done), reply
    return [bench.led.jobs[reply.value + i] for i in range(len(shapes))]


def run(bench: Bench, members: list[Job]) -> None:
    """All nodes prepare, then hear go."""
    bench.schedule()
    for phase in (Phase.PREPARED, Phase.RUNNING):
        for node in bench.led.nodes:
            held = [job for job in members if any(p.node == node for p in job.alloc)]
            if held:
                bench.report(node, *(at(job, phase) for job in held))


def release(bench: Bench, members: list[Job], wstatus: int = 0, cause: str = "") -> None:
    for node in bench.led.nodes:
        bench.report(
            node,
            *(
                at(job, Phase.RELEASED, wstatus=-1 if job.het_offset else wstatus, cause=cause)
                for job in members
                if any(p.node == node for p in job.alloc)
            ),
        )


def reload(bench: Bench) -> Ledger:
    return Ledger.load(
        bench.config, bench.led.meta, bench.led.jobs.values(), bench.led.nodes.values()
    )


def test_ids_follow_each_other_and_only_the_leader_has_the_script() -> None:
    bench = Bench()
    members = submit(bench, Shape(gpus_per_node=1), Shape(ntasks=2), Shape(ntasks=3))
    assert [job.id for job in members] == [1, 2, 3]
    assert [(j.het_job_id, j.het_offset, j.het_size) for j in members] == [
        (1, 0, 3),
        (1, 1, 3),
        (1, 2, 3),
    ]
    assert [bool(job.script) for job in members] == [True, False, False]
    assert bench.led.meta.next_job_id == 4


def test_all_start_in_one_pass_and_go_only_when_all_nodes_are_prepared() -> None:
    bench = Bench()
    members = submit(bench, WHOLE, WHOLE)
    bench.schedule()
    assert all(job.state == JobState.RUNNING and job.configuring for job in members)
    first, second = (job.alloc[0].node for job in members)
    assert first != second
    prepares = [o for orders in bench.sent.values() for o in orders if isinstance(o, Prepare)]
    assert [(o.launch.job.id, o.go, o.launch.batch) for o in prepares] == [
        (1, False, True),
        (2, False, False),
    ]
    # Every node knows the whole: steps run over all components.
    for order in prepares:
        parts = order.launch.components
        assert [(job.id, job.alloc[0].node) for job in parts] == [(1, first), (2, second)]
    bench.report(first, at(members[0], Phase.PREPARED))
    assert not any(isinstance(o, Go) for orders in bench.sent.values() for o in orders)
    bench.report(second, at(members[1], Phase.PREPARED))
    gone = {(n, o.job_id) for n, orders in bench.sent.items() for o in orders if isinstance(o, Go)}
    assert gone == {(first, 1), (second, 2)}
    assert not any(job.configuring for job in members)


def test_none_starts_while_one_has_no_room() -> None:
    bench = Bench()
    busy = [bench.job(shape=WHOLE, time_limit=600) for _ in range(3)]
    bench.schedule()
    assert all(job.alloc for job in busy)
    members = submit(bench, WHOLE, WHOLE)
    assert bench.verdict(members[0]) == "Resources"
    assert [job.state for job in members] == [JobState.PENDING, JobState.PENDING]
    assert bench.led.cluster.used("node4") == (0, 0, 0)
    # The next end makes room for both.
    node = busy[0].alloc[0].node
    bench.report(node, at(busy[0], Phase.RELEASED, wstatus=0))
    bench.schedule()
    assert [job.state for job in members] == [JobState.RUNNING, JobState.RUNNING]


def test_jobs_behind_are_let_pass_while_a_node_that_is_needed_is_down() -> None:
    bench = Bench()
    bench.write(UpdateNode([f"node{i}" for i in (2, 3, 4)], "down", "broken"), uid=0)
    members = submit(bench, WHOLE, WHOLE)
    later = bench.job(shape=WHOLE)
    bench.schedule()
    assert members[0].state == JobState.PENDING
    assert later.state == JobState.RUNNING


def test_what_is_never_together_is_refused_at_once() -> None:
    bench = Bench()
    specs = [JobSpec(shape=Shape(min_nodes=3, max_nodes=3, exclusive=1)) for _ in range(2)]
    reply = bench.write(SubmitJob(specs[0], b"#!/bin/sh\n", b"", "u", "g", specs[1:]))
    assert isinstance(reply, Refused)
    assert reply.message == "Requested node configuration is not available"
    assert not bench.led.jobs and bench.led.meta.next_job_id == 1


def test_a_bad_component_leaves_nothing_behind() -> None:
    bench = Bench()
    specs = [JobSpec(), JobSpec(partitions=("nosuch",))]
    reply = bench.write(SubmitJob(specs[0], b"#!/bin/sh\n", b"", "u", "g", specs[1:]))
    assert isinstance(reply, Refused) and reply.message == "Invalid partition name specified"
    array = SubmitJob(JobSpec(array="1-3"), b"#!/bin/sh\n", b"", "u", "g", [JobSpec()])
    reply = bench.write(array)
    assert isinstance(reply, Refused) and reply.message == "Invalid job array specification"
    assert not bench.led.jobs and not bench.led.blob_refs


def test_the_end_of_the_script_is_the_end_of_all() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    run(bench, members)
    first = members[0].alloc[0].node
    bench.report(first, at(members[0], Phase.RELEASED, wstatus=3 << 8))
    # As sacct showed it: both FAILED, both 3:0.
    assert [job.state for job in members] == [JobState.FAILED, JobState.FAILED]
    assert [job.wstatus for job in members] == [3 << 8, 3 << 8]
    kills = [o.job_id for orders in bench.sent.values() for o in orders if isinstance(o, Kill)]
    assert kills == [2]
    assert members[1].completing and not members[0].completing
    release(bench, members[1:])
    assert not members[1].completing
    assert bench.led.cluster.used(members[1].alloc[0].node)[2] == 0


def test_a_component_cannot_be_cancelled_the_leader_takes_all() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    text = "Operation not permitted on individual component of heterogeneous job"
    for name in ("2", "1+1"):
        reply = bench.write(CancelJobs([name]))
        assert isinstance(reply, Done) and reply.errors == [(name, text)]
    assert all(job.state == JobState.PENDING for job in members)
    bench.write(CancelJobs(["1"]))
    assert all(job.state == JobState.CANCELLED for job in members)
    running = submit(bench, GPUS_8, GPUS_8)
    run(bench, running)
    bench.write(CancelJobs([], user=1000))
    assert all(job.state == JobState.CANCELLED and job.completing for job in running)


def test_another_user_cannot_touch_a_component() -> None:
    bench = Bench()
    submit(bench, GPUS_8, GPUS_8)
    for name in ("1", "2", "1+1"):
        reply = bench.write(CancelJobs([name]), uid=2000)
        assert isinstance(reply, Done) and reply.errors == [(name, "Access/permission denied")]


def test_requeue_is_asked_of_the_leader_and_takes_all_back() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    run(bench, members)
    reply = bench.write(UpdateJob(["2"], "requeue"))
    assert isinstance(reply, Done)
    assert reply.errors == [("2", "Job not heterogeneous job leader")]
    bench.write(UpdateJob(["1"], "requeue"))
    first, second = (job.alloc[0].node for job in members)
    bench.report(first, at(members[0], Phase.RELEASED))
    # The first has ended, the second still holds its node: they come back together.
    assert not any(job.state == JobState.PENDING for job in members)
    assert reload(bench).jobs == bench.led.jobs
    bench.report(second, at(members[1], Phase.RELEASED))
    assert all(job.state == JobState.PENDING and job.restarts == 1 for job in members)


def test_a_lost_node_queues_all_again() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    run(bench, members)
    second = members[1].alloc[0].node
    bench.write(UpdateNode([second], "down", "broken"), uid=0)
    first = members[0].alloc[0].node
    bench.report(first, at(members[0], Phase.RELEASED))
    assert all(job.state == JobState.PENDING and job.restarts == 1 for job in members)


def test_one_that_cannot_be_launched_holds_all() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    bench.schedule()
    first, second = (job.alloc[0].node for job in members)
    bench.report(second, at(members[1], Phase.RELEASED, wstatus=-1, error="no space"))
    bench.report(first, at(members[0], Phase.RELEASED))
    assert all(job.state == JobState.PENDING and job.held for job in members)
    assert {job.reason for job in members} == {"launch failed requeued held"}


def test_hold_of_one_component_keeps_all_back() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    bench.write(UpdateJob(["2"], "hold"))
    bench.schedule()
    assert [bool(job.held) for job in members] == [False, True]
    assert all(job.state == JobState.PENDING for job in members)
    bench.write(UpdateJob(["2"], "release"))
    bench.schedule()
    assert all(job.state == JobState.RUNNING for job in members)


def test_hold_and_release_of_the_leader_are_for_all() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    bench.write(UpdateJob(["1"], "hold"))
    assert all(job.held for job in members)
    bench.write(UpdateJob(["1"], "release"))
    assert not any(job.held for job in members)


def test_others_take_what_a_later_heterogeneous_job_cannot_use_yet() -> None:
    bench = Bench()
    blocked = submit(bench, WHOLE, WHOLE, WHOLE, WHOLE)
    small = bench.job(shape=Shape(gpus_per_node=1))
    bench.write(UpdateJob(["1"], "hold"))
    bench.schedule()
    assert small.state == JobState.RUNNING
    bench.write(UpdateJob(["1"], "release"))
    second = submit(bench, WHOLE, WHOLE, WHOLE, Shape(gpus_per_node=8))
    another = bench.job(shape=Shape(gpus_per_node=2))
    bench.schedule()
    assert all(job.state == JobState.PENDING for job in [*blocked, *second])
    # The first may keep nodes for itself, the second may not; nothing is held afterwards.
    assert another.state == JobState.RUNNING
    used = [bench.led.cluster.used(name)[2].bit_count() for name in bench.led.nodes]
    assert sorted(used) == [0, 0, 0, 3]


def test_a_dependency_on_the_leader_waits_for_its_end() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    after = bench.job(dependency="afterok:1")
    run(bench, members)
    release(bench, members)
    assert after.state == JobState.PENDING and not after.deps
    single = submit(bench, GPUS_8, GPUS_8, dependency="singleton", name="s")
    assert not any(job.deps for job in single)


def test_the_shortest_limit_of_a_component_ends_all() -> None:
    bench = Bench()
    specs = [JobSpec(shape=GPUS_8, time_limit=600), JobSpec(shape=GPUS_8, time_limit=120)]
    bench.write(SubmitJob(specs[0], b"#!/bin/sh\n", b"", "u", "g", specs[1:]))
    bench.schedule()
    orders = [o for orders in bench.sent.values() for o in orders if isinstance(o, Prepare)]
    assert {order.launch.limit_s for order in orders} == {120}


def test_what_is_stored_describes_the_same_ledger() -> None:
    bench = Bench()
    members = submit(bench, GPUS_8, GPUS_8)
    submit(bench, WHOLE, WHOLE, WHOLE, WHOLE)
    run(bench, members)
    again = reload(bench)
    assert again.jobs == bench.led.jobs
    for name in again.nodes:
        assert again.cluster.used(name) == bench.led.cluster.used(name)
