"""PreemptMode=SUSPEND,GANG with real processes, and daemons that are killed in the middle of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from e2e_support import LocalCluster, until

from gsched.model import JobState

#: counts as long as it works; tells how often it began
VICTIM = """#!/bin/bash
#SBATCH --exclusive --requeue -o /dev/null --time=30
echo x >> {work}/begun
n=0
while [ ! -e {work}/finish ]; do
    n=$((n + 1)); echo "$n" > {work}/new; mv {work}/new {work}/count
    sleep 0.05
done
"""


def count(mark: Path) -> int:
    try:
        return int(mark.read_text() or 0)
    except FileNotFoundError:
        return 0


def kill(cluster: LocalCluster, *names: str) -> None:
    """SIGKILL to daemons."""
    disk = cluster.on_disk
    for daemon in disk.all():
        process = disk.find(daemon)
        if daemon.name in names and process is not None:
            os.kill(process.pid, signal.SIGKILL)
            until("its end", lambda daemon=daemon: disk.find(daemon) is None)


def test_it_stands_still_and_goes_on_whatever_dies() -> None:
    with LocalCluster("--nodes", "1", "--simulate", "peer") as cluster:
        conf = cluster.dir / "etc/slurm.conf"
        text = conf.read_text()
        text += (
            "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n"
            "PreemptParameters=suspend_grace_time=0\n"
            "PartitionName=low Nodes=ALL PriorityTier=1 OverSubscribe=FORCE:1\n"
            "PartitionName=top Nodes=ALL PriorityTier=9 OverSubscribe=FORCE:1\n"
        )
        conf.write_text(text)
        cluster.run(["scontrol", "reconfigure"])
        mark = cluster.work / "count"
        victim = cluster.sbatch("-p", "low", "--mem=10", script=VICTIM.format(work=cluster.work))
        until("it counts", lambda: count(mark) > 2)
        go = cluster.work / "go"
        wait = f"while [ ! -e {go} ]; do sleep 0.05; done; echo x >> {cluster.work}/done"
        high = cluster.sbatch(
            "-p", "top", "--exclusive", "--mem=10", "-o", "/dev/null", "--wrap", wait
        )
        until("the other runs", lambda: cluster.job(high).state == JobState.RUNNING)
        assert cluster.job(victim).state == JobState.SUSPENDED
        shown = cluster.run(["squeue", "-h", "-o", "%i %t", "-j", str(victim)])
        assert shown.stdout == f"{victim} S\n"

        def stands() -> bool:
            before = count(mark)
            time.sleep(0.3)
            return count(mark) == before

        until("it stands still", stands)
        kill(cluster, "slurmctld", "slurmd.node1")
        cluster.up()
        until("the controller", lambda: cluster.job(victim).state == JobState.SUSPENDED)
        before = count(mark)
        assert stands()
        # It ends while the controller is dead; the next one hears of it and lets the other go on.
        kill(cluster, "slurmctld")
        go.touch()
        until("its end", lambda: (cluster.work / "done").exists())
        cluster.up()
        until("it counts on", lambda: count(mark) > before)
        assert cluster.ended(high).state == JobState.COMPLETED
        again = cluster.job(victim)
        assert (again.state, again.restarts, again.paused) == (JobState.RUNNING, 0, 0)
        (cluster.work / "finish").touch()
        assert cluster.ended(victim).state == JobState.COMPLETED
        assert (cluster.work / "begun").read_text() == "x\n"
        assert (cluster.work / "done").read_text() == "x\n"
        row = cluster.run(
            ["sacct", "-X", "-n", "-P", "-j", str(victim), "-o", "State,Suspended"]
        ).stdout.strip()
        state, _, suspended = row.partition("|")
        assert state == "COMPLETED"
        assert suspended != "00:00:00"
