"""What jobs without GPUs leave alone for idle GPUs, by default and as it is said: the amounts by
arithmetic, and in histories that no such job makes an idle GPU unusable, nor waits for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_support import SLOW
from hypothesis import given
from hypothesis import strategies as st
from unit.why_support import CONF, World

from gsched import _core
from gsched.cluster.keep import Keep
from gsched.cluster.nodes import usable_cpus, usable_memory
from gsched.config import parse_config
from gsched.model import JobState
from gsched_cli.why_words import sentences

#: 64 cores and 4 GPUs: 16 cores for each, of which an eighth is 2
RICH = CONF.replace(
    "CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8",
    "CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=640000 Gres=gpu:h100:4",
)
DGX = CONF.replace(
    "CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8",
    "CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2060000 Gres=gpu:h100:8",
)
DEFAULTS = "DefMemPerCPU=1000"


def kept(conf: str) -> tuple[int, int]:
    config = parse_config({"slurm.conf": conf})
    node = config.nodes["node1"]
    return Keep(config).of_node(node, node.gpus, usable_cpus(node), usable_memory(node))


@pytest.mark.parametrize(
    ("conf", "cpus", "mem_mb"),
    [
        # Two cores for a GPU: nothing can be spared.
        (CONF, 0, 0),
        # 8 of 64 cores and of 640,000 MB for four GPUs.
        (RICH, 2, 20_000),
        # 14 cores for a GPU: one core is two CPUs, of 224; and 2,060,000 MB x 2 / 224.
        (DGX, 2, 18_392),
        # What a partition says that a GPU goes with.
        (RICH.replace(DEFAULTS, "DefCpuPerGPU=6 DefMemPerGPU=50000"), 6, 50_000),
        # That of one partition of several is enough, the most counts: a GPU serves each of them.
        (RICH + "PartitionName=b Nodes=node1 DefCpuPerGPU=4\n", 4, 40_000),
        (RICH + "PartitionName=b Nodes=node2 DefCpuPerGPU=4\n", 2, 20_000),
        # The cluster's, for partitions that say nothing.
        (RICH + "DefCpuPerGPU=5\n", 5, 50_000),
        # A fifth of the node is left to others: 64 cores in five parts are 12.
        (RICH.replace(DEFAULTS, "DefCpuPerGPU=16 DefMemPerGPU=160000"), 12, 128_000),
        # Also where cores are few: 16 in nine parts are one.
        (CONF.replace(DEFAULTS, "DefCpuPerGPU=2"), 1, 4_000),
        # Whole cores: three CPUs are two of them.
        (DGX.replace(DEFAULTS, "DefCpuPerGPU=3"), 4, 36_785),
        # Memory alone: a GPU needs a core with it.
        (CONF.replace(DEFAULTS, "DefMemPerGPU=1000"), 1, 1_000),
        # Said: that alone, as far as it goes.
        (RICH + "SchedulerParameters=gpu_keep_cpus=3\n", 3, 0),
        (RICH + "SchedulerParameters=gpu_keep_mem=900,gpu_keep_cpus=99\n", 12, 900),
        (RICH + "SchedulerParameters=gpu_keep_cpus=0\n", 0, 0),
        (RICH + "SchedulerParameters=default_queue_depth=9\n", 2, 20_000),
    ],
)
def test_how_much_is_kept(conf: str, cpus: int, mem_mb: int) -> None:
    assert kept(conf) == (cpus, mem_mb)


def test_specialised_cores_are_nobody_s() -> None:
    """CoreSpecCount=32: of 32 cores for four GPUs, one each."""
    assert kept(RICH.replace("RealMemory", "CoreSpecCount=32 RealMemory"))[0] == 1


def running(world: World) -> set[int]:
    world.settle()
    return {job.id for job in world.led.jobs.values() if job.state == JobState.RUNNING}


def test_jobs_without_gpus_leave_cores_on_the_node() -> None:
    """56 of 64 cores are theirs while four GPUs are idle; then a job with all GPUs has its cores at
    once, and the rest of the cores is everybody's."""
    world = World(RICH)
    jobs = [world.sbatch("-wnode1", "-N1", "-n8", "--mem=8000") for _ in range(8)]
    assert running(world) == {job.id for job in jobs[:7]}
    gpus = world.sbatch("-wnode1", "-n4", "--gpus=4", "--mem=8000")
    assert gpus.id in running(world)
    rest = world.sbatch("-wnode1", "-n4", "--mem=4000", "--time=30")
    settled = running(world)
    assert rest.id in settled, sentences(world.why(rest), str)


def test_memory_is_left_too() -> None:
    """80,000 of 640,000 MB are kept."""
    world = World(RICH)
    first = world.sbatch("-wnode1", "-n1", "--mem=560000")
    second = world.sbatch("-wnode1", "-n1", "--mem=1000")
    assert running(world) == {first.id}
    gpu = world.sbatch("-wnode1", "-n1", "--gpus=1", "--mem=20000")
    assert running(world) == {first.id, gpu.id}
    assert world.verdict(second) in ("Resources", "Priority")


@pytest.mark.parametrize(
    "options",
    [
        ("--exclusive", "-n1"),
        ("-c64", "-n1", "--mem=1000"),
        ("-n64", "-N1", "--mem=1000"),
        ("-n60", "-N1", "--mem=1000"),
        ("-n256", "--mem=1000"),
        ("-n1", "--mem=0"),
        ("-n1", "--mem=640000"),
    ],
)
def test_whole_nodes_can_still_be_had(options: tuple[str, ...]) -> None:
    world = World(RICH)
    job = world.sbatch(*options)
    assert job.id in running(world)


