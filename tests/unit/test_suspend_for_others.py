"""PreemptMode=SUSPEND,GANG in the ledger: who stands still, what is lent, who gets it back."""

from __future__ import annotations

from typing import Any

import msgspec
from unit.ledger_support import CONF, Bench, at
from unit.test_preempt import NODES, over, pass_time, run, sent, tell
from unit.test_update import change

from gsched.ledger import Ledger
from gsched.ledger.invariants import check
from gsched.model import Job, JobState, Phase, Qos, Shape
from gsched.wire.messages import CancelJobs
from gsched.wire.nodes import Pause, Prepare

TIERS = (
    CONF.replace("State=UP", "OverSubscribe=FORCE:1 State=UP")
    + "PartitionName=top Nodes=ALL PriorityTier=10 MaxTime=7-0 OverSubscribe=FORCE:1\n"
    + "PartitionName=best Nodes=ALL PriorityTier=20 MaxTime=7-0 OverSubscribe=FORCE:1\n"
    + "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n"
)
#: all GPUs and CPUs of a node and a quarter of its memory
WHOLE = Shape(gpus_per_node=8, min_cpus_node=16, mem_per_node=16000)
HALF = Shape(gpus_per_node=4, min_cpus_node=8, mem_per_node=8000)


def fill(b: Bench, **kw: Any) -> list[Job]:
    jobs = [b.job(shape=WHOLE, time_limit=3600, **kw) for _ in range(4)]
    run(b, *jobs)
    return jobs


def start(b: Bench, shape: Shape = WHOLE, partition: str = "top", **kw: Any) -> Job:
    """It comes, others make way, and it runs."""
    job = b.job(shape=shape, partitions=(partition,), **{"time_limit": 600, **kw})
    b.schedule()
    b.schedule()
    if job.state == JobState.RUNNING:
        tell(b, Phase.RUNNING)
    return job


def pauses(b: Bench, job: Job) -> list[int]:
    """What its nodes were told: seconds, -1 it goes on."""
    return [
        order.grace_s
        for part in job.alloc
        for order in sent(b, part.node, Pause)
        if order.job_id == job.id
    ]


def reload(b: Bench) -> Ledger:
    """The ledger that a controller would load now; it must say the same of everybody."""
    copies = msgspec.msgpack.decode(
        msgspec.msgpack.encode(list(b.led.jobs.values())), type=list[Job]
    )
    nodes = msgspec.msgpack.decode(
        msgspec.msgpack.encode(list(b.led.nodes.values())), type=list[type(b.led.nodes["node1"])]
    )
    loaded = Ledger.load(b.config, b.led.meta, copies, nodes, policy_records=b.led.book.records())
    assert loaded.paused == b.led.paused
    for name in NODES:
        assert loaded.cluster.used(name) == b.led.cluster.used(name), name
    for job_id in b.led.paused:
        for part in b.led.jobs[job_id].alloc:
            if part.phase < Phase.RELEASED:
                kept = loaded.cluster.kept(job_id, part.node)
                assert kept == b.led.cluster.kept(job_id, part.node)
    return loaded


def test_it_stands_still_and_goes_on() -> None:
    # Slurm's first example of preemption: the victim's state, its time and its limit stand still.
    b = Bench(TIERS)
    jobs = fill(b)
    pass_time(b, 100)
    high = start(b)
    (victim,) = [job for job in jobs if job.state == JobState.SUSPENDED]
    node = victim.alloc[0].node
    assert high.state == JobState.RUNNING
    assert high.alloc[0].node == node
    assert (high.alloc[0].gpus, high.alloc[0].cpu_ids) == (255, 0xFFFF)
    # Told before the other is launched; suspend_grace_time is 2 by default.
    orders = [one for one in b.sent[node] if isinstance(one, Pause | Prepare)]
    assert [type(one) for one in orders[-2:]] == [Pause, Prepare]
    assert pauses(b, victim) == [2]
    # Slurm 22.05 says of such a job: EndTime=Unknown, PreemptTime=None, SecsPreSuspend.
    assert victim.end_time == 0
    assert victim.preempt_time == 0
    assert victim.pre_suspend_s == 100
    suspended = victim.suspend_time
    # Memory stays counted: 16000 MB of each.
    assert b.led.cluster.used(node) == (16, 32000, 255)
    reload(b)
    pass_time(b, 50)
    over(b, high, wstatus=0)
    assert victim.state == JobState.RUNNING
    assert victim.paused == 0
    assert pauses(b, victim) == [2, -1]
    # 50 s longer than it would have been.
    assert victim.end_time == victim.start_time + 3600 + (victim.suspend_time - suspended)
    assert victim.suspend_time - suspended == 50
    assert b.led.cluster.used(node) == (16, 16000, 255)
    reload(b)


