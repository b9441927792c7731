"""Which stretch of a trace is replayed, and how fast its jobs come."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import datetime

from gsched.simulate.traces import Trace

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)\Z")


class WindowError(Exception):
    """One sentence for the user."""


@dataclass(frozen=True)
class Window:
    """`since` and `until` as the user wrote them; `faster`: jobs come so many times as fast."""

    since: str = ""
    until: str = ""
    faster: float = 1.0

    @classmethod
    def parse(cls, since: str | None, until: str | None, faster: float) -> Window:
        return cls(since or "", until or "", faster)

    def cut(self, trace: Trace) -> Trace:
        """The same trace, only with the jobs submitted in the window. WindowError if none is."""
        low = _seconds("--from", self.since, trace) if self.since else float("-inf")
        high = _seconds("--until", self.until, trace) if self.until else float("inf")
        trace.jobs = [job for job in trace.jobs if low <= job.submit < high]
        if not trace.jobs:
            raise WindowError(f"{trace.name}: no job was submitted in the time asked for")
        first = trace.jobs[0].submit
        if self.faster != 1.0:
            for job in trace.jobs:
                job.submit = first + (job.submit - first) / self.faster
        return trace


def _seconds(option: str, text: str, trace: Trace) -> float:
    """Of the trace's time."""
    found = _TIME.match(text)
    if found:
        return float(found[1]) * _UNITS[found[2]]
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise WindowError(
            f'{option} "{text}" is neither a number (of seconds, or with m, h, d or w) nor a date'
        ) from None
    if trace.epoch is None:
        raise WindowError(f'{option} "{text}": the trace has no dates')
    return float(calendar.timegm(date.timetuple()) - trace.epoch)
