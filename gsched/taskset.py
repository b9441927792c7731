"""Sets of array tasks as runs: "0-3,7,10-20:2". Cost is in runs, not in tasks."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator

#: a run: first, last (in it), step
Run = tuple[int, int, int]
#: the largest MaxArraySize there is: no task has this number
MAX_TASK = 4_000_001
#: tasks of runs that overlap and have steps: only these are looked at one by one
_MAX_SINGLE = 1_000_000
_THROTTLE = re.compile(r"([0-9]{0,9})(?:(?=,)|\]?$)", re.ASCII)


class TaskSetError(ValueError):
    """A text that is no set of tasks."""


class TaskSet:
    """Task numbers in ascending order without doubles."""

    __slots__ = ("runs",)

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    @classmethod
    def parse(cls, text: str) -> TaskSet:
        """Reads the form that `text()` writes, and what --array takes before its %."""
        runs: list[Run] = []
        for item in text.split(","):
            span, colon, step_text = item.partition(":")
            first, dash, last = span.partition("-")
            step = step_text if colon else "1"
            if not first.isdecimal() or (dash and not last.isdecimal()) or not step.isdecimal():
                raise TaskSetError(f"invalid array tasks {text!r} at {item!r}")
            low, high, by = int(first), int(last or first), int(step)
            if high < low or by < 1 or high >= MAX_TASK:
                raise TaskSetError(f"invalid array tasks {text!r} at {item!r}")
            runs.append((low, high - (high - low) % by, by if high > low else 1))
        runs.sort()
        if _overlap(runs):
            runs = _merged(runs)
        if _overlap(runs):
            if sum((high - low) // step + 1 for low, high, step in runs) > _MAX_SINGLE:
                raise TaskSetError("the runs of a set of array tasks overlap too often")
            runs = _runs(sorted({t for a, b, s in runs for t in range(a, b + 1, s)}))
        return cls(_joined(runs))

    @classmethod
    def asked(cls, text: str) -> tuple[TaskSet, int]:
        """(tasks, how many may run at once or 0) of --array: "1,3,5-9:2%2".

        As lenient as Slurm: brackets around, blanks before it and empty items say nothing. Raises
        TaskSetError; for a throttle that is none too, which Slurm passes over."""
        before, _, after = text.partition("%")
        throttle = _THROTTLE.match(after)
        if throttle is not None:
            # It may stand behind any of the items.
            before += after[throttle.end() :]
        items = [item for item in before.strip(" []").split(",") if item]
        if throttle is None:
            raise TaskSetError(f"invalid array throttle {after!r}")
        return cls.parse(",".join(items)), int(throttle[1] or 0)

    def text(self) -> str:
        """The shortest form, for the record."""
        return ",".join(_run_text(run) for run in self.runs)

    def shown(self, throttle: int = 0, room: int = 0) -> str:
        """As Slurm shows it: runs of consecutive tasks, each task of a stepped run by itself, the
        throttle; cut with "..." at `room` bytes (0: not)."""
        pieces: list[str] = []
        length = 0
        for low, high, step in self.runs:
            if step == 1:
                items: Iterator[str] = iter([str(low) if low == high else f"{low}-{high}"])
            else:
                items = map(str, range(low, high + 1, step))
            for item in items:
                pieces.append(item)
                length += len(item) + 1
                if room and length > room:
                    text = ",".join(pieces)[: room - 4]
                    return text + "..." + (f"%{throttle}" if throttle else "")
        return ",".join(pieces) + (f"%{throttle}" if throttle else "")

    def __len__(self) -> int:
        return sum((high - low) // step + 1 for low, high, step in self.runs)

    def __iter__(self) -> Iterator[int]:
        for low, high, step in self.runs:
            yield from range(low, high + 1, step)

    def __contains__(self, task: int) -> bool:
        place = bisect.bisect_right(self.runs, (task, MAX_TASK, MAX_TASK)) - 1
        if place < 0:
            return False
        low, high, step = self.runs[place]
        return task <= high and (task - low) % step == 0

    @property
    def first(self) -> int:
        return self.runs[0][0]

    @property
    def last(self) -> int:
        return self.runs[-1][1]

    def remove(self, task: int) -> None:
        """Takes one task out. KeyError if it is not there."""
        for index, (low, high, step) in enumerate(self.runs):
            if low <= task <= high and (task - low) % step == 0:
                parts = []
                if task > low:
                    parts.append((low, task - step, step if task - step > low else 1))
                if task < high:
                    parts.append((task + step, high, step if high > task + step else 1))
                self.runs[index : index + 1] = parts
                return
        raise KeyError(task)


def _overlap(runs: list[Run]) -> bool:
    return any(a[1] >= b[0] for a, b in itertools.pairwise(runs))


def _merged(runs: list[Run]) -> list[Run]:
    """The same tasks: overlapping runs without steps as one, equal runs once; sorted."""
    found: list[Run] = []
    stepped: set[Run] = set()
    for low, high, step in runs:
        if step > 1:
            stepped.add((low, high, step))
        elif found and found[-1][1] >= low:
            found[-1] = (found[-1][0], max(found[-1][1], high), 1)
        else:
            found.append((low, high, 1))
    return sorted([*found, *stepped])


def _runs(tasks: list[int]) -> list[Run]:
    """Consecutive tasks together."""
    runs: list[Run] = []
    for task in tasks:
        if runs and runs[-1][1] == task - 1:
            runs[-1] = (runs[-1][0], task, 1)
        else:
            runs.append((task, task, 1))
    return runs


def _joined(runs: list[Run]) -> list[Run]:
    """Neighbouring runs of consecutive tasks as one."""
    found: list[Run] = []
    for low, high, step in runs:
        if found and step == 1 == found[-1][2] and found[-1][1] == low - 1:
            found[-1] = (found[-1][0], high, 1)
        else:
            found.append((low, high, step))
    return found


def _run_text(run: Run) -> str:
    low, high, step = run
    if low == high:
        return str(low)
    return f"{low}-{high}" if step == 1 else f"{low}-{high}:{step}"
