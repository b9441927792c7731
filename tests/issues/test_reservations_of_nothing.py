"""Reservations of a negative time, of no nodes, of no GPUs, and by people whom nobody knows: the
sentences are those of a real scontrol; and jobs that a group of their user lets into one."""

from __future__ import annotations

import io

import pytest
from unit.ledger_support import CONF, Bench
from views_support import FakeReader

from gsched.ledger import Write
from gsched.model import Shape
from gsched.wire.messages import Call, Done, Refused, UpdateJob, UpdateReservation
from gsched_cli import scontrol
from gsched_cli.common import Streams

HOUR = 3600
INVALID = "Requested reservation is invalid"


def run(words: str) -> tuple[FakeReader, str, int]:
    made = FakeReader(clock=1000.0, answers=[Done(b"", 1, data="r")])
    streams = Streams(io.StringIO(), io.StringIO(), io.StringIO())
    code = scontrol.run(words.split(), {}, "/", streams, made)
    return made, streams.stderr.getvalue(), code  # type: ignore[attr-defined]


CREATE = "create reservation reservationname=r starttime=now users=root"
NOTHING = (
    "scontrol: error: CoreCnt, Nodes, NodeCnt, BurstBuffer or Licenses must be specified.  "
    "No reservation created.\n"
)


@pytest.mark.parametrize("time", ["-5", "-1:00", "-00:10", "abc", "99999999999", "999999999"])
def test_no_such_time(time: str) -> None:
    made, err, code = run(f"{CREATE} nodes=node1 duration={time}")
    text = f"scontrol: error: Invalid duration duration={time}.  No reservation "
    assert (err, code, made.sent) == (f"{text}created.\n", 1, [])
    for sign in ("", "+", "-"):
        made, err, code = run(f"update reservationname=r duration{sign}={time}")
        text = f"scontrol: error: Invalid duration duration{sign}={time}.  No reservation update.\n"
        assert (err, code, made.sent) == (f"{text}slurm_update error: No error\n", 1, [])


def test_no_such_delay() -> None:
    for time in ("-5", "-1"):
        _, err, _ = run(f"{CREATE} nodes=node1 duration=5 maxstartdelay={time}")
        text = f"Invalid duration maxstartdelay={time}.  No reservation created."
        assert err == f"scontrol: error: {text}\n"


@pytest.mark.parametrize(
    ("word", "key", "seconds"),
    [
        ("duration=-1", "duration", 365 * 24 * HOUR),
        ("duration=INFINITE", "duration", 365 * 24 * HOUR),
        ("duration=unlimited", "duration", 365 * 24 * HOUR),
        ("duration=1-", "duration", 24 * HOUR),
        ("duration+=0", "duration+", 0),
        ("duration-=5", "duration-", 300),
        ("maxstartdelay=0", "maxstartdelay", 0),
    ],
)
def test_times(word: str, key: str, seconds: int) -> None:
    made, err, _ = run(f"update reservationname=r {word}")
    assert err == ""
    assert made.sent == [UpdateReservation("r", "update", {key: str(seconds)})]


@pytest.mark.parametrize("word", ["nodes=", "nodecnt=0", "tres=node=0", "tres=gres/gpu:h100=0"])
def test_nothing_is_not_given(word: str) -> None:
    made, err, code = run(f"{CREATE} duration=5 {word}")
    assert (err, code, made.sent) == (NOTHING, 1, [])


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("nodecnt=-1", "Invalid node count -1"),
        ("nodecnt=abc", "Invalid node count abc"),
        ("corecnt=abc", "Invalid core count abc"),
        ("tres=node=-1", "Invalid TRES node count -1"),
        ("tres=cpu=-4", "invalid TRES cpu value '-4'"),
    ],
)
def test_counts_that_are_none(word: str, text: str) -> None:
    assert run(f"{CREATE} duration=5 {word}")[1] == f"scontrol: error: {text}\n"
    both = f"scontrol: error: {text}\nslurm_update error: No error\n"
    assert run(f"update reservationname=r {word}")[1] == both


