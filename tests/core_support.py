"""Random clusters and requests for tests of the core beside its slow twin."""

from __future__ import annotations

from typing import Any

from core_rare_support import domains, rare
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gsched import _core, _reference

FULL4 = [[0 if i == j else 12 for j in range(4)] for i in range(4)]
FULL8 = [[0 if i == j else 18 for j in range(8)] for i in range(8)]
PAIRS4 = [[0, 4, 0, 0], [4, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0]]
PCIE4 = [[0] * 4 for _ in range(4)]
#: the published links of a DGX-1 with V100: 16 pairs, 6 links a GPU
DGX1_PAIRS = "01:1 02:1 03:2 04:2 12:2 13:1 15:2 23:2 26:1 37:1 45:1 46:1 47:2 56:2 57:1 67:2"
DGX1 = [[0] * 8 for _ in range(8)]
for _pair in DGX1_PAIRS.split():
    _a, _b, _n = int(_pair[0]), int(_pair[1]), int(_pair[3])
    DGX1[_a][_b] = DGX1[_b][_a] = _n
MACHINES: list[tuple[list[list[int]], list[int]]] = [
    (FULL4, [0, 0, 0, 0]),
    (FULL8, [0] * 4 + [1] * 4),
    (PAIRS4, [0, 0, 1, 1]),
    (PCIE4, [0, 0, 1, 1]),
    (DGX1, [0] * 4 + [1] * 4),
]
SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Both = tuple[_core.Core, _reference.Core]


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """A node: mostly a plain one, as a cluster of odd ones can hold nothing."""
    machine = draw(st.integers(-1, len(MACHINES) - 1))
    size = len(MACHINES[machine][0]) if machine >= 0 else 0
    every = (1 << size) - 1
    out: dict[str, Any] = {
        "machine": machine,
        "cpus": draw(st.sampled_from([8, 16])),
        "mem_mb": 500,
        "gpu_type_masks": [(0, every)] if size else [],
        "partitions": 3,
        "features": 7,
    }
    odd = draw(st.sets(st.sampled_from(ODD_NODE), max_size=2))
    if "types" in odd and size:
        first = draw(st.sampled_from([every >> (size // 2), every >> 1]))
        out["gpu_type_masks"] = [(draw(st.integers(0, 1)), first)]
        out["gpu_type_masks"].append((1 - out["gpu_type_masks"][0][0], every & ~first))
    if "small" in odd:
        out["cpus"] = draw(st.sampled_from([1, 4, 6]))
        out["mem_mb"] = draw(st.sampled_from([0, 100, 160]))
    if "down" in odd:
        out["usable"] = False
    if "lost" in odd:
        out["gpu_ok_mask"] = every >> 1
    if "partitions" in odd:
        out["partitions"] = draw(st.integers(0, 2))
    if "features" in odd:
        out["features"] = draw(st.integers(0, 7))
    if "weight" in odd:
        out["weight"] = draw(st.sampled_from([0, 5]))
    if "threads" in odd:
        out["threads"] = 2
    if size and draw(st.integers(0, 2)) == 0:
        # Divided in whole numbers of parts, often not alike.
        kinds = st.tuples(st.sampled_from([1, 1, 1, 0, 2]), st.sampled_from([3, 3, 4, 7, 0]))
        out["gpu_parts"] = draw(
            st.one_of(st.just([(1, 3)] * size), st.lists(kinds, min_size=size, max_size=size))
        )
    if "sockets" in odd:
        out["sockets"] = 2
    if draw(st.integers(0, 2)) == 0:
        domains(draw, out, size)
    return out


ODD_NODE = ["types", "small", "down", "lost", "partitions", "features", "weight", "threads"]
ODD_NODE += ["sockets"]
ODD_REQUEST = ["cpus", "mincpus", "tpn", "tpc", "island", "type", "cpg", "exclusive", "overcommit"]
ODD_REQUEST += [
    "features",
    "alternatives",
    "nodelist",
    "exclude",
    "partition",
    "memory",
    "memory",
    "cap",
    "policy",
]


@st.composite
def requests(draw: st.DrawFn, n_nodes: int, *, joint: bool = True) -> dict[str, Any]:
    """A request of any form with a few of the rarer demands."""
    odd = draw(st.sets(st.sampled_from(ODD_REQUEST), max_size=2))
    out: dict[str, Any] = {"partition": draw(st.sampled_from([0, 0, 1]))}
    out["min_nodes"] = draw(st.sampled_from([1, 1, 1, 2, 3]))
    more = draw(st.sampled_from([None, None, 0, 0, 2]))
    out["max_nodes"] = 0 if more is None else out["min_nodes"] + more
    out["ntasks"] = draw(st.sampled_from([0, 0, 1, 2, 4, 7, 20]))
    form = draw(st.sampled_from(["none", "node", "node", "task", "total", "node+task"]))
    if "node" in form:
        out["gpus_per_node"] = draw(st.sampled_from([1, 2, 2, 3, 4, 8, 9]))
    if "task" in form:
        out["gpus_per_task"] = draw(st.integers(1, 3))
    if form == "total":
        out["gpus_total"] = draw(st.integers(out["min_nodes"], 12))
        if not joint and out["max_nodes"] != 1:
            # Tasks and GPUs in all on bounded nodes: the greedy choice is not monotone in time.
            out["ntasks"] = min(out["ntasks"], 1)
    if "partition" in odd:
        out["partition"] = -1
    if "cap" in odd:
        out["cap_nodes"] = draw(st.integers(1, 4))
    if "cpus" in odd:
        out["cpus_per_task"] = draw(st.integers(2, 5))
    if "mincpus" in odd:
        out["min_cpus_node"] = draw(st.integers(2, 8))
    if "tpn" in odd:
        out["ntasks_per_node"] = draw(st.integers(1, 3))
    if "tpc" in odd:
        out["threads_per_core"] = 1
    if "memory" in odd:
        memory = draw(st.sampled_from(["node", "all", "cpu", "gpu"]))
        if memory == "node":
            out["mem_per_node_mb"] = draw(st.sampled_from([1, 60, 100, 300]))
        elif memory == "all":
            out["mem_per_node_mb"] = 0
        elif memory == "cpu":
            out["mem_per_cpu_mb"] = draw(st.sampled_from([10, 30, 100]))
        elif form != "none":
            out["mem_per_gpu_mb"] = draw(st.sampled_from([20, 70, 200]))
    if form != "none":
        if "cpg" in odd:
            out["cpus_per_gpu"] = draw(st.integers(1, 3))
        if "type" in odd:
            out["gpu_type"] = draw(st.integers(0, 1))
        if "island" in odd:
            out["one_island"] = True
    if "policy" in odd:
        out["policy"] = draw(st.integers(1, 6))
    if form == "node" and out["min_nodes"] < 3 and draw(st.integers(0, 2)) == 0:
        # A share of one GPU.
        out["gpus_per_node"] = 1
        if draw(st.booleans()):
            out["gpu_milli"] = draw(st.sampled_from([100, 300, 450, 500, 700]))
        else:
            out["gpu_milli"] = draw(st.sampled_from([1, 1, 2, 3, 4]))
            out["gpu_kind"] = draw(st.sampled_from([1, 1, 2]))
            out["one_shared"] = out["gpu_kind"] == 2
        out["policy"] = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6]))
        out.pop("one_island", None)
        odd -= {"exclusive"}
    if draw(st.integers(0, 1)) == 0:
        rare(draw, out)
    if "exclusive" in odd:
        out["exclusive"] = True
    if "overcommit" in odd:
        out["overcommit"] = True
    # Of variants these say which nodes may be in any answer: all may.
    if "features" in odd and "variants" not in out:
        out["features_all"] = draw(st.integers(0, 3))
    if "alternatives" in odd and "variants" not in out:
        out["features_any"] = (2, 4)
    number = st.integers(0, n_nodes - 1)
    if "nodelist" in odd:
        out["nodelist"] = tuple(draw(st.lists(number, min_size=1, max_size=2)))
    if "exclude" in odd:
        barred = set(draw(st.lists(number, max_size=2))) - set(out.get("nodelist", ()))
        out["exclude"] = tuple(barred)
    if out["max_nodes"]:
        out["max_nodes"] = max(out["max_nodes"], len(set(out.get("nodelist", ()))))
    return out


def describe(both: Both, number: int, node: dict[str, Any], classes: list[int]) -> None:
    content = {k: v for k, v in node.items() if k != "machine"}
    content["cls"] = classes[node["machine"]] if node["machine"] >= 0 else 0
    for core in both:
        core.set_node(number, **content)


def build(cluster: list[dict[str, Any]]) -> tuple[Both, list[int]]:
    both = (_core.Core(len(cluster)), _reference.Core(len(cluster)))
    classes = []
    for links, numa in MACHINES:
        numbers = [core.define_class(links, numa) for core in both]
        classes.append(numbers[0])
        # The twin keeps its classes by the core's numbers.
        assert numbers[0] == numbers[1]
    for number, node in enumerate(cluster):
        describe(both, number, node, classes)
    return both, classes
