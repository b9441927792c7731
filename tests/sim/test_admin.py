"""Histories with an administrator in them: jobs are held, changed, suspended and queued again,
nodes and partitions come and go, all of it in bad weather."""

from __future__ import annotations

import os
import random

import msgspec
import pytest
from sim.scenario import STORM_S, play

from gsched.simulate.world import World
from gsched.wire.messages import UpdateJob, UpdateNode, UpdatePartition
from gsched.wire.messages import Write as AnyWrite

HISTORIES = int(os.environ.get("GSCHED_SIM_HISTORIES", "2000")) // 4
CHUNK = 25
_VERBS = ("hold", "release", "requeue", "requeuehold", "suspend", "resume", "top", "notify")
_FIELDS = (
    {"timelimit": "+1"},
    {"timelimit": "2"},
    {"nice": "10"},
    {"numnodes": "2"},
    {"gres": "gpu:1"},
    {"starttime": "now"},
    {"partition": "gpu"},
    {"minmemorynode": "500"},
    {"excnodelist": "n1"},
    {"requeue": "1"},
)


def administrator(world: World, rnd: random.Random) -> None:
    """Some two dozen requests during the storm; afterwards everything is let go."""
    full = world.config

    def on_job(write: UpdateJob, pick: float) -> None:
        ids = sorted(world.client.jobs)
        if ids:
            job = str(ids[int(pick * len(ids))])
            world.client.administer(msgspec.structs.replace(write, ids=[job]))

    def without(name: str) -> None:
        nodes = {n: conf for n, conf in full.nodes.items() if n != name}
        parts = {
            p.name: msgspec.structs.replace(p, nodes=tuple(n for n in p.nodes if n != name))
            for p in full.partitions.values()
        }
        world.reconfigure(msgspec.structs.replace(full, nodes=nodes, partitions=parts))

    def one(kind: float) -> None:
        name = rnd.choice(list(full.nodes))
        request: AnyWrite
        if kind < 0.5:
            on_job(UpdateJob([], rnd.choice(_VERBS), {"message": "x"}), rnd.random())
        elif kind < 0.7:
            on_job(UpdateJob([], "update", dict(rnd.choice(_FIELDS))), rnd.random())
        elif kind < 0.8:
            state = rnd.choice(["drain", "resume", "down", "undrain", "noresp", "fail"])
            world.client.administer(UpdateNode([name], state, "test"))
        elif kind < 0.9:
            request = UpdatePartition("gpu", "update", {"state": rnd.choice(["UP", "DOWN"])})
            world.client.administer(request)
        elif kind < 0.95:
            world.reconfigure(full)
        else:
            without(name)

    for _ in range(rnd.randint(10, 30)):
        kind = rnd.random()
        world.at(world.now + rnd.uniform(0, STORM_S), lambda kind=kind: one(kind))  # type: ignore[misc]

    def let_go() -> None:
        world.reconfigure(full)
        world.client.administer(UpdatePartition("gpu", "update", {"state": "UP"}))
        for name in full.nodes:
            world.client.administer(UpdateNode([name], "resume"))
        for job in sorted(world.client.jobs):
            for verb in ("release", "resume"):
                world.client.administer(UpdateJob([str(job)], verb))
            # While a node was away, a job for all nodes was too large for its partition and could
            # be kept off another one: as Slurm's, it would wait for ever.
            world.client.administer(UpdateJob([str(job)], "update", {"excnodelist": ""}))

    for after in (1, 30, 90, 200):
        world.at(world.now + STORM_S + after, let_go)
    world.busy_until = world.now + STORM_S + 201


@pytest.mark.parametrize("chunk", range(max(1, HISTORIES // CHUNK)))
def test_no_job_is_lost_under_an_administrator(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        play(100_000 + seed, proof=seed % 5 == 4, more=administrator)
