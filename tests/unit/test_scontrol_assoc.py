"""scontrol show assoc_mgr: as a real Slurm 22.05 wrote it, where that holds in 26.05 too."""

from __future__ import annotations

import pytest
from unit.policy_support import LedgerReader, peer
from views_support import cpu_shape, invoke, make_job, share

from gsched.model import Hold, Job, JobState
from gsched_cli.scontrol import run

ZERO = (
    "cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0),"
    "gres/gpu=N(0),gres/gpu:h100=N(0),gres/gpumem=N(0),gres/gpuutil=N(0)"
)


@pytest.fixture
def made() -> LedgerReader:
    reader = peer()
    reader.do("-i modify account research set grpjobs=5 maxjobs=3 grptres=cpu=20")
    reader.do("-i add user mail account=research")
    return reader


def show(reader: LedgerReader, *words: str) -> str:
    out, err, code = invoke(run, ["show", "assoc_mgr", *words], reader)
    assert (err, code) == ("", 0)
    return out


def test_an_account_that_nobody_uses(made: LedgerReader) -> None:
    assert show(made, "flags=assoc", "accounts=prod", "users=nobody") == (
        "Current Association Manager state\n\n"
        "Association Records\n\n"
        "ClusterName=peer Account=prod UserName= Partition= Priority=0 ID=4\n"
        "    SharesRaw/Norm/Level/Factor=40/0.40/101/0.00\n"
        "    UsageRaw/Norm/Efctv=0.00/0.00/0.00\n"
        "    ParentAccount=root(1) Lineage=/prod/ DefAssoc=No\n"
        "    GrpJobs=N(0) GrpJobsAccrue=N(0)\n"
        "    GrpSubmitJobs=N(0) GrpWall=N(0.00)\n"
        f"    GrpTRES={ZERO}\n"
        f"    GrpTRESMins={ZERO}\n"
        f"    GrpTRESRunMins={ZERO}\n"
        "    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=\n"
        "    MaxTRESPJ=\n"
        "    MaxTRESPN=\n"
        "    MaxTRESMinsPJ=\n"
        "    MinPrioThresh=\n"
    )


def running(reader: LedgerReader) -> Job:
    job = make_job(
        9,
        "one",
        cpu_shape(gpus_per_node=1),
        user="mail",
        state=JobState.RUNNING,
        alloc=[share("node1", 1, 0b1)],
        time_limit=300,
        start_time=int(reader.clock),
        end_time=int(reader.clock) + 300,
    )
    job.gpu_types = {"h100": 1}
    found = reader.bench.led.book.exact("research", "mail")
    assert found is not None
    job.assoc_id = found.id
    return job


def test_a_job_counts_for_all_above_it(made: LedgerReader) -> None:
    made.job_list = [running(made)]
    text = show(made, "flags=assoc", "accounts=root,research", "users=mail")
    root, research, mail = text.split("ClusterName=peer ")[1:]
    for one in (root, research, mail):
        assert "(1)" in one.split("GrpJobs=")[1].split(" ")[0]
        assert "gres/gpu=N(1),gres/gpu:h100=N(1)" in one
        # 300 seconds of one CPU and one GPU.
        assert "GrpTRESRunMins=cpu=N(5)," in one
        assert "gres/gpu=N(5),gres/gpu:h100=N(5)" in one
    assert "GrpJobs=5(1)" in research
    assert "GrpTRES=cpu=20(1)," in research
    assert "MaxJobs=3(1)" in research
    assert "MaxJobs=3(1)" in mail
    assert "SharesRaw/Norm/Level/Factor=60/0.59/101/0.00" in research
    assert "SharesRaw/Norm/Level/Factor=1/0.20/5/" in mail
    assert "DefAssoc=Yes" in mail
    normal = show(made, "flags=qos", "qos=normal")
    assert "QOS=normal(1)\n    UsageRaw=0.000000\n    GrpJobs=N(1) " in normal
    assert (
        "    Account Limits\n      research\n"
        "        MaxJobsPA=N(1) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=N(1)\n"
    ) in normal
    assert "    User Limits\n      mail\n        MaxJobsPU=N(1) " in normal


def test_who_grows_older_is_counted(made: LedgerReader) -> None:
    """Of a 22.05 with two jobs that wait for nodes, one that is held and one that begins in an
    hour: GrpJobsAccrue=N(2) GrpSubmitJobs=N(4)."""
    now = int(made.clock)
    found = made.bench.led.book.exact("research", "mail")
    assert found is not None
    jobs = [make_job(number, "w", cpu_shape(), user="mail") for number in range(1, 5)]
    for job in jobs:
        job.assoc_id = found.id
        job.submit_time = job.eligible_time = now - 60
    jobs[2].held = Hold.USER
    jobs[3].eligible_time = now + 3600
    made.job_list = jobs
    text = show(made, "flags=assoc", "accounts=research", "users=mail")
    assert text.count("GrpJobsAccrue=N(2)\n    GrpSubmitJobs=N(4)") == 2
    normal = show(made, "flags=qos", "qos=normal")
    assert "GrpJobs=N(0) GrpJobsAccrue=N(2) GrpSubmitJobs=N(4)" in normal
    assert "MaxJobsPU=N(0) MaxJobsAccruePU=N(2) MaxSubmitJobsPU=N(4)" in normal
    # The QOS has no mode of its own.
    assert "    PreemptMode=OFF\n" in normal


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("flags=users", "users=nosuch"), "users"),
        (("flags=assoc", "accounts=nosuch"), "associations"),
        (("flags=qos", "qos=nosuch"), "QOS"),
    ],
)
def test_none_of_them(made: LedgerReader, words: tuple[str, ...], what: str) -> None:
    assert show(made, *words) == (
        f"Current Association Manager state\n\nNo {what} currently cached in Slurm.\n\n"
    )


def test_users_and_one_line(made: LedgerReader) -> None:
    assert show(made, "flags=users", "users=root") == (
        "Current Association Manager state\n\nUser Records\n\n"
        "UserName=root(0) DefAccount=research DefWckey= AdminLevel=Administrator\n"
    )
    out, _, _ = invoke(run, ["-o", "show", "assoc", "flags=qos", "qos=capped"], made)
    assert out.splitlines()[2].startswith("QOS=capped(4) UsageRaw=0.000000 GrpJobs=N(0) ")
    assert out.rstrip().endswith("Account Limits No Accounts User Limits No Users")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("flags=nosuch", "invalid flag 'nosuch', valid options are 'Assoc, QOS, and/or Users'\n"),
        ("nosuch=3", "invalid entity: nosuch=3 for keyword:show assoc_mgr\n"),
    ],
)
def test_wrong_words(made: LedgerReader, word: str, said: str) -> None:
    assert invoke(run, ["show", "assoc_mgr", word], made) == ("", said, 1)
