"""What would be, were a request another one, or the time another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gsched import _core
from gsched._core import Placement
from gsched._reference.parts import Free, Request
from gsched._reference.placing import FOREVER, YEAR, Placing


class Surveys(Placing):
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

    def _then(self, now: int, at: int, limit: int) -> list[Free]:
        """What is free at a later time, for so long."""
        duration = limit or YEAR
        if limit < 0:
            return self.at(at, now)
        if self.book is not None:
            return [self.book.window(i, at, at + duration) for i in range(len(self.nodes))]
        over = [
            i
            for i, other in enumerate(self.planned)
            if i not in self.skipped and other.at < at + duration and at < other.until
        ]
        return self.at(at, now, over)

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
            if at > now:
                rows = self.find(want, self._then(now, at, limit_s))
            else:
                end = 0 if limit_s < 0 else now + limit_s if limit_s else FOREVER
                rows = self.find(want, self.live(), now, end)
        return None if rows is None else Placement(rows, want.gpu_milli)

    def earliest(self, req: int, now: int, limit_s: int = 0, *, without: Iterable[int] = ()) -> int:
        want = self.requests[req]
        duration = limit_s or YEAR
        with self._without(without):
            if self.book is not None:
                last = self.book.now + self.book.options.window
                times = {t for t in self.book.events() if self.book.now < t <= last}
                times.add(self.book.now)
            else:
                others = [p for i, p in enumerate(self.planned) if i not in self.skipped]
                times = {self.end_of(held, now) for held in self.held.values()}
                times = {t for t in times | {p.until for p in others} if t > now}
            for time in sorted(times):
                if self.find(want, self._then(now, time, duration), plain=True) is not None:
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
            then = self._then(now, at, limit_s) if at > now else free
            end = 0 if at > now or limit_s < 0 else now + limit_s if limit_s else FOREVER
            found = []
            for i in range(len(self.nodes)):
                lacks = self.lacking(want, i, free[i])
                if not lacks and limit_s >= 0 and not self.holds(want, i, then[i], now, end):
                    lacks = {("reserved", False)}
                found.append(lacks)
        return found

    def holds(self, want: Request, i: int, free: Free, now: int, end: int) -> bool:
        """Whether a node has the smallest part, beside the reservations."""
        found = self.fit(want, i, free, now, end)
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
