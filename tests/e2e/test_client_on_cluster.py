"""srun and salloc as a user meets them: terminals, big files, signals, daemons that die."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import BIN, LocalCluster, until
from mover_support import Terminal

PATIENCE = 60


@pytest.fixture(params=[False, True], ids=["worker", "python"])
def env(request: pytest.FixtureRequest, cluster: LocalCluster) -> dict[str, str]:
    """Both ways to the same client."""
    more = {"GSCHED_PYTHON_CLIENT": "1"} if request.param else {}
    return {**cluster.env(), "PS1": "prompt", "TERM": "dumb", **more}


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal(33, 99)
    yield made
    made.close()


def on(terminal: Terminal, env: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(BIN / words[0]), *words[1:]],
        **dict.fromkeys(("stdin", "stdout", "stderr"), terminal.slave),  # type: ignore[call-overload]
        env=env,
        preexec_fn=terminal.own,
    )


def test_a_shell_on_a_node(env: dict[str, str], terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.slave)
    client = on(terminal, env, "srun", "--pty", "sh", "-i")
    terminal.shown(b"prompt")
    terminal.type(b"stty size; echo end-$((1 + 1))\n")
    assert b"33 99\r\n" in terminal.shown(b"end-2")
    # The window changes; then a key that is an interrupt for the task, not for srun.
    terminal.size(20, 50)
    os.kill(client.pid, signal.SIGWINCH)
    until("the task sees the window", lambda: _size(terminal) == b"20 50")
    time = own_time()
    terminal.type(f"sleep {time}\n".encode())
    terminal.shown(f"sleep {time}".encode())
    until("it sleeps", lambda: _sleeps(time))
    terminal.type(b"\x03")
    terminal.type(b"exit 9\n")
    assert client.wait(PATIENCE) == 9
    assert termios.tcgetattr(terminal.slave) == before


def _size(terminal: Terminal) -> bytes:
    terminal.type(b"stty size; echo end-$((1 + 1))\n")
    return terminal.shown(b"end-2\r\n").split(b"\r\n")[-3]


def own_time() -> str:
    """Ten minutes, by which a sleep is told from others on this machine: what is typed before it is
    there the shell takes."""
    return f"600.{secrets.randbelow(10**9):09}"


def _sleeps(time: str) -> bool:
    return not subprocess.run(["pgrep", "-fx", f"sleep {time}"], capture_output=True).returncode


def test_a_shell_in_an_allocation(
    cluster: LocalCluster, env: dict[str, str], terminal: Terminal
) -> None:
    client = on(terminal, env, "salloc", "-n2", "sh", "-i")
    terminal.shown(b"prompt")
    terminal.type(b"srun -l echo task | sort; echo end-$((1 + 1))\n")
    shown = terminal.shown(b"end-2")
    assert b"0: task\r\n1: task\r\n" in shown
    # An srun inside is the terminal's foreground, as any program of the shell.
    time = own_time()
    terminal.type(f"srun --quit-on-interrupt sleep {time}; echo code-$?\n".encode())
    until("it sleeps", lambda: _sleeps(time))
    terminal.type(b"\x03")
    terminal.shown(b"code-130")
    terminal.type(b"exit 5\n")
    assert b"Relinquishing job allocation" in terminal.shown(b"Relinquishing job allocation")
    assert client.wait(PATIENCE) == 5


def test_a_big_file_through_a_task(
    cluster: LocalCluster, env: dict[str, str], tmp_path: Path
) -> None:
    block = random.Random(5).randbytes(1 << 20)
    sent, size = hashlib.sha256(), 200
    with open(tmp_path / "in", "wb") as file:
        for number in range(size):
            data = number.to_bytes(4, "big") + block
            file.write(data)
            sent.update(data)
    with open(tmp_path / "in", "rb") as file, open(tmp_path / "out", "wb") as out:
        done = subprocess.run([BIN / "srun", "cat"], stdin=file, stdout=out, env=env, timeout=90)
    assert done.returncode == 0
    assert hashlib.sha256((tmp_path / "out").read_bytes()).digest() == sent.digest()


def test_a_reader_that_has_enough(cluster: LocalCluster, env: dict[str, str]) -> None:
    command = 'srun yes | head -1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", command], env=env, capture_output=True, text=True, timeout=60
    )
    # The task got SIGPIPE, as `yes | head -1` has it everywhere.
    assert done.stdout == "y\n141\n"


def test_a_waiting_job_is_cancelled_with_its_client(
    cluster: LocalCluster, env: dict[str, str]
) -> None:
    """Transcript 039 of Slurm 26.05."""
    hold = cluster.sbatch("-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 60")
    until("it runs", lambda: cluster.run(["squeue", "-h", "-t", "R", "-j", str(hold)]).stdout)
    client = subprocess.Popen(
        [BIN / "srun", "-J", "waiter", "true"], env=env, stderr=subprocess.PIPE, text=True
    )
    assert client.stderr is not None
    said = client.stderr.readline()
    job = said.split()[2]
    assert said == f"srun: job {job} queued and waiting for resources\n"
    client.send_signal(signal.SIGINT)
    assert client.wait(PATIENCE) == 1
    assert client.stderr.read() == (
        f"srun: Force Terminated JobId={job}\nsrun: Job allocation {job} has been revoked\n"
    )
    assert cluster.ended(int(job)).state.name == "CANCELLED"
    # And the other way round: the job is cancelled, and its client hears of it.
    client = subprocess.Popen(
        [BIN / "srun", "-J", "waiter", "true"], env=env, stderr=subprocess.PIPE, text=True
    )
    assert client.stderr is not None
    job = client.stderr.readline().split()[2]
    cluster.run(["scancel", job])
    assert client.wait(PATIENCE) == 1
    assert client.stderr.read() == (
        "srun: Job has been cancelled\n"
        "srun: error: Unable to allocate resources: Job/step already completing or completed\n"
    )
    cluster.run(["scancel", str(hold)])
    cluster.ended(hold)


def test_daemons_die_under_a_client() -> None:
    """Controller, frontend and node daemons: the client hears of the end all the same, and its
    output has come meanwhile."""
    with LocalCluster("--simulate", "peer", "--set", "KillWait=2") as cluster:
        go = cluster.work / "go"
        script = f"echo up; while ! [ -e {go} ]; do sleep 0.05; done; echo down; exit 4"
        clients = [
            subprocess.Popen(
                [BIN / name, *words, "-N2", "-n2", *more, "sh", "-c", script],
                env=cluster.env(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name, words, more in (("srun", ["-l"], []), ("salloc", [], [str(BIN / "srun")]))
        ]
        for client in clients:
            assert client.stdout is not None
            assert [client.stdout.readline()[-3:] for _ in range(2)] == ["up\n"] * 2
        for daemon in cluster.on_disk.all():
            process = cluster.on_disk.find(daemon)
            if process is not None:
                os.kill(process.pid, signal.SIGKILL)
        cluster.up()
        go.touch()
        ends = [client.communicate(timeout=PATIENCE) for client in clients]
        assert [client.returncode for client in clients] == [4, 4], ends
        assert sorted(ends[0][0].splitlines()) == ["0: down", "1: down"]
        assert ends[1][0].splitlines() == ["down"] * 2
        assert "Relinquishing job allocation" in ends[1][1]
        until("no job", lambda: not cluster.run(["squeue", "-h"]).stdout)
