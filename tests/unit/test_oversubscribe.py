"""CPUs that jobs share or may not have: OverSubscribe, MaxCPUsPerNode, RestrictedCoresPerGPU,
gpu_keep_cpus and Alternate, as slurm.conf(5) says it and a real Slurm 22.05 was seen to do."""

from __future__ import annotations

import copy

import pytest
from unit.why_support import CONF, Waits, World

from gsched.config import ConfigError, parse_config
from gsched.ledger import Ledger
from gsched.model import Job, JobState
from gsched_cli.why_words import sentences

PARTITIONS = """
PartitionName=force Nodes=node2 OverSubscribe=FORCE:2
PartitionName=ask Nodes=node3 OverSubscribe=YES:2
PartitionName=whole Nodes=node4 OverSubscribe=EXCLUSIVE
PartitionName=cap Nodes=node1 MaxCPUsPerNode=6
"""


@pytest.fixture
def world() -> World:
    return World(CONF + PARTITIONS)


def submit(world: World, *options: str) -> Job:
    return world.sbatch("--mem=100", *options)


def running(world: World, *jobs: Job) -> list[bool]:
    world.schedule()
    return [job.state == JobState.RUNNING for job in jobs]


def ids(job: Job) -> int:
    return job.alloc[0].cpu_ids


def test_forced_sharing_puts_so_many_jobs_on_each_cpu(world: World) -> None:
    """Four jobs of 8 on 16 CPUs with FORCE:2 (seen on a real Slurm), and no fifth."""
    jobs = [submit(world, "-pforce", "-n8") for _ in range(5)]
    assert running(world, *jobs) == [True] * 4 + [False]
    for cpu in range(16):
        assert sum(ids(job) >> cpu & 1 for job in jobs[:4]) == 2
    # Free ones first: the first two lie beside each other.
    assert not ids(jobs[0]) & ids(jobs[1])
    assert world.led.cluster.used("node2")[0] == 16
    # What scontrol show job says, with -s or without (seen).
    assert all(job.spec.shape.oversubscribe for job in jobs)
    world.led.cluster.check()


def test_cpus_of_a_lot_are_free_with_the_last_job(world: World) -> None:
    jobs = [submit(world, "-pforce", "-n16") for _ in range(2)]
    other = submit(world, "-N1", "-wnode2", "-n1")
    assert running(world, *jobs, other) == [True, True, False]
    for job, left in zip(jobs, (16, 0), strict=True):
        world.led.cluster.release_node(job.id, job.alloc[0])
        assert world.led.cluster.used("node2")[0] == left
    world.led.cluster.check()


def test_sharing_on_request(world: World) -> None:
    """OverSubscribe=YES: those with -s share among themselves, the others with nobody."""
    alone = submit(world, "-pask", "-n8")
    first, second, third = (submit(world, "-pask", "-n8", "-s") for _ in range(3))
    assert running(world, alone, first, second, third) == [True, True, True, False]
    assert ids(first) == ids(second)
    assert not ids(alone) & ids(first)
    # Elsewhere -s says nothing.
    jobs = [submit(world, "-N1", "-wnode1", "-n10", "-s") for _ in range(2)]
    assert running(world, *jobs) == [True, False]


def test_gpus_are_never_shared(world: World) -> None:
    jobs = [submit(world, "-pforce", "-n1", "--gpus=5") for _ in range(2)]
    assert running(world, *jobs) == [True, False]


def test_exclusive_where_sharing_is_forced_takes_all_cpus_and_shares_them(world: World) -> None:
    """Nobody can switch it off: seen on a real Slurm (16 CPUs beside a job of 8)."""
    part, whole = submit(world, "-pforce", "-n8"), submit(world, "-pforce", "--exclusive")
    assert running(world, part, whole) == [True, True]
    assert ids(whole) == (1 << 16) - 1


def test_a_partition_of_whole_nodes(world: World) -> None:
    """-s does not change it (seen); memory is what is asked for."""
    first, second = submit(world, "-pwhole", "-n1", "-s"), submit(world, "-pwhole", "-n1")
    assert running(world, first, second) == [True, False]
    assert (first.alloc[0].cpus, first.alloc[0].gpus.bit_count()) == (16, 8)
    assert first.alloc[0].mem_mb == 100


def test_a_restart_knows_which_cpus_are_shared(world: World) -> None:
    jobs = [submit(world, "-pforce", "-n8") for _ in range(3)]
    assert running(world, *jobs) == [True] * 3
    world.led = Ledger.load(
        world.config,
        copy.deepcopy(world.led.meta),
        copy.deepcopy(list(world.led.jobs.values())),
        copy.deepcopy(list(world.led.nodes.values())),
    )
    world.led.awaited.clear()
    for name in world.config.nodes:
        world.led.cluster.set_usable(name, True)
    cluster = world.led.cluster
    cluster.check()
    assert cluster.used("node2")[0] == 16
    more = [submit(world, "-pforce", "-n8") for _ in range(2)]
    assert running(world, *more) == [True, False]
    old = [world.led.jobs[job.id] for job in jobs]
    for cpu in range(16):
        assert sum(ids(job) >> cpu & 1 for job in [*old, more[0]]) == 2
    cluster.check()


