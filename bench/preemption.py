"""How long it takes to find whose work makes way: Core.cheapest on 1,000 full nodes of 8 GPUs.

python bench/preemption.py [nodes]
"""

from __future__ import annotations

import random
import sys
import time

from gsched import _core

#: requests: words, and what to call them
WANTED = (
    ({"gpus_per_node": 1}, "1 GPU"),
    ({"gpus_per_node": 8}, "1 node"),
    ({"gpus_per_node": 8, "min_nodes": 16, "max_nodes": 16}, "16 nodes"),
)


def full(nodes: int, per_node: int) -> tuple[_core.Core, list[int], list[int]]:
    """A full cluster with so many jobs on each node, in order of random costs."""
    core = _core.Core(nodes)
    links = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
    cls = core.define_class(links, [0] * 4 + [1] * 4)
    width = 8 // per_node
    for i in range(nodes):
        core.set_node(i, cls=cls, cpus=64, mem_mb=10**6, gpu_type_masks=[(0, 255)], partitions=1)
        for j in range(per_node):
            mask = ((1 << width) - 1) << (j * width)
            core.allocate(i * per_node + j, [(i, 64 // per_node, 10, mask)])
    rnd = random.Random(1)
    keys = list(range(nodes * per_node))
    rnd.shuffle(keys)
    return core, keys, sorted(rnd.randrange(10**6) for _ in keys)


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for per_node in (1, 2, 4, 8):
        core, keys, costs = full(nodes, per_node)
        for words, name in WANTED:
            req = core.request(**words)
            best = 1e9
            for _ in range(3):
                began = time.perf_counter()
                found = core.cheapest(req, keys, costs)
                best = min(best, time.perf_counter() - began)
            assert found is not None
            print(
                f"{nodes} nodes, {per_node} jobs each, {name}: {len(found[0])} make way, "
                f"{best * 1e3:.1f} ms, {core.last_hunt} looks"
            )


if __name__ == "__main__":
    main()
