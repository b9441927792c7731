"""An LMDB environment whose every commit has a number and names the keys that it changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lmdb
import msgspec

from gsched.store.errors import CommitFailed, StoreError

#: Map sizes to try, largest first: the map is address space, not disk, but some places limit it.
MAP_SIZES = (64 << 30, 16 << 30, 4 << 30, 1 << 30)
#: So many versions back the index can say what changed; older readers read all.
RING = 20_000
#: A commit that changes more keys than this is indexed as "everything".
INDEXED_KEYS = 20_000

_VERSION = b"version"
_RING_DB = b"changes"
_STATE_DB = b"_version"
#: in it: which writer's the database is
_TOKEN = b"token"

Key = tuple[str, bytes]
Changes = Mapping[Key, bytes | None]


def number_key(number: int) -> bytes:
    """Eight bytes, big-endian: keys in the order of the numbers."""
    return number.to_bytes(8, "big")


def open_env(
    path: str, *, tables: int, sync: bool, map_size: int | None = None
) -> lmdb.Environment:
    """Opens (and makes) an environment for writing, with the largest map the place allows."""
    sizes = MAP_SIZES if map_size is None else (map_size,)
    last: Exception | None = None
    for size in sizes:
        try:
            return lmdb.open(
                path,
                map_size=size,
                subdir=True,
                max_dbs=tables + 2,
                mode=0o600,
                max_readers=512,
                sync=sync,
                metasync=sync,
                writemap=False,
                max_spare_txns=1,
            )
        except (lmdb.Error, OverflowError, MemoryError) as error:
            last = error
    raise StoreError(f"cannot open the database {path}: {last}") from None


class Versioned:
    """The writer's side. Not for two threads at once."""

    def __init__(
        self, path: str, tables: Iterable[str], *, sync: bool, map_size: int | None = None
    ) -> None:
        """Opens `path`. Raises StoreError when it cannot be read."""
        names = list(tables)
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.path = path
        self._env = open_env(path, tables=len(names), sync=sync, map_size=map_size)
        try:
            self._env.reader_check()
            self._dbs = {name: self._env.open_db(name.encode()) for name in names}
            self._ring = self._env.open_db(_RING_DB)
            self._state = self._env.open_db(_STATE_DB)
            with self._env.begin() as txn:
                found = txn.get(_VERSION, db=self._state)
            self._version = int.from_bytes(found, "big") if found else 0
        except lmdb.Error as error:
            self._env.close()
            raise StoreError(f"cannot read the database {path}: {error}") from None

    @property
    def version(self) -> int:
        """Number of the last commit; 0: nothing was ever written."""
        return self._version

    def commit(
        self, changes: Changes, *, keep: frozenset[str] = frozenset(), silent: frozenset[str]
    ) -> int:
        """Writes all of `changes` (None deletes) in one transaction; returns its version.

        Tables in `keep` are written only where the key is new; tables in `silent` are not named
        in the index. Raises CommitFailed with nothing of it written.
        """
        version = self._version + 1
        number = number_key(version)
        named = [key for key in changes if key[0] not in silent]
        index = msgspec.msgpack.encode(named if len(named) <= INDEXED_KEYS else None)
        try:
            with self._env.begin(write=True) as txn:
                for (table, key), value in changes.items():
                    db = self._dbs[table]
                    if value is None:
                        txn.delete(key, db=db)
                    else:
                        txn.put(key, value, db=db, overwrite=table not in keep)
                txn.put(number, index, db=self._ring, append=True)
                if version > RING:
                    txn.delete(number_key(version - RING), db=self._ring)
                txn.put(_VERSION, number, db=self._state)
        except lmdb.Error as error:
            raise CommitFailed(f"commit {version} to {self.path} failed: {error}") from None
        self._version = version
        return version

    @property
    def token(self) -> bytes:
        """What `mark` wrote last; b"" nothing."""
        with self._env.begin() as txn:
            return bytes(txn.get(_TOKEN, b"", db=self._state))

    def mark(self, token: bytes) -> None:
        """Writes a token beside the state: no new version. Raises CommitFailed."""
        try:
            with self._env.begin(write=True) as txn:
                txn.put(_TOKEN, token, db=self._state)
        except lmdb.Error as error:
            raise CommitFailed(f"writing to {self.path} failed: {error}") from None

    def wipe(self) -> None:
        """Empties every table, as a commit of its own that is not indexed: readers read all."""
        number = number_key(self._version + 1)
        try:
            with self._env.begin(write=True) as txn:
                for db in (*self._dbs.values(), self._ring):
                    txn.drop(db, delete=False)
                txn.put(_VERSION, number, db=self._state)
        except lmdb.Error as error:
            raise CommitFailed(f"emptying {self.path} failed: {error}") from None
        self._version += 1

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of one key, None when there is none. About a microsecond."""
        with self._env.begin(db=self._dbs[table]) as txn:
            found = txn.get(key)
            return None if found is None else bytes(found)

    def load(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """All of a table in the order of its keys, from one snapshot."""
        with self._env.begin(db=self._dbs[table]) as txn, txn.cursor() as cursor:
            for key, value in cursor:
                yield bytes(key), bytes(value)

    def close(self) -> None:
        self._env.close()


class Snapshot:
    """One moment of an environment, for reading. Values may be views that die with it."""

    def __init__(self, txn: lmdb.Transaction, dbs: Mapping[str, Any]) -> None:
        self._txn = txn
        self._dbs = dbs

    @property
    def version(self) -> int:
        found = self._txn.get(_VERSION, db=self._dbs["_version"])
        return int.from_bytes(found, "big") if found else 0

    def get(self, table: str, key: bytes) -> bytes | memoryview | None:
        """The value of one key, None when there is none."""
        return self._txn.get(key, db=self._dbs[table])

    def scan(self, table: str) -> Iterator[tuple[bytes | memoryview, bytes | memoryview]]:
        """All of a table in the order of its keys."""
        with self._txn.cursor(db=self._dbs[table]) as cursor:
            yield from cursor

    def below(
        self, table: str, prefix: bytes
    ) -> Iterator[tuple[bytes | memoryview, bytes | memoryview]]:
        """What has a key that begins with `prefix`, in the order of the keys."""
        with self._txn.cursor(db=self._dbs[table]) as cursor:
            if cursor.set_range(prefix):
                for key, value in cursor:
                    if bytes(key[: len(prefix)]) != prefix:
                        return
                    yield key, value

    def changed_since(self, version: int) -> set[Key] | None:
        """Keys written after `version`, up to this snapshot; None: too long ago, read all."""
        newest = self.version
        if version > newest:
            return None
        found: set[Key] = set()
        if version == newest:
            return found
        with self._txn.cursor(db=self._dbs["changes"]) as cursor:
            if not cursor.set_key(number_key(version + 1)):
                return None
            for _, value in cursor:
                keys = _decode_index(value)
                if keys is None:
                    return None
                found.update(keys)
        return found


_index_decoder = msgspec.msgpack.Decoder(list[tuple[str, bytes]] | None)


def _decode_index(value: bytes | memoryview) -> list[Key] | None:
    return _index_decoder.decode(value)


class VersionedReader:
    """A reader's side, in another process; opens anew when the files were replaced."""

    def __init__(self, path: str, tables: Iterable[str]) -> None:
        self._path = path
        self._tables = list(tables)
        self._env: lmdb.Environment | None = None
        self._inode = 0
        self._dbs: dict[str, Any] = {}
        #: grows whenever other files are read than before: nothing known before holds
        self.reopened = 0

    @property
    def inode(self) -> int:
        """Of the file that is read; 0: none."""
        return self._inode

    def refresh(self) -> None:
        """Notices replaced files; one stat. Call it now and then, outside of a snapshot."""
        try:
            inode = os.stat(os.path.join(self._path, "data.mdb")).st_ino
        except OSError:
            inode = 0
        if self._env is not None and inode != self._inode:
            self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Raises StoreError when there is nothing to read (no controller ever ran)."""
        env = self._open()
        with env.begin(buffers=True) as txn:
            yield Snapshot(txn, self._dbs)

    def _open(self) -> lmdb.Environment:
        if self._env is not None:
            return self._env
        data = os.path.join(self._path, "data.mdb")
        try:
            inode = os.stat(data).st_ino
            env = lmdb.open(
                self._path,
                # 0: the size that the writer laid down
                map_size=0,
                readonly=True,
                create=False,
                max_dbs=len(self._tables) + 2,
                max_readers=512,
                max_spare_txns=2,
            )
        except (lmdb.Error, OSError) as error:
            raise StoreError(f"cannot read {self._path}: {error}") from None
        try:
            self._dbs = {name: env.open_db(name.encode(), create=False) for name in self._tables}
            self._dbs["changes"] = env.open_db(_RING_DB, create=False)
            self._dbs["_version"] = env.open_db(_STATE_DB, create=False)
        except lmdb.Error as error:
            env.close()
            raise StoreError(f"cannot read {self._path}: {error}") from None
        self._env = env
        self._inode = inode
        self.reopened += 1
        return env

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
