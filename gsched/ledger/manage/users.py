"""Users: their associations, defaults, levels and WCKeys."""

from __future__ import annotations

from typing import Any

import msgspec

from gsched.ledger.manage import limits, tree
from gsched.ledger.manage.work import ACCESS, UNCHANGED, No, Work, replaced
from gsched.model.policy import Assoc, User, Wckey
from gsched.policy.settings import ADMIN_LEVELS
from gsched.wire.messages import PolicyOp

#: settings of the user himself
_OWN = ("adminlevel", "defaultaccount", "defaultwckey", "newname", "rawusage")


def level(text: str) -> str:
    """An admin level in any case, or a beginning of one. No."""
    low = text.strip().lower()
    for one in ADMIN_LEVELS:
        if low and one.lower().startswith(low):
            return one
    raise No(f" Bad admin level '{text}'. Valid levels are {', '.join(ADMIN_LEVELS)}\n")


def _split(op: PolicyOp) -> tuple[dict[str, str], limits.Settings]:
    own: dict[str, str] = {}
    settings: limits.Settings = []
    for name, sign, text in op.settings:
        low = name.lower()
        if low in _OWN:
            own[low] = text
        else:
            settings.append((name, sign, text))
    return own, settings


def add(work: Work, op: PolicyOp) -> None:
    """Users, and their associations: each user in each account (and partition)."""
    where = op.where
    names = [tree.good_name(one, "user") for one in where.get("name", [])]
    if not names:
        raise No(" Need name of user to add.\n")
    own, settings = _split(op)
    accounts = [one.lower() for one in where.get("account", [])]
    default = own.get("defaultaccount", "").lower()
    if default and default not in accounts:
        accounts.append(default)
    wckeys = list(dict.fromkeys([*where.get("wckey", []), own.get("defaultwckey", "")]))
    wckeys = [one for one in wckeys if one]
    if not accounts and not (wckeys and all(name in work.book.users for name in names)):
        raise No(" Need name of account to add user to.\n")
    allowed = work.operator or (
        bool(accounts) and all(work.coordinates(one) for one in accounts if one)
    )
    if not allowed:
        raise No(
            " error: Problem adding user associations: Access/permission denied "
            "(Only admins/operators/coordinators can add accounts)\n",
            ACCESS,
        )
    for one in accounts:
        if work.book.account(one) is None:
            raise No(
                f" This account '{one}' doesn't exist.\n"
                "        Contact your admin to add this account.\n"
                " No associations or wckeys created.\n"
            )
    for name in names:
        _add_one(work, name, accounts, where.get("partition") or [""], own, settings)
        for key in wckeys:
            _add_wckey(work, name, key)
        if own.get("defaultwckey"):
            _default_wckey(work, name, own["defaultwckey"])


def _add_one(
    work: Work,
    name: str,
    accounts: list[str],
    partitions: list[str],
    own: dict[str, str],
    settings: limits.Settings,
) -> None:
    user = work.book.users.get(name)
    if user is None:
        user = User(name, default_account=own.get("defaultaccount", "").lower() or accounts[0])
        if "adminlevel" in own:
            user.admin_level = _may_level(work, own["adminlevel"])
        work.put(user)
        work.say("users added", name)
        work.tell("Add Users", name, f"admin_level={user.admin_level}")
    elif work.load and "adminlevel" in own:
        work.put(msgspec.structs.replace(user, admin_level=_may_level(work, own["adminlevel"])))
    new = False
    for account in accounts:
        for partition in partitions:
            known = work.book.exact(account, name, partition)
            if known is not None:
                if work.load and settings:
                    _assoc(work, known, settings)
                continue
            if partition and partition not in work.led.config.partitions and not work.load:
                raise No(f" Error with request: Invalid partition name specified: {partition}\n")
            assoc = Assoc(work.assoc_id(), account, name, partition, parent="", created=work.now)
            fields = limits.values(work, assoc, settings)
            limits.within_parent(work, assoc, fields, account)
            limits.check_guarantee(work, assoc, fields)
            assoc = replaced(assoc, **fields)
            work.put(assoc)
            work.say_assoc("associations added", assoc)
            info = f"user='{name}', acct='{account}', partition='{partition}'"
            work.tell("Add Associations", f"id_assoc={assoc.id}", info)
            new = True
    user = work.book.users[name]
    wanted = own.get("defaultaccount", "").lower()
    if wanted and (new or work.load) and user.default_account != wanted:
        work.put(msgspec.structs.replace(user, default_account=wanted))
    elif not user.default_account and accounts:
        work.put(msgspec.structs.replace(user, default_account=accounts[0]))


