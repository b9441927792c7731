"""Advance reservations in the ledger: commands, what time does to them, and their jobs."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest
from unit.ledger_support import CONF, Bench, at

from gsched import reserve
from gsched.ledger import Ledger
from gsched.ledger.invariants import check
from gsched.model import Assoc, Hold, JobState, Phase, Reservation, Shape
from gsched.wire.messages import Done, Refused, UpdateNode, UpdateReservation
from gsched.wire.nodes import Prepare, SetLimit

HOUR = 3600


def bench(more: str = "") -> Bench:
    """Nodes that stay up however much time passes without a report."""
    return Bench(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0") + more)


def resv(b: Bench, verb: str, name: str = "", uid: int = 0, **fields: str) -> str:
    """The name, or the refusal."""
    given = {key.replace("_plus", "+").replace("_minus", "-"): v for key, v in fields.items()}
    reply = b.write(UpdateReservation(name, verb, given), uid)
    if isinstance(reply, Refused):
        return reply.message
    assert isinstance(reply, Done)
    same(b)
    return reply.data


def make(b: Bench, name: str, after: int, seconds: int, **fields: str) -> str:
    start = str(int(b.now) + after)
    fields = {"users": "user", **fields}
    return resv(b, "create", name, starttime=start, duration=str(seconds), **fields)


def same(b: Bench) -> None:
    """What is stored makes the same ledger again."""

    def copied(record: Any) -> Any:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record))

    led = Ledger.load(
        b.config,
        copied(b.led.meta),
        [copied(job) for job in b.led.jobs.values()],
        [copied(node) for node in b.led.nodes.values()],
        reservation_records=[copied(one) for one in b.led.reservations.values()],
    )
    check(led)
    assert led.reservations == b.led.reservations


def nodes(b: Bench, name: str) -> list[str]:
    return [share.node for share in b.led.reservations[name].nodes]


def test_create_needs_an_administrator_and_good_values() -> None:
    """The sentences of a real scontrol."""
    b = bench()
    assert make(b, "r", 0, HOUR, nodes="node1") == "r"
    start = str(int(b.now) + HOUR)
    wrong = {"starttime": start, "duration": "600", "nodes": "node2", "users": "user"}
    for change, text in (
        ({"nodes": "nosuch"}, "Invalid node name specified"),
        ({"partitionname": "nosuch"}, "Invalid partition name specified"),
        ({"starttime": "1000"}, "Invalid time specified"),
        ({"nodes": "node1"}, ""),
        ({"starttime": str(int(b.now) + 60), "nodes": "node1"},
         "Requested reservation overlaps with another reservation"),
        ({"flags": "time_float,daily"}, "Requested operation not supported on this system"),
        ({"flags": "replace"}, "Invalid node name specified"),
    ):  # fmt: skip
        got = resv(b, "create", "x", **(wrong | change))
        assert got == (text or "x")
        if not text:
            assert resv(b, "delete", "x") == "x"
    assert resv(b, "create", "y", uid=1000, **wrong) == "Invalid user id"
    assert resv(b, "update", "nosuch", duration="60") == "Requested reservation is invalid"
    assert resv(b, "delete", "nosuch") == "Requested reservation is invalid"
    assert resv(b, "delete", "r", uid=1000) == "Invalid user id"


def test_a_name_is_made_of_the_first_user() -> None:
    b = bench()
    assert make(b, "", 0, HOUR, nodes="node1") == "user_1"
    assert make(b, "", 0, HOUR, nodes="node2", users="", accounts="phys") == "phys_2"


def test_busy_nodes_are_refused_unless_jobs_are_ignored() -> None:
    b = bench()
    job = b.job(shape=Shape(gpus_per_node=8, nodelist=("node3",)))
    b.schedule()
    assert job.state == JobState.RUNNING
    assert make(b, "x", 0, HOUR, nodes="node3") == "Requested nodes are busy"
    assert make(b, "later", 2 * HOUR, HOUR, nodes="node3") == "later"
    assert make(b, "x", 0, HOUR, nodecnt="3") == "x"
    assert nodes(b, "x") == ["node1", "node2", "node4"]
    assert make(b, "y", 0, HOUR, nodecnt="1") == "Requested nodes are busy"
    assert make(b, "z", 0, HOUR, nodes="node3", flags="ignore_jobs") == "z"
    assert b.led.reservations["z"].flags == ("IGNORE_JOBS", "SPEC_NODES")
    assert make(b, "m", 0, HOUR, nodes="all", flags="maint,ignore_jobs") == "m"
    assert b.led.reservations["m"].flags == ("MAINT", "IGNORE_JOBS", "SPEC_NODES", "ALL_NODES")


def test_features_partitions_cores_and_gpus() -> None:
    b = bench()
    make(b, "f", 0, HOUR, nodecnt="1", features="rackB")
    assert nodes(b, "f") == ["node3"]
    make(b, "p", HOUR, HOUR, nodes="all", partitionname="debug")
    assert nodes(b, "p") == ["node1"]
    assert b.led.reservations["p"].flags == ("SPEC_NODES", "PART_NODES")
    make(b, "c", HOUR, HOUR, nodes="node[2-3]", corecnt="2,4")
    assert [share.cpus for share in b.led.reservations["c"].nodes] == [2, 4]
    make(b, "g", HOUR, HOUR, gpus="h100:4")
    (share,) = b.led.reservations["g"].nodes
    # Half of a node's GPUs, and half of its CPUs with them.
    assert (share.gpus.bit_count(), share.cpus) == (4, 8)
    make(b, "g2", HOUR, HOUR, gpus="12", nodecnt="2")
    assert [s.gpus.bit_count() for s in b.led.reservations["g2"].nodes] == [6, 6]
    assert make(b, "g3", HOUR, HOUR, gpus="40") == "Requested nodes are busy"


def test_jobs_run_in_it_and_end_with_it() -> None:
    """As observed: a job starts in its reservation whatever its limit, and ends with it."""
    b = bench()
    make(b, "r", 120, 180, nodes="node1")
    job = b.job(reservation="r", time_limit=600)
    assert b.verdict(job) == "Reservation"
    other = b.job(time_limit=600, shape=Shape(nodelist=("node1",)))
    assert b.verdict(other) == "ReqNodeNotAvail, May be reserved for other job"
    short = b.job(time_limit=60, shape=Shape(nodelist=("node1",)))
    b.schedule()
    assert short.state == JobState.RUNNING
    b.report("node1", at(short, Phase.RELEASED, wstatus=0))
    b.now += 120
    assert b.tick().schedule
    b.schedule()
    assert job.state == JobState.RUNNING and job.alloc[0].node == "node1"
    assert job.reservation == "r" and job.end_time == b.now + 180
    orders = [order for order in b.sent["node1"] if isinstance(order, Prepare)]
    assert orders[-1].launch.limit_s == 180
    b.schedule()
    assert other.state == JobState.PENDING
    # A longer reservation is a longer job.
    b.report("node1", at(job, Phase.RUNNING))
    assert resv(b, "update", "r", duration="300") == "r"
    limits = [order for order in b.sent["node1"] if isinstance(order, SetLimit)]
    assert limits[-1].limit_s == 300 and job.end_time == b.now + 300


def test_who_may_ask_for_it() -> None:
    b = bench()
    make(b, "mine", 0, HOUR, nodes="node1")
    make(b, "yours", 0, HOUR, nodes="node2", users="somebody")
    make(b, "not", 0, HOUR, nodes="node3", users="-user")
    make(b, "grp", 0, HOUR, nodes="node4", users="", groups="group,other")
    for text, message in (
        ("mine", ""),
        ("grp,mine", ""),
        ("nosuch", "Requested reservation is invalid"),
        ("mine,nosuch", "Requested reservation is invalid"),
        ("yours", "Access denied to requested reservation"),
        ("mine,not", "Access denied to requested reservation"),
    ):
        reply = b.submit(reservation=text)
        assert (reply.message if isinstance(reply, Refused) else "") == message
    # An administrator's job may go anywhere.
    assert isinstance(b.submit(uid=0, reservation="yours"), Done)


def test_accounts() -> None:
    b = bench()
    make(b, "acc", 0, HOUR, nodes="node1", users="", accounts="phys")
    assert isinstance(b.submit(reservation="acc"), Refused)
    assert isinstance(b.submit(reservation="acc", account="phys"), Done)


def test_of_two_reservations_the_first_that_has_room_is_taken() -> None:
    b = bench()
    make(b, "a", HOUR, HOUR, nodes="node1")
    make(b, "b", 0, HOUR, nodes="node2")
    job = b.job(reservation="a,b", time_limit=60)
    b.schedule()
    assert job.reservation == "b" and job.alloc[0].node == "node2"


def test_a_job_that_can_never_run_in_it() -> None:
    """As observed: Reservation until it begins, then BadConstraints."""
    b = bench()
    make(b, "r", 60, HOUR, nodes="node1")
    job = b.job(reservation="r", shape=Shape(min_nodes=2, max_nodes=2))
    assert b.verdict(job) == "Reservation"
    b.now += 60
    b.tick()
    assert b.verdict(job) == "BadConstraints"


def test_a_job_that_the_reservation_can_never_hold_is_refused_while_that_lasts() -> None:
    """As Slurm 22.05: not of a held job, and not before it begins or with a node out of service."""
    b = bench()
    make(b, "r", 0, HOUR, nodes="node1")
    make(b, "later", HOUR, HOUR, nodes="node1")
    for shape, notes in (
        (Shape(min_nodes=2, max_nodes=2), []),
        (Shape(exclude=("node1",)), []),
        (Shape(nodelist=("node2",)), ["Problem using reservation"]),
    ):
        reply = b.submit(reservation="r", shape=shape)
        assert isinstance(reply, Refused)
        assert reply.message == "Requested node configuration is not available"
        assert reply.notes == notes
        assert isinstance(b.submit(reservation="r", shape=shape, hold=True), Done)
        assert isinstance(b.submit(reservation="later", shape=shape), Done)
        assert isinstance(b.submit(reservation="r,later", shape=shape), Done)
    assert isinstance(b.submit(reservation="r"), Done)
    b.write(UpdateNode(["node1"], "drain", "x"), 0)
    assert isinstance(b.submit(reservation="r", shape=Shape(nodelist=("node2",))), Done)


def test_maintenance_ahead() -> None:
    b = bench()
    make(b, "m", 600, HOUR, nodes="all", flags="maint,ignore_jobs")
    long, short = b.job(time_limit=HOUR), b.job(time_limit=300)
    assert b.verdict(long) == "ReqNodeNotAvail, Reserved for maintenance"
    assert short.state == JobState.RUNNING
    b.now += 600 + HOUR
    b.tick()
    b.schedule()
    assert "m" not in b.led.reservations
    assert long.state == JobState.RUNNING


def test_it_cannot_be_deleted_while_jobs_use_it() -> None:
    b = bench()
    make(b, "r", HOUR, HOUR, nodes="node1")
    b.job(reservation="r")
    assert resv(b, "delete", "r") == "Requested reservation is in use"
    assert make(b, "s", HOUR, HOUR, nodes="node2") == "s"
    assert resv(b, "delete", "s") == "s"


@pytest.mark.parametrize(("flags", "held"), [("", True), ("no_hold_jobs_after", False)])
def test_jobs_that_wait_when_it_ends(flags: str, held: bool) -> None:
    """They are held, with Slurm's reason; or they run outside."""
    b = bench()
    make(b, "r", 60, 60, nodes="node1", flags=flags)
    job = b.job(reservation="r", shape=Shape(min_nodes=2, max_nodes=2))
    both = b.job(reservation="r,t") if make(b, "t", HOUR, HOUR, nodes="node2") else job
    b.now += 120
    b.tick()
    assert list(b.led.reservations) == ["t"]
    b.schedule()
    assert both.spec.reservation == "t" and both.held == Hold.NONE
    assert job.spec.reservation == ""
    if held:
        assert (job.held, job.priority) == (Hold.USER, 0)
        assert job.reason == "Reservation r was deleted"
    else:
        assert job.state == JobState.RUNNING
    same(b)


