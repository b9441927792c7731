"""srun, salloc, sattach and sbcast against a whole cluster: the transcripts of Slurm 26.05, once
answered by a warm worker and once by the Python command."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import BIN, LocalCluster, until
from sbatch_support import Step, read_transcript

#: commands whose answer depends on what this cluster has not: a second kind of MPI, 9 nodes that
#: nobody waits for
LEFT_OUT = ("--mpi=list", "-N9", "--test-only", "tail -n", "squeue -j", "exclusive sleep")
#: words and numbers that differ from one run to the next
VARYING = (
    (r"\[\d{4}-[-\dT:.]+\]", "[T]"),
    (r"AT \d{4}-[-\dT:]+", "AT T"),
    (r"(StepId=|StepId |JobId=|job |jobid |allocation |STEP )\d+", r"\1N"),
    (r"PMI_JOBID=\d+", "PMI_JOBID=N"),
    # Which of several idle nodes is taken first is chance.
    (r"node[1-4]\b", "NODE"),
)


@pytest.fixture(scope="module")
def peer() -> Iterator[LocalCluster]:
    with LocalCluster("--simulate", "peer") as made:
        yield made


def told(text: str, host: str = "vm") -> Counter[str]:
    """Lines in any order: tasks, and supervisors, write at the same time."""
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    lines = [re.sub(rf"\b{re.escape(host)}$", "vm", line) for line in text.splitlines()]
    return Counter(lines)


def steps(shared: Path, name: str, command: str) -> list[Step]:
    _, found = read_transcript(shared / "golden/26.05" / name)
    return [
        step
        for step in found
        if step.command.startswith(command)
        and not any(word in step.command for word in LEFT_OUT)
        and "&" not in step.command
    ]


def replay(peer: LocalCluster, step: Step, env: dict[str, str]) -> list[str]:
    """What is otherwise than recorded."""
    # GPUs of the job before are given back a moment after its srun has ended.
    until("an idle cluster", lambda: not peer.run(["squeue", "-h"]).stdout)
    done = peer.run(["bash", "-c", step.command], check=False, env=env)
    host = peer.run(["hostname"]).stdout.strip()
    wrong = []
    for kind, found, expected in (
        ("out", done.stdout, step.out),
        ("err", done.stderr, step.err),
    ):
        if told(found, host) != told(expected):
            wrong.append(f"$ {step.command}\n--- std{kind}\n{found}--- expected\n{expected}")
    if done.returncode != step.code:
        wrong.append(f"$ {step.command}: exit {done.returncode}, not {step.code}")
    return wrong


#: commands of 037 that Slurm answers with more or less for reasons of its own
_DIFFERENT = {
    # A pipe into sort hides the code; twice the same complaint of two of its processes.
    "srun -D /nonexistent pwd",
    # Its plugins, and how the nodes were ready.
    "srun -v -n1 true",
}


@pytest.mark.shared
@pytest.mark.parametrize("python", [False, True], ids=["worker", "python"])
def test_srun_outside_a_job(peer: LocalCluster, shared: Path, python: bool) -> None:
    env = {"GSCHED_PYTHON_CLIENT": "1"} if python else {}
    wrong: list[str] = []
    recorded = steps(shared, "037-srun-outside.txt", "srun")
    assert len(recorded) > 40
    for step in recorded:
        if step.command not in _DIFFERENT:
            wrong += replay(peer, step, env)
    assert not wrong, "\n".join(wrong)


@pytest.mark.shared
@pytest.mark.parametrize("python", [False, True], ids=["worker", "python"])
def test_salloc(peer: LocalCluster, shared: Path, python: bool) -> None:
    env = {"GSCHED_PYTHON_CLIENT": "1"} if python else {}
    wrong: list[str] = []
    recorded = steps(shared, "040-salloc.txt", "salloc")
    assert len(recorded) >= 7
    for step in recorded:
        if "gpu:9" in step.command:
            # The refused job has no number here: there is nothing to be revoked.
            lines = step.err.splitlines(keepends=True)
            step.err = "".join(line for line in lines if "has been revoked" not in line)
        wrong += replay(peer, step, env)
        peer.run(["scancel", "--name=no-shell"], check=False)
    assert not wrong, "\n".join(wrong)


@pytest.mark.shared
def test_sbcast_and_sattach(peer: LocalCluster, shared: Path) -> None:
    (peer.work / "basic.sh").write_text("#!/bin/sh\n")
    wrong: list[str] = []
    for command in ("sbcast", "sattach"):
        for step in steps(shared, "042-sbcast-sattach-strigger-misc.txt", command):
            wrong += replay(peer, step, {})
    assert not wrong, "\n".join(wrong)


def output(peer: LocalCluster, script: str, *words: str) -> str:
    """What a batch job printed."""
    text = f"#!/bin/bash\nexec 2>&1\n{script}\n"
    (peer.work / "job.sh").write_text(text)
    peer.run(["sbatch", "-W", "-o", "job.out", *words, "job.sh"])
    return (peer.work / "job.out").read_text()


def test_a_file_on_every_node(peer: LocalCluster) -> None:
    target = peer.work / "copy"
    script = f"""
