"""Guarantees in whole nodes and islands: what is refused, whose units are whose, and what becomes
of them when accounts, nodes or the controller change. Four nodes of eight GPUs."""

from __future__ import annotations

import pytest
from unit.policy_support import LedgerReader, peer
from unit.units_world import Team, Wish, World

from gsched.ledger import Ledger, Tick, policy_changed
from gsched.ledger.outcome import Outcome
from gsched.model import Gpu, Job, JobState, Phase
from gsched.model.policy import Assoc
from gsched.wire.messages import Done, UpdateNode

GPU = "gres/gpu"


# ---- what is refused -----------------------------------------------------------------------------


def guarantee(made: LedgerReader, account: str, text: str, unit: str = "node") -> str:
    """What is said against it; "" it is set."""
    line = f"-i modify account {account} set grptresguarantee={text} guaranteeunit={unit}"
    out, err, code = made.ask(line)
    return out + err if code else ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gres/gpu=12", "gres/gpu=12 of prod is no whole number of nodes, which have 8"),
        ("gres/gpu=8,cpu=4", "prod is guaranteed cpu, which is not counted in nodes"),
        ("gres/gpu=40", "gres/gpu=40 is guaranteed in all, the cluster has 32"),
        ("gres/gpu=8,gres/gpu:h100=8", "some guarantees in nodes name a type of GPU, others none"),
    ],
)
def test_what_is_no_whole_number_of_nodes_is_refused(text: str, why: str) -> None:
    assert why in guarantee(peer(), "prod", text)


def test_what_cannot_be_kept_beside_others_is_refused() -> None:
    made = peer()
    assert not guarantee(made, "prod", "gres/gpu=24")
    assert "gres/gpu=40 is guaranteed in all" in guarantee(made, "research", "gres/gpu=16")
    out, err, code = made.ask("-i modify account research set grptresguarantee=gres/gpu=8")
    assert code == 1
    assert "research is guaranteed gres/gpu in no whole nodes, prod is" in out + err
    why = guarantee(made, "research", "gres/gpu=8", "island")
    assert "some accounts are guaranteed whole nodes, others islands" in why
    assert not guarantee(made, "research", "gres/gpu=8")


# ---- whose is what -------------------------------------------------------------------------------


def world(nodes: int = 4, unit: str = "node", **teams: int) -> World:
    return World(nodes, {name: Team(count) for name, count in teams.items()}, "backfill", unit)


def job(made: World, team: str, gpus: int = 8, nodes: int = 1) -> Job:
    found = made.b.led.jobs[made.submit(Wish(0, team, gpus, nodes, 0, 3600))]
    settle(made)
    return found


def settle(made: World) -> None:
    for _ in range(3):
        made.settle()
        made.b.now += 1
        made.b.apply(Tick())
    made.settle()


def places(*jobs: Job) -> list[str]:
    return [",".join(part.node[-1] for part in one.alloc) or one.state.name for one in jobs]


def set_guarantee(made: World, name: str, gpus: int, **more: object) -> None:
    """As sacctmgr does, without its checks: that of promises among them."""
    led = made.b.led
    old = next(one for one in led.book.assocs.values() if one.account == name)
    fields = {field: getattr(old, field) for field in old.__struct_fields__}
    led.book.put(Assoc(**(fields | {"guarantee": {GPU: gpus} if gpus else {}} | more)))
    policy_changed.changed(led, made.b.now, Outcome())
    settle(made)


def test_small_jobs_of_others_leave_no_node_in_pieces() -> None:
    """With a guarantee in GPUs four jobs of two GPUs on four nodes would be guaranteed, and no node
    whole for blue."""
    made = world(red=2, blue=2)
    guests = [job(made, "red", 5) for _ in range(4)]
    # One to a node: two of them are red's own, the others on what blue does not use.
    assert sorted(places(*guests)) == ["1", "2", "3", "4"]
    assert [one.pool for one in guests] == ["red", "red", "", ""]
    wide = job(made, "blue", 8, 2)
    assert wide.pool == "blue"
    assert sorted(places(wide)[0].split(",")) == sorted(places(*guests[2:])) or all(
        one.state == JobState.PENDING for one in guests[2:]
    )
    assert [one.state for one in guests[:2]] == [JobState.RUNNING] * 2


def test_a_bound_node_takes_nothing_of_others() -> None:
    made = world(2, red=1, blue=1)
    mine = job(made, "red", 2)
    others = [job(made, "blue", 4) for _ in range(3)]
    # Two fill blue's node; on red's there are six free, which only red may use.
    assert places(*others) == [places(others[0])[0]] * 2 + ["PENDING"]
    assert places(others[0]) != places(mine)
    assert places(job(made, "red", 6)) == places(mine)


def test_an_account_below_another_has_its_own_and_then_what_that_has() -> None:
    made = World(
        3,
        {"lab": Team(2), "vision": Team(1, parent="lab"), "other": Team(1)},
        "backfill",
    )
    first, second, third = (job(made, "vision") for _ in range(3))
    assert [one.pool for one in (first, second, third)] == ["vision", "lab", ""]
    assert places(job(made, "other")) == places(third) or third.state == JobState.PENDING
    assert [one.state for one in (first, second)] == [JobState.RUNNING] * 2


# ---- islands -------------------------------------------------------------------------------------


