"""sshare as a real Slurm 22.05 answered (recorded_shares.txt: names are invented)."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from unit.ledger_support import CONF
from unit.policy_support import Command, transcript
from views_support import FakeReader, invoke

from gsched.config import parse_config
from gsched.ledger.accounts import used_key
from gsched.model import Job, JobSpec, JobState, NodeAlloc
from gsched.model.policy import Assoc, Used, User
from gsched.policy import Book
from gsched_cli.sshare import run

RECORDED = list(transcript(Path(__file__).with_name("recorded_shares.txt")))
MULTI = (
    CONF.replace("priority/basic", "priority/multifactor")
    + "AccountingStorageTRES=gres/gpu,gres/gpu:h100\n"
)
NOW = 1_796_028_242.0
#: billing-seconds: two thirds of a minute on a node, and hardly anything
AKIRA, BAO = 2255.88, 1.999860073


def reader(uid: int = 0, conf: str = MULTI) -> FakeReader:
    made = FakeReader(clock=NOW, uid=uid, conf=parse_config({"slurm.conf": conf}))
    book = Book(Book().first)
    for one in (
        Assoc(3, "research", parent="root", shares=60),
        Assoc(4, "prod", parent="root", shares=40),
        *(Assoc(5 + n, "research", u) for n, u in enumerate(("root", "akira", "bao", "nobody"))),
        Assoc(9, "prod", "bao"),
        Assoc(10, "prod", "root"),
        User("bao", uid=1002),
        User("akira", uid=1001),
    ):
        book.put(one)
    made.policy_records = list(book.records())
    for of, value in {1: AKIRA + BAO, 3: AKIRA, 6: AKIRA, 4: BAO, 9: BAO}.items():
        cpu = {3: 37.5, 6: 37.5, 1: 37.5}.get(of, 0.03) * 60
        mem = {3: 150392.5, 6: 150392.5, 1: 150458.5}.get(of, 66.0) * 60
        made.used[used_key(of).hex()] = Used({"billing": value, "cpu": cpu, "mem": mem}, at=NOW)
    # Three jobs have just begun, of 16 CPUs each, and have 3554 seconds left.
    for number in (2, 3, 4):
        made.job_list.append(
            Job(
                *(number, 1001, 1001, "akira", "akira", JobSpec(account="research")),
                state=JobState.RUNNING,
                partition="gpu",
                assoc_id=6,
                start_time=int(NOW),
                end_time=int(NOW) + 3554,
                alloc=[NodeAlloc(f"node{number}", 16, 1, 64000, 255)],
                gpu_types={"h100": 8},
            )
        )
    return made


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one.user}: {one.line}")
def test_as_recorded(one: Command) -> None:
    uid = {"root": 0, "bao": 1002}[one.user]
    out, err, code = invoke(run, shlex.split(one.line)[1:], reader(uid))
    # TRES that 26.05 counts besides; what else was used then is not told here.
    out = out.replace(",gres/gpumem=0,gres/gpuutil=0", "")
    assert (err, code) == (one.err, one.code)
    assert out == one.out


def test_classic_shows_other_columns() -> None:
    flags = MULTI + "PriorityFlags=NO_FAIR_TREE\nFairShareDampeningFactor=2\n"
    out, _, _ = invoke(run, ["-l", "-P", "-A", "root"], reader(conf=flags))
    head, first, *_ = out.splitlines()
    assert head == (
        "Account|User|RawShares|NormShares|RawUsage|NormUsage|EffectvUsage|FairShare|GrpTRESMins"
        "|TRESRunMins"
    )
    assert first.startswith("root|||1.000000|2257||1.000000|0.707107||cpu=2843,")


def test_json() -> None:
    out, _, code = invoke(run, ["--json", "-a"], reader())
    shares = json.loads(out)["shares"]["shares"]
    assert code == 0
    assert [one["name"] for one in shares[:4]] == ["root", "root", "prod", "bao"]
    assert shares[3]["parent"] == "prod"
    assert shares[3]["fairshare"]["factor"]["number"] == pytest.approx(5 / 7)
    assert shares[1]["fairshare"]["level"]["infinite"] is True


def test_yaml() -> None:
    out, err, code = invoke(run, ["--yaml"], reader())
    assert (err, code) == ("", 0)
    assert out.startswith("%YAML 1.1\n--- !!map\n!!str shares: !!map\n  !!str shares: !!seq\n")
    out, err, code = invoke(run, ["--yaml=v0.0.1"], reader())
    assert (out, code) == ("", 1)


def test_another_plugin() -> None:
    out, err, code = invoke(run, [], reader(conf=CONF))
    assert (out, code) == ("", 1)
    assert re.search(r"priority/basic", err)
