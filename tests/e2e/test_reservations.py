"""Advance reservations through real daemons: commands, a job inside, one outside."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

import pytest
from e2e_support import LocalCluster, until

from gsched.model import JobState

ME = getpass.getuser()


@pytest.fixture(scope="module")
def peer() -> Iterator[LocalCluster]:
    with LocalCluster("--simulate", "peer") as made:
        yield made


def test_a_reservation_from_create_to_delete(peer: LocalCluster) -> None:
    made = peer.run(
        ["scontrol", "create", "reservation=show", "starttime=now", "duration=30", "nodes=node2",
         f"users={ME}"]
    )  # fmt: skip
    assert made.stdout == "Reservation created: show\n"
    shown = peer.run(["scontrol", "-o", "show", "reservation", "show"]).stdout
    assert " Nodes=node2 NodeCnt=1 CoreCnt=16 " in shown and " State=ACTIVE " in shown
    assert f" Users={ME} " in shown and " Flags=SPEC_NODES TRES=cpu=16 " in shown
    table = peer.run(["sinfo", "-T"]).stdout.splitlines()
    assert table[1].split()[0:2] == ["show", "ACTIVE"] and table[1].endswith("00:30:00  node2")
    states = peer.run(["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %t"]).stdout.split("\n")
    assert "node2 resv" in states and "node1 idle" in states
    node = peer.run(["scontrol", "show", "node", "node2"]).stdout
    assert "State=IDLE+RESERVED " in node
    script = "#!/bin/sh\necho $SLURM_JOB_RESERVATION $SLURM_JOB_NODELIST\n"
    inside = peer.sbatch("--reservation=show", script=script)
    assert peer.ended(inside).state is JobState.COMPLETED
    assert peer.output(inside) == "show node2\n"
    outside = peer.sbatch("-w", "node2", script=script)
    text = "ReqNodeNotAvail, May be reserved for other job"
    until(
        "its reason",
        lambda: text in peer.run(["squeue", "-h", "-j", str(outside), "-o", "%r"]).stdout,
    )
    assert peer.run(["scontrol", "delete", "reservation=show"]).stdout == ""
    assert peer.ended(outside).state is JobState.COMPLETED
    assert peer.run(["scontrol", "show", "res"]).stdout == "No reservations in the system\n"
