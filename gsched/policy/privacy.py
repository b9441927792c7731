"""What of accounts, users and associations somebody may see (PrivateData). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gsched.model.policy import Account, Assoc, PolicyRecord, User, Wckey
from gsched.policy.book import Book

#: words of PrivateData that are about policy
WORDS = frozenset({"accounts", "users"})


def words(private_data: Iterable[str]) -> frozenset[str]:
    """Of PrivateData those that are about policy; "all" means both."""
    found = {word.lower() for word in private_data}
    return WORDS if "all" in found else WORDS & found


def visible(
    records: Iterable[PolicyRecord], user: str, private: frozenset[str]
) -> list[PolicyRecord]:
    """What an ordinary user, or a coordinator, is shown; operators and administrators see all.
    "users": of users, their associations and WCKeys only his own and those in accounts that he
    coordinates. "accounts": only accounts that he coordinates, with the associations that his own
    hang below. Cost: all records."""
    kept = list(records)
    book = Book(kept)
    if not private or book.level(user) != "None":
        return kept
    mine = {one.account for one in book.assocs.values() if one.user == user}
    led = {name for name in book.accounts if book.is_coordinator(user, name)}
    others = {one.user for one in book.assocs.values() if one.user and one.account in led}
    above = {
        one.account
        for name in mine | led
        for one in book.chain(book.account(name) or Assoc(0, name))
    }

    def seen(record: PolicyRecord) -> bool:
        if isinstance(record, User):
            return "users" not in private or record.name == user or record.name in others
        if isinstance(record, Wckey):
            return "users" not in private or record.user == user or record.user in others
        if isinstance(record, Account):
            return "accounts" not in private or record.name in led
        if isinstance(record, Assoc):
            if record.user and record.user != user and record.account not in led:
                return "users" not in private
            return "accounts" not in private or record.account in above
        return True

    return [record for record in kept if seen(record)]
