"""The lines of a report about jobs, which can be kept and brought up to date.

A line is made anew when its record or what is told of the job is another; cells that look at the
time, when that has passed. The order is mended where few lines are another. The first lines of a
report are made of all jobs at once, field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import compress, repeat
from operator import attrgetter
from sys import intern
from typing import Any

from gsched.model.job import Job
from gsched.model.node import Verdict
from gsched_cli.fields import Field, Format
from gsched_cli.jobview import BITSTR_LEN, FOREVER, JobView
from gsched_cli.queue_join import Member, Members, leader, together, waits
from gsched_cli.queue_records import Records

#: what is compared, and whether the largest comes first
Key = tuple[Field[JobView], bool]

#: bytes of a line without its text, of the record of one that looks at the time, and of the cells
#: of one that may be shown in another
LINE_BYTES, RECORD_BYTES, CELLS_BYTES = 400, 4000, 1200
#: lines up to which each is put in its place alone
FEW = 200


class Line:
    """One line."""

    __slots__ = ("keys", "number", "place", "shown", "text", "told")

    #: it is true before this moment
    until: int = FOREVER

    def __init__(
        self, place: int, number: int, told: object, keys: tuple[Any, ...], text: str
    ) -> None:
        self.place = place
        #: of several lines of one job
        self.number = number
        #: what was told of the job when it was made
        self.told = told
        self.keys = keys
        self.text = text
        self.shown = True


class TimedLine(Line):
    """One that is another when a moment has passed; or none for the time being, of a job that the
    options leave out."""

    __slots__ = ("cells", "timed", "until", "view")

    def __init__(self, place: int, number: int, told: object, view: JobView) -> None:
        super().__init__(place, number, told, (), "")
        self.shown = False
        #: what to make it anew from; None: it is true for ever now
        self.view: JobView | None = view
        self.until = view.until
        self.cells: list[str] = []
        #: fields that look at the time
        self.timed: list[int] = []

    def keep(self) -> None:
        """All was read anew."""
        assert self.view is not None
        self.until = self.view.until
        if self.until == FOREVER:
            self.view, self.cells, self.timed = None, [], []


class MemberLine(TimedLine):
    """One of an array, which may be shown in the line of others of it."""

    __slots__ = ("member",)

    def __init__(self, place: int, number: int, told: object, view: JobView) -> None:
        super().__init__(place, number, told, view)
        #: what it brings to their line, while it is shown
        self.member: Member | None = None

    def keep(self) -> None:
        assert self.view is not None
        self.until = self.view.until
        if self.until == FOREVER:
            self.view, self.timed = None, []


class QueueLines:
    """All lines of one report."""

    def __init__(
        self,
        layout: Format[JobView],
        keys: list[Key],
        passes: Callable[[JobView], bool] | None,
        *,
        planned: bool = False,
        split: Callable[[Job], list[Job]] | None = None,
        kind: Hashable = (),
        convert: bool = True,
        bitstr_len: int = BITSTR_LEN,
        members: Members | None = None,
    ) -> None:
        """`passes` says whether the report has a job now (None: it has all), `planned` whether it
        shows planned starts or nodes; `split` makes a record of each task of an array that are
        still together; `kind` is all that cells depend on beside the job, `convert` and
        `bitstr_len` (see JobView); `members` says what a job brings to a line that it shares (None:
        none does)."""
        self._layout = layout
        self._keys = keys
        self._compare = [field.key or field.read for field, _ in keys]
        self._passes = passes
        self._planned = planned
        self._split = split
        self._kind = kind, convert, bitstr_len
        self._convert = convert
        self._bitstr_len = bitstr_len
        self._members = members
        self._names = [field.names[0] for field in layout.fields]
        #: lines that may be shown in one, and which of these sets are not as they were
        self._groups: dict[object, dict[int, MemberLine]] = {}
        self._stirred: set[object] = set()
        #: array -> the only job of it that waits, where its line was made with those of others
        self._lone: dict[int, int] = {}
        #: of these those that are no longer the only ones
        self._joined: set[int] = set()
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
        #: of all; None: it has to be put together
        self._text: str | None = None

    # ---- what is new ---------------------------------------------------------------------------

    def put(self, job: Job, verdict: Verdict | None, now: float, place: int | None = None) -> None:
        """A record that is new or another than before, and what is told of the job. `place`: what
        it is known by, and comes in the order of where nothing else says; its id."""
        if place is None:
            place = job.id
        if place in self._lines:
            self.drop((place,))
        late = self._late.get(job.id, 0) if self._planned else 0
        lines: list[Line] = []
        for number, each in enumerate((job,) if self._split is None else self._split(job)):
            view = JobView(
                each, verdict, now, convert=self._convert, bitstr_len=self._bitstr_len, late=late
            )
            line = self._made(place, number, self._told(view), view)
            if line is None:
                continue
            lines.append(line)
            if line.shown:
                self._new.append(line)
            if line.until < FOREVER:
                self._timed.add(place)
                self._until = min(self._until, line.until)
        if lines:
            self._lines[place] = tuple(lines)
        if self._members is not None and waits(job):
            lone = self._lone.pop(job.array_job_id, place)
            if lone != place and lone in self._lines:
                self._joined.add(lone)

    def joined(self) -> set[int]:
        """Jobs whose lines may be those of others now: put them again."""
        found, self._joined = self._joined & self._lines.keys(), set()
        return found

    def fill(self, records: Records, now: float) -> None:
        """Makes the lines of all jobs; there must be none yet. Cost: 2 us for each job, and what
        its fields take that no report has read before."""
        records.at(now)
        if self._planned:
            self._late = records.late
        ids, alone = self._chosen(records, now)
        timed: set[int] = set()

        def column(name: str, key: bool, read: Callable[[JobView], Any]) -> list[Any]:
            return records.column((name, key, self._kind), read, ids, self._look(now), timed)

        reads = [column(field.names[0], False, field.read) for field in self._layout.fields]
        keys = [
            column(field.names[0], field.key is not None, read)
            for (field, _), read in zip(self._keys, self._compare, strict=True)
        ]
        told = column("planned" if self._planned else "", True, self._told)
        if timed:
            left = [job_id not in timed for job_id in ids]
            alone += [job_id for job_id in ids if job_id in timed]
            ids = list(compress(ids, left))
            reads = [list(compress(cells, left)) for cells in reads]
            keys = [list(compress(cells, left)) for cells in keys]
            told = list(compress(told, left))
        views = records.views
        pattern = self._layout.pattern
        texts = map(pattern.__mod__, zip(*reads, strict=True)) if reads else repeat(pattern % ())
        compared = zip(*keys, strict=True) if keys else repeat(())
        lines = list(map(Line, ids, repeat(0), told, compared, texts))
        self._lines = dict(zip(ids, zip(lines, strict=True), strict=True))
        order = list(range(len(ids)))
        for cells, (_, down) in zip(reversed(keys), reversed(self._keys), strict=True):
            order.sort(key=cells.__getitem__, reverse=down)
        self._order = [lines[place] for place in order]
        for job_id in alone:
            self.put(views[job_id].job, views[job_id].verdict, now)

    def _look(self, now: float) -> Callable[[JobView], None]:
        convert, bitstr_len = self._convert, self._bitstr_len

        def look(view: JobView) -> None:
            view.convert, view.bitstr_len = convert, bitstr_len
            view.at(now)

        return look

    def _chosen(self, records: Records, now: float) -> tuple[list[int], list[int]]:
        """Jobs that have one line now, in the order of their ids; and those that must be looked at
        alone: of several lines, or left out for the time being."""
        ids: list[int] = []
        alone: list[int] = []
        passes, split = self._passes, self._split
        joined = self._several(records) if self._members is not None else set()
        if passes is None and split is None and not joined:
            return sorted(records.views), []
        look = self._look(now)
        for job_id, view in records.views.items():
            if (split is not None and view.together) or job_id in joined:
                alone.append(job_id)
            else:
                look(view)
                passed = passes is None or passes(view)
                if view.until < FOREVER:
                    alone.append(job_id)
                elif passed:
                    ids.append(job_id)
        ids.sort()
        return ids, alone

    def _several(self, records: Records) -> set[int]:
        """Jobs that may share a line. Cost: 0.1 us for each job."""
        found: set[int] = set()
        for job_id, view in records.views.items():
            if view.job.array_job_id and waits(view.job):
                first = self._lone.setdefault(view.job.array_job_id, job_id)
                if first != job_id:
                    found |= {first, job_id}
        return found

    def drop(self, ids: Iterable[int]) -> None:
        """Jobs that are no longer of the report."""
        for job_id in ids:
            for line in self._lines.pop(job_id, ()):
                if line.shown:
                    self._old.add(id(line))
                    line.shown = False
                if isinstance(line, MemberLine):
                    self._leave(line)
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
            if job_id in lines
            and lines[job_id][0].told != self._what(verdict, self._late.get(job_id, 0))
        ]

    def _told(self, view: JobView) -> object:
        return self._what(view.verdict, view.late)

    def _what(self, verdict: Verdict | None, late: int) -> object:
        """What lines show of all that is told of a job."""
        reason = intern(verdict.reason) if verdict is not None else ""
        if not self._planned:
            return reason
        return (reason, verdict.start, verdict.nodes, late) if verdict else (reason, 0, "", late)

    # ---- one line ------------------------------------------------------------------------------

    def _made(self, place: int, number: int, told: object, view: JobView) -> Line | None:
        """A new line; None: there is none of this record, and will be none."""
        kind = TimedLine if self._members is None or not waits(view.job) else MemberLine
        if self._passes is not None and not self._passes(view):
            return kind(place, number, told, view) if view.until < FOREVER else None
        keys = self._compared(view)
        cells, timed = self._cells(view)
        if view.until == FOREVER and kind is TimedLine:
            return Line(place, number, told, keys, self._layout.joined(cells))
        line = kind(place, number, told, view)
        self._show(line, keys, cells, timed)
        return line

    def _show(
        self, line: TimedLine, keys: tuple[Any, ...], cells: list[str], timed: list[int]
    ) -> None:
        line.shown = True
        line.keys, line.cells, line.timed = keys, cells, timed
        self._say(line)
        line.keep()

    def _cells(self, view: JobView) -> tuple[list[str], list[int]]:
        """What the fields say, and which of them look at the time."""
        near = view.until
        cells: list[str] = []
        timed: list[int] = []
        for number, read in enumerate(self._layout.reads):
            view.until = FOREVER
            cells.append(read(view))
            if view.until < FOREVER:
                timed.append(number)
                near = min(near, view.until)
        view.until = near
        return cells, timed

    def _compared(self, view: JobView) -> tuple[Any, ...]:
        found = [key(view) for key in self._compare]
        return tuple([intern(key) if type(key) is str else key for key in found])

    def _again(self, line: TimedLine, now: float) -> None:
        """Its time has passed: reads those cells again that look at it."""
        view = line.view
        assert view is not None
        view.at(now)
        if self._passes is not None and not self._passes(view):
            if line.shown:
                self._old.add(id(line))
                line.shown = False
            if isinstance(line, MemberLine):
                self._leave(line)
            line.keep()
            return
        keys = self._compared(view)
        if not line.shown:
            self._show(line, keys, *self._cells(view))
            self._new.append(line)
            return
        if keys != line.keys:
            # Both are out of place: what is old is known by its identity.
            self._order = None
            line.keys = keys
        for number in line.timed:
            line.cells[number] = self._layout.reads[number](view)
        self._say(line)
        line.keep()

    def _say(self, line: TimedLine) -> None:
        """Its text, of its cells; or, later, of those of all that share a line."""
        if isinstance(line, MemberLine) and self._members is not None and line.view is not None:
            self._leave(line)
            line.member = self._members(line.view)
        else:
            line.text = self._layout.joined(line.cells)
            return
        self._groups.setdefault(line.member.key, {})[id(line)] = line
        self._stirred.add(line.member.key)

    # ---- several in one line -------------------------------------------------------------------

    def _leave(self, line: MemberLine) -> None:
        if line.member is None:
            return
        key = line.member.key
        group = self._groups[key]
        del group[id(line)]
        if not group:
            del self._groups[key]
        self._stirred.add(key)
        line.member = None

    def _gather(self) -> None:
        """Writes the lines of those arrays anew of which anything is another: that of the tasks
        which are still together speaks for all, and the others are empty."""
        for key in self._stirred:
            group = sorted(self._groups.get(key, {}).values(), key=attrgetter("place", "number"))
            members = [line.member for line in group if line.member is not None]
            first = leader(members)
            for place, line in enumerate(group):
                cells = line.cells
                if place == first:
                    said = together(members[first], members[:first] + members[first + 1 :])
                    cells = [said.get(*pair) for pair in zip(self._names, cells, strict=True)]
                line.text = self._layout.joined(cells) if first in (-1, place) else ""
        self._stirred.clear()

    # ---- the whole -----------------------------------------------------------------------------

    def text(self, now: float) -> str:
        """All lines in their order. Cost: 2 us for each that looks at the time and 0.1 us for each
        other one; a copy where nothing is another."""
        self.now = now
        if now >= self._until:
            self._pass_time(now)
        elif self._text is not None and not (self._new or self._old or self._stirred):
            return self._text
        self._gather()
        self._arrange()
        assert self._order is not None
        self._text = "".join([line.text for line in self._order])
        return self._text

    def _pass_time(self, now: float) -> None:
        until = FOREVER
        for job_id in list(self._timed):
            near = FOREVER
            for line in self._lines[job_id]:
                if isinstance(line, TimedLine) and line.until <= now:
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
        timed += sum(map(len, self._groups.values())) * CELLS_BYTES
        return (
            timed
            + len(self._lines) * LINE_BYTES
            + 2 * len(self._text or "")
            + 200 * len(self._late)
        )
