"""What the workers of one run of the tests share: made by the first that asks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The file `name` (with folders) of this run. `make` is called with its path where there is
    none yet; where it fails or skips, the next worker tries again."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Each worker has a folder of its own in that of the run.
        base = base.parent
    target = base / "once" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            make(target)
    return target
