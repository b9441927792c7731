"""One cluster for all tests that do not break it, and what the machine must offer."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

import pytest
from e2e_support import BIN, TEST_USER, LocalCluster, prefix


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Four simulated nodes of 16 CPUs and 8 GPUs each. Tests leave no job and no drained node."""
    with LocalCluster("--simulate", "peer", "--set", "KillWait=2") as made:
        yield made


@pytest.fixture(scope="session")
def other_user() -> str:
    """An ordinary user who can reach this installation; skips where there is none."""
    if os.getuid() != 0:
        pytest.skip("needs root to act as another user")
    try:
        pwd.getpwnam(TEST_USER)
    except KeyError:
        pytest.skip(f"there is no user {TEST_USER} (.ci/run creates it)")
    if prefix(TEST_USER) is None:
        pytest.skip(f"the user {TEST_USER} cannot read this installation ({BIN})")
    return TEST_USER
