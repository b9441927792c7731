"""sacctmgr's `add`, `modify` and `delete`: asks the ledger, says what it would do, asks whether it
shall, and has it done."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from gsched import tres
from gsched.model.policy import ROOT, Assoc, Qos
from gsched.policy import settings
from gsched.policy.settings import Known, SettingError
from gsched.wire.messages import Done, Refused
from gsched.wire.policy import ManagePolicy, PolicyDone, PolicyOp
from gsched_cli import sacctmgr_fields as fields
from gsched_cli import sacctmgr_outside
from gsched_cli.sacctmgr_list import State
from gsched_cli.stop import Stop, asking

if TYPE_CHECKING:
    from gsched_cli.common import Reader, Streams

#: the ledger's code for "nothing was there to change"
UNCHANGED = "SLURM_NO_CHANGE_IN_DATA"
QUESTION = "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): "
SURE = "Are you sure you want to continue? (You have 30 seconds to decide)\n(N/y): "
#: seconds
PATIENCE = 30.0


def known(state: State) -> Known:
    """What values may name, by what is there now."""
    by_id = sorted(state.book.qos.values(), key=lambda one: one.id)
    return Known([one.name for one in by_id], settings.limitable(state.config))


def check(state: State, op: PolicyOp) -> None:
    """Wrong values are found before anybody is asked. Stop with Slurm's sentences."""
    table = settings.QOS if op.entity == "qos" else settings.ASSOC
    own = settings.ACCOUNT if op.entity == "account" else ()
    for name, sign, text in op.settings:
        setting = settings.find(name, own) or settings.find(name, table)
        if setting is None or name.lower() in ("parent", "newname"):
            continue
        try:
            setting.parse(None, sign, text, known(state), setting.names[0])
        except SettingError as error:
            option = f"{name}{sign}{text}"
            said = str(error).replace("{option}", option)
            if not error.out and not error.alone:
                said = f"sacctmgr: error: {said}"
            if op.verb == "modify" and not error.alone:
                said += f"\n Unknown option: {option}\n Use keyword 'where' to modify condition"
            raise Stop(1, said + "\n") from None


def settled(
    reader: Reader,
    streams: Streams,
    ops: Sequence[PolicyOp],
    report: Callable[[list[PolicyDone]], str],
    *,
    immediate: bool,
    load: bool = False,
) -> int:
    """Has changes made, after a question where they are not to be made at once. The exit code."""
    if not immediate:
        # The terminal is asked: a worker cannot.
        streams.files.own()
    done = _ask(reader, streams, ManagePolicy(list(ops), dry=not immediate, load=load))
    if done is None:
        return 1
    streams.stdout.write(report(done))
    if immediate:
        return 0
    if not agreed(streams, QUESTION):
        streams.stdout.write(" Changes Discarded\n")
        return 0
    return 1 if _ask(reader, streams, ManagePolicy(list(ops), load=load)) is None else 0


def _ask(reader: Reader, streams: Streams, write: ManagePolicy) -> list[PolicyDone] | None:
    reply = asking(lambda: reader.call(write), "sacctmgr: error:")
    if isinstance(reply, Refused):
        out = streams.stdout if reply.code == UNCHANGED else streams.stderr
        out.write(reply.message if reply.message.endswith("\n") else f" {reply.message}\n")
        return None
    assert isinstance(reply, Done)
    return msgspec.json.decode(reply.data or "[]", type=list[PolicyDone])


def agreed(streams: Streams, question: str) -> bool:
    """Whether the user says yes within half a minute; no answer is no."""
    streams.stdout.write(question)
    streams.stdout.flush()
    while True:
        if not _answers(streams):
            streams.stdout.write("\ntimeout\n")
            return False
        line = streams.stdin.readline()
        if not streams.stdin.isatty():
            streams.stdout.write("\n")
        word = line.strip().lower()
        if word in ("y", "yes"):
            return True
        if not line or word in ("", "n", "no"):
            return False
        streams.stdout.write("Y or N please\n(N/y): ")
        streams.stdout.flush()


def _answers(streams: Streams) -> bool:
    try:
        if not streams.stdin.isatty():
            return True
        return bool(select.select([streams.stdin.fileno()], [], [], PATIENCE)[0])
    except (OSError, ValueError):
        return True


# ---- what was done ------------------------------------------------------------------------------


def report(state: State, op: PolicyOp) -> Callable[[list[PolicyDone]], str]:
    """How a command tells what it does."""

    def text(done: list[PolicyDone]) -> str:
        by = {one.what: one.items for one in done}
        if op.verb == "add":
            return _ADDED[op.entity](state, op, by)
        head = ""
        if op.verb == "modify" and op.entity == "federation":
            head = sacctmgr_outside.federation_settings(op)
        return head + "".join(_CHANGED[what](state, items) for what, items in by.items() if items)

    return text


