"""Hours, days and months of a time zone: what roll-ups are kept for.

Days and months begin at midnight of the zone; hours are counted from there, so that they lie within
their day whatever the zone's distance to UTC, and also where clocks are put forward or back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo

HOUR = 3600
#: zones are put forward or back, and days begin, at multiples of this
_SLOT = 900

Span = tuple[int, int]


class Calendar:
    """Of one zone; None is the machine's own."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        #: number of the slot -> hour that it lies in
        self._hours: dict[int, Span] = {}
        self._days: dict[int, Span] = {}
        #: begin of the day -> its month
        self._months: dict[int, Span] = {}

    @property
    def name(self) -> str:
        """What tells two zones apart."""
        if self._zone is not None:
            return str(self._zone)
        if "TZ" in os.environ:
            return os.environ["TZ"].lstrip(":")
        try:
            return os.readlink("/etc/localtime").partition("zoneinfo/")[2]
        except OSError:
            return "/".join(time.tzname)

    def hour(self, at: int) -> Span:
        """The hour in which `at` lies: [begin, end) in epoch seconds. Cost: constant once its
        quarter has been asked for."""
        slot = at // _SLOT
        known = self._hours.get(slot)
        if known is None:
            begin, end = self.day(at)
            first = begin + (at - begin) // HOUR * HOUR
            known = self._hours[slot] = first, min(first + HOUR, end)
        return known

    def day(self, at: int) -> Span:
        """The day in which `at` lies."""
        slot = at // _SLOT
        known = self._days.get(slot)
        if known is None:
            local = self._local(at)
            begin = self._midnight(local.year, local.month, local.day)
            after = datetime(local.year, local.month, local.day) + timedelta(days=1)
            known = begin, self._midnight(after.year, after.month, after.day)
            self._days[slot] = known
        return known

    def month(self, at: int) -> Span:
        """The month in which `at` lies."""
        day = self.day(at)[0]
        known = self._months.get(day)
        if known is None:
            local = self._local(at)
            year, month = divmod(local.year * 12 + local.month, 12)
            begin = self._midnight(local.year, local.month, 1)
            known = self._months[day] = begin, self._midnight(year, month + 1, 1)
        return known

    def hours(self, begin: int, end: int) -> Iterator[Span]:
        """All hours that have a part in [begin, end)."""
        at = begin
        while at < end:
            span = self.hour(at)
            yield span
            at = span[1]

    def split(self, begin: int, end: int) -> tuple[list[Span], list[Span], list[Span]]:
        """(hours, days, months) that make up [begin, end) together, as few as possible; what of it
        are parts of hours counts as whole hours."""
        hours: list[Span] = []
        days: list[Span] = []
        months: list[Span] = []
        at = self.hour(begin)[0]
        while at < end:
            for find, found in ((self.month, months), (self.day, days), (self.hour, hours)):
                span = find(at)
                if span[0] == at and (span[1] <= end or found is hours):
                    found.append(span)
                    at = span[1]
                    break
        return hours, days, months

    def _local(self, at: int) -> datetime:
        return datetime.fromtimestamp(at, self._zone)

    def _midnight(self, year: int, month: int, day: int) -> int:
        found = datetime(year, month, day, tzinfo=self._zone)
        # A midnight that is skipped is when the clock goes on; one that comes twice, the first.
        return int(found.timestamp()) if self._zone else int(time.mktime(found.timetuple()))


def overlap(one: Span, begin: int, end: int) -> int:
    """Seconds that both have."""
    return max(0, min(one[1], end) - max(one[0], begin))
