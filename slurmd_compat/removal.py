"""Directories that are no longer wanted, with what users have put into them.

A user's tree may be deeper than any recursion, larger than the loop can wait for, and changing.
So it is set aside by its name at once, and emptied in a thread: with as many open directories as
have to be, and never through a link.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from pathlib import Path

#: where directories lie that are being emptied, beside those of jobs
ASIDE = "gone"

_numbers = itertools.count()
_waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_lock = threading.Lock()


def remove_later(path: Path, spool: Path) -> None:
    """Takes a directory below `spool` away: its name is free at once. What cannot be removed now
    is removed at the next start (`sweep`). Cost: one rename."""
    aside = spool / ASIDE
    name = f"{time.time_ns():x}.{os.getpid()}.{next(_numbers)}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(aside, 0o700)
        os.rename(path, aside / name)
    except FileNotFoundError:
        return
    except OSError:
        remove(path)
        return
    _later(aside / name)


def sweep(spool: Path) -> None:
    """What a former daemon had no time for."""
    with contextlib.suppress(OSError):
        for name in os.listdir(spool / ASIDE):
            _later(spool / ASIDE / name)


def settle() -> None:
    """Waits until all that was to be removed is; for tests, and whoever removes the spool."""
    while not _waiting.empty():
        time.sleep(0.001)
    with _lock:
        return


def _later(path: Path) -> None:
    global _thread
    _waiting.put(path)
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_work, name="removal", daemon=True)
        _thread.start()


def _work() -> None:
    while True:
        path = _waiting.get()
        with _lock:
            remove(path)


def remove(path: Path) -> None:
    """Removes a directory and all below it; what cannot be removed stays. Cost: its entries, three
    open directories."""
    try:
        top = _open(os.fspath(path))
    except OSError:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _open(name: str, above: int | None = None) -> int:
    """A directory, from now on nobody's but ours."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    with contextlib.suppress(OSError):
        if os.geteuid() == 0:
            os.fchown(fd, 0, 0)
        os.fchmod(fd, 0o700)
    return fd


def _empty(top: int) -> None:
    """Directories below are hung under the top before their turn comes: none is ever deep. Ends
    where nothing more can be removed."""
    for number in itertools.count():
        done, below = _clear(top, top, "")
        for place, name in enumerate(below):
            with contextlib.suppress(OSError):
                fd = _open(name, top)
                try:
                    done += _clear(fd, top, f".{os.getpid()}.{number}.{place}")[0]
                finally:
                    os.close(fd)
                os.rmdir(name, dir_fd=top)
                done += 1
        if not done:
            return


def _clear(fd: int, top: int, prefix: str) -> tuple[int, list[str]]:
    """Removes the files of a directory and hangs its directories under the top, unless it is that.
    How much was done; the directories that are still there."""
    done, left = 0, []
    with os.scandir(fd) as entries:
        for place, entry in enumerate(entries):
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=fd)
                elif fd == top:
                    left.append(entry.name)
                    continue
                else:
                    os.rename(entry.name, f"{prefix}.{place}", src_dir_fd=fd, dst_dir_fd=top)
                done += 1
    return done, left
