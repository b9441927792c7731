"""What `gsched why` says of a suspended job."""

from __future__ import annotations

from collections.abc import Callable

from gsched.model.why import Cause, Why
from gsched_cli.why_common import When, jobs


def _time_slice(why: Why, cause: Cause, when: When) -> str:
    whose = f": it is the turn of {jobs(cause)}" if cause.jobs else ""
    until = f"; turns change at {when(cause.until)}" if cause.until else ""
    return f"It waits for its time slice on CPUs that it shares{whose}{until}."


def _stands_still(why: Why, cause: Cause, when: When) -> str:
    if not cause.jobs:
        return "It stands still for a job that is about to start, and goes on after that."
    until = f", at {when(cause.until)} at the latest" if cause.until else ""
    return f"It stands still for {jobs(cause)}, and goes on when that has ended{until}."


def _suspended(why: Why, cause: Cause, when: When) -> str:
    return f"Somebody has suspended it: it goes on with scontrol resume {why.job}."


#: kind of a cause -> its sentence
CAUSES: dict[str, Callable[[Why, Cause, When], str]] = {
    "time_slice": _time_slice,
    "stands_still": _stands_still,
    "suspended": _suspended,
}
