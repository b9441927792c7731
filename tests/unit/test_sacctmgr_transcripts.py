"""sacctmgr beside transcripts of a real Slurm's (22.05.8; where 26.05 is known to answer otherwise,
that counts)."""

from __future__ import annotations

import pwd
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.policy_support import peer, transcript

DATA = Path(__file__).parent / "data" / "sacctmgr"
THEMES = sorted(path.name for path in DATA.glob("*.txt"))

#: command -> why it is answered otherwise here
DIFFERENT = {
    "-P list tres": "26.05 counts gpumem and gpuutil with GPUs (golden 045)",
    "list tres type=gres": "the same",
    "-P list qos all": "26.05 has two columns more (golden 035)",
    "-P list cluster format=cluster,nodecount,clusternodes,flags,tres,classification": (
        "no cluster of gsched has the flag MultipleSlurmd"
    ),
    "-i modify user games set maxjobs=5": "the rule is named instead of 'Nothing modified'",
    "-i modify account team set defaultqos=slow": "what is refused does not exit with 0",
    "-i modify user kim set qos-=fast": "the same",
    "-i modify account root set qos=normal": "the same",
}
#: answers that Slurm reads letter by letter, and what it reads of them again after a command
_ANOTHER_WAY = ("maybe", "list account name=physics")
#: what a refused `add` prints first in 22.05 and not in 26.05 (golden 043)
_PROBLEM = re.compile(r" (error: )?Problem adding .*: (Access/permission denied)")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _comparable(out: str, err: str, code: int) -> tuple[list[str], list[str], int]:
    # The rule after a refusal is ours; lists come in the order of 26.05, which is by name.
    err = re.sub(r"(Access/permission denied) \(.*\)$", r"\1", err, flags=re.M)
    problem = _PROBLEM.search(err)
    if problem:
        return [], [problem[2]], code
    return sorted(out.splitlines()), sorted(err.splitlines()), code


@pytest.fixture(autouse=True)
def users_of_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine where it was recorded had these users; this one need not have them."""
    known = pwd.getpwnam
    theirs = {"alice": known("root"), "bob": known("root")}
    monkeypatch.setattr(pwd, "getpwnam", lambda name: theirs.get(name) or known(name))


@pytest.mark.parametrize("theme", THEMES)
def test_answers_as_slurm(theme: str) -> None:
    reader = peer()
    compared = 0
    for command in transcript(DATA / theme):
        line = command.line.removeprefix("sacctmgr").strip()
        reader.user = command.user
        reader.uid = 0 if command.user == "root" else 1000
        if not command.line.startswith("sacctmgr") or " | " in line or ".cfg" in line:
            # Other commands, and files of the machine where it was recorded.
            continue
        if "; " in line:
            reader.ask(line.partition("; ")[0])
            continue
        out, err, code = reader.ask(line, command.stdin)
        if line in DIFFERENT or command.stdin.startswith(_ANOTHER_WAY):
            continue
        got = _comparable(out, err, code)
        assert got == _comparable(command.out, command.err, command.code), line
        compared += 1
    assert compared
