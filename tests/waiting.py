"""Waiting for what other processes do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0
# Where everything takes longer, as on a machine that is emulated: how many times as long.
SLOW = float(os.environ.get("GSCHED_SLOW", "1"))


def pause() -> None:
    time.sleep(0.02)


def until(
    what: str,
    ready: Callable[[], Any],
    patience: float = PATIENCE,
    *,
    between: Callable[[], object] = pause,
    log: Callable[[], str] = str,
) -> Any:
    """Waits until `ready()` is true and returns what it gave; fails naming `what`, with the log.

    A file that `ready` reads need not be there yet. `between` is done after each look.
    """
    patience *= SLOW
    end = time.monotonic() + patience
    while True:
        try:
            got = ready()
        except FileNotFoundError:
            got = None
        if got:
            return got
        assert time.monotonic() < end, f"{what}: not within {patience:g} s\n{log()}"
        between()
