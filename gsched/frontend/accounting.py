"""Questions to accounting: SQL's rows and what has not left the controller's state, in one order.

The state is read by the worker's loop, as for every other read; SQL is asked by threads of their
own, so that a slow or dead database holds up nobody but those who ask for it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import threading
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from gsched.accounting.choose import Choice
from gsched.accounting.outbox import raw_facts, read_meta
from gsched.accounting.place import PlaceError, enabled, settings, shown
from gsched.accounting.rows import row
from gsched.config import Config
from gsched.frontend.acct_steps import Extra, Steps, live_steps
from gsched.model import Fact, Job, JobState, Step, Verdict
from gsched.model.acct import AcctJob
from gsched.store import Snapshot, verdicts
from gsched.wire.codec import encode
from gsched.wire.messages import AcctQuery, Refused
from gsched.wire.report import ReportQuery, ReportRows, TransactionRow

if TYPE_CHECKING:
    from gsched.accounting.database import Database

#: Rows and bytes of one answer; whoever wants more asks on.
PAGE = 5000
PAGE_BYTES = 8 << 20
THREADS = 2
#: Seconds after which a question is given up.
PATIENCE_S = 60.0
#: kinds of reports that are none: something is done
ACTS = frozenset({"mend", "change", "archive", "load"})
DISABLED = "Slurm accounting storage is disabled"

_job = msgspec.msgpack.Decoder(Job)
_fact = msgspec.msgpack.Decoder(Fact)
_step = msgspec.msgpack.Decoder(Step)
_verdict = msgspec.msgpack.Decoder(Verdict)
_encoder = msgspec.msgpack.Encoder()


class _AcctRows(msgspec.Struct, array_like=True, tag="AcctRows", gc=False):
    version: int
    jobs: list[msgspec.Raw]
    last: list[int]
    more: bool
    warning: str


@dataclass
class Live:
    """What the controller's state holds of accounting, copied out of one snapshot."""

    version: int
    #: uuid of the state, and the number of the oldest fact in the outbox
    state_uuid: str = ""
    outbox_first: int = 1
    jobs: list[bytes] = field(default_factory=list)
    facts: list[tuple[int, bytes]] = field(default_factory=list)
    verdicts: dict[int, bytes] = field(default_factory=dict)
    #: steps that run
    steps: list[bytes] = field(default_factory=list)
    #: number of the next fact
    outbox_next: int = 1


def gather(main: Snapshot, view: Snapshot | None, ids: list[int] | None) -> Live:
    """Copies the jobs (all, or those with the given ids), the outbox and the verdicts."""
    live = Live(main.version)
    meta = read_meta(main)
    if meta is not None:
        live.state_uuid, live.outbox_first = meta.cluster, meta.outbox_first
        live.outbox_next = meta.outbox_next
    if ids is None:
        live.jobs = [bytes(value) for _, value in main.scan("job")]
        live.steps = [bytes(value) for _, value in main.scan("step")]
        if view is not None:
            live.verdicts = verdicts(view, None)
    else:
        for job_id in ids:
            key = job_id.to_bytes(8, "big")
            found = main.get("job", key)
            if found is not None:
                live.jobs.append(bytes(found))
                # Those of a heterogeneous job are all of its first component.
                leader = _job.decode(found).het_job_id or job_id
                below = leader.to_bytes(8, "big")
                live.steps += [bytes(value) for _, value in main.below("step", below)]
        if view is not None:
            live.verdicts = verdicts(view, ids)
    live.facts = list(raw_facts(main))
    return live


@dataclass
class _Question:
    """One client's question, and between its pages what is left of the live rows."""

    query: AcctQuery | ReportQuery
    live: Live | None
    since: float
    uid: int = -1
    answer: bytes | None = None
    given_up: bool = False
    #: sorted live rows that no page has brought yet; None: not made yet
    rows: list[AcctJob] | None = None
    state_uuid: str = ""
    #: facts up to this number are SQL's
    last_seq: int = 0
    needs_sql: bool = True
    #: why what only SQL knows is missing; "" nothing is
    warning: str = ""
    #: steps that SQL does not have
    extra: Extra = field(default_factory=dict)


def jobs_are_private(config: Config) -> bool:
    """PrivateData: users see their own jobs only."""
    return bool({"jobs", "all"} & {word.lower() for word in config.private_data})


