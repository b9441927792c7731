"""What no job may do to others, on a whole cluster with control groups: reach their GPUs, take more
memory than it was given, stay when it is over."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster, until

from gsched.model import JobState
from slurmd_compat.binding import NVIDIA_MAJOR

pytestmark = pytest.mark.root

#: jobs full of strays
JOBS = int(os.environ.get("GSCHED_STRAY_JOBS", "60"))
EAT = f"{sys.executable} -S -c 'bytearray(%d << 20)'"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = ("KillWait=1", "PrologFlags=Contain", "MinJobAge=3600", "MaxJobProcesses=200")
    options = [word for setting in settings for word in ("--set", setting)]
    with LocalCluster("--simulate", "dgx-h100", *options) as made:
        yield made


def needs(cluster: LocalCluster, sentence: str) -> None:
    for log in (cluster.dir / "log").glob("slurmd*"):
        if sentence in log.read_text(errors="replace"):
            pytest.skip(sentence)


def groups(cluster: LocalCluster) -> list[Path]:
    """All control groups of jobs of this cluster."""
    import zlib

    found = []
    for spool in cluster.dir.glob("spool/*"):
        mark = f"{zlib.crc32(str(spool).encode()):08x}"
        for path, names, _ in os.walk("/sys/fs/cgroup"):
            found += [Path(path, name) for name in names if name[:4] == "job_" and mark in path]
    return found


def marked(text: str) -> list[int]:
    """Processes with these words in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_another_jobs_gpu_cannot_be_opened(cluster: LocalCluster) -> None:
    needs(cluster, "jobs can reach GPUs that are not theirs")
    try:
        for minor in range(8):
            path = cluster.work / f"nvidia{minor}"
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(NVIDIA_MAJOR, minor))
            path.chmod(0o666)
    except OSError as error:
        pytest.skip(f"no device nodes here: {error}")
    look = (
        "import os\n"
        "mine = {int(n) for n in os.environ['SLURM_JOB_GPUS'].split(',')}\n"
        "for n in range(8):\n"
        "  try: os.close(os.open(f'nvidia{n}', os.O_RDWR)); code = 0\n"
        "  except OSError as e: code = e.errno\n"
        # EPERM: refused; ENXIO: let through, there is no driver behind it here.
        "  print(n, n in mine, code == 1)\n"
    )
    (cluster.work / "look.py").write_text(look)
    other = cluster.sbatch("--gres=gpu:2", "-w", "node1", "--wrap", "sleep 60")
    until("the other job", lambda: cluster.job(other).state == JobState.RUNNING)
    run = f"{sys.executable} -S look.py"
    for wrap in (run, f"srun {run}"):
        job = cluster.ended(cluster.sbatch("--gres=gpu:3", "-w", "node1", "--wrap", wrap))
        assert job.state == JobState.COMPLETED
        rows = [line.split() for line in cluster.output(job.id).splitlines()]
        assert len(rows) == 8
        assert sum(mine == "True" for _, mine, _ in rows) == 3
        assert all((mine == "True") != (refused == "True") for _, mine, refused in rows)
    cluster.run(["scancel", str(other)])
    cluster.ended(other)


