"""A frontend worker that had no file left for a connection asked for it again and again, and spent
all of its time on that."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_support import Daemons

from gsched.wire.codec import decode, encode
from gsched.wire.framing import frame, recv_frame
from gsched.wire.messages import FromFrontend, JobQuery, JobRows

#: files that each worker may still open
ROOM = 20


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    made = Daemons()
    made.controller()
    made.frontend()
    yield made
    made.close()


def workers(daemons: Daemons) -> list[int]:
    parent = (daemons.dir / "run" / "frontend.pid").read_text().strip()
    done = subprocess.run(["pgrep", "-P", parent], capture_output=True, text=True, check=True)
    return [int(pid) for pid in done.stdout.split()]


def cpu_s(pids: list[int]) -> float:
    """Seconds of CPU that the processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def dial(daemons: Daemons) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(daemons.socket)
    return sock


def ask(sock: socket.socket) -> None:
    sock.sendall(frame(encode(JobQuery())))
    assert isinstance(decode(FromFrontend, recv_frame(sock)), JobRows)


def test_a_worker_without_files_rests(daemons: Daemons) -> None:
    first = dial(daemons)
    ask(first)
    pids = workers(daemons)
    for pid in pids:
        most = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1 + ROOM
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
    many = [dial(daemons) for _ in range(4 * ROOM * len(pids))]
    time.sleep(0.5)
    before = cpu_s(pids)
    time.sleep(2)
    assert cpu_s(pids) - before < 0.4
    # Those that it has are served, and so is whoever comes when there is room again.
    ask(first)
    for sock in many:
        sock.close()
    with dial(daemons) as late:
        ask(late)
    first.close()
