"""Preemption in the ledger: who makes way, when, and what is kept for whom."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import Ledger, accounts
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobState, Phase, Qos, Shape
from gsched.model.policy import Assoc, User
from gsched.policy.preempt import Rules, cycles
from gsched.scheduling.explain import Asked, explain
from gsched.wire.messages import CancelJobs
from gsched.wire.nodes import Kill, Preempt
from gsched_cli.why_words import cause_text

QOS = CONF + "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n"
WHOLE = Shape(gpus_per_node=8)
#: nothing but the order of what was sent
NODES = ["node1", "node2", "node3", "node4"]


def bench(conf: str = QOS, **low: Any) -> Bench:
    """Four nodes; high preempts low and normal."""
    made = Bench(conf)
    for record in (
        Qos(2, "low", **low),
        Qos(3, "high", preempt=("low", "normal"), priority=100),
    ):
        made.led.book.put(record)
    return made


def run(b: Bench, *jobs: Job) -> None:
    """They start, and their nodes say so."""
    b.schedule()
    for job in jobs:
        assert job.state == JobState.RUNNING, job.state
        tell(b, Phase.RUNNING)


def tell(b: Bench, phase: Phase, **kw: object) -> None:
    for name in NODES:
        held = [b.led.jobs[job_id] for job_id in b.led.parts[name]]
        b.report(name, *(at(job, phase, **kw) for job in held if not job.finished))


def over(b: Bench, job: Job, **kw: object) -> None:
    """Its nodes say that it has ended, and that nothing is left."""
    for part in list(job.alloc):
        if part.phase < Phase.RELEASED:
            others = [b.led.jobs[one] for one in b.led.parts[part.node] if one != job.id]
            rest = [at(one, Phase.RUNNING) for one in others]
            b.report(part.node, at(job, Phase.RELEASED, **kw), *rest)


def pass_time(b: Bench, seconds: int) -> None:
    """The nodes are heard of all the while."""
    while seconds > 0:
        b.now += min(seconds, 30)
        seconds -= 30
        tell(b, Phase.RUNNING)
        b.tick()


def rank(b: Bench, priority: int, *jobs: Job) -> None:
    for job in jobs:
        job.priority = priority
        if job.state == JobState.PENDING:
            b.led.cluster.queue_job(job)


def sent(b: Bench, node: str, kind: type) -> list[Any]:
    return [order for order in b.sent.get(node, []) if isinstance(order, kind)]


def fill(b: Bench, qos: str = "low", **kw: Any) -> list[Job]:
    jobs = [b.job(shape=WHOLE, qos=qos, time_limit=3600, **kw) for _ in range(4)]
    run(b, *jobs)
    return jobs


def test_the_cheapest_is_requeued_and_the_other_starts_in_its_place() -> None:
    b = bench()
    jobs = [b.job(shape=WHOLE, qos="low", time_limit=3600)]
    run(b, *jobs)
    b.now += 100
    jobs += [b.job(shape=WHOLE, qos="low", time_limit=3600) for _ in range(3)]
    run(b, *jobs)
    b.now += 100
    high = b.job(shape=WHOLE, qos="high", time_limit=600)
    b.schedule()
    # The three that started last lose 100 s of 8 GPUs, the first 200.
    gone = [job for job in jobs if job.state == JobState.PREEMPTED]
    assert len(gone) == 1
    assert gone[0] is not jobs[0]
    assert gone[0].completing
    assert high.state == JobState.PENDING
    assert high.claim is not None
    node = gone[0].alloc[0].node
    assert [order.cause for order in sent(b, node, Kill)] == ["preempted"]
    eligible = gone[0].eligible_time
    b.now += 1
    over(b, gone[0], cause="preempted", wstatus=15)
    assert gone[0].state == JobState.PENDING
    assert gone[0].restarts == 1
    assert gone[0].preempted == 1
    assert gone[0].eligible_time == eligible
    assert gone[0].restart_reason == "preempted"
    b.schedule()
    assert high.state == JobState.RUNNING
    assert high.alloc[0].node == node
    assert high.claim is None
    assert high.reservation == ""
    assert gone[0].way is None


def test_nobody_goes_in_vain() -> None:
    b = bench()
    jobs = fill(b, "normal")
    five = b.job(shape=Shape(gpus_per_node=8, min_nodes=5, max_nodes=5), qos="high")
    named = b.job(shape=Shape(gpus_per_node=8, nodelist=("node1",)), qos="low")
    b.schedule()
    assert all(job.state == JobState.RUNNING for job in jobs)
    assert five.claim is None
    assert named.claim is None


def test_what_they_free_is_kept() -> None:
    b = bench()
    jobs = fill(b)
    gang = b.job(shape=Shape(gpus_per_node=8, min_nodes=2, max_nodes=2), qos="high", time_limit=60)
    b.schedule()
    gone = [job for job in jobs if job.state == JobState.PREEMPTED]
    assert len(gone) == 2
    # One is free, the other not yet: who fits there does not get it, however important.
    over(b, gone[0], cause="preempted")
    small = b.job(shape=Shape(gpus_per_node=1), qos="low", time_limit=60)
    b.schedule()
    assert small.state == JobState.PENDING
    assert gone[0].state == JobState.PENDING
    assert gang.state == JobState.PENDING
    over(b, gone[1], cause="preempted")
    b.schedule()
    assert gang.state == JobState.RUNNING
    there = {job.alloc[0].node for job in jobs if job.state == JobState.RUNNING}
    assert {part.node for part in gang.alloc} == set(NODES) - there
    assert gone[0].state == JobState.PENDING


def test_grace_time() -> None:
    b = bench(grace_time=30)
    jobs = fill(b)
    b.job(shape=WHOLE, qos="high", time_limit=60)
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    node = victim.alloc[0].node
    # Slurm: it runs on, with its end moved to the end of the grace time.
    assert victim.state == JobState.RUNNING
    assert victim.end_time == int(b.now) + 30
    assert victim.preempt_time == int(b.now)
    (order,) = sent(b, node, Preempt)
    assert (order.grace_s, order.signum, order.mode, order.kind) == (30, 0, "requeue", "qos")
    b.now += 10
    b.tick()
    assert victim.state == JobState.RUNNING
    # Its node ends it, whoever lives.
    b.report(node, at(victim, Phase.ENDED, cause="preempted", wstatus=15))
    assert victim.state == JobState.PREEMPTED
    assert victim.requeue_after


def test_the_controller_ends_what_the_node_did_not() -> None:
    b = bench(grace_time=30)
    jobs = fill(b)
    b.job(shape=WHOLE, qos="high")
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    b.now += 34
    tell(b, Phase.RUNNING)
    b.tick()
    assert victim.state == JobState.RUNNING
    b.now += 1
    b.tick()
    assert victim.state == JobState.PREEMPTED


def test_who_ends_by_himself_in_the_grace_time_has_ended() -> None:
    # As Slurm 22.05 does: COMPLETED, not queued again.
    b = bench(grace_time=30)
    jobs = fill(b)
    high = b.job(shape=WHOLE, qos="high", time_limit=60)
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    b.now += 3
    over(b, victim, wstatus=0)
    assert victim.state == JobState.COMPLETED
    assert not victim.requeue_after
    b.schedule()
    assert high.state == JobState.RUNNING


def test_cancel_mode_and_jobs_that_are_not_requeued() -> None:
    b = bench()
    jobs = fill(b, requeue=False)
    b.job(shape=WHOLE, qos="high")
    b.schedule()
    (victim,) = [job for job in jobs if job.state == JobState.PREEMPTED]
    over(b, victim, cause="preempted")
    assert victim.state == JobState.PREEMPTED
    b = bench(preempt_mode="cancel")
    jobs = fill(b)
    b.job(shape=WHOLE, qos="high")
    b.schedule()
    (victim,) = [job for job in jobs if job.state == JobState.PREEMPTED]
    assert not victim.requeue_after
    b = bench(preempt_mode="off")
    jobs = fill(b)
    b.job(shape=WHOLE, qos="high")
    b.schedule()
    assert all(job.state == JobState.RUNNING for job in jobs)


def test_exempt_for_a_time() -> None:
    b = bench(QOS + "PreemptExemptTime=00:10:00\n")
    jobs = fill(b)
    b.job(shape=WHOLE, qos="high", time_limit=60)
    pass_time(b, 599)
    b.schedule()
    assert all(job.state == JobState.RUNNING for job in jobs)
    b.now += 3
    assert b.tick().schedule
    b.schedule()
    assert sum(job.state == JobState.PREEMPTED for job in jobs) == 1


@pytest.mark.parametrize(("flags", "exempt"), [((), 300), (("OverPartQOS",), 600)])
def test_the_exempt_time_of_a_partitions_qos(flags: tuple[str, ...], exempt: int) -> None:
    """qos.html: "A Partition QOS with PreemptExemptTime takes precedence over a job QOS with
    PreemptExemptTime, unless the job QOS has the OverPartQOS flag enabled"."""
    b = bench(QOS.replace("PartitionName=gpu", "PartitionName=gpu QOS=kept"))
    put = b.led.book.put
    put(Qos(9, "kept", preempt_exempt_time=300))
    put(msgspec.structs.replace(b.led.book.qos["low"], preempt_exempt_time=600, flags=flags))
    (job, *_) = fill(b)
    assert b.led.rules().exempt_until(job) == job.start_time + exempt


