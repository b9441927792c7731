"""Accounts: adding, changing, moving and deleting them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gsched.ledger.manage import limits
from gsched.ledger.manage.work import UNCHANGED, No, Work, replaced
from gsched.model.policy import NORMAL, ROOT, Account, Assoc
from gsched.policy.book import INHERITED
from gsched.policy.settings import ACCOUNT, SettingError, find
from gsched.wire.messages import PolicyOp

MAX_NAME = 255
_LETTERS = "-._:@+"


def good_name(name: str, what: str) -> str:
    """A name as it is kept, in lower case. No for one that Slurm's lists cannot hold."""
    low = name.lower()
    plain = all(letter.isalnum() or letter in _LETTERS for letter in low)
    if not low or len(low) > MAX_NAME or not plain or low[0] in "+-":
        raise No(f" Error with request: Invalid name of {what}: {name[:64]!r}\n")
    return low


def lineage(work: Work, assocs: Iterable[Assoc]) -> list[Assoc]:
    """In the order in which Slurm lists them: down the tree, users before accounts, by name."""
    return sorted(assocs, key=lambda one: path(work, one))


def path(work: Work, assoc: Assoc) -> tuple[tuple[int, str, str], ...]:
    """Sorts associations by where they hang in the tree."""
    chain = [one for one in work.book.chain(assoc) if one.is_account]
    steps = [(1, one.account, "") for one in reversed(chain)]
    if assoc.user:
        steps.append((0, assoc.user, assoc.partition))
    return tuple(steps)


def split(work: Work, op: PolicyOp) -> tuple[limits.Settings, limits.Settings, str | None, bool]:
    """Settings of the account itself, those of its association, its parent, whether its usage is to
    be forgotten."""
    own: limits.Settings = []
    assoc: limits.Settings = []
    parent: str | None = None
    reset = False
    for name, sign, text in op.settings:
        low = name.lower()
        if low == "parent":
            parent = text.lower()
        elif low == "rawusage":
            reset = _reset(work, text)
        elif find(name, ACCOUNT) is not None:
            own.append((name, sign, text))
        else:
            assoc.append((name, sign, text))
    return own, assoc, parent, reset


def _reset(work: Work, text: str) -> bool:
    if text.strip() not in ("0", "0.0"):
        raise No("sacctmgr: error: RawUsage can be set to 0 alone\n")
    if not work.admin:
        raise limits.denied("Only admins can reset usage")
    return True


def account_fields(work: Work, record: Account, own: limits.Settings) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, sign, text in own:
        setting = find(name, ACCOUNT)
        assert setting is not None
        before = found.get(setting.field, getattr(record, setting.field))
        try:
            found[setting.field] = setting.parse(before, sign, text, work.known, setting.names[0])
        except SettingError as error:
            raise No(f"{error}\n" if error.out else f"sacctmgr: error: {error}\n") from None
    return found


def add(work: Work, op: PolicyOp) -> None:
    """Accounts that are not there yet, with their associations."""
    if not op.where.get("name"):
        raise No(" Need name of account to add.\n")
    own, settings, parent, _ = split(work, op)
    parent = parent or ROOT
    above = work.book.account(parent)
    if not (work.operator or work.coordinates(parent)):
        raise No(
            " error: Problem adding accounts: Access/permission denied "
            "(Only admins/operators/coordinators can add accounts)\n",
            "ESLURM_ACCESS_DENIED",
        )
    if above is None:
        raise No(
            f" Parent account '{parent}' doesn't exist on cluster "
            f"{work.led.config.cluster_name}\n        Contact your admin to add this account.\n"
            " No associations created.\n"
        )
    for text in op.where["name"]:
        name = good_name(text, "account")
        if name not in work.book.accounts:
            org = name if parent == ROOT else parent
            record = Account(name, name, org)
            record = msgspec.structs.replace(record, **account_fields(work, record, own))
            work.put(record)
            work.say("accounts added", name)
            info = f"description='{record.description}', organization='{record.organization}'"
            work.tell("Add Accounts", name, info)
        elif work.load:
            record = work.book.accounts[name]
            work.put(msgspec.structs.replace(record, **account_fields(work, record, own)))
        if work.book.account(name) is None:
            assoc = Assoc(work.assoc_id(), name, parent=parent, created=work.now)
            fields = limits.values(work, assoc, settings)
            limits.within_parent(work, assoc, fields, parent)
            assoc = replaced(assoc, **fields)
            work.put(assoc)
            work.say_assoc("associations added", assoc)
            work.tell("Add Associations", f"id_assoc={assoc.id}", f"acct='{name}' {fields}")
        elif work.load:
            _one(work, name, settings, parent if op.settings else None)