By = dict[str, list[list[str]]]


def _given(op: PolicyOp, *keys: str) -> str | None:
    for name, _, text in op.settings:
        low = name.lower()
        if low and any(key.startswith(low) for key in keys):
            return text.replace("'", "`")
    return None


def limits(state: State, op: PolicyOp, parent: str | None) -> str:
    """What is set of associations, in Slurm's order."""
    from gsched.policy.settings import changed

    taken = [one for one in op.settings if settings.find(one[0], settings.ASSOC) is not None]
    if op.entity == "account":
        taken = [one for one in taken if settings.find(one[0], settings.ACCOUNT) is None]
    taken = [one for one in taken if one[0].lower() != "parent"]
    found = Assoc(0, "")
    for name, sign, text in taken:
        # The QOS list is shown as it was given, with its + and -.
        part = changed(found, {name: (sign, text)}, known(state))
        found = msgspec.structs.replace(found, **part)
    names = tres.tracked(state.config)
    lines = []

    def line(label: str, text: str, width: int = 14) -> None:
        if text:
            lines.append(f"  {label:<{width}}= {text}\n")

    number, wall = fields.number, fields.wall
    given = [settings.find(one[0], settings.ASSOC) for one in taken]
    shared = any(one is not None and one.field == "shares" for one in given)
    line("Fairshare", fields.shares(found.shares) if shared else "")
    line("GrpJobs", number(found.grp_jobs))
    line("GrpJobsAccrue", number(found.grp_jobs_accrue), 25)
    line("GrpSubmitJobs", number(found.grp_submit_jobs))
    line("GrpTRES", tres.text(found.grp_tres, names))
    line("GrpTRESMins", tres.text(found.grp_tres_mins, names))
    line("GrpTRESRunMins", tres.text(found.grp_tres_run_mins, names))
    line("GrpWall", wall(found.grp_wall))
    line("MaxJobs", number(found.max_jobs))
    line("MaxJobsPrioAcc", number(found.max_jobs_accrue))
    line("MaxSubmitJobs", number(found.max_submit_jobs))
    line("MaxTRES", tres.text(found.max_tres_per_job, names))
    line("MaxTRESPerNode", tres.text(found.max_tres_per_node, names))
    line("MaxTRESMins", tres.text(found.max_tres_mins_per_job, names))
    line("MaxTRESRunMins", tres.text(found.max_tres_run_mins, names))
    line("MaxWall", wall(found.max_wall))
    line("MinPrioThresh", number(found.min_prio_thresh))
    line("Parent", parent or "")
    line("Priority", number(found.priority))
    line("QOS", ",".join(sorted(found.qos or ())))
    line("DefQOS", found.default_qos or "")
    line("Comment", found.comment)
    line("GrpTRESGuarantee", tres.text(found.guarantee, names), 17)
    line("GrpTRESBorrow", tres.text(found.borrow, names), 17)
    line("GrpTRESLend", tres.text(found.lend, names), 17)
    line("GuaranteeUnit", found.guarantee_unit, 17)
    return "".join(lines)


def _accounts_added(state: State, op: PolicyOp, by: By) -> str:
    text = ""
    if by.get("accounts added"):
        text += " Adding Account(s)\n"
        text += "".join(f"  {name}\n" for (name,) in by["accounts added"])
        description = _given(op, "description") or "Account Name"
        organization = _given(op, "organization") or "Parent/Account Name"
        text += f" Settings\n  Description     = {description}\n"
        text += f"  Organization    = {organization}\n"
    if by.get("associations added"):
        text += " Associations\n"
        for account, *_ in by["associations added"]:
            text += f"  A = {account:<10} C = {state.cluster:<10}\n"
        if op.settings:
            parent = (_given(op, "parent") or ROOT).lower()
            text += " Settings\n" + limits(state, op, parent)
    return text


def _users_added(state: State, op: PolicyOp, by: By) -> str:
    text = ""
    if by.get("users added"):
        text += " Adding User(s)\n"
        text += "".join(f"  {name}\n" for (name,) in by["users added"])
        account, level = _given(op, "defaultaccount"), _given(op, "adminlevel")
        if account or level:
            text += " Settings =\n"
        if account:
            text += f"  Default Account = {account.lower()}\n"
        if level:
            full = [one for one in settings.ADMIN_LEVELS if one.lower().startswith(level.lower())]
            text += f"  Admin Level     = {full[0] if full else level}\n"
    if by.get("associations added"):
        text += " Associations =\n"
        for account, _, user, partition in by["associations added"]:
            part = f" P = {partition:<10}" if partition else ""
            text += f"  U = {user:<9} A = {account:<10} C = {state.cluster:<10}{part}\n"
    if by.get("wckeys added"):
        text += " WCKeys =\n"
        for user, key in by["wckeys added"]:
            text += f"  U = {user:<9} W = {key:<10} C = {state.cluster:<10}\n"
    return text + " Non Default Settings\n" + limits(state, op, None)


