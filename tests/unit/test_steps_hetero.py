"""Steps over the components of a heterogeneous job (man srun, --het-group)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from layout_support import config, job

from gsched.layout import StepRefused, plan_step
from gsched.model import Job, Shape
from gsched.model.step import StepSpec
from gsched.wire.nodes import LaunchSpec
from slurmd_compat.agent.step_create import JobSteps
from slurmd_compat.agent.steps import Steps
from slurmd_compat.agent.words import Record


def components(*shapes: tuple[Shape, tuple[int, ...]]) -> JobSteps:
    jobs: list[Job] = []
    for offset, (shape, cpus) in enumerate(shapes):
        one = job(*cpus, shape=shape)
        one.id, one.het_job_id, one.het_offset, one.het_size = 70 + offset, 70, offset, len(shapes)
        jobs.append(one)
    launch = LaunchSpec(jobs[0], 0, [], 0, components=jobs)
    steps = SimpleNamespace(plan=plan_step, config=config())
    return JobSteps(Record(70, 1, "c", "boot", launch), cast(Steps, steps))


def test_each_component_is_as_large_as_it_was_asked_for() -> None:
    """srun -n1 : -n3 -c2 runs four tasks."""
    unit = components(
        (Shape(ntasks=1), (1,)),
        (Shape(ntasks=3, cpus_per_task=2, cpus_per_task_set=True), (4, 2)),
    )
    planned = unit.plan(StepSpec(0, argv=["a"], het_group=[0, 1]))
    assert planned.ntasks == 4
    assert [(share.het_offset, share.node, share.tasks) for share in planned.nodes] == [
        (0, "node1", [0]),
        (1, "node1", [1, 2]),
        (1, "node2", [3]),
    ]


def test_without_tasks_of_its_own_a_component_has_one_on_each_node() -> None:
    unit = components((Shape(ntasks=1), (1,)), (Shape(min_nodes=2, nodes_set=True), (1, 1)))
    planned = unit.plan(StepSpec(0, argv=["a"], het_group=[1]))
    assert [share.tasks for share in planned.nodes] == [[0], [1]]


def test_what_srun_says_counts_for_each_component() -> None:
    unit = components((Shape(ntasks=1), (2,)), (Shape(ntasks=3), (3,)))
    planned = unit.plan(StepSpec(0, argv=["a"], ntasks=2, het_group=[0, 1]))
    assert [share.tasks for share in planned.nodes] == [[0, 1], [2, 3]]


def test_a_component_that_is_not_there() -> None:
    unit = components((Shape(ntasks=1), (1,)), (Shape(ntasks=1), (1,)))
    with pytest.raises(StepRefused) as caught:
        unit.plan(StepSpec(0, argv=["a"], het_group=[2]))
    # As a 22.05 says it.
    assert str(caught.value) == (
        "error: Requested het-group offset exceeds highest hetjob index (2 > 1)"
    )


def test_components_of_a_job_that_has_none() -> None:
    """Transcript 023: `srun --het-group=0,1` in a job on one node."""
    unit = components((Shape(ntasks=1), (1,)))
    with pytest.raises(StepRefused) as caught:
        unit.plan(StepSpec(0, argv=["a"], min_nodes=1, het_group=[0, 1]))
    assert str(caught.value) == (
        "error: Allocation failure of 1 nodes: job size of 1, already allocated 1 nodes to "
        "previous components."
    )


def test_components_with_programs_of_their_own() -> None:
    unit = components((Shape(ntasks=1), (1,)), (Shape(ntasks=2), (2,)))
    parts = [StepSpec(0, argv=["a"]), StepSpec(0, argv=["b"], ntasks=1)]
    spec = StepSpec(0, argv=["a"], het_group=[0, 1], parts=parts)
    assert [share.tasks for share in unit.plan(spec).nodes] == [[0], [1]]
    assert [share.part for share in unit.plan(spec).nodes] == [0, 1]
    assert [spec.of_part(index).argv for index in (0, 1)] == [["a"], ["b"]]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=StepSpec) == spec


def test_parts_in_a_job_of_one_component_have_nodes_of_their_own() -> None:
    """Measured with 22.05: srun -n1 a : -n2 b in a job of two nodes; refused in one of one."""
    parts = [StepSpec(0, argv=["a"], ntasks=1), StepSpec(0, argv=["b"], ntasks=2)]
    spec = StepSpec(0, argv=["a"], het_group=[0, 1], parts=parts)
    planned = components((Shape(), (2, 2))).plan(spec)
    assert [(share.part, share.het_offset, share.tasks) for share in planned.nodes] == [
        (0, 0, [0]),
        (1, 0, [1, 2]),
    ]
    assert len({share.node for share in planned.nodes}) == 2
    with pytest.raises(StepRefused) as caught:
        components((Shape(), (4,))).plan(spec)
    assert str(caught.value) == (
        "error: Allocation failure of 1 nodes: job size of 1, "
        "already allocated 1 nodes to previous components."
    )
