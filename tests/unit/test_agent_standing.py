"""A node's jobs that stand still for others: who is told what, and who may start meanwhile."""

from __future__ import annotations

from unit.test_agent import World, key_of, launch
from unit.test_agent_steps import running as steps_running

from gsched.model import Phase
from gsched.wire.nodes import Forget, Kill, Pause, Prepare
from slurmd_compat.agent import Ended, Key, Released, SignalStep, Started, Tick

#: as Linux numbers them
CONT, STOP, TSTP = 18, 19, 20


def running() -> World:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5, gpus=["G0", "G1"]), go=True))
    world.actions.clear()
    return world


def signals(world: World, key: Key) -> list[int]:
    return [
        action.signum
        for action in world.actions
        if isinstance(action, SignalStep) and action.key == key
    ]


def test_it_is_told_and_stopped_two_seconds_later() -> None:
    # Slurm's suspend_grace_time: SIGTSTP, so long nothing, SIGSTOP.
    world = running()
    world.order(Pause(0, 5, 1, 2))
    assert signals(world, key_of(5)) == [TSTP]
    world.now += 1_999
    world.feed(Tick())
    assert signals(world, key_of(5)) == [TSTP]
    world.now += 1
    world.feed(Tick())
    assert signals(world, key_of(5)) == [TSTP, STOP]
    world.order(Pause(0, 5, 1, -1))
    assert signals(world, key_of(5)) == [TSTP, STOP, CONT]


def test_who_goes_on_at_once_is_not_stopped_afterwards() -> None:
    world = running()
    world.order(Pause(0, 5, 1, 2), Pause(0, 5, 1, -1))
    world.now += 5_000
    world.feed(Tick())
    assert signals(world, key_of(5)) == [TSTP, CONT]


def test_another_has_its_gpus_meanwhile() -> None:
    world = running()
    world.order(Pause(0, 5, 1, 0), Prepare(0, launch(6, gpus=["G1"]), go=True))
    assert world.spawned[key_of(6)] == 1
    world.agent.check_invariants()
    world.step(key_of(6), "ended", Ended(key_of(6), 0))
    world.step(key_of(6), "released", Released(key_of(6)))
    world.order(Forget(0, 6, 1), Pause(0, 5, 1, -1))
    world.agent.check_invariants()
    assert signals(world, key_of(5)) == [STOP, CONT]
    # And one that does not stand still keeps them.
    world.order(Prepare(0, launch(7, gpus=["G1"]), go=True))
    assert world.spawned[key_of(7)] == 0


def test_a_daemon_that_died_before_it_stopped_it_does_so_afterwards() -> None:
    world = running()
    world.order(Pause(0, 5, 1, 2), Prepare(0, launch(6, gpus=["G1"]), go=True))
    world.start()
    world.actions.clear()
    world.agent.check_invariants()
    world.now += 2_000
    world.feed(Tick())
    assert signals(world, key_of(5)) == [STOP]
    assert not signals(world, key_of(6))
    world.step(key_of(6), "ended", Ended(key_of(6), 0))
    world.step(key_of(6), "released", Released(key_of(6)))
    world.register()
    world.order(Pause(0, 5, 1, -1))
    assert signals(world, key_of(5)) == [STOP, CONT]


def test_a_script_that_has_only_just_begun_is_stopped_too() -> None:
    world = running()
    world.order(Pause(0, 5, 1, 0))
    world.step(key_of(5), "started", Started(key_of(5)))
    assert signals(world, key_of(5)) == [STOP, STOP]


def test_it_can_be_ended() -> None:
    world = running()
    world.order(Pause(0, 5, 1, 2), Kill(0, 5, 1, "cancelled"))
    assert world.killed == [(key_of(5), "cancelled")]
    world.now += 2_000
    world.feed(Tick())
    # Nothing holds it up while it ends.
    assert signals(world, key_of(5)) == [TSTP]
    world.step(key_of(5), "ended", Ended(key_of(5), 15))
    world.step(key_of(5), "released", Released(key_of(5)))
    assert world.one().phase == Phase.RELEASED


def test_no_step_starts_until_it_goes_on() -> None:
    # Slurm's gang scheduling page: "Job step creation temporarily disabled, retrying".
    world = steps_running()
    job = world.job
    world.order("n1", Pause(0, job.id, job.attempt, 0))
    client = world.create(1, ntasks=1)
    world.advance(100)
    assert not world.supervisors
    assert "step creation temporarily disabled, retrying" in client.errors[0]
    world.order("n1", Pause(0, job.id, job.attempt, -1))
    world.advance(100)
    assert len(world.supervisors) == 1
