"""sacctmgr through real daemons: who is let in, and that a change outlives the controller."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

import pytest
from e2e_support import LocalCluster, until

ME = getpass.getuser()


@pytest.fixture(scope="module")
def peer() -> Iterator[LocalCluster]:
    enforce = "AccountingStorageEnforce=associations,limits,qos"
    with LocalCluster("--simulate", "peer", "--set", enforce) as made:
        yield made


def _said(peer: LocalCluster, *words: str, code: int = 0) -> str:
    done = peer.run(["sacctmgr", *words], check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_a_team_from_its_first_day_on(peer: LocalCluster) -> None:
    # Whoever made the cluster can use it.
    listed = _said(peer, "-n", "-P", "list", "assoc", "format=account,user", f"user={ME}")
    assert f"users|{ME}\n" in listed
    job = peer.sbatch("-A", "users", script="#!/bin/sh\ntrue\n")
    assert peer.ended(job)
    refused = peer.run(["sbatch", "-A", "physics", "--wrap", "true"], check=False)
    assert refused.returncode == 1
    assert "Invalid account or account/partition combination specified" in refused.stderr
    cluster = _said(peer, "-n", "-P", "list", "cluster", "format=cluster").strip()
    assert _said(peer, "-i", "add", "account", "physics") == (
        " Adding Account(s)\n  physics\n Settings\n  Description     = Account Name\n"
        "  Organization    = Parent/Account Name\n Associations\n"
        f"  A = physics    C = {cluster:<10}\n"
    )
    _said(peer, "-i", "add", "user", ME, "account=physics", "maxjobs=0")
    job = peer.sbatch("-A", "physics", script="#!/bin/sh\ntrue\n")
    until(
        "the reason", lambda: "AssocMaxJobsLimit" in peer.run(["squeue", "-h", "-o", "%r"]).stdout
    )
    # A changed limit acts at once.
    _said(peer, "-i", "modify", "user", ME, "set", "maxjobs=-1")
    assert peer.ended(job)
    told = _said(peer, "-n", "-P", "list", "transactions", "format=actor,action")
    assert f"{ME}|Add Accounts\n" in told


def test_a_change_outlives_the_controller(peer: LocalCluster) -> None:
    _said(peer, "-i", "add", "qos", "lasting", "priority=7")
    peer.gsched("down")
    peer.up()
    assert _said(peer, "-n", "-P", "list", "qos", "lasting", "format=name,prio") == "lasting|7\n"
    assert _said(peer, "-i", "add", "qos", "lasting", code=1) == " Nothing new added.\n"


def test_a_question_without_a_terminal(peer: LocalCluster) -> None:
    """The worker hands the command to a process of the user's, which reads the answer."""
    out = peer.run(["sh", "-c", "echo n | sacctmgr add account maybe"]).stdout
    assert out.endswith("(N/y): \n Changes Discarded\n")
    assert _said(peer, "-n", "list", "account", "maybe") == ""
