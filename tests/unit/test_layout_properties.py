"""What holds for every step, whatever is asked and whatever others hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from layout_support import config, part

from gsched.cpuset import parse_cpu_list
from gsched.distribution import distribute, parse_distribution
from gsched.layout import Busy, Planned, StepRefused, plan_step
from gsched.model import Job, JobSpec, JobState, NodeAlloc, Shape
from gsched.model.step import StepSpec

CONFIGS = [config(), config("TaskPlugin=task/affinity", threads=2)]

DISTRIBUTIONS = ["", "block", "cyclic", "plane=2", "block:block", "cyclic:fcyclic", "Pack"]

jobs = st.builds(
    lambda shapes, mem, task_size: Job(
        id=7,
        uid=0,
        gid=0,
        user="root",
        group="root",
        spec=JobSpec(shape=Shape(mem_per_node=mem, cpus_per_task=task_size)),
        state=JobState.RUNNING,
        partition="gpu",
        attempt=1,
        alloc=[
            part(f"node{number}", cpus, gpus, mem or 0)
            for number, (cpus, gpus) in enumerate(shapes, 1)
        ],
    ),
    st.lists(st.tuples(st.integers(1, 16), st.integers(0, 8)), min_size=1, max_size=4),
    st.sampled_from([None, 4000]),
    st.integers(1, 2),
)

specs = st.builds(
    StepSpec,
    job_id=st.just(7),
    min_nodes=st.integers(0, 4),
    ntasks=st.integers(0, 20),
    ntasks_per_node=st.sampled_from([0, 0, 0, 1, 3]),
    cpus_per_task=st.sampled_from([0, 0, 1, 2, 5]),
    mem_per_node=st.sampled_from([None, None, 0, 1000]),
    mem_per_cpu=st.sampled_from([None, None, 500]),
    gpus_total=st.sampled_from([0, 0, 1, 3]),
    gpus_per_node=st.sampled_from([0, 0, 1, 2]),
    gpus_per_task=st.sampled_from([0, 0, 0, 1, 2]),
    gpus_set=st.booleans(),
    no_gpus=st.sampled_from([False, False, True]),
    overlap=st.sampled_from([False, False, True]),
    exact=st.booleans(),
    whole=st.sampled_from([False, False, True]),
    overcommit=st.sampled_from([False, False, True]),
    relative=st.sampled_from([-1, -1, 0, 1]),
    nodelist=st.sampled_from([[], [], ["node1"], ["node2", "node1"]]),
    exclude=st.sampled_from([[], [], ["node1"], ["node3"]]),
    distribution=st.sampled_from(DISTRIBUTIONS),
    gpu_bind=st.sampled_from(["", "", "single:2", "closest", "map_gpu:0,9", "none", "per_task:1"]),
    cpu_bind=st.sampled_from(["", "", "cores", "sockets", "threads", "rank", "none"]),
)


def planned(spec: StepSpec, job: Job, held: list[NodeAlloc], which: int) -> Planned | str:
    try:
        return plan_step(spec, job, held, CONFIGS[which])
    except Busy:
        return "busy"
    except StepRefused as refusal:
        return str(refusal)


def nothing(job: Job) -> list[NodeAlloc]:
    return [NodeAlloc(share.node, 0, 0, 0) for share in job.alloc]


def hold(held: list[NodeAlloc], plan: Planned) -> list[NodeAlloc]:
    """What is held once the step runs as well."""
    shares = {node.node: node.alloc for node in plan.nodes}
    result = []
    for one in held:
        more = shares.get(one.node, NodeAlloc(one.node, 0, 0, 0))
        total = NodeAlloc(
            one.node,
            one.cpus + more.cpus,
            one.tasks + more.tasks,
            one.mem_mb + more.mem_mb,
            one.gpus | more.gpus,
        )
        total.cpu_ids = one.cpu_ids | more.cpu_ids
        result.append(total)
    return result


@given(jobs, st.lists(specs, min_size=1, max_size=5), st.integers(0, 1))
def test_steps_beside_each_other(job: Job, wanted: list[StepSpec], which: int) -> None:
    held = nothing(job)
    there = {share.node: share for share in job.alloc}
    for spec in wanted:
        plan = planned(spec, job, held, which)
        again = planned(spec, job, held, which)
        assert again == plan
        if isinstance(plan, str):
            # Who fits into the job alone is never refused for what others hold, and the reverse.
            alone = planned(spec, job, nothing(job), which)
            assert (plan == "busy") == (not isinstance(alone, str) or alone == "busy")
            continue
        busy = {share.node: share for share in held}
        # Every task once; every node has one; nodes in the order of the job.
        tasks = [task for node in plan.nodes for task in node.tasks]
        assert sorted(tasks) == list(range(plan.ntasks))
        assert all(node.tasks == sorted(node.tasks) and node.tasks for node in plan.nodes)
        assert all(node.alloc.tasks == len(node.tasks) for node in plan.nodes)
        order = [share.node for share in job.alloc]
        places = [order.index(node.node) for node in plan.nodes]
        assert places == sorted(set(places))
        for node, cpus, gpus in zip(plan.nodes, plan.task_cpus, plan.task_gpus, strict=True):
            share, mine, taken = there[node.node], node.alloc, busy[node.node]
            # No more than the job has, nor what others hold.
            assert mine.cpu_ids & ~share.cpu_ids == 0
            assert mine.cpus == mine.cpu_ids.bit_count() >= 1
            assert mine.gpus & ~share.gpus == 0
            assert 0 <= mine.mem_mb <= share.mem_mb
            if not spec.overlap:
                assert mine.cpu_ids & taken.cpu_ids == 0
                assert mine.gpus & taken.gpus == 0
                assert mine.mem_mb + taken.mem_mb <= share.mem_mb
            if not spec.overcommit:
                assert mine.cpus >= len(node.tasks) * plan.cpus_per_task
            assert len(cpus) in (0, len(node.tasks))
            for text in cpus:
                assert text
                assert all(mine.cpu_ids >> cpu & 1 for cpu in parse_cpu_list(text))
            assert len(gpus) in (0, len(node.tasks))
            assert all(own and own & ~mine.gpus == 0 for own in gpus)
            if spec.no_gpus:
                assert mine.gpus == 0
            if spec.gpus_set and not spec.no_gpus:
                assert mine.gpus.bit_count() >= spec.gpus_per_node
                assert mine.gpus.bit_count() >= spec.gpus_per_task * len(node.tasks)
        if spec.gpus_set and spec.gpus_total and not spec.no_gpus and not spec.gpus_per_task:
            assert sum(node.alloc.gpus.bit_count() for node in plan.nodes) >= spec.gpus_total
        if spec.nodelist and len(plan.nodes) == len({node.node for node in plan.nodes}):
            given_names = set(spec.nodelist)
            if plan.ntasks >= len(job.alloc) and not plan.notes and not plan.warnings:
                assert given_names <= set(order)
        if not spec.overlap:
            held = hold(held, plan)


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.sampled_from(["block", "cyclic", "plane=3", "block,Pack", "block,NoPack"]),
    st.booleans(),
)
def test_every_task_has_a_node(ntasks: int, room: list[int], text: str, overcommit: bool) -> None:
    tasks = distribute(ntasks, room, parse_distribution(text), overcommit=overcommit)
    assert sorted(task for mine in tasks for task in mine) == list(range(ntasks))
    if ntasks <= sum(room) and not (overcommit and text == "cyclic"):
        assert all(len(mine) <= most for mine, most in zip(tasks, room, strict=True))
    if text.startswith("block"):
        # Consecutive on each node, and in the order of the nodes.
        assert [task for mine in tasks for task in mine] == list(range(ntasks))
