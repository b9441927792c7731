"""When a job could start: what is free now, then what comes free as running jobs end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gsched import _core

#: ends of running jobs that are looked at one by one
MOST_ENDS = 2000

#: a request in the core's words, once for each partition that would do
Wanted = tuple[dict[str, Any], ...]


class Forecast(NamedTuple):
    """Where and when all components (one for an ordinary job) could start."""

    at: int
    #: for each component: which of its choices, and where
    places: list[tuple[int, _core.Placement]]


def earliest(
    core: _core.Core,
    components: list[Wanted],
    now: int,
    running: Iterable[tuple[int, int]],
    limits: Sequence[int],
    times: Iterable[int] = (),
) -> Forecast | None:
    """The first moment at which every component has room beside the others; None if the nodes of
    `core` never have it. `core` is used up: `running` are keys of its allocations and when they
    end (0: never). `limits`: seconds that each component may last, 0 for ever; `times`: when else
    there may be more room, as reservations begin and end.

    Jobs that wait are not looked at, as Slurm does not. Cost: a placement for each end and time, at
    most MOST_ENDS.
    """
    requests = [[core.request(**one) for one in choices] for choices in components]
    ends = sorted((max(now, end), key) for key, end in running if end)
    later = sorted({time for time in times if time > now})
    at = now
    place = turn = 0
    for _ in range(MOST_ENDS):
        found = place_all(core, requests, at, limits)
        if found is not None:
            return Forecast(at, found)
        next_ = [ends[place][0]] if place < len(ends) else []
        next_ += later[turn : turn + 1]
        if not next_:
            return None
        at = min(next_)
        while place < len(ends) and ends[place][0] <= at:
            core.release(ends[place][1])
            place += 1
        while turn < len(later) and later[turn] <= at:
            turn += 1
    return None


def place_all(
    core: _core.Core, wanted: list[list[int]], now: int, limits: Sequence[int] = ()
) -> list[tuple[int, _core.Placement]] | None:
    """Room for one of each list of requests beside the others; nothing stays allocated. `limits`:
    seconds that each may last, beside what reservations keep; without them only what is free
    counts."""
    places: list[tuple[int, _core.Placement]] = []
    # Keys of the queue are above zero.
    taken = range(-1, -1 - len(wanted), -1)
    try:
        for key, choices, limit in zip(taken, wanted, limits or [-1] * len(wanted), strict=True):
            first = None
            for number, req in enumerate(choices):
                answer = core.place(req, now, limit)
                if isinstance(answer, _core.Placement):
                    first = number, answer
                    break
            if first is None:
                return None
            number, found = first
            shares = [(n, cpus, mem, gpus, tasks) for n, cpus, tasks, mem, gpus in found.nodes]
            req = choices[number]
            core.allocate(
                key,
                shares,
                gpu_milli=found.gpu_milli,
                **core.request_terms(req),
            )
            places.append((number, found))
        return places
    finally:
        for key in taken[: len(places)]:
            core.release(key)
