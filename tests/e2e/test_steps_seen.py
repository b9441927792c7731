"""Steps as the commands show them, on a cluster whose controller is killed meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from e2e_support import LocalCluster, until

from gsched.model import JobState

STEPS = """#!/bin/bash
#SBATCH -N2 -n4 -o steps.out
srun -n4 -J both sleep 60 &
until [ -e go ]; do sleep 0.1; done
srun --overlap -n1 -J one bash -c 'exit 4'
srun --overlap -n1 -J two true
touch done
wait
exit 0
"""


def lines(cluster: LocalCluster, *words: str) -> list[str]:
    return cluster.run(words).stdout.splitlines()


def steps(cluster: LocalCluster, job: int) -> list[str]:
    return lines(cluster, "squeue", "-h", "-s", "-j", str(job), "-o", "%i|%j|%A|%N")


def sacct(cluster: LocalCluster, job: int, what: str) -> list[str]:
    return lines(cluster, "sacct", "-n", "-P", "-j", str(job), "-o", what)


def begin(cluster: LocalCluster) -> int:
    """The job with its first step running."""
    for name in ("go", "done"):
        (cluster.work / name).unlink(missing_ok=True)
    job = cluster.sbatch(script=STEPS)
    until("the first step", lambda: len(steps(cluster, job)) == 2)
    return job


def go_on(cluster: LocalCluster) -> None:
    (cluster.work / "go").touch()


def test_steps_from_their_start_to_their_end(cluster: LocalCluster) -> None:
    job = begin(cluster)
    first, second = cluster.job(job).alloc[0].node, cluster.job(job).alloc[1].node
    both = f"node[{first[4:]}-{second[4:]}]"
    assert steps(cluster, job) == [f"{job}.0|both|4|{both}", f"{job}.batch|batch|1|{first}"]
    [shown] = [
        text.split()
        for text in lines(cluster, "scontrol", "-o", "show", "step", f"{job}.0")
        if text
    ]
    assert {f"StepId={job}.0", "State=RUNNING", f"NodeList={both}", "Tasks=4"} <= {*shown}
    used = lines(cluster, "sstat", "-n", "-P", "-o", "jobid,ntasks,nodelist", str(job))
    assert used == [f"{job}.0|4|{both}"]
    listed = [
        line.split()
        for node in (first, second)
        for line in lines(cluster, "scontrol", "listpids", f"{job}.0", node)[1:]
    ]
    tasks = [row for row in listed if row[3] != "-"]
    assert [row[4] for row in tasks] == ["0", "1", "2", "3"]
    assert all(Path(f"/proc/{row[0]}/comm").read_text() == "sleep\n" for row in tasks)
    what = "jobid,jobname,state,exitcode,ntasks"
    assert sacct(cluster, job, what)[2] == f"{job}.0|both|RUNNING|0:0|4"
    go_on(cluster)
    until("the second step", lambda: len(sacct(cluster, job, "jobid")) == 5)
    cluster.run(["scancel", f"{job}.0"])
    assert cluster.ended(job).state == JobState.COMPLETED
    assert sacct(cluster, job, what)[1:] == [
        f"{job}.batch|batch|COMPLETED|0:0|1",
        f"{job}.0|both|CANCELLED by {os.getuid()}|0:9|4",
        f"{job}.1|one|FAILED|4:0|1",
        f"{job}.2|two|COMPLETED|0:0|1",
    ]
    assert sacct(cluster, job, "state,exitcode,derivedexitcode")[0] == "COMPLETED|0:0|4:0"
    assert steps(cluster, job) == []


def test_a_step_is_known_as_soon_as_srun_has_been_told_of_it(cluster: LocalCluster) -> None:
    """Its first task runs before a batch of news has gone to the controller."""
    script = """#!/bin/bash
