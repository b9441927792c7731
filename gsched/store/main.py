"""The durable records: one LMDB environment, synced before any answer leaves."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from gsched.store.errors import CommitFailed, StateTooNew, StoreError
from gsched.store.journal import NAME as JOURNAL
from gsched.store.journal import TOKEN_BYTES, Journal, Promised
from gsched.store.place import LOW_WATER, Ballast, StateLock, check_local, forget_pages, free_bytes
from gsched.store.versioned import Changes, Snapshot, Versioned, VersionedReader

#: Format of the state; a higher one found on disk is refused.
FORMAT = 1

TABLES = (
    *("meta", "job", "node", "partition", "answer", "blob", "outbox", "reservation", "step"),
    *("policy", "used", "hook"),
)
#: Written once by content: the key is the hash of the value.
_BY_CONTENT = frozenset({"blob"})
#: What no reader keeps a mirror of.
_SILENT = frozenset({"blob", "answer", "outbox", "meta", "step", "hook"})
#: Content above this size is compressed, bytes.
_COMPRESS_ABOVE = 512

T = TypeVar("T")

_RAW, _ZLIB = b"\x00", b"\x01"


def pack_blob(data: bytes) -> bytes:
    """How content lies in the blob table: one byte that says how, then the (packed) bytes."""
    if len(data) > _COMPRESS_ABOVE:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return _ZLIB + packed
    return _RAW + data


def unpack_blob(value: bytes | memoryview) -> bytes:
    """The inverse of pack_blob; StoreError for anything else."""
    how, rest = bytes(value[:1]), value[1:]
    if how == _RAW:
        return bytes(rest)
    if how == _ZLIB:
        try:
            return zlib.decompress(rest)
        except zlib.error as error:
            raise StoreError(f"stored content is damaged: {error}") from None
    raise StoreError("stored content is of an unknown form")


class Store:
    """The controller's durable state. Opened by one process at a time."""

    def __init__(self, state_dir: str, lock: StateLock, db: Versioned, journal: Journal) -> None:
        self.state_dir = state_dir
        self._lock = lock
        self._db = db
        self._journal = journal
        #: durable, and not in the database yet
        self._promised: Changes | None = None
        self._ballast = Ballast(state_dir)
        self._ballast.keep()

    @classmethod
    def open(cls, state_dir: str, *, map_size: int | None = None, clear: bool = False) -> Store:
        """Locks the directory and opens (makes) the state in it; `clear` starts empty.

        Raises StateLocked, StateTooNew, NotLocal, StoreError. Cost does not depend on its size.
        """
        try:
            os.makedirs(state_dir, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make {state_dir}: {error.strerror}") from None
        check_local(state_dir)
        lock = StateLock(state_dir)
        try:
            path = os.path.join(state_dir, "main")
            if clear:
                _set_aside(path)
            # Before there is anything to read: who finds the one finds the other.
            journal = Journal(path)
            try:
                db = Versioned(path, TABLES, sync=True, map_size=map_size)
                try:
                    _check_format(db)
                    store = cls(state_dir, lock, db, journal)
                    store._resume()
                except BaseException:
                    db.close()
                    raise
            except BaseException:
                journal.close()
                raise
        except BaseException:
            lock.release()
            raise
        return store

    def _resume(self) -> None:
        """Carries out what was promised before the process before this one was killed."""
        token = self._db.token
        left = self._journal.left(token) if token else None
        if left is not None and left[0] == self._db.version + 1:
            strange = {table for table, _ in left[1]}.difference(TABLES)
            if strange:
                raise StoreError(
                    f"the journal in {self._db.path} has a commit of another release, to "
                    f"{', '.join(sorted(strange))}: start that release once more"
                )
            self._write(left[1])
        # From here on nothing that is there belongs to this database, be it another's or this one's
        # as it was before somebody restored a copy.
        token = os.urandom(TOKEN_BYTES)
        self._journal.begin(token)
        self._with_room(lambda: self._db.mark(token))

    @property
    def version(self) -> int:
        """The state version: number of the last commit."""
        return self._db.version

    def commit(self, changes: Changes) -> int:
        """Makes `changes` durable, all or nothing; returns the new state version.

        (table, key) -> value, None deletes. Content of the blob table is packed here and written
        once. One fdatasync (0.1 to 5 ms, whatever the number of changes). Raises CommitFailed:
        memory is then ahead of the disk and the process must end.
        """
        return self._write(_packed(changes))

    def promise(self, changes: Changes) -> bool:
        """As `commit`, but it may leave the rest to `settle`: then (True) the changes are durable,
        no reader sees them, and `settle` has to come before anything else is asked of this store.
        One wait for the disk instead of two longer ones. False: it is done, there was too much."""
        packed = _packed(changes)
        try:
            promised = self._journal.write(self.version + 1, packed)
        except OSError:
            # The database will tell what is wrong with the disk, if anything.
            promised = False
        if promised:
            self._promised = packed
        else:
            self._write(packed)
        return promised

    def settle(self) -> int:
        """Commits what was promised; returns the new state version. Raises CommitFailed."""
        packed, self._promised = self._promised, None
        assert packed is not None
        return self._write(packed)

    def _write(self, packed: Changes) -> int:
        assert self._promised is None
        return self._with_room(lambda: self._db.commit(packed, keep=_BY_CONTENT, silent=_SILENT))

    def _with_room(self, write: Callable[[], T]) -> T:
        try:
            return write()
        except CommitFailed:
            # A full disk: the ballast makes room for what has happened already. Anything else
            # (an I/O error) must not be tried again: the kernel may have dropped the pages.
            if free_bytes(self.state_dir) >= LOW_WATER or not self._ballast.give_up():
                raise
            return write()

    def get(self, table: str, key: bytes) -> bytes | None:
        """One value as it was committed; None when there is none."""
        found = self._db.get(table, key)
        return unpack_blob(found) if found is not None and table == "blob" else found

    def load(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """All of a table in the order of its keys; a scan of 100,000 records takes 30 ms."""
        for key, value in self._db.load(table):
            yield key, unpack_blob(value) if table == "blob" else value

    def has_room(self) -> bool:
        """False below the low-water mark: take no new submissions. One system call."""
        return free_bytes(self.state_dir) >= LOW_WATER

    def tend(self) -> None:
        """Puts the ballast back once there is room again, and gives up the memory of pages that
        were read. Call it every few seconds, outside of `load`."""
        self._ballast.keep()
        forget_pages(os.path.join(self._db.path, "data.mdb"))

    def close(self) -> None:
        self._journal.close()
        self._db.close()
        self._lock.release()


def _packed(changes: Changes) -> Changes:
    return {
        key: pack_blob(value) if value is not None and key[0] == "blob" else value
        for key, value in changes.items()
    }


def _check_format(db: Versioned) -> None:
    found = db.get("meta", b"format")
    if found is None:
        if db.version:
            raise StoreError(f"the state in {db.path} has no format number: it is damaged")
        db.commit({("meta", b"format"): b"%d" % FORMAT}, silent=_SILENT)
        return
    if not found.isdigit():
        raise StoreError(f"the state in {db.path} has the format {found!r}: it is damaged")
    if int(found) > FORMAT:
        raise StateTooNew(
            f"the state in {db.path} has format {int(found)}, this release reads up to {FORMAT}"
        )


def _set_aside(path: str) -> None:
    """Starts empty without destroying: the old state stays beside it until the next clear."""
    old = path + ".old"
    if os.path.isdir(path):
        for name in ("data.mdb", "lock.mdb", JOURNAL):
            if os.path.exists(os.path.join(old, name)):
                os.unlink(os.path.join(old, name))
        if os.path.isdir(old):
            os.rmdir(old)
        os.rename(path, old)


class StoreReader(VersionedReader):
    """Snapshots of the durable state for other processes."""

    def __init__(self, state_dir: str) -> None:
        super().__init__(os.path.join(state_dir, "main"), TABLES)
        self._known: Promised | None = None
        #: `reopened` when it was looked for
        self._of = -1

    @property
    def promised(self) -> int:
        """The version that somebody may have been told of already: a snapshot from before it does
        not show what he did. It will be there in some milliseconds, if the controller lives."""
        if self._of != self.reopened:
            self._forget()
            self._known = Promised(self._path)
            self._of = self.reopened
        return self._known.version if self._known is not None else 0

    def refresh(self) -> None:
        super().refresh()
        if self._known is not None and not self._known.current:
            # A controller of an earlier release has none, the next one will; and a file that was
            # removed or of another size is made anew beside the database as it was.
            self._of = -1

    def _forget(self) -> None:
        if self._known is not None:
            self._known.close()
            self._known = None

    def close(self) -> None:
        super().close()
        self._forget()
        self._of = -1


def read_blob(snapshot: Snapshot, key: bytes) -> bytes | None:
    """Content by its hash, None when it is not there."""
    found = snapshot.get("blob", key)
    return None if found is None else unpack_blob(found)


__all__ = ["FORMAT", "TABLES", "Store", "StoreReader", "read_blob", "unpack_blob"]
