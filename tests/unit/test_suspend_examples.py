"""The worked examples of Slurm's page on preemption, on a virtual clock: states, nodes and times as
the page shows them (and as Slurm 22.05 does them)."""

from __future__ import annotations

from unit.ledger_support import Bench, at

from gsched.config import parse_config
from gsched.ledger.suspend import suspended_s
from gsched.model import Job, JobState, Phase, Shape
from gsched_cli.scontrol_node import partition_lines

#: five nodes, the two partitions of the page; memory is tracked, as it recommends
CONF = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
DefMemPerCPU=100
SlurmdTimeout=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
NodeName=n[12-16] CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000
PartitionName=active PriorityTier=1 Default=YES OverSubscribe=FORCE:1 Nodes=n[12-16]
PartitionName=hipri PriorityTier=2 OverSubscribe=FORCE:1 Nodes=n[12-16]
"""
NAMES = [f"n{number}" for number in range(12, 17)]


class Page:
    """A cluster whose jobs run until they are told to end."""

    def __init__(self) -> None:
        self.b = Bench(CONF)
        self.over: set[int] = set()

    def sbatch(self, nodes: int, partition: str = "active", tasks: int = 16) -> Job:
        shape = Shape(min_nodes=nodes, max_nodes=nodes, ntasks=tasks * nodes, ntasks_per_node=tasks)
        job = self.b.job(shape=shape, partitions=(partition,), time_limit=600)
        self.turn()
        return job

    def turn(self) -> None:
        """The scheduler looks twice, and the nodes do what they are told."""
        for _ in range(3):
            self.b.schedule()
            for name in NAMES:
                jobs = [self.b.led.jobs[one] for one in self.b.led.parts[name]]
                self.b.report(name, *(self.said(job, name) for job in jobs))

    def said(self, job: Job, name: str) -> object:
        if job.finished or (job.id in self.over and name == job.batch_host):
            return at(job, Phase.RELEASED, wstatus=0)
        return at(job, Phase.PREPARED if job.configuring and job.alloc[1:] else Phase.RUNNING)

    def wait(self, seconds: int) -> None:
        self.b.now += seconds
        self.b.tick()
        self.turn()

    def squeue(self, job: Job) -> tuple[str, int, list[str]]:
        """ST, seconds of TIME, nodes."""
        now = job.end_time if job.finished else int(self.b.now)
        if job.state == JobState.SUSPENDED:
            now = job.suspend_time
        return (
            job.state.compact,
            now - job.start_time - suspended_s(job),
            [part.node for part in job.alloc],
        )


def test_a_simple_example() -> None:
    page = Page()
    low = [page.sbatch(1) for _ in range(5)]
    assert [page.squeue(job) for job in low] == [("R", 0, [name]) for name in NAMES]
    page.wait(27)
    high = page.sbatch(3, "hipri")
    page.wait(3)
    states = [page.squeue(job)[:2] for job in low]
    assert sorted(states) == [("R", 30), ("R", 30), ("S", 27), ("S", 27), ("S", 27)]
    assert page.squeue(high)[:2] == ("R", 3)
    there = {job.alloc[0].node for job in low if job.state == JobState.SUSPENDED}
    assert {part.node for part in high.alloc} == there
    # "This state persisted until job 490 completed."
    page.wait(27)
    page.over.add(high.id)
    page.turn()
    page.wait(3)
    assert page.squeue(high)[0] == "CD"
    states = [page.squeue(job)[:2] for job in low]
    assert sorted(states) == [("R", 30), ("R", 30), ("R", 30), ("R", 60), ("R", 60)]
    # The limit of each counts from where it stood.
    for job in low:
        assert job.end_time == int(page.b.now) + 600 - page.squeue(job)[1]


def test_more_intelligence_in_the_placement() -> None:
    """The page would rather have jobs run on where there is room beside them. So it is here."""
    page = Page()
    low = [page.sbatch(1, tasks=2) for _ in range(3)]
    high = page.sbatch(3, "hipri", 2)
    assert [page.squeue(job)[0] for job in (*low, high)] == ["R", "R", "R", "R"]


def test_one_after_the_other() -> None:
    """What a real Slurm 22.05 showed: two of high rank one after the other, the victim stands still
    all the while, over two nodes of which they use one."""
    page = Page()
    victim = page.sbatch(5)
    page.wait(4)
    first = page.sbatch(1, "hipri", 2)
    assert page.squeue(victim)[:2] == ("S", 4)
    assert (victim.pre_suspend_s, victim.end_time, victim.preempt_time) == (4, 0, 0)
    page.wait(12)
    page.over.add(first.id)
    second = page.sbatch(1, "hipri", 2)
    assert page.squeue(second)[0] == "R"
    page.wait(8)
    assert page.squeue(victim)[:2] == ("S", 4)
    page.over.add(second.id)
    page.turn()
    assert page.squeue(victim)[:2] == ("R", 4)


def test_scontrol_show_partition() -> None:
    """A real Slurm 22.05 with PreemptMode=SUSPEND,GANG shows the cluster's as GANG,SUSPEND, and a
    partition's own alone."""
    conf = CONF.replace("PartitionName=active", "PartitionName=active PreemptMode=SUSPEND")
    config = parse_config({"slurm.conf": conf})
    shown = {
        name: next(line for line in partition_lines(part, config) if "PreemptMode" in line)
        for name, part in config.partitions.items()
    }
    assert shown == {
        "active": "OverTimeLimit=NONE PreemptMode=SUSPEND",
        "hipri": "OverTimeLimit=NONE PreemptMode=GANG,SUSPEND",
    }
