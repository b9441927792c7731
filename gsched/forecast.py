"""When a job could start: what is free now, then what comes free as running jobs end."""

from __future__ import annotations

from collections.abc import Iterable
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
) -> Forecast | None:
    """The first moment at which every component has room beside the others; None if the nodes of
    `core` never have it. `core` is used up: `running` are keys of its allocations and when they
    end (0: never).

    Jobs that wait are not looked at, as Slurm does not. Cost: a placement for each end, at most
    MOST_ENDS.
    """
    requests = [[core.request(**one) for one in choices] for choices in components]
    ends = sorted((end, key) for key, end in running if end)
    at, place = now, 0
    for _ in range(MOST_ENDS):
        found = place_all(core, requests, now)
        if found is not None:
            return Forecast(at, found)
        if place == len(ends):
            return None
        at = max(now, ends[place][0])
        while place < len(ends) and ends[place][0] <= at:
            core.release(ends[place][1])
            place += 1
    return None


def place_all(
    core: _core.Core, wanted: list[list[int]], now: int
) -> list[tuple[int, _core.Placement]] | None:
    """Room for one of each list of requests beside the others; nothing stays allocated."""
    places: list[tuple[int, _core.Placement]] = []
    # Keys of the queue are above zero.
    taken = range(-1, -1 - len(wanted), -1)
    try:
        for key, choices in zip(taken, wanted, strict=True):
            answers = ((number, core.place(req, now)) for number, req in enumerate(choices))
            first = next((one for one in answers if isinstance(one[1], _core.Placement)), None)
            if first is None:
                return None
            number, found = first
            assert isinstance(found, _core.Placement)
            shares = [(n, cpus, mem, gpus, tasks) for n, cpus, tasks, mem, gpus in found.nodes]
            core.allocate(key, shares, gpu_milli=found.gpu_milli)
            places.append((number, found))
        return places
    finally:
        for key in taken[: len(places)]:
            core.release(key)
