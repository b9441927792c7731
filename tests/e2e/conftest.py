"""One cluster for all tests that do not break it, and what the machine must offer."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import BIN, TEST_USER, LocalCluster, prefix
from once_support import once
from stepd_support import Client, Start, build, starter


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


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The supervisor; GSCHED_STEPD_CFLAGS: with these flags (tools/sanitize-program.sh stepd)."""
    flags = os.environ.get("GSCHED_STEPD_CFLAGS", "").split()
    return once(tmp_path_factory, "stepd/stepd", lambda target: build(target, *flags))


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    return once(tmp_path_factory, "stepd/stepd_asan", lambda target: build(target, *flags))


@pytest.fixture(params=["self", pytest.param("nobody", marks=pytest.mark.root)])
def start(request: pytest.FixtureRequest, binary: Path) -> Iterator[Start]:
    """Starts steps as the user of the tests, and as root for another user."""
    yield from starter(binary, request.param == "nobody")


@pytest.fixture
def client() -> Iterator[Client]:
    """What srun is to a step of one node."""
    made = Client()
    yield made
    made.close()
