"""How a job says that its work is saved: `gsched saved`, and what its node makes of files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gsched.model import Job, JobSpec, NodeAlloc
from gsched.wire.nodes import LaunchSpec
from gsched_cli.saved import saved
from slurmd_compat.agent import Key, Record, WriteNotice
from slurmd_compat.notices import Notices, make_marks, variables

KEY = Key(17, 1, "c")


class Log:
    def error(self, text: str) -> None:
        raise AssertionError(text)


@pytest.fixture
def told(tmp_path: Path) -> Any:
    (tmp_path / "job00017").mkdir()
    make_marks(tmp_path / "job00017", os.getuid(), os.getgid(), root=False)
    heard: list[str] = []
    notices = Notices(tmp_path, lambda _, word: heard.append(word), Log())
    yield notices, heard, variables(tmp_path, KEY)
    notices.close()


def say(env: dict[str, str], *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(saved, list(words), env=env)
    return done.exit_code, done.output


def test_the_command_marks_and_the_node_hears_it(told: Any) -> None:
    notices, heard, env = told
    notices.watch(KEY)
    assert say(env, "--checkpoint") == (0, "")
    notices.read(notices.fd)
    assert heard == ["checkpoint"]
    assert say(env) == (0, "")
    notices.read(notices.fd)
    assert heard == ["checkpoint", "saved"]
    # Once more is news again.
    assert say(env) == (0, "")
    notices.read(notices.fd)
    assert heard == ["checkpoint", "saved", "saved"]


def test_outside_of_a_job() -> None:
    code, text = say({"GSCHED_PREEMPT_SAVED": ""})
    assert (code, text) == (
        1,
        "Error: GSCHED_PREEMPT_SAVED is not set: this is said within a job\n",
    )
    code, text = say({"GSCHED_PREEMPT_SAVED": "/nowhere/job00017/marks/saved"})
    assert (code, text) == (1, "Error: /nowhere/job00017/marks/saved: No such file or directory\n")


def notice() -> WriteNotice:
    job = Job(17, 1, 1, "u", "g", JobSpec(), attempt=1, alloc=[NodeAlloc("n1", 1, 1, 1)])
    return WriteNotice(KEY, Record(17, 1, "c", "b", LaunchSpec(job, 0, [], 60)), 30, "requeue", "")


def test_what_was_said_before_it_had_to_make_way_is_no_answer(told: Any) -> None:
    # The daemon is restarted: what is there is looked at anew.
    notices, heard, env = told
    say(env)
    say(env, "--checkpoint")
    mark = Path(env["GSCHED_PREEMPT_SAVED"])
    os.utime(mark, ns=(10**18, 10**18))
    notices.write(notice())
    notices.watch(KEY)
    assert heard == ["checkpoint"]
    notices.forget(KEY)
    heard.clear()
    say(env)
    notices.watch(KEY)
    assert sorted(heard) == ["checkpoint", "saved"]


def test_a_second_directory_for_marks_is_none(tmp_path: Path) -> None:
    make_marks(tmp_path, os.getuid(), os.getgid(), root=False)
    (tmp_path / "marks" / "saved").touch()
    make_marks(tmp_path, os.getuid(), os.getgid(), root=False)
    assert (tmp_path / "marks" / "saved").exists()
