"""Guarantees in whole units where PreemptMode is SUSPEND: what an account takes back is as if the
node were its own, so nobody stands still on it with his memory and that of his GPUs."""

from __future__ import annotations

import os
import random

import pytest
from unit.test_unit_histories import draw, wishes
from unit.units_world import Team, Wish, World

from gsched.ledger.invariants import check
from gsched.model import Job, JobState, Phase, Shape
from gsched.wire.messages import UpdateJob

CONF = """
PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
PartitionName=top Nodes=ALL PriorityTier=10 MaxTime=7-0 OverSubscribe=FORCE:1
"""
PARTITION = "OverSubscribe=FORCE:1"
BLOCKS = int(os.environ.get("GSCHED_UNIT_HISTORIES", "3"))


def world(nodes: int = 2, **teams: int) -> World:
    made = {name: Team(count) for name, count in teams.items()}
    return World(nodes, made, "backfill", conf=CONF, partition=PARTITION)


def submit(made: World, team: str, mem_mb: int = 1000, **kw: object) -> Job:
    shape = Shape(gpus_per_node=8, min_nodes=1, max_nodes=1, ntasks=1, mem_per_node=mem_mb)
    job = made.b.job(**{"shape": shape, "account": team, "time_limit": 36000, **kw})
    for one in made.settle():
        made.report(one, Phase.RUNNING)
    made.settle()
    made.b.now += 10
    check(made.b.led)
    return job


def states(*jobs: Job) -> list[JobState]:
    return [job.state for job in jobs]


R, PD, S = JobState.RUNNING, JobState.PENDING, JobState.SUSPENDED


def test_a_node_is_taken_back_whole_though_the_mode_is_suspend() -> None:
    """The borrower has most of the node's memory: if it stood still the owner could not start."""
    made = world(red=1, blue=1)
    red = [submit(made, "red"), submit(made, "red", 60000)]
    assert states(*red) == [R, R]
    blue = submit(made, "blue", 60000)
    assert states(*red, blue) == [R, PD, R]
    # It goes on from the queue in its own node, when that is free, not when blue has ended.
    made.b.now += 100
    made.report(red[0], Phase.RELEASED)
    made.settle()
    assert states(red[1], blue) == [R, R]


def test_who_stands_on_another_makes_no_node_anothers_for_good() -> None:
    """Red's borrowed job stands still for an urgent one on blue's node; blue wants it back: the
    urgent one goes, as it is borrowed work, too, and with it who would keep its memory there."""
    made = world(red=1, blue=1, guests=0)
    red = [submit(made, "red"), submit(made, "red", 30000)]
    urgent = submit(made, "guests", 30000, partitions=("top",))
    assert states(*red, urgent) == [R, S, R]
    blue = submit(made, "blue", 40000)
    assert states(blue, urgent, red[0]) == [R, PD, R]
    assert red[1].state == PD


def test_one_that_stands_still_stays_where_there_is_room_beside_it() -> None:
    made = world(red=1, blue=1, guests=0)
    red = [submit(made, "red"), submit(made, "red")]
    urgent = submit(made, "guests", partitions=("top",))
    assert states(*red, urgent) == [R, S, R]
    blue = submit(made, "blue")
    assert states(blue, urgent) == [R, PD]
    assert red[1].state == S


def test_work_that_an_operator_has_suspended_is_taken_back_from() -> None:
    """Its GPUs are its own meanwhile, as in Slurm: the guarantee would wait for his word."""
    made = world(red=1, blue=1)
    red = [submit(made, "red"), submit(made, "red")]
    made.b.write(UpdateJob([str(red[1].id)], "suspend"), uid=0)
    made.settle()
    assert states(*red) == [R, S]
    blue = submit(made, "blue")
    assert states(*red, blue) == [R, PD, R]


def test_guaranteed_work_does_not_stand_still_for_borrowed_work() -> None:
    """Neither by partition: what ranks higher there, and is guaranteed nothing, waits."""
    made = world(red=1, blue=1, guests=0)
    red, blue = submit(made, "red"), submit(made, "blue")
    urgent = submit(made, "guests", partitions=("top",))
    assert states(red, blue, urgent) == [R, R, PD]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nobody_waits_longer_than_on_nodes_of_his_own(block: int) -> None:
    """The property of test_unit_histories.py, under PreemptMode=SUSPEND."""
    taken = 0
    for seed in range(block * 5, block * 5 + 5):
        rnd = random.Random(seed)
        nodes, teams = draw(rnd, [True, True, False])
        jobs = wishes(rnd, teams, [8])
        shared = World(nodes, teams, conf=CONF, partition=PARTITION).run(jobs)
        assert shared.wronged == 0, seed
        waits = shared.waits()
        assert waits.keys() == set(jobs), seed
        taken += shared.taken
        for name, team in teams.items():
            if team.units:
                alone = World(
                    team.units, {name: Team(team.units, False)}, conf=CONF, partition=PARTITION
                ).run([one for one in jobs if one.team == name])
                for wish, wait in alone.waits().items():
                    assert waits[wish] <= wait, (seed, wish, waits[wish], wait)
    assert taken > 0


class Mixed(World):
    """Guests come in either partition, so that some of them stand still for others."""

    stood = 0

    def submit(self, wish: Wish) -> int:
        shape = Shape(
            gpus_per_node=wish.gpus, min_nodes=wish.nodes, max_nodes=wish.nodes, ntasks=wish.nodes
        )
        names = ("top",) if wish.team == "guests" and wish.submit % 2 else ()
        limit = wish.limit
        return self.b.job(shape=shape, account=wish.team, time_limit=limit, partitions=names).id

    def settle(self) -> list[Job]:
        found: dict[int, Job] = {}
        while new := super().settle():
            found |= {job.id: job for job in new}
            for job in new:
                if job.state == R and job.configuring:
                    self.report(job, Phase.RUNNING)
        paused = self.b.led.paused
        self.stood += len(paused)
        assert not any(self.b.led.jobs[one].pool for one in paused), "guaranteed work stands still"
        return [job for job in found.values() if job.state == R]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_work_that_stands_still_on_them_keeps_nobody_from_nodes_of_his_own(block: int) -> None:
    """Teams that do not borrow, of any size of jobs, have what nodes of their own would give,
    whoever of the guests on these stands still for whom."""
    stood = 0
    for seed in range(block * 5, block * 5 + 5):
        rnd = random.Random(seed)
        nodes, teams = draw(rnd, [False])
        teams["guests"] = Team(0)
        jobs = wishes(rnd, {"guests": teams["guests"]}, [4, 8]) + wishes(rnd, teams, [1, 2, 4, 8])
        jobs = list({(one.submit, one.team): one for one in jobs}.values())
        shared = Mixed(nodes, teams, conf=CONF, partition=PARTITION).run(jobs)
        assert shared.wronged == 0, seed
        stood += shared.stood
        for name, team in teams.items():
            if team.units:
                own = {name: Team(team.units, False)}
                alone = Mixed(team.units, own, conf=CONF, partition=PARTITION)
                private = alone.run([one for one in jobs if one.team == name]).waits()
                waits = shared.waits_of(name)
                assert waits == private, (seed, name)
    assert stood > 0
