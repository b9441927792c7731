"""One user could fill the memory of a frontend: requests for all jobs were answered as fast as they
came although nobody read the answers, and each of a thousand connections could hold a request of
16 MB that never became complete.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_support import Daemons, a_job

from gsched.wire.codec import decode, encode
from gsched.wire.framing import frame, recv_frame
from gsched.wire.messages import FromFrontend, JobQuery, JobRows, Refused

JOBS = 400
QUERIES = 1500
MB = 1 << 20


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    made = Daemons()
    made.controller()
    made.frontend()
    yield made
    made.close()


def workers(parent: int) -> list[int]:
    done = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=True)
    return [int(pid) for pid in done.stdout.split()]


def memory(daemons: Daemons) -> int:
    """Bytes that the largest worker has in memory."""
    parent = int((daemons.dir / "run" / "frontend.pid").read_text())
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in workers(parent)]
    return max(pages) * os.sysconf("SC_PAGE_SIZE")


def dial(daemons: Daemons) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(daemons.socket)
    return sock


def test_answers_wait_for_their_reader(daemons: Daemons) -> None:
    with daemons.client() as client:
        for number in range(JOBS):
            client.call(a_job(f"j{number}"))
        before = memory(daemons)
        with dial(daemons) as greedy:
            greedy.sendall(frame(encode(JobQuery())) * QUERIES)
            time.sleep(1)
            assert len(client.jobs(JobQuery()).jobs) == JOBS
            assert memory(daemons) - before < 64 * MB
            # They are only late: whoever reads gets every one.
            total = 0
            for _ in range(QUERIES):
                data = recv_frame(greedy)
                answer = decode(FromFrontend, data)
                assert isinstance(answer, JobRows) and len(answer.jobs) == JOBS
                total += len(data)
        assert total > 2 * 64 * MB


def test_incomplete_requests_have_a_bound(daemons: Daemons) -> None:
    held = [dial(daemons) for _ in range(50)]
    start = struct.pack(">I", 16 * MB) + b"x" * (15 * MB)
    refused = 0
    for sock in held:
        try:
            sock.sendall(start)
        except OSError:
            refused += 1
    for sock in held:
        sock.settimeout(0.05)
        try:
            answer = decode(FromFrontend, recv_frame(sock))
            assert isinstance(answer, Refused)
            assert answer.message == "too many bytes of requests are under way"
            refused += 1
        except OSError:
            pass
    # Two workers of 256 MB each take 17 such requests each.
    assert refused >= 50 - 2 * 18
    with daemons.client() as client:
        assert client.call(a_job("after")).value == 1  # type: ignore[union-attr]
    for sock in held:
        sock.close()