def test_what_is_left_is_nobody_elses() -> None:
    # As in Slurm: CPUs of a suspended job stay allocated to it where the preemptor leaves them.
    b = Bench(TIERS)
    jobs = fill(b)
    high = start(b, HALF)
    (victim,) = [job for job in jobs if job.paused]
    node = victim.alloc[0].node
    assert b.led.cluster.used(node) == (16, 24000, 255)
    assert high.alloc[0].gpus.bit_count() == 4
    low = b.job(shape=HALF, time_limit=60)
    b.schedule()
    assert low.state == JobState.PENDING
    # Another one that ranks above takes the rest, and nobody else is asked.
    second = start(b, HALF)
    assert second.state == JobState.RUNNING
    assert [job for job in jobs if job.paused] == [victim]
    assert second.alloc[0].node == node
    assert not second.alloc[0].gpus & high.alloc[0].gpus
    reload(b)
    over(b, high, wstatus=0)
    assert victim.state == JobState.SUSPENDED
    assert low.state == JobState.PENDING
    over(b, second, wstatus=0)
    assert victim.state == JobState.RUNNING
    b.schedule()
    assert low.state == JobState.PENDING


def test_three_on_top_of_each_other() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    high = start(b)
    (victim,) = [job for job in jobs if job.paused]
    # There are others of the lowest tier: all of them must be in use by that of the second.
    more = [start(b) for _ in range(3)]
    assert all(job.state == JobState.SUSPENDED for job in jobs)
    best = start(b, partition="best")
    (middle,) = [job for job in (high, *more) if job.paused]
    (low,) = [job for job in jobs if job.alloc[0].node == middle.alloc[0].node]
    assert best.alloc[0].node == middle.alloc[0].node
    assert (low.turn, middle.turn, best.turn) == (0, 1, 2)
    reload(b)
    over(b, best, wstatus=0)
    assert middle.state == JobState.RUNNING
    assert low.state == JobState.SUSPENDED
    over(b, middle, wstatus=0)
    assert low.state == JobState.RUNNING
    assert victim.attempt == 1


def test_the_middle_one_is_cancelled() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    seconds = [start(b) for _ in range(4)]
    best = start(b, HALF, partition="best")
    (middle,) = [job for job in seconds if job.paused]
    (low,) = [job for job in jobs if job.alloc[0].node == middle.alloc[0].node]
    b.write(CancelJobs([str(middle.id)]), uid=0)
    over(b, middle, cause="cancelled", wstatus=15)
    assert middle.state == JobState.CANCELLED
    # It has back what the one on top does not hold, and goes on only once it has all.
    assert low.state == JobState.SUSPENDED
    reload(b)
    over(b, best, wstatus=0)
    assert low.state == JobState.RUNNING


def test_the_lowest_is_cancelled() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    high = start(b, HALF)
    (victim,) = [job for job in jobs if job.paused]
    node = victim.alloc[0].node
    b.write(CancelJobs([str(victim.id)]), uid=0)
    over(b, victim, cause="cancelled", wstatus=15)
    assert high.state == JobState.RUNNING
    assert b.led.cluster.used(node) == (8, 8000, high.alloc[0].gpus)
    assert not b.led.paused


def test_a_gang_stands_still_whole() -> None:
    b = Bench(TIERS)
    shape = msgspec.structs.replace(WHOLE, min_nodes=4, max_nodes=4)
    gang = b.job(shape=shape, time_limit=3600)
    b.schedule()
    for phase in (Phase.PREPARED, Phase.RUNNING):
        tell(b, phase)
    high = start(b, HALF)
    assert gang.state == JobState.SUSPENDED
    assert pauses(b, gang) == [2, 2, 2, 2]
    # The other three nodes are its own as before.
    low = b.job(shape=HALF, time_limit=60)
    b.schedule()
    assert low.state == JobState.PENDING
    reload(b)
    over(b, high, wstatus=0)
    assert gang.state == JobState.RUNNING
    assert pauses(b, gang) == [2, -1] * 4


def test_memory_that_is_not_there_is_not_lent() -> None:
    b = Bench(TIERS)
    fill(b)
    much = msgspec.structs.replace(WHOLE, mem_per_node=50000)
    high = start(b, much)
    assert high.state == JobState.PENDING
    assert high.claim is None
    assert not b.led.paused


def test_who_asked_goes_away_before_he_starts() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    high = b.job(shape=WHOLE, partitions=("top",), time_limit=600)
    b.schedule()
    (victim,) = [job for job in jobs if job.paused]
    reload(b)
    b.write(CancelJobs([str(high.id)]))
    assert victim.state == JobState.RUNNING
    assert pauses(b, victim) == [2, -1]