def _may_level(work: Work, text: str) -> str:
    wanted = level(text)
    if wanted != "None" and not work.admin:
        raise _super()
    return wanted


def _super() -> No:
    return No(
        "sacctmgr: error: You must be a super user to modify a users admin level\n"
        " Error with request: Access/permission denied\n",
        ACCESS,
    )


def _add_wckey(work: Work, user: str, key: str) -> None:
    if any(one.user == user and one.name == key for one in work.book.wckeys.values()):
        return
    if len(key) > tree.MAX_NAME or "," in key or not key.isprintable():
        raise No(f" Error with request: Invalid name of wckey: {key[:64]!r}\n")
    record = Wckey(work.wckey_id(), key, user)
    work.put(record)
    work.say("wckeys added", user, key)
    work.tell("Add WCKeys", f"id_wckey={record.id}", f"wckey_name='{key}', user='{user}'")


def _default_wckey(work: Work, user: str, key: str) -> None:
    mine = [one for one in work.book.wckeys.values() if one.user == user]
    for one in mine:
        if one.default != (one.name == key):
            work.put(msgspec.structs.replace(one, default=one.name == key))
    work.put(msgspec.structs.replace(work.book.users[user], default_wckey=key))


# ---- which ones ---------------------------------------------------------------------------------

_OF_ASSOC = ("account", "partition", "cluster", "parent", "defaultqos", "qos", "id")
_OF_USER = ("name", "user", "adminlevel", "defaultaccount", "defaultwckey", "wckey")


def _users(work: Work, where: dict[str, list[str]]) -> list[User]:
    """Those whose own fields fit, by name."""
    found = []
    named = where.get("name")
    every = work.book.users
    some = every.values()
    if named is not None:
        low_names = dict.fromkeys(one.lower() for one in named)
        some = {name: every[name] for name in low_names if name in every}.values()
    for user in some:
        keys = [one.name for one in work.book.wckeys.values() if one.user == user.name]
        have = {
            "name": [user.name],
            "user": [user.name],
            "adminlevel": [user.admin_level.lower()],
            "defaultaccount": [user.default_account],
            "defaultwckey": [user.default_wckey],
            "wckey": keys,
        }
        fits = True
        for key, wanted in where.items():
            if key not in have:
                if key not in _OF_ASSOC:
                    raise No(f" Unknown condition: {key}={','.join(wanted)}\n")
                continue
            if key == "adminlevel":
                wanted = [level(one).lower() for one in wanted]
            low = wanted if key in ("wckey", "defaultwckey") else [one.lower() for one in wanted]
            fits = fits and not set(low).isdisjoint(have[key])
        if fits:
            found.append(user)
    return sorted(found, key=lambda user: user.name)


def associations(work: Work, where: dict[str, list[str]]) -> list[Assoc]:
    """The associations of users that fit, in the order of the tree."""
    names = {user.name for user in _users(work, where)}
    found = [one for name in names for one in work.book.of_user(name)]
    for key, wanted in where.items():
        low = {one.lower() for one in wanted}
        if key == "account" or key == "parent":
            found = [one for one in found if one.account in low]
        elif key == "partition":
            found = [one for one in found if one.partition in wanted]
        elif key == "cluster":
            found = found if work.led.config.cluster_name.lower() in low else []
        elif key == "defaultqos":
            found = [one for one in found if (one.default_qos or "") in low]
        elif key == "qos":
            found = [one for one in found if not low.isdisjoint(work.book.allowed_qos(one))]
        elif key == "id":
            found = [one for one in found if str(one.id) in wanted]
    return tree.lineage(work, found)


# ---- modify -------------------------------------------------------------------------------------


