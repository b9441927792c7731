"""Coordinators of accounts."""

from __future__ import annotations

import msgspec

from gsched.ledger.manage import limits
from gsched.ledger.manage.work import ACCESS, UNCHANGED, No, Work
from gsched.wire.messages import PolicyOp


def _named(work: Work, op: PolicyOp) -> tuple[list[str], list[str]]:
    users = [one.lower() for one in op.where.get("name", [])]
    accounts = [one.lower() for one in op.where.get("account", [])]
    for name in users:
        if name not in work.book.users:
            raise No(f" You specified a non-existent user '{name}'.\n")
    for name in accounts:
        if name not in work.book.accounts:
            raise No(f" You specified a non-existent account '{name}'.\n")
    return users, accounts


def add(work: Work, op: PolicyOp) -> None:
    users, accounts = _named(work, op)
    if not users:
        raise No(" You need to specify a user list here.\n")
    if not accounts:
        raise No(" You need to specify an account list here.\n")
    if not (work.operator or all(work.coordinates(one) for one in accounts)):
        raise No(
            " Problem adding coordinator: Access/permission denied "
            "(Only admins/operators/coordinators can add coordinators)\n",
            ACCESS,
        )
    for name in users:
        user = work.book.users[name]
        both = tuple(dict.fromkeys((*user.coordinator, *accounts)))
        work.put(msgspec.structs.replace(user, coordinator=both))
        work.tell("Add Account Coord", name, ",".join(accounts))
        for account in accounts:
            work.say("coordinators added", name, account)


def delete(work: Work, op: PolicyOp) -> None:
    users, accounts = _named(work, op)
    if not users and not accounts:
        raise No(" You need to specify a user list or account list here.\n")
    found = [
        (user, account)
        for user in work.book.users.values()
        for account in user.coordinator
        if (not users or user.name in users) and (not accounts or account in accounts)
    ]
    asked = accounts or sorted({account for _, account in found})
    if not (work.operator or (asked and all(work.coordinates(one) for one in asked))):
        raise limits.denied("Only admins/operators/coordinators can remove coordinators")
    if not found:
        raise No(" Nothing removed\n", UNCHANGED)
    for user, account in found:
        now = work.book.users[user.name]
        left = tuple(one for one in now.coordinator if one != account)
        work.put(msgspec.structs.replace(now, coordinator=left))
        work.say("coordinators removed", user.name, account)
        work.tell("Remove Account Coord", f"(user='{user.name}') && (acct='{account}')")


__all__ = ["add", "delete"]