#: in Slurm's order: (label, field, how it is written)
_QOS_SHOWN: tuple[tuple[str, str, str], ...] = (
    ("Flags", "flags", "list"),
    ("GraceTime", "grace_time", "number"),
    ("GrpJobs", "grp_jobs", "number"),
    ("GrpJobsAccrue", "grp_jobs_accrue", "number"),
    ("GrpSubmitJobs", "grp_submit_jobs", "number"),
    ("GrpTRES", "grp_tres", "tres"),
    ("GrpTRESMins", "grp_tres_mins", "tres"),
    ("GrpTRESRunMins", "grp_tres_run_mins", "tres"),
    ("GrpWall", "grp_wall", "wall"),
    ("MaxJobsAccruePerAccount", "max_jobs_accrue_pa", "number"),
    ("MaxJobsAccruePerUser", "max_jobs_accrue_pu", "number"),
    ("MaxJobsPerAccount", "max_jobs_pa", "number"),
    ("MaxJobsPerUser", "max_jobs_pu", "number"),
    ("MaxSubmitJobsPerAccount", "max_submit_jobs_pa", "number"),
    ("MaxSubmitJobsPerUser", "max_submit_jobs_pu", "number"),
    ("MaxTRESPerAccount", "max_tres_pa", "tres"),
    ("MaxTRESPerJob", "max_tres_per_job", "tres"),
    ("MaxTRESPerNode", "max_tres_per_node", "tres"),
    ("MaxTRESPerUser", "max_tres_pu", "tres"),
    ("MinPrioThresh", "min_prio_thresh", "number"),
    ("MinTRESPerJob", "min_tres_per_job", "tres"),
    ("MaxTRESMins", "max_tres_mins_per_job", "tres"),
    ("MaxTRESRUNMinsPerAccount", "max_tres_run_mins_pa", "tres"),
    ("MaxTRESRUNMinsPerUser", "max_tres_run_mins_pu", "tres"),
    ("MaxWall", "max_wall", "wall"),
    ("Preempt", "preempt", "list"),
    ("PreemptMode", "preempt_mode", "upper"),
    ("PreemptExemptTime", "preempt_exempt_time", "seconds"),
    ("Priority", "priority", "number"),
    ("UsageFactor", "usage_factor", "factor"),
    ("UsageThreshold", "usage_thres", "factor"),
    ("LimitFactor", "limit_factor", "factor"),
)


def _qos_added(state: State, op: PolicyOp, by: By) -> str:
    from gsched.policy.settings import changed

    added = [name for (name,) in by.get("qos added", [])]
    record = Qos(0, "")
    given: set[str] = set()
    for name, sign, text in op.settings:
        part = changed(record, {name: (sign, text)}, known(state))
        given |= part.keys()
        record = msgspec.structs.replace(record, **part)
    out = " Adding QOS(s)\n" + "".join(f"  {name}\n" for name in added) + " Settings\n"
    description = record.description or (added[-1] if added else "")
    out += f"  Description    = {description}\n"
    for label, field, how in _QOS_SHOWN:
        if field not in given:
            continue
        value = getattr(record, field)
        if value is None or value == () or value == {}:
            continue
        width = 14 if label == "MaxJobsPerUser" else 24
        out += f"  {label:<{width}} = {_written(state, value, how)}\n"
    return out


def _written(state: State, value: object, how: str) -> str:
    if isinstance(value, dict):
        return tres.text(value, tres.tracked(state.config))
    if isinstance(value, tuple):
        return ",".join(value if how == "list" else map(str, value))
    if how == "wall" and isinstance(value, int):
        return fields.wall(value)
    if how == "seconds" and isinstance(value, int):
        return fields.seconds(value)
    if how == "factor" and isinstance(value, (int, float)):
        return f"{value:.4f}"
    return str(value).upper() if how == "upper" else str(value)


def _coordinators_added(state: State, op: PolicyOp, by: By) -> str:
    users = "".join(f"  {name}\n" for name in op.where.get("name", []))
    accounts = "".join(f"  {name}\n" for name in op.where.get("account", []))
    return f" Adding Coordinator User(s)\n{users} To Account(s) and all sub-accounts\n{accounts}"


