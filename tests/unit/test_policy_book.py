"""The book of associations: look-ups and what is inherited.

What is expected is from Slurm's pages (sacctmgr, resource_limits): Max* limits come down from the
nearest association above that has them, each TRES for itself; Grp* limits do not.
"""

from __future__ import annotations

from gsched.model.policy import ROOT, Account, Assoc, Qos, User
from gsched.policy import Book


def small() -> Book:
    book = Book()
    for record in book.first:
        book.put(record)
    for record in (
        Account("science"),
        Account("physics"),
        Assoc(3, "science", parent=ROOT, max_jobs=10, grp_jobs=50, qos=("normal", "long")),
        Assoc(4, "physics", parent="science", max_tres_per_job={"gres/gpu": 4}, max_wall=60),
        Assoc(5, "physics", "marie", max_tres_per_job={"cpu": 8}),
        Assoc(6, "physics", "marie", "debug", max_jobs=1),
        User("marie", default_account="physics"),
        User("niels", coordinator=("science",)),
        Qos(2, "long"),
    ):
        book.put(record)
    return book


def test_a_partition_has_its_own_association_before_that_for_all() -> None:
    book = small()
    assert book.find("physics", "marie", "debug") is book.assocs[6]
    assert book.find("physics", "marie", "gpu") is book.assocs[5]
    assert book.find("science", "marie", "gpu") is None


def test_the_chain_ends_at_root() -> None:
    book = small()
    assert [one.id for one in book.chain(book.assocs[6])] == [6, 4, 3, 1]


def test_max_limits_come_down_each_tres_for_itself() -> None:
    book = small()
    got = book.effective(book.assocs[5])
    assert got.max_jobs == 10
    assert got.max_wall == 60
    assert got.max_tres_per_job == {"gres/gpu": 4, "cpu": 8}
    assert got.grp_jobs is None
    assert book.allowed_qos(book.assocs[5]) == ("normal", "long")
    assert book.effective(book.assocs[6]).max_jobs == 1


def test_what_is_inherited_follows_a_change_and_a_move() -> None:
    book = small()
    assert book.effective(book.assocs[5]).max_jobs == 10
    book.put(Assoc(3, "science", parent=ROOT, max_jobs=3))
    assert book.effective(book.assocs[5]).max_jobs == 3
    book.put(Assoc(4, "physics", parent=ROOT))
    assert book.effective(book.assocs[5]).max_jobs is None
    assert [one.id for one in book.below("science")] == []
    assert [one.id for one in book.below(ROOT)] == [2, 3, 4]


def test_a_coordinator_is_one_of_the_accounts_below_too() -> None:
    book = small()
    assert book.is_coordinator("niels", "physics")
    assert not book.is_coordinator("niels", ROOT)
    assert not book.is_coordinator("marie", "physics")


def test_dropped_records_are_found_no_more() -> None:
    book = small()
    book.drop(book.assocs[6])
    assert book.find("physics", "marie", "debug") is book.assocs[5]
    assert [one.id for one in book.subtree("science")] == [3, 4, 5]
