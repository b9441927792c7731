"""EpilogSlurmctld: once for each allocation, on the controller's host, when its nodes are free."""

from __future__ import annotations

from pathlib import Path

from e2e_support import LocalCluster, until


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
        log = "".join(path.read_text() for path in (cluster.dir / "log").glob("slurmctld*"))
        until(
            "its failure",
            lambda: any(
                f"job {job.id}: EpilogSlurmctld {program} ended with 3"
                in path.read_text(errors="replace")
                for path in (cluster.dir / "log").glob("slurmctld*")
            ),
        )
        assert "PrologSlurmctld" not in log