def test_islands_are_taken_back_whole() -> None:
    """Two nodes of two islands of four GPUs."""
    made = world(2, "island", red=2, blue=2)
    reds = [job(made, "red", 4) for _ in range(4)]
    assert [one.pool for one in reds] == ["red", "red", "", ""]
    blue = job(made, "blue", 4)
    assert blue.pool == "blue" and blue.state == JobState.RUNNING
    assert [one.state for one in reds[:2]] == [JobState.RUNNING] * 2
    assert sum(one.state == JobState.PENDING for one in reds) == 1
    # Its GPUs are one island, and half of the node's CPUs are its own.
    assert blue.alloc[0].gpus in (0x0F, 0xF0)
    small = [job(made, "blue", 1) for _ in range(4)]
    assert [one.pool for one in small] == ["blue"] * 4
    assert len({(one.alloc[0].node, one.alloc[0].gpus >> 4 > 0) for one in small}) == 1


# ---- what changes --------------------------------------------------------------------------------


def test_a_lower_guarantee_makes_the_last_job_borrowed_and_a_higher_one_guaranteed_again() -> None:
    made = world(red=3, blue=1)
    jobs = [job(made, "red") for _ in range(3)]
    set_guarantee(made, "red", 8)
    assert [one.pool for one in jobs] == ["red", "", ""]
    set_guarantee(made, "red", 16)
    assert [one.pool for one in jobs] == ["red", "red", ""]
    assert [one.restarts for one in jobs] == [0, 0, 0]
    set_guarantee(made, "blue", 16)
    wide = job(made, "blue", 8, 2)
    assert wide.state == JobState.RUNNING
    assert [one.restarts for one in jobs] == [0, 0, 1]


def test_without_a_guarantee_nothing_is_kept() -> None:
    made = world(red=2, blue=2)
    jobs = [job(made, "red", 2) for _ in range(2)]
    set_guarantee(made, "red", 0)
    set_guarantee(made, "blue", 0)
    assert [one.pool for one in jobs] == ["", ""]
    # The other half of red's node, too.
    others = [job(made, "blue", gpus) for gpus in (8, 8, 8, 4)]
    assert all(one.state == JobState.RUNNING for one in others)


def test_an_account_that_moves_takes_its_units_with_it() -> None:
    made = World(
        4,
        {"lab": Team(2), "vision": Team(1, parent="lab"), "other": Team(2)},
        "backfill",
    )
    jobs = [job(made, "vision") for _ in range(2)]
    assert [one.pool for one in jobs] == ["vision", "lab"]
    waiting = job(made, "vision", 8, 3)
    set_guarantee(made, "vision", 8, parent="other")
    # What was lab's is borrowed work, or other's now: it has two nodes, one of them vision's.
    assert [one.pool for one in jobs] == ["vision", "other"]
    assert waiting.state == JobState.PENDING
    assert made.b.led.units.ways(waiting)[0] == ["vision", "other"]


def test_a_node_that_goes_is_replaced_by_another() -> None:
    made = world(red=1, blue=2)
    mine = job(made, "blue")
    lost = mine.alloc[0].node
    guests = [job(made, "red") for _ in range(3)]
    assert all(one.state == JobState.RUNNING for one in guests)
    answer = made.b.write(UpdateNode([lost], state="drain", reason="test"), 0)
    assert isinstance(answer, Done)
    second = job(made, "blue")
    # Its second node is taken back from red; the drained one still counts as its own.
    assert second.state == JobState.RUNNING and second.pool == "blue"
    third = job(made, "blue")
    assert third.state == JobState.PENDING
    assert mine.pool == "blue"


def test_a_promise_outlives_the_controller() -> None:
    """Killed between the word to the borrower and his end."""
    made = world(2, red=1, blue=1)
    jobs = [job(made, "red") for _ in range(2)]
    blue = made.b.led.jobs[made.submit(Wish(0, "blue", 8, 1, 0, 3600))]
    made.b.schedule()
    assert blue.claim is not None and blue.pool == "blue"
    led = made.b.led
    again = Ledger.load(
        led.config,
        led.meta,
        led.jobs.values(),
        led.nodes.values(),
        policy_records=led.book.records(),
    )
    assert again.jobs[blue.id].pool == "blue"
    again.units.arrange(int(made.b.now))
    assert {name: {unit.node for unit in own} for name, own in again.units.own.items()} == {
        "red": {jobs[0].alloc[0].node},
        "blue": {jobs[1].alloc[0].node},
    }


def test_a_node_that_fails_is_replaced_and_work_of_others_makes_way_there() -> None:
    made = world(red=1, blue=2)
    mine = job(made, "blue")
    guests = [job(made, "red") for _ in range(3)]
    assert all(one.state == JobState.RUNNING for one in [mine, *guests])
    lost = mine.alloc[0].node
    answer = made.b.write(UpdateNode([lost], state="down", reason="test"), 0)
    assert isinstance(answer, Done)
    made.report(mine, Phase.RELEASED)
    settle(made)
    # It is queued again, and has the place of a job of red's that was not guaranteed.
    assert mine.restarts == 1
    assert mine.state == JobState.RUNNING and mine.pool == "blue"
    assert mine.alloc[0].node != lost
    assert [one.pool for one in guests].count("red") == 1
    assert next(one for one in guests if one.pool == "red").restarts == 0


def test_a_node_that_comes_back_with_other_gpus_is_none_of_the_guarantee() -> None:
    made = world(3, red=1, blue=2)
    for name, count in (("red", 8), ("blue", 16)):
        set_guarantee(made, name, 0, guarantee={f"{GPU}:h100": count})
    other = [Gpu(f"new-{i}", "a100", i, links=[18 if i != j else 0 for j in range(8)])
             for i in range(8)]  # fmt: skip
    made.b.register("node1", gpus=other)
    settle(made)
    jobs = [job(made, "blue") for _ in range(2)]
    assert [one.pool for one in jobs] == ["blue", "blue"]
    assert sorted(places(*jobs)) == ["2", "3"]
    own = made.b.led.units.own
    assert {unit.node for units in own.values() for unit in units} <= {"node2", "node3"}
