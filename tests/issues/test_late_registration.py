"""A registration that came late, after its node was set down for silence or to another controller
that had taken over, opened the same session a second time: the controller counted its orders from 1
again, the node did not, and a job placed there was never started.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from ledger_support import Bench, at
from test_agent import World

from gsched.ledger import NodeMessage, Tick
from gsched.model import Phase
from gsched.wire.codec import PROTOCOL
from gsched.wire.nodes import Forget, Orders, Register, Report, Reregister


def test_a_session_that_ended_is_not_opened_again() -> None:
    bench = Bench()
    job = bench.job()
    bench.schedule()
    host = job.batch_host
    bench.report(host, at(job, Phase.RUNNING))
    session = bench.led.live[host].session
    assert bench.led.live[host].last_order == 1
    bench.now += 61
    bench.apply(Tick())
    assert bench.led.live[host].session == ""
    late = Register(PROTOCOL, host, "c1", "b1", session, 1, "t", 16, 64000, [], [])
    out = bench.apply(NodeMessage(host, late))
    assert [(name, type(message)) for name, message in out.messages] == [(host, Reregister)]
    assert bench.led.live[host].session == ""
    bench.register(host)
    assert bench.led.live[host].session not in ("", session)


def test_a_node_that_has_seen_more_than_was_ordered_registers_again() -> None:
    bench = Bench()
    job = bench.job()
    live = bench.led.live["node1"]
    out = bench.apply(NodeMessage("node1", Report(live.session, bench.led.meta.epoch, 5, [])))
    assert [(name, type(message)) for name, message in out.messages] == [("node1", Reregister)]
    bench.schedule()
    assert job.batch_host != "node1"


def test_a_node_does_not_go_on_with_a_session_of_a_controller_before() -> None:
    world = World()
    world.register(epoch=1)
    world.order(Forget(0, 1, 1))
    session = world.agent.session
    world.feed(Orders(2, session, [Forget(1, 2, 1)]))
    assert world.agent.session == ""
    assert world.registered.epoch == 2
    assert world.registered.session != session
