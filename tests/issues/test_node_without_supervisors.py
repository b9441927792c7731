"""A node's daemon and all its supervisors are killed in one moment (`killall -9`, a machine without
memory): nothing of the jobs may run on when they are started again elsewhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from node_support import NodeUnderTest
from step_support import Listener, create, socket_of
from waiting import until

from gsched.model import Phase
from gsched.model.step import StepState
from slurmd_compat.stepd import read_status

SCRIPT = """#!/bin/sh
echo $$ >> {0}
(setsid sh -c 'trap "" TERM HUP; echo $$ >> {0}; sleep 300; sleep 300' &)
sleep 300
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("cgroups", [False, pytest.param(True, marks=pytest.mark.root)])
def test_nothing_runs_on_and_the_end_is_the_nodes(cgroups: bool) -> None:
    node = NodeUnderTest(cgroups=cgroups)
    client = Listener()
    pids = node.work / "pids"
    pids.touch()
    try:
        node.start()
        node.run(1, SCRIPT.format(pids), cpus=2)
        node.phase(1, Phase.RUNNING)
        create(socket_of(node), client, 1, ["sh", "-c", f"echo $$ >> {pids}; exec sleep 300"])
        until("three processes", lambda: node.pump(1) or len(pids.read_text().split()) == 3)
        ran = [int(pid) for pid in pids.read_text().split()]
        places = [path.parent for path in (node.dir / "spool").rglob("status")]
        assert len(places) == 2
        supervisors = [status.stepd_pid for path in places if (status := read_status(path))]
        assert node.process is not None
        for pid in (node.process.pid, *supervisors):
            os.kill(pid, signal.SIGKILL)
        node.process.wait()
        node.start()
        report = node.phase(1, Phase.RELEASED)
        assert (report.cause, report.wstatus) == ("node", -1)
        assert [pid for pid in ran if alive(pid)] == []
        (step,) = report.steps
        assert step.state is StepState.NODE_FAIL
        # The next job finds the node as it should be.
        node.run(2, "#!/bin/sh\n")
        assert node.phase(2, Phase.RELEASED).wstatus == 0
    finally:
        node.close()
        client.close()
