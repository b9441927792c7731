"""`gsched sim` with PreemptMode=SUSPEND,GANG: scripts stand still too."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsched.simulate.replay import Replay
from gsched.simulate.replay_cluster import Wish, build
from gsched.simulate.replay_spec import Requests, specs
from gsched.simulate.traces import Trace, TraceJob

CONF = """
ClusterName=c
SlurmctldHost=c
GresTypes=gpu
DefMemPerCPU=1
PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
NodeName=n1 CPUs=16 RealMemory=64000 Gres=gpu:4
PartitionName=low Nodes=n1 PriorityTier=1 OverSubscribe=FORCE:1 MaxTime=INFINITE Default=YES
PartitionName=top Nodes=n1 PriorityTier=9 OverSubscribe=FORCE:1 MaxTime=INFINITE
"""


def job(name: str, submit: float, run: float, partition: str, limit: float = 1000) -> TraceJob:
    return TraceJob(name, submit, run, limit, gpus=4, partition=partition)


@pytest.mark.parametrize(
    ("jobs", "ends"),
    [
        # 10 s of work, 30 s of standing still, 90 s more.
        ([job("a", 0, 100, "low"), job("b", 10, 30, "top")], {"a": 130, "b": 40}),
        # Twice; and its limit of 100 s counts from where it stood.
        (
            [job("a", 0, 200, "low", 100), job("b", 10, 30, "top"), job("c", 60, 5, "top")],
            {"a": 135, "b": 40, "c": 65},
        ),
    ],
)
def test_by_hand(tmp_path: Path, jobs: list[TraceJob], ends: dict[str, float]) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF)
    trace = Trace("test", "gang", jobs)
    config = build(Wish(path), trace).config
    replay = Replay(config, trace.jobs, specs(Requests(config, "packed"), trace.jobs))
    replay.run()
    assert {row.job.name: row.end for row in replay.record.rows} == ends
    first = next(row for row in replay.record.rows if row.job.name == "a")
    assert first.state == ("TIMEOUT" if len(jobs) == 3 else "COMPLETED")
