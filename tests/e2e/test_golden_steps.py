"""Steps of the transcripts, run for real: what each task sees, where it runs, what steps get."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster
from sbatch_support import OF_THE_RECORDER, VARYING

#: numbers of the step's own connection
VARYING_IN_STEPS = {*VARYING, "SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_JOB_GROUP"}
AS_RESEARCH = {
    "SBATCH_ACCOUNT": "research",
    "SLURM_ACCOUNT": "research",
    "SALLOC_ACCOUNT": "research",
}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    return shared / "golden/26.05"


@pytest.fixture(scope="module")
def peer() -> Iterator[LocalCluster]:
    """The shape of the recorded cluster, otherwise idle."""
    with LocalCluster("--simulate", "peer") as made:
        yield made


def recorded(path: Path, command: str) -> list[str]:
    """The lines that a command of a transcript printed."""
    text = path.read_text().split(f"$ {command}", 1)[1]
    return text.split("--- stdout\n", 1)[1].split("--- stderr\n", 1)[0].splitlines()


def by_task(lines: list[str]) -> dict[int, dict[str, str]]:
    """Each task's variables, without what varies."""
    found: dict[int, dict[str, str]] = {}
    for line in lines:
        label, _, rest = line.partition(": ")
        name, equals, value = rest.partition("=")
        if equals and label.isdigit() and name not in {*OF_THE_RECORDER, *AS_RESEARCH}:
            value = "..." if name in VARYING_IN_STEPS else value
            found.setdefault(int(label), {})[name] = value
    return found


@pytest.mark.shared
def test_tasks_inside_a_job(peer: LocalCluster, golden: Path) -> None:
    path = golden / "019-env-srun-task.txt"
    line = next(line for line in path.read_text().splitlines() if line.startswith("$ sbatch"))
    script = re.search(r"--wrap '(.*)'$", line)
    assert script
    peer.run(
        [
            *("sbatch", "-W", "-J", "envjob", "-N2", "-n4", "-c2", "--gpus-per-node=2"),
            *("--mem=4G", "-t", "10", "-o", "envs.out", "--wrap", script[1]),
        ],
        env=AS_RESEARCH,
    )
    found = by_task((peer.work / "envs.out").read_text().splitlines())
    assert found == by_task(recorded(path, "cat envs.out"))


@pytest.mark.shared
def test_tasks_outside_a_job(peer: LocalCluster, golden: Path) -> None:
    path = golden / "020-env-srun-alone.txt"
    expected = by_task(recorded(path, "srun -n2 --gres=gpu:1 -l bash -c 'env | sort' | sort"))
    done = peer.run(
        ["srun", "-n2", "--gres=gpu:1", "-l", "bash", "-c", "env | sort"], env=AS_RESEARCH
    )
    found = by_task(done.stdout.splitlines())
    for task in found.values():
        for name in set(task) - set(expected[0]):
            # The test's own surroundings.
            if not name.startswith(("SLURM", "SRUN")):
                del task[name]
    assert found == expected


@pytest.mark.shared
def test_shell_of_salloc(peer: LocalCluster, golden: Path) -> None:
    lines = recorded(golden / "021-env-salloc.txt", "salloc -N2")
    script = 'env | grep -E "SLURM|CUDA" | sort; srun -l hostname | sort'
    done = peer.run(
        ["salloc", "-N2", "--gres=gpu:1", "-t", "5", "bash", "-c", script], env=AS_RESEARCH
    )

    def told(text: list[str]) -> dict[str, str]:
        pairs = dict(line.split("=", 1) for line in text if line.startswith(("SLURM", "CUDA")))
        return {
            name: "..." if name in VARYING_IN_STEPS else value
            for name, value in pairs.items()
            if name not in AS_RESEARCH
        }

    assert told(done.stdout.splitlines()) == told(lines)
    assert [line.split(":")[0] for line in done.stdout.splitlines()[-2:]] == ["0", "1"]


