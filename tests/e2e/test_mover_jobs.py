"""The C client with a job that has not started, with salloc's shell, and with a terminal."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mover_support import PATIENCE, Moving, Terminal, build, numbers
from once_support import once
from waiting import until

Start = Callable[..., Moving]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "client/gsched-mover", build)


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """An installation: the client, and beside it an squeue that says what stands in `state` and an
    scancel that notes its words."""
    (tmp_path / "bin").mkdir()
    binary = tmp_path / "bin/gsched-mover"
    os.link(made, binary)
    (tmp_path / "bin/squeue").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat {tmp_path}/state\n'
    )
    (tmp_path / "bin/scancel").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/cancelled\n')
    for name in ("squeue", "scancel"):
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "state").write_text("PENDING\n")
    return binary


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    begun: list[Moving] = []

    def begin(**how: Any) -> Moving:
        begun.append(Moving(place, **how))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


WAITS = {
    "mode": "job",
    "job": "42",
    "pending": "srun: job 42 queued and waiting for resources\n",
    "granted": "srun: job 42 has been allocated resources\n",
    "revoked": "srun: Force Terminated JobId=42\nsrun: Job allocation 42 has been revoked\n",
}


def heard(stream: Any, text: bytes) -> bytes:
    got = b""
    while text not in got:
        data = os.read(stream.fileno(), 4096)
        assert data, got
        got += data
    return got


# ---- until the job starts ------------------------------------------------------------------------


def test_a_job_that_starts_at_once_is_silent(start: Start) -> None:
    client = start(plan=WAITS)
    agent, nodes = client.step()
    assert client.end(agent, nodes) == (b"", b"")


def test_a_job_that_starts_slowly_but_did_not_wait_is_silent(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("CONFIGURING\n")
    client = start(plan=WAITS)
    until("squeue was asked", (tmp_path / "asked").exists)
    time.sleep(0.2)
    agent, nodes = client.step()
    assert client.end(agent, nodes) == (b"", b"")


def test_a_job_that_waits_says_so_once(start: Start, tmp_path: Path) -> None:
    client = start(plan=WAITS)
    heard(client.process.stderr, WAITS["pending"].encode())
    until("it was asked again", lambda: len((tmp_path / "asked").read_text().splitlines()) > 1)
    assert (tmp_path / "asked").read_text().splitlines()[0] == "-h -t all -o %T|%r -j 42"
    agent, nodes = client.step()
    assert client.end(agent, nodes) == (b"", WAITS["granted"].encode())


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_a_signal_cancels_a_job_that_waits(start: Start, tmp_path: Path, name: str) -> None:
    """As in the transcript of Slurm 26.05: `kill -INT` of an srun whose job waits."""
    client = start(plan=WAITS)
    heard(client.process.stderr, b"queued")
    client.process.send_signal(getattr(signal, f"SIG{name}"))
    assert client.done(1)[1].decode() == WAITS["revoked"]
    assert (tmp_path / "cancelled").read_text() == "-Q 42\n"


@pytest.mark.parametrize("name", ["srun", "salloc"])
def test_a_job_that_another_has_cancelled(start: Start, tmp_path: Path, name: str) -> None:
    """The sentences of real Slurm."""
    client = start(name=name, plan={**WAITS, "mode": "job" if name == "srun" else "salloc"})
    heard(client.process.stderr, b"queued")
    (tmp_path / "state").write_text("CANCELLED\n")
    said = {
        "srun": "srun: Job has been cancelled\n"
        "srun: error: Unable to allocate resources: Job/step already completing or completed\n",
        "salloc": "salloc: Job allocation 42 has been revoked.\n"
        "salloc: Job has been cancelled\n"
        "salloc: error: Job submit/allocate failed: Job/step already completing or completed\n",
    }
    assert client.done(1)[1].decode() == said[name]
    assert not (tmp_path / "cancelled").exists()


EXPIRED = {
    "srun": "srun: error: Unable to allocate resources: Requested nodes are busy\n",
    "salloc": "salloc: error: Unable to allocate resources: Connection timed out\n"
    "salloc: Job allocation 42 has been revoked.\n",
}


@pytest.mark.parametrize("name", ["srun", "salloc"])
@pytest.mark.parametrize("state", ["PENDING", "CANCELLED"])
def test_a_job_that_has_not_started_in_time(
    start: Start, tmp_path: Path, name: str, state: str
) -> None:
    """The sentences of a real Slurm 22.05, whether the client finds it first or the controller."""
    (tmp_path / "state").write_text(f"{state}\n")
    mode = "job" if name == "srun" else "salloc"
    texts = {"pending": "", "expires": "2", "expired": EXPIRED[name]}
    client = start(name=name, plan={**WAITS, **texts, "mode": mode})
    assert client.done(1)[1].decode() == EXPIRED[name]
    assert (tmp_path / "cancelled").read_text() == "-Q 42\n"


@pytest.mark.parametrize("name", ["srun", "salloc"])
def test_a_job_whose_prolog_has_failed(start: Start, tmp_path: Path, name: str) -> None:
    """The sentences of a real Slurm 22.05."""
    client = start(name=name, plan={**WAITS, "mode": "job" if name == "srun" else "salloc"})
    heard(client.process.stderr, b"queued")
    (tmp_path / "state").write_text("CANCELLED|Prolog\n")
    said = {
        "srun": "srun: error: Job allocation 42 has been revoked\n"
        "srun: PrologSlurmctld failed, job killed\n"
        "srun: Force Terminated JobId=42\n",
        "salloc": "salloc: Granted job allocation 42\n"
        "salloc: Waiting for resource configuration\n"
        "salloc: PrologSlurmctld failed, job killed\n"
        "salloc: Job allocation 42 has been revoked.\n"
        "salloc: error: Job allocation 42 has been revoked\n",
    }
    assert client.done(1)[1].decode() == said[name]


def test_a_queue_that_does_not_answer_ends_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "bin/squeue").write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/asked\n"
        "echo slurm_load_jobs error: Unable to contact slurm controller >&2\nexit 1\n"
    )
    client = start(plan=WAITS)
    until("it was asked twice", lambda: _lines(tmp_path / "asked") > 1)
    agent, nodes = client.step()
    assert client.end(agent, nodes) == (b"", b"")


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_step_that_nobody_has_begun_is_given_up(start: Start, tmp_path: Path) -> None:
    client = start(plan={"mode": "step"})
    _ready(client)
    client.process.send_signal(signal.SIGINT)
    assert client.done(1)[1] == b"srun: Cancelled pending job step with signal 2\n"
    # It is the job of others.
    assert not (tmp_path / "cancelled").exists()


def _ready(client: Moving) -> None:
    """The client takes signals: INT is blocked, to be read."""

    def blocked() -> bool:
        with open(f"/proc/{client.process.pid}/status") as file:
            (line,) = [line for line in file if line.startswith("SigBlk:")]
        return bool(int(line.split()[1], 16) & 1 << signal.SIGINT - 1)

    until("the client takes signals", blocked)


# ---- salloc's shell ------------------------------------------------------------------------------


def salloc(start: Start, *arg: str, **plan: Any) -> Moving:
    plan.setdefault("mode", "salloc")
    return start(name="salloc", plan={"job": "9", "arg": list(arg), **plan})


def relinquished(client: Moving, agent: Any, wstatus: int, code: int) -> tuple[bytes, bytes]:
    assert agent.expect("Z") == numbers(wstatus)
    agent.say("e", b"salloc: Relinquishing job allocation 9\n")
    agent.say("X", b"\0")
    return client.done(code)


def test_the_shell_gets_the_allocation(start: Start, tmp_path: Path) -> None:
    client = salloc(start, "sh", "-c", 'echo "$SLURM_JOB_ID" "$A" "$B"; pwd; exit 5', env=["B=y"])
    agent = client.agent()
    agent.say("e", b"salloc: Granted job allocation 9\n")
    agent.say("A", b"SLURM_JOB_ID=9\0A=x z")
    out, err = relinquished(client, agent, 5 << 8, 5)
    assert out == f"9 x z y\n{os.getcwd()}\n".encode()
    assert err == b"salloc: Granted job allocation 9\nsalloc: Relinquishing job allocation 9\n"


def test_the_directory_of_the_shell(start: Start, tmp_path: Path) -> None:
    client = salloc(start, "pwd", chdir=str(tmp_path))
    agent = client.agent()
    agent.say("A", b"")
    assert relinquished(client, agent, 0, 0)[0] == f"{tmp_path}\n".encode()


@pytest.mark.parametrize("command", ["./tool", "tool", "sub/../tool", "{folder}/tool"])
def test_where_a_command_is_looked_for(start: Start, tmp_path: Path, command: str) -> None:
    """salloc's manual page, "Command path resolution": --chdir is the working directory."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "tool").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "tool").chmod(0o755)
    client = salloc(start, command.format(folder=tmp_path), chdir=str(tmp_path))
    agent = client.agent()
    agent.say("A", b"")
    assert relinquished(client, agent, 0, 0)[0] == b"found\n"


