"""`gsched` itself: up again, env, status, down, and what it says when it cannot."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import BIN, LocalCluster, until

from gsched.client import Client
from gsched.local.shapes import fake_nvml_dir
from gsched.model import JobSpec, JobState
from gsched.wire.messages import Done, SubmitJob


@pytest.fixture
def small() -> Iterator[LocalCluster]:
    """A cluster that the test may break."""
    with LocalCluster("--nodes", "1", "--simulate", "peer", "--set", "KillWait=2") as made:
        yield made


def pids(cluster: LocalCluster) -> dict[str, int]:
    disk = cluster.on_disk
    found = {daemon.name: disk.find(daemon) for daemon in disk.all()}
    return {name: process.pid for name, process in found.items() if process is not None}


def test_up_down_up(small: LocalCluster) -> None:
    first = pids(small)
    assert set(first) == {"slurmctld", "slurmdbd", "frontend", "slurmd.node1"}
    # Again: nothing is started twice.
    assert "was up already" in small.up()
    assert pids(small) == first

    # One dead daemon: only that one is started.
    os.kill(first["slurmd.node1"], signal.SIGKILL)
    until("its end", lambda: "slurmd.node1" not in pids(small))
    assert "slurmd.node1         DEAD" in small.gsched("status", check=False).stdout
    small.up()
    second = pids(small)
    assert second["slurmctld"] == first["slurmctld"]
    assert second["slurmd.node1"] != first["slurmd.node1"]

    # A job goes on while everything is down, and its end is recorded afterwards.
    mark = small.work / "go"
    script = f"#!/bin/sh\nuntil [ -e {mark} ]; do sleep 0.1; done; exit 7\n"
    job_id = small.sbatch("-o", "/dev/null", script=script)
    until("the job", lambda: small.job(job_id).state is JobState.RUNNING)
    assert "is down" in small.gsched("down").stdout
    assert pids(small) == {}

    # The commands' words for a dead controller.
    queue = small.run(["squeue"], check=False)
    assert (queue.returncode, queue.stderr) == (
        1,
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
    )
    batch = small.run(["sbatch", "--wrap", "true"], check=False)
    assert (batch.returncode, batch.stderr) == (
        1,
        "sbatch: error: Batch job submission failed: "
        "Unable to contact slurm controller (connect failure)\n",
    )

    mark.touch()
    small.up()
    job = small.ended(job_id)
    assert (job.state, job.wstatus, job.attempt) == (JobState.FAILED, 7 << 8, 1)

    # Other options than those it was made with are not quietly dropped.
    other = small.gsched("up", "--nodes", "3", check=False)
    assert other.returncode == 1
    assert other.stderr.startswith("gsched: error: the cluster in ")


def test_env_is_two_lines_for_the_shell(cluster: LocalCluster) -> None:
    text = cluster.gsched("env").stdout
    assert [line.split("=")[0] for line in text.splitlines()] == [
        "export PATH",
        "export SLURM_CONF",
    ]
    done = subprocess.run(
        ["sh", "-c", f'eval "$({shlex.quote(str(BIN))}/gsched env --dir {cluster.dir})"; sinfo -h'],
        env={"PATH": "/usr/bin:/bin", "HOME": "/"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "gpu*" in done.stdout


def test_an_empty_place_has_no_cluster(cluster: LocalCluster) -> None:
    done = cluster.run([BIN / "gsched", "down", "--dir", cluster.base / "none"], check=False)  # type: ignore[list-item]
    assert done.returncode == 1
    assert done.stderr == (
        f"gsched: error: there is no cluster in {cluster.base}/none (gsched up makes one)\n"
    )


def test_down_works_with_a_broken_configuration(small: LocalCluster) -> None:
    conf = small.dir / "etc/slurm.conf"
    text = conf.read_text()
    conf.write_text(text.replace("NodeName=node1", "NodeName=other1") + "NoSuchKey=1\n")
    up = small.gsched("up", check=False)
    assert up.returncode == 1
    assert '"NoSuchKey" is not a key of slurm.conf' in up.stderr
    small.gsched("down")
    conf.write_text(text)
    assert pids(small) == {}


def test_down_touches_only_what_it_started(small: LocalCluster) -> None:
    """A stranger's process behind a stale record and a stale pid file is left alone."""
    small.gsched("down")
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        run = small.dir / "run"
        (run / "slurmctld.pid").write_text(f"{stranger.pid}\n")
        (run / "slurmctld.up").write_text(
            f'{{"pid": {stranger.pid}, "start": 1, "boot": "someone else"}}\n'
        )
        assert "was down already" in small.gsched("down").stdout
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_time_limit_holds_while_everything_is_down(small: LocalCluster) -> None:
    out = small.work / "late.out"
    env = "\0".join(f"{name}={value}" for name, value in small.env().items()).encode()
    spec = JobSpec(name="late", time_limit=3, work_dir=str(small.work), std_out=str(out))
    script = b"#!/bin/bash\ntrap 'date +end=%s; exit 0' TERM\ndate +%s\nsleep 60 & wait\n"
    with Client(small.socket) as client:
        me = small.env()["USER"]
        reply = client.call(SubmitJob(spec, script, env, user=me, group=me))
    assert isinstance(reply, Done), reply
    until("the job", lambda: out.exists() and out.read_text())
    small.gsched("down")
    ended = until("its end", lambda: re.search(r"^end=(\d+)$", out.read_text(), re.M))
    assert isinstance(ended, re.Match)
    assert 2 <= int(ended[1]) - int(out.read_text().split()[0]) <= 5
    small.up()
    assert small.ended(reply.value).state is JobState.TIMEOUT


