"""The name of a job's user came from the client and chose the job's groups on the node: whoever
wrote another's name into the request got that user's supplementary groups and login environment.
"""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys

import pytest
from e2e_support import TEST_USER, LocalCluster, prefix
from node_support import NodeUnderTest

from gsched.model import Phase
from gsched.wire.nodes import Prepare

#: sends a submission under the name that argv[2] says
FORGE = """
import sys
from gsched.client import Client
from gsched.model import JobSpec
from gsched.wire.messages import SubmitJob
spec = JobSpec(name="forged", work_dir=sys.argv[3], std_out="forged.out")
script = b"#!/bin/sh\\nid -Gn\\necho $SLURM_JOB_USER\\n"
print(Client(sys.argv[1]).call(SubmitJob(spec, script, b"A=1", sys.argv[2], "root")).value)
"""


def crowded() -> str:
    """A user of this machine, not root, with more groups than their own if there is one."""
    for group in grp.getgrall():
        for name in group.gr_mem:
            if name not in ("root", TEST_USER):
                return name
    return "daemon"


@pytest.fixture
def ordinary() -> str:
    if os.getuid() != 0:
        pytest.skip("needs root to act as another user")
    try:
        pwd.getpwnam(TEST_USER)
    except KeyError:
        pytest.skip(f"there is no user {TEST_USER} (.ci/run creates it)")
    if prefix(TEST_USER) is None:
        pytest.skip(f"the user {TEST_USER} cannot read this installation")
    return TEST_USER


@pytest.mark.root
def test_a_job_is_its_senders_whatever_name_it_carries(ordinary: str) -> None:
    words = prefix(ordinary)
    assert words is not None
    with LocalCluster("--nodes", "1", "--simulate", "peer") as cluster:
        sock = str(cluster.dir / "run" / "frontend.sock")
        done = subprocess.run(
            [*words, sys.executable, "-P", "-c", FORGE, sock, crowded(), str(cluster.work)],
            capture_output=True,
            text=True,
            check=True,
        )
        job = cluster.ended(int(done.stdout))
        entry = pwd.getpwnam(ordinary)
        assert (job.user, job.group) == (ordinary, grp.getgrgid(entry.pw_gid).gr_name)
        groups, name = (cluster.work / "forged.out").read_text().splitlines()
        own = {grp.getgrgid(gid).gr_name for gid in os.getgrouplist(ordinary, entry.pw_gid)}
        assert set(groups.split()) == own
        assert name == ordinary


@pytest.mark.root
def test_a_node_asks_the_system_for_a_users_groups(ordinary: str) -> None:
    entry = pwd.getpwnam(ordinary)
    node = NodeUnderTest()
    try:
        node.start()
        (node.work / "id.out").touch()
        os.chown(node.work / "id.out", entry.pw_uid, entry.pw_gid)
        launch = node.launch(7, "#!/bin/sh\nid -G\n", user=entry, std_out="id.out")
        launch.job.user = crowded()
        node.order(Prepare(0, launch, go=True))
        node.phase(7, Phase.RELEASED)
        seen = {int(gid) for gid in node.output("id.out").split()}
        assert seen == set(os.getgrouplist(ordinary, entry.pw_gid))
    finally:
        node.close()