def test_a_command_that_is_not_there(start: Start) -> None:
    client = salloc(start, "nosuchcommand")
    agent = client.agent()
    agent.say("A", b"")
    err = relinquished(client, agent, 1 << 8, 1)[1].decode()
    assert err.splitlines() == [
        'salloc: error: _fork_command: Unable to find command "nosuchcommand"',
        "salloc: Relinquishing job allocation 9",
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [("KILL", 0), ("HUP", 0), ("INT", 0), ("QUIT", 0), ("TERM", 1), ("SEGV", 1)],
)
def test_a_shell_that_a_signal_ends(start: Start, name: str, code: int) -> None:
    """salloc's manual page: killed by HUP, INT, KILL or QUIT it returns 0."""
    number = getattr(signal, f"SIG{name}")
    client = salloc(start, "sh", "-c", f"ulimit -c 0; kill -{name} $$")
    agent = client.agent()
    agent.say("A", b"")
    relinquished(client, agent, number, code)


def test_a_revoked_allocation_leaves_the_shell_alone(start: Start) -> None:
    """Real salloc says so and waits for its command, whose exit code is its own."""
    client = start(
        name="salloc",
        stdin=subprocess.PIPE,
        plan={"mode": "salloc", "job": "9", "arg": ["sh", "-c", "read line; exit 3"]},
    )
    agent = client.agent()
    agent.say("A", b"")
    agent.say("e", b"salloc: Job allocation 9 has been revoked.\n")
    agent.say("R")
    heard(client.process.stderr, b"revoked.\n")
    assert client.process.stdin is not None
    client.process.stdin.write(b"go on\n")
    client.process.stdin.flush()
    assert agent.expect("Z") == numbers(3 << 8)
    agent.say("X", b"\1")
    client.done(3)