def test_partitions_by_tier() -> None:
    conf = CONF.replace("PartitionName=gpu Nodes=ALL", "PartitionName=gpu Nodes=ALL GraceTime=20")
    conf += "PartitionName=top Nodes=ALL PriorityTier=10 MaxTime=1:00:00\n"
    conf += "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n"
    b = Bench(conf)
    jobs = [b.job(shape=WHOLE, time_limit=3600) for _ in range(4)]
    run(b, *jobs)
    b.job(shape=WHOLE, partitions=("top",), time_limit=60)
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    assert victim.state == JobState.RUNNING
    assert victim.way is not None
    assert (victim.way.mode, victim.way.until) == ("cancel", int(b.now) + 20)


def test_who_asked_is_cancelled_and_the_others_go_on() -> None:
    b = bench(grace_time=30)
    jobs = fill(b)
    high = b.job(shape=WHOLE, qos="high")
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    b.write(CancelJobs([str(high.id)]))
    assert victim.way is None
    assert victim.preempted == 0
    assert victim.end_time == victim.start_time + 3600
    orders = sent(b, victim.alloc[0].node, Preempt)
    assert [order.grace_s for order in orders] == [30, -1]
    b.now += 60
    tell(b, Phase.RUNNING)
    b.tick()
    assert victim.state == JobState.RUNNING


