"""In a cluster of an ordinary user's own all jobs run as that user: anybody who could reach its
socket could run programs with that user's rights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from e2e_support import BIN, TEST_USER, LocalCluster, prefix

from gsched.model import JobState

#: a user whom every system has, and who is neither root nor the owner of the cluster
STRANGER = "nobody"


@pytest.fixture
def owned() -> Iterator[LocalCluster]:
    if os.getuid() != 0:
        pytest.skip("needs root to act as two other users")
    for user in (TEST_USER, STRANGER):
        try:
            if prefix(user) is None:
                pytest.skip(f"the user {user} cannot read this installation ({BIN})")
        except KeyError:
            pytest.skip(f"there is no user {user}")
    with LocalCluster("--nodes", "1", "--simulate", "peer", user=TEST_USER) as made:
        yield made


@pytest.mark.root
def test_a_stranger_runs_nothing_there(owned: LocalCluster) -> None:
    done = owned.run(["sbatch", "--wrap", f"touch {owned.work}/mine"], user=STRANGER, check=False)
    assert done.returncode == 1
    assert done.stderr == ("sbatch: error: Batch job submission failed: Access/permission denied\n")
    job_id = owned.sbatch("--wrap", "true")
    assert owned.ended(job_id).state is JobState.COMPLETED
    assert not (owned.work / "mine").exists()
