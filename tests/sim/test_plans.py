"""Plans that are taken over late, in histories with faults: the same seed is the same history, and
plans are taken over in it."""

from __future__ import annotations

from sim.scenario import play


def test_the_same_seed_is_the_same_history_with_plans_in_it() -> None:
    one, other = play(11), play(11)
    assert one.history == other.history
    assert one.plans == other.plans > 0
