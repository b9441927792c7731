"""What associations and QOS have used, decayed: exact at every moment, whenever it is asked for.

Of stretches of work that have ended the sums are kept (`Used`, decayed to a moment of their own);
those that still last are added when somebody asks. Both follow from

    a second worked at t counts 2^(-(now - t) / h) at `now`        (h: PriorityDecayHalfLife)

in closed form, so that usage does not depend on how often it is looked at, nor on the controller's
life. A stretch is an attempt from its start to its end, without the times it was suspended. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from gsched import tres
from gsched.model.policy import Used
from gsched.model.states import JobState
from gsched.periods import last_reset

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model.job import Job
    from gsched.policy.book import Book

#: QOS flag: what was used in it stays
NO_DECAY = "nodecay"

Rates = Mapping[str, float]


def weight(half_life: float, begin: float, end: float, now: float) -> float:
    """Seconds from `begin` to `end` as they count at `now` (not before `end`). A half-life of 0: no
    decay. Cost: constant."""
    if end <= begin:
        return 0.0
    if half_life <= 0:
        return end - begin
    rate = math.log(2) / half_life
    # expm1: with a half-life of years and a stretch of seconds the two powers are almost the same.
    return math.exp(-rate * (now - end)) * -math.expm1(-rate * (end - begin)) / rate


def factor(half_life: float, since: float, now: float) -> float:
    """What is left at `now` of what was there at `since`."""
    if half_life <= 0 or now <= since:
        return 1.0
    return float(2.0 ** (-(now - since) / half_life))


@dataclass(frozen=True)
class Rules:
    """How usage decays."""

    #: seconds; 0: it does not
    half_life: float = 7 * 86400.0
    reset_period: str = "NONE"

    def half_life_of(self, book: Book, of: int | str) -> float:
        """The half-life of an association's (its id) or a QOS's (its name) usage."""
        if isinstance(of, str):
            qos = book.qos.get(of)
            if qos is not None and any(flag.lower() == NO_DECAY for flag in qos.flags):
                return 0.0
        return self.half_life


@dataclass(frozen=True)
class Stretch:
    """Work that goes on, or has just ended."""

    #: association (0 none), and QOS ("" none)
    assoc_id: int
    qos: str
    user: str
    account: str
    begin: float
    #: TRES held by name, "billing" among them
    tres: Rates
    #: what it runs in: its QOS has used the same
    partition: str = ""


def rules_of(config: Config) -> Rules:
    """How usage decays under a configuration."""
    return Rules(float(config.priority_decay_half_life), config.priority_usage_reset_period)


def stretch_of(job: Job) -> Stretch | None:
    """What a job works at now; None: it stands still, waits or is over. Cost: its nodes."""
    if job.state != JobState.RUNNING:
        return None
    held = tres.allocated(job)
    held["billing"] = job.billing if job.billing >= 0 else held.get("cpu", 0)
    begin = float(job.suspend_time or job.start_time)
    spec = job.spec
    return Stretch(job.assoc_id, spec.qos, job.user, spec.account, begin, held, job.partition)


def at(used: Used, now: float, half_life: float, reset: float = 0.0) -> Used:
    """The same as it counts at `now`; nothing where all was set to zero at `reset`, after it."""
    if used.at < reset <= now:
        return Used(at=max(now, used.at), since=max(reset, used.since))
    if now <= used.at:
        return used
    left = factor(half_life, used.at, now)
    return Used(
        {name: value * left for name, value in used.tres.items()},
        used.wall * left,
        now,
        used.since,
        _decayed(used.by_user, left),
        _decayed(used.by_account, left),
    )


def _decayed(parts: Mapping[str, Rates], left: float) -> dict[str, dict[str, float]]:
    return {who: {n: value * left for n, value in part.items()} for who, part in parts.items()}


def add(
    used: Used,
    stretch: Stretch,
    end: float,
    half_life: float,
    usage_factor: float = 1.0,
    *,
    parts: bool = False,
) -> Used:
    """Usage (as of used.at, not before `end`) with a stretch that ended, or is looked at, at `end`.
    What lies before used.since does not count. `parts`: for each user and account too."""
    seconds = weight(half_life, max(stretch.begin, used.since), end, used.at) * usage_factor
    if not seconds:
        return used
    total = _plus(used.tres, stretch.tres, seconds)
    by_user, by_account = used.by_user, used.by_account
    if parts:
        mine = by_user.get(stretch.user, {})
        by_user = by_user | {stretch.user: _plus(mine, stretch.tres, seconds)}
        team = by_account.get(stretch.account, {})
        by_account = by_account | {stretch.account: _plus(team, stretch.tres, seconds)}
    return Used(total, used.wall + seconds, used.at, used.since, by_user, by_account)


def _plus(before: Rates, rates: Rates, seconds: float) -> dict[str, float]:
    total = dict(before)
    for name, held in rates.items():
        total[name] = total.get(name, 0.0) + held * seconds
    return total


def minus(used: Used, gone: Used) -> Used:
    """Usage without what was set to zero below it; both as of the same moment."""
    total = dict(used.tres)
    for name, value in gone.tres.items():
        total[name] = total.get(name, 0.0) - value
    return Used(total, used.wall - gone.wall, used.at, used.since, used.by_user, used.by_account)


@dataclass
class Meter:
    """Usage at any moment: the book's sums, and the stretches that last."""

    book: Book
    rules: Rules = field(default_factory=Rules)
    #: the QOS of a partition; "" it has none
    part_qos: Callable[[str], str] = lambda _: ""
    #: job id -> what it works at
    lasting: dict[int, Stretch] = field(default_factory=dict)
    _by_assoc: dict[int, set[int]] = field(default_factory=dict)
    _by_qos: dict[str, set[int]] = field(default_factory=dict)
    _by_part: dict[str, set[int]] = field(default_factory=dict)

    def begin(self, job_id: int, stretch: Stretch) -> None:
        """A job works from now on. Cost: constant."""
        self.end(job_id)
        self.lasting[job_id] = stretch
        self._by_assoc.setdefault(stretch.assoc_id, set()).add(job_id)
        self._by_qos.setdefault(stretch.qos, set()).add(job_id)
        self._by_part.setdefault(stretch.partition, set()).add(job_id)

    def end(self, job_id: int) -> Stretch | None:
        """It stands still, or is over: what is to be recorded. Cost: constant."""
        stretch = self.lasting.pop(job_id, None)
        if stretch is not None:
            _leave(self._by_assoc, stretch.assoc_id, job_id)
            _leave(self._by_qos, stretch.qos, job_id)
            _leave(self._by_part, stretch.partition, job_id)
        return stretch

    def recorded(
        self, stretch: Stretch, end: float, now: float
    ) -> Iterator[tuple[int | str, Used]]:
        """Whose usage a stretch that ended at `end` adds to, and what it then is. Cost: depth of
        the tree, times TRES."""
        for of in self._scopes(stretch):
            half = self.rules.half_life_of(self.book, of)
            before = at(self.book.used.get(of, _NEW), now, half, self._reset(now))
            yield (
                of,
                add(before, stretch, end, half, self._factor(stretch), parts=isinstance(of, str)),
            )

    def ended(self, of: int | str, now: float) -> Used:
        """What stretches that have ended have used. Cost: constant."""
        half = self.rules.half_life_of(self.book, of)
        return at(self.book.used.get(of, _NEW), now, half, self._reset(now))

    def used(self, of: int | str, now: float) -> Used:
        """What an association (with all below it) or a QOS has used, lasting stretches included.
        `by_user` and `by_account` are filled in for a QOS. Cost: its running jobs, and for an
        account the associations below it."""
        half = self.rules.half_life_of(self.book, of)
        total = self.ended(of, now)
        for job_id in self._jobs(of):
            stretch = self.lasting[job_id]
            factor_ = self._factor(stretch)
            total = add(total, stretch, now, half, factor_, parts=isinstance(of, str))
        return total

    def billed(self, now: float) -> dict[int, float]:
        """Billing-seconds of every association that has any, as fair share counts them. Cost:
        associations + running jobs times depth of the tree, some 1 us each."""
        half, reset = self.rules.half_life, self._reset(now)
        total: dict[int, float] = {}
        since: dict[int, float] = {}
        for of, used in self.book.used.items():
            if isinstance(of, str) or of not in self.book.assocs:
                continue
            since[of] = max(used.since, reset)
            value = used.tres.get("billing", 0.0)
            if value and used.at >= reset:
                total[of] = value * factor(half, used.at, now)
        for assoc_id, ids in self._by_assoc.items():
            assoc = self.book.assocs.get(assoc_id)
            if assoc is None:
                continue
            above = [(one.id, since.get(one.id, reset)) for one in self.book.chain(assoc)]
            for job_id in ids:
                stretch = self.lasting[job_id]
                rate = stretch.tres.get("billing", 0.0) * self._factor(stretch)
                known, seconds = -1.0, 0.0
                for one, start in above if rate else ():
                    begin = max(stretch.begin, start)
                    if begin != known:
                        known, seconds = begin, weight(half, begin, now, now)
                    total[one] = total.get(one, 0.0) + rate * seconds
        return total

    def _scopes(self, stretch: Stretch) -> list[int | str]:
        assoc = self.book.assocs.get(stretch.assoc_id)
        found: list[int | str] = [one.id for one in self.book.chain(assoc)] if assoc else []
        # Once, where the job's is the partition's, too.
        names = dict.fromkeys((stretch.qos, self.part_qos(stretch.partition)))
        return [*found, *(name for name in names if name in self.book.qos)]

    def _jobs(self, of: int | str) -> list[int]:
        if isinstance(of, str):
            ids = set(self._by_qos.get(of, ()))
            for partition, more in self._by_part.items():
                if self.part_qos(partition) == of:
                    ids |= more
            return sorted(ids)
        assoc = self.book.assocs.get(of)
        if assoc is None:
            return []
        below = self.book.subtree(assoc.account) if assoc.is_account else (assoc,)
        return sorted(job_id for one in below for job_id in self._by_assoc.get(one.id, ()))

    def _factor(self, stretch: Stretch) -> float:
        qos = self.book.qos.get(stretch.qos)
        return qos.usage_factor if qos is not None else 1.0

    def _reset(self, now: float) -> float:
        return last_reset(self.rules.reset_period, now)


_NEW = Used()
_K = TypeVar("_K")


def _leave(index: dict[_K, set[int]], key: _K, job_id: int) -> None:
    members = index[key]
    members.discard(job_id)
    if not members:
        del index[key]


__all__ = [
    "Meter",
    "Rules",
    "Stretch",
    "add",
    "at",
    "minus",
    "rules_of",
    "stretch_of",
    "weight",
]
