"""What becomes of a site's program that fails, in each way in which one can, beside each of its
callers. Expected is what a Slurm 22.05 did and its man pages say; where it leaves a caller's
programs out, so does the table."""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mover_support import Moving, build
from stepd_support import STAMP, Client, Start, tasks
from unit.ledger_support import Bench

from gsched.config import parse_config
from gsched.controller import hooks as controller_hooks
from slurmd_compat.agent import HookDone, Key
from slurmd_compat.hooks import Command, Hooks

#: way -> the program; None: there is none
WAYS: dict[str, str | None] = {
    "fails": "#!/bin/sh\nexit 3\n",
    "signal": "#!/bin/sh\nkill -9 $$\n",
    "hangs": "#!/bin/sh\nsleep 60 & wait\n",
    "missing": None,
    "no right": "#!/bin/sh\nexit 0\n",
    "bad interpreter": "#!/no/such/shell\n",
    "talks": "#!/bin/sh\nhead -c 300000 /dev/zero\nhead -c 300000 /dev/zero >&2\n",
}
#: Slurm's words for a program that is not there, or may not be run
NOT_THERE = {"missing": "No such file or directory", "no right": "Permission denied"}


def made(folder: Path, way: str) -> str:
    path, text = folder / "program", WAYS[way]
    if text is not None:
        path.write_text(text)
        path.chmod(0o644 if way == "no right" else 0o755)
    return str(path)


# ---- Prolog, Epilog: a failure is the node's -----------------------------------------------------


def on_a_node(program: str) -> str:
    """What the node says of a Prolog; PrologEpilogTimeout=1."""
    poll, now = select.epoll(), [0]
    hooks = Hooks(poll.register, poll.unregister)
    done: HookDone | None = hooks.start(
        Key(1, 1, "c"), "prolog", [Command([program], {"PATH": "/usr/bin:/bin"}, 1)], 0
    )
    while done is None:
        for fd, _ in poll.poll(0.3):
            done = hooks.ended(fd, now[0])
        # A clock of the test's own: what hangs has had its second.
        now[0] += 500
        hooks.on_time(now[0])
    poll.close()
    return done.error.replace(program, "P")


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("fails", "prolog P failed with exit code 3"),
        ("signal", "prolog P was ended by signal 9"),
        ("hangs", "prolog P did not end within 1 s"),
        ("missing", "prolog P: No such file or directory"),
        ("no right", "prolog P: Permission denied"),
        ("bad interpreter", "prolog P: No such file or directory"),
        ("talks", ""),
    ],
)
def test_prolog(tmp_path: Path, way: str, error: str) -> None:
    """Any failure drains the node (tests/issues/test_node_that_cannot_start_jobs.py)."""
    assert on_a_node(made(tmp_path, way)) == error


# ---- PrologSlurmctld, EpilogSlurmctld ------------------------------------------------------------


def beside_the_controller(*programs: str, epilog: bool = False) -> str:
    conf = "ClusterName=c\nSlurmctldHost=h\nPrologEpilogTimeout=1\nNodeName=n1\n"
    conf += (
        f"PartitionName=p Nodes=ALL\n{'Epilog' if epilog else 'Prolog'}Slurmctld={programs[0]}\n"
    )
    conf += "".join(
        f"{'Epilog' if epilog else 'Prolog'}Slurmctld={program}\n" for program in programs[1:]
    )
    hooks = controller_hooks.Hooks(parse_config({"slurm.conf": conf}))
    job = Bench().job()
    hooks.run(*(([], [job]) if epilog else ([job], [])))
    assert select.select([hooks.fd], [], [], 20)[0]
    (ended,) = hooks.take()
    return ended.error


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("fails", "ended with 3"),
        ("signal", "was ended by signal 9"),
        ("hangs", "was killed after 1 s (PrologEpilogTimeout)"),
        ("missing", "could not be run"),
        ("no right", "could not be run"),
        ("bad interpreter", "could not be run"),
        ("talks", ""),
    ],
)
def test_prolog_slurmctld(tmp_path: Path, way: str, error: str) -> None:
    """Any failure queues a batch job again (tests/unit/test_ledger_hooks.py). A 22.05 takes one
    that was killed, or is not there, for one that went well: jobs run unprepared."""
    program = made(tmp_path, way)
    said = beside_the_controller(program)
    assert said.startswith(f"PrologSlurmctld {program} {error}" if error else "")
    assert bool(said) == bool(error)


