"""What is different of the jobs since an earlier answer, from the indexes of what changed.

Whoever keeps what it made of the jobs (a worker that runs squeue) asks for this instead of all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from gsched.store import (
    PAGE,
    RANK_PAGE,
    RANK_TABLE,
    WORD_LIST,
    Snapshot,
    number_key,
    ranks,
    verdicts,
)
from gsched.wire.changes import JobChanges
from gsched.wire.messages import JobQuery

if TYPE_CHECKING:
    from gsched.frontend.reader import Mirror

#: jobs in one answer: nobody holds all records of a long queue at once
PART = 20_000


class _Delta(msgspec.Struct, array_like=True, tag="JobDelta", gc=False):
    version: int
    state: bytes
    whole: bool
    whose: int
    jobs: list[msgspec.Raw]
    verdicts: dict[int, msgspec.Raw]
    gone: list[int] = []
    silent: list[int] = []
    not_before: dict[int, int] | None = None
    more: bool = False
    priorities: dict[int, int] = {}


class _State(msgspec.Struct, array_like=True, gc=False):
    """What JobDelta.state says."""

    #: which files, and which run of the controller on them: versions are comparable within
    cluster: tuple[int, int, str, int, int, int]
    whose: int
    planned: bool
    main: int
    view: int


_state = msgspec.msgpack.Decoder(_State)
_encoder = msgspec.msgpack.Encoder()


class Changes:
    """One snapshot of both stores, of which changes are told."""

    def __init__(
        self,
        main: Snapshot,
        view: Snapshot | None,
        mirror: Mirror,
        cluster: tuple[int, int, str, int, int, int],
        not_before: Callable[[], dict[int, int]],
    ) -> None:
        """`mirror` is as new as `main`; `cluster`: see _State."""
        self._main = main
        self._view = view
        self._mirror = mirror
        self._cluster = cluster
        self._not_before = not_before

    def answer(self, query: JobChanges, whose: int) -> bytes:
        """The packed answer, of one user's jobs alone where `whose` is not -1. Cost: 1 us for each
        job in it, and for each commit since the state before."""
        uids = only(whose, query.uids) if whose >= 0 else query.uids
        wanted = JobQuery([], uids, active_only=query.active_only)
        known = _known(query.state)
        state = b""
        if self._view is not None:
            here = _State(
                self._cluster, whose, query.planned, self._main.version, self._view.version
            )
            state = _encoder.encode(here)
        if (
            known is None
            or self._view is None
            or query.after
            or (known.cluster, known.whose) != (self._cluster, whose)
            or (query.planned and not known.planned)
        ):
            return self._whole(query, wanted, whose, state)
        jobs = self._main.changed_since(known.main)
        told = self._view.changed_since(known.view)
        if jobs is None or told is None:
            return self._whole(query, wanted, whose, state)
        changed = {int.from_bytes(key, "big") for table, key in jobs if table == "job"}
        for table, key in told:
            if table == RANK_TABLE and len(key) == 8:
                # Their priorities are another: they are told as if their records were.
                first = RANK_PAGE * int.from_bytes(key, "big")
                changed.update(
                    filter(self._mirror.jobs.__contains__, range(first, first + RANK_PAGE))
                )
        matching = sorted(job_id for job_id in changed if self._mirror.matches(job_id, wanted))
        gone = sorted(changed.difference(matching))
        about = set(matching)
        for table, key in told:
            if table == "verdict":
                about.add(int.from_bytes(key, "big"))
            elif table == "words" and key != WORD_LIST:
                first = PAGE * int.from_bytes(key, "big")
                about.update(range(first, first + PAGE))
        asked = sorted(job_id for job_id in about if self._mirror.matches(job_id, wanted))
        why = _packed(verdicts(self._view, asked))
        late = None
        if query.planned and any(table == "plan" for table, _ in told):
            late = self._late(self._mirror.select(wanted))
        return _encoder.encode(
            _Delta(
                self._main.version,
                state,
                False,
                whose,
                self._records(matching),
                why,
                gone,
                [job_id for job_id in asked if job_id not in why],
                late,
                False,
                ranks(self._view, matching),
            )
        )

    def _whole(self, query: JobChanges, wanted: JobQuery, whose: int, state: bytes) -> bytes:
        selected = self._mirror.select(wanted)
        if selected is None:
            selected = sorted(self._mirror.jobs)
        if query.after:
            from bisect import bisect_right

            selected = selected[bisect_right(selected, query.after) :]
        part = selected[:PART]
        why: dict[int, msgspec.Raw] = {}
        late = None
        if self._view is not None:
            why = _packed(verdicts(self._view, part))
            late = self._late(part) if query.planned else None
        more = len(selected) > PART
        jobs = self._records(part)
        version = self._main.version
        ranked = ranks(self._view, part) if self._view is not None else {}
        return _encoder.encode(
            _Delta(version, state, True, whose, jobs, why, [], [], late, more, ranked)
        )

    def _records(self, ids: Iterable[int]) -> list[msgspec.Raw]:
        found = (self._main.get("job", number_key(job_id)) for job_id in ids)
        return [msgspec.Raw(value) for value in found if value is not None]

    def _late(self, selected: Collection[int] | None) -> dict[int, int]:
        known = self._not_before()
        if selected is None:
            return known
        return {job_id: known[job_id] for job_id in selected if job_id in known}


def only(uid: int, uids: list[int]) -> list[int]:
    """Of the users that a query names (none: all) the only one whose jobs may be seen."""
    return [uid] if not uids or uid in uids else [-1]


def _known(state: bytes) -> _State | None:
    try:
        return _state.decode(state) if state else None
    except msgspec.DecodeError:
        return None


def _packed(found: dict[int, bytes]) -> dict[int, msgspec.Raw]:
    return {job_id: msgspec.Raw(value) for job_id, value in found.items()}


__all__ = ["PART", "Changes", "only"]
