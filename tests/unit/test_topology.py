"""From topology.conf to placements, scontrol and the job's environment.

What Slurm says was observed on a Slurm with these very files.
"""

from __future__ import annotations

import io

import pytest
from unit.ledger_support import CONF, Bench
from unit.why_support import CONF as PEER
from unit.why_support import Waits, World

from gsched import topology
from gsched.config import Config, ConfigError, parse_config
from gsched.config.show import config_rows
from gsched.environment import job_variables
from gsched.model import Shape
from gsched.wire.messages import UpdateJob
from gsched_cli import scontrol
from gsched_cli.common import Streams
from gsched_cli.why_words import sentences

TREE = """
SwitchName=leaf1 Nodes=node1,cloud[1-4]
SwitchName=leaf2 Nodes=node2,cloud[5-8]
SwitchName=leaf3 Nodes=cloud[9-11] LinkSpeed=100
SwitchName=top Switches=leaf[1-2]
SwitchName=alone Switches=leaf3
"""
NODES = """NodeName=node[1-2] CPUs=4
NodeName=cloud[1-13] CPUs=4
PartitionName=p Nodes=ALL Default=YES
"""
HEAD = "ClusterName=c\nSlurmctldHost=ctl\n"


def parse(text: str, plugin: str = "topology/tree", nodes: str = NODES) -> Config:
    conf = f"{HEAD}TopologyPlugin={plugin}\n{nodes}"
    return parse_config({"slurm.conf": conf, "topology.conf": text})


# ---- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "Switch configuration is not a tree"),
        ("SwitchName=a Switches=a", "Switch configuration is not a tree"),
        (
            "SwitchName=a Nodes=node1 Switches=b\nSwitchName=b Nodes=node2",
            "switch a has both child switches and nodes",
        ),
        ("SwitchName=a", "switch a has neither child switches nor nodes"),
        ("SwitchName=a Switches=nosuch", "Switch configuration a has invalid child (nosuch)"),
        (
            "SwitchName=a Nodes=node1\nSwitchName=a Nodes=node2",
            "Switch (a) has already been defined",
        ),
        ("SwitchName=a Nodes=node1 Foo=1", '"Foo" is not a key of topology.conf'),
        ("Bar=2", '"Bar" is not a key of topology.conf'),
    ],
)
def test_what_is_no_tree(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value).startswith("topology.conf:")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (TREE, "switches lack access to 2 nodes: cloud[12-13]"),
        (
            "SwitchName=a Nodes=nosuch,node1\nSwitchName=b Nodes=node2",
            "Invalid hostnames in switch configuration: nosuch",
        ),
        (
            "SwitchName=a Nodes=node1\nSwitchName=b Nodes=node1,node2",
            "Multiple leaf switches contain nodes: node1",
        ),
        ("", "No switches configured"),
    ],
)
def test_what_slurm_warns_of(text: str, warning: str) -> None:
    assert warning in parse(text).warnings


def test_the_file_is_for_the_plugin_in_force() -> None:
    both = "BlockName=b1 Nodes=node[1-2]\nSwitchName=s1 Nodes=node1\nBlockSizes=2\n"
    assert [s.name for s in parse(both).switches] == ["s1"]
    blocks = parse(both, "topology/block")
    assert ([s.name for s in blocks.switches], blocks.block_sizes) == (["b1"], (2,))
    assert parse(both, "topology/flat").switches == ()
    assert parse("What=ever", "topology/flat").switches == ()


@pytest.mark.parametrize("sizes", ["0", "2,6", "x", "4,5"])
def test_sizes_of_blocks_are_powers_of_two_times_the_first(sizes: str) -> None:
    with pytest.raises(ConfigError):
        parse(f"BlockName=b1 Nodes=node[1-2]\nBlockSizes={sizes}", "topology/block")


def test_scontrol_show_config_knows_the_parameter() -> None:
    conf = f"{HEAD}TopologyPlugin=topology/tree\nTopologyParam=TopoOptional,RouteTree\n{NODES}"
    rows = dict(config_rows(parse_config({"slurm.conf": conf}), {}))
    assert rows["TopologyParam"] == "TopoOptional,RouteTree"


# ---- units ---------------------------------------------------------------------------------------


def test_units_of_trees() -> None:
    net = topology.network(parse(TREE))
    assert net.leaves[:2] == [0, 1]
    assert net.leaves[2:] == [0] * 4 + [1] * 4 + [2] * 3 + [-1] * 2
    assert net.parents == [3, 3, 4, -1, -1]


