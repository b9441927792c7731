"""Fair share: figures that a real Slurm 22.05 gave, Fair Tree's rules for ties, properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.model.policy import SHARES_PARENT, Assoc
from gsched.policy import Book
from gsched.policy.fairshare import INFINITE, classic, fair_tree


def book() -> Book:
    """The tree of the recorded cluster."""
    made = Book(Book().first)
    for one in (
        Assoc(3, "research", parent="root", shares=60),
        Assoc(4, "prod", parent="root", shares=40),
        Assoc(5, "research", "root"),
        Assoc(6, "research", "nia"),
        Assoc(7, "research", "olek"),
        Assoc(8, "research", "nobody"),
        Assoc(9, "prod", "olek"),
        Assoc(10, "prod", "root"),
    ):
        made.put(one)
    return made


def tree(made: Book, used: dict[int, float]) -> dict[int, float]:
    """Users' usage, and what follows: fair shares of users."""
    whole = dict(used)
    for one, value in used.items():
        for above in made.chain(made.assocs[one])[1:]:
            whole[above.id] = whole.get(above.id, 0.0) + value
    found = fair_tree(made, whole)
    return {one: standing.factor for one, standing in found.items() if standing.assoc.user}


def test_nobody_has_used_anything() -> None:
    assert set(tree(book(), {}).values()) == {1.0}


def test_as_recorded() -> None:
    """sshare -la of a real Slurm: nia has used 2255.88, olek in prod 2."""
    usage = {1: 2257.88, 3: 2255.88, 6: 2255.88, 4: 2.0, 9: 2.0}
    found = fair_tree(book(), usage)
    shown = {
        one: (
            f"{s.norm_shares:.6f}",
            f"{s.norm_usage:.6f}",
            f"{s.effective:.6f}",
            f"{s.level:.6f}",
            f"{s.factor:.6f}",
        )
        for one, s in found.items()
    }
    assert shown[2] == ("0.009901", "0.000000", "0.000000", "inf", "1.000000")
    assert shown[4][:3] == ("0.396040", "0.000886", "0.000886")
    assert found[4].level == pytest.approx(447.1, abs=0.1)
    assert shown[9] == ("0.500000", "0.000886", "1.000000", "0.500000", "0.714286")
    assert shown[10] == ("0.500000", "0.000000", "0.000000", "inf", "0.857143")
    assert shown[3][:4] == ("0.594059", "0.999114", "0.999114", "0.594586")
    assert shown[6] == ("0.250000", "0.999114", "1.000000", "0.250000", "0.142857")
    assert {shown[one][4] for one in (5, 7, 8)} == {"0.571429"}


def test_classic_as_recorded() -> None:
    """The same cluster with NO_FAIR_TREE and FairShareDampeningFactor=2, much later."""
    usage = {1: 52528.0, 3: 52525.85, 6: 52509.88, 7: 15.97, 4: 2.15, 9: 2.10}
    found = classic(book(), usage, 2.0)
    shown = {one: (f"{s.norm_shares:.6f}", f"{s.factor:.4f}") for one, s in found.items()}
    assert shown[1] == ("1.000000", "0.7071")
    assert shown[3] == ("0.594059", "0.5580")
    assert shown[6][0] == "0.148515"
    assert found[6].factor == pytest.approx(0.0970, abs=2e-4)
    assert found[7].effective == pytest.approx(0.250218, abs=2e-5)
    assert shown[7] == ("0.148515", "0.5577")
    assert shown[8] == ("0.148515", "0.5580")
    assert found[4].factor == pytest.approx(0.999964, abs=2e-6)


def test_users_of_a_better_account_come_first() -> None:
    """Whatever the users have used themselves."""
    made = book()
    found = tree(made, {6: 10.0, 9: 1000.0, 10: 1.0})
    # research has used less of what it is promised: all of its users come before prod's.
    assert min(found[one] for one in (5, 6, 7, 8)) > max(found[9], found[10])


def test_tied_accounts_share_one_list() -> None:
    """Two accounts with equal shares and usage: their users are ranked as if of one."""
    made = Book(Book().first)
    for number, (account, user) in enumerate(
        [("a", ""), ("b", ""), ("a", "u1"), ("a", "u2"), ("b", "u3"), ("b", "u4")], 10
    ):
        made.put(Assoc(number, account, user, parent="" if user else "root"))
    found = tree(made, {12: 30.0, 13: 10.0, 14: 20.0, 15: 20.0})
    # Five users: root's, who has used nothing, then by what each has used of his account's 40.
    assert found[2] == 1.0
    assert found[13] == pytest.approx(4 / 5)
    assert found[14] == found[15] == pytest.approx(3 / 5)
    assert found[12] == pytest.approx(1 / 5)


def test_a_user_tied_with_an_account_has_the_place_of_its_best_user() -> None:
    made = Book(Book().first)
    made.put(Assoc(10, "a", parent="root"))
    made.put(Assoc(11, "a", "u1"))
    made.put(Assoc(12, "a", "u2"))
    assert set(tree(made, {}).values()) == {1.0}
    found = tree(made, {2: 10.0, 11: 10.0})
    # root's user and account a: one share and half of the usage each.
    assert found[2] == found[12] == 1.0
    assert found[11] == pytest.approx(1 / 3)


def test_zero_shares_come_last() -> None:
    made = book()
    made.put(Assoc(4, "prod", parent="root", shares=0))
    found = tree(made, {6: 1000.0})
    assert max(found[9], found[10]) < min(found[one] for one in (5, 6, 7, 8))


def test_an_account_with_parent_is_looked_through() -> None:
    """Its users share with their account's siblings."""
    made = Book(Book().first)
    made.put(Assoc(10, "a", parent="root", shares=SHARES_PARENT))
    made.put(Assoc(11, "a", "u1", shares=3))
    found = fair_tree(made, {1: 100.0, 2: 50.0, 10: 50.0, 11: 50.0})
    assert found[11].norm_shares == 0.75
    assert found[11].level == 1.5
    assert found[2].level == 0.5


def test_a_deep_tree() -> None:
    """Nothing bounds how deep accounts lie below each other. Of two users the one at its end has
    used nothing, and comes first."""
    deep = 3000
    made = Book(Book().first)
    for n in range(deep):
        made.put(Assoc(10 + n, f"a{n}", parent=f"a{n - 1}" if n else "root"))
    made.put(Assoc(9, f"a{deep - 1}", "kim"))
    found = fair_tree(made, {1: 50.0, 2: 50.0})
    assert (found[9].factor, found[2].factor) == (1.0, 0.5)
    assert len(classic(made, {1: 50.0, 2: 50.0})) == deep + 3


def test_levels() -> None:
    found = fair_tree(book(), {})
    assert found[3].level == INFINITE


@given(
    st.lists(st.integers(0, 1000), min_size=7, max_size=7),
    st.integers(0, 6),
    st.integers(1, 1000),
    st.booleans(),
)
def test_more_usage_never_raises_ones_fair_share(
    used: list[int], who: int, more: int, old: bool
) -> None:
    made = book()
    users = [2, 5, 6, 7, 8, 9, 10]

    def factor(amounts: list[int]) -> float:
        whole: dict[int, float] = {}
        for one, value in zip(users, amounts, strict=True):
            for above in made.chain(made.assocs[one]):
                whole[above.id] = whole.get(above.id, 0.0) + value
        found = classic(made, whole) if old else fair_tree(made, whole)
        return found[users[who]].factor

    later = [value + (more if place == who else 0) for place, value in enumerate(used)]
    assert factor(later) <= factor(used) + 1e-12