def test_a_started_reservation_keeps_its_start() -> None:
    b = bench()
    make(b, "r", 0, HOUR, nodes="node1")
    later = str(int(b.now) + 300)
    assert resv(b, "update", "r", starttime=later) == "Reservation already started"
    assert resv(b, "update", "r", skip="") == (
        "Reservation given is not skipable, try deleting instead"
    )
    assert resv(b, "update", "r", users_plus="somebody", flags_plus="maint") == "r"
    assert b.led.reservations["r"].users == ("user", "somebody")
    assert b.led.reservations["r"].flags == ("MAINT", "SPEC_NODES")
    assert resv(b, "update", "r", users_minus="user", flags_minus="maint") == "r"
    assert b.led.reservations["r"].users == ("somebody",)


def test_one_that_repeats_comes_back_every_day() -> None:
    b = bench()
    make(b, "d", 60, 600, nodes="node1", flags="daily")
    first = b.led.reservations["d"].start
    job = b.job(reservation="d", time_limit=60, shape=Shape(min_nodes=2, max_nodes=2))
    b.now += 660
    b.tick()
    again = b.led.reservations["d"]
    assert again.start == reserve.next_start("DAILY", first)
    assert again.duration == 600 and job.spec.reservation == "d"
    assert b.verdict(job) == "Reservation"
    assert resv(b, "update", "d", skip="") == "d"
    assert b.led.reservations["d"].start == reserve.next_start("DAILY", again.start)


