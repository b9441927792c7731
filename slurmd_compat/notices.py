"""What a job is told when it has to make way, and how it answers: files, so that no library is
needed.

SPOOL/job00017/preempt_notice     on every node of the job: written whole before the job is warned
SPOOL/job00017/marks/             where its script or its steps run, the user's own: `saved` and
                                  `checkpoint` are noticed as soon as they are made or touched, on
                                  whatever node
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slurmd_compat.agent.step_words import AdoptShare, SpawnShare
from slurmd_compat.agent.words import AdoptStep, DropNotice, Key, SpawnStep, WriteNotice

T = TypeVar("T", SpawnStep, AdoptStep)
U = TypeVar("U", SpawnShare, AdoptShare)

NOTICE = "preempt_notice"
MARKS = "marks"
SAVED, CHECKPOINT = "saved", "checkpoint"

_IN_ATTRIB, _IN_CLOSE_WRITE, _IN_MOVED_TO, _IN_CREATE = 0x4, 0x8, 0x80, 0x100
_IN_ONLYDIR, _IN_IGNORED = 0x0100_0000, 0x8000
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("iIII")


def directory(spool: Path, key: Key) -> Path:
    """A job's directory; later attempts have one of their own."""
    name = f"job{key.job_id:05d}"
    return spool / (name if key.attempt <= 1 else f"{name}.{key.attempt}")


def variables(spool: Path, key: Key) -> dict[str, str]:
    """Where a job finds all that, for the environment of what runs on this node."""
    place = directory(spool, key)
    return {
        "GSCHED_PREEMPT_NOTICE": str(place / NOTICE),
        "GSCHED_PREEMPT_SAVED": str(place / MARKS / SAVED),
        "GSCHED_CHECKPOINT_DONE": str(place / MARKS / CHECKPOINT),
    }


def make_marks(place: Path, uid: int, gid: int, *, root: bool) -> None:
    """The directory for the job's answers, its user's own; where it is there nothing happens."""
    marks = place / MARKS
    try:
        os.mkdir(marks, 0o700)
    except FileExistsError:
        return
    if root:
        os.chown(marks, uid, gid)


def write_notice(place: Path, notice: WriteNotice) -> None:
    """The notice, whole or not at all. OSError where it cannot be written."""
    now = int(time.time())
    text = json.dumps(
        {
            "job_id": notice.record.job_id,
            "reason": "preempted",
            "seconds_left": notice.seconds,
            "deadline": now + notice.seconds,
            "preemptor": notice.kind or "qos",
            "then": notice.mode or "requeue",
        }
    )
    with contextlib.suppress(FileExistsError):
        # Where no script runs there is none yet.
        os.mkdir(place, 0o711)
    fresh = place / f"{NOTICE}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(fresh, flags, 0o644)
    try:
        os.fchmod(fd, 0o644)
        os.write(fd, text.encode() + b"\n")
    finally:
        os.close(fd)
    os.rename(fresh, place / NOTICE)


def _changed(path: Path) -> int:
    """When a name was made or touched last, in ns; -1: there is none."""
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return -1


class Notices:
    """Notices, and what jobs of this node say by their files: the kernel tells. One descriptor for
    all of them; only names are read, nothing that a user can write is opened."""

    def __init__(self, spool: Path, told: Callable[[Key, str], None], log: Any) -> None:
        """OSError where the kernel has nothing to tell of files by."""
        self._spool = spool
        self._told = told
        self._log = log
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._keys: dict[int, Key] = {}
        self._watches: dict[Key, int] = {}

    def write(self, action: WriteNotice) -> None:
        try:
            write_notice(directory(self._spool, action.key), action)
        except OSError as error:
            title = action.record.title
            self._log.error(f"{title}: it could not be told to make way: {error.strerror}")

    def drop(self, action: DropNotice) -> None:
        """The job may go on."""
        with contextlib.suppress(OSError):
            os.unlink(directory(self._spool, action.key) / NOTICE)

    def before(self, action: T, then: Callable[[T], None]) -> None:
        """A job is listened to from before its script is started, or found again."""
        self.watch(action.key)
        then(action)

    def beside(self, action: U, then: Callable[[U], None]) -> None:
        """The same where a step's tasks run, which makes the directory."""
        then(action)
        self.watch(action.key.job)

    def watch(self, key: Key) -> None:
        """From now on; what is there already counts at once."""
        if key in self._watches:
            return
        place = directory(self._spool, key)
        mask = _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_CREATE | _IN_ONLYDIR
        path = os.fsencode(str(place / MARKS))
        number = self._libc.inotify_add_watch(self.fd, path, mask)
        if number < 0:
            return
        self._keys[number] = key
        self._watches[key] = number
        for name in (CHECKPOINT, SAVED):
            at = _changed(place / MARKS / name)
            if at >= 0 and (name == CHECKPOINT or at >= _changed(place / NOTICE)):
                # What was said before it was told to make way is no answer to that.
                self._told(key, name)

    def forget(self, key: Key) -> None:
        number = self._watches.pop(key, None)
        if number is not None:
            self._keys.pop(number, None)
            self._libc.inotify_rm_watch(self.fd, number)

    def read(self, fd: int) -> None:
        """There is news."""
        try:
            data = os.read(fd, 65536)
        except OSError:
            return
        at, seen = 0, set()
        while at + _EVENT.size <= len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            key = self._keys.get(number)
            word = name.decode(errors="replace")
            if key is None or mask & _IN_IGNORED or word not in (SAVED, CHECKPOINT):
                continue
            if (key, word) not in seen:
                seen.add((key, word))
                self._told(key, word)

    def close(self) -> None:
        os.close(self.fd)
