"""Cores by socket and near GPUs, from the request to CPU ids: the answers of Slurm 22.05 on a node
of two sockets with eight cores and four GPUs each, but where it says otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sbatch_support import FakeCluster, sbatch

from gsched.cluster import Cluster
from gsched.cluster.domains import Domains, domains_of
from gsched.config import Config, parse_config
from gsched.cpuset import format_cpu_list, specialized
from gsched.model import Gpu, Job, Node, NodeAlloc, NodeFlag

CONF = """ClusterName=c
SlurmctldHost=localhost
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=n[1-2] CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8
NodeName=n3 CPUs=16 Sockets=4 CoresPerSocket=4 RealMemory=64000
PartitionName=gpu Nodes=n[1-3] Default=YES DefMemPerCPU=100
"""
CONFIG = parse_config({"slurm.conf": CONF})
#: every GPU joined to every other
GPUS = [
    Gpu(f"u{g}", "h100", g, g // 4, "0-7" if g < 4 else "8-15", [18 * (g != o) for o in range(8)])
    for g in range(8)
]


class World:
    """A cluster, and jobs that start in it."""

    def __init__(self, config: Config = CONFIG, gpus: list[Gpu] = GPUS) -> None:
        self.config = config
        self.cluster = Cluster(config)
        self.jobs = 0
        for name, conf in config.nodes.items():
            own = gpus if conf.gpu_types else []
            self.cluster.node_changed(Node(name, flags=NodeFlag(0), gpus=own))
            self.cluster.set_usable(name, True)

    def start(self, *argv: str) -> list[tuple[str, str, int]]:
        """(node, CPU ids, GPU bitmap) of each node that a job gets now; [] where it waits or is
        refused."""
        ran = sbatch(*argv, "--wrap", "true", cluster=FakeCluster(configured=self.config))
        if not ran.cluster.submitted:
            return []
        self.jobs += 1
        job = Job(self.jobs, 1000, 1000, "alice", "users", ran.sent.spec, partition="gpu")
        if self.cluster.never(job.spec.shape, ["gpu"]) is not None:
            return []
        self.cluster.queue_job(job)
        plan = self.cluster.schedule(1000 + self.jobs, 10)
        if not plan.starts:
            self.cluster.unqueue(job.id)
            return []
        self.cluster.unqueue(job.id)
        self.cluster.bind(job.id, plan.starts[0].key)
        alloc: list[NodeAlloc] = plan.starts[0].alloc
        self.cluster.assign_cpus(job, alloc)
        self.cluster.check()
        self.last = job.id, alloc
        return [(part.node, format_cpu_list(part.cpu_ids), part.gpus) for part in alloc]

    def end(self) -> None:
        job_id, alloc = self.last
        for part in alloc:
            self.cluster.release_node(job_id, part)
        self.cluster.release(job_id)
        self.cluster.check()


@pytest.mark.parametrize(
    ("argv", "shares"),
    [
        # As many cores as GPUs have sockets, and these near them.
        ("-w n1 --gres=gpu:2 --gres-flags=enforce-binding", [("n1", "0", 0b11)]),
        ("-w n1 --gres=gpu:5 --gres-flags=enforce-binding", [("n1", "0,8", 0b11111)]),
        ("-w n1 --gres=gpu:5 --gres-flags=enforce-binding -n 2", [("n1", "0,8", 0b11111)]),
        ("-w n1 --gpus-per-socket=2 --sockets-per-node=2", [("n1", "0,8", 0b110011)]),
        ("-w n1 --gpus-per-socket=2 --sockets-per-node=2 -n 4", [("n1", "0-1,8-9", 0b110011)]),
        ("-w n1 --gpus-per-socket=1 --sockets-per-node=1 -n 10", [("n1", "0-4,8-12", 0b10001)]),
        ("-w n1 --gpus-per-socket=5 --sockets-per-node=1", []),
        # Tasks by socket: the first sockets are filled.
        ("-w n1 -n 2 --ntasks-per-socket=2", [("n1", "0-1", 0)]),
        ("-w n1 -n 3 --ntasks-per-socket=2", [("n1", "0-1,8", 0)]),
        ("-w n1 -n 4 --ntasks-per-socket=2", [("n1", "0-1,8-9", 0)]),
        ("-w n1,n2 -n 5 --ntasks-per-socket=2", [("n1", "0-1,8-9", 0), ("n2", "0", 0)]),
        ("-w n3 -n 6 --ntasks-per-socket=2", [("n3", "0-1,4-5,8-9", 0)]),
        ("-w n3 -n 2 -c 3 --ntasks-per-socket=1", [("n3", "0-2,4-6", 0)]),
        ("-w n3 -N1 -n 9 --ntasks-per-socket=2", []),
        # Without a wish: near the GPUs first, one socket after the other in turn.
        ("-w n1 --gres=gpu:1 -c 3", [("n1", "0-2", 0b1)]),
        ("-w n1 --gres=gpu:1 -c 10", [("n1", "0-9", 0b1)]),
        ("-w n1 -n 5", [("n1", "0-2,8-9", 0)]),
        ("-w n1 --gres=gpu:1 -c 4 --gres-flags=disable-binding", [("n1", "0-1,8-9", 0b1)]),
    ],
)
def test_cores_and_gpus(argv: str, shares: list[tuple[str, str, int]]) -> None:
    assert World().start(*argv.split()) == shares


def test_gpus_with_free_cores_near_them_are_preferred() -> None:
    world = World()
    world.start("-w", "n1", "--gres=gpu:1", "-c", "8")
    # No core of the first socket is free.
    assert world.start("-w", "n1", "--gres=gpu:2", "-c", "2") == [("n1", "8-9", 0b110000)]


def test_enforced_binding_waits_for_cores_near_free_gpus() -> None:
    world = World()
    world.start("-w", "n1", "--gres=gpu:4", "-c", "4")
    # Two cores of each socket: eight are left, six of them near the free GPUs.
    assert world.start("-w", "n1", "-n", "4") == [("n1", "4-5,8-9", 0)]
    argv = ("-w", "n1", "--gres=gpu:1", "-c", "8")
    assert world.start(*argv, "--gres-flags=enforce-binding") == []
    assert world.start(*argv) == [("n1", "6-7,10-15", 0b10000)]


def test_two_gpus_of_two_sockets_get_a_core_of_each() -> None:
    # With one free GPU on each socket, as Slurm answers.
    world = World()
    world.start("-w", "n1", "--gres=gpu:3", "--gres-flags=enforce-binding")
    world.start("-w", "n1", "--gres=gpu:3", "--gres-flags=enforce-binding")
    found = world.start("-w", "n1", "--gres=gpu:2", "--gres-flags=enforce-binding", "-n", "1")
    assert found == [("n1", "1,9", 0b10001000)]


def test_ends_give_cores_back_where_they_were() -> None:
    world = World()
    for _ in range(3):
        assert world.start("-w", "n1", "--gres=gpu:4", "-c", "8") == [("n1", "0-7", 0b1111)]
        world.end()


def test_one_island_is_a_demand() -> None:
    pairs = [[4 * (g != o and g // 2 == o // 2) for o in range(8)] for g in range(8)]
    gpus = [Gpu(f"u{g}", "h100", g, 0, "", pairs[g]) for g in range(8)]
    flag = "--gres-flags=one-island"
    assert World(gpus=gpus).start("-w", "n1", "--gres=gpu:3", flag) == []
    assert World(gpus=gpus).start("-w", "n1", "--gres=gpu:3")[0][2].bit_count() == 3
    assert World(gpus=gpus).start("-w", "n1", "--gres=gpu:2", flag)[0][2] == 0b11


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        # The highest core of the last socket, then of the one before.
        ("CPUs=16 Sockets=2 CoresPerSocket=8 CoreSpecCount=1", "15"),
        ("CPUs=16 Sockets=2 CoresPerSocket=8 CoreSpecCount=2", "7,15"),
        ("CPUs=16 Sockets=2 CoresPerSocket=8 CoreSpecCount=3", "7,14-15"),
        ("CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CoreSpecCount=1", "14-15"),
        # With the other CPUs of the same cores.
        ("CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CpuSpecList=0,9", "0-1,8-9"),
        ("CPUs=16 Sockets=2 CoresPerSocket=8", ""),
    ],
)
def test_cores_kept_for_the_system(text: str, cpus: str) -> None:
    conf = "ClusterName=c\nSlurmctldHost=localhost\nPartitionName=p Nodes=n1\n"
    node = parse_config({"slurm.conf": f"{conf}NodeName=n1 RealMemory=1000 {text}\n"}).nodes["n1"]
    assert format_cpu_list(specialized(node)) == cpus


def test_jobs_get_neither_cores_nor_memory_of_the_system() -> None:
    kept = CONF.replace("Gres=gpu:h100:8", "Gres=gpu:h100:8 CoreSpecCount=2 MemSpecLimit=4000")
    world = World(parse_config({"slurm.conf": kept}))
    assert world.start("-w", "n1", "--exclusive", "--mem=0") == [("n1", "0-6,8-14", 0xFF)]
    assert world.last[1][0].mem_mb == 60000
    world.end()
    assert world.start("-w", "n1", "-N1", "-n", "15") == []
    assert world.start("-w", "n1", "--mem=61000") == []
    assert world.start("-w", "n1", "-n", "14") == [("n1", "0-6,8-14", 0)]


def test_domains_of_a_node() -> None:
    node = CONFIG.nodes["n1"]
    found = domains_of(node, ["0-3", "0-3", "4-7", "8-15", ""])
    assert found.sizes == ((0, 4), (0, 4), (1, 8))
    assert found.near == (0b1, 0b1, 0b10, 0b100, 0)
    assert found.used(0xFFFC, 1) == (2, 0, 0)
    # Nothing is known of its GPUs: its sockets.
    assert domains_of(node, ["", ""]).sizes == ((0, 8), (1, 8))
    assert domains_of(node, ["rubbish"]).sizes == ((0, 8), (1, 8))
    one = (
        "ClusterName=c\nSlurmctldHost=h\nNodeName=a CPUs=4 RealMemory=9\nPartitionName=p Nodes=a\n"
    )
    flat = parse_config({"slurm.conf": one}).nodes["a"]
    assert len(domains_of(flat, []).sizes) in (0, 4)


@given(st.integers(0, (1 << 32) - 1), st.integers(1, 4), st.lists(st.integers(0, 8), min_size=2))
def test_the_lowest_free_cores_are_picked(free: int, threads: int, counts: list[int]) -> None:
    halves = (tuple(range(4)), tuple(range(4, 8)))
    whole = (1 << threads) - 1
    masks = tuple(sum(whole << core * threads for core in cores) for cores in halves)
    one = Domains(cores=halves, masks=masks)
    wanted = 0
    for cores, count in zip(halves, counts, strict=False):
        there = [whole << c * threads & free for c in cores if whole << c * threads & free]
        wanted |= sum(there[:count])
    assert one.pick(free, counts[:2], threads) == wanted