echo hi > source; chmod 640 source
sbcast source {target}; echo rc $?
srun -l cat {target} | sort
sbcast source {target} 2>/dev/null; echo rc $?
stat -c %a {target}
srun -n1 -N1 bash -c 'echo step $SLURM_STEP_ID'
"""
    # Copies are none of the job's steps: the second srun is number 1. 17 is EEXIST.
    assert output(peer, script, "-N2") == "rc 0\n0: hi\n1: hi\nrc 17\n640\nstep 1\n"


def test_the_program_on_every_node(peer: LocalCluster) -> None:
    (peer.work / "bin").mkdir()
    script = (
        "srun --bcast=$PWD/bin/ -N2 -n2 bash -c 'echo $0; exit 3' x; echo rc $?; ls bin | wc -l"
    )
    found = output(peer, script, "-N2")
    assert found.splitlines()[:2] == ["x", "x"]
    assert found.splitlines()[-2:] == ["rc 3", "1"]
    done = peer.run(["srun", f"--bcast={peer.work}/bin/y", "echo", "ran"])
    assert (done.stdout, done.stderr) == ("ran\n", "")
    assert (peer.work / "bin/y").exists()


def test_components_with_files_and_environments(peer: LocalCluster) -> None:
    script = """
srun -o %j-a --export=ALL,A=1 bash -c 'echo $A $SLURM_PROCID $SLURM_NTASKS' : \\
     -o %j-b --export=ALL,A=2 bash -c 'echo $A $SLURM_PROCID $SLURM_NTASKS'
cat $SLURM_JOB_ID-a; sort $SLURM_JOB_ID-b
"""
    head = "#!/bin/bash\n#SBATCH -n1 -o het.out\n#SBATCH hetjob\n#SBATCH -n2\n"
    (peer.work / "het.sh").write_text(head + script)
    peer.run(["sbatch", "-W", "het.sh"])
    assert (peer.work / "het.out").read_text() == "1 0 3\n2 1 3\n2 2 3\n"


def test_without_any_variable_but_the_number_of_the_job(peer: LocalCluster) -> None:
    """As programs that tidy up the environment call srun."""
    script = """
keep="PATH=$PATH SLURM_CONF=$SLURM_CONF SLURM_JOB_ID=$SLURM_JOB_ID"
env -i $keep srun -l bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NNODES' | sort
env -i $keep srun -n3 -l true && echo fine
"""
    found = output(peer, script, "-N2", "-n4")
    assert found == "0: 0 of 2 on 2\n1: 1 of 2 on 2\nfine\n"


def test_following_a_step(peer: LocalCluster) -> None:
    """sattach prints what comes from then on, and gives the step its input no more than asked."""
    (peer.work / "follow.sh").write_text(
        "#!/bin/sh\nsrun -n2 -o /dev/null sh -c 'while [ ! -e go ]; do sleep 0.05; done; "
        "sleep 1; echo task $SLURM_PROCID'\n"
    )
    job = peer.run(["sbatch", "--parsable", "-n2", "-o", "/dev/null", "follow.sh"]).stdout.strip()
    until("the step", lambda: f"{job}.0" in peer.run(["squeue", "-hs", "-j", job]).stdout)
    layout = peer.run(["sattach", "--layout", f"{job}.0"]).stdout
    assert re.search(r"\t2 tasks, 1 nodes \(node\d\)\n\n\tNode 0 \(node\d\), 2 task", layout)
    follower = subprocess.Popen(
        [str(BIN / "sattach"), "-l", f"{job}.0"],
        env=peer.env(),
        cwd=peer.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(0.5)
    (peer.work / "go").touch()
    out, _ = follower.communicate(timeout=30)
    assert sorted(out.splitlines()) == ["0: task 0", "1: task 1"]
    assert follower.returncode == 0


@pytest.mark.parametrize("python", [False, True], ids=["worker", "python"])
def test_bytes_that_are_no_text(peer: LocalCluster, python: bool) -> None:
    """A real Slurm hands them on: arguments, environment, directory, names of job and files."""
    work = os.fsencode(peer.work) + b"/w\xf6rk" + (b"2" if python else b"1")
    os.mkdir(work)
    script = work + b"/s.sh"
    with open(script, "wb") as file:
        file.write(
            b'#!/bin/sh\nprintf "%s\\n" "$PWD" "$1" "$FOO" "$SLURM_JOB_NAME"\n'
            b'srun -J n\xe4me -o step\xfd printf "%s %s\\n" "$1" t\xfc\n'
            b'squeue -h -j $SLURM_JOB_ID -o "%j %Z"\n'
        )
    env = {**{os.fsencode(n): os.fsencode(v) for n, v in peer.env().items()}, b"FOO": b"\xe9"}
    if python:
        env[b"GSCHED_PYTHON_CLIENT"] = b"1"

    def run(*argv: bytes) -> bytes:
        done = subprocess.run(argv, env=env, cwd=work, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b""), argv
        return done.stdout

    said = run(b"sbatch", b"-J", b"gr\xf6", b"-o", b"out\xff.%x", b"s.sh", b"arg\xfe")
    job = peer.ended(int(said.split()[-1]))
    with open(work + b"/out\xff.gr\xf6", "rb") as file:
        listed = b"gr\xf6 " + work
        assert file.read().split(b"\n") == [work, b"arg\xfe", b"\xe9", b"gr\xf6", listed, b""]
    with open(work + b"/step\xfd", "rb") as file:
        assert file.read() == b"arg\xfe t\xfc\n"
    shown = run(b"scontrol", b"show", b"job", b"%d" % job.id)
    assert b" JobName=gr\xf6\n" in shown
    assert b"   WorkDir=" + work + b"\n" in shown
    # Outside of a job; and what the client itself opens.
    assert run(b"srun", b"-n1", b"printf", b"%s", b"\xff\xfe") == b"\xff\xfe"
    run(b"srun", b"-o", b"mine\xfd", b"sh", b"-c", b'printf "%s" "$PWD$FOO"')
    with open(work + b"/mine\xfd", "rb") as file:
        assert file.read() == work + b"\xe9"
    words = b'printf "%s" "$FOO"; srun printf "%s" "$0"'
    assert run(b"salloc", b"-Q", b"-n1", b"sh", b"-c", words, b"\xfc") == b"\xe9\xfc"