def test_days_of_the_week() -> None:
    friday = int(datetime.datetime(2026, 11, 27, 12).timestamp())

    def day(how: str) -> int:
        return datetime.datetime.fromtimestamp(reserve.next_start(how, friday)).day

    assert [day(how) for how in ("DAILY", "WEEKEND")] == [28, 28]
    assert datetime.datetime.fromtimestamp(reserve.next_start("WEEKDAY", friday)).day == 30
    assert datetime.datetime.fromtimestamp(reserve.next_start("WEEKLY", friday)).month == 12
    assert reserve.next_start("HOURLY", friday) == friday + 3600


def test_an_idle_one_is_purged() -> None:
    b = bench()
    make(b, "r", 0, 10 * HOUR, nodes="node1", flags="purge_comp=120")
    assert b.led.reservations["r"].purge_comp == 120
    job = b.job(reservation="r", time_limit=60)
    b.schedule()
    b.now += 300
    b.tick()
    assert "r" in b.led.reservations
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    for _ in range(6):
        b.now += 31
        b.tick()
    assert "r" not in b.led.reservations


def test_magnetic_ones_draw_jobs_in() -> None:
    """A job that asks for none starts in one that it may use, where it has room."""
    b = bench()
    waiting = b.job(time_limit=60, shape=Shape(nodelist=("node1",)))
    make(b, "m", 0, HOUR, nodes="node1", flags="magnetic")
    make(b, "n", 0, HOUR, nodes="node2", flags="magnetic", users="somebody")
    b.schedule()
    assert waiting.state == JobState.RUNNING and waiting.reservation == "m"
    other = b.job(time_limit=60, shape=Shape(nodelist=("node2",)))
    b.schedule()
    assert other.state == JobState.PENDING