def test_units_of_blocks() -> None:
    names = "\n".join(f"BlockName=b{i} Nodes=cloud[{2 * i - 1}-{2 * i}]" for i in range(1, 6))
    net = topology.network(parse(f"{names}\nBlockSizes=2,4,8", "topology/block"))
    # Five blocks, three pairs, two fours, all.
    assert net.parents == [5, 5, 6, 6, 7, 8, 8, 9, 10, 10, -1]
    assert net.sizes == [2, 4, 8, 0]


def test_an_optional_topology_may_be_left() -> None:
    conf = f"{HEAD}TopologyPlugin=topology/tree\nTopologyParam=TopoOptional\n{NODES}"
    net = topology.network(parse_config({"slurm.conf": conf, "topology.conf": TREE}))
    assert net.optional and net.parents == [3, 3, 4, 5, 5, -1]


# ---- what is shown -------------------------------------------------------------------------------

SHOWN = {
    "leaf1": "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node1,cloud[1-4]",
    "leaf2": "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node2,cloud[5-8]",
    "leaf3": "SwitchName=leaf3 Level=0 LinkSpeed=100 Nodes=cloud[9-11]",
    "top": "SwitchName=top Level=1 LinkSpeed=1 Nodes=cloud[1-8],node[1-2] Switches=leaf[1-2]",
    "alone": "SwitchName=alone Level=1 LinkSpeed=1 Nodes=cloud[9-11] Switches=leaf3",
}


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("", "leaf1 leaf2 leaf3 top alone"),
        ("leaf1", "leaf1"),
        ("top", "top"),
        ("node1", "leaf1 top"),
        ("cloud[1-2]", "leaf1 top"),
        ("node1,node2", "top"),
    ],
)
def test_scontrol_show_topology(what: str, names: str) -> None:
    code, out, err = run(parse(TREE), what)
    assert (code, err) == (0, "")
    assert out.splitlines() == [SHOWN[name] for name in names.split()]


@pytest.mark.parametrize("what", ["nosuch", "cloud12"])
def test_scontrol_show_topology_of_nothing(what: str) -> None:
    sentence = f"scontrol: error: Topology information contains no switch or node named {what}\n"
    assert run(parse(TREE), what) == (0, "", sentence)


def test_scontrol_shows_nothing_without_a_topology() -> None:
    assert run(parse(TREE, "topology/flat"), "") == (0, "", "")


def run(config: Config, what: str) -> tuple[int, str, str]:
    class Reader:
        def config(self) -> Config:
            return config

    streams = Streams(io.StringIO(), io.StringIO(), io.StringIO())
    argv = ["show", "topology", *([what] if what else [])]
    code = scontrol.run(argv, {}, "/", streams, Reader())  # type: ignore[arg-type]
    return code, streams.stdout.getvalue(), streams.stderr.getvalue()  # type: ignore[attr-defined]


def test_address_of_a_node() -> None:
    config = parse(TREE)
    assert topology.address(config, "node1") == ("top.leaf1.node1", "switch.switch.node")
    assert topology.address(config, "cloud12") == ("cloud12", "node")
    blocks = parse("BlockName=b1 Nodes=node[1-2]", "topology/block")
    assert topology.address(blocks, "node2") == ("b1.node2", "block.node")


# ---- jobs ----------------------------------------------------------------------------------------

LEAVES = "SwitchName=a Nodes=node[1-2]\nSwitchName=b Nodes=node[3-4]\nSwitchName=t Switches=a,b\n"


def bench(plugin: str = "topology/tree", text: str = LEAVES, more: str = "") -> Bench:
    return Bench(f"{CONF}TopologyPlugin={plugin}\n{more}", topology=text)


def where(job: object) -> list[str]:
    return [part.node for part in job.alloc]  # type: ignore[attr-defined]


WHOLE = {"gpus_per_node": 8, "min_nodes": 1, "max_nodes": 1}
TWO = {"gpus_per_node": 8, "min_nodes": 2, "max_nodes": 2}


def one_of_each_leaf(made: Bench) -> None:
    for name in ("node1", "node3"):
        made.job(shape=Shape(**WHOLE, nodelist=(name,)), time_limit=7200)
    made.schedule()


def test_a_gang_lies_below_one_switch() -> None:
    made = bench()
    made.job(shape=Shape(**WHOLE), time_limit=600)
    made.schedule()
    job = made.job(shape=Shape(**TWO))
    made.schedule()
    assert where(job) == ["node3", "node4"]
    assert job_variables(job, 0, made.config, 0)["SLURM_TOPOLOGY_ADDR"] == "t.b.node3"


