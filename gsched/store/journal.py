"""The commit that is under way, on the disk before the database has it.

A commit of the database writes a dozen pages in as many places and waits for the disk twice.
Whoever asked for it can be answered sooner: when it stands in one piece in a file whose blocks are
there already. The file holds one commit, the last that came this way; the next is not written
before the database has it. What a process that was killed left there is carried out when the state
is opened.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
from collections.abc import Iterator

import msgspec

from gsched.store.errors import StoreError
from gsched.store.versioned import Changes, Key

#: of the file, bytes; a commit that does not fit goes to the database alone
SIZE = 128 << 10
#: file beside the database
NAME = "journal"
TOKEN_BYTES = 16
_NUMBER = struct.Struct("<Q")
#: version, bytes of the changes, of which database, hash of all that
_HEAD = struct.Struct(f"<QQ{TOKEN_BYTES}s16s")

_changes = msgspec.msgpack.Decoder(list[tuple[str, bytes, bytes | None]])
_encode = msgspec.msgpack.Encoder().encode


class Journal:
    """The writer's side."""

    def __init__(self, folder: str) -> None:
        """Opens (makes) the file in `folder`. Raises StoreError."""
        self._folder = folder
        self._path = os.path.join(folder, NAME)
        self._token = b""
        #: -1: there is no room for one
        self._fd = -1
        with self._telling():
            os.makedirs(folder, mode=0o700, exist_ok=True)
            try:
                self._fd = self._open()
            except FileNotFoundError:
                self._make()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"cannot use {self._path}: {error.strerror}") from None

    def _open(self) -> int:
        # Only data is to be waited for: the file's blocks and size never change.
        return os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_DSYNC)

    def _make(self) -> None:
        """A new file. Better none than a controller that does not start because the disk is full:
        then every commit goes to the database alone."""
        try:
            _lay_down(self._path, self._folder)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            return
        self._fd = self._open()

    def left(self, token: bytes) -> tuple[int, dict[Key, bytes | None]] | None:
        """The version and the changes of the last commit, if it is one of the database with that
        token and was written whole. Raises StoreError."""
        if self._fd < 0:
            return None
        with self._telling():
            head = os.pread(self._fd, _HEAD.size, 0)
            if len(head) != _HEAD.size:
                return None
            version, size, of, digest = _HEAD.unpack(head)
            if not version or of != token or size > os.fstat(self._fd).st_size:
                return None
            packed = os.pread(self._fd, size, _HEAD.size)
        if len(packed) != size or digest != _digest(version, of, packed):
            return None
        return version, {(table, key): value for table, key, value in _changes.decode(packed)}

    def begin(self, token: bytes) -> None:
        """What it holds is done with; commits from now on are of the database with that token.
        Raises StoreError."""
        self._token = token
        if self._fd < 0:
            return
        with self._telling():
            if os.fstat(self._fd).st_size == SIZE:
                os.pwrite(self._fd, bytes(_HEAD.size), 0)
                return
            # Of another release, or cut off. What stood in it was needed until now.
            self.close()
            self._make()

    def write(self, version: int, changes: Changes) -> bool:
        """Puts a commit on the disk; False: it has no place here, nothing is written. Raises
        OSError: it may be there or not. Cost: one wait for the disk."""
        # Somebody may have removed it: nobody would find there what was promised.
        if self._fd < 0 or not os.fstat(self._fd).st_nlink:
            return False
        if sum(len(value) for value in changes.values() if value is not None) > SIZE:
            return False
        packed = _encode([(table, key, value) for (table, key), value in changes.items()])
        if _HEAD.size + len(packed) > SIZE:
            return False
        digest = _digest(version, self._token, packed)
        data = _HEAD.pack(version, len(packed), self._token, digest) + packed
        if os.pwrite(self._fd, data, 0) != len(data):
            raise OSError("the journal was written in part")
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _lay_down(path: str, folder: str) -> None:
    """Makes the file with all its blocks written: one that is only reserved costs a change of the
    file system's own records with the first write to each block."""
    temporary = f"{path}.new"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, bytes(SIZE)) != SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(fd)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.rename(temporary, path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _digest(version: int, token: bytes, packed: bytes) -> bytes:
    return hashlib.blake2b(
        _NUMBER.pack(version) + token + packed, digest_size=16, usedforsecurity=False
    ).digest()


class Promised:
    """A reader's side: the version that may have been promised to somebody already, before the
    database has it."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, NAME)
        self._fd = -1
        self._file = (0, 0)
        with contextlib.suppress(OSError):
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._file = _identity(os.fstat(self._fd))

    @property
    def current(self) -> bool:
        """Whether this is the journal that lies there now. One stat."""
        try:
            return _identity(os.stat(self._path)) == self._file
        except OSError:
            return False

    @property
    def version(self) -> int:
        """0: none is known of. One system call: a file that is mapped would end the process that
        looks at it when somebody cuts it off."""
        if self._fd < 0:
            return 0
        try:
            data = os.pread(self._fd, _NUMBER.size, 0)
        except OSError:
            return 0
        return int(_NUMBER.unpack(data)[0]) if len(data) == _NUMBER.size else 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
