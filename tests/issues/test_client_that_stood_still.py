"""A client that stood still while a step ended lost what lay in its connections.

Two seconds after the agent had told the exit code it ended, by the clock on the wall: on a machine
that had no time for it (or stopped by its user) it had neither waited nor read in that time.
"""

from __future__ import annotations

import array
import fcntl
import os
import random
import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mover_support import Moving, Peer, build, message
from once_support import once
from waiting import until


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "client/gsched-mover", build)


@pytest.fixture
def client(binary: Path) -> Iterator[Moving]:
    made = Moving(binary)
    yield made
    made.close()


def stopped(client: Moving) -> None:
    """The client stands still, as on a machine that has no time for it."""
    client.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{client.process.pid}/stat")
    until("the client stands still", lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T")


def told_the_end(client: Moving, agent: Peer, code: int) -> None:
    """The agent has told the exit code, and the client has read it: a word before it is seen."""
    agent.sock.sendall(message("o", b"end\n") + message("X", bytes([code])))
    assert client.process.stdout is not None
    assert os.read(client.process.stdout.fileno(), 100) == b"end\n"


def test_what_came_while_the_client_stood_still_is_read(client: Moving) -> None:
    agent, (node,) = client.step()
    told_the_end(client, agent, 4)
    assert client.process.stdout is not None
    pipe = client.process.stdout.fileno()
    room = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    data = random.Random(4).randbytes(8 * room)
    for at in range(0, len(data), 30_000):
        node.output(0, data[at : at + 30_000])
    node.leave()

    held, seen = array.array("i", [0]), [0, 0]

    def filled() -> bool:
        fcntl.ioctl(pipe, termios.FIONREAD, held)
        seen[:] = [held[0], seen[1] + 1 if held[0] == seen[0] > 0 else 0]
        return seen[1] >= 100

    until("nothing more goes into the pipe", filled)
    stopped(client)
    got = os.read(pipe, held[0])
    time.sleep(3)
    client.process.send_signal(signal.SIGCONT)
    rest, _ = client.done(4)
    assert got + rest == data


def test_time_in_which_the_client_stood_still_is_not_waited(client: Moving) -> None:
    agent, (node,) = client.step()
    told_the_end(client, agent, 5)
    stopped(client)
    time.sleep(3)
    client.process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    node.output(0, b"late")
    node.leave()
    assert client.done(5)[0] == b"late"
