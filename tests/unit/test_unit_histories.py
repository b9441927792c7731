"""Guarantees in whole nodes and islands: nobody waits longer than on a cluster of his own."""

from __future__ import annotations

import os
import random

import pytest
from unit.units_world import Team, Wish, World

#: blocks of histories; GSCHED_UNIT_HISTORIES says another number
BLOCKS = int(os.environ.get("GSCHED_UNIT_HISTORIES", "3"))
EACH = 10


def wishes(
    rnd: random.Random,
    teams: dict[str, Team],
    sizes: list[int],
    wide: bool = True,
    exact: bool = False,
) -> list[Wish]:
    """`wide`: jobs of several units; `exact`: they last as long as they may."""
    found = []
    for number in range(rnd.randrange(6, 22)):
        team = rnd.choice(list(teams))
        run = rnd.choice([3, 10, 30, 100])
        nodes = rnd.randrange(1, teams[team].units + 1) if teams[team].units and wide else 1
        limit = run * rnd.choice([1, 1, 1, 1] if exact else [1, 1, 3, 10])
        found.append(
            Wish(
                rnd.randrange(0, 120) * 100 + number,
                *(team, rnd.choice(sizes), nodes, run * 100, limit * 100),
            )
        )
    return found


def draw(rnd: random.Random, borrows: list[bool]) -> tuple[int, dict[str, Team]]:
    teams = {
        name: Team(rnd.randrange(1, 4), rnd.choice(borrows))
        for name in ("red", "blue", "green")[: rnd.randrange(2, 4)]
    }
    if rnd.random() < 0.3:
        teams["guests"] = Team(0)
    return sum(team.units for team in teams.values()) + rnd.choice([0, 0, 1]), teams


def alone(
    team: Team, name: str, all_: list[Wish], order: str = "builtin", unit: str = "node"
) -> World:
    mine = [one for one in all_ if one.team == name]
    nodes = team.units if unit == "node" else -(-team.units // 2)
    return World(nodes, {name: Team(team.units, False)}, order, unit).run(mine)


def whole_nodes(seed: int) -> World:
    """Jobs of whole nodes, in strict order, that borrow what they can."""
    rnd = random.Random(seed)
    nodes, teams = draw(rnd, [True, True, False])
    jobs = wishes(rnd, teams, [8])
    shared = World(nodes, teams).run(jobs)
    assert shared.wronged == 0, seed
    waits = shared.waits()
    assert waits.keys() == set(jobs), seed
    for name, team in teams.items():
        if team.units:
            for wish, wait in alone(team, name, jobs).waits().items():
                assert waits[wish] <= wait, (seed, wish, waits[wish], wait)
    return shared


def own_nodes(seed: int) -> World:
    """Jobs of any size, of teams that do not borrow, among others that do; in strict order."""
    rnd = random.Random(seed)
    nodes, teams = draw(rnd, [True, False])
    jobs = wishes(rnd, teams, [1, 2, 4, 8])
    shared = World(nodes, teams).run(jobs)
    assert shared.wronged == 0, seed
    waits = shared.waits()
    for name, team in teams.items():
        if team.units and not team.borrows:
            private = alone(team, name, jobs).waits()
            mine = {wish: wait for wish, wait in waits.items() if wish.team == name}
            assert mine == private, (seed, name)
    return shared


def islands(seed: int) -> World:
    """Jobs of an island each, in strict order. (Smaller ones leave pieces, and on a private node of
    two islands a job may lie across both, which islands of two nodes do not offer.)"""
    rnd = random.Random(seed)
    units, teams = draw(rnd, [True, False])
    jobs = []
    for number in range(rnd.randrange(8, 28)):
        team = rnd.choice(list(teams))
        run = rnd.choice([3, 10, 30, 100])
        limit = run * rnd.choice([1, 1, 3, 10])
        at = rnd.randrange(0, 120) * 100 + number
        jobs.append(Wish(at, team, 4, 1, run * 100, limit * 100))
    shared = World(-(-units // 2), teams, "builtin", "island").run(jobs)
    assert shared.wronged == 0, seed
    waits = shared.waits()
    assert waits.keys() == set(jobs), seed
    for name, team in teams.items():
        private = alone(team, name, jobs, "builtin", "island").waits() if team.units else {}
        for wish, wait in private.items():
            assert waits[wish] <= wait, (seed, wish, waits[wish], wait)
            assert team.borrows or waits[wish] == wait, (seed, wish, waits[wish], wait)
    return shared


def filled(seed: int, unit: str = "node") -> World:
    """Jobs of any size, of anybody, with backfill."""
    rnd = random.Random(seed)
    nodes, teams = draw(rnd, [True, True, False])
    jobs = wishes(rnd, teams, [1, 2, 4, 8] if unit == "node" else [1, 2, 4], unit == "node")
    shared = World(nodes if unit == "node" else -(-nodes // 2), teams, "backfill", unit).run(jobs)
    assert shared.wronged == 0, seed
    assert shared.idle == [], seed
    assert shared.waits().keys() == set(jobs), seed
    return shared


def same_policy(seed: int) -> World:
    """Jobs of whole nodes that last as long as they may, of teams that do not borrow among others
    that do; with backfill here and on the nodes of their own."""
    rnd = random.Random(seed)
    nodes, teams = draw(rnd, [True, False])
    jobs = wishes(rnd, teams, [8], exact=True)
    shared = World(nodes, teams, "backfill").run(jobs)
    assert shared.wronged == 0, seed
    waits = shared.waits()
    for name, team in teams.items():
        if team.units and not team.borrows:
            private = alone(team, name, jobs, "backfill").waits()
            mine = {wish: wait for wish, wait in waits.items() if wish.team == name}
            assert mine == private, (seed, name)
    return shared


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nobody_waits_longer_than_on_nodes_of_his_own(block: int) -> None:
    taken = sum(whole_nodes(seed).taken for seed in range(block * EACH, block * EACH + EACH))
    assert taken > 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_who_does_not_borrow_has_what_his_own_nodes_would_give(block: int) -> None:
    taken = sum(own_nodes(seed).taken for seed in range(block * EACH, block * EACH + EACH))
    assert taken > 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_with_backfill_the_first_waits_for_his_team_alone(block: int) -> None:
    taken = sum(filled(seed).taken for seed in range(block * EACH, block * EACH + EACH))
    assert taken > 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_islands_of_ones_own(block: int) -> None:
    taken = sum(islands(seed).taken for seed in range(block * EACH, block * EACH + EACH))
    assert taken > 0


def test_with_backfill_the_first_waits_for_his_islands_alone() -> None:
    # In ten histories it may be that nothing has to be taken back.
    assert sum(filled(seed, "island").taken for seed in range(BLOCKS * EACH)) > 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_with_backfill_here_and_there_it_is_the_same(block: int) -> None:
    seeds = range(block * EACH, block * EACH + EACH)
    assert sum(same_policy(seed).taken for seed in seeds) > 0


@pytest.mark.parametrize("seed", [41, 325])
def test_what_a_team_has_borrowed_before_is_not_taken_from_it(seed: int) -> None:
    filled(seed)