def test_a_revoked_allocation_whose_node_has_gone(start: Start) -> None:
    """Nobody will call again to hear of the shell's end: it is not waited for."""
    client = start(
        name="salloc",
        stdin=subprocess.PIPE,
        plan={"mode": "salloc", "job": "9", "arg": ["sh", "-c", "read line; exit 3"]},
    )
    agent = client.agent()
    agent.say("A", b"")
    agent.say("e", b"salloc: Job allocation 9 has been revoked.\n")
    agent.say("R")
    heard(client.process.stderr, b"revoked.\n")
    agent.close()
    time.sleep(0.2)
    begun = time.monotonic()
    assert client.process.stdin is not None
    client.process.stdin.write(b"go on\n")
    client.process.stdin.flush()
    client.done(3)
    assert time.monotonic() - begun < 10  # it took 30 s


@pytest.mark.parametrize(("asked", "number"), [("0", signal.SIGTERM), ("10", signal.SIGUSR1)])
def test_kill_command(start: Start, asked: str, number: int) -> None:
    """-K: SIGTERM where nothing is said and there is no terminal (salloc's man page)."""
    client = salloc(start, "sleep", "100", killsig=asked)
    agent = client.agent()
    agent.say("A", b"")
    agent.say("R")
    assert agent.expect("Z") == numbers(number)
    agent.say("X", b"\1")
    client.done(1)


