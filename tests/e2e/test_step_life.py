"""What reaches steps in the course of a job (warnings before the limit, requeues, a failing node);
and what they are: the user's groups, limits, masks and directories, as the script's."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from e2e_support import BIN, LocalCluster, until

from gsched.model import JobState


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = ["--simulate", "peer", "--set", "KillWait=2", "--set", "MinJobAge=3600"]
    with LocalCluster(*options) as made:
        yield made


TRAPS = """\
#!/bin/bash
trap 'echo script got it' USR1
srun bash -c 'trap "echo step got it; exit 0" USR1; for i in {1..500}; do sleep 0.1; done' &
while ! wait; do :; done
"""


def test_a_warning_before_the_limit(cluster: LocalCluster) -> None:
    # man sbatch: "By default all job steps will be signaled, but not the batch shell itself. Use
    # 'B:' to signal only the batch shell". 55 s before the end of a minute.
    steps = cluster.sbatch("-t1", "--signal=USR1@55", script=TRAPS)
    batch = cluster.sbatch("-t1", "--signal=B:USR1@55", script=TRAPS)
    until("the step's", lambda: "step got it" in cluster.output(steps))
    until("the script's", lambda: "script got it" in cluster.output(batch))
    assert "script got it" not in cluster.output(steps)
    assert "step got it" not in cluster.output(batch)
    cluster.run(["scancel", str(batch)])
    assert cluster.ended(steps).state == JobState.COMPLETED
    cluster.ended(batch)


def test_a_requeued_job_tells_its_steps_how_often(cluster: LocalCluster) -> None:
    script = (
        "#!/bin/bash\n"
        "srun sh -c 'echo restarts ${SLURM_RESTART_COUNT-none} >> restarts'\n"
        '[ -n "$SLURM_RESTART_COUNT" ] || srun sleep 600\n'
    )
    job_id = cluster.sbatch(script=script)
    seen = cluster.work / "restarts"
    until("the first run", lambda: seen.exists() and seen.read_text())
    cluster.run(["scontrol", "requeue", str(job_id)])

    def again() -> bool:
        job = cluster.job(job_id)
        if job.state == JobState.PENDING:
            # Slurm lets two minutes go by before it starts such a job again.
            cluster.run(["scontrol", "update", f"jobid={job_id}", "starttime=now"], check=False)
        return job.state == JobState.COMPLETED

    until("the second", again, patience=150)
    assert seen.read_text() == "restarts none\nrestarts 1\n"


def test_a_node_that_fails_under_a_step(cluster: LocalCluster) -> None:
    argv = [str(BIN / "srun"), "-N2", "-w", "node3,node4", "sh", "-c", "echo here; exec sleep 600"]
    srun = subprocess.Popen(
        argv,
        env=cluster.env(),
        cwd=cluster.work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert srun.stdout is not None
        assert [srun.stdout.readline() for _ in range(2)] == ["here\n"] * 2
        name = "nodename=node4"
        cluster.run(["scontrol", "update", name, "state=down", "reason=broken"])
        _out, err = srun.communicate(timeout=30)
    finally:
        srun.kill()
        srun.wait()
        cluster.run(["scontrol", "update", "nodename=node4", "state=resume"], check=False)
    assert srun.returncode != 0
    assert "srun: error: Node failure on node4\n" in err
    job_id = int(cluster.run(["sacct", "-nXo", "jobid"]).stdout.split()[-1])
    assert cluster.ended(job_id).state == JobState.NODE_FAIL


@pytest.mark.root
def test_steps_are_as_privileged_as_their_script(cluster: LocalCluster, other_user: str) -> None:
    tell = cluster.work / "tell.sh"
    tell.write_text(
        "#!/bin/sh\nid -u; id -g; id -G; umask; ulimit -Sn; ulimit -Sc; pwd\n"
        "grep -E '^(NoNewPrivs|CapEff|SigIgn|SigBlk)' /proc/self/status\n"
    )
    tell.chmod(0o755)
    # In the shell that submits: what goes along is its own.
    submit = (
        "umask 031; ulimit -Sn 517; ulimit -Sc 0; "
        f"sbatch -W -o told.%j --wrap '{tell} > script.told; srun {tell} > step.told'"
    )
    folder = cluster.work / "mine"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    cluster.run(["sh", "-c", submit], user=other_user, cwd=folder)
    script = (folder / "script.told").read_text()
    assert script == (folder / "step.told").read_text()
    lines = script.splitlines()
    assert lines[3:7] == ["0031", "517", "0", str(folder)]
    assert "0" not in lines[2].split()


def test_a_directory_that_is_not_there(cluster: LocalCluster) -> None:
    done = cluster.run(["srun", "-D", "/nonexistent/place", "pwd"])
    assert done.stdout == "/tmp\n"
    assert (
        "couldn't chdir to `/nonexistent/place': No such file or directory: "
        "going to /tmp instead" in done.stderr
    )


def test_what_hangs_on_a_file_holds_nobody_up(cluster: LocalCluster) -> None:
    # A name with %t is opened by the task's node, not by srun.
    pipe = cluster.work / "never.0"
    os.mkfifo(pipe)
    # Nobody reads it: whoever opens it for writing waits, as on a dead file server.
    stuck = cluster.sbatch("-w", "node1", "-o", str(pipe), "--wrap", "true")
    step = subprocess.Popen(
        [str(BIN / "srun"), "-w", "node1", "-o", "never.%t", "true"],
        env=cluster.env(),
        cwd=cluster.work,
        stderr=subprocess.PIPE,
    )
    try:
        begun = time.monotonic()
        for _ in range(3):
            assert cluster.run(["srun", "-w", "node1", "hostname"]).returncode == 0
        assert time.monotonic() - begun < 10
        cluster.run(["scancel", str(stuck)])
        assert cluster.ended(stuck).state == JobState.CANCELLED
    finally:
        step.send_signal(signal.SIGTERM)
        step.wait(20)
        cluster.run(["scancel", "-u", cluster.env()["USER"]])
    until("an idle node", lambda: not cluster.run(["squeue", "-h", "-w", "node1"]).stdout)
