"""Where a request may start when a reservation is left out of account: the twin did not try the
moments at which that one begins and ends, and named a later one than the core.

Which nodes a request in all gets is a greedy choice, so that it may fit later on less: here only
once the node with most GPUs is about to be taken.
"""

from __future__ import annotations

from gsched import _core, _reference

NOW = 100
#: cpus, gpus
NODES = [(2, 4), (8, 2), (8, 2), (1, 0)]
FULL = [[0 if i == j else 12 for j in range(4)] for i in range(4)]


def cluster(make: type) -> tuple[object, int]:
    core = make(len(NODES))
    cls = core.define_class(FULL, [0, 0, 0, 0])
    for number, (cpus, gpus) in enumerate(NODES):
        core.set_node(
            number,
            cls=cls if gpus else 0,
            cpus=cpus,
            mem_mb=500,
            gpu_type_masks=[(0, (1 << gpus) - 1)] if gpus else [],
            partitions=1,
            gpu_ok_mask=(1 << gpus) - 1,
        )
    # Two jobs run: on node 1 until 153, on node 3 until 168.
    core.allocate(1, [(1, 8, 0, 0)], end=153)
    core.allocate(2, [(3, 1, 0, 0)], end=168)
    # Two wait for them: one that is planned on node 1 from 153 to 163, one on 0 and 3 from 168.
    core.queue_add(
        30, core.request(nodelist=(1,), ntasks=8, max_nodes=1), priority=1, order=0, limit_s=10
    )
    both = core.request(nodelist=(0, 3), min_nodes=2, max_nodes=2, exclusive=True)
    core.queue_add(31, both, priority=1, order=1, limit_s=60)
    core.schedule(NOW, 0, 0, plan_jobs=100, resolution=1, window=1000, keep=0)
    return core, core.request(min_nodes=1, max_nodes=2, gpus_total=4, ntasks=12)


def test_the_core_and_its_twin_name_the_same_moment() -> None:
    core, request = cluster(_core.Core)
    twin, number = cluster(_reference.Core)
    assert [(r.key, r.at) for r in core.reservations()] == [(30, 153), (31, 168)]
    # Nodes 1 and 2 from the end of what is left out on: at 153 node 0 is still free throughout.
    found = core.earliest(request, NOW, 10, without=(30,))
    assert found == 163
    assert twin.earliest(number, NOW, 10, without=(30,)) == found
