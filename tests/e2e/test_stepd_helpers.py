"""A task may stop or trace what runs under its user's id. The process that moves a step's streams
and the PMIx server, once stopped, outlived the step for ever; the server, which is in no control
group of the step's, could be traced and made to run whatever the user likes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from stepd_support import Client, Records, Start, mover_of, tasks

from slurmd_compat import pmix

#: one that other users may run, too
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable

SERVER = """\
#!{python}
import os, struct
with open("{out}/pid", "w") as file: file.write(str(os.getpid()))
def got(n):
    data = b""
    while len(data) < n: data += os.read(0, n - len(data))
    return data
got(struct.unpack(">I", got(4))[0])
body = b"E" + struct.pack(">I", 0) + b"PMIX_FAKE=0" + bytes(1)
os.write(0, struct.pack(">I", len(body)) + body)
while True: got(1)
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def ends(pid: int) -> None:
    until = time.monotonic() + 10
    while not gone(pid):
        assert time.monotonic() < until, "it lives"
        time.sleep(0.01)


def served(start: Start) -> Records:
    out = start.out
    (out / "server").write_text(SERVER.format(python=PYTHON, out=out))
    (out / "server").chmod(0o755)
    found: Records = [("pmix", f"{out}/server"), ("pmix_dir", str(out))]
    return [*found, ("pmix_nodes", "gpu01 0\n"), ("pmi_jobid", "7.0")]


def test_a_stopped_mover_ends_with_its_step(start: Start, client: Client) -> None:
    step = start("", *tasks(1, "echo up; sleep 300"), *client.records(), out="")
    client.until(lambda: client.out == {0: b"up\n"})
    mover = mover_of(step)
    os.kill(mover, signal.SIGSTOP)
    step.tell("kill9 cancelled")
    assert step.finish().wstatus == 9
    client.finish()
    ends(mover)


@pytest.mark.parametrize("victim", ["step", "mover"])
def test_a_stopped_server_ends_with_its_step(start: Start, client: Client, victim: str) -> None:
    order = [*tasks(1, "echo up; sleep 300"), *served(start), *client.records()]
    step = start("", *order, out="")
    client.until(lambda: client.out == {0: b"up\n"})
    server = int((start.out / "pid").read_text())
    os.kill(server, signal.SIGSTOP)
    if victim == "mover":
        os.kill(mover_of(step), signal.SIGKILL)
    else:
        step.tell("kill9 cancelled")
    assert step.finish().wstatus != 0
    ends(server)


@pytest.mark.skipif(pmix.program() is None, reason="built without libpmix")
def test_the_server_cannot_be_traced(start: Start, client: Client) -> None:
    """Files in /proc of a process that may be traced belong to its user, of another to root."""
    if os.geteuid() != 0:
        pytest.skip("whose process it is shows only beside another user's")
    order: Records = [("pmix", str(pmix.program())), ("pmix_dir", str(start.out))]
    order += [("pmix_nodes", "gpu01 0\n"), ("pmi_jobid", "7.0")]
    step = start("", *tasks(1, "echo up; sleep 300"), *order, *client.records(), out="")
    client.until(lambda: client.out == {0: b"up\n"})
    (server,) = Path(f"/proc/{mover_of(step)}/task/{mover_of(step)}/children").read_text().split()
    with pytest.raises(PermissionError):
        _as(65534, lambda: os.readlink(f"/proc/{server}/exe"))
    assert os.stat(f"/proc/{server}/exe").st_uid == 0
    step.tell("kill9 cancelled")
    step.finish()


def _as(uid: int, act: object) -> None:
    os.seteuid(uid)
    try:
        act()  # type: ignore[operator]
    finally:
        os.seteuid(0)
