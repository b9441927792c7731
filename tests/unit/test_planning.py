"""The plan of the whole queue through the ledger: made of what was known, taken over later."""

from __future__ import annotations

from array import array

from gsched.config import parse_config
from gsched.ledger import Outcome, Start
from gsched.ledger.commands import Configure
from gsched.model import Job, Phase, PlannedNodes, Shape, StartEstimates, Verdict
from gsched.scheduling import Planner, options_of, run_pass
from gsched.wire.messages import CancelJobs, UpdateNode
from tests.unit.ledger_support import CONF, Bench, at

WHOLE = Shape(gpus_per_node=8, min_nodes=1)


class Planned(Bench):
    """A bench whose plans are made by hand, between two passes."""

    def __init__(self, parameters: str = "bf_resolution=1") -> None:
        super().__init__(CONF + f"SchedulerParameters={parameters}\n")
        self.planner = Planner()
        self.told: dict[int, Verdict] = {}

    def run(self) -> None:
        out = self.apply(Start(run_pass(self.led, self.now)))
        while out.schedule:
            self.note(out)
            out = self.apply(Start(run_pass(self.led, self.now)))
        self.note(out)

    def note(self, out: Outcome) -> None:
        self.told |= {job_id: Verdict(job_id, reason) for job_id, reason in out.words.items()}
        for (kind, key), value in out.view.items():
            if kind == "verdict" and isinstance(value, Verdict):
                self.told[int.from_bytes(key, "big")] = value

    def begin(self) -> None:
        assert self.planner.due_at(self.led) <= self.now
        self.planner.prepare(self.led, self.now).run()

    def take(self) -> None:
        assert self.planner.apply(self.led)
        self.run()

    def plan(self) -> None:
        self.begin()
        self.take()

    def fill(self, minutes: int = 10) -> list[Job]:
        jobs = [self.job(shape=WHOLE, time_limit=60 * minutes) for _ in range(4)]
        self.run()
        for job in jobs:
            self.report(job.alloc[0].node, at(job, Phase.RUNNING))
        return jobs


def test_the_nodes_of_the_plan_are_told() -> None:
    b = Planned()
    b.fill()
    key = "plan", b"nodes"
    assert b.view[key] == PlannedNodes("")
    first = b.job(shape=WHOLE, time_limit=600)
    b.run()
    assert b.view[key] == PlannedNodes("node1")
    b.plan()
    assert b.view[key] == PlannedNodes("node1")
    b.write(CancelJobs([str(first.id)]))
    b.run()
    assert b.view[key] == PlannedNodes("")


def test_squeue_start_is_told_of_every_planned_job() -> None:
    b = Planned()
    b.fill(10)
    begun = int(b.now)
    waiting = [b.job(shape=WHOLE, time_limit=1200) for _ in range(5)]
    b.run()
    b.plan()
    starts = [b.told[job.id].start for job in waiting]
    assert starts == [begun + 600] * 4 + [begun + 1800]
    nodes = [b.told[job.id].nodes for job in waiting]
    assert sorted(nodes[:4]) == ["node1", "node2", "node3", "node4"] and nodes[4] == nodes[0]
    assert b.led.cluster.estimate(waiting[4].id) == (begun + 1800, [nodes[4]])
    assert b.told[waiting[4].id].reason == "Resources"


def test_jobs_behind_the_exact_ones_are_not_expected_before() -> None:
    b = Planned("bf_resolution=60,bf_plan_exact=4,bf_window=1440")
    b.fill(10)
    begun = int(b.now)
    waiting = [b.job(shape=WHOLE, time_limit=1200) for _ in range(5)]
    b.run()
    b.begin()
    assert b.planner.draft is not None
    estimates = b.planner.draft.estimates
    late = estimates.by_job()
    assert list(late) == [waiting[4].id]
    # Ends are rounded up to whole minutes, and the skyline has slots of a minute.
    assert begun + 1800 <= late[waiting[4].id] <= begun + 1800 + 120
    b.take()
    assert b.told[waiting[4].id].start == 0
    assert b.led.cluster.estimate(waiting[4].id) == (late[waiting[4].id], [])