def modify(work: Work, op: PolicyOp) -> None:
    if not op.settings:
        raise No(" You didn't give me anything to set\n")
    own, settings = _split(op)
    touched = False
    if "rawusage" in own:
        touched = _reset(work, op, own.pop("rawusage"))
    # Before the user's new name: the conditions name him as he is called now.
    first = bool(settings) and "newname" in own
    if first:
        touched |= _limits(work, op, settings)
    if own:
        touched |= _modify_users(work, op, own)
    if settings and not first:
        touched |= _limits(work, op, settings)
    if not touched:
        raise No(" Nothing modified\n", UNCHANGED)


def _limits(work: Work, op: PolicyOp, settings: limits.Settings) -> bool:
    found = associations(work, op.where)
    for assoc in found:
        _assoc(work, assoc, settings)
    return bool(found)


def _assoc(work: Work, assoc: Assoc, settings: limits.Settings) -> None:
    if not (work.operator or work.coordinates(assoc.account)):
        raise limits.denied("Only admins/operators/coordinators can modify associations")
    fields = limits.values(work, assoc, settings)
    limits.within_parent(work, assoc, fields, assoc.account)
    limits.check_guarantee(work, assoc, fields)
    after = replaced(assoc, **fields)
    work.put(after)
    if after != assoc or not work.load:
        work.say_assoc("associations modified", assoc)
    if not work.load and ("qos" in fields or "default_qos" in fields):
        limits.check_default_qos(work, [after])
    if after != assoc:
        work.tell("Modify Associations", f"(id_assoc={assoc.id})", limits.shown(fields))


def _reset(work: Work, op: PolicyOp, text: str) -> bool:
    if not op.where.get("account"):
        raise No("sacctmgr: error: An account must be specified\n")
    if text.strip() not in ("0", "0.0"):
        raise No("sacctmgr: error: RawUsage can be set to 0 alone\n")
    if not work.admin:
        raise limits.denied("Only admins can reset usage")
    found = associations(work, op.where)
    work.resets += [one.id for one in found]
    for one in found:
        work.tell("Modify Associations", f"(id_assoc={one.id})", "usage=0")
    return bool(found)


def _modify_users(work: Work, op: PolicyOp, own: dict[str, str]) -> bool:
    found = _users(work, op.where)
    if op.where.get("account"):
        in_them = {one.user for one in associations(work, op.where)}
        found = [user for user in found if user.name in in_them]
    if not found:
        return False
    if "newname" in own and len(found) > 1:
        raise No(
            "sacctmgr: error: Can only change one at a time\n"
            " Error with request: Can only change one at a time\n"
            " If you are changing a users name you can only specify 1 user at a time.\n"
        )
    for user in found:
        _may_modify(work, user, own)
    _have(work, found, "default account", "account", own.get("defaultaccount", ""))
    _have(work, found, "default wckey", "wckey", own.get("defaultwckey", ""))
    for user in found:
        fields: dict[str, Any] = {}
        if "adminlevel" in own:
            fields["admin_level"] = level(own["adminlevel"])
        if "defaultaccount" in own:
            fields["default_account"] = own["defaultaccount"].lower()
        before = work.count()
        work.put(msgspec.structs.replace(user, **fields))
        if "defaultwckey" in own:
            _default_wckey(work, user.name, own["defaultwckey"])
        if work.load and work.count() == before:
            continue
        work.say("users modified", user.name)
        info = ", ".join(f"{key}='{text}'" for key, text in own.items())
        work.tell("Modify Users", f"(name='{user.name}')", info)
        if "newname" in own:
            _rename(work, work.book.users[user.name], own["newname"])
    return True


def _may_modify(work: Work, user: User, own: dict[str, str]) -> None:
    if "adminlevel" in own and not work.admin:
        if work.call.user == user.name and not work.operator:
            raise No(
                "sacctmgr: error: You can only change your own default account, default wckey "
                "nothing else\n Error with request: Access/permission denied\n",
                ACCESS,
            )
        if not work.operator:
            raise limits.denied("Only admins can set an admin level")
        raise _super()
    if "newname" in own and user.admin_level != "None" and not work.admin:
        # Who bears the new name would have the level.
        raise limits.denied("Only admins can rename a user who has an admin level")
    if work.operator:
        return
    harmless = not {"newname", "adminlevel"} & own.keys()
    if harmless and work.call.user == user.name:
        return
    mine = any(
        work.coordinates(one.account) for one in work.book.assocs.values() if one.user == user.name
    )
    if harmless and mine and work.coordinates(own.get("defaultaccount", "").lower()):
        return
    raise limits.denied("Only admins/operators/coordinators can modify users")