def test_it_is_known_after_a_restart() -> None:
    b = bench(grace_time=30)
    jobs = fill(b)
    high = b.job(shape=WHOLE, qos="high", time_limit=60)
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    copies = msgspec.msgpack.decode(
        msgspec.msgpack.encode(list(b.led.jobs.values())), type=list[Job]
    )
    loaded = Ledger.load(
        b.config, b.led.meta, copies, b.led.nodes.values(), policy_records=b.led.book.records()
    )
    assert loaded.making_way == {victim.id}
    assert loaded.claimants == {high.id}
    again = loaded.jobs[high.id]
    assert loaded.cluster.what_if.ways(again) != [""]
    assert loaded.jobs[victim.id].way == victim.way


def test_no_thrash() -> None:
    b = bench(QOS + "SchedulerParameters=preempt_max=2,preempt_cooldown=50\n")
    jobs = fill(b)
    rounds = 0
    for _ in range(12):
        b.job(shape=WHOLE, qos="high", time_limit=600)
    for _ in range(400):
        b.now += 10
        b.tick()
        b.schedule()
        tell(b, Phase.RUNNING)
        for job in list(b.led.jobs.values()):
            if job.state == JobState.PREEMPTED:
                rounds += 1
                over(b, job, cause="preempted")
            elif job.state == JobState.RUNNING and job.spec.qos == "high":
                if b.now >= job.start_time + 20:
                    over(b, job, wstatus=0)
    assert rounds <= 2 * len(jobs)
    assert all(job.preempted <= 2 for job in jobs)