def test_a_hangup_reaches_the_shell_too(start: Start) -> None:
    """Real salloc exits with 1 then, whatever its command does."""
    client = salloc(start, "sh", "-c", "trap 'exit 3' HUP; echo up; while :; do sleep 0.05; done")
    agent = client.agent()
    agent.say("A", b"")
    heard(client.process.stdout, b"up\n")
    client.process.send_signal(signal.SIGHUP)
    assert agent.expect("G") == bytes([signal.SIGHUP])
    agent.say("X", b"\1")
    client.done(1)


def test_no_shell(start: Start) -> None:
    client = salloc(start, noshell="1")
    agent = client.agent()
    agent.say("e", b"salloc: Granted job allocation 9\n")
    agent.say("A", b"SLURM_JOB_ID=9")
    agent.say("X", b"\0")
    assert client.done(0) == (b"", b"salloc: Granted job allocation 9\n")


def test_an_agent_that_is_away_does_not_end_the_shell(start: Start) -> None:
    client = start(
        name="salloc",
        stdin=subprocess.PIPE,
        plan={"mode": "salloc", "job": "9", "arg": ["sh", "-c", "echo up; read line; exit 4"]},
    )
    agent = client.agent()
    agent.say("A", b"")
    heard(client.process.stdout, b"up\n")
    # The client has seen the loss, and hung up too, before its shell ends.
    agent.sock.shutdown(socket.SHUT_WR)
    assert agent.sock.recv(1) == b""
    agent.close()
    assert client.process.stdin is not None
    client.process.stdin.close()
    client.process.stdin = None
    again = client.agent()
    # An allocation is given once.
    again.say("A", b"")
    assert again.expect("Z") == numbers(4 << 8)
    again.say("X", b"\0")
    client.done(4)


# ---- a terminal ----------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def on(terminal: Terminal, **how: Any) -> dict[str, Any]:
    fds = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.slave)
    return {**fds, "preexec": terminal.own, **how}


def test_a_terminal_is_raw_and_comes_back(start: Start, terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.slave)
    client = start(**on(terminal, plan={"pty": "1"}))
    agent, (node,) = client.step()
    # rows, then columns
    assert node.expect("W") == struct.pack(">HH", 30, 90)
    until("the terminal is raw", terminal.raw)
    # Keys that mean signals elsewhere are the task's.
    terminal.type(b"\x03\x1a\r")
    assert node.expect("I") == numbers(0) + b"\x03\x1a\r"
    terminal.size(40, 100)
    os.kill(client.process.pid, signal.SIGWINCH)
    assert node.expect("W") == struct.pack(">HH", 40, 100)
    node.output(0, b"\x1b[1mbold\r\n")
    terminal.shown(b"\x1b[1mbold\r\n")
    client.end(agent, [node])
    assert termios.tcgetattr(terminal.slave) == before


@pytest.mark.parametrize("way", ["term", "lost", "signal"])
def test_the_terminal_comes_back_however_it_ends(
    start: Start, terminal: Terminal, way: str
) -> None:
    before = termios.tcgetattr(terminal.slave)
    client = start(**on(terminal, plan={"pty": "1"}))
    agent, _ = client.step()
    until("the terminal is raw", terminal.raw)
    if way == "term":
        client.process.send_signal(signal.SIGTERM)
        agent.expect("G")
        agent.say("X", b"\x8f")
    else:
        agent.close()
        time.sleep(0.3)
        client.process.send_signal(signal.SIGTERM)
        client.process.send_signal(signal.SIGHUP)
    client.process.wait(PATIENCE)
    assert termios.tcgetattr(terminal.slave) == before


