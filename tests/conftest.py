"""What all tests share: where the shared folder is, and what a machine must offer."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# Whoever runs the tests may have them outlive a terminal (nohup) or in the background of a shell:
# what they start must not inherit that such signals are ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def shared_folder() -> Path | None:
    """The folder of transcripts, traces and load scripts, or None where it is absent.

    GSCHED_SHARED names it; a relative value is taken from the project's root.
    """
    path = (ROOT / os.environ.get("GSCHED_SHARED", "../shared")).resolve()
    return path if (path / "golden").is_dir() else None


def fewer_examples(item: pytest.Item, most: int) -> None:
    """At most so many examples of a property, for builds on which each takes long."""
    test = getattr(item, "obj", None)
    known = getattr(test, "_hypothesis_internal_use_settings", None)
    if known is not None and known.max_examples > most:
        test = getattr(test, "__func__", test)
        test._hypothesis_internal_use_settings = settings(known, max_examples=most)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with one clear line each, what this machine cannot run. GSCHED_EXAMPLES bounds the
    examples of each property."""
    most = int(os.environ.get("GSCHED_EXAMPLES", "0"))
    for item in items if most else ():
        fewer_examples(item, most)
    no_shared = shared_folder() is None
    not_root = os.geteuid() != 0
    for item in items:
        if no_shared and item.get_closest_marker("shared"):
            item.add_marker(
                pytest.mark.skip(reason="the shared folder is absent (set GSCHED_SHARED)")
            )
        if not_root and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` a file goes to one worker, so that its tests share a cluster. Those of
    tests/sim share nothing and compute for minutes: each goes where there is room."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if "sim/" in nodeid else super()._split_scope(nodeid)  # type: ignore[no-any-return]

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared folder; the test is skipped where it is absent."""
    path = shared_folder()
    if path is None:
        pytest.skip("the shared folder is absent (set GSCHED_SHARED)")
    return path


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The root of the source tree."""
    return ROOT
