"""What accounting is told besides jobs: each change once, with what it changes."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import Outcome, accounts, tell
from gsched.model import (
    Account,
    ClusterSize,
    Fact,
    JobState,
    NodeState,
    Phase,
    PolicyChange,
    Reserved,
)
from gsched.wire.messages import UpdateNode, UpdateReservation

ACCOUNTING = CONF + "AccountingStorageType=accounting_storage/slurmdbd\n"


class Heard(Bench):
    """Keeps what was told."""

    def __init__(self, more: str = "") -> None:
        self.facts: list[Fact] = []
        super().__init__(more + ACCOUNTING)

    def apply(self, command: object) -> Outcome:
        out = super().apply(command)
        self.facts += [f for (table, _), f in out.puts.items() if isinstance(f, Fact)]
        return out

    def news(self) -> list[object]:
        """What has come since the last call."""
        found = [fact.news for fact in self.facts if fact.news is not None]
        self.facts.clear()
        return found


def test_a_new_cluster_tells_its_size_and_its_first_accounts() -> None:
    b = Heard()
    first, second, *rest = b.news()
    assert isinstance(first, ClusterSize) and first.whole and first.down == []
    assert first.nodes == "node[1-4]"
    assert first.tres == {
        "cpu": 64,
        "mem": 256000,
        "node": 4,
        "billing": 64,
        "gres/gpu": 32,
        "gres/gpu:h100": 32,
    }
    assert isinstance(second, PolicyChange)
    assert {type(one).__name__ for one in second.put} == {"Account", "User", "Qos", "Assoc"}
    assert rest == []


def test_without_accounting_nothing_is_told() -> None:
    b = Bench()
    assert b.led.meta.outbox_next == 1


def test_a_node_is_out_of_service_once_nothing_runs_there() -> None:
    b = Heard()
    job = b.job()
    b.schedule()
    b.news()
    b.write(UpdateNode(["node1", "node2"], "drain", "fan"), uid=0)
    assert [(n.node, n.state, n.reason) for n in b.news()] == [("node2", "DRAINED", "fan")]  # type: ignore[attr-defined]
    b.now += 5
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    (one,) = b.news()
    assert isinstance(one, NodeState)
    assert (one.node, one.state, one.tres["gres/gpu:h100"]) == ("node1", "DRAINED", 8)
    b.write(UpdateNode(["node1"], "resume"), uid=0)
    assert b.news() == [NodeState("node1")]


def test_a_lost_node_is_out_since_its_last_report_and_so_are_its_jobs() -> None:
    b = Heard()
    job = b.job(requeue=False)
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    b.now += 10
    b.report("node1", at(job, Phase.RUNNING))
    b.news()
    for name in ("node2", "node3", "node4"):
        b.led.live[name].last_heard += 100
    heard = int(b.now)
    b.now += 61
    b.tick()
    (one,) = b.news()
    assert isinstance(one, NodeState)
    assert (one.node, one.state, one.since) == ("node1", "DOWN*", heard)
    assert job.state == JobState.NODE_FAIL
    assert job.end_time == heard + 61 and job.last_report == heard


def test_a_node_that_came_back_without_its_job() -> None:
    b = Heard()
    job = b.job(requeue=False)
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    heard = int(b.now)
    b.now += 30
    b.register("node1", boot_id="b2")
    assert job.state == JobState.NODE_FAIL
    assert job.end_time == heard + 30 and job.last_report == heard


def test_an_end_that_was_reported_is_exact() -> None:
    b = Heard()
    job = b.job()
    b.schedule()
    b.now += 30
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    assert job.state == JobState.COMPLETED and job.last_report == 0


def test_policy_and_who_changed_it_are_one_fact() -> None:
    b = Heard()
    b.news()
    out = Outcome()
    accounts.put(b.led, Account("physics"), out)
    tell.transaction(b.led, "ada", "Add Accounts", "physics", "description='x'")
    tell.flush(b.led, b.now, out)
    (fact,) = [one for one in out.puts.values() if isinstance(one, Fact)]
    assert isinstance(fact.news, PolicyChange)
    assert fact.news.put == [Account("physics")] and fact.news.gone == []
    assert [(one.actor, one.action) for one in fact.news.done] == [("ada", "Add Accounts")]


def test_reservations() -> None:
    b = Heard()
    b.news()
    fields = {
        "starttime": "1000100",
        "endtime": "1000200",
        "nodes": "node[1-2]",
        "users": "ada",
    }
    b.write(UpdateReservation("course", "create", fields), uid=0)
    (one,) = b.news()
    assert isinstance(one, Reserved) and not one.gone
    assert (one.resv.name, one.resv.start, one.resv.end) == ("course", 1000100, 1000200)
    assert one.tres["cpu"] == 32 and one.tres["gres/gpu"] == 16
    b.now = 1_000_201.0
    b.tick()
    assert [isinstance(n, Reserved) and n.gone for n in b.news()].count(True) == 1


@pytest.mark.parametrize(("enforce", "told"), [("none", 1), ("nosteps", 1), ("nojobs", 0)])
def test_ends_of_jobs_are_not_told_with_nojobs(enforce: str, told: int) -> None:
    b = Heard(f"AccountingStorageEnforce={enforce}\n")
    job = b.job()
    b.schedule()
    node = job.alloc[0].node
    b.report(node, at(job, Phase.RUNNING))
    b.report(node, at(job, Phase.RELEASED, wstatus=0))
    assert job.state is JobState.COMPLETED
    assert len([fact for fact in b.facts if fact.job is not None]) == told
