"""The projector: from the controller's outbox into SQL, every fact exactly once.

A fact's number is stored in the transaction that stores the fact; only then is the controller
told that it may drop it. Whatever dies in between is made up for by asking SQL how far it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gsched.accounting.archive import ArchiveError, purge
from gsched.accounting.database import Database, DatabaseDown, DatabaseRefuses, Row
from gsched.accounting.outbox import Meta, read_facts, read_meta, read_policy
from gsched.accounting.rows import row
from gsched.accounting.sql_news import Told
from gsched.accounting.steps import fact_row
from gsched.client import Client, ControllerDown, RequestRefused
from gsched.config import Config
from gsched.model import Fact
from gsched.store import StoreError, StoreReader
from gsched.wire.messages import AckOutbox, Done

#: Facts stored in one transaction: each is one wait for the disk.
BATCH = 4000
#: Seconds between looks at the outbox: reads see what is in it, so nobody waits for this.
LOOK_S = 1.0
#: Seconds after a failure, doubled with each further one.
RETRY_S = 0.5
RETRY_MAX_S = 30.0
#: Seconds between looks for what is too old.
PURGE_S = 3600.0


class Projector:
    """Moves facts until told to stop."""

    def __init__(
        self,
        config: Config,
        database: Database,
        reader: StoreReader,
        client: Client,
        log: Any,
        wait: Callable[[float], bool],
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """`wait(seconds)` returns early, and True, when the process is to end; `keys` are those of
        slurmdbd.conf."""
        self._keys = keys or {}
        #: when rows are looked through for those that are too old
        self._purge_at = 0.0
        self._config = config
        self._database = database
        self._reader = reader
        self._client = client
        self._log = log
        self._wait = wait
        self._contain = bool({"contain", "x11"} & {f.lower() for f in config.prolog_flags})
        #: state uuid and last fact stored there; None: SQL has to be asked
        self._known: tuple[str, int] | None = None
        #: the controller has dropped everything up to this
        self._acked = 0
        self._migrated = False
        #: state whose policy SQL has as it was when this process began
        self._synced = ""
        self._trouble = ""
        #: facts stored by this process
        self.stored = 0

    def run(self) -> None:
        """Until `wait` says so. Nothing that fails ends it."""
        retry = RETRY_S
        while True:
            try:
                pause = 0.0 if self.turn() else LOOK_S
                retry = RETRY_S
            except (DatabaseDown, DatabaseRefuses, StoreError, msgspec.DecodeError) as problem:
                self._complain(str(problem))
                self._known = None
                pause, retry = retry, min(retry * 2, RETRY_MAX_S)
            if self._wait(pause):
                return

    def turn(self) -> bool:
        """One batch, if there is one; True when more is waiting. Raises what `run` retries."""
        if not self._migrated:
            self._database.migrate()
            self._migrated = True
        self._reader.refresh()
        with self._reader.snapshot() as snapshot:
            meta = read_meta(snapshot)
            if meta is None:
                return False
            if self._synced != meta.cluster:
                records = read_policy(snapshot)
                now = int(meta.last_now)
                self._database.sync(meta.cluster, self._config.cluster_name, records, now)
                self._synced = meta.cluster
            last = self._last(meta)
            facts = read_facts(snapshot, last + 1, BATCH)
            rows = [(fact.seq, self._row(fact)) for fact in facts]
        if rows:
            last = self._store(meta.cluster, rows)
            self._known = (meta.cluster, last)
        if self._trouble:
            self._log.info("accounting goes on")
            self._trouble = ""
        if last >= meta.outbox_first:
            self._acknowledge(last)
        if len(rows) < BATCH and self._keys and time.monotonic() >= self._purge_at:
            # Facts come first; what is old can wait for an hour more.
            self._purge_at = time.monotonic() + PURGE_S
            self._purge()
        return len(rows) == BATCH

    def _row(self, fact: Fact) -> Row:
        if fact.news is not None:
            return Told(fact.time, fact.news)
        if fact.job is None:
            return fact_row(fact.steps, fact.restarts, fact.time)
        return row(fact.job, self._config.cluster_name, fact.time, contain=self._contain)

    def _last(self, meta: Meta) -> int:
        """How far SQL is with this state."""
        if self._known is not None and self._known[0] == meta.cluster:
            return self._known[1]
        last = self._database.last_seq(meta.cluster)
        if last < meta.outbox_first - 1:
            # Another database, or an older copy of it: what it lacks has been dropped long ago.
            lost = meta.outbox_first - 1 - last
            self._log.error(f"{lost} facts before number {meta.outbox_first} are not in SQL")
            last = meta.outbox_first - 1
            self._database.skip_to(meta.cluster, last)
        elif last >= meta.outbox_next:
            self._log.error(
                f"SQL holds facts up to {last}, the controller's state only up to "
                f"{meta.outbox_next - 1}: an older copy of the state? The difference is skipped"
            )
        self._known = (meta.cluster, last)
        return last

    def _store(self, state_uuid: str, rows: list[tuple[int, Row]]) -> int:
        try:
            last = self._database.store(state_uuid, rows)
        except DatabaseRefuses:
            # One of them is not to its taste: find out which, the others go in as they are.
            last = 0
            for seq, one in rows:
                try:
                    last = self._database.store(state_uuid, [(seq, one)])
                except DatabaseRefuses as problem:
                    what = "news" if isinstance(one, Told) else f"job {one.job_id}"
                    self._log.error(f"fact {seq} ({what}) is stored cut: {problem}")
                    last = self._database.store_stripped(state_uuid, seq, one)
        self.stored += len(rows)
        self._log.debug(f"{len(rows)} facts stored, the last is number {last}")
        return last

    def _acknowledge(self, last: int) -> None:
        """Lets the controller drop what is stored. If it is away, the next turn tells it."""
        if self._acked >= last:
            return
        try:
            while True:
                reply = self._client.call(AckOutbox(last))
                if not isinstance(reply, Done):
                    self._complain(f"the controller drops no facts: {reply.message}")
                    return
                if reply.value > last:
                    self._acked = last
                    return
                before, self._acked = self._acked, reply.value - 1
                if self._acked <= before:
                    return
        except ControllerDown:
            pass
        except (RequestRefused, OSError) as problem:
            self._complain(f"the controller drops no facts: {problem}")

    def _purge(self) -> None:
        try:
            gone = purge(self._database, self._keys, int(time.time()))
        except ArchiveError as problem:
            self._log.error(str(problem))
            return
        for kind, count in gone.items():
            self._log.info(f"{count} {kind} were too old and are gone")

    def _complain(self, text: str) -> None:
        """Says once what is wrong, not with every attempt."""
        if text != self._trouble:
            self._trouble = text
            self._log.error(text)


def sleeper(stop: Callable[[], bool]) -> Callable[[float], bool]:
    """A `wait` that looks at a flag set by signals; they end the sleep."""

    def wait(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not stop():
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, 0.2))
        return True

    return wait