def test_flex_jobs_are_not_cut_short() -> None:
    b = bench()
    make(b, "r", 600, 60, nodes="node1", flags="flex")
    job = b.job(reservation="r", time_limit=HOUR, shape=Shape(nodelist=("node1",)))
    b.schedule()
    assert job.state == JobState.RUNNING and job.end_time == b.now + HOUR


def test_time_beyond_the_end() -> None:
    b = bench("ResvOverRun=5\n")
    make(b, "r", 0, 600, nodes="node1")
    job = b.job(reservation="r", time_limit=HOUR)
    b.schedule()
    assert job.end_time == b.now + 600 + 300


def test_a_record_says_what_it_keeps() -> None:
    one = Reservation("r", 100, 400)
    assert (one.duration, one.whole, one.active(100), one.active(400)) == (300, True, True, False)


def test_times_of_this_century() -> None:
    b = bench()
    b.now = 1_796_000_000.0
    assert make(b, "r", 60, HOUR, nodes="node1") == "r"
    assert b.led.reservations["r"].start == 1_796_000_060


# ---- licences, floating, nodes that are replaced

LICENSED = "Licenses=matlab:4\n"


def test_reserved_licences_are_for_its_jobs_alone() -> None:
    """As a real controller answered: of 4, 2 reserved, a job outside gets 2; one inside all."""
    b = bench(LICENSED)
    assert make(b, "lic", 0, HOUR, flags="license_only", licenses="matlab:2") == "lic"
    assert b.led.reservations["lic"].flags == ("ANY_NODES",)
    assert nodes(b, "lic") == []
    outside = b.job(licenses="matlab:3")
    inside = b.job(licenses="matlab:2", reservation="lic")
    more = b.job(licenses="matlab:3", reservation="lic")
    b.schedule()
    assert (outside.state, inside.state, more.state) == (
        JobState.PENDING,
        JobState.RUNNING,
        JobState.PENDING,
    )
    assert b.verdict(outside) == "Licenses"
    small = b.job(licenses="matlab:2")
    b.schedule()
    assert small.state == JobState.RUNNING
    same(b)


