"""`sinfo -o %O` and monitors show the load and the free memory of a node as of its last reports,
also where no job comes or goes: slurmctld takes them from each ping of its nodes."""

from __future__ import annotations

from unit.ledger_support import Bench

from gsched.ledger import NodeMessage
from gsched.ledger.outcome import Outcome
from gsched.model import NodeUse
from gsched.wire.nodes import Report


def hear(b: Bench, load: int, free: int) -> Outcome:
    live = b.led.live["node1"]
    report = Report(live.session, b.led.meta.epoch, live.last_order, [])
    report.cpu_load, report.free_mem_mb = load, free
    return b.apply(NodeMessage("node1", report))


def seen(out: Outcome) -> tuple[int, int] | None:
    use = out.view.get(("use", b"node1"))
    return (use.cpu_load, use.free_mem_mb) if isinstance(use, NodeUse) else None


def test_a_node_without_jobs_shows_its_load() -> None:
    b = Bench()
    assert seen(hear(b, 150, 2000)) == (150, 2000)


def test_a_load_that_changes_is_shown_within_a_minute() -> None:
    b = Bench()
    hear(b, 150, 2000)
    shown = []
    for load in range(200, 207):
        b.now += 10
        shown.append(seen(hear(b, load, 2000)))
    assert [s for s in shown if s] == [(205, 2000)], "once a minute: not with each heartbeat"


def test_a_load_that_stays_is_not_told_again() -> None:
    b = Bench()
    hear(b, 150, 2000)
    b.now += 600
    assert seen(hear(b, 150, 2000)) is None
