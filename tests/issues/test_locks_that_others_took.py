"""Whoever can open a file for reading can lock it (flock). The files by which daemons keep GPUs
from each other, and `gsched up` from a second one, were readable by everybody, in a directory that
any user could make first: a user who held such a lock when a daemon was started again took the GPUs
out of the node.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from gsched.local.daemons import lock
from slurmd_compat.gpus import claim

UUID = "GPU-0"
NOBODY = pwd.getpwnam("nobody")
#: tries to lock a file of which it may at most read
TAKE = """
import fcntl, os, sys
os.setgid({gid}); os.setuid({uid})
try:
    fd = os.open(sys.argv[1], os.O_RDONLY)
except PermissionError:
    sys.exit("refused")
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def stranger(path: Path) -> str:
    """What becomes of another user's try to take the lock; "" it is his."""
    code = TAKE.format(uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(path)], capture_output=True, text=True
    )
    return done.stderr.strip()


@pytest.mark.parametrize("left", [False, True])
def test_lock_files_are_their_owners_alone(tmp_path: Path, left: bool) -> None:
    if left:
        # Of a former release.
        (tmp_path / f"{UUID}.lock").touch(0o644)
        (tmp_path / "up.lock").touch(0o644)
    held = claim([UUID], tmp_path)
    assert held.held == (UUID,)
    with lock(tmp_path):
        for name in (f"{UUID}.lock", "up.lock"):
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    held.release()


@pytest.mark.root
def test_another_user_cannot_take_them(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    place = tmp_path / "locks"
    claim([UUID], place).release()
    assert stranger(place / f"{UUID}.lock") == "refused"


@pytest.mark.root
def test_a_directory_that_another_user_has_made(tmp_path: Path) -> None:
    place = tmp_path / "locks"
    place.mkdir()
    taken = os.open(place / f"{UUID}.lock", os.O_RDWR | os.O_CREAT)
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    fcntl.flock(taken, fcntl.LOCK_EX)
    held = claim([UUID], place)
    assert (held.held, held.refused) == ((UUID,), {})
    assert place.stat().st_uid == 0
    held.release()
    os.close(taken)