def test_a_job_waits_for_its_switches_and_no_longer() -> None:
    made = bench()
    one_of_each_leaf(made)
    job = made.job(shape=Shape(**TWO), switches=1, switch_wait=40, time_limit=600)
    out = made.schedule()
    assert where(job) == []
    assert out.wake_at == made.now + 40
    made.now += 39
    made.schedule()
    assert where(job) == []
    made.now += 1
    assert made.tick().schedule
    made.schedule()
    assert where(job) == ["node2", "node4"]


def test_the_wait_has_a_limit() -> None:
    made = bench()
    assert made.job(shape=Shape(**TWO), switches=1, hold=True).spec.switch_wait == 300
    asked = made.job(shape=Shape(**TWO), switches=1, switch_wait=3600, hold=True)
    assert asked.spec.switch_wait == 300
    made = bench(more="SchedulerParameters=max_switch_wait=7200\n")
    job = made.job(shape=Shape(**TWO), switches=1, switch_wait=3600, hold=True)
    assert job.spec.switch_wait == 3600
    made.write(UpdateJob([str(job.id)], "update", {"switches": "2@3:00"}), uid=0)
    assert (job.spec.switches, job.spec.switch_wait) == (2, 180)


def test_switches_changed_while_it_waits() -> None:
    made = bench()
    one_of_each_leaf(made)
    job = made.job(shape=Shape(**TWO), switches=1, time_limit=600)
    made.schedule()
    assert where(job) == []
    made.write(UpdateJob([str(job.id)], "update", {"switches": "0"}), uid=0)
    made.schedule()
    assert where(job) == ["node2", "node4"]


def test_segments_lie_within_a_block() -> None:
    blocks = "BlockName=a Nodes=node[1-2]\nBlockName=b Nodes=node[3-4]\nBlockSizes=2\n"
    made = bench("topology/block", blocks)
    one_of_each_leaf(made)
    two = made.job(shape=Shape(**TWO), time_limit=60)
    made.schedule()
    assert where(two) == []
    loose = made.job(shape=Shape(**TWO, segment=1), time_limit=60)
    made.schedule()
    assert where(loose) == ["node2", "node4"]
    refused = made.submit(shape=Shape(**TWO, segment=3))
    assert "Requested node configuration is not available" in str(refused)


def test_contiguous_nodes() -> None:
    made = Bench()
    made.job(shape=Shape(**WHOLE, nodelist=("node2",)), time_limit=600)
    made.schedule()
    job = made.job(shape=Shape(**TWO, contiguous=True))
    made.schedule()
    assert where(job) == ["node3", "node4"]


def test_spread_jobs() -> None:
    made = Bench()
    job = made.job(shape=Shape(ntasks=6, spread=True))
    made.schedule()
    assert [part.tasks for part in job.alloc] == [2, 2, 1, 1]


# ---- why they wait -------------------------------------------------------------------------------


def world(plugin: str = "topology/tree", text: str = LEAVES) -> World:
    """Nodes 1 and 3 are full for two hours."""
    made = World(f"{PEER}TopologyPlugin={plugin}\n", topology=text)
    for name in ("node1", "node3"):
        made.started("-w", name, "--gres=gpu:8", "--time=2:00:00", "--mem=1000")
    return made


def test_why_it_waits_for_a_switch() -> None:
    w = Waits(world, "-N2", "--gres=gpu:8", "--switches=1@4", "--time=10", "--mem=1000")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert (w.place.needed, w.place.suited) == (2, 2)
    assert w.counts == {("gpus", False): (2, 2), ("switch", False): (2, 0)}
    assert "without --switches" in w.options
    said = sentences(w.why, str)
    assert said == [
        "Partition gpu has no room for it: 2 of 4 nodes have room, but not below as few switches "
        "as it wants."
    ]


def test_more_nodes_than_a_switch_has_are_not_asked_for_for_ever() -> None:
    w = Waits(world, "-N3", "--switches=1@4", "--time=10", "--mem=1000")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert not w.why.never
    assert w.counts == {("switch", True): (4, 0)}


def test_why_it_waits_for_nodes_side_by_side() -> None:
    w = Waits(
        lambda: world("topology/flat"),
        *("-N2", "--gres=gpu:8", "--contiguous", "--time=10", "--mem=1000"),
    )
    assert w.counts == {("gpus", False): (2, 2), ("contiguous", False): (2, 0)}
    assert "without --contiguous" in w.options


def test_why_it_waits_for_a_block() -> None:
    blocks = "BlockName=a Nodes=node[1-2]\nBlockName=b Nodes=node[3-4]\nBlockSizes=2\n"
    w = Waits(
        lambda: world("topology/block", blocks),
        *("-N2", "--gres=gpu:8", "--time=10", "--mem=1000"),
    )
    assert w.counts == {("gpus", False): (2, 2), ("block", False): (2, 0)}
    assert w.start == ("planned", 7200)