def matching(work: Work, op: PolicyOp) -> list[str]:
    """Names of the accounts that the conditions name, in the order of the tree."""
    where = op.where
    found = []
    for name, record in work.book.accounts.items():
        assoc = work.book.account(name)
        if assoc is None or not _fits(work, record, assoc, where):
            continue
        found.append(assoc)
    return [one.account for one in lineage(work, found)]


def _fits(work: Work, record: Account, assoc: Assoc, where: dict[str, list[str]]) -> bool:
    have = {
        "name": [record.name],
        "account": [record.name],
        "description": [record.description.lower()],
        "organization": [record.organization.lower()],
        "parent": [assoc.parent],
        "cluster": [work.led.config.cluster_name.lower()],
        "defaultqos": [assoc.default_qos or ""],
        "qos": list(work.book.allowed_qos(assoc)),
        "flags": [flag.lower() for flag in record.flags],
    }
    for key, wanted in where.items():
        if key not in have:
            raise No(f" Unknown condition: {key}={','.join(wanted)}\n")
        if {one.lower() for one in wanted}.isdisjoint(have[key]):
            return False
    return True


def modify(work: Work, op: PolicyOp) -> None:
    if not op.settings:
        raise No(" You didn't give me anything to set\n")
    own, settings, parent, reset = split(work, op)
    names = matching(work, op)
    if not names:
        raise No(" Nothing modified\n", UNCHANGED)
    touched = False
    if own:
        if not work.operator:
            raise limits.denied("Only admins/operators can modify accounts")
        for name in sorted(names):
            record = work.book.accounts[name]
            work.put(msgspec.structs.replace(record, **account_fields(work, record, own)))
            work.say("accounts modified", name)
            info = ", ".join("".join(one) for one in own)
            work.tell("Modify Accounts", f"(name='{name}')", info)
        touched = True
    if settings or parent is not None:
        for name in names:
            touched |= _one(work, name, settings, parent)
    if reset:
        for name in names:
            for one in work.book.subtree(name):
                work.resets.append(one.id)
            work.tell("Modify Associations", f"(acct='{name}')", "usage=0")
        touched = True
    if not touched:
        raise No(" Nothing modified\n", UNCHANGED)


def _one(work: Work, name: str, settings: limits.Settings, parent: str | None) -> bool:
    """An account's association; whether anything was done."""
    assoc = work.book.account(name)
    assert assoc is not None
    if not (work.operator or (assoc.parent and work.coordinates(assoc.parent))):
        raise limits.denied("Only admins/operators/coordinators of the parent can modify accounts")
    fields = limits.values(work, assoc, settings)
    limits.within_parent(work, assoc, fields, assoc.parent)
    limits.check_guarantee(work, assoc, fields)
    if parent is not None and parent != assoc.parent:
        if not _move(work, assoc, parent):
            if not settings:
                return False
        else:
            fields["parent"] = parent
    elif parent is not None and not settings:
        return False
    after = replaced(assoc, **fields)
    if after != assoc or not work.load:
        work.say_assoc("associations modified", assoc)
    below = _heirs(work, assoc, fields)
    work.put(after)
    for one, before in below:
        if work.book.effective(one) != before:
            work.say_assoc("associations modified", one)
    if not work.load and ("qos" in fields or "default_qos" in fields or "parent" in fields):
        limits.check_default_qos(work, [after])
    if after != assoc:
        work.tell("Modify Associations", f"(id_assoc={assoc.id})", limits.shown(fields))
    return True