@pytest.mark.parametrize("how", ["script", "srun", "srun of the script"])
def test_a_job_far_over_its_memory_is_ended(cluster: LocalCluster, how: str) -> None:
    needs(cluster, "jobs are not confined to their memory")
    eat = EAT % 1224
    if how == "srun":
        done = cluster.run(
            ["srun", "--mem=200", *(EAT % 1224).replace("'", "").split(" ", 3)], check=False
        )
        assert "task 0: Out Of Memory" in done.stderr
        assert done.returncode != 0
        job_id = int(cluster.run(["sacct", "-nXo", "jobid"]).stdout.split()[-1])
    elif how == "script":
        job_id = cluster.sbatch("--mem=200", "--wrap", eat)
    else:
        job_id = cluster.sbatch("--mem=200", "--wrap", f"srun {eat}; echo code $?; exit 0")
    job = cluster.ended(job_id)

    def states() -> dict[str, str]:
        rows = cluster.run(["sacct", "-nPj", str(job_id), "-o", "jobid,state"]).stdout.split()
        return dict(row.split("|") for row in rows)

    if how == "script":
        assert job.state == JobState.OUT_OF_MEMORY
        assert states()[f"{job_id}.batch"] == "OUT_OF_MEMORY"
    elif how == "srun":
        assert job.state == JobState.OUT_OF_MEMORY
        until("its step", lambda: states().get(f"{job_id}.0") == "OUT_OF_MEMORY")
    else:
        until("its step", lambda: states().get(f"{job_id}.0") == "OUT_OF_MEMORY")
        assert states()[f"{job_id}.batch"] == "COMPLETED"
        assert "task 0: Out Of Memory" in cluster.output(job_id)


FORK = """\
import os, sys, time
for n in range(400):
    try:
        pid = os.fork()
    except BlockingIOError:
        print("refused after", n)
        sys.exit()
    if not pid:
        time.sleep(20)
        os._exit(0)
print("not refused")
os._exit(1)
"""


@pytest.mark.parametrize("how", ["script", "srun"])
def test_a_job_has_no_more_processes_than_the_site_says(cluster: LocalCluster, how: str) -> None:
    needs(cluster, "jobs can have any number of processes")
    (cluster.work / "fork.py").write_text(FORK)
    run = f"{sys.executable} -S fork.py"
    wrap = run if how == "script" else f"srun {run}"
    job = cluster.ended(cluster.sbatch("--wrap", wrap))
    words = cluster.output(job.id).split()
    # The shell, srun and the processes of the supervisors count too.
    assert words[:2] == ["refused", "after"] and 150 < int(words[2]) < 200


STRAYS = """\
#!/bin/sh
# Twice forked, in sessions of their own; deaf; stopped; a zombie whose parent never waits.
(setsid sh -c 'echo >> {began}; sleep 900' &)
(setsid sh -c 'trap "" TERM HUP INT; echo >> {began}; while :; do sleep 1; done' &)
(setsid sh -c 'echo >> {began}; kill -STOP $$; sleep 900' &)
export SLURM_ARRAY_TASK_ID
(setsid {python} -S -c 'import os, time
if os.fork() == 0: os._exit(0)
open(os.path.expandvars("{began}"), "a").write("\\n")
time.sleep(900)' &)
(srun --overlap sh -c '(setsid sh -c "echo >> {began}; exec sleep 900" &)
(trap "" TERM; sleep 900) &
while [ $(wc -l < {began}) -lt 5 ]; do sleep 0.05; done')
exit $(( SLURM_ARRAY_TASK_ID % 3 ))
"""


def test_jobs_full_of_strays_leave_nothing(cluster: LocalCluster) -> None:
    needs(cluster, "processes of a job are found by descent only")
    began = f"{cluster.work}/began.$SLURM_ARRAY_TASK_ID"
    script = STRAYS.format(python=sys.executable, began=began)
    job_id = cluster.sbatch(f"--array=0-{JOBS - 1}", "--mem=50", "-o", "/dev/null", script=script)
    until(
        "the end of all",
        lambda: not cluster.run(["squeue", "-h", "-j", str(job_id)]).stdout,
        patience=240,
    )
    until("all groups gone", lambda: not groups(cluster), patience=30)
    assert marked(f"SLURM_ARRAY_JOB_ID={job_id}") == []
    rows = cluster.run(["sacct", "-nXPj", str(job_id), "-o", "state"]).stdout.split()
    assert len(rows) == JOBS
    assert {state: rows.count(state) for state in set(rows)} == {
        "COMPLETED": len(range(0, JOBS, 3)),
        "FAILED": JOBS - len(range(0, JOBS, 3)),
    }
    reasons = cluster.run(["sinfo", "-hRo", "%E"]).stdout
    assert reasons == ""