def test_down_can_cancel_the_jobs_first(small: LocalCluster) -> None:
    running = small.sbatch("-o", "/dev/null", "--wrap", "sleep 600")
    waiting = small.sbatch("-H", "-o", "/dev/null", "--wrap", "true")
    until("the job", lambda: small.job(running).state is JobState.RUNNING)
    small.gsched("down", "--jobs")
    small.up()
    assert small.job(running).state is JobState.CANCELLED
    assert small.job(waiting).state is JobState.CANCELLED


def test_a_sites_configuration_runs_here(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=site\nSlurmctldHost=elsewhere(10.0.0.1)\nSlurmUser=slurm\nGresTypes=gpu\n"
        "AuthType=auth/munge\nStateSaveLocation=/var/spool/slurmctld\nDefMemPerCPU=100\n"
        "NodeName=big[1-2] NodeAddr=10.0.0.[2-3] CPUs=8 RealMemory=8000 Gres=gpu:a100:2\n"
        "PartitionName=prod Nodes=ALL Default=YES MaxTime=60\n"
    )
    with LocalCluster("--conf", str(tmp_path)) as made:
        job_id = made.sbatch("-N2", "--gres=gpu:a100:2", "--wrap", 'echo "$SLURM_JOB_NODELIST"')
        assert made.ended(job_id).state is JobState.COMPLETED
        assert made.output(job_id) == "big[1-2]\n"


def test_the_default_cluster_is_found_without_a_variable(cluster: LocalCluster) -> None:
    data = cluster.base / "data"
    data.mkdir()
    (data / "gsched").symlink_to(cluster.dir)
    shown = cluster.run(["sinfo", "-h"], env={"SLURM_CONF": "", "XDG_DATA_HOME": str(data)})
    assert "gpu*" in shown.stdout


@pytest.mark.root
def test_a_jobs_memory_is_limited(tmp_path: Path) -> None:
    if not os.access("/sys/fs/cgroup/memory", os.W_OK):
        pytest.skip("the memory control group cannot be used here")
    with LocalCluster("--nodes", "1", "--simulate", "dgx-1v") as made:
        eat = f"{sys.executable} -c 'x = bytearray(300 << 20)'"
        job = made.ended(made.sbatch("--mem=64", "-o", "/dev/null", "--wrap", f"exec {eat}"))
        assert job.state is JobState.OUT_OF_MEMORY
        job = made.ended(made.sbatch("--mem=600", "-o", "/dev/null", "--wrap", f"exec {eat}"))
        assert job.state is JobState.COMPLETED


def test_the_machines_gpus_are_divided_among_the_nodes() -> None:
    """A driver that finds eight GPUs: the fake library in the place of the system's."""
    fake = fake_nvml_dir()
    driver = {"LD_LIBRARY_PATH": str(fake), "GSCHED_NVML_TOPOLOGY": str(fake / "dgx-h100.json")}
    with LocalCluster(env=driver) as made:
        seen = []
        for node in range(1, 5):
            job_id = made.sbatch(
                "-w", f"node{node}", "--gres=gpu:2", "--wrap", "echo $SLURM_JOB_GPUS"
            )
            assert made.ended(job_id).state is JobState.COMPLETED
            seen += made.output(job_id).strip().split(",")
        assert seen == ["0", "1", "2", "3", "4", "5", "6", "7"]
