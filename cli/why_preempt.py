"""What `gsched why` says of preemption."""

from __future__ import annotations

from collections.abc import Callable

from gsched.model.why import Cause, Why

When = Callable[[int], str]


def _jobs(cause: Cause) -> str:
    names = [ref.id or "of another user" for ref in cause.jobs]
    if cause.have > len(names):
        names.append(f"{cause.have - len(names)} others")
    return ("job " if len(names) == 1 else "jobs ") + ", ".join(names)


def _preempting(why: Why, cause: Cause, when: When) -> str:
    if not cause.jobs:
        return "It has preempted others, and starts as soon as their nodes are free."
    until = f", at {when(cause.until)} at the latest" if cause.until else ""
    return f"It preempts {_jobs(cause)}, and starts when they have ended{until}."


def _would(why: Why, cause: Cause, when: When) -> str:
    return f"It would preempt {_jobs(cause)} when the scheduler comes to it next."


def _exempt(why: Why, cause: Cause, when: When) -> str:
    until = f"until {when(cause.until)}" if cause.until else "for good"
    return f"It cannot preempt {_jobs(cause)}, exempt {until}."


#: kind of a cause -> its sentence
CAUSES: dict[str, Callable[[Why, Cause, When], str]] = {
    "preempting": _preempting,
    "would_preempt": _would,
    "exempt": _exempt,
}