def test_a_short_job_goes_into_the_gap_and_a_long_one_does_not() -> None:
    b = Planned()
    filled = b.fill(10)
    gang = b.job(shape=Shape(gpus_per_node=8, min_nodes=4, max_nodes=4), time_limit=600)
    later = b.job(shape=Shape(gpus_per_node=8, min_nodes=2, max_nodes=2), time_limit=600)
    b.run()
    b.plan()
    planned = b.told[gang.id].start
    b.now += 60
    end(b, filled[0])
    long = b.job(shape=Shape(gpus_per_node=1), time_limit=3600)
    short = b.job(shape=Shape(gpus_per_node=1), time_limit=300)
    b.run()
    assert short.alloc and not long.alloc
    assert b.led.cluster.estimate(gang.id)[0] == planned
    assert b.led.cluster.estimate(later.id)[0] == planned + 600


def test_a_stale_plan_is_taken_over_only_where_it_fits() -> None:
    """While it was made, a job was cancelled, one came and one started."""
    b = Planned()
    filled = b.fill(10)
    waiting = [b.job(shape=WHOLE, time_limit=1200) for _ in range(3)]
    b.run()
    b.begin()
    b.now += 2
    end(b, filled[0])
    b.run()
    assert waiting[0].alloc
    came = b.job(shape=WHOLE, time_limit=600)
    cancel(b, waiting[1])
    b.take()
    assert b.led.cluster.estimate(waiting[2].id)[0] > b.now
    assert b.led.cluster.estimate(came.id)[0] == 0
    b.now += 40
    b.plan()
    assert b.led.cluster.estimate(came.id)[0] > b.now


def test_a_plan_for_a_configuration_that_is_no_more_is_dropped() -> None:
    b = Planned()
    b.fill()
    b.job(shape=WHOLE, time_limit=600)
    b.run()
    b.begin()
    more = CONF + "NodeName=node5 CPUs=4 RealMemory=4000\nPartitionName=new Nodes=node5\n"
    b.apply(Configure(parse_config({"slurm.conf": more})))
    assert not b.planner.apply(b.led)
    b.run()


def test_when_a_plan_is_due() -> None:
    b = Planned("bf_interval=100")
    assert b.planner.due_at(b.led) == float("inf")
    b.fill()
    b.job(shape=WHOLE, time_limit=600)
    b.run()
    b.plan()
    assert b.planner.due_at(b.led) == float("inf"), "nothing has changed since"
    b.job(shape=Shape(gpus_per_node=1), time_limit=600, priority=1)
    b.run()
    due = b.planner.due_at(b.led)
    assert b.now < due <= b.now + 100
    for _ in range(250):
        b.job(shape=WHOLE, time_limit=600)
    assert b.planner.due_at(b.led) == b.now + 10, "much has changed"
    b.now += 200
    b.plan()
    b.write(UpdateNode(["node4"], "drain", reason="fan"), uid=0)
    b.run()
    b.write(UpdateNode(["node4"], "resume"), uid=0)
    assert b.planner.due_at(b.led) == b.now + 10, "a node is back"
    assert Planned("bf_interval=-1").planner.due_at(b.led) < b.now + 100
    assert not options_of(Planned("bf_interval=-1").config).plans


def test_estimates_of_several_rows_are_the_earliest() -> None:
    packed = StartEstimates(array("q", [7, 7, 8]).tobytes(), array("q", [90, 60, 50]).tobytes())
    assert packed.by_job() == {7: 60, 8: 50}


def end(b: Bench, job: Job) -> None:
    """Its node says that all is over."""
    name = job.alloc[0].node
    b.report(name, at(job, Phase.RELEASED, wstatus=0))


def cancel(b: Bench, job: Job) -> None:
    b.write(CancelJobs([str(job.id)]))
