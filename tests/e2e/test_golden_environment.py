"""Batch jobs of the transcripts, run for real: what each sees of its allocation, name by name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster
from sbatch_support import OF_THE_RECORDER, VARYING, Step, plain_sbatch, read_transcript

#: (transcript, arguments) -> why it differs here
KNOWN: dict[tuple[str, str], str] = {
    ("012-sbatch-gpu-options", "--gpus=1 --gres-flags=enforce-binding"): (
        "the recorded GPUs are near to no known core, and Slurm then gives all cores of the node; "
        "here they are near to half of the cores, and the job gets what it asked for"
    ),
    ("013-sbatch-tasks-nodes", "-n8 --spread-job"): "--spread-job has no effect yet, and says so",
}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    return shared / "golden/26.05"


@pytest.fixture(scope="module")
def peer() -> Iterator[LocalCluster]:
    """The shape of the recorded cluster, otherwise idle."""
    with LocalCluster("--simulate", "peer") as made:
        yield made


def variables(text: str) -> dict[str, str]:
    """The NAME=value lines of an output, without what varies."""
    pairs = (line.partition("=") for line in text.splitlines())
    found = {name: value for name, equals, value in pairs if equals and name.isidentifier()}
    return {
        name: "..." if name in VARYING else value
        for name, value in found.items()
        if name not in OF_THE_RECORDER
    }


def jobs(path: Path) -> Iterator[tuple[list[str], str, str]]:
    """(arguments, output file, its recorded content) of every job whose output is shown."""
    _, steps = read_transcript(path)
    for at, step in enumerate(steps):
        words = plain_sbatch(step.command)
        if words is None or step.code or not step.out.startswith("Submitted"):
            continue
        shown = next((one for one in steps[at + 1 : at + 2] if _shows(one)), None)
        if shown is not None and "-o" in words[1]:
            arguments = list(words[1])
            yield arguments, arguments[arguments.index("-o") + 1], shown.out


def _shows(step: Step) -> bool:
    return re.match(r"cat \S+(; rm -f \S+)?$", step.command) is not None


#: what gsched alone tells a job: how to answer when it has to make way (docs/preemption.md)
OWN = ("GSCHED_PREEMPT_NOTICE", "GSCHED_PREEMPT_SAVED", "GSCHED_CHECKPOINT_DONE")


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["012-sbatch-gpu-options", "013-sbatch-tasks-nodes", "018-env-batch"]
)
def test_jobs_see_what_they_see_on_slurm(peer: LocalCluster, golden: Path, name: str) -> None:
    different: list[str] = []
    count = 0
    for arguments, output, recorded in jobs(golden / f"{name}.txt"):
        expected = variables(recorded)
        if not expected:
            continue
        count += 1
        done = peer.run(
            ["sbatch", *arguments],
            check=False,
            env={"SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "research"},
        )
        said = shlex.join(arguments[: arguments.index("-o")])
        if done.returncode:
            different.append(f"{said}: exit {done.returncode}: {done.stderr.strip()}")
            continue
        path = peer.work / output
        found = variables(path.read_text())
        for ours in ("SBATCH_WAIT", "SBATCH_ACCOUNT", *OWN):
            found.pop(ours, None)
        path.unlink()
        if found != expected and (name, said) not in KNOWN:
            lines = [
                f"  {key}: {found.get(key, 'not there')}, on Slurm {expected.get(key, 'not there')}"
                for key in sorted(expected.keys() | found.keys())
                if expected.get(key) != found.get(key)
            ]
            different.append("\n".join([said, *lines]))
    assert count >= {"018-env-batch": 1}.get(name, 15), f"only {count} jobs were found in {name}"
    assert not different, "\n".join(["", *different])


@pytest.mark.shared
def test_tasks_of_an_array(peer: LocalCluster, golden: Path) -> None:
    text = (golden / "022-env-array.txt").read_text().partition("==> enva-2.out <==")[2]
    second, _, fourth = text.partition("==> enva-4.out <==")
    command = ["sbatch", "-a", "2,4", "-J", "enva", "-o", "enva-%a.out"]
    peer.run(
        [*command, "--wrap", "env | grep SLURM | sort"],
        env={"SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "research"},
    )
    for task, recorded in ((2, second), (4, fourth)):
        found = variables((peer.work / f"enva-{task}.out").read_text())
        assert found == variables(recorded.partition("--- stderr")[0])


@pytest.mark.shared
def test_forms_of_export(peer: LocalCluster, golden: Path) -> None:
    """What of the submitter's environment comes through; HOME and PATH are another user's here."""
    different: list[str] = []
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    count = 0
    for arguments, output, recorded in jobs(golden / "011-sbatch-env-export.txt"):
        count += 1
        # The recorded shell had MYVAR=hello; commands are found by their own path here.
        sbatch = peer.run(["sh", "-c", "command -v sbatch"]).stdout.strip()
        env = {"SBATCH_WAIT": "1", "MYVAR": "hello", "PATH": path}
        # Its exit code is that of the last grep.
        peer.run([sbatch, *arguments], env=env, check=False)
        found = (peer.work / output).read_text()
        for text in (found, recorded):
            assert text.startswith("MYVAR=")
        mine, theirs = _told(found), _told(recorded)
        if mine != theirs:
            different.append(f"{shlex.join(arguments[:2])}: {mine}, on Slurm {theirs}")
    assert count >= 8
    assert not different, "\n".join(["", *different])


def _told(text: str) -> tuple[str, ...]:
    """MYVAR, NEW, whether HOME and USER are set, FOO, and SLURM_EXPORT_ENV."""
    first, *rest = text.splitlines()
    found = re.fullmatch(r"MYVAR=(.*?) NEW=(.*?) HOME=(.*?) PATH=.*? USER=(.*?) FOO=(.*)", first)
    assert found, first
    myvar, new, home, user, foo = found.groups()
    export = next((line for line in rest if "SLURM_EXPORT_ENV" in line), "")
    return myvar, new, str(bool(home)), str(bool(user)), foo, export
