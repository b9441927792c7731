"""MaxTRESPerNode was judged by the fewest nodes that a job needs: one that was to have more of
them, as others leave it little of each, waited for ever. A real Slurm (22.05.8) looks at the nodes
that it would give, at what they have on the average, and said what stands here. Memory by CPU of a
job with nodes for itself was counted for the CPUs that it asks for, not for all that it gets."""

from __future__ import annotations

from typing import Any

import pytest
from unit.test_limits import assoc, bench, qos, run, submit

from gsched.model import Verdict

CPU, GPU, MEM = "QOSMaxCpuPerNode", "QOSMaxGRESPerNode", "QOSMaxMemoryPerNode"
TWO = {"min_nodes": 2, "max_nodes": 2, "nodes_set": True}
UP_TO_TWO = {"min_nodes": 1, "max_nodes": 2, "nodes_set": True}

#: the limit, what a job asks for, what becomes of it on an empty cluster
EMPTY = [
    ({"cpu": 4}, {"ntasks": 8}, CPU),
    ({"cpu": 4}, {"ntasks": 8} | TWO, "R"),
    ({"cpu": 4}, {"ntasks": 8} | UP_TO_TWO, "R"),
    ({"cpu": 4}, {"ntasks": 9} | TWO, "R"),
    ({"cpu": 4}, {"ntasks": 10} | TWO, CPU),
    ({"cpu": 12}, {"ntasks": 20}, "R"),
    ({"cpu": 12}, {"ntasks": 24}, "R"),
    ({"cpu": 12}, {"ntasks": 28}, CPU),
    ({"gres/gpu": 2}, {"gpus_total": 4}, GPU),
    ({"gres/gpu": 2}, {"gpus_total": 4} | TWO, "R"),
    ({"gres/gpu": 2}, {"gpus_total": 4, "ntasks": 2}, GPU),
    ({"gres/gpu": 2}, {"gpus_per_node": 3}, GPU),
    ({"mem": 10240}, {"ntasks": 8}, MEM),
    ({"mem": 10240}, {"ntasks": 8} | TWO, "R"),
    ({"mem": 10240}, {"exclusive": 1, "ntasks": 1}, MEM),
    ({"mem": 10240}, {"mem_per_node": 11264}, MEM),
]


@pytest.mark.parametrize(("limit", "shape", "said"), EMPTY)
def test_an_empty_cluster(limit: dict[str, int], shape: dict[str, Any], said: str) -> None:
    made = bench()
    qos(made, "gold", max_tres_per_node=limit)
    assert run(made, submit(made, qos="gold", **shape)) == [said]


#: four CPUs are free on each node
FULL = [
    ({"cpu": 4}, {"ntasks": 8}),
    ({"cpu": 12}, {"ntasks": 16}),
    ({"cpu": 4}, {"ntasks": 8} | UP_TO_TWO),
    ({"cpu": 4}, {"ntasks": 5} | UP_TO_TWO),
    ({"cpu": 4}, {"ntasks": 5}),
    ({"mem": 10240}, {"ntasks": 8}),
]


@pytest.mark.parametrize(("limit", "shape"), FULL)
def test_little_is_left_of_each_node(limit: dict[str, int], shape: dict[str, Any]) -> None:
    made = bench()
    qos(made, "gold", max_tres_per_node=limit)
    one = {"min_nodes": 1, "max_nodes": 1, "nodes_set": True}
    hogs = [submit(made, ntasks=12, nodelist=(f"node{n}",), **one) for n in range(1, 5)]
    assert run(made, *hogs) == ["R"] * 4
    assert run(made, submit(made, qos="gold", **shape)) == ["R"]


def test_who_waits_for_it_is_told_which_limit() -> None:
    """The verdict says what squeue says, and that other nodes may do."""
    made = bench()
    qos(made, "gold", max_tres_per_node={"cpu": 4})
    one = submit(made, qos="gold", ntasks=8)
    assert run(made, one) == [CPU]
    job = made.led.jobs[one.value]  # type: ignore[union-attr]
    (lack,) = made.led.limits.lacks(job, "gpu", int(made.now))
    assert (lack.limit.word, lack.want, lack.never) == (CPU, 8, False)


def test_memory_of_whole_nodes_goes_before_the_minutes_of_a_group() -> None:
    """As seen: -N2 --exclusive of 16 CPUs with 2,000 MB each, MaxTRESPerNode=mem=10G, and minutes
    of nodes of which its account has too few left."""
    made = bench()
    qos(made, "gold", max_tres_per_node={"mem": 10240})
    assoc(made, 20, grp_tres_run_mins={"node": 59})
    one = submit(made, qos="gold", exclusive=1, time_limit=1800, **TWO)
    assert run(made, one) == [MEM]


def test_it_is_told_before_the_limits_of_the_accounts_above() -> None:
    """As seen: `-n8` under MaxTRESPerNode=mem=4G of its account and GrpTRES=cpu=4 of that above,
    where nobody can start: the memory of a node. What goes before both is told first."""
    made = bench()
    assoc(made, 20, max_tres_per_node={"mem": 4096})
    assoc(made, 10, grp_tres={"cpu": 4})
    assert run(made, submit(made, ntasks=8)) == ["AssocMaxMemPerNode"]
    # On so many nodes that each has little, only the other one is left.
    four = {"min_nodes": 4, "max_nodes": 4, "nodes_set": True}
    assert run(made, submit(made, ntasks=8, **four)) == ["AssocGrpCpuLimit"]
    assoc(made, 20, max_jobs=0)
    assert run(made, submit(made, ntasks=8)) == ["AssocMaxJobsLimit"]


def test_who_is_likely_to_break_it_waits_for_it_and_delays_nobody() -> None:
    """As seen where all nodes are full: the limit is told, not Resources. Nothing is planned for
    such a job: it would not start then, either."""
    made = bench()
    qos(made, "gold", max_tres_per_node={"cpu": 4})
    hogs = [submit(made, ntasks=16, time_limit=600) for _ in range(4)]
    assert run(made, *hogs) == ["R"] * 4
    one = submit(made, qos="gold", ntasks=8)
    two = submit(made, ntasks=16)
    assert run(made, one, two) == [CPU, "Resources"]
    first, second = (made.led.jobs[reply.value] for reply in (one, two))  # type: ignore[union-attr]
    told = {key: one for (table, key), one in made.view.items() if table == "verdict" and one}
    planned = [key for key, one in told.items() if isinstance(one, Verdict) and one.start]
    assert planned == [second.id.to_bytes(8, "big")]
    (lack,) = made.led.limits.lacks(first, "gpu", int(made.now))
    assert (lack.limit.word, lack.never) == (CPU, False)
