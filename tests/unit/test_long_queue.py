"""Many waiting jobs: every one is told its reason, in passes that tell only so many each."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, Bench

from gsched.cluster import verdicts
from gsched.model import Shape, Verdict
from gsched.wire.messages import Done, UpdatePartition


def told(b: Bench) -> dict[int, str]:
    """What one pass tells."""
    out = b.schedule()
    found = [one for (kind, _), one in out.view.items() if kind == "verdict"]
    return {one.job_id: one.reason for one in found if isinstance(one, Verdict)}


def test_reasons_reach_everybody_when_a_partition_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Bench(CONF)
    assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": "DOWN"}), 0), Done)
    hour = 3600
    jobs = [b.job(shape=Shape(min_nodes=3, max_nodes=3, gpus_per_node=8), time_limit=hour)]
    jobs += [b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8), time_limit=hour)]
    jobs += [b.job(shape=Shape(gpus_per_node=1), time_limit=2 * hour) for _ in range(10)]
    large = b.job(shape=Shape(min_nodes=4, max_nodes=4, gpus_per_node=8), hold=True)
    assert told(b) == {job.id: "PartitionDown" for job in jobs} | {large.id: "JobHeldUser"}
    monkeypatch.setattr(verdicts, "VERDICTS_PER_PASS", 5)
    assert isinstance(b.write(UpdatePartition("gpu", "update", {"state": "UP"}), 0), Done)
    first, *rest = jobs
    words: dict[int, str] = {}
    passes = 0
    while True:
        news = told(b)
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
