"""Why a job waits where nodes are kept for others, for a maintenance, or until a later time."""

from __future__ import annotations

import time

import pytest
from unit.why_support import CONF, Waits, World

from gsched.model import JobState
from gsched.scheduling import Planner
from gsched.wire.messages import Done, UpdateReservation
from gsched_cli.why_words import record_lines, sentences

HOURS = 3600
OTHER = "ReqNodeNotAvail, May be reserved for other job"
MAINTENANCE = "ReqNodeNotAvail, Reserved for maintenance"


def _world() -> World:
    """Nodes stay up however much time passes without a report."""
    return World(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0"))


def _resv(world: World, verb: str, name: str, **fields: str) -> World:
    reply = world.write(UpdateReservation(name, verb, fields), 0)
    assert isinstance(reply, Done), reply
    return world


def _kept(
    name: str,
    nodes: str,
    *,
    after: int = 2,
    hours: int = 1,
    world: World | None = None,
    **more: str,
) -> World:
    """A world in which bob's reservation keeps nodes, in so many hours and for so many."""
    world = world or _world()
    start = str(int(world.now) + after * HOURS)
    fields = {"starttime": start, "duration": str(hours * HOURS), "nodes": nodes, "users": "bob"}
    return _resv(world, "create", name, **(fields | more))


def _text(w: Waits) -> str:
    """The first cause in words; times as hours from now."""
    return sentences(w.why, lambda t: f"{(t - w.now) / HOURS:g} h")[0]


def test_into_a_reservation_of_others() -> None:
    """It would be there from two hours on to three; the job wants three hours."""
    w = Waits(lambda: _kept("r", "node[1-4]"), "--gres=gpu:1", "--time=3:00:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert (w.cause.detail, w.cause.have, w.cause.until - w.now) == ("r", 4, 3 * HOURS)
    assert w.counts == {("reservation", False): (4, 4)}
    (kept,) = w.place.kept
    assert (kept.name, kept.start - w.now, kept.end - w.now) == ("r", 2 * HOURS, 3 * HOURS)
    assert (kept.nodes, kept.count, kept.whole, kept.gpus) == ("node[1-4]", 4, True, 32)
    assert w.start == ("planned", 3 * HOURS) and not w.why.never
    # To the second: it ends when the reservation begins.
    assert w.options == {"--time=2:00:00"}
    assert _text(w) == (
        "It would run into others' time in partition gpu: reservation r keeps 4 nodes (node[1-4]) "
        "from 2 h until 3 h."
    )
    lines = record_lines(w.why, lambda t: time.strftime("%H:%M", time.gmtime(t - w.now)))
    assert lines[0] == (
        "Why=It would run into others' time in partition gpu: reservation r keeps 4 nodes "
        "(node[1-4]) from 02:00 until 03:00."
    )
    assert (
        "WhyReservation=r Partition=gpu StartTime=02:00 EndTime=03:00 Maintenance=0 Nodes=4 "
        "NodeList=node[1-4] GPUs=32"
    ) in lines
    assert "WhyDemand=reservation Partition=gpu Never=0 Nodes=4/4 Alone=4 NodeList=node[1-4]" in (
        lines
    )
    assert "WhyStart=03:00 Basis=planned NodeList=node1" in lines
    assert "WhyInstead=--time=2:00:00" in lines


def test_a_reservation_leaves_too_few_nodes() -> None:
    w = Waits(lambda: _kept("r", "node[1-3]"), "--nodes=2", "--gres=gpu:1", "--time=3:00:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert (w.place.needed, w.place.suited, w.cause.have) == (2, 1, 3)
    assert w.counts == {("reservation", False): (3, 3)}
    assert w.start == ("planned", 3 * HOURS)
    assert w.options == {"--time=2:00:00", "--nodes=1"}


def test_a_reservation_that_is_in_force() -> None:
    w = Waits(lambda: _kept("r", "node[1-4]", after=0), "--gres=gpu:1", "--time=0:10:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert w.start == ("planned", HOURS) and w.options == set()
    assert _text(w).endswith("reservation r keeps 4 nodes (node[1-4]) until 1 h.")


def test_between_two_reservations_there_is_no_time() -> None:
    """The first ends at two hours, the second begins at three: an hour lies between."""

    def build() -> World:
        return _kept("b", "node[1-4]", after=3, world=_kept("a", "node[1-4]", after=1))

    w = Waits(build, "--gres=gpu:1", "--time=2:00:00")
    assert [one.name for one in w.place.kept] == ["a"]
    assert w.start == ("planned", 4 * HOURS)
    assert w.options == {"--time=1:00:00"}
    w = Waits(build, "--gres=gpu:1", "--time=4:00:00")
    assert [(one.name, (one.start - w.now) // HOURS) for one in w.place.kept] == [
        ("a", 1),
        ("b", 3),
    ]


def test_a_maintenance() -> None:
    def build() -> World:
        return _kept("m", "node[1-4]", hours=4, users="root", flags="maint,ignore_jobs")

    w = Waits(build, "--gres=gpu:1", "--time=3:00:00")
    assert w.kinds == ["maintenance"] and w.word == MAINTENANCE
    assert (w.cause.detail, w.cause.have) == ("m", 4)
    assert w.place.kept[0].maintenance
    assert w.start == ("planned", 6 * HOURS)
    assert w.options == {"--time=2:00:00"}
    assert _text(w) == (
        "It would run into others' time in partition gpu: maintenance m keeps 4 nodes (node[1-4]) "
        "from 2 h until 6 h."
    )


def test_a_maintenance_of_other_nodes_is_not_the_cause() -> None:
    """Node 4 is maintained, but its partition has nodes 1 and 2 alone."""
    conf = CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0").replace("=ALL Def", "=node[1-2] Def")

    def build() -> World:
        world = _kept("r", "node[1-2]", world=World(conf))
        return _kept("m", "node4", world=world, users="root", flags="maint,ignore_jobs")

    w = Waits(build, "--gres=gpu:1", "--time=3:00:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert [one.name for one in w.place.kept] == ["r"]


def test_named_nodes_are_not_those_of_the_maintenance() -> None:
    def build() -> World:
        world = _kept("r", "node1")
        return _kept("m", "node4", world=world, users="root", flags="maint,ignore_jobs")

    w = Waits(build, "--nodelist=node1", "--time=3:00:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert w.options == {"--time=2:00:00", "without --nodelist"}
    w = Waits(build, "--nodelist=node4", "--time=3:00:00")
    assert w.kinds == ["maintenance"] and w.word == MAINTENANCE


def test_a_job_of_a_reservation_that_has_not_begun() -> None:
    w = Waits(lambda: _kept("r", "node[1-2]", users="alice"), "--reservation=r", "--gres=gpu:1")
    assert w.kinds == ["reservation_begin"] and w.word == "Reservation"
    assert (w.cause.detail, w.cause.until - w.now, w.cause.never) == ("r", 2 * HOURS, False)
    assert w.place.reservation == "r"
    assert w.why.start.time - w.now == 2 * HOURS and w.why.start.nodes in ("", "node1")
    # An hour: outside of it there is time before it begins.
    assert w.options == {"without --reservation"}
    assert _text(w) == "Its reservation r begins at 2 h."
    # It does start then.
    w.world.now += 2 * HOURS
    w.world.tick()
    w.world.settle()
    assert w.job.state == JobState.RUNNING and w.job.start_time == w.now + 2 * HOURS


def test_a_reservation_has_too_few_nodes_for_its_job() -> None:
    w = Waits(
        lambda: _kept("r", "node1", after=2, hours=4, users="alice"),
        *("--reservation=r", "--nodes=2", "--gres=gpu:1"),
        suggestions=False,
    )
    # While it lasts such a job is refused.
    w.world.now += 2 * HOURS
    w.world.tick()
    w.word = w.world.settle().get(w.job.id, "")
    w.why = w.world.why(w.job, 0)
    assert w.kinds == ["never"] and w.word == "BadConstraints" and w.why.never
    assert (w.place.needed, w.place.suited) == (2, 1)
    assert w.counts == {("reservation", False): (3, 3)}
    assert w.start == ("unknown", -1)
    assert w.options == {"without --reservation", "--nodes=1"}


def test_the_nodes_of_its_reservation_are_busy() -> None:
    def build() -> World:
        world = _kept("r", "node1", after=0, hours=4, users="alice")
        world.started("--reservation=r", "--gres=gpu:8", "--time=2:00:00")
        return world

    w = Waits(build, "--reservation=r", "--gres=gpu:1")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert w.counts == {("gpus", False): (1, 1), ("reservation", False): (3, 3)}
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"without --reservation"}
    assert _text(w) == (
        "No node has room in its reservation r: 1 of 4 nodes has fewer than 1 free GPU."
    )


def test_its_reservation_is_over_before_there_is_room() -> None:
    """What runs there ends with the reservation: then there is none."""

    def build() -> World:
        world = _kept("r", "node1", after=0, hours=2, users="alice")
        world.started("--reservation=r", "--gres=gpu:8", "--time=5:00:00")
        return world

    w = Waits(build, "--reservation=r", "--gres=gpu:1")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert w.start == ("unknown", -1)
    assert w.options == {"without --reservation"}


@pytest.mark.parametrize("hold", [True, False])
def test_its_reservation_has_ended(hold: bool) -> None:
    """Its jobs are held, unless NO_HOLD_JOBS_AFTER_END says that they may run outside."""
    flags = {} if hold else {"flags": "no_hold_jobs_after_end"}
    world = _kept("r", "node1", after=0, users="alice", **flags)
    world.started("--reservation=r", "--gres=gpu:8", "--time=1:00:00")
    job = world.sbatch("--reservation=r", "--gres=gpu:1")
    world.settle()
    world.now += HOURS
    world.tick()
    words = world.settle()
    assert "r" not in world.led.reservations
    if not hold:
        assert job.state == JobState.RUNNING and job.alloc[0].node != "node1"
        return
    why = world.why(job)
    assert why.reason == words[job.id] == "Reservation r was deleted"
    assert [(one.kind, one.detail) for one in why.causes] == [("hold", "Reservation r was deleted")]
    assert why.start.basis == "unknown" and why.suggestions == []
    assert why.commands == [f"scontrol release {job.id}"]


def test_a_reservation_of_ones_own_is_suggested() -> None:
    """Only to those who may use it: bob and alice."""

    def build() -> World:
        world = _kept("mine", "node[1-2]", after=0, hours=4, users="alice")
        return _kept("his", "node[3-4]", after=0, hours=4, world=world)

    w = Waits(build, "--gres=gpu:1", "--time=1:00:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert [(one.name, one.count) for one in w.place.kept] == [("his", 2), ("mine", 2)]
    assert w.start == ("planned", 4 * HOURS)
    assert w.options == {"--reservation=mine"}


def test_some_gpus_of_a_node_are_kept() -> None:
    """Six of eight: two are left to a job that would be there then."""

    def build() -> World:
        world = _world()
        for name in ("node2", "node3", "node4"):
            world.started("--gres=gpu:8", "--time=6:00:00", f"--nodelist={name}")
        return _kept("r", "node1", world=world, gpus="h100:6")

    w = Waits(build, "--gres=gpu:4", "--time=3:00:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert w.counts == {("gpus", False): (3, 3), ("reservation", False): (1, 1)}
    (kept,) = w.place.kept
    assert (kept.nodes, kept.count, kept.whole, kept.gpus) == ("node1", 1, False, 6)
    assert w.start == ("planned", 3 * HOURS)
    assert w.options == {"--time=2:00:00", "--gres=gpu:2"}
    assert _text(w) == (
        "It would run into others' time in partition gpu: reservation r keeps 6 GPUs of 1 node "
        "(node1) from 2 h until 3 h."
    )


def test_a_planned_job_is_the_cause_beside_a_reservation() -> None:
    """Node 4 is free of reservations, but a job ahead is to have it in an hour."""

    def build() -> World:
        world = _kept("r", "node[1-3]", hours=8)
        world.started("--gres=gpu:7", "--time=1:00:00", "--nodelist=node4")
        world.sbatch("--gres=gpu:8", "--time=2:00:00", "--nodelist=node4", "-J", "head")
        world.settle()
        return world

    w = Waits(build, "--gres=gpu:1", "--time=3:00:00")
    assert w.kinds == ["priority"] and w.word == "Priority"
    assert w.counts == {("reservation", False): (3, 3), ("reserved", False): (1, 1)}
    assert [one.id for one in w.place.delays] == ["2"]
    assert w.start[1] == 3 * HOURS
    assert w.options == {"--time=2:00:00"}


def test_a_reservation_in_the_way_later() -> None:
    """At a later time, and of a job that is not to begin before."""
    w = Waits(lambda: _kept("r", "node[1-4]"), "--gres=gpu:1", "--time=3:00:00", at_s=HOURS)
    assert not w.why.starts and w.kinds == ["reservation"]
    w = Waits(lambda: _kept("r", "node[1-4]"), "--gres=gpu:1", "--time=3:00:00", at_s=3 * HOURS)
    assert w.why.starts and w.place.on == "node1"
    w = Waits(lambda: _kept("r", "node[1-4]"), "--begin=now+2hours", "--gres=gpu:1")
    assert w.word == "BeginTime" and w.start == ("not_before", 2 * HOURS)
    w = Waits(lambda: _kept("r", "node[1-4]"), "--begin=now+3hours", "--gres=gpu:1")
    assert w.word == "BeginTime" and w.start == ("begin", 3 * HOURS)


def test_its_reservation_later() -> None:
    def build() -> World:
        return _kept("r", "node1", users="alice")

    w = Waits(build, "--reservation=r", at_s=2 * HOURS - 1)
    assert not w.why.starts and w.kinds == ["reservation_begin"]
    w = Waits(build, "--reservation=r", at_s=2 * HOURS)
    assert w.why.starts and w.place.on == "node1"


class PlannedWorld(World):
    """Beside passes a plan is made of the whole queue, as the controller does."""

    def __init__(self) -> None:
        conf = CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0")
        conf = conf.replace("GresTypes", "SchedulerParameters=bf_resolution=1\nGresTypes")
        super().__init__(conf)
        self.planner = Planner()

    def settle(self) -> dict[int, str]:
        words = super().settle()
        self.planner.prepare(self.led, self.now).run()
        assert self.planner.apply(self.led)
        return words | super().settle()


def test_a_reservation_beside_a_plan_of_the_whole_queue() -> None:
    """The head waits for the reservation's end at three hours, then it has all nodes for one."""

    def build() -> World:
        world = _kept("r", "node[1-3]", world=PlannedWorld())
        world.sbatch("--nodes=4", "--gres=gpu:8", "--time=2:30:00", "-J", "head")
        world.settle()
        return world

    w = Waits(build, "--nodes=2", "--gres=gpu:1", "--time=2:30:00")
    assert w.kinds == ["reservation"] and w.word == OTHER
    assert [(one.name, one.count) for one in w.place.kept] == [("r", 3)]
    assert w.start == ("planned", 5 * HOURS + HOURS // 2)
    assert w.options == {"--time=2:00:00", "--nodes=1"}
    # On one node for four hours it would delay the head.
    w = Waits(build, "--gres=gpu:1", "--time=4:00:00")
    assert w.kinds == ["priority"] and w.word == "Priority"
    assert [one.id for one in w.place.delays] == ["1"]
    assert w.options == {"--time=3:00:00"}


def test_its_reservation_beside_a_plan() -> None:
    w = Waits(
        lambda: _kept("r", "node1", users="alice", world=PlannedWorld()),
        *("--reservation=r", "--gres=gpu:1"),
    )
    assert w.kinds == ["reservation_begin"] and w.word == "Reservation"
    assert w.why.start.time - w.now == 2 * HOURS
    assert w.options == {"without --reservation"}


def test_a_reservation_that_its_owner_may_not_use() -> None:
    """It is refused when it is submitted; an administrator's job may go there."""
    world = _kept("r", "node1", after=0)
    with pytest.raises(AssertionError, match="Access denied to requested reservation"):
        world.sbatch("--reservation=r", "--gres=gpu:1")
    assert world.started("--reservation=r", "--gres=gpu:1", uid=0).alloc[0].node == "node1"
