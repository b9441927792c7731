"""Why a job finds no room, in constructed situations: the cause, the counts, the start, and that
what is suggested instead starts indeed (`Waits` submits every suggestion in a world of its own)."""

from __future__ import annotations

from unit.ledger_support import at
from unit.why_support import BOARDS, CONF, Waits, World

from gsched.config import parse_config
from gsched.ledger import Configure, NodeMessage
from gsched.model import Phase
from gsched.model.why import Away
from gsched.scheduling import Planner
from gsched.wire.messages import UpdateNode
from gsched.wire.nodes import Report

HOURS = 3600


def _full(world: World, *names: str, hours: int = 2) -> World:
    """Jobs that hold all GPUs of these nodes."""
    for name in names:
        world.started("--gres=gpu:8", f"--time={hours}:00:00", f"--nodelist={name}", "-J", "full")
    return world


def _drained(world: World, names: list[str], reason: str = "bad fan") -> World:
    world.write(UpdateNode(names, "drain", reason), uid=0)
    return world


def test_gpus_fragmented_over_nodes() -> None:
    """Each node has three free GPUs: twelve in all, but nowhere four."""

    def build() -> World:
        world = World()
        for _ in range(4):
            world.started("--gres=gpu:5", "--time=2:00:00")
        return world

    w = Waits(build, "--gres=gpu:4")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert (w.place.nodes, w.place.needed, w.place.suited) == (4, 1, 0)
    assert w.counts == {("gpus", False): (4, 4)}
    assert (w.place.gpus, w.place.gpus_wanted, w.place.gpus_free) == (4, 4, 12)
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"--gres=gpu:3"}


def test_gpus_in_all_are_too_few() -> None:
    """Every node could give its part, but together they have twelve of sixteen."""

    def build() -> World:
        world = World()
        for _ in range(4):
            world.started("--gres=gpu:5", "--time=2:00:00")
        return world

    w = Waits(build, "--nodes=4", "--gpus=16")
    assert w.kinds == ["resources"]
    assert (w.place.needed, w.place.suited) == (4, 4)
    assert (w.place.gpus_wanted, w.place.gpus_free) == (16, 12)
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"--gpus=12", "--nodes=3 --gpus=12", "--nodes=3 --gpus=9"} & w.options
    assert "--gpus=12" in w.options


def test_memory_is_what_is_missing_while_gpus_are_free() -> None:
    def build() -> World:
        world = World()
        for _ in range(4):
            world.started("--gres=gpu:1", "--mem=60000", "--time=3:00:00")
        return world

    w = Waits(build, "--gres=gpu:2", "--mem=8000")
    assert w.kinds == ["resources"]
    assert w.counts == {("memory", False): (4, 4)}
    assert w.lack("memory").gpus == 4 * 7
    assert w.place.mem_mb == 8000
    assert w.start == ("planned", 3 * HOURS)
    # 4,000 MB are free: in steps of 256.
    assert w.options == {"--mem=3840M"}


def test_cpus_are_what_is_missing_while_gpus_are_free() -> None:
    def build() -> World:
        world = World()
        for _ in range(4):
            world.started("--gres=gpu:1", "--cpus-per-task=14", "--time=2:00:00")
        return world

    w = Waits(build, "--gres=gpu:2", "--cpus-per-task=4")
    assert w.counts == {("cpus", False): (4, 4)} and w.lack("cpus").gpus == 4 * 7
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"--cpus-per-task=2"}


def test_two_things_are_missing_and_some_nodes_lack_only_one() -> None:
    def build() -> World:
        world = World()
        for name in ("node1", "node2"):
            world.started("--gres=gpu:8", "--cpus-per-task=16", f"--nodelist={name}")
        world.started("--gres=gpu:1", "--cpus-per-task=16", "--nodelist=node3", "--time=2:00:00")
        world.started("--gres=gpu:8", "--nodelist=node4", "--time=2:00:00")
        return world

    w = Waits(build, "--gres=gpu:1")
    assert w.counts == {("cpus", False): (3, 1), ("gpus", False): (3, 1)}
    assert w.start == ("planned", HOURS)
    assert w.options == set()


def test_whole_nodes_are_wanted_and_all_are_shared() -> None:
    def build() -> World:
        world = World()
        for name in ("node1", "node2", "node3", "node4"):
            world.started(f"--nodelist={name}", "--time=2:00:00")
        return world

    w = Waits(build, "--exclusive")
    assert w.kinds == ["resources"]
    assert w.counts == {("busy", False): (4, 4)}
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"without --exclusive"}


