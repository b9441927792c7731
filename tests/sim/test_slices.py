"""Jobs that take turns on the same CPUs, in whole clusters with their real agents: in calm weather,
and while daemons die, messages get lost and nodes reboot."""

from __future__ import annotations

import os
import random

import pytest
from sim.scenario import account, finished, random_faults, resume

from gsched.config import parse_config
from gsched.model import JobSpec, Shape
from gsched.simulate.world import Faults, Run, World

#: a warning of no time: stopped is stopped
CONF = """
ClusterName=sim
SlurmctldHost=ctl(127.0.0.1)
SlurmdTimeout=30
BatchStartTimeout=10
MinJobAge=100000
ReturnToService=2
DefMemPerCPU=100
PreemptMode=GANG
SchedulerTimeSlice=6
PreemptParameters=suspend_grace_time=0
NodeName=n[1-4] CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=16000
PartitionName=turns Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 OverSubscribe=FORCE:3
"""
CONFIG = parse_config({"slurm.conf": CONF})
HISTORIES = int(os.environ.get("GSCHED_SIM_HISTORIES", "2000")) // 10
CHUNK = 10
STORM_S = 60.0
#: after a restart of the daemon it finds its supervisors within so long before it stops them
FOUND_S = 2.5


def play(seed: int, faults: Faults, calm_s: float = 2500.0) -> World:
    """A history; raises AssertionError with the seed where something is lost or doubled."""
    rnd = random.Random(seed)
    world = World(CONFIG, seed, faults)
    world.weather(world.now + STORM_S)
    for _ in range(rnd.randint(4, 16)):
        nodes = rnd.choice([1, 1, 1, 2, 3, 4])
        tasks = rnd.choice([2, 4, 8])
        shape = Shape(min_nodes=nodes, max_nodes=nodes, ntasks=nodes * tasks, ntasks_per_node=tasks)
        spec = JobSpec(name="j", shape=shape, requeue=rnd.random() < 0.8)
        length = rnd.choice([0.05, 3.0, 10.0, 25.0])

        def submit(spec: JobSpec = spec, length: float = length) -> None:
            world.client.submit(spec, length, 0, [])

        world.at(world.now + rnd.uniform(0, STORM_S), submit)
    for _ in range(rnd.randint(0, 3)):
        pick = rnd.random()

        def cancel(pick: float = pick) -> None:
            ids = sorted(world.client.jobs)
            if ids:
                world.client.cancel(ids[int(pick * len(ids))])

        world.at(world.now + rnd.uniform(0, STORM_S), cancel)
    try:
        start = world.now
        world.run_until(start + STORM_S)
        world.calm = True
        for wait in (30.0, 300.0):
            world.at(world.now + wait, lambda: resume(world))
        world.run_until(start + STORM_S + calm_s, lambda: finished(world))
        account(world)
    except Exception as error:
        tail = "\n".join(world.history[-120:])
        raise AssertionError(f"seed {seed}: {error!r}\n{tail}") from error
    return world


def together(world: World) -> list[tuple[float, Run, Run]]:
    """How long two scripts were at work on the same CPUs."""
    found = []
    for index, one in enumerate(world.runs):
        for other in world.runs[:index]:
            if one.node != other.node or not one.cpus & other.cpus:
                continue
            both = sum(
                max(0.0, min(mine[1], its[1]) - max(mine[0], its[0]))
                for mine in one.stretches()
                for its in other.stretches()
            )
            if both:
                found.append((both, one, other))
    return found


@pytest.mark.parametrize("chunk", range(max(1, HISTORIES // CHUNK)))
def test_turns_in_calm_weather(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        world = play(seed, Faults())
        assert not together(world), f"seed {seed}"
        for run in world.runs:
            # Nobody works longer at a stretch than a turn lasts while others wait for theirs, and
            # who waits has his turn: all have ended (see account), each after its own length.
            assert run.end is not None


@pytest.mark.parametrize("chunk", range(max(1, HISTORIES // CHUNK)))
def test_turns_whatever_dies(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        world = play(seed, random_faults(random.Random(seed)))
        worst = max((both for both, _, _ in together(world)), default=0.0)
        assert worst < 10 * FOUND_S, f"seed {seed}: {worst}"
