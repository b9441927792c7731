"""Accounting by real daemons: jobs visible at once, every end stored exactly once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from e2e_support import LocalCluster, until
from wire_support import Daemons

from gsched.client import Client
from gsched.model import JobSpec, Shape
from gsched.wire.messages import AcctQuery, CancelJobs, Done, SubmitJob

ROUNDS = int(os.environ.get("GSCHED_KILL_ROUNDS", "5"))
SEED = int(os.environ.get("GSCHED_KILL_SEED", "1"))
BATCH = 300


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    made = Daemons("AccountingStorageType=accounting_storage/slurmdbd")
    yield made
    made.close()


def stored(daemons: Daemons) -> list[int]:
    """Job ids in SQL, as often as they are there."""
    path = daemons.dir / "state/accounting.sqlite"
    with (
        suppress(sqlite3.OperationalError),
        sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db,
    ):
        return [job_id for (job_id,) in db.execute("SELECT job_id FROM jobs")]
    # No file or no tables yet.
    return []


def submit_and_cancel(client: Client, count: int) -> list[int]:
    """Jobs that never run; their ends are acknowledged."""
    spec = JobSpec(name="gone", shape=Shape(), hold=True, time_limit=60, work_dir="/tmp")
    replies = client.call_many([SubmitJob(spec, b"#!/bin/sh\n", b"") for _ in range(count)])
    ids = [reply.value for reply in replies if isinstance(reply, Done)]
    assert len(ids) == count
    done = client.call(CancelJobs([str(job_id) for job_id in ids]))
    assert isinstance(done, Done), done
    assert not done.errors
    return ids


def visible(client: Client, ids: list[int]) -> Counter[int]:
    rows = client.accounting(AcctQuery(ids=[(job_id, -1) for job_id in ids], ineligible=True))
    assert not rows.more
    assert all(one.state == "CANCELLED" for one in rows.jobs)
    return Counter(one.job_id for one in rows.jobs)


def test_every_end_is_stored_once_whenever_slurmdbd_dies(daemons: Daemons) -> None:
    rng = random.Random(SEED)
    daemons.controller()
    daemons.frontend()
    everything: list[int] = []
    with Client(daemons.socket) as client:
        for _ in range(ROUNDS):
            process = daemons.start("gsched.accounting.main")
            end = time.monotonic() + rng.uniform(0.5, 3.0)
            ids = submit_and_cancel(client, BATCH)
            everything += ids
            assert visible(client, ids) == Counter(ids)
            while time.monotonic() < end:
                time.sleep(0.01)
            process.kill()
            process.wait()
            assert visible(client, everything) == Counter(everything)
        daemons.start("gsched.accounting.main")
        until("all ends in SQL", lambda: len(stored(daemons)) >= len(everything))
        assert Counter(stored(daemons)) == Counter(everything)
        assert visible(client, everything) == Counter(everything)


def test_slurmdbd_outlives_the_controller(daemons: Daemons) -> None:
    controller = daemons.controller()
    daemons.frontend()
    with Client(daemons.socket) as client:
        ids = submit_and_cancel(client, 20)
        # What was answered last may still be in the journal alone, which only a controller carries
        # out; who reads waits for it.
        assert visible(client, ids) == Counter(ids)
    controller.kill()
    controller.wait()
    accounting = daemons.start("gsched.accounting.main")
    until("the ends in SQL", lambda: len(stored(daemons)) == 20)
    daemons.controller()
    with Client(daemons.socket) as client:
        more = submit_and_cancel(client, 20)
        until("the new ends in SQL", lambda: len(stored(daemons)) == 40)
        assert Counter(stored(daemons)) == Counter(ids + more)
        assert visible(client, ids + more) == Counter(ids + more)
    assert accounting.poll() is None
    accounting.send_signal(signal.SIGTERM)
    assert accounting.wait(10) == 0


def test_one_slurmdbd_at_a_time(daemons: Daemons) -> None:
    daemons.controller()
    daemons.start("gsched.accounting.main")
    until("slurmdbd", lambda: (daemons.dir / "run/slurmdbd.pid").exists())
    assert daemons.start("gsched.accounting.main").wait(20) == 1
    assert "another slurmdbd" in (daemons.dir / "log/out").read_text()


def test_without_accounting() -> None:
    daemons = Daemons()
    try:
        daemons.controller()
        daemons.frontend()
        assert daemons.start("gsched.accounting.main").wait(20) == 1
        done = sacct(daemons.conf)
        assert (done.stderr, done.returncode) == ("Slurm accounting storage is disabled\n", 1)
    finally:
        daemons.close()


def sacct(conf: Path, *words: str) -> subprocess.CompletedProcess[str]:
    from e2e_support import BIN

    env = {"SLURM_CONF": str(conf), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [str(BIN / "sacct"), *words], env=env, capture_output=True, text=True, check=False
    )


# ---- with nodes ------------------------------------------------------------------------------


def show(cluster: LocalCluster, job: int, what: str, *words: str) -> str:
    return cluster.run(["sacct", "-n", "-P", "-j", str(job), "-o", what, *words]).stdout


def test_a_job_is_visible_at_once(cluster: LocalCluster) -> None:
    held = cluster.sbatch("-H", "-o", "/dev/null", "--wrap", "exit 3")
    assert show(cluster, held, "jobid,state,nodelist") == f"{held}|PENDING|None assigned\n"
    cluster.run(["scontrol", "release", str(held)])
    cluster.ended(held)
    assert show(cluster, held, "jobid,state,exitcode") == (
        f"{held}|FAILED|3:0\n{held}.batch|FAILED|3:0\n"
    )
    running = cluster.sbatch("-o", "/dev/null", "--gpus=2", "--wrap", "sleep 60")
    until("start", lambda: "RUNNING" in show(cluster, running, "state", "-X"))
    what = "state,alloccpus,alloctres,end"
    assert show(cluster, running, what, "-X") == (
        "RUNNING|1|billing=1,cpu=1,gres/gpu:h100=2,gres/gpu=2,mem=2000M,node=1|Unknown\n"
    )
    cluster.run(["scancel", str(running)])
    cluster.ended(running)
    assert show(cluster, running, "state,exitcode") == (
        f"CANCELLED by {os.getuid()}|0:0\nCANCELLED|0:15\n"
    )


def test_a_job_that_is_over_is_changed(cluster: LocalCluster) -> None:
    """The controller still holds it as it was; it shows as it was changed."""
    job = cluster.sbatch("-o", "/dev/null", "--wrap", "exit 3")
    cluster.ended(job)
    change = ["sacctmgr", "-i", "modify", "job", "where", f"jobid={job}", "set"]
    cluster.run([*change, "comment=A run to forget", "derivedexitcode=256"])
    fields = ["-o", "jobid,state,comment,derivedexitcode"]
    done = cluster.run(["sacct", "-X", "-n", "-P", "-j", str(job), *fields])
    assert done.stdout == f"{job}|FAILED|A run to forget|1:0\n"


def test_what_the_job_used(cluster: LocalCluster) -> None:
    work = "x=$(head -c 5000000 /dev/zero | tr '\\0' x); sleep 1; : ${#x}"
    job = cluster.sbatch("-o", "/dev/null", "--wrap", work)
    cluster.ended(job)
    batch = show(cluster, job, "elapsedraw,maxrss,totalcpu").splitlines()[1].split("|")
    assert int(batch[0]) >= 1
    # The shell holds 5 MB, more than once while it reads them.
    # Whole megabytes are shown as such.
    kilobytes = float(batch[1][:-1]) * (1024 if batch[1].endswith("M") else 1)
    assert 4800 < kilobytes < 100_000
    assert batch[2] != "00:00:00"


def test_an_array(cluster: LocalCluster) -> None:
    job = cluster.sbatch(
        "-a", "1-3", "-o", "/dev/null", "--wrap", "exit $((SLURM_ARRAY_TASK_ID-1))"
    )

    def over() -> bool:
        return show(cluster, job, "state", "-X").split() == ["COMPLETED", "FAILED", "FAILED"]

    until("the tasks' ends", over)
    assert show(cluster, job, "jobid,exitcode", "-X") == f"{job}_1|0:0\n{job}_2|1:0\n{job}_3|2:0\n"
    assert show(cluster, job, "jobid,exitcode", "-X", "-j", f"{job}_2").count(f"{job}_2|1:0") == 1


def test_another_user(cluster: LocalCluster, other_user: str) -> None:
    mine = cluster.sbatch("-o", "/dev/null", "--wrap", "true")
    cluster.ended(mine)
    done = cluster.run(["sacct", "-X", "-n", "-P", "-o", "jobid"], user=other_user)
    assert str(mine) not in done.stdout.split()
    done = cluster.run(["sacct", "-X", "-n", "-P", "-o", "user", "-j", str(mine)], user=other_user)
    assert done.stdout == "root\n"


def test_more_jobs_than_the_memory_of_the_controller() -> None:
    """What MinJobAge has dropped is still in accounting."""
    with LocalCluster("--simulate", "peer", "--set", "MinJobAge=2") as cluster:
        job = cluster.sbatch("-o", "/dev/null", "-J", "old", "--wrap", "true")
        until("end", lambda: show(cluster, job, "state", "-X") == "COMPLETED\n")

        def forgotten() -> bool:
            return cluster.run(["squeue", "-h", "-j", str(job)], check=False).returncode == 1

        until("forgotten by the controller", forgotten)
        assert show(cluster, job, "jobname,state") == "old|COMPLETED\nbatch|COMPLETED\n"
