"""The ledger, command by command. Messages and states are those of Slurm's transcripts."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, Bench, at, told

from gsched.ledger import Ledger, TakeOver, Tick
from gsched.ledger.nodes import bind_gpus
from gsched.model import Gpu, Hold, JobState, NodeFlag, Phase, Shape
from gsched.scheduling import run_pass
from gsched.wire.messages import (
    AckOutbox,
    CancelJobs,
    Done,
    Refused,
    UpdateJob,
    UpdateNode,
    UpdatePartition,
)
from gsched.wire.nodes import Forget, Go, Kill, Prepare, Signal


def test_a_job_runs_and_ends_and_is_forgotten_by_the_node() -> None:
    b = Bench()
    job = b.job(shape=Shape(gpus_per_node=2))
    b.schedule()
    assert job.state == JobState.RUNNING and job.alloc[0].node == "node1"
    assert job.alloc[0].gpus == 0b11
    prepare = b.sent["node1"][-1]
    assert isinstance(prepare, Prepare) and prepare.go
    assert prepare.launch.gpu_uuids == ["node1-0", "node1-1"]
    assert prepare.launch.limit_s == 3600
    b.report("node1", at(job, Phase.RUNNING))
    b.now += 10
    b.report("node1", at(job, Phase.RELEASED, wstatus=3 << 8))
    assert job.state == JobState.FAILED and job.reason == "NonZeroExitCode"
    assert job.end_time - job.start_time == 10 and not job.completing
    assert isinstance(b.sent["node1"][-1], Forget)
    assert b.led.cluster.used("node1") == (0, 0, 0)


def test_a_repeated_request_is_the_same_job() -> None:
    b = Bench()
    from gsched.model import JobSpec
    from gsched.wire.messages import SubmitJob

    write = SubmitJob(JobSpec(), b"#!/bin/sh\n", b"")
    first = b.write(write, request_id=b"r1")
    again = b.write(write, request_id=b"r1")
    assert isinstance(first, Done) and isinstance(again, Done)
    assert first.value == again.value == 1 and len(b.led.jobs) == 1


def test_a_gang_starts_whole() -> None:
    b = Bench()
    job = b.job(shape=Shape(min_nodes=2, max_nodes=2, gpus_per_node=8))
    b.schedule()
    assert [type(b.sent[n][-1]) for n in ("node1", "node2")] == [Prepare, Prepare]
    b.report("node1", at(job, Phase.PREPARED))
    assert job.configuring and not any(isinstance(o, Go) for o in b.sent["node1"])
    b.report("node2", at(job, Phase.PREPARED))
    assert not job.configuring
    assert isinstance(b.sent["node1"][-1], Go) and isinstance(b.sent["node2"][-1], Go)


def test_a_gang_that_one_node_refuses_is_taken_back_whole_and_held() -> None:
    b = Bench()
    job = b.job(shape=Shape(min_nodes=2, max_nodes=2))
    b.schedule()
    b.report("node1", at(job, Phase.PREPARED))
    b.report("node2", at(job, Phase.RELEASED, error="prolog failed"))
    kill = b.sent["node1"][-1]
    assert isinstance(kill, Kill)
    b.report("node1", at(job, Phase.RELEASED))
    assert job.state == JobState.PENDING and job.held == Hold.ADMIN
    assert job.reason == "launch failed requeued held" and job.restarts == 1


def test_a_gang_not_prepared_in_time_is_queued_again() -> None:
    b = Bench()
    job = b.job(shape=Shape(min_nodes=2, max_nodes=2))
    b.schedule()
    b.report("node1", at(job, Phase.PREPARED))
    b.now += 11  # BatchStartTimeout is 10
    b.apply(Tick())
    b.report("node1", at(job, Phase.RELEASED))
    b.report("node2")
    assert job.state == JobState.PENDING and not job.held


def test_cancel_of_a_running_job_keeps_its_resources_until_released() -> None:
    b = Bench()
    job = b.job(shape=Shape(gpus_per_node=8))
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    assert b.write(CancelJobs(["1"])).value == 1  # type: ignore[union-attr]
    assert job.state == JobState.CANCELLED and job.completing and job.cancelled_by == 1000
    assert b.led.cluster.used("node1")[2] == 0xFF
    b.report("node1", at(job, Phase.ENDED, wstatus=15, cause="cancelled"))
    assert job.completing
    b.report("node1", at(job, Phase.RELEASED, wstatus=15, cause="cancelled"))
    assert not job.completing and job.state == JobState.CANCELLED and job.wstatus == 15
    assert b.led.cluster.used("node1")[2] == 0


def test_another_users_job_cannot_be_touched() -> None:
    b = Bench()
    job = b.job(uid=1000)
    reply = b.write(CancelJobs(["1"]), uid=1001)
    assert reply.errors == [("1", "Access/permission denied")]  # type: ignore[union-attr]
    assert b.write(CancelJobs([]), uid=1001).value == 0  # type: ignore[union-attr]
    # golden 033 and 043: hold and release are updates, the others are not
    for verb in ("hold", "uhold", "release", "update"):
        reply = b.write(UpdateJob(["1"], verb, {"comment": "x"}), uid=1001)
        assert reply.errors == [("1", "Invalid user id")], verb  # type: ignore[union-attr]
    for verb in ("requeue", "requeuehold", "suspend", "resume", "top"):
        reply = b.write(UpdateJob(["1"], verb), uid=1001)
        assert reply.errors == [("1", "Access/permission denied")], verb  # type: ignore[union-attr]
    assert job.state == JobState.PENDING and not job.held and job.spec.comment == ""
    assert b.write(CancelJobs(["1"]), uid=0).value == 1  # type: ignore[union-attr]


def test_a_signal_is_passed_on_and_the_job_goes_on() -> None:
    b = Bench()
    job = b.job()
    b.schedule()
    b.write(CancelJobs(["1"], signum=10, target="batch"))
    order = b.sent["node1"][-1]
    assert isinstance(order, Signal) and order.signum == 10 and order.target == "batch"
    assert job.state == JobState.RUNNING


def test_a_time_limit_that_the_node_enforced_is_a_timeout_whatever_the_script_returns() -> None:
    b = Bench()
    job = b.job()
    b.schedule()
    b.report("node1", at(job, Phase.RELEASED, wstatus=0, cause="timeout"))
    assert job.state == JobState.TIMEOUT and job.reason == "TimeLimit"


def test_inactive_limit_ends_a_job_as_its_time_limit_does() -> None:
    b = Bench()
    job = b.job()
    b.schedule()
    b.report("node1", at(job, Phase.RELEASED, wstatus=0, cause="inactive"))
    assert job.state == JobState.TIMEOUT and job.reason == "InactiveLimit"


def test_hold_and_release() -> None:
    b = Bench()
    job = b.job(hold=True)
    assert b.verdict(job) == "JobHeldUser" and job.priority == 0
    assert b.write(UpdateJob(["1"], "release")).value == 1  # type: ignore[union-attr]
    b.schedule()
    assert job.state == JobState.RUNNING


def test_a_job_held_by_an_admin_is_not_released_by_its_owner() -> None:
    b = Bench()
    job = b.job()
    b.write(UpdateJob(["1"], "hold"), uid=0)
    assert b.verdict(job) == "JobHeldAdmin"
    reply = b.write(UpdateJob(["1"], "release"), uid=1000)
    assert reply.errors == [("1", "Access/permission denied")]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("shape", "notes"),
    [
        # golden 006: what no node can give is refused, with Slurm's remarks
        (Shape(gpus_per_node=9), []),
        (Shape(gpus_total=33), []),
        (Shape(min_nodes=4, max_nodes=4, gpus_per_node=9), []),
        (Shape(cpus_per_task=17), ["CPU count per node can not be satisfied"]),
        (Shape(mem_per_node=65 * 1024), ["Memory specification can not be satisfied"]),
        (Shape(min_nodes=3, max_nodes=3, features="rackA"), []),
        (Shape(features="rackA&rackB"), []),
        (Shape(exclude=("node1", "node2", "node3", "node4")), []),
    ],
)
def test_impossible_requests_are_refused(shape: Shape, notes: list[str]) -> None:
    b = Bench()
    reply = b.submit(shape=shape)
    assert isinstance(reply, Refused)
    assert reply.message == "Requested node configuration is not available"
    assert reply.notes == notes
    assert not b.led.jobs and b.led.meta.next_job_id == 1


def test_a_held_job_is_not_asked_whether_any_node_could_hold_it() -> None:
    """As Slurm 22.05, until it is released: then it says so and stays."""
    for shape in (
        Shape(mem_per_node=1 << 20),
        Shape(gpus_per_node=9),
        Shape(exclude=("node1", "node2", "node3", "node4")),
        Shape(tmp_disk_mb=10),
        Shape(sockets_per_node=4),
    ):
        b = Bench()
        assert isinstance(b.submit(shape=shape), Refused)
        job = b.job(shape=shape, hold=True)
        b.schedule()
        assert job.state == JobState.PENDING and job.held is Hold.USER
        b.write(UpdateJob([str(job.id)], "release", {}), 0)
        assert b.verdict(job) == "BadConstraints"
        b.write(CancelJobs([str(job.id)]), 0)
        assert job.state == JobState.CANCELLED


def test_a_node_with_less_temporary_disk_is_not_taken() -> None:
    b = Bench(CONF.replace("NodeName=node[1-2] ", "NodeName=node[1-2] TmpDisk=100 "))
    job = b.job(shape=Shape(tmp_disk_mb=100, min_nodes=2))
    b.schedule()
    assert {part.node for part in job.alloc} == {"node1", "node2"}


def test_names_that_nobody_knows_are_refused_of_held_jobs_too() -> None:
    b = Bench()
    for shape in (Shape(features="nosuch"), Shape(nodelist=("nosuch",))):
        assert isinstance(b.submit(shape=shape, hold=True), Refused)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        # golden 006: accepted, and waiting for as long as the partition is so small
        (Shape(min_nodes=5, max_nodes=5), "PartitionConfig"),
        (Shape(ntasks=65), "PartitionConfig"),
        (Shape(min_nodes=5, max_nodes=5, gpus_per_node=8), "PartitionConfig"),
    ],
)
def test_too_many_nodes_wait(shape: Shape, reason: str) -> None:
    b = Bench()
    job = b.job(shape=shape)
    assert b.verdict(job) == reason


def test_a_limit_beyond_the_partition_waits() -> None:
    b = Bench()
    job = b.job(partitions=("debug",), time_limit=31 * 60)
    assert b.verdict(job) == "PartitionTimeLimit"


def test_features_alternatives() -> None:
    b = Bench()
    job = b.job(shape=Shape(min_nodes=4, max_nodes=4, features="rackA|rackB"))
    b.schedule()
    assert len(job.alloc) == 4
    c = Bench()
    job = c.job(shape=Shape(features="rackB"))
    c.schedule()
    assert job.alloc[0].node == "node3"


def test_reasons_of_the_head_and_of_those_behind() -> None:
    b = Bench()
    b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8))
    b.schedule()
    head = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8))
    behind = b.job(shape=Shape(gpus_per_node=1))
    out = b.schedule()
    words = told(out)
    # There is no free GPU for it either, whoever is ahead.
    assert words == {head.id: "Resources", behind.id: "Resources"}


def test_priority_is_said_only_where_those_ahead_are_the_cause() -> None:
    b = Bench()
    b.job(shape=Shape(gpus_per_node=8), time_limit=3600)
    b.schedule()
    head = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8))
    # Three nodes are idle, but what runs beyond an hour would delay the head.
    long = b.job(shape=Shape(gpus_per_node=1), time_limit=7200)
    full = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8), time_limit=60)
    words = run_pass(b.led, b.now).reasons()
    assert words == {head.id: "Resources", long.id: "Priority", full.id: "Resources"}


def test_the_first_of_a_partition_may_wait_for_those_ahead_in_another() -> None:
    b = Bench(CONF + "PartitionName=wide Nodes=ALL MaxTime=7-0 State=UP\n")
    b.job(shape=Shape(min_nodes=3, max_nodes=3, gpus_per_node=8), time_limit=3600)
    b.schedule()
    head = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8))
    other = b.job(shape=Shape(gpus_per_node=1), partitions=("wide",), time_limit=7200)
    words = run_pass(b.led, b.now).reasons()
    assert words == {head.id: "Resources", other.id: "Priority"}


def test_of_several_partitions_the_hopeful_one_is_told() -> None:
    b = Bench()
    b.write(UpdatePartition("debug", "update", {"state": "DOWN"}), uid=0)
    b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8))
    b.schedule()
    job = b.job(shape=Shape(gpus_per_node=1), partitions=("debug", "gpu"), time_limit=60)
    alone = b.job(shape=Shape(gpus_per_node=1), partitions=("debug",), time_limit=60)
    words = run_pass(b.led, b.now).reasons()
    assert words == {job.id: "Resources", alone.id: "PartitionDown"}


def test_a_drained_node_takes_no_work_and_says_so() -> None:
    b = Bench()
    b.write(UpdateNode(["node1", "node2", "node3", "node4"], "drain", "fans"), uid=0)
    job = b.job()
    assert b.verdict(job).startswith("Nodes required for job are DOWN, DRAINED")
    reply = b.write(UpdateNode(["node1"], "resume"), uid=1000)
    assert isinstance(reply, Refused)
    b.write(UpdateNode(["node1"], "resume"), uid=0)
    b.schedule()
    assert job.alloc[0].node == "node1"


def test_a_silent_node_loses_its_jobs_and_they_are_queued_again() -> None:
    b = Bench()
    job = b.job()
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    b.now += 59
    b.apply(Tick())
    for other in ("node2", "node3", "node4"):
        b.report(other)
    b.now += 2
    b.apply(Tick())
    assert job.state == JobState.PENDING and job.restarts == 1
    assert b.led.nodes["node1"].flags == NodeFlag.DOWN | NodeFlag.NOT_RESPONDING
    b.schedule()
    assert job.alloc[0].node == "node2" and job.attempt == 2
    # It comes back with the old attempt: that one is killed, and its end counts for nothing.
    old = at(job, Phase.RUNNING)
    old.attempt = 1
    b.register("node1", [old])
    assert isinstance(b.sent["node1"][-1], Kill) and b.sent["node1"][-1].attempt == 1
    old.phase = Phase.RELEASED
    b.report("node1", old)
    assert isinstance(b.sent["node1"][-1], Forget)
    assert job.state == JobState.RUNNING and b.led.nodes["node1"].flags == NodeFlag.NONE


def test_proof_waits_for_the_silent_node() -> None:
    b = Bench(CONF + "RequeueFence=proof\n")
    job = b.job()
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    b.now += 61
    b.apply(Tick())
    assert job.state == JobState.RUNNING
    b.register("node1", [at(job, Phase.RUNNING)])
    assert job.state == JobState.RUNNING
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    assert job.state == JobState.COMPLETED


def test_a_restarted_controller_adopts_what_runs() -> None:
    b = Bench()
    job = b.job(shape=Shape(gpus_per_node=3))
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    again = Ledger.load(b.config, b.led.meta, [job], b.led.nodes.values())
    b.led = again
    b.apply(TakeOver())
    assert again.meta.epoch == 2
    assert again.cluster.used("node1")[2] == 0b111
    b.register("node1", [at(job, Phase.RUNNING)])
    assert not [o for o in b.sent["node1"] if isinstance(o, Kill)]
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    assert job.state == JobState.COMPLETED


def test_attempts_newer_than_the_state_are_never_killed() -> None:
    b = Bench(register=False)
    from gsched.wire.nodes import AttemptReport

    b.register("node1", [AttemptReport(77, 1, Phase.RUNNING)])
    node = b.led.nodes["node1"]
    assert node.flags & NodeFlag.DRAIN and "newer than the controller's state" in node.reason
    assert "node1" not in b.sent


def test_attempts_of_another_cluster_are_never_killed() -> None:
    b = Bench(register=False)
    from gsched.wire.nodes import AttemptReport

    out = b.register("node1", [AttemptReport(1, 1, Phase.RUNNING)], cluster="other")
    assert out.messages[0][1].refused  # type: ignore[union-attr]
    assert b.led.nodes["node1"].flags & NodeFlag.DRAIN and "node1" not in b.sent


def test_a_node_that_served_a_later_epoch_is_not_taken() -> None:
    b = Bench(register=False)
    out = b.register("node1", epoch=9)
    assert "epoch 9" in out.messages[0][1].refused  # type: ignore[union-attr]


def test_gpu_bits_stay_with_their_uuid() -> None:
    def gpus(*names: str) -> list[Gpu]:
        return [Gpu(n, "h100", i, links=[0] * len(names)) for i, n in enumerate(names)]

    bound = bind_gpus(gpus("a", "b", "c"), gpus("c", "a"), in_use=0b010)
    assert [g.uuid for g in bound] == ["a", "b", "c"] and bound[1].fault
    # b's bit is in use: the new one does not get it
    bound = bind_gpus(gpus("a", "b", "c"), gpus("c", "a", "d"), in_use=0b010)
    assert [g.uuid for g in bound] == ["a", "b", "c", "d"]
    bound = bind_gpus(gpus("a", "b", "c"), gpus("c", "a", "d"), in_use=0)
    assert [g.uuid for g in bound] == ["a", "d", "c"]


def test_fewer_gpus_than_configured_drain_the_node() -> None:
    b = Bench(register=False)
    b.register("node1", gpus=[Gpu("x", "h100", 0)])
    node = b.led.nodes["node1"]
    assert node.flags & NodeFlag.DRAIN
    assert node.reason == "gres/gpu count reported lower than configured (1 < 8)"


def test_a_finished_job_is_forgotten_after_min_job_age() -> None:
    b = Bench()
    job = b.job()
    b.write(CancelJobs(["1"]))
    assert job.finished
    b.now += 299
    b.apply(Tick())
    assert 1 in b.led.jobs
    b.now += 2
    out = b.apply(Tick())
    assert 1 not in b.led.jobs
    assert ("job", (1).to_bytes(8, "big")) in out.puts
    assert sum(1 for table, _ in out.puts if table == "blob") == 2


def test_requeue_of_a_running_job() -> None:
    b = Bench()
    job = b.job()
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    b.write(UpdateJob(["1"], "requeue"))
    b.report("node1", at(job, Phase.RELEASED, wstatus=15))
    assert job.state == JobState.PENDING and job.restarts == 1


def test_lower_priority_small_job_fills_a_gap_and_delays_nobody() -> None:
    """EASY by arithmetic: 4 of 4 nodes busy for an hour but one; the head needs all four."""
    b = Bench()
    for name in ("node1", "node2", "node3"):
        b.job(shape=Shape(gpus_per_node=8, nodelist=(name,)), time_limit=3600)
    b.schedule()
    head = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8), time_limit=600)
    short = b.job(shape=Shape(gpus_per_node=8), time_limit=3600)
    b.schedule()
    assert head.state == JobState.PENDING and short.state == JobState.RUNNING
    late = b.job(shape=Shape(gpus_per_node=1), time_limit=7200)
    b.schedule()
    assert late.state == JobState.PENDING


def test_each_end_is_one_fact_until_accounting_has_it() -> None:
    b = Bench(CONF + "AccountingStorageType=accounting_storage/slurmdbd\n")
    # The cluster's size and its first accounts have been told.
    first = b.led.meta.outbox_next
    job = b.job()
    b.schedule()
    b.write(UpdateJob(["1"], "requeue"))
    out = b.report("node1", at(job, Phase.RELEASED, wstatus=15))
    fact = out.puts["outbox", first.to_bytes(8, "big")]
    assert fact.job.state == JobState.CANCELLED and fact.job.alloc[0].node == "node1"  # type: ignore[union-attr]
    assert job.state == JobState.PENDING and job.alloc == []
    b.write(CancelJobs(["1"]))
    assert b.led.meta.outbox_next == first + 2
    assert isinstance(b.write(AckOutbox(first + 1), uid=1000), Refused)
    assert b.write(AckOutbox(first), uid=0).value == first + 1  # type: ignore[union-attr]
    assert b.write(AckOutbox(99), uid=0).value == first + 2  # type: ignore[union-attr]


def test_a_job_for_several_partitions_starts_once_where_there_is_room() -> None:
    b = Bench()
    job = b.job(partitions=("debug", "gpu"), shape=Shape(gpus_per_node=1), time_limit=600)
    other = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=7), time_limit=600)
    b.schedule()
    assert job.state == JobState.RUNNING and job.partition == "debug"
    assert other.state == JobState.RUNNING
    both = b.job(array="0-3", partitions=("gpu", "debug"), shape=Shape(mem_per_node=10))
    b.schedule()
    tasks = [j for j in b.led.jobs.values() if j.array_job_id == both.id]
    assert len(tasks) == 4 and all(j.state == JobState.RUNNING for j in tasks)


def test_a_named_node_that_is_away_is_named_as_the_reason() -> None:
    b = Bench()
    b.write(UpdateNode(["node3", "node4"], "drain", "bad fan"), uid=0)
    one = b.job(shape=Shape(nodelist=("node3",)))
    both = b.job(shape=Shape(min_nodes=3, max_nodes=3, nodelist=("node2", "node3", "node4")))

    def now() -> dict[int, str]:
        return told(b.schedule())

    # As the transcripts say of jobs "needs3" and "rnd".
    assert now() == {
        one.id: "ReqNodeNotAvail, UnavailableNodes:node3",
        both.id: "ReqNodeNotAvail, UnavailableNodes:node[3-4]",
    }
    b.write(UpdateNode(["node3"], "resume"), uid=0)
    assert now() == {both.id: "ReqNodeNotAvail, UnavailableNodes:node4"}
    assert one.alloc[0].node == "node3"


def test_only_an_administrator_goes_before_others() -> None:
    """Transcript 043: `sbatch --nice=-5` of an ordinary user."""
    b = Bench()
    reply = b.submit(uid=1000, nice=-5)
    assert isinstance(reply, Refused)
    assert reply.message == "Invalid --nice value"
    assert b.job(uid=0, nice=-5).priority - b.job(uid=0).priority == 6
