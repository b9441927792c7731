"""A controller that had been stopped (or whose machine had slept) longer than SlurmdTimeout held
its nodes for silent when it went on, ended their jobs and started them again elsewhere.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from e2e_support import LocalCluster, until
from ledger_support import Bench, at

from gsched.ledger import Tick, absence
from gsched.model import JobState, NodeFlag, Phase


def test_what_was_not_listened_to_is_no_silence() -> None:
    bench = Bench()
    job = bench.job()
    bench.schedule()
    host = job.batch_host
    bench.report(host, at(job, Phase.RUNNING))
    bench.now += 3600
    absence.excuse(bench.led, 3600)
    bench.apply(Tick())
    assert job.state is JobState.RUNNING
    assert not bench.led.nodes[host].flags & NodeFlag.DOWN
    # The timeout of this cluster (60 s) begins anew.
    bench.now += 59
    bench.apply(Tick())
    assert job.state is JobState.RUNNING
    bench.now += 2
    bench.apply(Tick())
    assert bench.led.nodes[host].flags & NodeFlag.DOWN


def test_a_machine_that_slept_goes_on(tmp_path: Path) -> None:
    options = ("--nodes", "2", "--simulate", "peer", "--set", "SlurmdTimeout=4")
    with LocalCluster(*options) as cluster:
        job_id = cluster.sbatch("-o", "/dev/null", "--wrap", "sleep 600")
        until("start", lambda: cluster.job(job_id).state is JobState.RUNNING)
        pid_files = ("slurmctld.pid", "slurmd.node1.pid", "slurmd.node2.pid")
        pids = [int((cluster.dir / "run" / name).read_text()) for name in pid_files]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(8)
        finally:
            # The controller is back first, and hears nothing for a while.
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
                time.sleep(1.2)
        job = cluster.job(job_id)
        assert (job.state, job.attempt, job.restarts) == (JobState.RUNNING, 1, 0)
        cluster.run(["scancel", str(job_id)])
        assert cluster.ended(job_id).state is JobState.CANCELLED
