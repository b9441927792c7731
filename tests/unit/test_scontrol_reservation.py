"""scontrol and sinfo on advance reservations, against what real ones answer."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator

import pytest
from views_support import FakeReader, invoke, peer_config

from gsched.client import ControllerDown
from gsched.model import Node, NodeFlag, NodeUse, Reservation, ReservedNode
from gsched.wire.messages import Done, NodeQuery, NodeRows, Refused, UpdateReservation
from gsched_cli import scontrol, sinfo

ME = getpass.getuser()
NOW = 1795960333.0
#: as transcript 028 shows it
R1 = Reservation(
    "r1", 1795960333, 1795960933, ("SPEC_NODES",), (ReservedNode("node2"),), users=("bob",)
)


class Reader(FakeReader):
    reservations: tuple[Reservation, ...] = ()

    def nodes(self, query: NodeQuery) -> NodeRows:
        return NodeRows(1, self.node_list, self.use, list(self.reservations))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def reader(*reservations: Reservation) -> Reader:
    made = Reader(conf=peer_config(), clock=NOW)
    made.node_list = [Node(f"node{n}", NodeFlag.NONE) for n in (1, 2, 3, 4)]
    made.use = [NodeUse(f"node{n}") for n in (1, 2, 3, 4)]
    made.reservations = reservations
    return made


def test_show_is_the_transcripts() -> None:
    out, err, code = invoke(scontrol.run, ["show", "reservation"], reader(R1))
    assert (err, code) == ("", 0)
    assert out == (
        "ReservationName=r1 StartTime=2026-11-29T13:52:13 EndTime=2026-11-29T14:02:13 "
        "Duration=00:10:00\n"
        "   Nodes=node2 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) "
        "Flags=SPEC_NODES\n"
        "   TRES=cpu=16\n"
        "   AllowedPartitions=(null) QOS=(null)\n"
        "   Users=bob Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE "
        "BurstBuffer=(null)\n"
        "   MaxStartDelay=(null)\n\n"
    )
    one = invoke(scontrol.run, ["-o", "show", "res", "r1"], reader(R1))[0]
    assert one.count("\n") == 1 and " Flags=SPEC_NODES TRES=cpu=16 AllowedPartitions" in one
    out, _, code = invoke(scontrol.run, ["show", "reservation", "nosuch"], reader(R1))
    assert (out, code) == ("Reservation nosuch not found\n", 1)
    out, _, code = invoke(scontrol.run, ["show", "reservation"], reader())
    assert (out, code) == ("No reservations in the system\n", 0)


def test_parts_of_nodes_and_flags() -> None:
    nodes = (ReservedNode("node1", 2, 0b11), ReservedNode("node2", 4, 0b1))
    flags = ("FLEX", "OVERLAP", "WEEKDAY", "SPEC_NODES", "PURGE_COMP", "MAGNETIC")
    resv = Reservation("w", 1795970000, 1795975400, flags, nodes, users=("-bob",), purge_comp=600)
    out = invoke(scontrol.run, ["-o", "show", "res", "w"], reader(resv))[0]
    assert " Nodes=node[1-2] NodeCnt=2 CoreCnt=6 " in out
    assert " Flags=FLEX,OVERLAP,WEEKDAY,SPEC_NODES,PURGE_COMP=00:10:00,MAGNETIC " in out
    assert " TRES=cpu=6,gres/gpu=3 " in out
    assert " Users=-bob " in out and " State=INACTIVE " in out and " Duration=01:30:00 " in out


def test_sinfo_is_the_transcripts() -> None:
    out = invoke(sinfo.run, ["-T"], reader(R1))[0]
    assert out == (
        "RESV_NAME     STATE           START_TIME             END_TIME     DURATION  NODELIST\n"
        "r1           ACTIVE  2026-11-29T13:52:13  2026-11-29T14:02:13     00:10:00  node2\n"
    )
    assert invoke(sinfo.run, ["-T"], reader())[0] == "No reservations in the system\n"


def test_states_of_nodes() -> None:
    maintenance = Reservation(
        "m", int(NOW), int(NOW) + 60, ("MAINT",), (ReservedNode("node3"), ReservedNode("node4"))
    )
    part = Reservation("p", int(NOW), int(NOW) + 60, (), (ReservedNode("node1", 4, 0),))
    made = reader(R1, maintenance, part)
    made.use[3] = NodeUse("node4", cpus_alloc=4, jobs=1)
    out = invoke(sinfo.run, ["-h", "-N", "-p", "gpu", "-o", "%N %t %T %i"], made)[0]
    # Who keeps a part of a node leaves its state alone.
    assert out.splitlines()[1:] == [
        "node2 resv reserved r1", "node3 maint maint m", "node4 mix$ mixed$ m",
    ]  # fmt: skip
    for name, state in (("node2", "IDLE+RESERVED"), ("node3", "IDLE+MAINTENANCE+RESERVED")):
        assert f"State={state} " in invoke(scontrol.run, ["show", "node", name], made)[0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "A start time must be given.  No reservation created."),
        (f"starttime=now duration=10 users={ME}",
         "CoreCnt, Nodes, NodeCnt, BurstBuffer or Licenses must be specified.  "
         "No reservation created."),
        ("starttime=now duration=10 nodes=node1",
         "Either Users/Groups and/or Accounts must be specified.  No reservation created."),
        (f"starttime=now nodes=node1 users={ME}",
         "An end time or duration must be given.  No reservation created."),
        (f"starttime=now+1hour endtime=now nodes=node1 users={ME}",
         "Start time cannot be after end time.  No reservation created."),
        (f"starttime=now duration=bogus nodes=node1 users={ME}",
         "Invalid duration duration=bogus.  No reservation created."),
        ("starttime=now duration=10 nodes=node1 flags=bogus",
         "Error parsing flags bogus.  No reservation created."),
        ("starttime=now foo=bar", "Unknown parameter foo=bar.  No reservation created."),
        (f"starttime=now duration=10 nodes=node1 groups=root users={ME}",
         "Users and Groups are mutually exclusive.  You can have one or the other, but not both.  "
         "No reservation created."),
        ("tres=license/x=1", "TRES type 'license/x' not supported with reservations"),
    ],
)  # fmt: skip
def test_what_is_refused_here(words: str, text: str) -> None:
    made = reader()
    out, err, code = invoke(scontrol.run, ["create", "reservation", *words.split()], made)
    assert (out, err, code) == ("", f"scontrol: error: {text}\n", 1)
    assert made.sent == []


def test_times_and_users_are_looked_at() -> None:
    words = ["create", "reservation", "starttime=bogus"]
    assert invoke(scontrol.run, words, reader())[1] == (
        "Invalid time specification (pos=0): bogus\n"
        "scontrol: error: Invalid start time starttime=bogus.  No reservation created.\n"
    )
    words = ["create", "reservation", "users=no-such-user"]
    err = invoke(scontrol.run, words, reader())[1]
    assert err == "Error creating the reservation: Invalid user id\n"


def test_create_says_its_name() -> None:
    made = reader()
    made.answers = [Done(b"", 1, data=f"{ME}_1")]
    words = f"starttime=now+1hour duration=1:00 tres=cpu=4,gres/gpu:h100=2 flags=maint users={ME}"
    out, err, code = invoke(scontrol.run, ["create", "reservation", *words.split()], made)
    assert (out, err, code) == (f"Reservation created: {ME}_1\n", "", 0)
    assert made.sent == [
        UpdateReservation("", "create", {
            "starttime": str(int(NOW) + 3600), "duration": "60", "corecnt": "4", "gpus": "h100:2",
            "flags": "maint", "users": ME,
        })
    ]  # fmt: skip


def test_the_entity_may_be_named_twice() -> None:
    """As transcript 028 has it."""
    made = reader()
    made.answers = [Done(b"", 1, data="r1")]
    words = f"create reservation reservationname=r1 starttime=now duration=5 nodes=n users={ME}"
    assert invoke(scontrol.run, words.split(), made)[0] == "Reservation created: r1\n"
    assert made.sent[0].name == "r1"


def test_a_refusal_in_slurms_words() -> None:
    made = reader()
    busy = "Requested nodes are busy"
    made.answers = [Refused(b"", busy), Refused(b"", busy), Refused(b"", "Requested x")]
    create = f"create reservation starttime=now duration=5 nodes=node1 users={ME}".split()
    assert invoke(scontrol.run, create, made)[1] == (
        "Error creating the reservation: Requested nodes are busy\n"
        "Note, unless nodes are directly requested a reservation must exist in a single "
        "partition.\nIf no partition is requested the default partition is assumed.\n"
    )
    assert invoke(scontrol.run, ["update", "reservationname=r1", "nodes=node4"], made) == (
        "",
        f"Error updating the reservation: {busy}\nslurm_update error: {busy}\n",
        1,
    )
    err = invoke(scontrol.run, ["delete", "reservation=r1"], made)[1]
    assert err == "delete_reservation reservation=r1: Requested x\n"


def test_update_and_delete() -> None:
    made = reader()
    words = ["update", "reservationname=r1", "users+=bob", "flags-=maint", "duration+=5", "skip"]
    words[2] = f"users+={ME}"
    assert invoke(scontrol.run, words, made) == ("Reservation updated.\n", "", 0)
    assert invoke(scontrol.run, ["delete", "reservation", "r1"], made) == ("", "", 0)
    assert made.sent == [
        UpdateReservation("r1", "update", {
            "users+": ME, "flags-": "maint", "duration+": "300", "skip": "",
        }),
        UpdateReservation("r1", "delete"),
    ]  # fmt: skip
    err = invoke(scontrol.run, ["update", "reservationname=r1", "foo=bar"], made)[1]
    assert err == (
        "scontrol: error: Unknown parameter foo=bar.  No reservation update.\n"
        "slurm_update error: No error\n"
    )


def test_nobody_answers() -> None:
    class Down(Reader):
        def call(self, write: object, request_id: bytes | None = None) -> Done:
            raise ControllerDown

    _, err, code = invoke(scontrol.run, ["delete", "reservation=r1"], Down())
    assert code == 1 and err.startswith("delete_reservation reservation=r1: ")