def test_drained_nodes_and_a_full_one() -> None:
    def build() -> World:
        return _drained(_full(World(), "node4"), ["node1", "node2", "node3"])

    w = Waits(build, "--gres=gpu:1")
    assert w.kinds == ["resources"]
    assert w.counts == {("state", False): (3, 3), ("gpus", False): (1, 1)}
    (away,) = w.lack("state").away
    assert (away.nodes, away.count, away.state) == ("node[1-3]", 3, "DRAINED")
    assert (away.reason, away.by) == ("bad fan", 0)
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == set()


def test_every_node_is_drained() -> None:
    w = Waits(lambda: _drained(World(), ["node1", "node2", "node3", "node4"]), "--gres=gpu:1")
    assert w.kinds == ["nodes"]
    assert w.word.startswith("Nodes required for job are DOWN, DRAINED")
    assert w.counts == {("state", False): (4, 4)}
    assert w.start == ("unknown", -1) and not w.why.never
    assert w.options == set()


def test_down_nodes_are_missing_for_a_gang() -> None:
    def build() -> World:
        world = World()
        world.write(UpdateNode(["node2"], "down", "power"), uid=0)
        return _drained(world, ["node4"])

    w = Waits(build, "--nodes=4")
    assert w.kinds == ["nodes"]
    assert (w.place.needed, w.place.suited) == (4, 2)
    assert w.counts == {("state", False): (2, 2)}
    states = {(one.nodes, one.state, one.reason) for one in w.lack("state").away}
    assert states == {("node2", "DOWN", "power"), ("node4", "DRAINED", "bad fan")}
    assert w.options == {"--nodes=2"}


TWO_TYPES = CONF.replace("NodeName=node[3-4] Feature", "NodeName=node[3-4] Gres=gpu:a100:8 Feature")


def test_nodes_of_the_wrong_type() -> None:
    w = Waits(lambda: _full(World(TWO_TYPES), "node1", "node2"), "--gres=gpu:h100:2")
    assert w.kinds == ["resources"]
    assert w.counts == {("gpu_type", True): (2, 2), ("gpus", False): (2, 2)}
    assert (w.place.gpu_type, w.place.gpus_free) == ("h100", 0)
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"--gres=gpu:2"}


def test_of_two_partitions_one_never_has_the_type() -> None:
    conf = TWO_TYPES + "PartitionName=new Nodes=node[1-2]\nPartitionName=old Nodes=node[3-4]\n"
    w = Waits(
        lambda: _full(World(conf), "node1", "node2"), "--partition=old,new", "--gres=gpu:h100:2"
    )
    assert w.word == "Resources" and not w.why.never
    assert [(cause.kind, cause.partition) for cause in w.why.causes] == [
        ("resources", "new"),
        ("never", "old"),
    ]
    assert [(place.partition, place.never) for place in w.why.places] == [
        ("old", True),
        ("new", False),
    ]
    assert w.start == ("planned", 2 * HOURS)
    assert "--gres=gpu:2" in w.options


def test_features_leave_only_full_nodes() -> None:
    w = Waits(lambda: _full(World(), "node1", "node2"), "--gres=gpu:8", "--constraint=h100&rackA")
    assert w.counts == {("features", True): (2, 2), ("gpus", False): (2, 2)}
    assert w.place.features == "h100&rackA"
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"without --constraint"}


def test_a_combination_of_features_that_no_node_has_any_more() -> None:
    w = Waits(lambda: _full(World(), "node1", "node2"), "--gres=gpu:8", "--constraint=h100&rackA")
    world = w.world
    conf = CONF.replace("Feature=h100,rackA", "Feature=h100,rackB")
    world.apply(Configure(parse_config({"slurm.conf": conf})))
    words = world.settle()
    why = world.why(w.job)
    assert why.reason == words[w.job.id] == "BadConstraints"
    assert why.never and why.causes[0].kind == "never" and why.causes[0].never
    assert [(one.what, one.nodes) for one in why.places[0].lacks] == [("features", 4)]
    assert why.start.basis == "unknown" and why.start.time == 0
    assert [one.without for one in why.suggestions] == [["--constraint"]]


