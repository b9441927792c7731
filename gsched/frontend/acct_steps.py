"""Steps of the attempts that a page of accounting's answer shows: from SQL, the outbox, and those
that run. A job may have a hundred thousand of them, so it may be spread over several pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gsched.accounting.steps import step_row
from gsched.model import Fact, Step
from gsched.model.acct import AcctJob, AcctStep

if TYPE_CHECKING:
    from gsched.accounting.database import Database

#: steps of one page
MOST = 20_000

#: job, and how often it had been requeued before -> its steps by number
Extra = dict[tuple[int, int], dict[int, AcctStep]]


def live_steps(
    facts: Iterable[Fact], running: Iterable[Step], restarts: Mapping[int, int], now: int
) -> Extra:
    """Steps that SQL does not have. `restarts` is that of each job's present attempt."""
    extra: Extra = {}
    for step in running:
        for share in step.by_component():
            key = share.job_id, restarts.get(share.job_id, -1)
            extra.setdefault(key, {})[share.id] = step_row(share, now)
    for fact in facts:
        for step in fact.steps:
            key = step.job_id, fact.restarts
            extra.setdefault(key, {})[step.id] = step_row(step, fact.time)
    return extra


class Steps:
    """Where the steps of one question's attempts come from."""

    def __init__(self, database: Database | None, state_uuid: str, last_seq: int, extra: Extra):
        """Of `state_uuid` SQL is asked up to the fact `last_seq`."""
        self._database = database
        self._state = state_uuid
        self._last_seq = last_seq
        self._extra = extra

    def fill(
        self, jobs: list[tuple[str, AcctJob]], after: int | None
    ) -> tuple[list[AcctJob], int | None]:
        """Gives (state, attempt) their steps, in order; of the first only those whose number is
        above `after`. Returns as many attempts as have room, and where the last one is not whole
        the number of its last step."""
        counts = self._counts(jobs)
        if jobs and (after is not None or counts[0] > MOST):
            return self._first(*jobs[0], after)
        given: list[tuple[str, AcctJob]] = []
        room = MOST
        for job, count in zip(jobs, counts, strict=True):
            room -= count
            if room < 0 and given:
                break
            given.append(job)
        self._whole([job for job, count in zip(given, counts, strict=False) if count])
        return [job for _, job in given], None

    def _counts(self, jobs: list[tuple[str, AcctJob]]) -> list[int]:
        stored: dict[tuple[str, int, int], int] = {}
        if self._database is not None:
            keys = [(state, one.job_id, one.restarts) for state, one in jobs if one.start]
            stored = self._database.step_counts(keys)
        return [
            stored.get((state, one.job_id, one.restarts), 0)
            + (len(self._extra.get((one.job_id, one.restarts), ())) if self._mine(state) else 0)
            for state, one in jobs
        ]

    def _mine(self, state: str) -> bool:
        return state == self._state

    def _more(self, state: str, one: AcctJob) -> dict[int, AcctStep]:
        return self._extra.get((one.job_id, one.restarts), {}) if self._mine(state) else {}

    def _bound(self) -> tuple[str, int]:
        return self._state, self._last_seq

    def _whole(self, jobs: list[tuple[str, AcctJob]]) -> None:
        stored: dict[tuple[str, int, int], dict[int, AcctStep]] = {}
        if self._database is not None:
            keys = [(state, one.job_id, one.restarts) for state, one in jobs]
            stored = self._database.steps_of(keys, self._bound())
        for state, one in jobs:
            key = state, one.job_id, one.restarts
            _add(one, {**self._more(state, one), **stored.get(key, {})})

    def _first(
        self, state: str, one: AcctJob, after: int | None
    ) -> tuple[list[AcctJob], int | None]:
        more = self._more(state, one)
        if after is not None:
            one.steps = []
            more = {number: step for number, step in more.items() if number > after}
        stored: dict[int, AcctStep] = {}
        key = state, one.job_id, one.restarts
        if self._database is not None:
            stored = self._database.steps_of([key], self._bound(), after, MOST).get(key, {})
        numbers = sorted({**more, **stored})
        some = numbers[:MOST]
        _add(one, {n: stored[n] if n in stored else more[n] for n in some})
        partial = len(numbers) > len(some) or len(stored) == MOST
        return [one], some[-1] if partial and some else None


def _add(one: AcctJob, steps: Mapping[int, AcctStep]) -> None:
    one.steps += list(steps.values())
    one.steps.sort(key=lambda step: step.number)
