"""Many waiting jobs: every one is told its reason, in passes that tell only so many each."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, Bench, told

from gsched.cluster import verdicts
from gsched.model import Shape
from gsched.wire.messages import Done, UpdatePartition


def test_reasons_reach_everybody_when_a_partition_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Bench(CONF)
    assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": "DOWN"}), 0), Done)
    hour = 3600
    jobs = [b.job(shape=Shape(min_nodes=3, max_nodes=3, gpus_per_node=8), time_limit=hour)]
    jobs += [b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8), time_limit=hour)]
    jobs += [b.job(shape=Shape(gpus_per_node=1), time_limit=2 * hour) for _ in range(10)]
    large = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8), hold=True)
    assert told(b.schedule()) == {job.id: "PartitionDown" for job in jobs} | {
        large.id: "JobHeldUser"
    }
    monkeypatch.setattr(verdicts, "VERDICTS_PER_PASS", 2)
    monkeypatch.setattr(verdicts, "ALIKE_PER_PASS", 3)
    assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": "UP"}), 0), Done)
    first, *rest = jobs
    words: dict[int, str] = {}
    passes = 0
    while True:
        news = told(b.schedule())
        if not news:
            break
        assert len(news) <= 5 and not news.keys() & words.keys()
        words |= news
        passes += 1
    assert first.alloc and passes >= 3
    # One node is left, but whoever took it for two hours would delay the first that waits.
    assert words == {rest[0].id: "Resources"} | {job.id: "Priority" for job in rest[1:]}


def test_jobs_of_one_kind_are_judged_each_for_itself() -> None:
    b = Bench(CONF)
    limit = 60 * 60
    plain = b.job(shape=Shape(cpus_per_task=2), time_limit=limit)
    assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": "DOWN"}), 0), Done)
    several = [b.job(shape=Shape(cpus_per_task=2), time_limit=limit) for _ in range(3)]
    held = b.job(shape=Shape(cpus_per_task=2), time_limit=limit, hold=True)
    b.schedule()
    assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": "UP"}), 0), Done)
    b.schedule()
    assert all(job.alloc for job in (plain, *several)) and not held.alloc


def test_opening_and_closing_reaches_jobs_of_every_kind() -> None:
    b = Bench(CONF)
    gang = Shape(min_nodes=4, max_nodes=4, gpus_per_node=8)

    def turn(state: str) -> dict[int, str]:
        assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": state}), 0), Done)
        words: dict[int, str] = {}
        out = b.schedule()
        while True:
            words |= told(out)
            if not out.schedule:
                return words
            out = b.schedule()

    b.job(shape=gang, time_limit=60)
    b.schedule()
    plain = [b.job(shape=gang, time_limit=60) for _ in range(3)]
    tasks = b.job(shape=gang, time_limit=60, array="0-3")
    node = Shape(gpus_per_node=8)
    either = b.job(shape=node, time_limit=60, partitions=("gpu", "debug"))
    held = b.job(shape=gang, time_limit=60, hold=True)
    long = b.job(shape=gang, time_limit=10 * 86400)
    elsewhere = b.job(shape=node, time_limit=60, partitions=("debug",))
    b.schedule()
    closed = {job.id: "PartitionDown" for job in (*plain, tasks, long)}
    down = turn("DOWN")
    assert {i: word for i, word in down.items() if word == "PartitionDown"} == closed
    assert held.id not in down and either.id not in closed
    inactive = turn("INACTIVE")
    assert {i for i, word in inactive.items() if word == "PartitionInactive"} == closed.keys()
    assert elsewhere.id not in down.keys() | inactive.keys()
    again = turn("UP")
    assert again[long.id] == "PartitionTimeLimit"
    assert {again[job.id] for job in (*plain, tasks)} == {"Resources"}
    # Closed and open before a pass has looked: nothing is different for anybody.
    for state in ("DOWN", "UP"):
        assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": state}), 0), Done)
    assert set(told(b.schedule()).values()) <= {"Resources", "PartitionTimeLimit"}
    b.led.cluster.check()
