"""A job that starts from its user's login environment did not find srun where the cluster's
commands lie in a folder that no login names, or found those of another cluster."""

from __future__ import annotations

import os
from pathlib import Path

from slurmd_compat.launcher import with_commands


def command(folder: Path) -> Path:
    folder.mkdir()
    (folder / "srun").write_text("#!/bin/sh\n")
    (folder / "srun").chmod(0o755)
    return folder


def test_the_folder_of_the_commands_goes_before_others(tmp_path: Path) -> None:
    own, other = command(tmp_path / "own"), command(tmp_path / "other")
    for path in ("/nonexistent", str(other), f"{other}:{own}"):
        login = with_commands({b"PATH": os.fsencode(path), b"HOME": b"/h"}, own)
        assert login == {b"PATH": os.fsencode(f"{own}:{path}"), b"HOME": b"/h"}
    assert with_commands({}, own) == {b"PATH": os.fsencode(own)}


def test_a_path_that_finds_them_stays(tmp_path: Path) -> None:
    own, other = command(tmp_path / "own"), command(tmp_path / "other")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "srun").symlink_to(own / "srun")
    for path in (f"{own}:{other}", str(linked)):
        login = {b"PATH": os.fsencode(path)}
        assert with_commands(login, own) == login
    assert with_commands({b"PATH": b"/bin"}, tmp_path / "none") == {b"PATH": b"/bin"}