def _have(work: Work, users: list[User], what: str, kind: str, name: str) -> None:
    """Each has an association with an account, or a WCKey, that is to be his default."""
    if not name:
        return
    lines = []
    for user in users:
        if kind == "account":
            has = any(one.account == name.lower() for one in work.book.of_user(user.name))
        else:
            has = any(
                one.user == user.name and one.name == name for one in work.book.wckeys.values()
            )
        if not has:
            lines.append(f"  U = {user.name} C = {work.led.config.cluster_name}\n")
    if lines:
        raise No(
            f" Can't modify because these users aren't associated with new {what} '{name}'...\n"
            + "".join(lines),
            UNCHANGED,
        )


def _rename(work: Work, user: User, text: str) -> None:
    name = tree.good_name(text, "user")
    if name == user.name:
        return
    if name in work.book.users:
        raise No(f" Error with request: User '{name}' exists already\n")
    work.drop(user)
    work.put(msgspec.structs.replace(user, name=name))
    for assoc in work.book.of_user(user.name):
        work.put(replaced(assoc, user=name))
    for key in [one for one in work.book.wckeys.values() if one.user == user.name]:
        work.put(msgspec.structs.replace(key, user=name))


# ---- delete -------------------------------------------------------------------------------------


def delete(work: Work, op: PolicyOp) -> None:
    where = op.where
    if not where:
        raise No(" No conditions given to remove, not executing.\n")
    if where.get("wckey"):
        _delete_wckeys(work, where)
        return
    of_assoc = [key for key in where if key in _OF_ASSOC and key != "cluster"]
    found = associations(work, where)
    if not of_assoc:
        users = _users(work, where)
        if not users:
            raise No(" Nothing deleted\n", UNCHANGED)
        if not work.operator:
            raise limits.denied("Only admins/operators can delete users")
        _drop_assocs(work, [one for user in users for one in _of(work, user.name)])
        for user in users:
            _drop_user(work, user.name)
            work.say("users deleted", user.name)
        return
    if not found:
        raise No(" Nothing deleted\n", UNCHANGED)
    if not all(work.operator or work.coordinates(one.account) for one in found):
        raise limits.denied("Only admins/operators/coordinators can delete associations")
    _drop_assocs(work, found)
    for one in found:
        work.say_assoc("associations deleted", one)
        work.tell("Remove Associations", f"id_assoc={one.id}")
    for name in sorted({one.user for one in found}):
        if not _of(work, name):
            if not work.operator:
                continue
            _drop_user(work, name)
            work.say("users without associations", name)


def _of(work: Work, user: str) -> list[Assoc]:
    return work.book.of_user(user)


def _drop_assocs(work: Work, found: list[Assoc]) -> None:
    tree.refuse_jobs(work, {one.id for one in found})
    for one in found:
        work.drop(one)
        tree.settle_user(work, one.user)


def _drop_user(work: Work, name: str) -> None:
    for key in [one for one in work.book.wckeys.values() if one.user == name]:
        work.drop(key)
    work.drop(work.book.users[name])
    work.tell("Remove Users", f"name='{name}'")


def _delete_wckeys(work: Work, where: dict[str, list[str]]) -> None:
    users = {user.name for user in _users(work, where)}
    found = [
        key for key in work.book.wckeys.values() if key.user in users and key.name in where["wckey"]
    ]
    if not found:
        raise No(" Nothing deleted\n", UNCHANGED)
    if not work.operator:
        raise limits.denied("Only admins/operators can delete WCKeys")
    for key in found:
        work.drop(key)
        user = work.book.users[key.user]
        if user.default_wckey == key.name:
            work.put(msgspec.structs.replace(user, default_wckey=""))
        work.say("wckeys deleted", key.user, key.name)
        work.tell("Remove WCKeys", f"id_wckey='{key.id}'")


__all__ = ["add", "associations", "delete", "modify"]