srun -J seen bash -c 'squeue -h -s -j $SLURM_JOB_ID -o "%i %j"; \\
    scontrol -o show step $SLURM_JOB_ID.0 | cut -d" " -f1; scancel $SLURM_JOB_ID.0; sleep 60' 2>err
"""
    job = cluster.sbatch("-n1", "-o", "seen.out", script=script)
    cluster.ended(job)
    assert (cluster.work / "seen.out").read_text().splitlines() == [
        f"{job}.0 seen",
        f"{job}.batch batch",
        f"StepId={job}.0",
    ]
    assert f"STEP {job}.0 ON " in (cluster.work / "err").read_text()


def test_a_step_of_another_user(cluster: LocalCluster, other_user: str) -> None:
    job = begin(cluster)
    done = cluster.run(["scancel", f"{job}.0"], user=other_user, check=False)
    assert "Access/permission denied" in done.stderr and done.returncode
    done = cluster.run(["sstat", "-n", str(job)], user=other_user, check=False)
    assert done.stdout == "" and "couldn't get steps" in done.stderr
    cluster.run(["scancel", str(job)])
    cluster.ended(job)


def test_suspended_with_its_steps(cluster: LocalCluster) -> None:
    job = begin(cluster)
    [text] = lines(cluster, "sstat", "-n", "-P", "-o", "pids", str(job))
    pids = text.split(",")

    def states() -> set[str]:
        found = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2] for pid in pids)
        return {stat.split()[0] for stat in found}

    assert "T" not in states()
    cluster.run(["scontrol", "suspend", str(job)])
    until("all to stand still", lambda: states() == {"T"})
    cluster.run(["scontrol", "resume", str(job)])
    until("all to go on", lambda: "T" not in states())
    cluster.run(["scancel", str(job)])
    cluster.ended(job)
    assert sacct(cluster, job, "jobid,state")[2].startswith(f"{job}.0|CANCELLED")


def test_a_requeued_job_begins_with_step_0_again(cluster: LocalCluster) -> None:
    job = begin(cluster)
    cluster.run(["scontrol", "requeue", str(job)])
    until("the job to be queued", lambda: cluster.job(job).state == JobState.PENDING)
    cluster.run(["scontrol", "update", f"job={job}", "starttime=now"])
    until("step 0", lambda: f"{job}.0" in "".join(steps(cluster, job)))
    tries = lines(cluster, "sacct", "-D", "-n", "-P", "-j", str(job), "-o", "jobid,state")
    numbered = [text for text in tries if text.startswith(f"{job}.0|")]
    assert len(numbered) == 2 and numbered[1].endswith("RUNNING")
    cluster.run(["scancel", str(job)])
    cluster.ended(job)


@pytest.mark.parametrize("when", ["running", "ended"])
def test_the_controller_is_killed_while_steps_run(when: str) -> None:
    """Each step is in accounting once, whoever died when."""
    with LocalCluster("--simulate", "peer", "--set", "KillWait=2") as cluster:
        job = begin(cluster)
        process = cluster.on_disk.find(cluster.on_disk.controller())
        assert process is not None
        if when == "running":
            os.kill(process.pid, signal.SIGKILL)
            go_on(cluster)
            until("both steps without it", (cluster.work / "done").exists)
        else:
            go_on(cluster)
            until("the second step", lambda: len(sacct(cluster, job, "jobid")) == 5)
            os.kill(process.pid, signal.SIGKILL)
        cluster.up()
        until("its steps", lambda: len(sacct(cluster, job, "jobid")) == 5)
        cluster.run(["scancel", f"{job}.0"])
        cluster.ended(job)
        until("all of it in SQL", lambda: sacct(cluster, job, "jobid,state")[0].endswith("ETED"))
        assert [text.partition("|")[0] for text in sacct(cluster, job, "jobid,state")] == [
            str(job),
            f"{job}.batch",
            *(f"{job}.{n}" for n in range(3)),
        ]
        assert sacct(cluster, job, "derivedexitcode")[0] == "4:0"