def test_an_island_is_split() -> None:
    """Two GPUs are free on each board of four."""

    def build() -> World:
        world = World(CONF.replace("Nodes=ALL", "Nodes=node1"), links=BOARDS)
        jobs = [world.started("--gres=gpu:2", "--time=2:00:00") for _ in range(4)]
        assert [job.alloc[0].gpus for job in jobs] == [0b11, 0b1100, 0b110000, 0b11000000]
        world.report("node1", *(at(jobs[k], Phase.RUNNING) for k in (0, 1, 2, 3)))
        world.now += 60
        ended = [at(jobs[k], Phase.RELEASED, wstatus=0) for k in (1, 3)]
        world.report("node1", *(at(jobs[k], Phase.RUNNING) for k in (0, 2)), *ended)
        return world

    w = Waits(build, "--gres=gpu:4", "--gres-flags=one-island")
    assert w.kinds == ["resources"]
    assert w.counts == {("island", False): (1, 1)}
    assert (w.place.gpus, w.place.gpus_free) == (4, 4)
    assert w.start == ("planned", 2 * HOURS - 60)
    assert w.options == {"without --gres-flags", "--gres=gpu:2"}


def test_a_node_that_is_named_is_drained() -> None:
    w = Waits(lambda: _drained(World(), ["node2"]), "--nodelist=node[1-2]", "--nodes=2")
    assert w.kinds == ["nodes"] and w.cause.detail == "node2"
    assert w.word == "ReqNodeNotAvail, UnavailableNodes:node2"
    assert w.start == ("unknown", -1)
    assert w.options == {"without --nodelist"}


def test_excluded_nodes_leave_a_full_one() -> None:
    w = Waits(lambda: _full(World(), "node4"), "--gres=gpu:1", "--exclude=node[1-3]")
    assert w.kinds == ["resources"]
    assert w.counts == {("excluded", True): (3, 3), ("gpus", False): (1, 1)}
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"without --exclude"}


def test_a_gpu_is_out_of_service() -> None:
    def build() -> World:
        world = World(CONF.replace("Nodes=ALL", "Nodes=node1"))
        live = world.led.live["node1"]
        report = Report(live.session, 1, live.last_order, [], gpu_faults={"node1-3": "XID 79"})
        world.apply(NodeMessage("node1", report))
        return world

    w = Waits(build, "--gres=gpu:8")
    assert w.kinds == ["nodes"]
    assert w.counts == {("gpus", False): (1, 1)} and w.place.gpus_free == 7
    assert w.lack("gpus").away == [Away("node1", 1, "1 GPU_FAULT", "XID 79")]
    assert w.start == ("unknown", -1)
    assert w.options == {"--gres=gpu:7"}


def test_part_of_a_gpu() -> None:
    conf = CONF.replace("GresTypes=gpu", "GresTypes=gpu,shard").replace(
        "Gres=gpu:h100:8", "Gres=gpu:h100:1,shard:4"
    )

    def build() -> World:
        world = World(conf.replace("Nodes=ALL", "Nodes=node1"))
        world.started("--gres=shard:3", "--time=2:00:00")
        return world

    w = Waits(build, "--gres=shard:2")
    assert w.kinds == ["resources"] and w.place.share == "shard:2"
    assert w.counts == {("gpus", False): (1, 1)}
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"--gres=shard:1"}


TREE = (
    "SwitchName=s1 Nodes=node[1-2]\nSwitchName=s2 Nodes=node[3-4]\nSwitchName=top Switches=s[1-2]\n"
)


def test_free_nodes_are_below_different_switches() -> None:
    def build() -> World:
        conf = CONF.replace("GresTypes", "TopologyPlugin=topology/tree\nGresTypes")
        return _full(World(conf, topology=TREE), "node1", "node3")

    w = Waits(build, "--nodes=2", "--gres=gpu:8", "--switches=1@30:00")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert (w.place.needed, w.place.suited) == (2, 2)
    assert w.counts == {("gpus", False): (2, 2), ("switch", False): (2, 0)}
    # It waits for a switch no longer than max_switch_wait, five minutes.
    assert w.start == ("switches", 300)
    assert w.options == {"without --switches", "--nodes=1"}


# ---- jobs ahead ---------------------------------------------------------------------------------


def _head(world: World) -> World:
    """Node 1 is busy for an hour; the first job that waits wants all nodes, for an hour."""
    _full(world, "node1", hours=1)
    world.sbatch("--nodes=4", "--gres=gpu:8", "--time=1:00:00", "-J", "head")
    world.settle()
    return world