def test_a_promise_that_is_not_kept_is_dropped() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    high = b.job(shape=WHOLE, partitions=("top",), time_limit=600)
    b.schedule()
    (victim,) = [job for job in jobs if job.paused]
    high.held = 1  # type: ignore[assignment]
    b.led.cluster.queue_job(high)
    b.tick()
    assert victim.state == JobState.RUNNING
    assert high.claim is None


def test_a_node_that_was_away_is_told_again() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    start(b)
    (victim,) = [job for job in jobs if job.paused]
    node = victim.alloc[0].node
    held = [b.led.jobs[one] for one in b.led.parts[node]]
    b.register(node, [at(job, Phase.RUNNING) for job in held])
    assert pauses(b, victim) == [2, 2]


def test_some_end_and_some_stand_still() -> None:
    conf = TIERS.replace(
        "PartitionName=debug Nodes=node1 MaxTime=30 DefaultTime=10",
        "PartitionName=debug Nodes=node1 MaxTime=30 PreemptMode=REQUEUE GraceTime=20",
    )
    b = Bench(conf)
    first = b.job(shape=HALF, partitions=("debug",), time_limit=1800)
    there = msgspec.structs.replace(HALF, nodelist=("node1",))
    second = b.job(shape=there, time_limit=1800)
    run(b, first, second)
    others = [b.job(shape=WHOLE, time_limit=3600) for _ in range(3)]
    run(b, *others)
    high = b.job(
        shape=msgspec.structs.replace(WHOLE, nodelist=("node1",)),
        partitions=("top",),
        time_limit=60,
    )
    b.schedule()
    # The one that ends has its grace time; the other works on until then.
    assert first.way is not None
    assert second.state == JobState.RUNNING
    b.now += 20
    over(b, first, cause="preempted", wstatus=15)
    assert second.state == JobState.SUSPENDED
    b.schedule()
    assert high.state == JobState.RUNNING
    over(b, high, wstatus=0)
    assert second.state == JobState.RUNNING


def test_scontrol_resume_is_refused() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    high = start(b)
    (victim,) = [job for job in jobs if job.paused]
    assert change(b, victim, verb="resume") == "Requested operation is presently disabled"
    assert victim.state == JobState.SUSPENDED
    # To suspend it once more is no error, as in Slurm, and changes nothing.
    assert change(b, victim, verb="suspend") == ""
    over(b, high, wstatus=0)
    assert victim.state == JobState.RUNNING


def test_without_gang_or_without_oversubscribe_nobody_stands_still() -> None:
    # Slurm: "setting OverSubscribe=NO will disable preemption on that partition".
    for conf in (TIERS.replace("FORCE:1", "NO"), TIERS.replace("SUSPEND,GANG", "SUSPEND")):
        b = Bench(conf)
        fill(b)
        assert start(b).state == JobState.PENDING
        assert not b.led.paused
        assert b.led.rules().problems


def test_usage_stands_still() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    start(b)
    (victim,) = [job for job in jobs if job.paused]
    assert victim.id not in b.led.meter.lasting


def test_qos_of_another_partition() -> None:
    conf = TIERS.replace("preempt/partition_prio", "preempt/qos")
    b = Bench(conf)
    b.led.book.put(Qos(2, "low"))
    b.led.book.put(Qos(3, "high", preempt=("low",), priority=100))
    jobs = fill(b, qos="low")
    high = start(b, qos="high")
    (victim,) = [job for job in jobs if job.paused]
    assert high.state == JobState.RUNNING
    over(b, high, wstatus=0)
    assert victim.state == JobState.RUNNING
    check(b.led)


def test_a_restart_of_the_node_daemon_of_one_that_stands_still() -> None:
    b = Bench(TIERS)
    jobs = fill(b)
    high = start(b)
    (victim,) = [job for job in jobs if job.paused]
    # Its node is lost: both go, the victim is queued again, nobody twice.
    node = victim.alloc[0].node
    b.register(node, [], boot_id="b2")
    assert victim.state == JobState.PENDING
    assert victim.restarts == 1
    assert high.state == JobState.PENDING
    assert not b.led.paused


def test_what_the_log_says_of_partitions() -> None:
    """Of those alone whose jobs would be suspended for others and are not."""
    part = "PartitionName={} Nodes=ALL PriorityTier={} OverSubscribe={}{}\n"
    conf = TIERS
    for words in (("x", 1, "NO", ""), ("y", 1, "NO", " PreemptMode=OFF"), ("z", 20, "NO", "")):
        conf += part.format(*words)
    problems = Bench(conf).led.rules().problems
    assert problems == [
        "jobs of partition x are not suspended for others: OverSubscribe is NO (FORCE:1 allows it)"
    ]
