"""sattach and sbcast: their command lines, and what they ask for. Sentences and exit codes are
those of Slurm 22.05 and of the transcripts of 26.05."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from launch_support import AttachStep, LaunchCluster, Launched, NotTaken, launch

from gsched.wire.codec import decode
from gsched.wire.messages import Refused
from gsched.wire.steps import Taken, ToAgent


def _attach(*argv: str) -> Launched:
    return launch("sattach", *argv, cluster=LaunchCluster(relayed=Taken(b"", 0)))


def _question(done: Launched) -> AttachStep:
    found = decode(ToAgent, done.cluster.asked[0].payload)
    assert isinstance(found, AttachStep)
    return found


def test_sattach() -> None:
    done = _attach("-l", "17.2")
    question = _question(done)
    assert (question.job_id, question.step, question.task) == (17, 2, -1)
    assert (question.stdin, question.layout_only) == (True, False)
    assert (done.plan["mode"], done.plan["job"], done.plan["label"]) == ("attach", "17", "1")
    done = _attach("--output-filter=4", "--input-filter", "0", "17.2")
    assert _question(done).task == 4
    assert (done.plan["stdout_task"], done.plan["stdin_task"]) == ("4", "0")
    done = _attach("--layout", "17.2")
    assert _question(done).layout_only
    assert done.plan["stdin"] == ""


@pytest.mark.parametrize(
    ("argv", "err"),
    [
        (
            [],
            "sattach: error: too many parameters\nUsage: sattach [options] <jobid.stepid>\n",
        ),
        (
            ["5"],
            "sattach: error: Failed to parse stepid from command line options\n"
            "Usage: sattach [options] <jobid.stepid>\n",
        ),
        (
            ["--output-filter=x", "5.1"],
            'sattach: error: Invalid numeric value "x" for output-filter.\n',
        ),
        (
            ["--nosuch", "5.1"],
            "sattach: unrecognized option '--nosuch'\n"
            'Try "sattach --help" for more information\n',
        ),
        (
            ["99999999.0"],
            "sattach: error: Could not get job step info: Invalid job id specified\n",
        ),
    ],
)
def test_sattach_refusals(argv: list[str], err: str) -> None:
    done = launch("sattach", *argv)
    assert (done.err, done.code) == (err, 1)


# ---- sbcast ------------------------------------------------------------------------------------


def test_sbcast_needs_a_job(tmp_path: Path) -> None:
    (tmp_path / "basic.sh").write_text("x")
    done = launch("sbcast", "basic.sh", "/tmp/x", cwd=tmp_path)
    assert (done.err, done.code) == (
        "sbcast: error: Need a job id to run this command.  "
        "Run from within a Slurm job or use the --jobid option.\n",
        1,
    )


def test_sbcast_refusals(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    done = launch("sbcast", "a", cwd=tmp_path)
    assert (done.err, done.code) == (
        'Need two file names, have 1 names\nTry "sbcast --help" for more information\n',
        1,
    )
    done = launch("sbcast", "-j5", "nosuch", "b", cwd=tmp_path)
    assert (done.err, done.code) == (
        "sbcast: error: Can't open `nosuch`: No such file or directory\n",
        255,
    )
    done = launch("sbcast", "-j5", "f", "/tmp/", cwd=tmp_path)
    assert (done.err, done.code) == ("sbcast: error: Target filename cannot be a directory.\n", 1)
    done = launch("sbcast", "-j99", "f", "/tmp/x", cwd=tmp_path)
    assert (done.err, done.code) == (
        "sbcast: error: Slurm job 99 lookup error: Invalid job id specified\n",
        255,
    )
    pending = Refused(b"", "Job is pending execution", "ESLURM_JOB_PENDING")
    done = launch("sbcast", "-j2", "f", "/x", cwd=tmp_path, cluster=LaunchCluster(relayed=pending))
    assert done.err == "sbcast: error: Slurm job 2 lookup error: Job is pending execution\n"
    said = NotTaken("error: Unable to create step for job 3: Job/step already completing")
    done = launch("sbcast", "-j3", "f", "/x", cwd=tmp_path, cluster=LaunchCluster(relayed=said))
    assert done.err == "sbcast: error: Slurm job 3 lookup error: Job/step already completing\n"


def _sent(tmp_path: Path, *argv: str) -> Launched:
    return launch(
        "sbcast",
        *argv,
        cwd=tmp_path,
        env={"SLURM_JOB_ID": "17"},
        cluster=LaunchCluster(relayed=Taken(b"", 0)),
    )


def test_sbcast_is_a_step_on_every_node(tmp_path: Path) -> None:
    source = tmp_path / "f"
    source.write_text("x")
    done = _sent(tmp_path, "f", "/tmp/target")
    spec = done.created.spec
    assert (spec.job_id, spec.origin, spec.program, spec.ntasks_per_node) == (
        17,
        "sbcast",
        "sbcast",
        1,
    )
    assert spec.overlap
    assert spec.no_gpus
    assert done.plan["stdin"] == str(source)
    assert done.plan["mode"] == "step"


def _written(done: Launched, data: bytes) -> subprocess.CompletedProcess[bytes]:
    """What a task of the step does."""
    argv = done.created.spec.argv
    env = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "node2"}
    return subprocess.run(argv, input=data, capture_output=True, env=env, check=False)


def test_what_its_tasks_do(tmp_path: Path) -> None:
    """As measured with Slurm 22.05: modes come along, times with -p; the code is the errno."""
    source, target = tmp_path / "f", tmp_path / "odd name; rm -rf $x"
    source.write_bytes(b"data\0")
    source.chmod(0o640)
    os.utime(source, (1_000_000_000, 1_000_000_000))
    done = _written(_sent(tmp_path, "f", str(target)), b"data\0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert target.read_bytes() == b"data\0"
    assert target.stat().st_mode & 0o777 == 0o640
    assert target.stat().st_mtime > 1_500_000_000

    again = _written(_sent(tmp_path, "f", str(target)), b"other")
    assert (again.returncode, again.stderr) == (
        17,
        b"sbcast: error: REQUEST_FILE_BCAST(node2): File exists\n",
    )
    assert target.read_bytes() == b"data\0"

    forced = _written(_sent(tmp_path, "-fp", "f", str(target)), b"other")
    assert forced.returncode == 0
    assert target.read_bytes() == b"other"
    assert target.stat().st_mtime == 1_000_000_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", target.name]

    absent = _written(_sent(tmp_path, "f", str(tmp_path / "no" / "dir")), b"")
    assert (absent.returncode, absent.stderr) == (
        2,
        b"sbcast: error: REQUEST_FILE_BCAST(node2): No such file or directory\n",
    )
