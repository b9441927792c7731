"""Where requests with rarer demands go: the answers of Slurm 22.05 on the same nodes, but where its
manual pages say otherwise."""

from __future__ import annotations

import pytest
from sbatch_support import FakeCluster, sbatch

from gsched import hostlist
from gsched.cluster import Cluster
from gsched.config import Config, parse_config
from gsched.model import Node, NodeFlag

CONF = """ClusterName=c
SlurmctldHost=localhost
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=n[1-2] CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000 \
 Gres=gpu:h100:4,gpu:a100:4 Feature=mixed,rack1
NodeName=n[3-4] CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8 Feature=h,rack2
NodeName=n5 CPUs=16 Sockets=4 CoresPerSocket=4 RealMemory=64000 Feature=plain,rack1
NodeName=n6 CPUs=16 Sockets=4 CoresPerSocket=4 RealMemory=64000 Feature=plain,rack2
PartitionName=gpu Nodes=n[1-6] Default=YES DefMemPerCPU=2000
"""
CONFIG = parse_config({"slurm.conf": CONF})


def placed(*argv: str) -> tuple[str, list[int], list[int], list[int]]:
    """(nodes, CPUs, tasks, GPUs of each) of a job on the empty cluster; ("", ...) nowhere."""
    ran = sbatch(*argv, "--wrap", "true", cluster=FakeCluster(configured=CONFIG))
    if not ran.cluster.submitted:
        return "", [], [], []
    cluster = up(CONFIG)
    try:
        found = cluster.forecast([(ran.sent.spec.shape, [("gpu", "")], 0)], 1000, {})
    except ValueError:
        found = None
    if found is None:
        return "", [], [], []
    shares = found[1][0][1]
    return (
        hostlist.compress([share.node for share in shares]),
        [share.cpus for share in shares],
        [share.tasks for share in shares],
        [share.gpus.bit_count() for share in shares],
    )


def up(config: Config) -> Cluster:
    cluster = Cluster(config)
    for name in config.nodes:
        cluster.node_changed(Node(name, flags=NodeFlag(0)))
        cluster.set_usable(name, True)
    return cluster


@pytest.mark.parametrize(
    ("argv", "cpus"),
    [
        # Each of three tasks has a core of two threads for itself.
        ("-w n1 -n 3 --ntasks-per-core=1", [6]),
        ("-w n1 -n 3 --ntasks-per-core=2", [4]),
        ("-w n1 -n 3", [4]),
        ("-w n1 -n 3 -c 2 --ntasks-per-core=1", [6]),
        ("-w n1 -n 2 -c 3 --ntasks-per-core=1", [8]),
        ("-w n1 -n 8 --ntasks-per-core=1", [16]),
        ("-w n1 -n 3 --hint=nomultithread", [6]),
        ("-w n1 -n 3 --threads-per-core=1", [6]),
        ("-w n1 -n 3 --hint=compute_bound", [6]),
        ("-w n1 -n 3 --hint=memory_bound", [6]),
        ("-w n1 --threads-per-core=2", [2]),
    ],
)
def test_cpus_by_core(argv: str, cpus: list[int]) -> None:
    assert placed(*argv.split())[1] == cpus


def test_a_ninth_task_with_a_core_for_itself_goes_to_another_node() -> None:
    nodes, cpus, tasks, _ = placed("-w", "n1", "-n", "9", "--ntasks-per-core=1")
    assert sum(tasks) == 9 and len(cpus) == 2 and "n1" in nodes.replace("[", "")


@pytest.mark.parametrize(
    ("argv", "nodes"),
    [
        ("--sockets-per-node=4", "n5"),
        ("--sockets-per-node=2 --cores-per-socket=8", "n3"),
        ("--threads-per-core=2", "n1"),
        ("-B 4:4:1", "n5"),
        ("-B 2:4:2", "n1"),
        ("--cores-per-socket=9", ""),
    ],
)
def test_nodes_with_so_many_sockets_cores_and_threads(argv: str, nodes: str) -> None:
    assert placed(*argv.split())[0] == nodes