def test_licences_of_a_reservation_ahead_are_kept_from_jobs_that_would_run_into_it() -> None:
    b = bench(LICENSED)
    make(b, "lic", HOUR, HOUR, flags="any_nodes", licenses="matlab:4")
    long, short = (
        b.job(licenses="matlab", time_limit=2 * HOUR),
        b.job(licenses="matlab", time_limit=HOUR // 2),
    )
    early = b.job(licenses="matlab", reservation="lic", time_limit=60)
    b.schedule()
    assert (long.state, short.state) == (JobState.PENDING, JobState.RUNNING)
    assert early.state == JobState.PENDING
    b.now += HOUR
    b.tick()
    b.schedule()
    assert early.state == JobState.RUNNING


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"licenses": "matlab:5", "flags": "any_nodes"}, "Invalid license specification"),
        ({"licenses": "nosuch", "flags": "any_nodes"}, "Invalid license specification"),
        ({"licenses": "matlab:1"}, "Invalid node name specified"),
        ({"flags": "any_nodes"}, "Requested reservation is invalid"),
    ],
)
def test_licences_that_cannot_be_reserved(fields: dict[str, str], text: str) -> None:
    assert make(bench(LICENSED), "x", 0, HOUR, **fields) == text


def test_no_more_licences_are_reserved_at_one_time_than_there_are() -> None:
    b = bench(LICENSED)
    make(b, "a", 0, HOUR, flags="any_nodes", licenses="matlab:3")
    refused = "Invalid license specification"
    assert make(b, "b", 0, HOUR, flags="any_nodes", licenses="matlab:2") == refused
    assert make(b, "b", HOUR, HOUR, flags="any_nodes", licenses="matlab:2") == "b"
    assert resv(b, "update", "a", licenses="matlab:4") == "a"
    assert resv(b, "update", "a", licenses="") == refused
    assert resv(b, "update", "a", flags_minus="any_nodes") == "Requested reservation is invalid"