def test_a_start_now_would_delay_a_planned_job() -> None:
    w = Waits(lambda: _head(World()), "--gres=gpu:1", "--time=2:00:00")
    assert w.kinds == ["priority"] and w.word == "Priority"
    assert w.place.room and w.counts[("reserved", False)] == (3, 3)
    (delayed,) = w.place.delays
    assert (delayed.id, delayed.state, delayed.start - w.now) == ("2", "PENDING", HOURS)
    assert delayed.nodes == "node[1-4]"
    assert w.why.ahead.jobs == 1 and w.why.ahead.first is not None and w.why.ahead.first.id == "2"
    # The head runs from one hour on to two.
    assert w.start == ("earliest", 2 * HOURS)
    assert w.options == {"--time=1:00:00"}


def test_no_room_whoever_is_ahead() -> None:
    w = Waits(lambda: _head(World()), "--gres=gpu:8", "--nodelist=node1", "--time=1:00:00")
    assert w.kinds == ["resources"] and w.word == "Resources"
    assert not w.place.room and w.why.ahead.jobs == 1
    assert w.start == ("earliest", 2 * HOURS)


def test_a_job_ahead_in_another_partition() -> None:
    conf = CONF + "PartitionName=wide Nodes=ALL\n"
    w = Waits(lambda: _head(World(conf)), "--gres=gpu:1", "--time=2:00:00", "--partition=wide")
    assert w.kinds == ["priority"] and w.word == "Priority"
    assert [one.id for one in w.place.delays] == ["2"]
    # Nobody is ahead in its own partition; its room is kept from two hours on.
    assert w.why.ahead.jobs == 0
    assert w.start == ("planned", 2 * HOURS)
    assert w.options == {"--time=1:00:00"}


def test_the_first_of_the_queue_waits_for_what_runs() -> None:
    w = Waits(lambda: _full(World(), "node1", hours=3), "--nodes=4", "--gres=gpu:8")
    assert w.kinds == ["resources"]
    assert (w.place.needed, w.place.suited) == (4, 3)
    assert w.counts == {("gpus", False): (1, 1)}
    assert w.why.start.nodes == "node[1-4]" and w.start == ("planned", 3 * HOURS)
    assert w.options == {"--nodes=3"}


class PlannedWorld(World):
    """Beside passes a plan is made of the whole queue, as the controller does."""

    def __init__(self) -> None:
        conf = CONF.replace("GresTypes", "SchedulerParameters=bf_resolution=1\nGresTypes")
        super().__init__(conf)
        self.planner = Planner()

    def settle(self) -> dict[int, str]:
        words = super().settle()
        self.planner.prepare(self.led, self.now).run()
        assert self.planner.apply(self.led)
        return words | super().settle()


def test_every_waiting_job_is_planned() -> None:
    w = Waits(lambda: _head(PlannedWorld()), "--gres=gpu:1", "--time=2:00:00")
    assert w.kinds == ["priority"] and w.word == "Priority"
    assert [one.id for one in w.place.delays] == ["2"]
    assert w.start == ("planned", 2 * HOURS) and w.why.ahead.jobs == 1
    assert w.options == {"--time=1:00:00"}


def test_no_room_beside_a_plan() -> None:
    def build() -> World:
        world = _head(PlannedWorld())
        world.sbatch("--nodes=2", "--gres=gpu:8", "--time=3:00:00", "-J", "second")
        world.settle()
        return world

    # After the head, two nodes are the second's for three hours.
    w = Waits(build, "--nodes=3", "--gres=gpu:8", "--time=2:00:00")
    assert w.kinds == ["priority"] and w.why.ahead.jobs == 2
    assert [one.id for one in w.place.delays] == ["2"]
    assert w.start == ("planned", 5 * HOURS)
    assert w.options == {"--time=1:00:00"}


# ---- at another time ----------------------------------------------------------------------------


def test_at_a_later_time() -> None:
    def build() -> World:
        return _full(World(), "node1", "node2", "node3", "node4", hours=2)

    early = Waits(build, "--gres=gpu:8", at_s=2 * HOURS - 1)
    assert not early.why.starts and early.counts == {("gpus", False): (4, 4)}
    there = Waits(build, "--gres=gpu:8", at_s=2 * HOURS)
    assert there.why.starts and there.why.causes[0].kind == "new"
    assert there.place.starts and there.place.on == "node1"


def test_at_a_time_that_is_kept_for_others() -> None:
    w = Waits(lambda: _head(World()), "--gres=gpu:1", "--time=2:00:00", at_s=HOURS + 60)
    assert not w.why.starts and w.kinds == ["priority"]
    assert w.counts == {("reserved", False): (4, 4)}
    later = Waits(lambda: _head(World()), "--gres=gpu:1", "--time=2:00:00", at_s=2 * HOURS)
    assert later.why.starts
