"""A directory tree 1,200 levels deep in the place that PMIx has for a step ended the daemon
(RecursionError in the removal), at each start again; one of a million files would have held it.
"""

from __future__ import annotations

import os
from pathlib import Path

from slurmd_compat import removal


def deep(top: Path, levels: int) -> None:
    """Too long for a path: made from inside."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(levels):
            os.mkdir("d")
            Path("f").write_text("x")
            os.chdir("d")
    finally:
        os.chdir(here)
        os.close(here)


def test_a_deep_tree_goes(tmp_path: Path) -> None:
    step = tmp_path / "job00007" / "step.0"
    step.mkdir(parents=True)
    deep(step, 1200)
    removal.remove_later(step, tmp_path)
    assert not step.exists()
    removal.settle()
    assert list((tmp_path / removal.ASIDE).iterdir()) == []


def test_a_wide_tree_with_odd_names_goes(tmp_path: Path) -> None:
    step = tmp_path / "job00007"
    for i in range(50):
        below = step / f"a{i}" / f".{os.getpid()}.0.{i}"
        below.mkdir(parents=True)
        (below / "\n").write_text("x")
        os.mkfifo(below / "fifo")
        below.chmod(0)
    removal.remove(step)
    assert not step.exists()


def test_nothing_is_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    step = tmp_path / "job00007"
    (step / "d").mkdir(parents=True)
    for place in (step, step / "d"):
        (place / "link").symlink_to(kept)
        (place / "link2").symlink_to(kept / "file")
    removal.remove(step)
    assert not step.exists()
    link = tmp_path / "job00008"
    link.symlink_to(kept)
    removal.remove(link)
    assert (kept / "file").read_text() == "x"


def test_what_a_former_daemon_left_goes_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / removal.ASIDE / "1.2.3" / "d").mkdir(parents=True)
    removal.sweep(tmp_path)
    removal.settle()
    assert list((tmp_path / removal.ASIDE).iterdir()) == []
