"""A supervisor of a step that got SIGKILL left tasks running where the first task had ended before
(they are in its process group), and whoever had left the group.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from node_support import NodeUnderTest
from step_support import Listener, a_job, create, socket_of
from waiting import until

from gsched.model import Phase
from gsched.wire.nodes import Kill
from slurmd_compat.stepd import read_status

SCRIPT = """
if [ $SLURM_PROCID = 0 ]; then exit 0; fi
setsid sleep 300 &
echo $$ > {dir}/task; echo $! > {dir}/left
sleep 300
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_nothing_of_the_step_lives_on(tmp_path: Path) -> None:
    node = NodeUnderTest()
    client = Listener()
    node.start()
    tmp_path.chmod(0o777)
    try:
        a_job(node, 301, cpus=2)
        script = SCRIPT.format(dir=tmp_path)
        create(socket_of(node), client, 301, ["sh", "-c", script], ntasks=2)
        (directory,) = (node.dir / "spool").rglob("step.0")
        until(
            "one has ended, the other runs",
            lambda: (
                (tmp_path / "left").exists()
                and (status := read_status(directory)) is not None
                and 0 in status.tasks
                and status.tasks[0].wstatus is not None
            ),
        )
        files = [tmp_path / "task", tmp_path / "left"]
        until("they say who they are", lambda: all(file.read_text().strip() for file in files))
        pids = [int(file.read_text()) for file in files]
        status = read_status(directory)
        assert status is not None
        os.kill(status.stepd_pid, signal.SIGKILL)
        until("its srun hears of it", lambda: node.pump(1) or client.code is not None)
        assert client.code != 0
        until(f"{pids} end", lambda: all(map(gone, pids)))
        until("its directory goes", lambda: not directory.exists())
        node.order(Kill(0, 301, 1, "cancelled"))
        node.phase(301, Phase.RELEASED)
    finally:
        client.close()
        node.close()
