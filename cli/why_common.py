"""Words that the sentences of `gsched why` have in common."""

from __future__ import annotations

from collections.abc import Callable

from gsched.model.why import Cause

#: epoch seconds as text
When = Callable[[int], str]


def jobs(cause: Cause) -> str:
    """The jobs that a cause names, and how many others there are."""
    names = [ref.id or "of another user" for ref in cause.jobs]
    if cause.have > len(names):
        names.append(f"{cause.have - len(names)} others")
    return ("job " if len(names) == 1 else "jobs ") + ", ".join(names)
