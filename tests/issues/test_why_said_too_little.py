"""`gsched why` did not say which of the nodes that a job names is in its way, took a job that is
larger than its reservation for one that is larger than the partition, and told nothing, as squeue
did, in the seconds after a restart in which nothing starts."""

from __future__ import annotations

import copy

import pytest
from unit.ledger_support import Bench, at
from unit.why_support import CONF, World

from gsched.ledger import Ledger, TakeOver
from gsched.ledger.settle import SETTLE_S
from gsched.model import Job, JobState, Phase, Shape
from gsched.model.why import Why
from gsched.scheduling.explain import Asked, explain
from gsched.wire.messages import UpdateReservation
from gsched_cli.why_words import lines, sentences


def when(time: int) -> str:
    return f"T{time - 1_000_000:+}"


def world(**resv: str) -> World:
    """With a reservation r of some of it, which begins soon: what one in force can never hold is
    refused."""
    conf = CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0")
    made = World(conf.replace("=gpu\n", "=gpu,shard\n").replace("h100:8", "h100:8,shard:32"))
    if resv:
        first = {"starttime": str(int(made.now) + 600), "duration": "36000", "users": "alice"}
        made.write(UpdateReservation("r", "create", first | resv), 0)
        assert "r" in made.led.reservations
    return made


def said(made: World, *argv: str) -> list[str]:
    job = made.sbatch(*argv)
    if made.led.reservations:
        made.now += 600
        made.tick()
    made.settle()
    assert job.state == JobState.PENDING
    return sentences(made.why(job), when)


def test_named_nodes_without_room() -> None:
    """Three other nodes have room, which is no help."""
    made = world()
    made.started("-wnode1", "--gpus-per-node=7", "--cpus-per-task=15")
    one = said(made, "-wnode1", "--gpus-per-node=2", "-c1")
    assert one == ["It names nodes that have no room: node1 has fewer than 2 free GPUs."]
    both = said(made, "-wnode1", "-N2", "--gpus-per-node=2", "-c2")
    assert both == [
        "It names nodes that have no room: node1 has fewer than 2 free CPUs and has fewer than 2 "
        "free GPUs."
    ]


def test_the_table_says_which_nodes_are_named() -> None:
    made = world()
    made.started("-wnode1", "--exclusive")
    job = made.sbatch("-wnode1,node2")
    made.settle()
    text = list(lines(made.why(job), when))
    assert "  node[1-2] among them (--nodelist)" in text


@pytest.mark.parametrize(
    ("resv", "argv", "keeps", "wants"),
    [
        ({"nodes": "node1"}, ("-N2",), "1 node (node1)",
         "2 nodes with 1 CPU, 1000M of memory each"),
        ({"nodes": "node1", "gpus": "2"}, ("--gpus-per-node=4",), "2 GPUs of 1 node (node1)",
         "4 GPUs, 1 CPU, 1000M of memory"),
        ({"nodes": "node1", "gpus": "2"}, ("--gpus=4",), "2 GPUs of 1 node (node1)",
         "4 GPUs in all"),
        ({"nodes": "node1", "corecnt": "4"}, ("-n8",), "4 CPUs of 1 node (node1)",
         "8 CPUs in all"),
    ],
)  # fmt: skip
def test_larger_than_its_reservation(
    resv: dict[str, str], argv: tuple[str, ...], keeps: str, wants: str
) -> None:
    made = world(**resv)
    assert said(made, "--reservation=r", *argv) == [
        "Its reservation r cannot hold it, even if no job ran there: that keeps "
        f"{keeps}, and the job wants {wants}."
    ]


def test_a_named_node_outside_of_its_reservation() -> None:
    text = said(world(nodes="node1,node3"), "--reservation=r", "-wnode2")
    assert text == ["It names node2 (--nodelist), which is not of its reservation r (node[1,3])."]


def test_several_shards_are_told_as_such() -> None:
    made = world()
    for _ in range(32):
        made.started("--gres=shard:3", "--mem=10")
    assert said(made, "--gres=shard:2", "--mem=10") == [
        "No node has room in partition gpu: 4 of 4 nodes have no GPU with 2 shards free."
    ]


# ---- after a restart -------------------------------------------------------------------------


class Restarted(Bench):
    """A node is in use, and a job waits for it; then the controller begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.job(shape=Shape(nodelist=("node1",), gpus_per_node=8))
        self.schedule()
        self.report("node1", at(self.running, Phase.RUNNING))
        self.waiting = self.job(shape=Shape(nodelist=("node1",), gpus_per_node=8)).id
        self.other = self.job(shape=Shape(nodelist=("node2",)), partitions=("gpu", "debug")).id
        self.held = self.job(shape=Shape(), hold=True).id
        old = self.led
        self.led = Ledger.load(
            self.config,
            copy.deepcopy(old.meta),
            copy.deepcopy(list(old.jobs.values())),
            copy.deepcopy(list(old.nodes.values())),
        )
        self.view.clear()
        self.apply(TakeOver())
        self.schedule()

    def word(self, job_id: int) -> str:
        verdict = self.view.get(("verdict", job_id.to_bytes(8, "big")))
        return verdict.reason if verdict is not None else ""  # type: ignore[attr-defined]

    def why(self, job_id: int) -> Why:
        job: Job = self.led.jobs[job_id]
        return explain(self.led, job, Asked(int(self.now), int(self.now)))

    def back(self, *names: str) -> None:
        for name in names:
            held = [at(self.running, Phase.RUNNING)] if name == "node1" else []
            self.register(name, held, epoch=2)
        self.schedule()


def test_everybody_is_told_why_nothing_starts() -> None:
    b = Restarted()
    assert (b.word(b.waiting), b.word(b.other)) == ("Resources", "Resources")
    assert b.word(b.held) == "JobHeldUser"
    b.back("node2", "node3", "node4")
    late = b.job(shape=Shape(nodelist=("node3",))).id
    b.schedule()
    assert b.word(late) == "Resources"
    why = b.why(late)
    end = int(b.now) + SETTLE_S
    assert (why.reason, why.starts, why.never) == ("Resources", False, False)
    assert (why.causes[0].kind, why.causes[0].detail, why.causes[0].until) == (
        "settling", "node1", end,
    )  # fmt: skip
    assert (why.start.time, why.start.basis) == (end, "settling")
    assert sentences(why, when)[0] == (
        "The controller has started anew: nothing starts until the nodes that were in use have "
        f"answered (node1), until T+{SETTLE_S} at the latest."
    )
    assert b.why(b.held).reason == "JobHeldUser"


def test_when_it_is_over_the_reason_is_the_job_s_own() -> None:
    b = Restarted()
    b.back("node1", "node2", "node3", "node4")
    assert b.led.jobs[b.other].state == JobState.RUNNING
    assert b.word(b.waiting) == "Resources"
    assert [cause.kind for cause in b.why(b.waiting).causes] == ["resources"]
    b = Restarted()
    b.back("node3", "node4")
    b.now += SETTLE_S
    b.schedule()
    assert b.word(b.waiting) == "ReqNodeNotAvail, UnavailableNodes:node1"
