"""To whom jobs are charged, and who is refused: as transcripts of a real Slurm have it (golden
004 and 043), and as it answered the same commands."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, Bench

from gsched.ledger import accounts
from gsched.ledger.outcome import Outcome
from gsched.model import JobSpec
from gsched.model.policy import Account, Assoc, PolicyRecord, Qos, User, Wckey
from gsched.policy.enforce import enforced
from gsched.wire.messages import Done, Refused, Reply, SubmitJob, UpdateJob

ACCOUNT = "Invalid account or account/partition combination specified"
QOS = "Invalid qos specification"
ENFORCE = "AccountingStorageEnforce=associations,limits,qos\n"

#: kim is in research (default) and in sub, with QOS of its own there; lee only in debug
RECORDS: list[PolicyRecord] = [
    *[Qos(n, name) for n, name in ((2, "low"), (3, "high"), (4, "capped"))],
    Account("research"),
    Account("sub"),
    Account("prod"),
    User("kim", "research", default_wckey="thesis"),
    User("lee", "research"),
    User("one", "sub"),
    User("lost", "sub"),
    User("root", "research", admin_level="Administrator"),
    Assoc(1, "root", qos=("capped", "high", "low", "normal")),
    Assoc(2, "root", "root", parent=""),
    Assoc(10, "research", parent="root"),
    Assoc(11, "sub", parent="research"),
    Assoc(12, "prod", parent="root"),
    Assoc(20, "research", "kim"),
    Assoc(21, "sub", "kim", qos=("high", "low"), default_qos="low"),
    Assoc(22, "research", "lee", "debug"),
    Assoc(23, "sub", "one", qos=("low",), default_qos="high"),
    Assoc(24, "sub", "lost", qos=("high", "low")),
    Assoc(25, "research", "root", qos=("low",)),
    Wckey(1, "thesis", "kim"),
]
UIDS = {"kim": 1001, "lee": 1002, "one": 1003, "lost": 1004, "nobody": 1005, "root": 0}


def bench(enforce: str = ENFORCE) -> Bench:
    made = Bench(enforce + CONF)
    for record in RECORDS:
        accounts.put(made.led, record, Outcome())
    return made


def submit(made: Bench, user: str, **spec: object) -> Reply:
    wanted = JobSpec(hold=True, **spec)  # type: ignore[arg-type]
    return made.write(SubmitJob(wanted, b"#!/bin/sh\n", b"", user, "users"), UIDS[user])


def tell(made: Bench, user: str, **spec: object) -> str:
    """What the job is charged to, or the refusal."""
    reply = submit(made, user, **spec)
    if isinstance(reply, Refused):
        return reply.message
    job = made.led.jobs[reply.value]
    return f"{job.spec.account}/{job.spec.qos}/{job.assoc_id}"


@pytest.mark.parametrize(
    ("user", "spec", "said"),
    [
        ("kim", {}, "research/normal/20"),
        ("kim", {"account": "sub"}, "sub/low/21"),
        ("kim", {"account": "SUB", "qos": "HIGH"}, "sub/high/21"),
        ("kim", {"account": "sub", "qos": "normal"}, QOS),
        ("kim", {"account": "nosuch"}, ACCOUNT),
        ("kim", {"account": "prod"}, ACCOUNT),
        ("kim", {"qos": "nosuch"}, QOS),
        ("kim", {"account": "nosuch", "qos": "nosuch"}, ACCOUNT),
        ("lee", {}, ACCOUNT),
        ("lee", {"partitions": ("debug",)}, "research/normal/22"),
        ("lee", {"partitions": ("gpu", "debug")}, ACCOUNT),
        (
            "lee",
            {"partitions": ("debug", "gpu")},
            "Multiple partition job request not supported when a partition is set in the "
            "association",
        ),
        # The only QOS that it may use, whatever the default.
        ("one", {}, "sub/low/23"),
        # The default, normal, is not among those it may use.
        ("lost", {}, QOS),
        ("nobody", {}, ACCOUNT),
        # An operator may use any.
        ("root", {"qos": "high"}, "research/high/25"),
        ("root", {"qos": "nosuch"}, QOS),
    ],
)
def test_who_is_charged(user: str, spec: dict[str, object], said: str) -> None:
    assert tell(bench(), user, **spec) == said


@pytest.mark.parametrize(
    ("user", "spec", "said"),
    [
        ("kim", {}, "research/normal/20"),
        ("nobody", {}, "/normal/0"),
        ("nobody", {"account": "nosuch", "qos": "other"}, "nosuch/other/0"),
        ("kim", {"account": "prod"}, "prod/normal/0"),
    ],
)
def test_without_enforcement_nobody_is_refused(
    user: str, spec: dict[str, object], said: str
) -> None:
    assert tell(bench(""), user, **spec) == said


def test_enforced_words_bring_others() -> None:
    assert enforced(["Safe"]) == {"safe", "limits", "associations"}
    assert enforced(["qos", "wckeys"]) == {"qos", "wckeys", "associations"}
    assert enforced(["all"]) == {"associations", "limits", "qos", "safe", "wckeys"}
    assert enforced(["nojobs"]) == {"nojobs", "nosteps"}
    assert enforced(["none"]) == enforced(["0"]) == enforced([]) == frozenset()


def test_wckeys() -> None:
    made = bench("AccountingStorageEnforce=wckeys\n")
    assert tell(made, "kim", wckey="other") == "Invalid wckey specification"
    assert tell(made, "kim", wckey="thesis") == "research/normal/20"


@pytest.mark.parametrize(("track", "key"), [("yes", "*thesis"), ("no", "")])
def test_the_default_wckey_is_marked(track: str, key: str) -> None:
    made = bench(f"TrackWCKey={track}\n")
    reply = submit(made, "kim")
    assert isinstance(reply, Done)
    assert made.led.jobs[reply.value].spec.wckey == key


def _update(made: Bench, job: int, uid: int, **fields: str) -> str:
    reply = made.write(UpdateJob([str(job)], "update", fields), uid)
    assert isinstance(reply, Done)
    return reply.errors[0][1] if reply.errors else ""


def test_updates_as_a_real_slurm_answered_them() -> None:
    made = bench()
    reply = submit(made, "kim")
    assert isinstance(reply, Done)
    job = made.led.jobs[reply.value]
    for field, value, error, account, qos in (
        ("account", "sub", "", "sub", "normal"),
        ("account", "prod", ACCOUNT, "sub", "normal"),
        ("account", "SUB", "", "sub", "normal"),
        ("account", "research", "", "research", "normal"),
        ("qos", "low", "", "research", "low"),
        ("account", "sub", "", "sub", "low"),
        ("qos", "nosuch", QOS, "sub", "low"),
        ("qos", "normal", QOS, "sub", "low"),
        ("account", "research", "", "research", "low"),
        ("qos", "capped", "", "research", "capped"),
        ("account", "sub", "", "sub", "capped"),
        ("partition", "debug", "", "sub", "capped"),
        ("qos", "", "", "sub", "low"),
        ("account", "", ACCOUNT, "sub", "low"),
    ):
        assert _update(made, job.id, 1001, **{field: value}) == error, (field, value)
        job = made.led.jobs[job.id]
        assert (job.spec.account, job.spec.qos) == (account, qos), (field, value)
    assert job.assoc_id == 21
    # An operator may give it any QOS.
    assert _update(made, job.id, 0, qos="normal") == ""


def test_another_partition_needs_an_association_too() -> None:
    made = bench()
    reply = submit(made, "lee", partitions=("debug",))
    assert isinstance(reply, Done)
    assert _update(made, reply.value, 1002, partition="gpu") == ACCOUNT
    assert made.led.jobs[reply.value].partition == "debug"
    assert _update(made, reply.value, 1002, partition="debug,gpu").startswith("Multiple partition")
    assert _update(made, reply.value, 0, account="prod") == ACCOUNT


def test_an_account_that_is_nobodys_is_refused_where_accounts_are_enforced() -> None:
    """With associations enforced a real Slurm refuses --account= (Invalid account ...); without, it
    is as if none was named."""
    from unit.ledger_support import CONF, Bench

    from gsched.model import Job
    from gsched.wire.messages import Refused

    strict = Bench(CONF + "AccountingStorageEnforce=associations\n")
    refused = strict.submit(uid=0, account="(null)")
    assert isinstance(refused, Refused) and refused.code == "ESLURM_INVALID_ACCOUNT"
    job = Bench(CONF).job(account="(null)")
    assert isinstance(job, Job) and job.spec.account == ""