def test_a_large_job_leaves_what_it_can() -> None:
    """Beside all that is kept 57 cores are not there on any node, but beside a half."""
    world = World(RICH)
    small = world.sbatch("-wnode1", "-n4", "--mem=1000")
    large = world.sbatch("-wnode1", "-N1", "-n57", "--mem=1000")
    assert running(world) == {small.id}
    why = world.why(large)
    assert any("kept for idle GPUs" in line for line in sentences(why, str))


def test_components_of_one_job_are_not_held_up_by_it() -> None:
    """34 and 30 of 64 cores of the only node: each would fit beside what is kept, never both."""
    world = World(RICH + "PartitionName=one Nodes=node1\n")
    leader = world.sbatch("-pone", "-n34", "--mem=100", ":", "-pone", "-n30", "--mem=100")
    assert running(world) == {leader.id, leader.id + 1}


def test_small_nodes_are_as_in_slurm() -> None:
    """16 cores and 8 GPUs: jobs without GPUs get them all."""
    world = World(CONF)
    jobs = [world.sbatch("-wnode1", "-n8", "--mem=1000") for _ in range(2)]
    assert running(world) == {job.id for job in jobs}


# ---- histories

#: of nodes with 64 cores, 640 MB and four GPUs: two cores and 20 MB for each idle GPU
KEEP = (2, 20)


def cluster(nodes: int) -> _core.Core:
    core = _core.Core(nodes)
    cls = core.define_class([[0] * 4 for _ in range(4)], [0] * 4)
    for node in range(nodes):
        core.set_node(
            node, cls=cls, cpus=64, mem_mb=640, gpu_type_masks=[(0, 15)], partitions=1,
            keep_cpus=KEEP[0], keep_mem_mb=KEEP[1],
        )  # fmt: skip
    return core


def played(core: _core.Core, jobs: dict[int, int], plan_jobs: int, look: Callable[[], None]) -> int:
    """Jobs of the queue (key -> seconds) run when they may, each to its limit; the time at which
    the last has started. `look` is called after each pass."""
    waiting, ends, now = dict(jobs), dict[int, int](), 0
    while True:
        for start in core.schedule(now, plan_jobs=plan_jobs, resolution=1).starts:
            ends[start.key] = now + waiting.pop(start.key)
        core.check()
        look()
        if not waiting:
            return now
        assert ends, "nothing runs, and somebody waits"
        now = min(ends.values())
        for key in [key for key, end in ends.items() if end <= now]:
            core.release(key)
            del ends[key]


@SLOW
@given(st.data())
def test_no_job_without_gpus_makes_an_idle_gpu_unusable(data: st.DataObject) -> None:
    """Jobs with GPUs take what is kept for them; those without take whatever they get."""
    core = cluster(2)
    one = core.request(
        partition=0, gpus_per_node=1, ntasks=KEEP[0], max_nodes=1, mem_per_node_mb=KEEP[1]
    )
    jobs: dict[int, int] = {}
    for key in range(1, data.draw(st.integers(2, 14))):
        content: dict[str, object] = {"partition": 0, "max_nodes": 1, "leaves_gpus": True}
        gpus = data.draw(st.integers(-4, 4))
        if gpus > 0:
            content |= {"gpus_per_node": gpus, "ntasks": gpus * KEEP[0]}
            content["mem_per_node_mb"] = gpus * KEEP[1]
        else:
            content["ntasks"] = data.draw(st.integers(1, 64 - 4 * KEEP[0]))
            content["mem_per_node_mb"] = data.draw(st.integers(1, 640 - 4 * KEEP[1]))
        jobs[key] = data.draw(st.integers(1, 50))
        order = data.draw(st.integers(1, 3))
        core.queue_add(key, core.request(**content), order, key, jobs[key])

    def look() -> None:
        idle = 8 - sum(core.node_free(node)[2].bit_count() for node in range(2))
        other = core.copy()
        for number in range(idle):
            found = other.place(one)
            assert isinstance(found, _core.Placement), f"of {idle} idle GPUs {number} can be used"
            rows = [(node, cpus, mem, mask) for node, cpus, _, mem, mask in found.nodes]
            other.allocate(1000 + number, rows)

    played(core, jobs, data.draw(st.sampled_from([0, 100])), look)


@SLOW
@given(st.data())
def test_nobody_waits_for_ever(data: st.DataObject) -> None:
    """Jobs of any size, also such as take the whole cluster: the last has started when all of them
    could have run one by one."""
    core = cluster(2)
    jobs: dict[int, int] = {}
    for key in range(1, data.draw(st.integers(2, 14))):
        content: dict[str, object] = {"partition": 0, "leaves_gpus": True}
        content["max_nodes"] = data.draw(st.sampled_from([0, 1, 2]))
        kind = data.draw(st.sampled_from(["gpus", "gpus", "cpus", "cpus", "cpus", "exclusive"]))
        if kind == "gpus":
            content["gpus_per_node"] = data.draw(st.integers(1, 4))
        if kind == "exclusive":
            content["exclusive"] = True
        else:
            content["ntasks"] = data.draw(st.integers(1, 64 * (content["max_nodes"] != 1) + 64))
            content["mem_per_node_mb"] = data.draw(st.integers(0, 640))
        if content["max_nodes"] == 1:
            content["ntasks"] = min(64, content.get("ntasks", 1))  # type: ignore[call-overload]
        req = core.request(**content)
        assert core.can_ever(req) is None
        assert core.possible(req)
        jobs[key] = data.draw(st.integers(1, 50))
        core.queue_add(key, req, data.draw(st.integers(1, 3)), key, jobs[key])
    plan_jobs = data.draw(st.sampled_from([0, 100]))
    assert played(core, jobs, plan_jobs, lambda: None) <= sum(jobs.values())
