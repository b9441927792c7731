"""Requests of which any will do: --gpus=h100:4|a100:8. gsched's own; Slurm has no such."""

from __future__ import annotations

import pytest
from sbatch_support import sbatch
from unit.ledger_support import CONF, Bench, at

from gsched.model import Alternative, Gpu, Job, JobSpec, JobState, Phase, Shape
from gsched.wire.messages import Refused, UpdateJob

MIXED = CONF.replace(
    "NodeName=node[3-4] Feature=h100,rackB", "NodeName=node[3-4] Feature=rackB Gres=gpu:a100:8"
).replace("SlurmdTimeout=60", "SlurmdTimeout=0")
FOUR_OR_EIGHT = (
    Alternative(Shape(gpus_total=4, gpu_type="h100"), {"per_job": "gres/gpu:h100:4"}),
    Alternative(Shape(gpus_total=8, gpu_type="a100"), {"per_job": "gres/gpu:a100:8"}),
)


def finished(*argv: str) -> JobSpec:
    return sbatch(*argv, "--wrap", "true").sent.spec


def bench() -> Bench:
    b = Bench(MIXED, register=False)
    for name in b.config.nodes:
        kind = "h100" if name in ("node1", "node2") else "a100"
        b.register(name, gpus=[Gpu(f"{name}-{i}", kind, i, links=[0] * 8) for i in range(8)])
    return b


def test_each_alternative_is_read_by_itself() -> None:
    spec = finished("--gpus=h100:4|a100:8", "-N1")
    assert [(one.shape.gpu_type, one.shape.gpus_total) for one in spec.alternatives] == [
        ("h100", 4),
        ("a100", 8),
    ]
    assert spec.shape == spec.alternatives[0].shape
    assert finished("--gres=gpu:2|gpu:a100:4").alternatives[1].shape.gpus_per_node == 4
    assert finished("--gpus=4").alternatives == ()


@pytest.mark.parametrize(
    "argv", [["--gpus=1|2", "--gres=gpu:1|gpu:2"], ["--gpus=1|"], ["--gpus=|"]]
)
def test_alternatives_that_mean_nothing(argv: list[str]) -> None:
    ran = sbatch(*argv, "--wrap", "true")
    assert ran.code == 1 and "Alternatives" in ran.err


def job(b: Bench, **kw: object) -> Job:
    first = FOUR_OR_EIGHT[0]
    return b.job(shape=first.shape, tres=first.tres, alternatives=FOUR_OR_EIGHT, **kw)


def test_the_first_that_can_start_is_taken_and_the_job_starts_once() -> None:
    b = bench()
    jobs = [job(b) for _ in range(6)]
    b.schedule()
    # Four fit on the h100s (2 nodes x 8 / 4), then two on a100s (2 nodes x 8 / 8).
    assert [one.gpu_types for one in jobs] == [{"h100": 4}] * 4 + [{"a100": 8}] * 2
    assert [one.spec.tres["per_job"] for one in jobs[3:5]] == ["gres/gpu:h100:4", "gres/gpu:a100:8"]
    assert all(len(one.alloc) == 1 for one in jobs)
    late = job(b)
    b.schedule()
    assert late.state == JobState.PENDING
    b.report(jobs[5].alloc[0].node, at(jobs[5], Phase.RELEASED, wstatus=0))
    b.schedule()
    assert late.gpu_types == {"a100": 8}


def test_queued_again_it_may_take_any_of_them() -> None:
    b = bench()
    jobs = [job(b) for _ in range(5)]
    b.schedule()
    other = jobs[4]
    assert other.spec.shape.gpu_type == "a100"
    b.write(UpdateJob([str(other.id)], "requeue"), uid=0)
    b.report(other.alloc[0].node, at(other, Phase.RELEASED))
    assert other.state == JobState.PENDING and other.spec.shape.gpu_type == "h100"
    b.report(jobs[0].alloc[0].node, at(jobs[0], Phase.RELEASED, wstatus=0))
    b.now += 200
    b.tick()
    b.schedule()
    assert other.gpu_types == {"h100": 4}


def test_what_the_cluster_can_never_give_is_left_out() -> None:
    b = bench()
    spare = (Alternative(Shape(gpus_total=4, gpu_type="b200"), {}), *FOUR_OR_EIGHT[1:])
    one = b.job(shape=spare[0].shape, alternatives=spare)
    assert one.spec.alternatives == () and one.spec.shape.gpu_type == "a100"
    none = (spare[0], Alternative(Shape(gpus_total=64, gpu_type="a100", max_nodes=1), {}))
    assert isinstance(b.submit(shape=none[0].shape, alternatives=none), Refused)
