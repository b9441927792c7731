"""Parts of GPUs in a real cluster: shards and mps side by side on one GPU, slices by UUID."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster, until

from gsched.model import JobState

SITE = """
ClusterName=site
SlurmctldHost=login1
GresTypes=gpu,shard,mps
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
DefMemPerCPU=100
KillWait=2
AccountingStorageType=accounting_storage/slurmdbd
NodeName=s1 CPUs=16 RealMemory=16000 Gres=gpu:h100:1,shard:4
NodeName=m1 CPUs=16 RealMemory=16000 Gres=gpu:h100:1,mps:200
PartitionName=p Nodes=ALL Default=YES State=UP
"""

#: waits until as many jobs have written as are said, at most 30 s
TOGETHER = (
    "#!/bin/sh\n"
    'echo "$SLURM_JOB_ID $SLURM_JOB_GPUS $CUDA_VISIBLE_DEVICES $SLURM_SHARDS_ON_NODE" >> {report}\n'
    "for i in $(seq 300); do [ $(wc -l < {report}) -ge {count} ] && exit 0; sleep 0.1; done\n"
    "exit 1\n"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A site's own configuration on this machine: one node with shards, one with mps."""
    conf = tmp_path_factory.mktemp("site") / "slurm.conf"
    conf.write_text(SITE)
    with LocalCluster("--conf", str(conf.parent)) as made:
        yield made


def gres_used(cluster: LocalCluster, node: str) -> str:
    return cluster.run(["sinfo", "-h", "-N", "-n", node, "-O", "GresUsed:60"]).stdout.strip()


def test_two_jobs_on_one_gpu_and_a_whole_one_after_them(site: LocalCluster) -> None:
    report = site.work / "together"
    script = TOGETHER.format(report=report, count=2)
    first = site.sbatch("--gres=shard:2", "-w", "s1", "-t", "10", script=script)
    until("the first job runs", lambda: report.exists())
    assert gres_used(site, "s1") == "gpu:h100:0(IDX:N/A),shard:2(2/4)"
    whole = site.sbatch("--gres=gpu:1", "-w", "s1", "--wrap", "echo whole $SLURM_JOB_GPUS")
    # It is over before the whole GPU could be free.
    second = site.sbatch("--gres=shard:1", "-w", "s1", "-t", "5", script=script)
    assert site.ended(first).state is JobState.COMPLETED
    assert site.ended(second).state is JobState.COMPLETED
    assert sorted(report.read_text().splitlines()) == [f"{first} 0 0 2", f"{second} 0 0 1"]
    assert site.ended(whole).state is JobState.COMPLETED
    assert site.output(whole) == "whole 0\n"
    jobs = [site.job(job_id) for job_id in (first, second, whole)]
    assert jobs[2].start_time >= max(job.end_time for job in jobs[:2])
    shown = site.run(["scontrol", "show", "job", str(first)]).stdout
    assert "TresPerNode=gres/shard:2" in shown
    assert "gres/shard=2" in shown
    told = site.run(["sacct", "-n", "-P", "-X", "-j", str(first), "-o", "AllocTRES,ReqTRES"]).stdout
    assert told.count("gres/shard=2") == 2


def test_the_end_of_one_does_not_touch_the_other(site: LocalCluster) -> None:
    report = site.work / "neighbours"
    long = site.sbatch(
        "--gres=shard:1", "-w", "s1",
        script=f"#!/bin/sh\necho here >> {report}\nsleep 3\necho done >> {report}\n",
    )  # fmt: skip
    until("the long job runs", lambda: report.exists())
    short = site.sbatch("--gres=shard:1", "-w", "s1", "--wrap", "sleep 100")
    until("the short job runs", lambda: site.job(short).state is JobState.RUNNING)
    site.run(["scancel", str(short)])
    assert site.ended(short).state is JobState.CANCELLED
    assert not site.job(long).finished
    assert site.ended(long).state is JobState.COMPLETED
    assert report.read_text() == "here\ndone\n"


def test_mps_tells_its_percentage(site: LocalCluster) -> None:
    wrap = (
        "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_VISIBLE_DEVICES ${SLURM_SHARDS_ON_NODE-no}"
    )
    job = site.sbatch("--gres=mps:50", "--wrap", wrap)
    assert site.ended(job).alloc[0].node == "m1"
    assert site.output(job) == "25 0 no\n"


def test_what_no_node_has_is_refused(site: LocalCluster) -> None:
    unavailable = "Requested node configuration is not available"
    for gres, sentence in (
        ("shard:5", unavailable),
        ("mps:201", unavailable),
        ("gpu:1,shard:1", "Invalid generic resource (gres) specification"),
    ):
        done = site.run(["sbatch", f"--gres={gres}", "--wrap", "true"], check=False)
        assert done.returncode == 1
        assert sentence in done.stderr


def test_shares_outlive_the_daemons(site: LocalCluster) -> None:
    job = site.sbatch("--gres=shard:3", "-w", "s1", "--wrap", "sleep 60")
    until("it runs", lambda: site.job(job).state is JobState.RUNNING)
    site.gsched("down")
    site.up()
    until("the node is back", lambda: gres_used(site, "s1").endswith("shard:3(3/4)"))
    other = site.sbatch("--gres=shard:2", "-w", "s1", "--wrap", "true")
    beside = site.sbatch("--gres=shard:1", "-w", "s1", "--wrap", "true")
    assert site.ended(beside).state is JobState.COMPLETED
    assert site.job(other).state is JobState.PENDING
    site.run(["scancel", str(job)])
    assert site.ended(other).state is JobState.COMPLETED


def test_slices_go_by_their_uuids(tmp_path: Path) -> None:
    with LocalCluster("--simulate", "a100-mig", "--nodes", "1") as made:
        described = json.loads((made.dir / "etc/nvml/node1.json").read_text())
        assert len(described["gpus"]) == 8
        script = "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES\n"
        two = made.sbatch("--gres=gpu:1g.5gb:2", script=script)
        three = made.sbatch("--gres=gpu:3g.20gb", script=script)
        for job_id, kind, count in ((two, "1g.5gb", 2), (three, "3g.20gb", 1)):
            job = made.ended(job_id)
            assert (job.state, job.gpu_types) == (JobState.COMPLETED, {kind: count})
            uuids = made.output(job_id).strip().split(",")
            assert len(set(uuids)) == count
            assert all(uuid.startswith("MIG-") for uuid in uuids)
        done = made.run(["sbatch", "--gres=gpu:7g.40gb:1", "--wrap", "true"], check=False)
        assert done.returncode == 1
        assert "Requested node configuration is not available" in done.stderr