def test_what_users_see() -> None:
    b = bench(QOS + "PreemptExemptTime=00:05:00\n")
    jobs = fill(b)
    assert all(job.preempt_eligible == job.start_time + 300 for job in jobs)
    high = b.job(shape=WHOLE, qos="high", time_limit=60)
    assert b.verdict(high) == "Resources"
    why = explain(b.led, high, Asked(int(b.now), int(b.now)))
    exempt = next(cause for cause in why.causes if cause.kind == "exempt")
    assert exempt.until == jobs[0].start_time + 300
    assert exempt.have == 4
    pass_time(b, 301)
    why = explain(b.led, high, Asked(int(b.now), int(b.now)))
    would = next(cause for cause in why.causes if cause.kind == "would_preempt")
    assert len(would.jobs) == 1
    b.schedule()
    victim = next(job for job in jobs if job.state == JobState.PREEMPTED)
    assert would.jobs[0].id == str(victim.id)
    assert b.verdict(high) == "Resources"
    why = explain(b.led, high, Asked(int(b.now), int(b.now)))
    assert [cause.kind for cause in why.causes] == ["preempting"]
    text = cause_text(why, why.causes[0], str)
    assert text.startswith(f"It preempts job {victim.id}, and starts when they have ended")


def test_many_that_wait_in_vain_are_not_gone_through_in_every_pass() -> None:
    b = bench()
    fill(b, "high")
    claims = b.led.cluster.claims
    for _ in range(300):
        b.job(shape=WHOLE, qos="high")
    b.schedule()
    assert claims.look_at == int(b.now) + 2
    claims.tried.clear()
    b.schedule()
    assert not claims.tried
    b.now += 2
    b.schedule()
    assert len(claims.tried) == 8


def test_rings_of_lists_are_found() -> None:
    assert cycles({"a": ("b",), "b": ("c",), "c": ("a",), "d": ("a",)}) == [("a", "b", "c")]
    assert cycles({"a": ("b",), "b": (), "c": ("a", "b")}) == []
    b = Bench(QOS)
    b.led.book.put(Qos(2, "x", preempt=("y",)))
    b.led.book.put(Qos(3, "y", preempt=("x",)))
    rules = Rules(b.config, b.led.book)
    assert "QOS x, y would preempt each other: none of them does" in rules.problems
    one = b.job(shape=WHOLE, qos="x")
    assert not rules.may_preempt(one)


def test_within_one_qos_by_priority_and_never_back() -> None:
    b = bench(QOS, preempt_mode="requeue,within")
    jobs = fill(b)
    first = b.job(shape=WHOLE, qos="low", time_limit=60)
    rank(b, 100, *jobs)
    rank(b, 200, first)
    b.schedule()
    (victim,) = [job for job in jobs if job.state == JobState.PREEMPTED]
    over(b, victim, cause="preempted")
    b.schedule()
    assert first.state == JobState.RUNNING
    tell(b, Phase.RUNNING)
    # Even if it becomes more important than the one that it made way for.
    rank(b, 400, *jobs)
    rank(b, 300, victim)
    pass_time(b, 100)
    b.schedule()
    assert first.state == JobState.RUNNING


def test_it_waits_where_a_start_is_near() -> None:
    b = bench(QOS + "SchedulerParameters=preempt_wait=300\n")
    jobs = [
        b.job(shape=WHOLE, qos="low", time_limit=seconds) for seconds in (240, 3600, 3600, 3600)
    ]
    run(b, *jobs)
    high = b.job(shape=WHOLE, qos="high", time_limit=60)
    b.schedule()
    b.schedule()
    assert all(job.state == JobState.RUNNING for job in jobs)
    assert high.claim is None


@pytest.mark.parametrize("word", ["youngest_first", "strict_order"])
def test_orders_of_slurm(word: str) -> None:
    b = bench(QOS + f"PreemptParameters={word}\n")
    old = b.job(shape=WHOLE, qos="low", time_limit=3600)
    run(b, old)
    pass_time(b, 1000)
    others = [b.job(shape=WHOLE, qos="low", time_limit=3600) for _ in range(2)]
    young = b.job(shape=WHOLE, qos="low", time_limit=3600)
    run(b, old, *others, young)
    rank(b, 50, old)
    rank(b, 60, young)
    rank(b, 70, *others)
    # It has saved its work: ending it costs nothing.
    old.checkpoint_time = int(b.now) + 10
    b.now += 10
    b.job(shape=WHOLE, qos="high")
    b.schedule()
    gone = [job for job in (old, *others, young) if job.state == JobState.PREEMPTED]
    if word == "strict_order":
        assert gone == [old]
    else:
        assert len(gone) == 1
        assert gone[0] is not old


