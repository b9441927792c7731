"""What must hold of a node's attempts after every input."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gsched.model import Phase
from slurmd_compat.agent.attempt import NONE, SPAWNED, Attempt
from slurmd_compat.agent.words import Key


def check(held: Mapping[Key, Attempt], busy: Callable[[Key], bool]) -> None:
    """Raises AssertionError where the state contradicts itself. `busy`: whether something of an
    attempt's steps is not over."""
    users: dict[str, Attempt] = {}
    for key, attempt in held.items():
        record = attempt.record
        assert record.key == key
        if not record.launch.job.spec.interactive:
            assert not record.launch.script and not record.launch.environment
        if record.phase == Phase.RELEASED:
            assert not attempt.hook and attempt.step != SPAWNED and not busy(key)
            continue
        if attempt.step == SPAWNED:
            assert record.phase in (Phase.RUNNING, Phase.ENDED) and record.go
            assert attempt.script
        if record.phase == Phase.RUNNING:
            assert record.go
            assert attempt.step == SPAWNED or not attempt.script or record.ending is not None
            # An end waits for nothing but steps.
            assert record.ending is None or busy(key)
        if attempt.blocked:
            assert not attempt.hook and attempt.step == NONE
        elif not record.paused:
            for uuid in attempt.gpus:
                other = users.setdefault(uuid, attempt)
                alone = other is not attempt and attempt.collides(other)
                assert not alone, f"{uuid} is used by {other.record.key} and {key}"
        if attempt.hook:
            assert record.phase == (Phase.PREPARING if attempt.hook == "prolog" else Phase.ENDED)
        elif not attempt.blocked and record.phase in (Phase.PREPARING, Phase.ENDED):
            assert attempt.step == SPAWNED or busy(key), f"{key} waits for nothing"
