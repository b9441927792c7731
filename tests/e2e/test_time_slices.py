"""PreemptMode=GANG with real processes: two jobs on the same CPUs take turns, whatever dies."""

from __future__ import annotations

from pathlib import Path

from e2e.test_suspend_for_others import count, kill
from e2e_support import LocalCluster, until

from gsched.model import JobState

#: counts as long as it works; tells how often it began
COUNTER = """#!/bin/bash
#SBATCH -p turns --exclusive --requeue -o /dev/null --time=30 --mem=10
echo x >> {work}/begun.$1
n=0
while [ ! -e {work}/finish ]; do
    n=$((n + 1)); echo "$n" > {work}/new.$1; mv {work}/new.$1 {work}/count.$1
    sleep 0.05
done
"""


def turns(cluster: LocalCluster, *jobs: int) -> list[int]:
    """Those whose turn it is."""
    return [job for job in jobs if cluster.job(job).state == JobState.RUNNING]


def test_two_jobs_take_turns_whatever_dies() -> None:
    with LocalCluster("--nodes", "1", "--simulate", "peer") as cluster:
        conf = cluster.dir / "etc/slurm.conf"
        conf.write_text(
            conf.read_text() + "PreemptMode=GANG\nSchedulerTimeSlice=5\n"
            "PreemptParameters=suspend_grace_time=0\n"
            "PartitionName=turns Nodes=ALL OverSubscribe=FORCE:2\n"
        )
        cluster.run(["scontrol", "reconfigure"])
        script = COUNTER.format(work=cluster.work)
        one, two = (cluster.sbatch(script=script.replace("$1", name)) for name in "ab")
        marks: dict[int, Path] = {
            job: cluster.work / f"count.{name}" for job, name in ((one, "a"), (two, "b"))
        }
        until("the first works", lambda: count(marks[one]) > 2)
        until("the second waits", lambda: cluster.job(two).state == JobState.SUSPENDED)
        shown = cluster.run(["squeue", "-h", "-o", "%i %t %M %r", "-j", str(two)]).stdout
        assert shown == f"{two} S 0:00 TimeSlice\n"
        told = cluster.run(["gsched", "why", str(two)]).stdout
        assert (
            f"It waits for its time slice on CPUs that it shares: it is the turn of job {one};"
            in told
        )

        def swapped(now: int, before: int) -> None:
            had = count(marks[now])
            until("its turn", lambda: turns(cluster, one, two) == [now])
            until("it counts", lambda: count(marks[now]) > had + 2)
            # Whoever has stopped counts no more while the other does.
            until("the other stands still", lambda: _still(marks[before], marks[now]))

        def _still(stopped: Path, works: Path) -> bool:
            first, had = count(stopped), count(works)
            until("some work", lambda: count(works) > had + 2)
            return count(stopped) == first

        swapped(two, one)
        # The daemon and the controller die in a slice, and are there again.
        kill(cluster, "slurmctld", "slurmd.node1")
        cluster.up()
        until("turns", lambda: len(turns(cluster, one, two)) == 1)
        first = turns(cluster, one, two)[0]
        other = one if first == two else two
        until("the next turn", lambda: turns(cluster, one, two) == [other])
        swapped(first, other)
        # Suspended by hand it has no turn, and the other works on.
        cluster.run(["scontrol", "suspend", str(first)])
        until("the other goes on", lambda: turns(cluster, one, two) == [other])
        until("no reason", lambda: cluster.job(first).sliced == 0)
        cluster.run(["scontrol", "resume", str(first)])
        until("its turn", lambda: turns(cluster, one, two) == [first])
        # Without GANG both work.
        conf.write_text(conf.read_text().replace("PreemptMode=GANG", "PreemptMode=OFF"))
        cluster.run(["scontrol", "reconfigure"])
        until("both", lambda: turns(cluster, one, two) == [one, two])
        (cluster.work / "finish").touch()
        for job, name in ((one, "a"), (two, "b")):
            ended = cluster.ended(job)
            assert (ended.state, ended.restarts) == (JobState.COMPLETED, 0)
            assert (cluster.work / f"begun.{name}").read_text() == "x\n"
            row = cluster.run(
                ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", "State,Suspended"]
            ).stdout.strip()
            state, _, suspended = row.partition("|")
            assert (state, suspended != "00:00:00") == ("COMPLETED", True)
