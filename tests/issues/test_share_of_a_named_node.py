"""The process died when the first request that a policy by usual jobs was to answer named its node:
the types of GPUs that usual jobs ask for were worked out only where nodes are ranked.
"""

from __future__ import annotations

from gsched import _core
from gsched._core import Core, Placement


def test_a_share_goes_to_the_gpu_that_another_one_is_on() -> None:
    """Half of usual jobs want half a GPU, half of them all of one. Half of GPU 1 is in use: the
    other half is for the next half, as GPU 0 is of use to all of them."""
    core = Core(1)
    cls = core.define_class([[0, 18], [18, 0]], [0, 0])
    core.set_node(0, cls=cls, cpus=16, mem_mb=500, gpu_type_masks=[(0, 0b11)], partitions=1)
    half = core.request(gpus_per_node=1, gpu_milli=500, policy=_core.FGD, nodelist=(0,))
    core.allocate(1, [(0, 1, 0, 0b10)], 100, gpu_milli=500)
    core.set_workload([(1, 1, 500, (), 1), (1, 1, 0, (), 1)])
    answer = core.place(half)
    assert isinstance(answer, Placement)
    assert answer.nodes[0][4] == 0b10
    # The same of a core that learns of another way in which GPUs are of types.
    core.set_node(0, cls=cls, cpus=16, mem_mb=500, gpu_type_masks=[(0, 1), (1, 2)], partitions=1)
    assert core.place(half) == answer
    assert core.earliest(half, 50, 30) == 100
