"""The worked examples of Slurm's page on gang scheduling, on a virtual clock: who works, who stands
still, and for how long each has worked; and what a real Slurm 22.05 did with 6 s slices."""

from __future__ import annotations

from unit.ledger_support import Bench, at

from gsched.ledger.suspend import suspended_s
from gsched.model import Job, JobState, Phase, Shape

#: the cluster of the page; memory is tracked, as it recommends
CONF = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
DefMemPerCPU=100
SlurmdTimeout=0
PriorityType=priority/basic
SchedulerType=sched/builtin
PreemptMode=GANG
NodeName=n[12-16] CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=64000
PartitionName=active Default=YES OverSubscribe=FORCE Nodes=n[12-16]
"""
NAMES = [f"n{number}" for number in range(12, 17)]


class Page:
    """A cluster whose nodes do at once what they are told, and whose jobs run for so long."""

    def __init__(self, conf: str = CONF) -> None:
        self.b = Bench(conf)
        self.length: dict[int, int] = {}
        self.names = list(self.b.config.nodes)

    def sbatch(self, nodes: int, tasks: int = 8, length: int = 300, **kw: object) -> Job:
        shape = Shape(min_nodes=nodes, max_nodes=nodes, ntasks=tasks * nodes, ntasks_per_node=tasks)
        given: dict[str, object] = {"time_limit": 600, "shape": shape, **kw}
        job = self.b.job(**given)
        self.length[job.id] = length
        self.turn()
        return job

    def turn(self) -> None:
        """The scheduler looks, and the nodes tell what they did."""
        self.b.schedule()
        for _ in range(2):
            for name in self.names:
                jobs = [self.b.led.jobs[one] for one in self.b.led.parts[name]]
                self.b.report(name, *(self.said(job) for job in jobs))

    def over(self, job: Job) -> bool:
        """Its script comes to its end."""
        return job.state == JobState.RUNNING and self.worked(job) >= self.length[job.id]

    def said(self, job: Job) -> object:
        if job.finished or self.over(job):
            return at(job, Phase.RELEASED, wstatus=0)
        gang = job.configuring and (job.alloc[1:] or job.het_job_id)
        return at(job, Phase.PREPARED if gang else Phase.RUNNING)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.b.now += 1
            out = self.b.tick()
            if out.orders or any(self.over(job) for job in self.b.led.jobs.values()):
                self.turn()

    def worked(self, job: Job) -> int:
        """Seconds of TIME."""
        now = job.end_time if job.finished else int(self.b.now)
        if job.state == JobState.SUSPENDED:
            now = job.suspend_time
        return now - job.start_time - suspended_s(job)

    def squeue(self, *jobs: Job) -> list[tuple[str, int]]:
        """ST and seconds of TIME."""
        return [(job.state.compact, self.worked(job)) for job in jobs]


def on(job: Job) -> list[str]:
    return [part.node for part in job.alloc]


def test_a_simple_example() -> None:
    page = Page()
    job3 = page.sbatch(5)
    page.wait(8)
    job4 = page.sbatch(5)
    page.wait(5)
    assert page.squeue(job3, job4) == [("R", 13), ("S", 0)]
    assert on(job3) == on(job4) == NAMES
    # "After 30 seconds the gang scheduler swaps jobs".
    page.wait(24)
    assert page.squeue(job3, job4) == [("R", 37), ("S", 0)]
    page.wait(1)
    assert page.squeue(job3, job4) == [("S", 38), ("R", 0)]
    page.wait(29)
    assert page.squeue(job3, job4) == [("S", 38), ("R", 29)]
    # "After another 30 seconds the gang scheduler sets job 3 running again".
    page.wait(1 + 9)
    assert page.squeue(job3, job4) == [("R", 47), ("S", 30)]
    # Time at rest is not in the limit of 600 s.
    assert job3.end_time == int(page.b.now) + 600 - 47


def test_resources_are_kept_busy() -> None:
    """Job 10 works all the time, 9 and 11 take turns."""
    page = Page()
    job9, job10, job11 = page.sbatch(3), page.sbatch(2), page.sbatch(3)
    assert on(job9) == on(job11) == NAMES[:3]
    assert on(job10) == NAMES[3:]
    page.wait(11)
    assert page.squeue(job9, job10, job11) == [("R", 11), ("R", 11), ("S", 0)]
    page.wait(31)
    assert page.squeue(job9, job10, job11) == [("S", 30), ("R", 42), ("R", 12)]
    page.wait(23)
    assert page.squeue(job9, job10, job11) == [("R", 35), ("R", 65), ("S", 30)]


def test_local_backfilling() -> None:
    page = Page()
    job12, job13, job14 = page.sbatch(3), page.sbatch(5), page.sbatch(2)
    page.wait(14)
    assert page.squeue(job12, job13, job14) == [("R", 14), ("S", 0), ("R", 14)]
    assert on(job14) == NAMES[3:]
    # A job on several nodes has them all or none: the row of 13, then that of 12 and 14.
    page.wait(26)
    assert page.squeue(job12, job13, job14) == [("S", 30), ("R", 10), ("S", 30)]
    page.wait(30)
    assert page.squeue(job12, job13, job14) == [("R", 40), ("S", 30), ("R", 40)]


def six(page: Page) -> list[Job]:
    return [page.sbatch(5, tasks=2) for _ in range(6)]


def test_cores_of_their_own() -> None:
    """CR_Core_Memory: "jobs 46 and 47 don't ever get suspended"; the others share cores."""
    page = Page()
    jobs = six(page)
    page.wait(9)
    assert page.squeue(*jobs) == [("R", 9)] * 4 + [("S", 0)] * 2
    for one, other in ((0, 4), (1, 5)):
        for mine, its in zip(jobs[one].alloc, jobs[other].alloc, strict=True):
            assert mine.cpu_ids == its.cpu_ids
    page.wait(27)
    assert page.squeue(*jobs) == [("S", 30)] * 2 + [("R", 36)] * 2 + [("R", 6)] * 2
    page.wait(107)
    assert page.squeue(*jobs) == [("R", 83)] * 2 + [("R", 143)] * 2 + [("S", 60)] * 2


def test_cpus_that_are_counted() -> None:
    """CR_CPU_Memory without a binding of tasks: "all 6 jobs sharing time on the CPUs"."""
    page = Page(CONF + "SelectTypeParameters=CR_CPU_Memory\n")
    jobs = six(page)
    page.wait(11)
    assert page.squeue(*jobs) == [("R", 11)] * 4 + [("S", 0)] * 2
    page.wait(169)
    worked = [page.worked(job) for job in jobs]
    # Of six slices each has had four.
    assert worked == [120] * 6
    assert sum(job.state == JobState.RUNNING for job in jobs) == 4


def test_binding_makes_cpus_their_own() -> None:
    """ "However when task affinity is enabled ... individual resources"."""
    page = Page(CONF + "SelectTypeParameters=CR_CPU_Memory\nTaskPlugin=task/affinity\n")
    jobs = six(page)
    page.wait(36)
    assert page.squeue(*jobs)[2:4] == [("R", 36)] * 2


def test_three_on_the_same_cores() -> None:
    """FORCE:3 with slices of 6 s on a real Slurm: one after the other, a fourth waits."""
    conf = CONF.replace("=FORCE ", "=FORCE:3 ") + "SchedulerTimeSlice=6\n"
    page = Page(conf)
    jobs = [page.sbatch(5) for _ in range(4)]
    assert [job.state.compact for job in jobs] == ["R", "S", "S", "PD"]
    seen = []
    for _ in range(6):
        seen.append([job.state.compact for job in jobs].index("R"))
        page.wait(6)
    assert seen == [0, 1, 2, 0, 1, 2]
    assert page.squeue(*jobs[:3]) == [("R", 12), ("S", 12), ("S", 12)]


def test_a_place_that_comes_free() -> None:
    """On a real Slurm the other goes on within the second in which the first has ended."""
    page = Page(CONF + "SchedulerTimeSlice=6\n")
    first = page.sbatch(1, length=4)
    second = page.sbatch(5)
    page.wait(3)
    assert page.squeue(first, second) == [("R", 3), ("S", 0)]
    page.wait(1)
    assert page.squeue(first, second) == [("CD", 4), ("R", 0)]