def test_each_epilog_that_fails_is_told(tmp_path: Path) -> None:
    """The second went well; of the first one nothing was heard."""
    good = tmp_path / "good"
    good.write_text("#!/bin/sh\n")
    good.chmod(0o755)
    bad = made(tmp_path, "fails")
    assert (
        beside_the_controller(bad, str(good), epilog=True) == f"EpilogSlurmctld {bad} ended with 3"
    )


# ---- TaskProlog, TaskEpilog: the task's matter ---------------------------------------------------


def around_a_task(start: Start, client: Client, key: str, program: str) -> tuple[int, str, str]:
    """Exit code of the task, its output, its errors without their dates."""
    step = start("", *tasks(1, "echo ran"), (key, program), *client.records(), out="")
    status = step.finish()
    client.finish()
    said = re.sub(STAMP, "", client.err[0].decode()).replace(program, "P")
    assert not re.search(STAMP, said)
    return status.tasks[0].wstatus, client.out.get(0, b"").decode(), said


CANNOT = (
    "run_command: slurm task_prolog can not be executed (P) {}\n"
    "slurm task_prolog did not exit normally. reason: Run command failed - configuration error\n"
    "TaskProlog failed status=1\n"
)


@pytest.mark.parametrize(
    ("way", "code", "said"),
    [
        ("fails", 3, "TaskProlog failed status=3\n"),
        (
            "signal",
            1,
            "slurm task_prolog did not exit normally. reason: \nTaskProlog failed status=1\n",
        ),
        ("missing", 1, CANNOT.format(NOT_THERE["missing"])),
        ("no right", 1, CANNOT.format(NOT_THERE["no right"])),
        ("bad interpreter", 127, "TaskProlog failed status=127\n"),
        ("talks", 0, ""),
    ],
)
@pytest.mark.parametrize("start", ["nobody"], indirect=True)
def test_task_prolog(start: Start, client: Client, way: str, code: int, said: str) -> None:
    found = around_a_task(start, client, "task_prolog", made(start.out, way))
    assert found == (code << 8, "" if code else "ran\n", said)


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("fails", "TaskEpilog failed status=768\n"),
        ("signal", "TaskEpilog failed status=9\n"),
        (
            "missing",
            "Could not run slurm task_epilog [P]: access denied\nTaskEpilog failed status=-1\n",
        ),
        (
            "no right",
            "Could not run slurm task_epilog [P]: access denied\nTaskEpilog failed status=-1\n",
        ),
        (
            "bad interpreter",
            "execve(P): No such file or directory\nTaskEpilog failed status=32512\n",
        ),
    ],
)
@pytest.mark.parametrize("start", ["nobody"], indirect=True)
def test_task_epilog(start: Start, client: Client, way: str, said: str) -> None:
    """The task's end stays what it was."""
    found = around_a_task(start, client, "task_epilog", made(start.out, way))
    assert found == (0, "ran\n", said)


# ---- SrunProlog, SrunEpilog: where srun runs -----------------------------------------------------


@pytest.fixture(scope="module")
def mover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client") / "gsched-mover")


@pytest.fixture
def srun(mover: Path) -> Iterator[Callable[..., Moving]]:
    begun: list[Moving] = []

    def begin(**how: Any) -> Moving:
        begun.append(Moving(mover, **how))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


@pytest.mark.parametrize(
    ("way", "aborts", "said"),
    [
        ("fails", True, ["error: srun {} failed {}3{}"]),
        ("signal", True, ["error: script did not exit normally", "error: srun {} failed {}1{}"]),
        ("missing", False, ["Access denied for P: No such file or directory"]),
        (
            "bad interpreter",
            True,
            [
                "error: Failed to execute srun prolog/epilog script: No such file or directory",
                "error: srun {} failed {}127{}",
            ],
        ),
    ],
)
@pytest.mark.parametrize("which", ["prolog", "epilog"])
def test_srun_prolog_and_epilog(
    srun: Callable[..., Moving], tmp_path: Path, which: str, way: str, aborts: bool, said: list[str]
) -> None:
    program = made(tmp_path, way)
    client = srun(plan={which: program, "arg": ["cmd"]})
    agent, nodes = client.step()
    if aborts and which == "prolog":
        agent.expect("G")
    _, err = client.end(agent, nodes)
    words = ("prolog", "rc = ", ". Aborting step.") if which == "prolog" else (which, "status=", "")
    expected = [f"srun: {line.format(*words)}" for line in said]
    assert err.decode().replace(program, "P").splitlines() == expected