@pytest.mark.shared
def test_steps_of_a_script(peer: LocalCluster, golden: Path) -> None:
    """Transcript 038: shapes, refusals, steps beside each other, overcommit. What runs at the same
    time is printed in any order; GPUs that are free may have other numbers."""
    path = golden / "038-srun-inside.txt"
    script = path.read_text().split("# file in.sh\n")[1].split("# end of file")[0]
    # Which of two nodes was done first with the step before is chance.
    script = script.replace("squeue -s\n", "")
    (peer.work / "in.sh").write_text(script)
    job = peer.run(["sbatch", "--parsable", "-W", "in.sh"]).stdout.strip()
    found = (peer.work / "in-steps.out").read_text().splitlines()
    expected = recorded(path, "cat in-steps.out")

    def told(lines: list[str], number: str) -> list[str]:
        end = next((at for at, line in enumerate(lines) if "squeue -s" in line), len(lines))
        kept = []
        for line in lines[:end]:
            line = re.sub(r"^([0-9]+): vm$", r"\1: HOST", line)
            if line == "vm" or not re.search(r"[^a-zA-Z0-9-]", line):
                line = "HOST" if not line.startswith("node") else line
            line = re.sub(r"node[12]: task 0: Exited", "NODE: task 0: Exited", line)
            kept.append(line.replace(f"job {number}:", "job N:"))
        return sorted(kept)

    host = peer.run(["hostname"]).stdout.strip()
    found = [re.sub(rf"^([0-9]+: )?{re.escape(host)}$", r"\1vm", line) for line in found]
    assert told(found, job) == told(expected, "291")
    rows = recorded(path, "sacct -j 291")
    done = peer.run(
        ["sacct", "-j", job, "-o", "jobid,jobname,state,exitcode,ntasks,nodelist,alloctres%60"]
    )

    def shares(lines: list[str]) -> list[list[str]]:
        table = [line.split() for line in lines[2:] if "." in line.split()[0]]
        for row in table:
            row[0] = row[0].partition(".")[2]
        # The two steps that run beside each other, and the one after them, may change places.
        return [row for row in table if row[0] not in ("4", "5", "6")]

    assert shares(done.stdout.splitlines()) == shares(rows)


HETERO = """#!/bin/sh
#SBATCH -n2 -w node1 -o het.out
#SBATCH hetjob
#SBATCH -n3 -w node2
srun -l --het-group=0,1 sh -c "$SAY" | sort
srun -l --het-group=1 sh -c "$SAY" | sort
srun -l sh -c "$SAY" | sort
srun -l -n1 --het-group=0 sh -c "$SAY" : -n2 --het-group=1 sh -c "$SAY" | sort
"""


def test_steps_over_components(peer: LocalCluster) -> None:
    """What a 22.05 said in the same job."""
    say = (
        "echo $SLURMD_NODENAME $SLURM_PROCID/$SLURM_NTASKS $SLURM_NODEID $SLURM_GTIDS "
        "$SLURM_JOB_NODELIST $SLURM_STEP_TASKS_PER_NODE"
    )
    (peer.work / "het.sh").write_text(HETERO)
    peer.run(["sbatch", "-W", "het.sh"], env={"SAY": say})
    assert (peer.work / "het.out").read_text().splitlines() == [
        "0: node1 0/5 0 0,1 node[1-2] 2,3",
        "1: node1 1/5 0 0,1 node[1-2] 2,3",
        "2: node2 2/5 1 2,3,4 node[1-2] 2,3",
        "3: node2 3/5 1 2,3,4 node[1-2] 2,3",
        "4: node2 4/5 1 2,3,4 node[1-2] 2,3",
        "0: node2 0/3 0 0,1,2 node2 3",
        "1: node2 1/3 0 0,1,2 node2 3",
        "2: node2 2/3 0 0,1,2 node2 3",
        "0: node1 0/2 0 0,1 node1 2",
        "1: node1 1/2 0 0,1 node1 2",
        "0: node1 0/3 0 0 node[1-2] 1,2",
        "1: node2 1/3 1 1,2 node[1-2] 1,2",
        "2: node2 2/3 1 1,2 node[1-2] 1,2",
    ]


def test_programs_around_tasks_go_with_scripts_too(tmp_path: Path) -> None:
    """TaskProlog: what it prints and exports, in the script and in each task, as a 22.05."""
    hook = tmp_path / "prolog"
    hook.write_text('#!/bin/sh\necho "print prolog of $SLURM_PROCID"\necho export MINE=1\n')
    hook.chmod(0o755)
    tmp_path.chmod(0o755)
    with LocalCluster("--simulate", "peer", "--set", f"TaskProlog={hook}") as made:
        script = "echo script $MINE; srun -n2 -l printenv MINE | sort"
        made.run(["sbatch", "-W", "-n2", "-o", "out", "--wrap", script])
        assert (made.work / "out").read_text().splitlines() == [
            "prolog of 0",
            "script 1",
            "0: 1",
            "0: prolog of 0",
            "1: 1",
            "1: prolog of 1",
        ]
