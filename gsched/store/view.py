"""What readers see beside the facts: verdicts, use, status. Not synced, empty at every start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from gsched.store.errors import StoreError
from gsched.store.ranks import Ranks
from gsched.store.versioned import Changes, Versioned, VersionedReader
from gsched.store.words import Words

TABLES = ("verdict", "words", "use", "status", "plan", "rank")
_NOTHING: frozenset[str] = frozenset()


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class ViewStore:
    """The controller's side of the view; it holds the state directory's lock already."""

    def __init__(self, state_dir: str) -> None:
        """Opens it empty. Readers that had it open go on and see that it was emptied."""
        path = os.path.join(state_dir, "view")
        marker = os.path.join(path, "boot")
        boot = _boot_id()
        # Unsynced pages do not outlive a power cut: files of another boot cannot be trusted.
        if os.path.isdir(path) and _read(marker) != boot:
            shutil.rmtree(path, ignore_errors=True)
        try:
            self._db = self._start(path)
        except StoreError:
            shutil.rmtree(path, ignore_errors=True)
            self._db = self._start(path)
        with open(marker, "w", encoding="ascii") as file:
            file.write(boot)
        self._words = Words()
        self._ranks = Ranks()

    @staticmethod
    def _start(path: str) -> Versioned:
        db = Versioned(path, TABLES, sync=False)
        try:
            db.wipe()
        except BaseException:
            db.close()
            raise
        return db

    def put(
        self,
        changes: Changes,
        words: Mapping[int, str] | None = None,
        ranks: Mapping[int, int] | None = None,
    ) -> int:
        """(kind, key) -> value, None deletes; one unsynced transaction (about 10 us). `words`: job
        id -> reason, for verdicts that say no more; `changes` come after them. `ranks`: job id ->
        priority in force, 0 for that of its record."""
        whole = self._words.fold(dict(changes), words or {})
        if ranks:
            whole |= self._ranks.fold(ranks)
        return self._db.commit(whole, silent=_NOTHING)

    def get(self, kind: str, key: bytes) -> bytes | None:
        return self._db.get(kind, key)

    def close(self) -> None:
        self._db.close()


class ViewReader(VersionedReader):
    """Snapshots of the view for other processes."""

    def __init__(self, state_dir: str) -> None:
        super().__init__(os.path.join(state_dir, "view"), TABLES)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
