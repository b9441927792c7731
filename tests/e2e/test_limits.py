"""Limits through real daemons: sacctmgr sets them, sbatch, squeue and gsched why tell them."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

import pytest
from e2e_support import LocalCluster, until

from gsched.model import JobState

ME = getpass.getuser()
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.fixture(scope="module")
def peer() -> Iterator[LocalCluster]:
    with LocalCluster("--simulate", "peer") as made:
        conf = made.dir / "etc/slurm.conf"
        text = conf.read_text()
        lines = [line for line in text.splitlines() if "AccountingStorageEnforce" not in line]
        conf.write_text("\n".join([*lines, "AccountingStorageEnforce=limits,qos"]) + "\n")
        for words in (["add", "account", "lab"], ["add", "user", ME, "account=lab"]):
            made.run(["sacctmgr", "-i", *words], check=False)
        made.run(["sacctmgr", "-i", "modify", "user", ME, "set", "DefaultAccount=lab"], check=False)
        made.run(["scontrol", "reconfigure"])
        yield made


def reason(peer: LocalCluster, job: int) -> str:
    return peer.run(["squeue", "-h", "-j", str(job), "-o", "%r"]).stdout.strip()


def test_a_limit_from_sacctmgr_to_the_job(peer: LocalCluster) -> None:
    """As in golden 028: AssocGrpGRES, then the limit is lifted and the job starts at once."""
    peer.run(["sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRES=gres/gpu=2"])
    first = peer.sbatch("-A", "lab", "--gpus=2", "--wrap", "sleep 60")
    until("the start", lambda: peer.job(first).state is JobState.RUNNING)
    second = peer.sbatch("-A", "lab", "--gpus=2", "--wrap", "true")
    until("its reason", lambda: reason(peer, second) == "AssocGrpGRES")
    why = peer.run(["gsched", "why", str(second)]).stdout
    assert f"Account lab may have 2 GPUs at once, 2 in use by {first} (2)" in why
    shown = peer.run(["scontrol", "show", "job", "-dd", str(second)]).stdout
    assert "Account lab may have 2 GPUs at once" in shown
    peer.run(["sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRES=gres/gpu=-1"])
    assert peer.ended(second).state is JobState.COMPLETED
    peer.run(["scancel", str(first)])


def test_what_is_refused_at_submission(peer: LocalCluster) -> None:
    peer.run(["sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=0"])
    refused = peer.run(["sbatch", "-A", "lab", "--wrap", "true"], check=False)
    assert refused.returncode == 1
    assert refused.stderr == (
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        f"sbatch: error: Batch job submission failed: {POLICY}\n"
    )
    peer.run(["sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=-1"])
    assert peer.ended(peer.sbatch("-A", "lab", "--wrap", "true")).state is JobState.COMPLETED
