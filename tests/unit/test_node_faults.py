"""What an attempt shows to be wrong with its node: the node is drained, the job is not to blame."""

from __future__ import annotations

from unit.ledger_support import Bench, at
from unit.test_agent import World, key_of, launch

from gsched.model import JobState, NodeFlag, Phase, Shape
from gsched.wire.nodes import Prepare
from slurmd_compat.agent import Ended, HookDone, Released, RunHook, Unkillable


def test_a_failed_epilog_drains_the_node_and_not_the_job() -> None:
    bench = Bench()
    job = bench.job()
    bench.schedule()
    host = job.batch_host
    bench.report(host, at(job, Phase.RUNNING))
    bench.report(host, at(job, Phase.RELEASED, wstatus=0, fault="Epilog error"))
    node = bench.led.nodes[host]
    assert node.flags & NodeFlag.DRAIN and node.reason == "Epilog error"
    assert job.state == JobState.COMPLETED


def test_what_cannot_be_killed_drains_the_node_once() -> None:
    bench = Bench()
    job = bench.job(shape=Shape(nodelist=("node1",)))
    bench.schedule()
    bench.report("node1", at(job, Phase.RUNNING))
    stuck = at(job, Phase.RUNNING, fault="Kill task failed: 123 (dd, D, nfs_wait)")
    bench.report("node1", stuck)
    node = bench.led.nodes["node1"]
    assert node.flags & NodeFlag.DRAIN
    assert node.reason == "Kill task failed: 123 (dd, D, nfs_wait)"
    # Whoever takes it back into service has seen that.
    node.flags &= ~NodeFlag.DRAIN
    bench.report("node1", stuck)
    assert not node.flags & NodeFlag.DRAIN


def test_the_node_says_that_its_epilog_failed() -> None:
    world = World(epilog=True)
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    world.step(key_of(5), "released", Ended(key_of(5), 0, "", 10, 0, 0, 0))
    world.feed(Released(key_of(5)))
    world.feed(HookDone(key_of(5), "epilog", "epilog /e failed with exit code 1"))
    report = world.one()
    assert (report.phase, report.fault, report.wstatus) == (Phase.RELEASED, "Epilog error", 0)


def test_the_node_says_what_it_cannot_kill_and_the_site_is_called() -> None:
    world = World()
    world.register()
    world.order(Prepare(0, launch(5), go=True))
    done = world.agent.apply(Unkillable(key_of(5), "JobId=5: 77 (dd, D)", 3), world.now)
    hooks = [action for action in done if isinstance(action, RunHook)]
    assert [(hook.which, hook.step) for hook in hooks] == [("unkillable", 3)]
    assert world.one().fault == "Kill task failed: JobId=5: 77 (dd, D)"
    # Once is enough.
    done = world.agent.apply(Unkillable(key_of(5), "JobId=5: 77 (dd, D)"), world.now)
    assert not any(isinstance(action, RunHook) for action in done)
