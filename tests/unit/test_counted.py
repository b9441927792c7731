"""Generic resources that are only counted: Gres=dongle:4 of a node, --gres=dongle:2 of a job."""

from __future__ import annotations

import copy

import pytest
from sbatch_support import FakeCluster, sbatch
from unit.ledger_support import CONF, Bench, at
from unit.why_support import CONF as PEER
from unit.why_support import World
from views_support import FakeReader

from gsched.config import parse_config
from gsched.gres import GresError, counted_kinds, parse_gres
from gsched.ledger import Ledger
from gsched.model import Job, JobState, Phase, Shape
from gsched.wire.messages import Done, Refused, UpdateJob
from gsched_cli.nodeview import node_views
from gsched_cli.why_words import sentences

#: node1 and node2 have four dongles each, node3 one network card of each of two makes
SITE = (
    CONF.replace("GresTypes=gpu", "GresTypes=gpu,dongle,nic,shard")
    .replace("NodeName=node[1-2]", "NodeName=node[1-2] Gres=gpu:h100:8,dongle:4")
    .replace("NodeName=node[3-4]", "NodeName=node4 Feature=h100,rackB\nNodeName=node3 "
             "Gres=gpu:h100:8,nic:fast:2,nic:slow:2")
    .replace("SlurmdTimeout=60", "SlurmdTimeout=0")
)  # fmt: skip
DONGLES = (("dongle", "", 2),)


def dongles(count: int, **more: object) -> Shape:
    return Shape(counted=(("dongle", "", count),), **more)  # type: ignore[arg-type]


def bench() -> Bench:
    return Bench(SITE)


def where(b: Bench, *jobs: Job) -> list[str]:
    b.schedule()
    return [",".join(part.node for part in job.alloc) for job in jobs]


# ---- what is asked ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "counted", "gpus", "shown"),
    [
        ("dongle", (("dongle", "", 1),), 0, "gres/dongle"),
        ("dongle:2", DONGLES, 0, "gres/dongle:2"),
        ("gpu:h100:3,dongle:2", DONGLES, 3, "gres/gpu:h100:3,gres/dongle:2"),
        ("nic:fast:1,dongle:1,dongle:1", (*DONGLES, ("nic", "fast", 1)), 0,
         "gres/nic:fast:1,gres/dongle:1,gres/dongle:1"),
        ("net:2M", (("net", "", 2 << 20),), 0, "gres/net:2M"),
        ("dongle:0", (), 0, ""),
        ("shard:2,dongle:2", DONGLES, 2, "gres/shard:2,gres/dongle:2"),
    ],
)  # fmt: skip
def test_what_is_asked(text: str, counted: object, gpus: int, shown: str) -> None:
    found = parse_gres(text)
    assert (found.counted, found.count, found.shown) == (counted, gpus, shown)


