"""What `gsched why` says of preemption."""

from __future__ import annotations

from collections.abc import Callable

from gsched.model.why import Cause, Why
from gsched_cli.why_common import When, jobs


def _preempting(why: Why, cause: Cause, when: When) -> str:
    if not cause.jobs:
        return "It has preempted others, and starts as soon as their nodes are free."
    until = f", at {when(cause.until)} at the latest" if cause.until else ""
    if cause.whose:
        goes, ended = ("makes way", "that has") if cause.have == 1 else ("make way", "they have")
        return (
            f"{_whose(cause)} takes back what it is guaranteed: {jobs(cause)} {goes}, and it "
            f"starts when {ended} ended{until}."
        )
    return f"It preempts {jobs(cause)}, and starts when they have ended{until}."


def _would(why: Why, cause: Cause, when: When) -> str:
    if cause.whose:
        return (
            f"{_whose(cause)} takes back what it is guaranteed from {jobs(cause)} when the "
            "scheduler comes to it next."
        )
    return f"It would preempt {jobs(cause)} when the scheduler comes to it next."


def _exempt(why: Why, cause: Cause, when: When) -> str:
    until = f"until {when(cause.until)}" if cause.until else "for good"
    return f"It cannot preempt {jobs(cause)}, exempt {until}."


def _turn(why: Why, cause: Cause, when: When) -> str:
    first = jobs(cause).capitalize()
    return f"{first} comes before it where {cause.whose} has what it is guaranteed."


def _whose(cause: Cause) -> str:
    return cause.whose[:1].upper() + cause.whose[1:]


#: kind of a cause -> its sentence
CAUSES: dict[str, Callable[[Why, Cause, When], str]] = {
    "preempting": _preempting,
    "would_preempt": _would,
    "exempt": _exempt,
    "unit_turn": _turn,
}