class Accounting:
    """Answers AcctQuery; one per worker."""

    def __init__(self, config: Config, admins: frozenset[int]) -> None:
        self._config = config
        self._admins = admins
        self._private = jobs_are_private(config)
        self._contain = bool({"contain", "x11"} & {f.lower() for f in config.prolog_flags})
        self._database: Database | None = None
        self._opening = threading.Lock()
        self._todo: SimpleQueue[Hashable] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._open: dict[Hashable, _Question] = {}
        #: what a client's next page goes on from
        self._pages: dict[Hashable, _Question] = {}
        self._ready: SimpleQueue[Hashable] = SimpleQueue()
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)

    # ---- for the worker's loop ----------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when an answer is there."""
        return self._wake

    def goes_on(self, who: Hashable, query: AcctQuery) -> bool:
        """Whether it is the next page of what the client asked before: no snapshot is needed."""
        before = self._pages.get(who)
        return (
            bool(query.after)
            and before is not None
            and isinstance(before.query, AcctQuery)
            and _same(before.query, query)
        )

    def under_way(self, who: Hashable) -> bool:
        """Whether the client's question has been put."""
        return who in self._open

    def ask(
        self, who: Hashable, query: AcctQuery | ReportQuery, uid: int, live: Live | None
    ) -> None:
        """Puts the question to a thread; `answer` gives what came of it."""
        if isinstance(query, ReportQuery):
            if uid not in self._admins and (refusal := self._reserved(query, uid)):
                self._open[who] = question = _Question(query, None, time.monotonic())
                question.answer = encode(refusal)
                self._done(who)
                return
        elif self._private and uid not in self._admins:
            query.uids = [uid]
        before = self._pages.pop(who, None)
        if live is None and before is not None:
            question = before
            question.query, question.since, question.answer = query, time.monotonic(), None
        else:
            question = _Question(query, live, time.monotonic(), uid)
        self._open[who] = question
        if not enabled(self._config):
            question.answer = encode(Refused(b"", DISABLED))
            self._done(who)
            return
        while len(self._threads) < THREADS:
            # Daemons: a database that hangs must not keep the worker from ending.
            thread = threading.Thread(target=self._work, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._todo.put(who)

    def _reserved(self, query: ReportQuery, uid: int) -> Refused | None:
        """PrivateData: what of a report ordinary users may not see is left out or refused."""
        words = {word.lower() for word in self._config.private_data}
        kinds = {
            **dict.fromkeys(("usage", "sizes", "bill", "cluster"), "usage"),
            **dict.fromkeys(("events", "transactions", "runaway"), "events"),
            "reservations": "reservations",
        }
        word = kinds.get(query.kind, "")
        if not words & {word, "all"}:
            return None
        if query.kind in ("usage", "sizes", "bill"):
            try:
                query.only["users"] = [pwd.getpwuid(uid).pw_name]
            except KeyError:
                return Refused(b"", "Access/permission denied", "ESLURM_ACCESS_DENIED")
            return None
        return Refused(b"", "Access/permission denied", "ESLURM_ACCESS_DENIED")

    def answer(self, who: Hashable) -> bytes | None:
        """The packed answer to the client's question; None while it is under way."""
        question = self._open.get(who)
        if question is None:
            return encode(Refused(b"", "the question was lost", temporary=True))
        if question.answer is None:
            if time.monotonic() - question.since < PATIENCE_S:
                return None
            question.given_up = True
            del self._open[who]
            return encode(Refused(b"", "the accounting database does not answer in time"))
        del self._open[who]
        if question.rows:
            self._pages[who] = question
        return question.answer

    def ready(self) -> Iterator[Hashable]:
        """Clients whose answers have come since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        while not self._ready.empty():
            yield self._ready.get()

    def overdue(self) -> list[Hashable]:
        """Clients who have waited too long: `answer` tells them."""
        now = time.monotonic()
        return [who for who, q in self._open.items() if now - q.since >= PATIENCE_S]

    def forget(self, who: Hashable) -> None:
        """The client has gone."""
        self._open.pop(who, None)
        self._pages.pop(who, None)

    # ---- in the threads -----------------------------------------------------------------------

    def _done(self, who: Hashable) -> None:
        self._ready.put(who)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_end, b"\0")

    def _work(self) -> None:
        while True:
            who = self._todo.get()
            question = self._open.get(who)
            if question is None or question.given_up:
                continue
            try:
                if isinstance(question.query, ReportQuery):
                    question.answer = self._report(question, question.query)
                else:
                    question.answer = self._page(question, question.query)
            except Exception as problem:
                text = str(problem).strip() or type(problem).__name__
                question.answer = encode(Refused(b"", text))
            self._done(who)

    def _report(self, question: _Question, query: ReportQuery) -> bytes:
        live = question.live
        assert live is not None
        question.live = None
        if query.kind == "settings":
            pairs = shown(self._config)
            return encode(ReportRows([TransactionRow(0, "", key, "", text) for key, text in pairs]))
        if query.kind in ACTS:
            return encode(self._act(question.uid, query, live))
        from gsched.accounting.report import LiveRows, answer

        facts, jobs = self._live_rows(live)
        rows = LiveRows(live.state_uuid, self._config.cluster_name, int(time.time()), facts, jobs)
        rows.outbox_next = live.outbox_next
        return encode(answer(self._sql(), query, rows))

    def _act(self, uid: int, query: ReportQuery, live: Live) -> ReportRows | Refused:
        """Something done to the database, by a connection that may write."""
        from gsched.accounting.acts import Asker, Denied, act
        from gsched.accounting.database import Database

        waiting = [seq for seq, packed in live.facts if _fact.decode(packed).job is not None]
        found = settings(self._config)
        database = Database(found.url)
        try:
            asker = Asker(uid, uid in self._admins)
            return act(database, query, live.state_uuid, waiting, found.keys, asker)
        except Denied as problem:
            return Refused(b"", str(problem), "ESLURM_ACCESS_DENIED")
        finally:
            database.close()

    def _live_rows(self, live: Live) -> tuple[list[tuple[int, AcctJob]], list[AcctJob]]:
        """Attempts that ended and lie in the outbox, with the numbers of their facts, and those
        that run or wait."""
        name, contain = self._config.cluster_name, self._contain
        now = int(time.time())
        facts = []
        for seq, packed in live.facts:
            fact = _fact.decode(packed)
            if fact.job is not None:
                facts.append((seq, row(fact.job, name, fact.time, contain=contain)))
        jobs = []
        for packed in live.jobs:
            job = _job.decode(packed)
            if not job.finished or job.completing:
                jobs.append(row(job, name, now, contain=contain))
        return facts, jobs

    def _page(self, question: _Question, query: AcctQuery) -> bytes:
        choice = Choice(query)
        if question.rows is None:
            self._prepare(question, choice)
        assert question.rows is not None
        stored: list[tuple[str, AcctJob]] = []
        bound: tuple[int, ...] | None = None
        if question.needs_sql:
            try:
                found = self._sql().rows(query, PAGE)
            except Exception as problem:
                # A later page would leave a hole that nobody sees.
                if query.after:
                    raise
                self._prepare(question, choice, problem)
                found = []
            if len(found) == PAGE:
                bound = found[-1][2].order
            stored = [
                (state, one)
                for state, seq, one in found
                if not (state == question.state_uuid and seq > question.last_seq)
                and choice.takes(one)
            ]
        question.live = None
        changed = {(one.job_id, one.restarts) for _, one in stored if one.changed}
        mine = [
            (question.state_uuid, one)
            for one in question.rows
            if (one.job_id, one.restarts) not in changed
        ]
        merged = _merge(stored, mine, bound)
        if query.allocations:
            return self._pack(question, [one for _, one in merged], bound, None)
        database = self._sql() if question.needs_sql else None
        steps = Steps(database, question.state_uuid, question.last_seq, question.extra)
        given, partial = steps.fill(merged, query.after[5] if len(query.after) > 5 else None)
        if len(given) < len(merged):
            bound = given[-1].order
        return self._pack(question, given, bound, partial)

    def _prepare(self, question: _Question, choice: Choice, dead: Exception | None = None) -> None:
        """The rows of jobs and facts that SQL does not have, in order; all of them, and a warning,
        where SQL does not answer (`dead`: that has been found out)."""
        live = question.live
        assert live is not None
        question.last_seq = 0
        question.state_uuid = live.state_uuid
        # Before the first fact was dropped there is nothing that only SQL knows.
        question.needs_sql = live.outbox_first > 1
        try:
            if dead is not None:
                raise dead
            question.last_seq = self._sql().last_seq(live.state_uuid)
            question.needs_sql = True
        except Exception as problem:
            if question.needs_sql:
                question.warning = str(problem).strip() or type(problem).__name__
            question.needs_sql = False
        rows: dict[tuple[int, int], AcctJob] = {}
        name, contain = self._config.cluster_name, self._contain
        facts = [_fact.decode(packed) for seq, packed in live.facts if seq > question.last_seq]
        for fact in facts:
            if fact.job is not None:
                made = row(fact.job, name, fact.time, contain=contain)
                rows[made.job_id, made.restarts] = made
        now = int(time.time())
        restarts: dict[int, int] = {}
        for packed in live.jobs:
            job = _job.decode(packed)
            restarts[job.id] = job.restarts
            # A fact is the end; only a record of the same end may know more than it.
            over = job.finished and not job.completing
            if over or (job.id, job.restarts) not in rows:
                verdict = live.verdicts.get(job.id) if job.state == JobState.PENDING else None
                reason = _verdict.decode(verdict).reason if verdict is not None else ""
                rows[job.id, job.restarts] = row(job, name, now, contain=contain, reason=reason)
        running = [_step.decode(packed) for packed in live.steps]
        question.extra = live_steps(facts, running, restarts, now)
        after = choice.query.after
        question.rows = sorted(
            (one for one in rows.values() if _beyond(one, after) and choice.takes(one)),
            key=lambda one: one.order,
        )

    def _pack(
        self,
        question: _Question,
        merged: list[AcctJob],
        bound: tuple[int, ...] | None,
        partial: int | None,
    ) -> bytes:
        """`partial`: number of the last step of the last attempt, of which more are to come."""
        packed: list[msgspec.Raw] = []
        size = 0
        for one in merged:
            data = _encoder.encode(one)
            while len(data) > PAGE_BYTES and len(one.steps) > 1 and not packed:
                # Long lines: fewer of its steps, and nothing after it.
                one.steps = one.steps[: len(one.steps) // 2]
                partial = one.steps[-1].number
                data = _encoder.encode(one)
                size = PAGE_BYTES
            size += len(data)
            if packed and (size > PAGE_BYTES or len(packed) == PAGE):
                break
            packed.append(msgspec.Raw(data))
        cut = len(packed) < len(merged)
        if cut:
            last = list(merged[len(packed) - 1].order)
        elif bound is not None:
            last = list(bound)
        else:
            last = list(merged[-1].order) if merged else []
        if partial is not None:
            last.append(partial)
        assert question.rows is not None
        question.rows = [one for one in question.rows if _beyond(one, last)] if last else []
        more = cut or bound is not None or bool(question.rows)
        return _encoder.encode(_AcctRows(0, packed, last, more, question.warning))

    def _sql(self) -> Database:
        with self._opening:
            if self._database is None:
                # SQLAlchemy costs a third of a second: only here, and only once.
                from gsched.accounting.database import Database, DatabaseDown

                try:
                    found = settings(self._config)
                except PlaceError as problem:
                    raise DatabaseDown(str(problem)) from None
                if found.sqlite_file and not os.path.exists(found.sqlite_file):
                    raise DatabaseDown(f"there is no {found.sqlite_file} yet: is slurmdbd up?")
                self._database = Database(found.url, read_only=True)
            return self._database


def _same(one: AcctQuery, other: AcctQuery) -> bool:
    first, second = (
        msgspec.structs.replace(query, after=[], min_version=0, uids=[]) for query in (one, other)
    )
    return first == second


def _beyond(one: AcctJob, place: list[int]) -> bool:
    """Whether the attempt, or steps of it, come after a place that was told as the last one."""
    order = list(one.order)
    return order > place[:5] or (order == place[:5] and len(place) > 5)


def _merge(
    stored: list[tuple[str, AcctJob]],
    live: list[tuple[str, AcctJob]],
    bound: tuple[int, ...] | None,
) -> list[tuple[str, AcctJob]]:
    """Both, with the states that they are of, in order, without live ones beyond SQL's page; of one
    attempt the live record, unless it does not know of the end."""
    chosen = {one.order: (state, one) for state, one in stored}
    for state, one in live:
        if bound is not None and one.order > bound:
            break
        if one.order not in chosen or one.end_time:
            chosen[one.order] = state, one
    return [chosen[order] for order in sorted(chosen)]
