"""AllowGroups, AllowAccounts, DenyAccounts, AllowQos of partitions. Sentences and reasons: Slurm's
manual pages (slurm.conf, squeue) and its commands' words."""

from __future__ import annotations

import grp
import os

import pytest
from unit.ledger_support import CONF, Bench

from gsched.frontend.names import Names
from gsched.model import Assoc, JobSpec, Shape
from gsched.wire.messages import Call, Done, Refused, SubmitJob, UpdateJob

GROUP = "User's group not permitted to use this partition"
ACCOUNT = "Invalid account or account/partition combination specified"
QOS = "Invalid qos specification"

PARTS = """
PartitionName=staff Nodes=ALL AllowGroups=staff,wheel
PartitionName=paid Nodes=ALL AllowAccounts=physics,chem
PartitionName=free Nodes=ALL DenyAccounts=guests
PartitionName=fast Nodes=ALL AllowQos=high
"""


def submit(b: Bench, uid: int = 1000, groups: tuple[str, ...] = (), **spec: object) -> str:
    """The refusal's sentence; "" taken."""
    write = SubmitJob(JobSpec(shape=Shape(), **spec), b"#!/bin/sh\n", b"", "u", "users")  # type: ignore[arg-type]
    return ask(b, write, uid, groups)


def ask(b: Bench, write: SubmitJob | UpdateJob, uid: int, groups: tuple[str, ...] = ()) -> str:
    from gsched.ledger import Write

    request = os.urandom(8)
    out = b.apply(Write(Call(request, write, uid, uid, 1, list(groups))))
    reply = dict(out.answers)[request]
    if isinstance(reply, Refused):
        return reply.message
    assert isinstance(reply, Done)
    return reply.errors[0][1] if reply.errors else ""


def test_groups_are_asked_for_whatever_the_limits() -> None:
    b = Bench(CONF + PARTS)
    assert submit(b, partitions=("staff",)) == GROUP
    assert submit(b, groups=("users", "audio"), partitions=("gpu", "staff")) == GROUP
    assert submit(b, groups=("users", "wheel"), partitions=("staff",)) == ""
    assert submit(b, uid=0, partitions=("staff",)) == ""


@pytest.mark.parametrize(
    ("partition", "account", "qos", "sentence", "reason"),
    [
        ("paid", "physics", "", "", ""),
        ("paid", "guests", "", ACCOUNT, "AccountNotAllowed"),
        ("paid", "", "", ACCOUNT, "AccountNotAllowed"),
        ("free", "guests", "", ACCOUNT, "AccountNotAllowed"),
        ("free", "chem", "", "", ""),
        ("fast", "", "high", "", ""),
        ("fast", "", "", QOS, "QOSNotAllowed"),
    ],
)
def test_accounts_and_qos(
    partition: str, account: str, qos: str, sentence: str, reason: str
) -> None:
    enforced = Bench("EnforcePartLimits=ALL" + CONF + PARTS)
    asked = {"partitions": (partition,), "account": account, "qos": qos}
    assert submit(enforced, **asked) == sentence
    # Without the enforcement it waits, and says why.
    b = Bench(CONF + PARTS)
    job = b.job(**asked)
    verdict = b.verdict(job)
    assert verdict == reason
    assert bool(job.alloc) == (not reason)


def test_one_of_several_partitions_is_enough_with_any() -> None:
    b = Bench("EnforcePartLimits=ANY" + CONF + PARTS)
    assert submit(b, partitions=("paid", "free"), account="else") == ""
    assert submit(b, partitions=("paid", "fast"), account="else") == ACCOUNT


def test_an_update_is_judged_as_a_submission() -> None:
    b = Bench("EnforcePartLimits=ALL" + CONF + PARTS)
    job = b.job(hold=True)

    def update(uid: int = 1000, groups: tuple[str, ...] = (), **fields: str) -> str:
        return ask(b, UpdateJob([str(job.id)], "update", fields), uid, groups)

    assert update(partition="staff") == GROUP
    assert update(partition="paid") == ACCOUNT
    assert job.partition == "gpu"
    assert update(partition="paid", account="chem") == ""
    assert update(account="guests") == ACCOUNT
    assert update(groups=("staff",), partition="staff") == ""


def test_the_frontend_knows_the_groups_of_a_user() -> None:
    assert grp.getgrgid(os.getgid()).gr_name in Names().groups(os.getuid(), os.getgid())


def test_lists_of_accounts_mean_those_below_them_too() -> None:
    """slurm.conf's page of 26.05: the lists are hierarchical, subaccounts are included."""
    b = Bench("EnforcePartLimits=ALL" + CONF + PARTS)
    tree = (Assoc(3, "chem", parent="root"), Assoc(4, "polymers", parent="chem"))
    for record in (*b.led.book.first, *tree, Assoc(5, "visitors", parent="guests")):
        b.led.book.put(record)
    b.led.book.put(Assoc(6, "guests", parent="root"))
    assert submit(b, partitions=("paid",), account="polymers") == ""
    assert submit(b, partitions=("paid",), account="root") == ACCOUNT
    assert submit(b, partitions=("free",), account="visitors") == ACCOUNT
