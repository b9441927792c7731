"""Two clients that were slow (one reads its script from a pipe, one is stopped) held both workers
that run command lines for ten seconds and more: every other command waited for two seconds, and
then started Python, so that a script of a few commands took half a minute on a busy machine. A
command with a large environment waited without end when no worker took its request.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import BIN, LocalCluster, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster("--simulate", "peer") as made:
        yield made


def workers(cluster: LocalCluster) -> list[int]:
    """Pids of the workers that run command lines."""
    done = subprocess.run(
        ["pgrep", "-f", f"gsched.frontend.commands {cluster.dir}/"], capture_output=True, text=True
    )
    return [int(pid) for pid in done.stdout.split()]


def greeted(cluster: LocalCluster) -> socket.socket:
    """A client that a worker has taken, and that says nothing."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(30)
    sock.connect(str(cluster.dir / "run/command.sock"))
    assert sock.recv(5) == b"\0\0\0\1H"
    return sock


@pytest.fixture
def held(cluster: LocalCluster) -> Iterator[list[int]]:
    """All workers, each held by a client."""
    before = workers(cluster)
    silent = [greeted(cluster) for _ in before]
    yield before
    for sock in silent:
        sock.close()
    for pid in before:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


def stopped(pids: list[int]) -> None:
    """What comes now does not come from them."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def test_others_are_served_while_all_workers_are_held(
    cluster: LocalCluster, held: list[int]
) -> None:
    until("a substitute", lambda: set(workers(cluster)) - set(held))
    stopped(held)
    greeted(cluster).close()
    assert cluster.run([str(BIN / "squeue"), "-h"]).stdout == ""


def test_new_workers_do_not_wait_for_the_old_ones(cluster: LocalCluster, held: list[int]) -> None:
    until("a substitute", lambda: set(workers(cluster)) - set(held))
    old = workers(cluster)
    stopped(held)
    parent = int((cluster.dir / "run/frontend.pid").read_text())
    os.kill(parent, signal.SIGHUP)
    until("new workers", lambda: len(set(workers(cluster)) - set(old)) >= 2)
    greeted(cluster).close()


def test_a_large_environment_does_not_wait_for_a_worker_without_end(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    text = (cluster.dir / "etc/slurm.conf").read_text()
    run = cluster.dir / "run"
    # Its workers' socket is one at which nobody takes a client; all else is the cluster's.
    folder = tmp_path / "run"
    folder.mkdir()
    conf.write_text(text.replace(str(run), str(folder)))
    (folder / "frontend.sock").symlink_to(run / "frontend.sock")
    env = {f"LARGE{n}": "x" * 100_000 for n in range(4)} | {"SLURM_CONF": str(conf)}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "command.sock"))
        listener.listen()
        assert cluster.run([str(BIN / "squeue"), "-h"], env=env, timeout=60).stdout == ""


def test_nor_does_a_command_where_many_wait_to_be_taken(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    run = cluster.dir / "run"
    folder = tmp_path / "run"
    folder.mkdir()
    conf.write_text((cluster.dir / "etc/slurm.conf").read_text().replace(str(run), str(folder)))
    (folder / "frontend.sock").symlink_to(run / "frontend.sock")
    path = str(folder / "command.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        done = cluster.run([str(BIN / "squeue"), "-h"], env={"SLURM_CONF": str(conf)}, timeout=60)
        assert done.stdout == ""


@pytest.mark.root
def test_one_user_does_not_keep_all_workers(cluster: LocalCluster) -> None:
    """Forty clients that say nothing: all workers and all substitutes were theirs, ten seconds
    each."""
    silent = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    try:
        for sock in silent:
            sock.settimeout(9)
            sock.connect(str(cluster.dir / "run/command.sock"))
        with socket.socket(socket.AF_UNIX) as other:
            other.settimeout(9)
            # The kernel tells who it was that connected.
            os.seteuid(65534)
            try:
                other.connect(str(cluster.dir / "run/command.sock"))
            finally:
                os.seteuid(0)
            assert other.recv(5)[4:] == b"H"
        # They are sent away to run their commands themselves.
        letters = [sock.recv(5)[4:] for sock in silent]
        assert letters.count(b"P") >= 30
        assert b"H" in letters
    finally:
        for sock in silent:
            sock.close()
