"""Histories with advance reservations in them: they are made, changed and end while jobs come and
go, in bad weather; no job is lost for them, and a job starts in one only while it is in force."""

from __future__ import annotations

import os
import random

import pytest
from sim.scenario import STORM_S, play

from gsched.simulate.world import World
from gsched.wire.messages import UpdateJob, UpdateReservation

HISTORIES = int(os.environ.get("GSCHED_SIM_HISTORIES", "2000")) // 10
CHUNK = 50
_FLAGS = ("", "ignore_jobs", "maint,ignore_jobs", "overlap,ignore_jobs", "flex,ignore_jobs")
_FLAGS += ("magnetic,ignore_jobs", "no_hold_jobs_after,ignore_jobs", "purge_comp=5")
_NODES: tuple[dict[str, str], ...] = (
    {"nodes": "n1"},
    {"nodes": "n[2-3]"},
    {"nodes": "ALL"},
    {"nodecnt": "2"},
    {"gpus": "2"},
    {"nodes": "n4", "corecnt": "2"},
)


def keeper(world: World, rnd: random.Random) -> None:
    """A dozen reservations, and as many jobs that are sent into them."""

    def create(name: str, flags: str, what: dict[str, str], after: int, long: int) -> None:
        times = {"starttime": str(int(world.now) + after), "duration": str(long)}
        fields = {"users": "user", "flags": flags, **times, **what}
        world.client.administer(UpdateReservation(name, "create", fields))

    def change(name: str, long: int) -> None:
        world.client.administer(UpdateReservation(name, "update", {"duration": str(long)}))

    def send_in(name: str, pick: float) -> None:
        ids = sorted(world.client.jobs)
        if ids:
            job = str(ids[int(pick * len(ids))])
            world.client.administer(UpdateJob([job], "update", {"reservationname": name}))

    for number in range(rnd.randint(4, 12)):
        name, when = f"r{number}", world.now + rnd.uniform(0, STORM_S)
        made = (name, rnd.choice(_FLAGS), rnd.choice(_NODES), rnd.randint(0, 20))
        long = rnd.choice([5, 20, 60])
        world.at(when, lambda made=made, long=long: create(*made, long))  # type: ignore[misc]
        for _ in range(2):
            pick, later = rnd.random(), when + rnd.uniform(0, 30)
            world.at(later, lambda n=name, p=pick: send_in(n, p))  # type: ignore[misc]
        if rnd.random() < 0.4:
            world.at(when + 10, lambda n=name: change(n, 30))  # type: ignore[misc]
        if rnd.random() < 0.3:
            gone = UpdateReservation(name, "delete")
            world.at(when + 25, lambda gone=gone: world.client.administer(gone))  # type: ignore[misc]

    def let_go() -> None:
        for job in sorted(world.client.jobs):
            world.client.administer(UpdateJob([str(job)], "update", {"reservationname": ""}))
            world.client.administer(UpdateJob([str(job)], "release"))

    for after in (100, 150, 200):
        world.at(world.now + STORM_S + after, let_go)
    world.busy_until = world.now + STORM_S + 201


@pytest.mark.parametrize("chunk", range(max(1, HISTORIES // CHUNK)))
def test_no_job_is_lost_among_reservations(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        play(700_000 + seed, proof=seed % 5 == 4, more=keeper)