def test_who_saved_his_work_goes_first() -> None:
    b = bench()
    jobs = fill(b)
    pass_time(b, 500)
    chosen = jobs[2]
    node = chosen.alloc[0].node
    b.report(node, at(chosen, Phase.RUNNING, checkpoint_ms=5000))
    assert chosen.checkpoint_time == int(b.now) - 5
    b.job(shape=WHOLE, qos="high")
    b.schedule()
    assert [job for job in jobs if job.state == JobState.PREEMPTED] == [chosen]


def test_one_task_of_an_array() -> None:
    b = bench()
    fill(b)
    array = b.job(shape=WHOLE, qos="high", array="0-1", time_limit=60)
    b.schedule()
    tasks = [job for job in b.led.jobs.values() if job.array_job_id == array.array_job_id]
    assert [job.array_task_id for job in tasks if job.claim is not None] == [0]


def test_jobs_in_the_way_of_the_plan_of_others() -> None:
    """A node that is kept for a job which comes first is not taken by one that comes later."""
    b = bench()
    jobs = fill(b)
    ends = jobs[0].alloc[0].node
    named = Shape(gpus_per_node=8, nodelist=(ends,))
    big = b.job(shape=named, qos="normal", time_limit=60)
    high = b.job(shape=named, qos="high")
    rank(b, 9000, big)
    rank(b, 10, high)
    b.schedule()
    assert big.state == JobState.PENDING
    assert high.claim is None
    assert jobs[0].state == JobState.RUNNING


def test_what_is_promised_of_part_of_a_node_has_its_memory() -> None:
    b = bench(grace_time=60)
    half = Shape(gpus_per_node=4, min_cpus_node=4, mem_per_node=30000)
    jobs = [b.job(shape=half, qos="low", time_limit=3600) for _ in range(8)]
    run(b, *jobs)
    high = b.job(shape=half, qos="high", time_limit=60)
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    node = victim.alloc[0].node
    # 4000 MB are free beside both; once the victim has gone 34000, of which 30000 are promised.
    over(b, victim, cause="preempted", wstatus=15)
    thief = b.job(shape=Shape(mem_per_node=20000, nodelist=(node,)), qos="low", time_limit=600)
    small = b.job(shape=Shape(mem_per_node=3000, nodelist=(node,)), qos="low", time_limit=600)
    rank(b, 900, thief, small)
    rank(b, 1, high)
    b.schedule()
    assert thief.state == JobState.PENDING
    assert small.state == JobState.RUNNING
    assert high.state == JobState.RUNNING


@pytest.mark.parametrize(
    ("limit", "goes"),
    [
        ({"max_tres_pu": {"gres/gpu": 1}}, 0),
        ({"grp_tres": {"cpu": 15}}, 0),
        ({"max_tres_per_job": {"gres/gpu": 7}}, 0),
        ({"grp_tres": {"gres/gpu": 8}}, 1),
        ({}, 1),
    ],
)
def test_nobody_makes_way_for_a_job_that_a_limit_would_keep(
    limit: dict[str, Any], goes: int
) -> None:
    """`--exclusive` holds all GPUs of its node: the job waits (recorded: QOSMaxGRESPerUser), and a
    real Slurm lets those that run go on."""
    b = bench("AccountingStorageEnforce=limits\n" + QOS)
    high = msgspec.structs.replace(b.led.book.qos["high"], **limit)
    accounts.put(b.led, high, Outcome())
    shape = Shape(ntasks=8)
    for record in (
        *(Assoc(1, "root", qos=("normal", "low", "high")), Assoc(5, "root", "user")),
        User("user", "root"),
    ):
        accounts.put(b.led, record, Outcome())
    b.tick()
    jobs = [b.job(shape=shape, qos="low", time_limit=3600) for _ in range(8)]
    run(b, *jobs)
    whole = Shape(min_nodes=1, nodes_set=True, exclusive=1)
    b.job(shape=whole, qos="high", time_limit=600)
    for _ in range(3):
        b.schedule()
        b.now += 3
        b.tick()
    assert sum(job.state == JobState.PREEMPTED for job in jobs) == 2 * goes
