"""Ending a command from within, with its exit code and what to say; asking the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

UNREACHABLE = "Unable to contact slurm controller (connect failure)"

T = TypeVar("T")


class Stop(Exception):
    """Ends the command with an exit code; `text` goes to standard error as it stands."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def asking(question: Callable[[], T], prefix: str) -> T:
    """The answer to a question to the cluster; Stop with "`prefix` Unable to contact ..." if
    nobody is there to answer."""
    from gsched.client import ControllerDown

    try:
        return question()
    except ControllerDown:
        raise Stop(1, f"{prefix} {UNREACHABLE}\n") from None