def test_a_stopped_client_gives_the_terminal_back(start: Start, terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.slave)
    client = start(**on(terminal, plan={"pty": "1"}))
    agent, (node,) = client.step()
    until("the terminal is raw", terminal.raw)
    client.process.send_signal(signal.SIGTSTP)
    until("it has stopped", lambda: _state(client.process.pid) == "T")
    assert termios.tcgetattr(terminal.slave) == before
    client.process.send_signal(signal.SIGCONT)
    until("the terminal is raw again", terminal.raw)
    client.end(agent, [node])


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_the_shell_has_the_terminal(start: Start, terminal: Terminal) -> None:
    shell = "echo ready; read line; echo got $line; exit 6"
    plan = {"mode": "salloc", "job": "9", "arg": ["sh", "-c", shell]}
    client = start(**on(terminal, name="salloc", plan=plan))
    agent = client.agent()
    agent.say("A", b"")
    terminal.shown(b"ready")
    # In front is the shell's group: control keys reach it, not salloc.
    group = _foreground(terminal)
    assert group not in (0, client.process.pid)
    terminal.type(b"words\n")
    terminal.shown(b"got words")
    assert agent.expect("Z") == numbers(6 << 8)
    assert _foreground(terminal) == client.process.pid
    agent.say("X", b"\0")
    client.process.wait(PATIENCE)
    assert client.process.returncode == 6


def _foreground(terminal: Terminal) -> int:
    data = fcntl.ioctl(terminal.master, termios.TIOCGPGRP, b"\0\0\0\0")
    return int(struct.unpack("i", data)[0])


def test_an_interrupt_is_the_shells_alone(start: Start, terminal: Terminal) -> None:
    shell = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"
    plan = {"mode": "salloc", "job": "9", "arg": ["sh", "-c", shell], "killsig": "0"}
    client = start(**on(terminal, name="salloc", plan=plan))
    agent = client.agent()
    agent.say("A", b"")
    terminal.shown(b"ready")
    terminal.type(b"\x03")
    terminal.shown(b"caught")
    assert agent.expect("Z") == numbers(7 << 8)
    agent.say("X", b"\0")
    assert client.process.wait(PATIENCE) == 7


def test_kill_command_with_a_terminal_is_a_hangup(start: Start, terminal: Terminal) -> None:
    """salloc's man page: SIGHUP for interactive sessions."""
    plan = {"mode": "salloc", "job": "9", "arg": ["sleep", "100"], "killsig": "0"}
    client = start(**on(terminal, name="salloc", plan=plan))
    agent = client.agent()
    agent.say("A", b"")
    agent.say("R")
    assert agent.expect("Z") == numbers(signal.SIGHUP)
    agent.say("X", b"\1")
    assert client.process.wait(PATIENCE) == 0


def test_a_terminal_that_is_stopped_holds_nothing_up_but_output(
    start: Start, terminal: Terminal
) -> None:
    """As after Ctrl-S: signals are still told, and later all is shown."""
    termios.tcflow(terminal.slave, termios.TCOOFF)
    client = start(**on(terminal))
    agent, (node,) = client.step()
    node.output(0, b"x" * 100_000 + b"end")
    time.sleep(0.2)
    client.process.send_signal(signal.SIGUSR1)
    assert agent.expect("G") == bytes([signal.SIGUSR1])
    termios.tcflow(terminal.slave, termios.TCOON)
    assert terminal.shown(b"end").count(b"x") == 100_000
    client.end(agent, [node])


#: a shell that starts a program in the background, and has it in front at SIGUSR1
BACKGROUND = """
import os, signal, sys

def front(*_):
    os.tcsetpgrp(0, pid)
    os.kill(pid, signal.SIGCONT)

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, front)
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.execv(sys.argv[1], sys.argv[1:])
os.waitpid(pid, 0)
"""


def test_in_the_background_input_stops_it(start: Start, terminal: Terminal) -> None:
    """What every program on a terminal does: SIGTTIN once it reads what is typed."""
    client = start(**on(terminal, wrap=[sys.executable, "-c", BACKGROUND]))
    agent, (node,) = client.step()
    node.output(0, b"shown\n")
    terminal.shown(b"shown")
    with open(f"/proc/{client.process.pid}/task/{client.process.pid}/children") as file:
        mover = int(file.read())
    terminal.type(b"typed\n")
    until("it has stopped", lambda: _state(mover) == "T")
    # In front it goes on, although nothing is typed any more.
    termios.tcflush(terminal.slave, termios.TCIFLUSH)
    client.process.send_signal(signal.SIGUSR1)
    assert agent.expect("G") == bytes([signal.SIGCONT])
    agent.say("X", b"\3")
    node.close()
    assert client.process.wait(PATIENCE) == 0
