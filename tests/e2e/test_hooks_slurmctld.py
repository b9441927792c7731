"""PrologSlurmctld and EpilogSlurmctld: once for each allocation, on the controller's host."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from e2e_support import LocalCluster, until

from gsched.model import JobState


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def noted(cluster: LocalCluster, what: str) -> bool:
    """Is it in the controller's log that a program ended with 3?"""
    logs = (cluster.dir / "log").glob("slurmctld*")
    return any(f"job {what} ended with 3" in log.read_text(errors="replace") for log in logs)


def test_it_is_told_of_each_job_that_had_nodes(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "epilog"
    program.write_text(
        "#!/bin/sh\n"
        "echo $SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_JOB_EXIT_CODE2"
        f" $SLURM_JOB_NODELIST $SLURM_JOB_PARTITION >> {seen}\n"
        "sleep 1; exit 3\n"
    )
    program.chmod(0o755)
    with LocalCluster("--simulate", "peer", "--set", f"EpilogSlurmctld={program}") as cluster:
        held = cluster.sbatch("-H", "--wrap", "true")
        cluster.run(["scancel", str(held)])
        job = cluster.ended(cluster.sbatch("-J", "one", "-w", "node2", "--wrap", "exit 7"))
        until("the program", lambda: seen.exists() and seen.read_text())
        # What it does holds nobody up.
        cluster.ended(cluster.sbatch("-w", "node2", "--wrap", "true"), patience=5)
        first = seen.read_text().splitlines()[0]
        assert first == f"epilog_slurmctld {job.id} one 7:0 node2 gpu"
        until("the second", lambda: len(seen.read_text().splitlines()) == 2)
        until("its failure", lambda: noted(cluster, f"{job.id}: EpilogSlurmctld {program}"))


def test_a_job_waits_for_the_prolog(tmp_path: Path) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    prolog = program(
        tmp_path / "prolog",
        f"echo $SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_JOB_NUM_NODES"
        f" $SLURM_JOB_CPUS_PER_NODE >> {seen}\n"
        f"while [ $SLURM_JOB_NAME = gated ] && [ ! -e {gate} ]; do sleep 0.1; done\n"
        "[ $SLURM_JOB_NAME != bad ]",
    )
    with LocalCluster("--simulate", "peer", "--set", f"PrologSlurmctld={prolog}") as cluster:
        mark = cluster.work / "mark"
        job = cluster.sbatch("-J", "gated", "-N2", "--ntasks-per-node=3", "--wrap", f"touch {mark}")
        until("the program", lambda: seen.exists() and seen.read_text())
        assert seen.read_text() == f"prolog_slurmctld {job} 2 3(x2)\n"
        shown = cluster.run(["squeue", "-h", "-o", "%t", "-j", str(job)]).stdout
        assert shown == "CF\n"
        time.sleep(0.5)
        assert not mark.exists()
        gate.touch()
        assert cluster.ended(job).state is JobState.COMPLETED
        assert mark.exists()

        bad = cluster.sbatch("-J", "bad", "--wrap", "true")
        until("it is queued again", lambda: cluster.job(bad).restarts == 1)
        shown = cluster.run(["squeue", "-h", "-o", "%t %r", "-j", str(bad)]).stdout
        assert shown == "PD BeginTime\n"
        dead = cluster.ended(cluster.sbatch("--no-requeue", "-J", "bad", "--wrap", "true"))
        assert dead.state is JobState.CANCELLED
        for name in ("srun", "salloc"):
            done = cluster.run([name, "-J", "bad", "true"], check=False)
            assert done.returncode == 1
            assert f"{name}: PrologSlurmctld failed, job killed\n" in done.stderr


def test_a_killed_controller_runs_them_again(tmp_path: Path) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    text = (
        f"echo $SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID >> {seen}\n"
        f"while [ ! -e {gate}.$SLURM_JOB_NAME ]; do sleep 0.1; done"
    )
    prolog = program(tmp_path / "prolog", f"[ $SLURM_JOB_NAME = one ] || exit 0\n{text}")
    epilog = program(tmp_path / "epilog", f"[ $SLURM_JOB_NAME = two ] || exit 0\n{text}\nexit 3")
    options = ("--set", f"PrologSlurmctld={prolog}", "--set", f"EpilogSlurmctld={epilog}")
    with LocalCluster("--simulate", "peer", *options) as cluster:
        one = cluster.sbatch("-J", "one", "--wrap", "true")
        two = cluster.sbatch("-J", "two", "--wrap", "true")
        lines = sorted([f"epilog_slurmctld {two}", f"prolog_slurmctld {one}"])
        until("both run", lambda: seen.exists() and sorted(seen.read_text().splitlines()) == lines)
        os.kill(int((cluster.dir / "run/slurmctld.pid").read_text()), signal.SIGKILL)
        cluster.up()
        until("both run again", lambda: sorted(seen.read_text().splitlines()) == sorted(2 * lines))
        for name in ("one", "two"):
            Path(f"{gate}.{name}").touch()
        assert cluster.ended(one).state is JobState.COMPLETED
        # Nobody waits for an epilog; that it failed is told once its end is on disk.
        until("the epilog's end", lambda: noted(cluster, f"{two}: EpilogSlurmctld {epilog}"))
        # What has ended is not run a third time.
        os.kill(int((cluster.dir / "run/slurmctld.pid").read_text()), signal.SIGKILL)
        cluster.up()
        assert cluster.ended(cluster.sbatch("--wrap", "true")).state is JobState.COMPLETED
        assert sorted(seen.read_text().splitlines()) == sorted(2 * lines)