def test_cpus_of_a_partition_are_bounded_on_each_node(world: World) -> None:
    """MaxCPUsPerNode=6: 4 and 2 run; with 4 of them running another 4 wait, whoever else is there.
    Seven on a node wait for another configuration, and --exclusive is refused (both seen)."""
    four, again, two = (submit(world, "-pcap", n) for n in ("-n4", "-n4", "-n2"))
    assert running(world, four, again, two) == [True, False, True]
    assert world.verdict(again) in ("Resources", "Priority")
    assert running(world, submit(world, "-N1", "-wnode1", "-n10")) == [True]
    seven = submit(world, "-pcap", "-n7")
    assert running(world, seven) == [False]
    assert world.verdict(seven) == "PartitionConfig"
    code, _, err = world.tried("--mem=100", "-pcap", "-N1", "--exclusive")
    assert (code, "Requested node configuration is not available" in err) == (1, True)


def test_cores_that_only_jobs_with_gpus_get() -> None:
    """RestrictedCoresPerGPU=1 of eight GPUs: jobs without GPUs have 8 of 16 cores, whatever the
    GPUs do; jobs with GPUs have them all."""
    world = World(CONF.replace("Gres=gpu:h100:8", "Gres=gpu:h100:8 RestrictedCoresPerGPU=1"))
    first, second = (submit(world, "-N1", "-wnode1", "-n5") for _ in range(2))
    assert running(world, first, second) == [True, False]
    gpus = submit(world, "-N1", "-wnode1", "-n4", "--gpus=8")
    three = submit(world, "-N1", "-wnode1", "-n3")
    assert running(world, gpus, three) == [True, True]
    assert running(world, submit(world, "-N1", "-wnode1", "-n1")) == [False]
    code, _, err = world.tried("--mem=100", "-N1", "-wnode1", "-n9")
    assert (code, "Requested node configuration is not available" in err) == (1, True)


def test_cpus_that_are_kept_for_idle_gpus() -> None:
    """gpu_keep_cpus=1: of 16 CPUs eight are left while all eight GPUs are idle, more with each that
    is in use; nobody has them kept from jobs with GPUs, or on nodes without."""
    world = World(CONF + "SchedulerParameters=gpu_keep_cpus=1\n")
    first, second = (submit(world, "-N1", "-wnode1", "-n5") for _ in range(2))
    assert running(world, first, second) == [True, False]
    gpus = submit(world, "-N1", "-wnode1", "-n2", "--gpus=4")
    # Nine are free, four of them kept: five are left.
    assert running(world, gpus) == [True]
    assert running(world, second) == [True]
    # What no idle node would hold otherwise is not bound.
    assert running(world, submit(world, "-N1", "-wnode2", "-n16")) == [True]


def test_a_closed_partition_sends_jobs_to_its_alternate() -> None:
    """DRAIN and INACTIVE do, DOWN does not (seen)."""
    world = World(
        CONF
        + "PartitionName=drain Nodes=ALL State=DRAIN Alternate=gpu\n"
        + "PartitionName=off Nodes=ALL State=INACTIVE Alternate=drain\n"
        + "PartitionName=down Nodes=ALL State=DOWN Alternate=gpu\n"
        + "PartitionName=ring Nodes=ALL State=DRAIN Alternate=ring\n"
    )
    for name, chosen in (("drain", "gpu"), ("off", "gpu"), ("down", "down")):
        assert submit(world, f"-p{name}").partition == chosen
    code, _, err = world.tried("-pring")
    assert (code, "Required partition not available" in err) == (1, True)


def test_too_many_bounds_on_one_node_are_no_configuration() -> None:
    lines = "".join(f"PartitionName=p{n} Nodes=node1 MaxCPUsPerNode=4\n" for n in range(5))
    with pytest.raises(ConfigError, match="at most 4 partitions"):
        parse_config({"slurm.conf": CONF + lines})


def test_why_tells_what_is_kept_for_idle_gpus() -> None:
    """Of sixteen CPUs eight are kept and five in use: three are left to jobs without GPUs."""
    conf = CONF + "PartitionName=two Nodes=node[1-2]\nSchedulerParameters=gpu_keep_cpus=1\n"

    def build() -> World:
        made = World(conf)
        for name in ("node1", "node2"):
            made.started("--mem=100", "-N1", f"-w{name}", "-n5", "--time=2:00:00")
        return made

    waits = Waits(build, "--mem=100", "-ptwo", "-N1", "-n5")
    assert waits.kinds == ["resources"]
    assert ["kept"] == [lack.what for lack in waits.place.lacks if not lack.never][:1]
    text = sentences(waits.why, str)
    assert any("beside what is kept for idle GPUs (gpu_keep_cpus, gpu_keep_mem)" in s for s in text)
    # Each suggestion was tried: with three tasks it starts at once.
    assert "--ntasks=3" in waits.options
