"""An order to prepare that was not confirmed was repeated with the job as it had become: a node
that an administrator had set down meanwhile started the next attempt, which ran elsewhere."""

from __future__ import annotations

from unit.ledger_support import Bench

from gsched.ledger import Tick
from gsched.model import JobState
from gsched.wire.messages import UpdateNode
from gsched.wire.nodes import Prepare


def repeated(b: Bench) -> list[Prepare]:
    """What is sent again after three seconds without a word."""
    b.sent.clear()
    b.now += 4
    b.apply(Tick())
    return [order for order in b.sent.get("node1", []) if isinstance(order, Prepare)]


def test_a_repeated_order_is_the_order_that_was_given() -> None:
    b = Bench()
    job = b.job()
    b.schedule()
    job.attempt = 5
    (again,) = repeated(b)
    assert (again.launch.job.attempt, again.launch.job.alloc[0].node) == (1, "node1")


def test_what_is_written_off_is_not_started_late() -> None:
    b = Bench()
    job = b.job()
    b.schedule()
    assert [p.node for p in job.alloc] == ["node1"]
    b.write(UpdateNode(["node1"], "down", "test"), 0)
    b.schedule()
    assert job.state == JobState.RUNNING and job.attempt == 2 and job.alloc[0].node == "node2"
    assert repeated(b) == []
    numbers = [order.n for order, _ in b.led.live["node1"].unacked]
    assert numbers == list(range(1, len(numbers) + 1))
