"""Random histories of jobs that take turns, in two tiers of which one suspends the other: after
every command the ledger's invariants hold (nobody works on CPUs on which it is another's turn,
nobody waits for a turn that is nobody's), what is loaded says the same, and everybody has his
turn."""

from __future__ import annotations

import random
from typing import Any

import pytest
from unit.test_gang_examples import Page
from unit.test_time_slices import reload
from unit.test_update import change

from gsched.model import Job, JobState, Shape
from gsched.wire.messages import CancelJobs

CONF = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
DefMemPerCPU=100
SlurmdTimeout=0
PriorityType=priority/basic
SchedulerTimeSlice=5
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
NodeName=n[12-14] CPUs=4 Sockets=2 CoresPerSocket=2 RealMemory=64000
PartitionName=active PriorityTier=1 Default=YES OverSubscribe=FORCE:3 Nodes=n[12-14]
PartitionName=hipri PriorityTier=2 OverSubscribe=FORCE:2 Nodes=n[12-14]
"""
SLICE = 5


def submit(page: Page, rnd: random.Random) -> Job:
    nodes, tasks = rnd.choice([1, 1, 1, 2, 3]), rnd.choice([1, 2, 4])
    partition = rnd.choice(["active", "active", "active", "hipri"])
    shape = Shape(min_nodes=nodes, max_nodes=nodes, ntasks=nodes * tasks, ntasks_per_node=tasks)
    return page.sbatch(nodes, tasks, rnd.choice([3, 12, 40]), shape=shape, partitions=(partition,))


def step(page: Page, rnd: random.Random) -> None:
    """Something happens."""
    jobs = [job for job in page.b.led.jobs.values() if job.alloc and not job.finished]
    what = rnd.choice(["submit"] * 4 + ["wait"] * 4 + ["cancel", "suspend", "resume", "requeue"])
    if what == "submit":
        submit(page, rnd)
    elif what == "wait" or not jobs:
        page.wait(rnd.choice([1, 2, SLICE, 7]))
    elif what == "cancel":
        page.b.write(CancelJobs([str(rnd.choice(jobs).id)]), uid=0)
    elif what == "requeue":
        change(page.b, rnd.choice(jobs), verb="requeue")
    else:
        change(page.b, rnd.choice(jobs), verb=what)
    page.turn()
    if rnd.random() < 0.1 and not page.b.led.claimants:
        reload(page)
    if rnd.random() < 0.03:
        node = rnd.choice(page.names)
        page.b.register(node, [], boot_id=f"b{page.b.now}")
        page.turn()


@pytest.mark.parametrize("seed", range(24))
def test_histories(seed: int) -> None:
    rnd = random.Random(seed)
    page = Page(CONF)
    for _ in range(25):
        step(page, rnd)
    # Whoever was suspended by hand goes on; then all come to their end in their turn.
    left: list[Any] = []
    for job in list(page.b.led.jobs.values()):
        if job.state == JobState.SUSPENDED and not job.sliced and not job.paused:
            assert change(page.b, job, verb="resume") == ""
    for _ in range(400):
        # One that was suspended by hand and queued again is held, as in Slurm.
        left = [job for job in page.b.led.jobs.values() if not job.finished and not job.held]
        if not left:
            break
        page.wait(5)
        page.turn()
    assert not left, [(job.id, job.state, job.sliced, job.paused) for job in left]


@pytest.mark.parametrize("seed", range(8))
def test_everybody_has_his_turn(seed: int) -> None:
    """Whoever waits works again within as many slices as there are jobs."""
    rnd = random.Random(seed)
    page = Page(CONF)
    for _ in range(9):
        job = submit(page, rnd)
        page.length[job.id] = 10_000
    jobs = [job for job in page.b.led.jobs.values() if job.partition == "active" and job.alloc]
    waiting = [job for job in jobs if job.sliced]
    had = {job.id: page.worked(job) for job in waiting}
    page.wait(SLICE * (len(jobs) + 1))
    for job in waiting:
        if not job.paused:
            assert page.worked(job) > had[job.id], job.id