@pytest.mark.parametrize("kind", ["user", "group"])
def test_nobody_knows_them(kind: str) -> None:
    text = f"Invalid {kind} id"
    create = "create reservation starttime=now duration=5 nodes=node1"
    for value in ("no-such-one", "-no-such-one", ","):
        assert run(f"{create} {kind}s={value}")[1] == f"Error creating the reservation: {text}\n"
    for sign in ("", "+", "-"):
        made, err, code = run(f"update reservationname=r {kind}s{sign}=no-such-one")
        both = f"Error updating the reservation: {text}\nslurm_update error: {text}\n"
        assert (err, code, made.sent) == (both, 1, [])


def test_users_of_no_name_are_not_given() -> None:
    assert (
        "Either Users/Groups and/or Accounts must be specified"
        in run("create reservation starttime=now duration=5 nodes=node1 users=")[1]
    )


# ---- the ledger ----------------------------------------------------------------------------------


def bench() -> Bench:
    return Bench(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0"))


def said(b: Bench, verb: str, name: str, **fields: str) -> str:
    reply = b.write(UpdateReservation(name, verb, fields), 0)
    return reply.message if isinstance(reply, Refused) else reply.data


def make(b: Bench, name: str, **fields: str) -> str:
    first = {"starttime": str(int(b.now)), "duration": str(HOUR), "users": "user"}
    return said(b, "create", name, **(first | fields))


def nodes(b: Bench) -> list[str]:
    return [share.node for share in b.led.reservations["r"].nodes]


@pytest.mark.parametrize("key", ["nodecnt", "gpus"])
def test_of_none_there_is_no_reservation(key: str) -> None:
    b = bench()
    assert make(b, "r", **{key: "0"}) == INVALID
    assert make(b, "r", nodes="node1") == "r"
    assert said(b, "update", "r", **{key: "0"}) == INVALID
    assert said(b, "update", "r", nodes="node2", **{key: "0"}) == INVALID
    assert nodes(b) == ["node1"]


def test_nothing_said_of_nodes_at_all() -> None:
    assert make(bench(), "r") == INVALID


def test_an_update_to_no_nodes_keeps_them() -> None:
    """As Slurm does: they are no longer called its own, and that is all."""
    b = bench()
    make(b, "r", nodes="node1,node2")
    assert b.led.reservations["r"].flags == ("SPEC_NODES",)
    assert said(b, "update", "r", nodes="") == "r"
    assert (nodes(b), b.led.reservations["r"].flags) == (["node1", "node2"], ())


def test_another_partition_keeps_the_nodes() -> None:
    b = bench()
    make(b, "r", nodes="node3")
    assert said(b, "update", "r", partitionname="debug") == "r"
    assert nodes(b) == ["node3"]


def test_other_features_are_not_for_nodes_that_are_chosen() -> None:
    b = bench()
    make(b, "r", nodecnt="1")
    text = "Requested operation not supported on this system"
    assert said(b, "update", "r", features="rackB") == text
    assert said(b, "update", "r", features="") == "r"


def test_nobody_is_left() -> None:
    b = bench()
    make(b, "r", nodes="node1")
    text = "Reservation request lacks users, groups or accounts"
    assert said(b, "update", "r", users="") == text
    assert said(b, "update", "r", **{"users-": "user"}) == text


def test_a_refusal_uses_up_no_name() -> None:
    """Every reservation that is made counts, one with a name of its own, too; no other does."""
    b = bench()
    assert make(b, "r", nodes="node1") == "r"
    assert make(b, "", nodes="node1").startswith("Requested reservation overlaps")
    assert make(b, "", nodes="nosuch") == "Invalid node name specified"
    assert make(b, "", nodes="node2") == "user_2"
    assert make(b, "user_4", nodes="node3") == "user_4"
    assert make(b, "", nodes="node4") == "user_5"


def test_any_group_of_the_user_counts_for_a_waiting_job() -> None:
    b = bench()
    make(b, "r", nodes="node1", users="", groups="chem")
    job = b.job(shape=Shape(min_nodes=1), uid=1000)

    def move(groups: list[str]) -> object:
        write = UpdateJob([str(job.id)], "update", {"reservationname": "r"})
        name = b"move%d" % len(groups)
        out = b.apply(Write(Call(name, write, 1000, 1000, 1, groups=groups)))
        return dict(out.answers)[name]

    refused = move(["phys"])
    assert isinstance(refused, Done | Refused)
    assert "Access denied to requested reservation" in str(refused)
    assert job.spec.reservation == ""
    moved = move(["phys", "chem"])
    assert isinstance(moved, Done) and not moved.errors
    assert job.spec.reservation == "r"
