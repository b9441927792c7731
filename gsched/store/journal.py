"""The commit that is under way, on the disk before the database has it.

A commit of the database writes a dozen pages in as many places and waits for the disk twice.
Whoever asked for it can be answered sooner: when it stands in one piece in a file whose blocks are
there already. The file holds one commit, the last that came this way; the next is not written
before the database has it. What a process that was killed left there is carried out when the state
is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct

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
        path = os.path.join(folder, NAME)
        self._token = b""
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if not os.path.exists(path) or os.stat(path).st_size != SIZE:
                _lay_down(path, folder)
            # Only data is to be waited for: the file's blocks and size never change.
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DSYNC)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from None

    def left(self, token: bytes) -> tuple[int, dict[Key, bytes | None]] | None:
        """The version and the changes of the last commit, if it is one of the database with that
        token and was written whole."""
        data = os.pread(self._fd, SIZE, 0)
        version, size, of, digest = _HEAD.unpack_from(data)
        packed = data[_HEAD.size : _HEAD.size + size]
        if not version or of != token or len(packed) != size:
            return None
        if digest != _digest(version, of, packed):
            return None
        return version, {(table, key): value for table, key, value in _changes.decode(packed)}

    def begin(self, token: bytes) -> None:
        """What it holds is done with; commits from now on are of the database with that token."""
        self._token = token
        os.pwrite(self._fd, bytes(_HEAD.size), 0)

    def write(self, version: int, changes: Changes) -> bool:
        """Puts a commit on the disk; False: it has no place here, nothing is written. Raises
        OSError: it may be there or not. Cost: one wait for the disk."""
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
        os.close(self._fd)


def _lay_down(path: str, folder: str) -> None:
    """Makes the file with all its blocks written: one that is only reserved costs a change of the
    file system's own records with the first write to each block."""
    temporary = f"{path}.new"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, bytes(SIZE))
        os.fsync(fd)
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
        self._map: mmap.mmap | None = None
        with contextlib.suppress(OSError, ValueError):
            fd = os.open(os.path.join(folder, NAME), os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._map = mmap.mmap(fd, mmap.PAGESIZE, prot=mmap.PROT_READ)
            finally:
                os.close(fd)

    @property
    def there(self) -> bool:
        """Whether there is a journal."""
        return self._map is not None

    @property
    def version(self) -> int:
        """0: none is known of."""
        return int(_NUMBER.unpack_from(self._map)[0]) if self._map is not None else 0

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
