"""PrivateData=accounts,users: what ordinary users, coordinators and operators are shown."""

from __future__ import annotations

from gsched.model.policy import Account, Assoc, PolicyRecord, Qos, User, Wckey
from gsched.policy.privacy import visible, words

RECORDS: list[PolicyRecord] = [
    Qos(1, "normal"),
    Account("root"),
    Account("physics"),
    Account("optics"),
    Account("chem"),
    User("root", admin_level="Administrator"),
    User("kim", coordinator=("physics",)),
    User("lee"),
    User("ned"),
    User("pat", admin_level="Operator"),
    Assoc(1, "root"),
    Assoc(2, "physics", parent="root"),
    Assoc(3, "optics", parent="physics"),
    Assoc(4, "chem", parent="root"),
    Assoc(5, "physics", "kim"),
    Assoc(6, "optics", "lee"),
    Assoc(7, "chem", "ned"),
    Wckey(1, "thesis", "lee"),
]
BOTH = words(["accounts", "users"])


def names(user: str, private: frozenset[str]) -> str:
    found = visible(RECORDS, user, private)
    return " ".join(
        f"a:{one.name}"
        if isinstance(one, Account)
        else f"u:{one.name}"
        if isinstance(one, User)
        else f"{one.account}/{one.user}"
        if isinstance(one, Assoc)
        else f"{type(one).__name__}:{one.name}"
        for one in found
    )


def test_words() -> None:
    assert words(["jobs", "Users"]) == {"users"}
    assert words(["ALL"]) == {"accounts", "users"}
    assert words([]) == frozenset()


def test_an_ordinary_user() -> None:
    # He needs what is above him: limits come from there.
    assert names("lee", BOTH) == "Qos:normal u:lee root/ physics/ optics/ optics/lee Wckey:thesis"
    assert names("ned", words(["users"])) == (
        "Qos:normal a:root a:physics a:optics a:chem u:ned root/ physics/ optics/ chem/ chem/ned"
    )
    assert "u:kim" in names("ned", words(["accounts"]))
    assert "chem/ " in names("ned", BOTH)
    assert names("nobody", BOTH) == "Qos:normal"


def test_a_coordinator_sees_his_accounts() -> None:
    assert names("kim", BOTH) == (
        "Qos:normal a:physics a:optics u:kim u:lee root/ physics/ optics/ physics/kim optics/lee "
        "Wckey:thesis"
    )


def test_operators_see_all() -> None:
    assert visible(RECORDS, "pat", BOTH) == RECORDS
    assert visible(RECORDS, "root", BOTH) == RECORDS
    assert visible(RECORDS, "ned", frozenset()) == RECORDS