_ADDED: dict[str, Callable[[State, PolicyOp, By], str]] = {
    "account": _accounts_added,
    "user": _users_added,
    "qos": _qos_added,
    "coordinator": _coordinators_added,
    "cluster": lambda state, op, by: "",
    "federation": sacctmgr_outside.federations_added,
    "resource": sacctmgr_outside.resources_added,
}


def _named(head: str) -> Callable[[State, list[list[str]]], str]:
    return lambda state, items: head + "".join(f"  {one[0]}\n" for one in items)


def _assocs_modified(state: State, items: list[list[str]]) -> str:
    # Below an account the users that inherit what is set come after it.
    kind = "user" if items[0][2] else "account"
    text = f" Modified {kind} associations...\n"
    for account, parent, user, partition in items:
        if user:
            part = f" P = {partition}" if partition else ""
            text += f"  C = {state.cluster:<10} A = {account:<20} U = {user:<9}{part}\n"
        else:
            of = f" of {parent}" if parent else ""
            text += f"  C = {state.cluster:<10} A = {account}{of}\n"
    return text


def _assocs_deleted(state: State, items: list[list[str]]) -> str:
    text = " Deleting user associations...\n"
    for account, _, user, partition in items:
        part = f" P = {partition}" if partition else ""
        text += f"  C = {state.cluster:<10} A = {account:<10} U = {user:<9}{part}\n"
    return text


def _wckeys_deleted(state: State, items: list[list[str]]) -> str:
    return " Deleting user WCKeys...\n" + "".join(
        f"  C = {state.cluster:<10} W = {key:<20} U = {user:<9}\n" for user, key in items
    )


def _coordinators_removed(state: State, items: list[list[str]]) -> str:
    return " Removed Coordinators (sub accounts not listed)...\n" + "".join(
        f"  U = {user:<9} A = {account:<10}\n" for user, account in items
    )


def _clusters_modified(state: State, items: list[list[str]]) -> str:
    text = " Modified cluster defaults for associations...\n"
    for account, _, user, _ in items:
        who = f"A = {account:<20} U = {user:<9}" if user else f"A = {account}"
        text += f"  C = {state.cluster:<10} {who}\n"
    return text


_CHANGED: dict[str, Callable[[State, list[list[str]]], str]] = {
    "accounts modified": _named(" Modified accounts...\n"),
    "accounts deleted": _named(" Deleting accounts...\n"),
    "associations modified": _assocs_modified,
    "associations deleted": _assocs_deleted,
    "users modified": _named(" Modified users...\n"),
    "users deleted": _named(" Deleting users...\n"),
    "users without associations": _named(" Deleting users (No Associations)...\n"),
    "qos modified": _named(" Modified qos...\n"),
    "qos deleted": _named(" Deleting QOS(s)...\n"),
    "wckeys deleted": _wckeys_deleted,
    "coordinators removed": _coordinators_removed,
    "clusters modified": _clusters_modified,
    "clusters set": _named(" Modified cluster...\n"),
    "federations modified": _named(" Modified federation...\n"),
    "federations deleted": _named(" Deleting federations...\n"),
    "resources modified": sacctmgr_outside.resources_modified,
    "resources deleted": sacctmgr_outside.resources_deleted,
}


def loaded(state: State) -> Callable[[list[PolicyDone]], str]:
    """How `load` tells what it does."""
    heads = {
        "qos added": " Adding QOS(s)\n",
        "accounts added": " Accounts\n",
        "users added": " Users\n",
    }

    def text(done: list[PolicyDone]) -> str:
        out = ""
        for one in done:
            if one.what in heads:
                out += heads[one.what] + "".join(f"  {item[0]}\n" for item in one.items)
            elif one.what == "associations added":
                out += " Associations\n"
                for account, parent, user, partition in one.items:
                    of = f" U = {user:<9}" if user else f" Parent = {parent}"
                    part = f" P = {partition}" if partition else ""
                    out += f"  A = {account:<10}{of}{part}\n"
            elif one.what in _CHANGED:
                out += _CHANGED[one.what](state, one.items)
        return out or " Nothing new added.\n"

    return text


def asked_of_coordinators(op: PolicyOp) -> str:
    """What `delete coordinator` says before it begins."""
    users, accounts = op.where.get("name", []), op.where.get("account", [])
    text = ""
    if users:
        text += " Removing Coordinators with user name\n" + "".join(f"  {x}\n" for x in users)
    if accounts:
        text += " From Account(s)\n" + "".join(f"  {one}\n" for one in accounts)
    return text
