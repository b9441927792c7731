"""`gsched` itself: up again, env, status, down, and what it says when it cannot."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest
from e2e_support import BIN, LocalCluster, until

from gsched.model import JobState


@pytest.fixture
def small() -> Iterator[LocalCluster]:
    """A cluster that the test may break."""
    made = LocalCluster("--nodes", "1", "--simulate", "peer", "--set", "KillWait=2")
    made.up()
    yield made
    made.close()


def pids(cluster: LocalCluster) -> dict[str, int]:
    disk = cluster.on_disk
    found = {daemon.name: disk.find(daemon) for daemon in disk.all()}
    return {name: process.pid for name, process in found.items() if process is not None}


def test_up_down_up(small: LocalCluster) -> None:
    first = pids(small)
    assert set(first) == {"slurmctld", "frontend", "slurmd.node1"}
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
