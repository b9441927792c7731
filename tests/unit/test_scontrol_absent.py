"""Keywords of scontrol that change nothing here: what a 22.05 says of their words."""

from __future__ import annotations

import os

import pytest
from views_support import invoke, mixed_queue

from gsched_cli import scontrol, scontrol_pids


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("setdebug", "too few arguments for keyword:setdebug\n"),
        ("setdebug foo", "invalid debug level: foo\n"),
        ("setdebug 3 node1", "too many arguments for keyword:setdebug\n"),
        ("setdebugflags", "too few arguments for keyword:setdebugflags\n"),
        ("setdebugflags foo", "invalid debug flag: foo\nUsage: setdebugflags [+|-]NAME\n"),
        ("schedloglevel", "too few arguments for keyword:schedloglevel\n"),
        ("schedloglevel foo", "invalid schedlog level: foo\n"),
        (
            "schedloglevel 1",
            "slurm_set_schedlog_level error: Requested operation is presently disabled\n",
        ),
        ("fsdampeningfactor", "too few arguments for keyword:fsdampeningfactor\n"),
        ("cancel_reboot", "missing argument for keyword:cancel_reboot\n"),
        ("cancel_reboot node1", "slurm_update error: Invalid node state specified\n"),
        (
            "reboot node1",
            "scontrol: error: RebootProgram isn't defined\n"
            "scontrol_reboot_nodes error: Unspecified error\n",
        ),
        ("pidinfo", "missing argument for keyword:pidinfo\n"),
        ("pidinfo foo", "Failed to locate job for requested pid\n"),
    ],
)
def test_words(words: str, said: str) -> None:
    reader = mixed_queue()
    assert invoke(scontrol.run, words.split(), reader, {}, "") == ("", said, 1)
    assert reader.sent == []


def test_what_the_configuration_decides() -> None:
    _, err, code = invoke(scontrol.run, ["setdebug", "debug2"], mixed_queue(), {}, "")
    assert "SlurmctldDebug" in err and err.count("\n") == 1 and code == 1


def test_a_process_belongs_to_who_started_it() -> None:
    line = list(scontrol_pids._ancestry(os.getpid()))
    assert line[:2] == [os.getpid(), os.getppid()]
    assert line[-1] in (0, 1) or len(line) > 1
