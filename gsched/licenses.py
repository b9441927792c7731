"""Licences: how a request names them, how many are free, and who may take some in a pass.

They are given in the order of priority: what a job ahead wants and could have is kept for it, also
while it waits for nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gsched import _core

#: verdict on a job that waits for licences, beside those of the core
LICENSES = 100
#: how long a job without a limit is taken to run
_YEAR = 365 * 86400
#: value of `held` for rows that take no part in a pass
_KEPT = 3

_ITEM = re.compile(r"([^\s,;|:=]+)(?:[:=]([0-9]{1,9}))?\Z", re.ASCII)

#: licence -> count
Counts = dict[str, int]


class LicenseError(ValueError):
    """A text that names no licences."""


def parse(text: str) -> list[Counts]:
    """What would do, in order of preference: "a:2,b" is both, "a:2|b" one of them. [] for "".
    Raises LicenseError."""
    if not text:
        return []
    if "|" in text:
        if "," in text or ";" in text:
            raise LicenseError(text)
        return [_counts([item]) for item in text.split("|")]
    return [_counts(re.split("[,;]", text))]


def _counts(items: list[str]) -> Counts:
    counts: Counts = {}
    for item in items:
        match = _ITEM.match(item)
        if match is None or (match[2] is not None and not int(match[2])):
            raise LicenseError(item)
        counts[match[1]] = counts.get(match[1], 0) + int(match[2] or 1)
    return counts


def shown(counts: Mapping[str, int]) -> str:
    """ "a:2,b:1"."""
    return ",".join(f"{name}:{count}" for name, count in counts.items())


def exist(text: str, totals: Mapping[str, int]) -> bool:
    """Whether the cluster has, all in all, what a text asks for."""
    try:
        choices = parse(text)
    except LicenseError:
        return False
    known = all(name in totals for choice in choices for name in choice)
    return known and any(
        all(count <= totals[name] for name, count in choice.items()) for choice in choices
    )


def _count(into: Counts, counts: Mapping[str, int], times: int) -> None:
    for name, count in counts.items():
        into[name] = into.get(name, 0) + count * times


class Queue(Protocol):
    """A core, or what stands before it."""

    @property
    def schedule(self) -> Callable[..., _core.Plan]: ...


@dataclass
class _Waiting:
    """A job in the queue that wants licences."""

    choices: list[Counts]
    #: its rows by partition; those of one partition are the tasks of an array
    rows: list[list[int]]
    priority: int
    begin: int
    #: seconds, 0 unlimited; the advance reservation it is to start in, "" none
    limit: int = 0
    within: str = ""
    #: the limits that its rows are under, by partition; -1 none
    chains: tuple[int, ...] = ()
    #: others make way for it: it comes before all that wait, and nobody takes what it lacks still
    promised: bool = False


@dataclass
class _Window:
    """What an advance reservation keeps for its jobs, and when."""

    counts: Counts
    spans: list[tuple[int, int]]
    #: held by its jobs
    used: Counts


class Licenses:
    """Who holds how many, and which waiting jobs want some."""

    def __init__(self, core: _core.Core, totals: Mapping[str, int]) -> None:
        self._core = core
        self.totals = dict(totals)
        self._free = dict(totals)
        self._held: dict[int, Counts] = {}
        #: job -> advance reservation that it runs in; those that keep some, by name
        self._of: dict[int, str] = {}
        self._windows: dict[str, _Window] = {}
        self._waiting: dict[int, _Waiting] = {}
        #: jobs that were told that they wait for licences
        self._told: set[int] = set()

    def offer(self, totals: Mapping[str, int]) -> None:
        """There are now so many of each: what is held stays held, also where that is more. Cost:
        the licences."""
        for name in self.totals.keys() | totals.keys():
            more = totals.get(name, 0) - self.totals.get(name, 0)
            self._free[name] = self._free.get(name, 0) + more
        self.totals = dict(totals)

    def __len__(self) -> int:
        """Waiting jobs that want some."""
        return len(self._waiting)

    def reserve(self, name: str, counts: Counts, spans: list[tuple[int, int]]) -> None:
        """An advance reservation keeps so many while it is in force; {}: none. Cost: jobs that hold
        any."""
        self._windows.pop(name, None)
        if not counts:
            return
        window = self._windows[name] = _Window(dict(counts), list(spans), {})
        for job_id, within in self._of.items():
            if within == name:
                _count(window.used, self._held[job_id], 1)

    def reserved(self, name: str, start: int, end: int, but: str = "") -> int:
        """How many of a licence reservations (but one) keep at some time between. Cost: those that
        keep any."""
        return sum(
            window.counts.get(name, 0)
            for resv, window in self._windows.items()
            if resv != but and any(a < end and start < b for a, b in window.spans)
        )

    def add(
        self,
        job_id: int,
        choices: list[Counts],
        rows: list[list[int]],
        priority: int,
        begin: int,
        limit: int = 0,
        within: str = "",
        chains: tuple[int, ...] = (),
        promised: bool = False,
    ) -> None:
        """A job that wants licences is in the queue."""
        self._waiting[job_id] = _Waiting(
            choices, rows, priority, begin, limit, within, chains, promised
        )
        self._told.discard(job_id)

    def remove(self, job_id: int) -> None:
        """A job has left the queue."""
        self._waiting.pop(job_id, None)
        self._told.discard(job_id)

    @property
    def waiting(self) -> AbstractSet[int]:
        """Jobs in the queue that want licences."""
        return self._waiting.keys()

    def reprioritise(self, job_id: int, priority: int) -> None:
        """The priority of one of them is another."""
        self._waiting[job_id] = replace(self._waiting[job_id], priority=priority)

    def take(self, job_id: int, text: str, within: str = "") -> str:
        """A job that starts (or is found running) in an advance reservation, or in none, takes the
        first choice that is free; what it took, as text."""
        if not text:
            return ""
        choices = parse(text)
        if not choices:
            return ""
        counts = next((one for one in choices if self._fit(one, self._free)), choices[0])
        for name, count in counts.items():
            self._free[name] = self._free.get(name, 0) - count
        self._held[job_id] = counts
        if within:
            self._of[job_id] = within
            if within in self._windows:
                _count(self._windows[within].used, counts, 1)
        return shown(counts)

    def give(self, job_id: int) -> None:
        """A job needs them no longer; nothing if it has none."""
        counts = self._held.pop(job_id, {})
        for name, count in counts.items():
            self._free[name] += count
        window = self._windows.get(self._of.pop(job_id, ""))
        if window is not None:
            _count(window.used, counts, -1)

    def free(self, name: str) -> int:
        return self._free.get(name, 0)

    def left_for(self, job_id: int, now: int) -> Counts:
        """What a waiting job may have of each: free ones that no job ahead of it takes or keeps.
        Cost: the waiting jobs that want some."""
        free = dict(self._free)
        given: dict[str, Counts] = {}
        mine = self._waiting.get(job_id)
        for other_id, job in self._in_order():
            if other_id == job_id or mine is None:
                break
            if job.begin <= now:
                self._give_out(job, free, given, now)
        return free if mine is None else self._left(mine, free, given, now)

    def short(self, job_id: int) -> list[int]:
        """The first row in each of its partitions of a waiting job that has been told that it waits
        for licences; [] for others."""
        if job_id not in self._told or job_id not in self._waiting:
            return []
        return [rows[0] for rows in self._waiting[job_id].rows if rows]

    def held(self, job_id: int) -> Counts:
        """What a job holds."""
        return self._held.get(job_id, {})

    def holders(self, name: str) -> list[tuple[int, int]]:
        """(job, how many of a licence it holds). Cost: the jobs that hold any."""
        return [(job_id, held[name]) for job_id, held in self._held.items() if name in held]

    def _in_order(self) -> list[tuple[int, _Waiting]]:
        """Those that may start but for licences: who is under a limit on what jobs hold, in each of
        its partitions, gets none and keeps none from others."""
        waiting = [item for item in self._waiting.items() if not self._limited(item[1])]
        return sorted(waiting, key=lambda item: (not item[1].promised, -item[1].priority, item[0]))

    def _limited(self, job: _Waiting) -> bool:
        chains = job.chains
        return bool(chains) and all(
            chain >= 0 and self._core.over_limit([(chain, job.limit)]) >= 0 for chain in chains
        )

    def _left(self, job: _Waiting, free: Counts, given: Mapping[str, Counts], now: int) -> Counts:
        """Of what is free, what a job may take: not what reservations it is not of keep for their
        jobs at some time while it would run."""
        if not self._windows:
            return free
        left, until = dict(free), now + (job.limit or _YEAR)
        for resv, window in self._windows.items():
            if resv == job.within or not any(a < until and now < b for a, b in window.spans):
                continue
            for name, count in window.counts.items():
                theirs = window.used.get(name, 0) + given.get(resv, {}).get(name, 0)
                left[name] = left.get(name, 0) - max(0, count - theirs)
        return left

    def _give_out(self, job: _Waiting, free: Counts, given: dict[str, Counts], now: int) -> int:
        """How many of a job's tasks may have what they want; it is taken from `free`, and noted
        in `given` where it is for a reservation."""
        tasks = max(map(len, job.rows))
        may = 0
        for counts in job.choices:
            starts = min(tasks - may, self._fit(counts, self._left(job, free, given, now)))
            _count(free, counts, -starts)
            if job.within:
                _count(given.setdefault(job.within, {}), counts, starts)
            may += starts
        if job.promised and not may:
            _count(free, job.choices[0], -1)
        return may

    @staticmethod
    def _fit(counts: Counts, free: Mapping[str, int]) -> int:
        """How many jobs may have that much each."""
        return min(max(0, free.get(name, 0)) // count for name, count in counts.items())

    def blocked(self, now: int) -> tuple[list[int], set[int]]:
        """(rows that may not start for want of licences, jobs none of whose rows may). Cost: the
        waiting jobs that want some."""
        free = dict(self._free)
        given: dict[str, Counts] = {}
        kept: list[int] = []
        none: set[int] = set()
        for job_id, job in self._in_order():
            if job.begin > now:
                continue
            may = self._give_out(job, free, given, now)
            kept += [key for rows in job.rows for key in rows[may:]]
            if not may:
                none.add(job_id)
        return kept, none

    def schedule(
        self,
        queue: Queue,
        blocked: tuple[list[int], set[int]],
        now: int,
        starts: int,
        test: int,
        **rules: Any,
    ) -> _core.Plan:
        """A pass of `queue` without what is `blocked`."""
        rows, none = set(blocked[0]), blocked[1]
        for key in rows:
            self._core.queue_update(key, held=_KEPT)
        plan = queue.schedule(now, starts, test, **rules)
        for key in rows:
            self._core.queue_update(key, held=0)
        changed = {key: verdict for key, verdict in plan.changed if key not in rows}
        for job_id in none - self._told:
            changed[self._waiting[job_id].rows[0][0]] = LICENSES
        self._told = set(none)
        return plan._replace(changed=list(changed.items()))