def test_a_floating_reservation_is_always_ahead() -> None:
    """scontrol's page: StartTime=now+10minutes will always be 10 minutes in the future. So short
    jobs run at any time, and longer ones never."""
    b = bench()
    make(b, "float", 600, HOUR, nodes="all", flags="time_float")
    for _ in range(3):
        long, short = b.job(time_limit=1200), b.job(time_limit=540)
        b.schedule()
        assert (long.state, short.state) == (JobState.PENDING, JobState.RUNNING)
        b.now += 5000
        b.tick()
        same(b)
    assert resv(b, "update", "float", starttime=str(int(b.now) + 60)) == (
        "Reservation already started"
    )
    assert "cannot be removed" in resv(b, "update", "float", flags_minus="time_float")


def lose(b: Bench, name: str) -> None:
    b.write(UpdateNode([name], "drain", "broken"), uid=0)


def test_a_chosen_node_that_is_lost_is_replaced() -> None:
    b = bench()
    make(b, "two", HOUR, HOUR, nodecnt="2")
    make(b, "still", HOUR, HOUR, nodecnt="1", flags="static_alloc")
    assert nodes(b, "two") == ["node1", "node2"] and nodes(b, "still") == ["node3"]
    lose(b, "node1")
    lose(b, "node3")
    b.now += 6
    b.tick()
    assert nodes(b, "two") == ["node2", "node4"] and nodes(b, "still") == ["node3"]
    same(b)
    lose(b, "node2")
    b.now += 6
    b.tick()
    # Nobody else is left.
    assert nodes(b, "two") == ["node2", "node4"]


def test_nodes_that_jobs_take_are_replenished_with_replace() -> None:
    b = bench()
    make(b, "pool", 0, HOUR, nodecnt="2", flags="replace")
    assert nodes(b, "pool") == ["node1", "node2"]
    job = b.job(reservation="pool", shape=Shape(exclusive=1))
    b.schedule()
    assert [part.node for part in job.alloc] == ["node1"]
    b.now += 6
    b.tick()
    assert nodes(b, "pool") == ["node2", "node3"]
    assert job.state == JobState.RUNNING and job.reservation == "pool"


def test_a_reservation_for_a_qos_or_a_partition() -> None:
    b = bench()
    make(b, "q", 0, HOUR, nodes="node1", users="", qos="normal")
    assert make(b, "x", 0, HOUR, nodes="node2", users="", qos="nosuch") == (
        "Invalid qos specification"
    )
    make(b, "p", 0, HOUR, nodes="node3", users="", allowedpartitions=b.config.default_partition)
    assert b.job(reservation="q").id and b.job(reservation="p").id
    reply = b.submit(reservation="q", qos="other")
    assert isinstance(reply, Refused)


def test_sub_accounts_use_what_is_reserved_for_an_account() -> None:
    b = bench()
    for record in (
        *b.led.book.first,
        Assoc(3, "phys", parent="root"),
        Assoc(4, "qft", parent="phys"),
    ):
        b.led.book.put(record)
    make(b, "r", 0, HOUR, nodes="node1", users="", accounts="phys")
    assert b.job(reservation="r", account="qft").id
    assert isinstance(b.submit(reservation="r", account="chem"), Refused)


def test_who_may_use_it_deletes_it_where_that_is_allowed() -> None:
    b = bench()
    make(b, "r", 0, HOUR, nodes="node1", flags="user_delete")
    make(b, "s", 0, HOUR, nodes="node2")
    request = UpdateReservation("r", "delete")
    assert isinstance(b.write(request, 1000, user="stranger"), Refused)
    assert isinstance(b.write(UpdateReservation("s", "delete"), 1000, user="user"), Refused)
    assert isinstance(b.write(UpdateReservation("r", "delete"), 1000, user="user"), Done)
