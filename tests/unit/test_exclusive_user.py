"""--exclusive=user and partitions with ExclusiveUser: nodes without jobs of other users. A job gets
what it asks for, not the whole node (seen on a real Slurm)."""

from __future__ import annotations

import copy

import pytest
from unit.ledger_support import CONF, Bench
from unit.why_support import World

from gsched.ledger import Ledger
from gsched.model import Job, JobState, Shape
from gsched.wire.messages import Done, Forecast, SubmitJob, UpdateJob
from gsched_cli.why_words import sentences

ANN, BEN = 1000, 1001
OWN = Shape(exclusive=2, nodelist=("node1",))
ANY = Shape(nodelist=("node1",))
PARTITION = "PartitionName=own Nodes=node[1-2] ExclusiveUser=YES State=UP\n"


def bench(more: str = "") -> Bench:
    return Bench(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0") + more)


def running(b: Bench, *jobs: Job) -> list[bool]:
    b.schedule()
    return [job.state == JobState.RUNNING for job in jobs]


def test_the_owner_s_jobs_share_a_node_with_each_other_alone() -> None:
    b = bench()
    first = b.job(shape=OWN, uid=ANN)
    assert running(b, first) == [True]
    assert [(part.node, part.cpus) for part in first.alloc] == [("node1", 1)]
    second, other, plain = b.job(shape=OWN), b.job(shape=OWN, uid=BEN), b.job(shape=ANY, uid=BEN)
    assert running(b, second, other, plain) == [True, False, False]
    assert b.verdict(plain) in ("Priority", "Resources")
    elsewhere = b.job(shape=Shape(exclusive=2), uid=BEN)
    assert running(b, elsewhere) == [True]
    assert elsewhere.alloc[0].node != "node1"


def test_it_waits_for_jobs_of_others_to_end() -> None:
    b = bench()
    plain = b.job(shape=ANY, uid=BEN, time_limit=600)
    assert running(b, plain) == [True]
    own = b.job(shape=OWN)
    late = b.job(shape=ANY, uid=BEN, time_limit=1200)
    # Who would be there longer than the first does not start before the owner.
    assert running(b, own, late) == [False, False]
    assert b.led.cluster.estimate(own.id) == (int(b.now) + 600, ["node1"])


def test_a_partition_can_want_it_of_all() -> None:
    b = bench(PARTITION)
    mine = b.job(shape=ANY, partitions=("own",))
    assert running(b, mine) == [True]
    also, other = b.job(shape=ANY, partitions=("own",)), b.job(shape=ANY, uid=BEN)
    assert running(b, also, other) == [True, False]


def test_a_restart_knows_whose_a_node_is() -> None:
    b = bench(PARTITION)
    jobs = [b.job(shape=OWN), b.job(shape=Shape(nodelist=("node2",)), partitions=("own",))]
    assert running(b, *jobs) == [True, True]
    b.led = Ledger.load(
        b.config,
        copy.deepcopy(b.led.meta),
        copy.deepcopy(list(b.led.jobs.values())),
        copy.deepcopy(list(b.led.nodes.values())),
    )
    b.led.awaited.clear()
    for name in b.config.nodes:
        b.led.cluster.set_usable(name, True)
    cluster = b.led.cluster
    for name, uid, fits in (
        ("node1", ANN, True), ("node1", BEN, False), ("node2", ANN, True), ("node2", BEN, False),
    ):  # fmt: skip
        shape = Shape(exclusive=2, owner=uid, nodelist=(name,))
        assert (cluster.what_if.nodes_for(shape, "gpu", 60, int(b.now)) == name) is fits


def test_an_owner_is_not_what_a_client_says() -> None:
    b = bench()
    assert running(b, b.job(shape=OWN, uid=ANN)) == [True]
    forged = b.job(shape=Shape(exclusive=2, nodelist=("node1",), owner=ANN), uid=BEN)
    assert forged.spec.shape.owner == BEN
    plain = b.job(shape=Shape(nodelist=("node1",), owner=ANN), uid=BEN)
    assert plain.spec.shape.owner == -1
    assert running(b, forged, plain) == [False, False]


def test_an_update_makes_it_so_and_takes_it_back() -> None:
    b = bench()
    plain = b.job(shape=ANY, uid=BEN, time_limit=600)
    assert running(b, plain) == [True]
    job = b.job(shape=ANY, hold=True)

    def update(**fields: str) -> None:
        reply = b.write(UpdateJob([str(job.id)], "update", fields), 0)
        assert isinstance(reply, Done) and not reply.errors, reply

    update(exclusive="user")
    assert (job.spec.shape.exclusive, job.spec.shape.owner) == (2, ANN)
    b.write(UpdateJob([str(job.id)], "release"), ANN)
    assert running(b, job) == [False]
    update(exclusive="no")
    assert job.spec.shape.owner == -1
    assert running(b, job) == [True]


@pytest.mark.parametrize(("uid", "start"), [(ANN, 0), (BEN, 600)])
def test_when_it_could_start(uid: int, start: int) -> None:
    import msgspec

    b = bench()
    assert running(b, b.job(shape=OWN, uid=ANN, time_limit=600)) == [True]
    spec = copy.deepcopy(b.job(shape=OWN, uid=uid, hold=True).spec)
    spec.hold = False
    reply = b.write(SubmitJob(spec, b"#!/bin/sh\n", b"", "u", "g", test_only=True), uid)
    assert isinstance(reply, Done)
    found = msgspec.json.decode(reply.data, type=Forecast)
    assert (found.start - int(b.now), found.nodes) == (start, "node1")


def test_components_of_one_user_share_a_node() -> None:
    b = bench()
    specs = [copy.deepcopy(b.job(shape=OWN, hold=True).spec) for _ in range(2)]
    for spec in specs:
        spec.hold = False
    reply = b.write(SubmitJob(specs[0], b"#!/bin/sh\n", b"", "u", "g", specs[1:]), ANN)
    assert isinstance(reply, Done)
    b.schedule()
    parts = [b.led.jobs[reply.value + k] for k in range(2)]
    assert [job.alloc[0].node for job in parts if job.alloc] == ["node1", "node1"]


def test_why_tells_whom_it_waits_for() -> None:
    world = World()
    world.started("-wnode1", "--exclusive=user")
    job = world.sbatch("-wnode1", uid=BEN)
    world.settle()
    text = "It names nodes that have no room: node1 has jobs of a user who shares with nobody "
    assert sentences(world.why(job), str) == [f"{text}(--exclusive=user)."]
    other = world.sbatch("-wnode1", "--exclusive=user", uid=BEN)
    world.settle()
    assert sentences(world.why(other), str)[0] == (
        "It names nodes that have no room: node1 has jobs of others, or jobs that share with "
        "others (--exclusive=user)."
    )
