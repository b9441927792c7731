"""Thousands of seeded histories with faults; GSCHED_SIM_HISTORIES sets how many."""

from __future__ import annotations

import os

import pytest
from sim.scenario import play

HISTORIES = int(os.environ.get("GSCHED_SIM_HISTORIES", "2000"))
CHUNK = 25


@pytest.mark.parametrize("chunk", range(max(1, HISTORIES // CHUNK)))
def test_no_job_is_lost_doubled_or_half_started(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        play(seed, proof=seed % 5 == 4)


def test_the_same_seed_gives_the_same_history() -> None:
    assert play(7).history == play(7).history