@pytest.mark.parametrize(
    ("constraint", "more", "nodes"),
    [
        ("[rack1*2&rack2*2]", "-N4", 4),
        ("[rack1*2&rack2*2]", "", 4),
        ("[rack1*1&rack2*1]", "", 2),
        ("[rack1*1&rack2*2]", "-N4", 4),
        # More nodes by feature than nodes.
        ("[rack1*1&rack2*2]", "-N2", 0),
        ("rack1*2", "-N4", 4),
        ("rack1*2", "", 2),
        ("[(mixed&rack1)*1&h*1]", "-N2", 2),
        ("[rack1|rack2]", "-N3", 3),
        ("[mixed|h]", "-N3", 0),
        ("[mixed|plain]", "-N2", 2),
        ("mixed&rack2", "", 0),
        ("mixed*9", "", 0),
        ("(mixed|h)&rack2", "", 1),
    ],
)
def test_features_by_number(constraint: str, more: str, nodes: int) -> None:
    found = placed("-C", constraint, *more.split())[0]
    names = [name for name in CONFIG.nodes if name in expand(found)]
    assert len(names) == nodes
    features = [set(CONFIG.nodes[name].features) for name in names]
    if constraint == "[rack1*2&rack2*2]":
        assert sum("rack1" in f for f in features) == 2
    if nodes and constraint.startswith("[rack1|"):
        assert all("rack1" in f for f in features) or all("rack2" in f for f in features)


def expand(text: str) -> list[str]:
    return hostlist.expand(text) if text else []


@pytest.mark.parametrize(
    ("argv", "nodes"),
    [
        ("--prefer=h", "n3"),
        # It takes the place of the constraint where it can.
        ("-C mixed --prefer=h", "n3"),
        ("-C rack2 --prefer=plain", "n5"),
        # Desired, not required: there are two of them.
        ("--prefer=h -N6", "n[1-6]"),
        ("-C plain --prefer=h -N2", "n[3-4]"),
        ("-C mixed --prefer=h -n 20 -N1 -c 1", ""),
    ],
)
def test_preferred_features(argv: str, nodes: str) -> None:
    assert placed(*argv.split())[0] == nodes


@pytest.mark.parametrize(
    ("argv", "gpus"),
    [
        ("-w n1 --gres=gpu:h100:1,gpu:a100:2", [3]),
        ("--gpus=h100:2,a100:4", [6]),
        # h100 of two nodes at least.
        ("--gpus=h100:5,a100:4", [8, 1]),
        ("--gpus-per-node=h100:1,a100:1 -N2", [2, 2]),
        ("--gpus-per-task=h100:1,a100:1 -n 3", [6]),
        ("--gpus=h100:25", []),
        ("--gpus=a100:9,h100:1", []),
    ],
)
def test_gpus_of_several_types(argv: str, gpus: list[int]) -> None:
    assert sorted(placed(*argv.split())[3], reverse=True) == gpus


@pytest.mark.parametrize(
    ("argv", "tasks", "gpus"),
    [
        ("-n 4 --ntasks-per-gpu=2", [4], [2]),
        ("--gpus=3 --ntasks-per-gpu=2", [6], [3]),
        ("--gres=gpu:2 --ntasks-per-gpu=2", [4], [2]),
        ("--gres=gpu:2 --ntasks-per-gpu=2 -N2", [4, 4], [2, 2]),
        # Ten GPUs are on no node: tasks go where their GPUs are.
        ("-w n3,n4 --gpus=10 --ntasks-per-gpu=1", [8, 2], [8, 2]),
    ],
)
def test_tasks_by_gpu(argv: str, tasks: list[int], gpus: list[int]) -> None:
    found = placed(*argv.split())
    assert (sorted(found[2], reverse=True), sorted(found[3], reverse=True)) == (tasks, gpus)
