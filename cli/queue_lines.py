"""The lines of a report about jobs, which can be kept and brought up to date.

A line is made anew when its record or what is told of the job is another; cells that look at the
time, when that has passed. The order is mended where few lines are another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from sys import intern
from typing import Any

from gsched.model.job import Job
from gsched.model.node import Verdict
from gsched_cli.fields import Format
from gsched_cli.jobview import FOREVER, JobView

#: what is compared, and whether the largest comes first
Key = tuple[Callable[[JobView], object], bool]

#: bytes of a line without its text, and of the record of one that looks at the time
LINE_BYTES, RECORD_BYTES = 400, 4000
#: lines up to which each is put in its place alone
FEW = 200


class Line:
    """One line; or none for the time being, of a job that the options leave out."""

    __slots__ = (
        "cells",
        "keys",
        "number",
        "place",
        "shown",
        "text",
        "timed",
        "told",
        "until",
        "view",
    )

    def __init__(self, place: int, number: int, told: object) -> None:
        self.place = place
        #: of several lines of one job
        self.number = number
        #: what was told of the job when it was made
        self.told = told
        self.keys: tuple[Any, ...] = ()
        self.text = ""
        self.shown = False
        #: it is true before this moment
        self.until = FOREVER
        #: what to make it anew from then
        self.view: JobView | None = None
        self.cells: list[str] = []
        #: fields that look at the time
        self.timed: tuple[int, ...] = ()


class QueueLines:
    """All lines of one report."""

    def __init__(
        self,
        layout: Format[JobView],
        keys: list[Key],
        views: Callable[[Job], Iterable[JobView]],
        passes: Callable[[JobView], bool],
        *,
        planned: bool,
    ) -> None:
        """`views` makes the views of a record (several for the tasks of an array), `passes` says
        whether the report has one now, `planned` whether it shows planned starts or nodes."""
        self._layout = layout
        self._keys = keys
        self._views = views
        self._passes = passes
        self._planned = planned
        #: of the last answer (JobDelta.state)
        self.state = b""
        #: the time of the last look
        self.now = 0.0
        self._lines: dict[int, tuple[Line, ...]] = {}
        #: jobs with lines that look at the time
        self._timed: set[int] = set()
        #: no line is another before this moment
        self._until = FOREVER
        self._late: dict[int, int] = {}
        #: the lines shown, in their order, but for those that follow; None: it is not known
        self._order: list[Line] | None = None
        #: lines without a place in it
        self._new: list[Line] = []
        #: lines in it that are no longer shown
        self._old: set[int] = set()
        self._text = ""

    # ---- what is new ---------------------------------------------------------------------------

    def put(self, job: Job, verdict: Verdict | None, now: float, place: int | None = None) -> None:
        """A record that is new or another than before, and what is told of the job. `place`: what
        it is known by, and comes in the order of where nothing else says; its id."""
        if place is None:
            place = job.id
        if place in self._lines:
            self.drop((place,))
        told = self._told(job.id, verdict)
        lines = []
        for number, view in enumerate(self._views(job)):
            view.verdict = verdict
            view.late = self._late.get(job.id, 0) if self._planned else 0
            line = Line(place, number, told)
            self._make(line, view, now)
            if line.shown or line.until < FOREVER:
                lines.append(line)
            if line.shown:
                self._new.append(line)
            if line.until < FOREVER:
                self._timed.add(place)
                self._until = min(self._until, line.until)
        if lines:
            self._lines[place] = tuple(lines)

    def drop(self, ids: Iterable[int]) -> None:
        """Jobs that are no longer of the report."""
        for job_id in ids:
            for line in self._lines.pop(job_id, ()):
                if line.shown:
                    self._old.add(id(line))
                    line.shown = False
            self._timed.discard(job_id)

    def expect_also(self, not_before: Mapping[int, int]) -> None:
        """The same as `expect` for jobs that have not been put yet."""
        self._late.update(not_before)

    def expect(self, not_before: Mapping[int, int]) -> list[int]:
        """When each job will not start before. Gives the jobs whose lines say otherwise: put them
        again."""
        self._late = dict(not_before)
        return [
            job_id
            for job_id, lines in self._lines.items()
            if not_before.get(job_id, 0) != lines[0].told[3]  # type: ignore[index]
        ]

    def doubtful(self, told: Iterable[tuple[int, Verdict | None]]) -> list[int]:
        """Jobs whose lines were made of something else than what is told now: put them again."""
        lines = self._lines
        return [
            job_id
            for job_id, verdict in told
            if job_id in lines and lines[job_id][0].told != self._told(job_id, verdict)
        ]

    def _told(self, job_id: int, verdict: Verdict | None) -> object:
        reason = intern(verdict.reason) if verdict is not None else ""
        if not self._planned:
            return reason
        late = self._late.get(job_id, 0)
        return (reason, verdict.start, verdict.nodes, late) if verdict else (reason, 0, "", late)

    # ---- one line ------------------------------------------------------------------------------

    def _make(self, line: Line, view: JobView, now: float) -> None:
        """Fills a new line."""
        view.at(now)
        line.shown = self._passes(view)
        if line.shown:
            line.keys = self._compared(view)
            line.cells = [read(view) for read in self._layout.reads]
            line.text = self._layout.joined(line.cells)
            if view.until < FOREVER:
                line.timed = self._looking(view)
        self._keep(line, view)

    def _compared(self, view: JobView) -> tuple[Any, ...]:
        found = [key(view) for key, _ in self._keys]
        return tuple([intern(key) if type(key) is str else key for key in found])

    def _looking(self, view: JobView) -> tuple[int, ...]:
        """The fields that look at the time."""
        near = view.until
        found = []
        for number, read in enumerate(self._layout.reads):
            view.until = FOREVER
            read(view)
            if view.until < FOREVER:
                found.append(number)
        view.until = near
        return tuple(found)

    def _again(self, line: Line, now: float) -> None:
        """Its time has passed: reads those cells again that look at it."""
        view = line.view
        assert view is not None
        view.at(now)
        shown = self._passes(view)
        if shown != line.shown or not shown:
            if line.shown:
                self._old.add(id(line))
            self._make(line, view, now)
            if line.shown:
                self._new.append(line)
            return
        keys = self._compared(view)
        if keys != line.keys:
            # Both are out of place: what is old is known by its identity.
            self._order = None
            line.keys = keys
        for number in line.timed:
            line.cells[number] = self._layout.reads[number](view)
        line.text = self._layout.joined(line.cells)
        self._keep(line, view)

    @staticmethod
    def _keep(line: Line, view: JobView) -> None:
        line.until = view.until
        near = line.until < FOREVER
        line.view = view if near else None
        if not near:
            line.cells = []

    # ---- the whole -----------------------------------------------------------------------------

    def text(self, now: float) -> str:
        """All lines in their order. Cost: 2 us for each that looks at the time and 0.1 us for each
        other one; a copy where nothing is another."""
        self.now = now
        if now >= self._until:
            self._pass_time(now)
        elif self._order is not None and not self._new and not self._old:
            return self._text
        self._arrange()
        assert self._order is not None
        self._text = "".join([line.text for line in self._order])
        return self._text

    def _pass_time(self, now: float) -> None:
        until = FOREVER
        for job_id in list(self._timed):
            near = FOREVER
            for line in self._lines[job_id]:
                if line.until <= now:
                    self._again(line, now)
                near = min(near, line.until)
            if near == FOREVER:
                self._timed.discard(job_id)
            until = min(until, near)
        self._until = until

    def _arrange(self) -> None:
        order, old, new = self._order, self._old, self._new
        if order is None or len(new) > FEW:
            found = [line for lines in self._lines.values() for line in lines if line.shown]
            found.sort(key=attrgetter("place", "number"))
            for place in range(len(self._keys) - 1, -1, -1):
                found.sort(key=lambda line: line.keys[place], reverse=self._keys[place][1])
            self._order = found
        else:
            if old:
                order = [line for line in order if id(line) not in old]
            for line in new:
                # One may have come and gone since.
                if line.shown:
                    order.insert(self._place(order, line), line)
            self._order = order
        old.clear()
        new.clear()

    def _place(self, order: list[Line], line: Line) -> int:
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            if self._before(order[middle], line):
                low = middle + 1
            else:
                high = middle
        return low

    def _before(self, one: Line, other: Line) -> bool:
        for (_, down), left, right in zip(self._keys, one.keys, other.keys, strict=True):
            if left != right:
                return bool(left > right) if down else bool(left < right)
        return (one.place, one.number) < (other.place, other.number)

    @property
    def bytes(self) -> int:
        """About what it occupies."""
        timed = len(self._timed) * RECORD_BYTES
        return timed + len(self._lines) * LINE_BYTES + 2 * len(self._text) + 200 * len(self._late)
