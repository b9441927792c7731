"""What runs and what is submitted, counted for everybody whom a limit may be set for.

Kept up to date job by job; whoever counts all jobs anew must get the same (`recount`). Pure.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gsched.policy.limits import Scope

#: what a factor of 1 is in the sums of usage: they are whole numbers, so that they come out even
UNIT = 1_000_000
#: name under which seconds of wall time are summed up
WALL = "wall"


@dataclass(frozen=True)
class Part:
    """What one job adds to all its scopes."""

    scopes: tuple[Scope, ...]
    #: jobs that are running or waiting: tasks of an array each
    submitted: int = 1
    running: bool = False
    #: what it holds, by name of a TRES
    tres: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    #: when it will have used all its time; 0: never, or it stands still
    end: int = 0
    #: seconds that it may still run, where `end` does not say it
    left: int = 0
    #: since when it would have run without having stood still; 0: it stands still, after `ran`
    #: seconds
    since: int = 0
    ran: int = 0
    #: UsageFactor of its QOS in UNITs
    factor: int = UNIT


_COUNTERS = ("tres", "nodes", "rate", "late", "left", "pace", "begun", "ran")


class Sum:
    """The sum of the parts of one scope."""

    __slots__ = ("jobs", "submitted", *_COUNTERS)

    def __init__(self) -> None:
        self.jobs = 0
        self.submitted = 0
        self.tres: Counter[str] = Counter()
        #: jobs on each node
        self.nodes: Counter[str] = Counter()
        #: TRES of jobs with an end, TRES x end of these, TRES x seconds of the others
        self.rate: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        #: TRES of jobs that do not stand still, TRES x since of these, TRES x seconds of the
        #: others; all times the factor
        self.pace: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()

    def add(self, part: Part, sign: int) -> None:
        self.submitted += sign * part.submitted
        if not part.running:
            return
        self.jobs += sign
        for node in part.nodes:
            _count(self.nodes, node, sign)
        for name, count in part.tres.items():
            number = sign * count
            _count(self.tres, name, number)
            if part.end:
                _count(self.rate, name, number)
                _count(self.late, name, number * part.end)
            else:
                _count(self.left, name, number * part.left)
        for name, count in (*part.tres.items(), (WALL, 1)):
            number = sign * count * part.factor
            if part.since:
                _count(self.pace, name, number)
                _count(self.begun, name, number * part.since)
            else:
                _count(self.ran, name, number * part.ran)

    def to_come(self, tres: str, now: int) -> int:
        """TRES-seconds that the running jobs may still use."""
        return max(0, self.late[tres] - self.rate[tres] * now) + self.left[tres]

    def spent(self, tres: str, now: int) -> float:
        """TRES-seconds that the running jobs have used, times their factors; of WALL seconds."""
        running = max(0, self.pace[tres] * now - self.begun[tres])
        return (running + self.ran[tres]) / UNIT

    @property
    def empty(self) -> bool:
        return not (self.jobs or self.submitted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Sum({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


def _count(counter: Counter[str], name: str, number: int) -> None:
    counter[name] += number
    if not counter[name]:
        del counter[name]


class Tally:
    """All sums, by scope."""

    def __init__(self) -> None:
        self.sums: dict[Scope, Sum] = {}
        self.parts: dict[int, Part] = {}
        #: scopes that have changed since somebody asked last
        self.changed: set[Scope] = set()
        #: (end, job) of jobs that will have used their time
        self._ends: list[tuple[int, int]] = []

    def set(self, job_id: int, part: Part | None) -> bool:
        """What a job adds is now this; None: nothing any more. Whether that is news. Cost: its
        scopes x TRES (and nodes)."""
        before = self.parts.get(job_id)
        if part == before:
            return False
        if before is not None:
            self._add(before, -1)
            del self.parts[job_id]
        if part is not None:
            self._add(part, 1)
            self.parts[job_id] = part
            if part.end:
                heapq.heappush(self._ends, (part.end, job_id))
        return True

    def advance(self, now: int) -> None:
        """Jobs that run on though their time is used up have nothing to come. Cost: constant, and
        a few us for each of them, once."""
        while self._ends and self._ends[0][0] <= now:
            end, job_id = heapq.heappop(self._ends)
            part = self.parts.get(job_id)
            if part is not None and part.end == end:
                self.set(job_id, replace(part, end=0, left=0))

    def _add(self, part: Part, sign: int) -> None:
        for scope in part.scopes:
            one = self.sums.get(scope)
            if one is None:
                one = self.sums[scope] = Sum()
            one.add(part, sign)
            if one.empty:
                del self.sums[scope]
            self.changed.add(scope)

    def of(self, scope: Scope) -> Sum:
        """The sum of one scope (not to be changed)."""
        return self.sums.get(scope) or _NOTHING

    def holders(self, scope: Scope) -> list[int]:
        """Running jobs that add to a scope. Cost: all jobs."""
        return [job for job, part in self.parts.items() if part.running and scope in part.scopes]


_NOTHING = Sum()


def recount(parts: Mapping[int, Part]) -> dict[Scope, Sum]:
    """The sums, from the beginning."""
    tally = Tally()
    for job_id, part in parts.items():
        tally.set(job_id, part)
    return tally.sums