def _heirs(work: Work, assoc: Assoc, fields: dict[str, object]) -> list[tuple[Assoc, Assoc]]:
    """Users below an account who may inherit what changes, with what they have now."""
    if INHERITED.isdisjoint(fields):
        return []
    below = lineage(work, work.book.subtree(assoc.account))
    return [(one, work.book.effective(one)) for one in below if one.user]


def _move(work: Work, assoc: Assoc, parent: str) -> bool:
    """Whether an account may hang below `parent`; No where it never can."""
    if parent == assoc.account:
        return False
    above = work.book.account(parent)
    if above is None:
        raise No(f" Parent Account {parent} doesn't exist.\n")
    if assoc.account == ROOT:
        raise No(" Error with request: The root account has no parent\n")
    if any(one.account == assoc.account for one in work.book.chain(above)):
        raise No(
            f" Error with request: Account '{parent}' is below '{assoc.account}' and can not "
            "become its parent\n"
        )
    if not (work.operator or work.coordinates(parent)):
        raise limits.denied("A coordinator moves accounts within his own")
    return True


def delete(work: Work, op: PolicyOp) -> None:
    if not op.where:
        raise No(" No conditions given to remove, not executing.\n")
    named = {one.lower() for one in op.where.get("name", ())}
    if ROOT in named:
        raise No(" You are not allowed to remove the root account.\n Use remove cluster instead.\n")
    names = [name for name in matching(work, op) if name != ROOT]
    if not names:
        raise No(" Nothing deleted\n", UNCHANGED)
    if not work.operator:
        raise limits.denied("Only admins/operators can delete accounts")
    _refuse_in_use(work, set(names))
    for name in reversed(names):
        for one in list(work.book.subtree(name))[::-1]:
            work.drop(one)
            if one.user:
                settle_user(work, one.user)
    for name in sorted(names):
        work.drop(work.book.accounts[name])
        _forget_coordinators(work, name)
        work.say("accounts deleted", name)
        work.tell("Remove Accounts", f"name='{name}'")


def _refuse_in_use(work: Work, names: set[str]) -> None:
    """What is used cannot go: accounts with others below them, and with jobs."""
    children = [
        one
        for one in work.book.assocs.values()
        if one.is_account and one.parent in names and one.account not in names
    ]
    if children:
        cluster = work.led.config.cluster_name
        lines = "".join(
            f"  A = {one.account:<10} C = {cluster:<10} Parent = {one.parent}\n"
            for one in lineage(work, children)
        )
        raise No(
            " Error with request: Account(s) have accounts below them, delete or move these "
            f"first\n{lines}"
        )
    ids = {one.id for one in work.book.assocs.values() if one.account in names}
    refuse_jobs(work, ids)


def refuse_jobs(work: Work, ids: set[int]) -> None:
    """Associations with jobs that have not ended cannot go."""
    active = [
        job
        for job in work.led.jobs.values()
        if job.assoc_id in ids and (not job.finished or job.completing)
    ]
    if active:
        cluster = work.led.config.cluster_name
        lines = "".join(
            f"  JobID = {job.id:<10} C = {cluster:<10} A = {job.spec.account:<10} "
            f"U = {job.user:<9}\n"
            for job in sorted(active, key=lambda job: job.id)
        )
        raise No(f" Error with request: Job(s) active, cancel job(s) before remove\n{lines}")


def settle_user(work: Work, user: str) -> None:
    """A user lost an association: his default account is one that he still has."""
    record = work.book.users.get(user)
    if record is None:
        return
    accounts = [one.account for one in work.book.of_user(user)]
    if record.default_account not in accounts:
        first = accounts[0] if accounts else ""
        work.put(msgspec.structs.replace(record, default_account=first))


def _forget_coordinators(work: Work, account: str) -> None:
    for user in list(work.book.users.values()):
        if account in user.coordinator:
            left = tuple(one for one in user.coordinator if one != account)
            work.put(msgspec.structs.replace(user, coordinator=left))


__all__ = ["NORMAL", "add", "delete", "good_name", "lineage", "modify", "refuse_jobs"]
