"""sbatch against transcripts of Slurm 26.05: same words, same streams, same exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sbatch_support import plain_sbatch, read_transcript, sbatch

#: themes whose sbatch commands are replayed
TRANSCRIPTS = (
    *("001-sbatch-basic", "002-sbatch-parsable", "003-sbatch-wrap", "004-sbatch-bad-options"),
    *("005-sbatch-script-errors", "006-sbatch-limits-reached", "007-sbatch-array"),
    *("008-sbatch-dependency", "010-sbatch-hold-begin-priority", "011-sbatch-env-export"),
    *("012-sbatch-gpu-options", "013-sbatch-tasks-nodes", "014-sbatch-time-formats"),
    *("015-sbatch-output-patterns", "044-many-sbatch-directives"),
)

#: refusals that need to know the GPUs found, the jobs that exist, or accounting: not sbatch's
ELSEWHERE = (
    *("--gres=gpu:x", "--gres=gpu:v100:1", "--gres=gpu:9", "--gpus=33", "--account=nosuch"),
    *("--qos=nosuch", "--dependency=afterok:99999999", "-C rackA -N3", "rackA&rackB"),
    *(
        "-x node[1-4]",
        "--help",
        "--usage",
    ),
)


def _submitted(text: str) -> str:
    """Job ids vary from run to run."""
    return re.sub(r"\b[0-9]+(?=$|;)", "N", text, flags=re.MULTILINE)


def _cases(
    shared: Path, name: str, tmp_path: Path
) -> list[tuple[dict[str, str], list[str], object]]:
    files, steps = read_transcript(shared / "golden" / "26.05" / f"{name}.txt")
    basic, _ = read_transcript(shared / "golden" / "26.05" / "001-sbatch-basic.txt")
    for file, text in {**basic, **files}.items():
        if file == "dos.sh":
            text = text.replace("\n", "\r\n")
        (tmp_path / file).write_bytes(text.encode())
    found = []
    for step in steps:
        plain = plain_sbatch(step.command)
        if plain is not None and not any(part in step.command for part in ELSEWHERE):
            found.append((plain[0], list(plain[1]), step))
    return found


@pytest.mark.shared
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(shared: Path, tmp_path: Path, name: str) -> None:
    cases = _cases(shared, name, tmp_path)
    assert cases
    wrong = []
    for env, argv, step in cases:
        ran = sbatch(*argv, env=env, cwd=tmp_path)
        # What has no effect here is named, which Slurm has no reason to do.
        lines = ran.err.splitlines(keepends=True)
        err = "".join(line for line in lines if "no effect in this release" not in line)
        got = (_submitted(ran.out), err, ran.code)
        expected = (_submitted(step.out), step.err, step.code)
        if got != expected:
            wrong.append((step.command, got, expected))
    assert not wrong, "\n".join(f"{command}\n  got  {a}\n  want {b}" for command, a, b in wrong)
