"""Which slurm.conf is meant where several could be."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsched.config import find_slurm_conf, locate


@pytest.fixture(autouse=True)
def no_system_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "SYSTEM_CLUSTER", str(tmp_path / "system" / "slurm.conf"))


def touch(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def test_slurm_conf_goes_first_even_if_missing(tmp_path: Path) -> None:
    touch(tmp_path / ".local/share/gsched/etc/slurm.conf")
    env = {"SLURM_CONF": "/nowhere/slurm.conf", "HOME": str(tmp_path)}
    assert find_slurm_conf(env) == "/nowhere/slurm.conf"


def test_the_users_cluster_then_the_machines_then_slurms(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "SLURM_CONF": ""}
    assert find_slurm_conf(env) == "/etc/slurm/slurm.conf"
    system = touch(tmp_path / "system" / "slurm.conf")
    assert find_slurm_conf(env) == system
    own = touch(tmp_path / ".local/share/gsched/etc/slurm.conf")
    assert find_slurm_conf(env) == own
    other = touch(tmp_path / "data/gsched/etc/slurm.conf")
    assert find_slurm_conf({**env, "XDG_DATA_HOME": str(tmp_path / "data")}) == other
    # The XDG rules: a relative value is not used.
    assert find_slurm_conf({**env, "XDG_DATA_HOME": "data"}) == own


def test_without_any_variable(tmp_path: Path) -> None:
    assert find_slurm_conf({}).startswith("/")
