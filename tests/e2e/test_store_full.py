"""A full disk: no new submissions, but what happened is still recorded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsched.store import CommitFailed, Store, number_key


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 MB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m", "none", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.root
def test_full_disk(small_disk: Path) -> None:
    store = Store.open(str(small_disk / "state"))
    ballast = small_disk / "state" / "ballast"
    assert ballast.stat().st_size == 32 << 20
    assert store.has_room()
    with open(small_disk / "filler", "wb") as filler:
        try:
            while True:
                os.write(filler.fileno(), b"\0" * (1 << 20))
        except OSError:
            pass
    assert not store.has_room()
    # 8 MB of ends find no room but that of the ballast.
    ends = {("job", number_key(n)): b"e" * 1000 for n in range(8000)}
    store.commit(ends)
    assert not ballast.exists()
    assert dict(store.load("job")) == {key: value for (_, key), value in ends.items()}
    # Once that is used up as well, a commit fails whole, and what was there stays.
    with pytest.raises(CommitFailed):
        store.commit({("job", number_key(n)): b"f" * 5000 for n in range(20_000)})
    assert dict(store.load("job")) == {key: value for (_, key), value in ends.items()}
    store.close()
    (small_disk / "filler").unlink()
    again = Store.open(str(small_disk / "state"))
    assert len(dict(again.load("job"))) == 8000
    assert again.has_room() and ballast.exists()
    again.commit({("job", number_key(1)): None})
    again.close()


@pytest.mark.root
def test_a_full_disk_without_a_journal(small_disk: Path) -> None:
    """As when an earlier release filled it: the controller starts, and ends are recorded."""
    state = small_disk / "state"
    Store.open(str(state)).close()
    (state / "main" / "journal").unlink()
    with open(small_disk / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
    store = Store.open(str(state))
    assert not store.promise({("job", number_key(1)): b"ended"})
    store.close()
    (small_disk / "filler").unlink()
    store = Store.open(str(state))
    assert store.get("job", number_key(1)) == b"ended"
    assert store.promise({("job", number_key(2)): b"ended"})
    store.close()
