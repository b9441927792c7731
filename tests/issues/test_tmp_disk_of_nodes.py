"""--tmp was looked at when a job was submitted, and not when it started: with nodes of several
sizes it got one whose TmpDisk was too small. sbatch(1): "a minimum amount of temporary disk space
per node"."""

from __future__ import annotations

from unit.ledger_support import CONF, Bench

from gsched.model import JobState, Shape


def disks(b: Bench) -> None:
    for name in ("node1", "node2", "node4"):
        assert b.led.config.nodes[name].tmp_disk == 1000
    assert b.led.config.nodes["node3"].tmp_disk == 9000


def test_a_job_gets_nodes_whose_disk_is_large_enough() -> None:
    conf = CONF.replace("NodeName=DEFAULT ", "NodeName=DEFAULT TmpDisk=1000 ")
    conf = conf.replace("NodeName=node[3-4] ", "NodeName=node4 TmpDisk=1000 ")
    conf += "NodeName=node3 TmpDisk=9000 Feature=h100,rackB\n"
    b = Bench(conf)
    disks(b)
    jobs = [b.job(shape=Shape(tmp_disk_mb=5000, ntasks=16)) for _ in range(2)]
    b.schedule()
    assert [part.node for part in jobs[0].alloc] == ["node3"]
    # The next one waits for it, though other nodes are free.
    assert jobs[1].state == JobState.PENDING and b.verdict(jobs[1]) == "Resources"
