"""What would be, were a request another one, or the time another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gsched import _core
from gsched._core import Placement
from gsched._reference.parts import Free, Request
from gsched._reference.refusing import Refusing
from gsched._reference.state import FOREVER, YEAR
from gsched._reference.windows import Span


class Surveys(Refusing):
    """See _core.pyi."""

    @contextmanager
    def _without(self, without: Iterable[int]) -> Iterator[None]:
        """The reservations of some jobs are left out of account."""
        keys = set(without)
        mine = {i for i, planned in enumerate(self.planned) if planned.key in keys}
        uses = self.book.uses if self.book is not None else []
        if mine and self.book is not None:
            self.book.uses = [use for use in uses if not (use.planned and use.key in keys)]
        self.skipped = mine
        try:
            yield
        finally:
            self.skipped = set()
            if self.book is not None:
                self.book.uses = uses

    def _span(self, want: Request, at: int, limit: int) -> Span | None:
        """The time it would be there; None: no matter when."""
        if limit < 0:
            return None
        return at, self.ends_by(want.reservation, at, at + (limit or YEAR))

    def _then(self, want: Request, now: int, at: int, limit: int) -> list[Free]:
        """What is free at a later time, for so long."""
        span = self._span(want, at, limit)
        if span is None:
            return self.at(at, now)
        if self.book is not None:
            resv = want.reservation
            then = [self.book.window(i, *span, resv, want) for i in range(len(self.nodes))]
            return self.known(then) if at == self.book.now else then
        over = [
            i
            for i, other in enumerate(self.planned)
            if i not in self.skipped and other.at < span[1] and at < other.until
        ]
        return self.at(at, now, over)

    def _end(self, want: Request, now: int, limit: int) -> int:
        if limit < 0:
            return 0
        return self.ends_by(want.reservation, now, now + limit if limit else FOREVER)

    def what_if(
        self,
        req: int,
        now: int = 0,
        limit_s: int = -1,
        *,
        at: int = 0,
        without: Iterable[int] = (),
    ) -> Placement | None:
        want = self.requests[req]
        with self._without(without):
            span = self._span(want, max(at, now), limit_s)
            if at > now:
                windows = self.book is None or limit_s < 0
                free = self._then(want, now, at, limit_s)
                rows = self.find(want, free, span=span, windows=windows)
            else:
                rows = self.find(want, self.live(), now, self._end(want, now, limit_s), span=span)
        return None if rows is None else Placement(rows, want.gpu_milli)

    def earliest(self, req: int, now: int, limit_s: int = 0, *, without: Iterable[int] = ()) -> int:
        want = self.requests[req]
        duration = limit_s or YEAR
        # What is left out of account still ends somewhere: the choice of nodes is greedy, and may
        # find some there that it does not find before, with more to choose from.
        events = self.book.events() if self.book is not None else set()
        with self._without(without):
            if self.book is not None:
                last = self.book.now + self.book.options.window
                times = {t for t in events if self.book.now < t <= last}
                times.add(self.book.now)
            else:
                others = [p for i, p in enumerate(self.planned) if i not in self.skipped]
                times = {self.end_of(held, now) for held in self.held.values()}
                times |= {
                    self.back_at(held, i, now) for held in self.held.values() for i in held.late
                }
                times |= {p.until for p in others} | self.boundaries()
                times = {t for t in times if t > now}
            for time in sorted(times):
                free, span = self._then(want, now, time, duration), self._span(want, time, duration)
                windows = self.book is None
                if self.find(want, free, span=span, windows=windows, plain=True) is not None:
                    return time
        return 0

    def survey(
        self,
        req: int,
        now: int = 0,
        limit_s: int = -1,
        *,
        at: int = 0,
        without: Iterable[int] = (),
    ) -> list[set[tuple[str, bool]]]:
        """What each node lacks."""
        want = self.requests[req]
        with self._without(without):
            free = self.at(at, now) if at > now else self.live()
            then = self._then(want, now, at, limit_s) if at > now else free
            end = 0 if at > now else self._end(want, now, limit_s)
            span = self._span(want, max(at, now), limit_s)
            # What windows leave is in the book already.
            windows = self.book is None or at <= now
            found = []
            for i in range(len(self.nodes)):
                lacks = self.lacking(want, i, free[i], span)
                if not lacks and limit_s >= 0:
                    rest = self.fit(want, i, then[i], now, end, span, windows)
                    if self.holds(want, rest):
                        found.append(lacks)
                        continue
                    lacks = {("reserved", False)}
                found.append(lacks)
        return found

    @staticmethod
    def holds(want: Request, found: tuple[int, int, int] | None) -> bool:
        """Whether what a node has is the smallest part, beside the reservations."""
        if found is None:
            return False
        one = 1 in (want.max_nodes, want.cap_nodes)
        tasks = max(want.least_tasks, want.ntasks) if one else want.least_tasks
        gpus = (want.gpus_total if one else 1) if want.gpus_total else 0
        return found[0] >= tasks and found[1] >= gpus

    def ahead(self, key: int) -> tuple[int, int]:
        mine = self.queue[key]
        partition = self.requests[mine.req].partition
        rows = [
            job
            for job in sorted(self.queue.values(), key=lambda j: (-j.priority, j.order, j.key))
            if self.requests[job.req].partition == partition
        ]
        rows = rows[: rows.index(mine)]
        rows = [job for job in rows if job.verdict not in (_core.HELD, _core.BEGIN)]
        waits = (_core.RESOURCES, _core.PRIORITY, _core.BEHIND)
        return len(rows), next((job.key for job in rows if job.verdict in waits), 0)