@pytest.mark.parametrize("text", ["dongle:", "1x:2", "dongle:-1", "dongle:a:b:c", "gpu:1,shard:2"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(GresError):
        parse_gres(text)


def test_a_job_is_submitted_and_shown_with_them() -> None:
    config = parse_config({"slurm.conf": SITE})
    made = sbatch("--gres=gpu:1,dongle:2", "--wrap=true", cluster=FakeCluster(configured=config))
    spec = made.sent.spec
    assert (spec.shape.gpus_per_node, spec.shape.counted) == (1, DONGLES)
    assert spec.tres["per_node"] == "gres/gpu:1,gres/dongle:2"
    made = sbatch(
        "--gpus-per-node=2",
        "--gres=dongle:2",
        "--wrap=true",
        cluster=FakeCluster(configured=config),
    )
    spec = made.sent.spec
    assert (spec.shape.gpus_per_node, spec.shape.counted) == (2, DONGLES)
    assert spec.tres["per_node"] == "gres/gpu:2,gres/dongle:2"


def test_what_the_cluster_has_not_is_refused() -> None:
    """As transcript 004 has it of a name that nobody knows."""
    made = sbatch("--gres=nosuch:1", "--wrap=true")
    assert made.err == "sbatch: error: Invalid generic resource (gres) specification\n"
    assert made.code == 1
    b = bench()
    for shape in (dongles(5), Shape(counted=(("nic", "other", 1),)), dongles(4, min_nodes=3)):
        reply = b.submit(shape=shape)
        assert isinstance(reply, Refused), shape
        assert reply.message == "Requested node configuration is not available"


# ---- what is given ---------------------------------------------------------------------------


def test_each_node_gives_what_it_has() -> None:
    b = bench()
    first, second, third = (b.job(shape=dongles(3)) for _ in range(3))
    small = b.job(shape=dongles(1))
    found = where(b, first, second, third, small)
    assert sorted(found[:2]) == ["node1", "node2"]
    assert found[2] == ""
    assert found[3] in ("node1", "node2")
    b.report(found[0], at(first, Phase.RELEASED, wstatus=0))
    where(b, third)
    assert [part.node for part in third.alloc] in ([], [found[0]])


def test_of_a_type_and_of_any() -> None:
    b = bench()
    fast = b.job(shape=Shape(counted=(("nic", "fast", 2),)))
    more = b.job(shape=Shape(counted=(("nic", "fast", 1),)))
    other = b.job(shape=Shape(counted=(("nic", "", 2),)))
    none = b.job(shape=Shape(counted=(("nic", "slow", 1),)))
    assert where(b, fast, more, other, none) == ["node3", "", "node3", ""]


def test_who_wants_many_is_not_overtaken_for_ever() -> None:
    """Small ones come all the time: the large one starts when those end that were there first."""
    b = bench()
    early = [b.job(shape=dongles(2), time_limit=600) for _ in range(4)]
    assert "" not in where(b, *early)
    large = b.job(shape=dongles(4), time_limit=600)
    start = b.now
    ends = {job.id: b.now + 600 for job in early}
    ended: set[int] = set()
    for _ in range(40):
        late = b.job(shape=dongles(1), time_limit=600)
        b.schedule()
        if late.state == JobState.RUNNING:
            ends[late.id] = b.now + 600
        if large.state == JobState.RUNNING:
            break
        b.now += 60
        for number, end in ends.items():
            job = b.led.jobs[number]
            if end <= b.now and number not in ended:
                ended.add(number)
                b.report(job.alloc[0].node, at(job, Phase.RELEASED, wstatus=0))
    assert large.state == JobState.RUNNING
    assert b.now - start == 600


def test_a_restart_knows_what_is_held() -> None:
    b = bench()
    first = b.job(shape=dongles(4, nodelist=("node1",)))
    assert where(b, first) == ["node1"]
    b.led = Ledger.load(
        b.config,
        copy.deepcopy(b.led.meta),
        copy.deepcopy(list(b.led.jobs.values())),
        copy.deepcopy(list(b.led.nodes.values())),
    )
    for name in b.config.nodes:
        b.led.cluster.set_usable(name, True)
    ask = b.led.cluster.what_if.nodes_for
    assert ask(dongles(1, nodelist=("node1",)), "gpu", 60, int(b.now)) is None
    assert ask(dongles(1, nodelist=("node2",)), "gpu", 60, int(b.now)) == "node2"


def test_a_waiting_job_is_changed() -> None:
    b = bench()
    job = b.job(shape=Shape(gpus_per_node=1), hold=True)

    def update(text: str) -> object:
        return b.write(UpdateJob([str(job.id)], "update", {"gres": text}), 0)

    assert isinstance(update("gpu:2,dongle:2"), Done)
    shape = b.led.jobs[job.id].spec.shape
    assert (shape.gpus_per_node, shape.counted) == (2, DONGLES)
    assert b.led.jobs[job.id].spec.tres["per_node"] == "gres/gpu:2,gres/dongle:2"
    update("dongle:2")
    shape = b.led.jobs[job.id].spec.shape
    assert (shape.gpus_per_node, shape.counted) == (0, DONGLES)
    refused = update("nosuch:1")
    assert "Invalid generic resource (gres) specification" in str(refused)
    update("gpu:1")
    assert b.led.jobs[job.id].spec.shape.counted == ()


# ---- what is shown ---------------------------------------------------------------------------


def test_a_node_shows_what_is_in_use() -> None:
    b = bench()
    where(b, b.job(shape=dongles(3, nodelist=("node1",), gpus_per_node=1)))
    use = [b.view["use", name.encode()] for name in b.config.nodes]
    views = {
        view.name: view
        for view in node_views(b.config, list(b.led.nodes.values()), use, False, {})  # type: ignore[arg-type]
    }
    assert views["node1"].gres == "gpu:h100:8,dongle:4"
    assert views["node1"].gres_used == "gpu:h100:1(IDX:0),dongle:3"
    assert views["node2"].gres_used == "gpu:h100:0(IDX:N/A),dongle:0"


def test_why_names_what_there_is_too_little_of() -> None:
    world = World(
        PEER.replace("GresTypes=gpu", "GresTypes=gpu,dongle").replace("h100:8", "h100:8,dongle:2")
    )
    for _ in range(4):
        world.started("--gres=dongle:2")
    job = world.sbatch("--gres=dongle:1")
    world.settle()
    why = world.why(job)
    text = "No node has room in partition gpu: 4 of 4 nodes have too little free of dongle:1."
    assert sentences(why, str) == [text]
    assert why.places[0].gres == "dongle:1"


def test_no_more_kinds_than_can_be_counted() -> None:
    names = [f"r{number}" for number in range(9)]
    conf = SITE.replace("dongle,nic", f"dongle,nic,{','.join(names)}").replace(
        "h100:8,dongle:4", f"h100:8,{','.join(f'{name}:1' for name in names)}"
    )
    config = parse_config({"slurm.conf": conf})
    assert len(counted_kinds(config)) == 7
    assert [text for text in config.warnings if text.startswith("no job gets ")]
    assert FakeReader(conf=config).config() is config
