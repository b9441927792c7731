"""A job's script in the spool is taken away, or made unreadable, between the submission and the
start: the job ends with the error's number as its exit code and says why; the node is not at fault.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest
from node_support import NodeUnderTest

from gsched.model import Phase
from gsched.wire.nodes import Forget


@pytest.fixture(scope="module")
def node() -> Iterator[NodeUnderTest]:
    made = NodeUnderTest("Prolog=PLACE/prolog")
    made.conf.write_text(made.conf.read_text().replace("PLACE", str(made.dir)))
    prolog = made.dir / "prolog"
    prolog.write_text(
        "#!/bin/sh\n"
        f"script=$(printf {made.dir}/spool/node1/job%05d/slurm_script $SLURM_JOB_ID)\n"
        'case $SLURM_JOB_NAME in gone) rm -f "$script";; closed) chmod 000 "$script";; esac\n'
    )
    prolog.chmod(0o755)
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize(("name", "error"), [("gone", errno.ENOENT), ("closed", errno.EACCES)])
def test_the_job_says_why(node: NodeUnderTest, name: str, error: int) -> None:
    job_id = error
    node.run(job_id, "#!/bin/sh\necho ran\n", name=name, std_out="said")
    report = node.phase(job_id, Phase.RELEASED)
    assert (report.cause, report.wstatus, report.error) == ("", error << 8, "")
    said = node.output("said")
    assert f"slurm_script: {os.strerror(error)}\n" in said and "error: execve(): " in said
    node.order(Forget(0, job_id, 1))
    node.run(100 + job_id, "#!/bin/sh\n")
    assert node.phase(100 + job_id, Phase.RELEASED).wstatus == 0
