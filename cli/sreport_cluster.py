"""sreport cluster ... and user ...: usage by account, user and WCKey, and the cluster's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gsched.model.policy import Assoc
from gsched.wire.policy import PolicyQuery
from gsched.wire.report import ClusterRow, ReportRows, UsageRow
from gsched_cli.columns import Column
from gsched_cli.common import Reader, Streams
from gsched_cli.sreport_settings import (
    Conditions,
    Settings,
    amount,
    ask,
    chosen_tres,
    cluster_of,
    conditions,
    report,
    spans,
    usage_words,
)

NAME = "sreport"


# ---- the cluster's time ----------------------------------------------------------------------


def utilization(settings: Settings, words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """How the time of the cluster was spent."""
    wanted = conditions(words, (), int(reader.now()), streams.stderr)
    found = ask(NAME, "cluster", wanted, settings, streams, reader)
    rows = {row.tres: row for row in found.rows if isinstance(row, ClusterRow)}
    names = chosen_tres(settings, rows, ["cpu"])
    # How much of the time nodes were in use says nothing where jobs share them.
    names = [name for name in names if name != "node"]
    if rows:
        nothing = (0, 0, 0, 0, 0, 0, 0, 0)
        rows |= {name: ClusterRow(name, *nothing) for name in names if name not in rows}
    length = wanted.end - wanted.start
    cluster = cluster_of(reader)
    wide = settings.unit.percent and settings.unit.seconds > 0

    def spent(name: str, header: str, small: int = 8, large: int = 17) -> Column[ClusterRow]:
        def read(row: ClusterRow) -> str:
            # What is reported is compared with all that there could have been.
            total = row.count * length if name == "reported" else row.reported
            return amount(settings, getattr(row, name), total)

        most = max((getattr(rows[each], name) for each in names if each in rows), default=0)
        more = max(len(str(most)) - 8, 0)
        return Column(header, (large if wide else small) + more, read)

    columns: list[Column[ClusterRow]] = [
        spent("allocated", "Allocated"),
        Column("Cluster", 9, lambda row: cluster),
        Column("TRES Count", 10, lambda row: str(row.count)),
        spent("down", "Down"),
        spent("idle", "Idle"),
        spent("overcommitted", "Over Comm", 9),
        spent("planned", "Planned"),
        spent("planned_down", "PLND Down"),
        spent("reported", "Reported"),
        Column("TRES Name", 14, lambda row: row.tres),
    ]
    asked = {
        "trescount": "TRES Count",
        "tresname": "TRES Name",
        "overcommitted": "Over Comm",
        "planneddown": "PLND Down",
    }
    default = "Cluster,Allocated,Down,PLND Down,Idle,Planned,Reported"
    if settings.tres:
        default = default.replace("Cluster", "Cluster,TRES Name")
    title = [
        f"Cluster Utilization {spans(wanted, seconds=False)}",
        usage_words(settings, bool(settings.tres)),
    ]
    lines = (rows[name] for name in names if name in rows)
    chosen = in_slurms_words(wanted.format, asked)
    return report(settings, title, columns, default, chosen, lines, streams)


def in_slurms_words(text: str, names: dict[str, str]) -> str:
    """Fields whose names are not their headers, by their headers."""
    found = []
    for item in text.split(","):
        name, percent, width = item.strip().partition("%")
        low = name.lower()
        header = next(
            (to for word, to in names.items() if len(low) > 3 and word.startswith(low)), name
        )
        found.append(f"{header}{percent}{width}")
    return ",".join(one for one in found if one)


# ---- usage by somebody -----------------------------------------------------------------------


@dataclass
class Line:
    """A line of a report on usage."""

    account: str = ""
    user: str = ""
    wckey: str = ""
    tres: str = "cpu"
    seconds: int = 0
    total: int = 0
    #: depth in the tree of accounts
    depth: int = 0


@dataclass
class _Node:
    """An account: its own usage by user, and the accounts below it."""

    name: str
    users: dict[str, dict[str, int]] = field(default_factory=dict)
    below: list[str] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)


def account_by_user(
    settings: Settings, words: Sequence[str], streams: Streams, reader: Reader
) -> int:
    """The tree of accounts with what was used in each, and by whom."""
    known = ("accounts", "users", "tree")
    wanted = conditions(words, known, int(reader.now()), streams.stderr)
    accounts = wanted.only.pop("accounts", [])
    of_users = bool(wanted.only.get("users"))
    found = ask(NAME, "usage", wanted, settings, streams, reader)
    rows = _usage(found)
    nodes = _tree(rows, reader)
    tree = "tree" in wanted.flags
    roots = [name for name in accounts if name in nodes] if accounts else ["root"]
    names = _names(settings, rows)
    lines = [line for root in roots for line in _account_lines(nodes, root, names, found.totals, 0)]
    if of_users:
        # Who asks for users is told of nobody else: no sums.
        lines = [line for line in lines if line.user]
    title = f"Cluster/Account/User Utilization {spans(wanted, seconds=True)}"
    order = "Cluster,Account,Login,Proper Name"
    return _usage_report(settings, wanted, title, order, lines, streams, reader, tree=tree)


def _tree(rows: Iterable[UsageRow], reader: Reader) -> dict[str, _Node]:
    """Accounts by name, with the sums of all that is below them. Those that are no longer there
    hang below root."""
    nodes = {"root": _Node("root")}
    parents: dict[str, str] = {}
    records = reader.policy(PolicyQuery()).records
    for record in records:
        if isinstance(record, Assoc) and not record.user and record.account != "root":
            nodes[record.account] = _Node(record.account)
            parents[record.account] = record.parent or "root"
    for row in rows:
        name = row.account or "root"
        if name not in nodes:
            nodes[name] = _Node(name)
            parents[name] = "root"
        mine = nodes[name].users.setdefault(row.user, {})
        at: str | None = name
        for kind, seconds in row.tres.items():
            mine[kind] = mine.get(kind, 0) + seconds
        seen: set[str] = set()
        while at is not None and at not in seen:
            seen.add(at)
            sums = nodes[at].sums
            for kind, seconds in row.tres.items():
                sums[kind] = sums.get(kind, 0) + seconds
            at = parents.get(at)
            if at is not None and at not in nodes:
                at = "root"
    for name in sorted(parents):
        above = parents[name]
        nodes[above if above in nodes else "root"].below.append(name)
    return nodes


def _account_lines(
    nodes: dict[str, _Node], name: str, names: Sequence[str], totals: dict[str, int], depth: int
) -> Iterable[Line]:
    node = nodes[name]
    if not any(node.sums.get(kind) for kind in names):
        return
    for kind in names:
        yield Line(name, "", "", kind, node.sums.get(kind, 0), totals.get(kind, 0), depth)
    for user, used in sorted(node.users.items()):
        if any(used.get(kind) for kind in names):
            for kind in names:
                total = totals.get(kind, 0)
                yield Line(name, user, "", kind, used.get(kind, 0), total, depth + 1)
    for below in node.below:
        yield from _account_lines(nodes, below, names, totals, depth + 1)


def user_by_account(
    settings: Settings, words: Sequence[str], streams: Streams, reader: Reader
) -> int:
    """Users with each of their accounts, those who used most first."""
    wanted = conditions(words, ("accounts", "users"), int(reader.now()), streams.stderr)
    found = ask(NAME, "usage", wanted, settings, streams, reader)
    lines = _ranked(settings, found, lambda row: (row.user, row.account, ""))
    title = f"Cluster/User/Account Utilization {spans(wanted, seconds=True)}"
    order = "Cluster,Login,Proper Name,Account"
    return _usage_report(settings, wanted, title, order, lines, streams, reader)


def user_by_wckey(
    settings: Settings, words: Sequence[str], streams: Streams, reader: Reader
) -> int:
    """Users with each of their WCKeys, those who used most first."""
    wanted = conditions(words, ("users", "wckeys"), int(reader.now()), streams.stderr)
    found = _with_wckey(ask(NAME, "usage", wanted, settings, streams, reader))
    lines = _ranked(settings, found, lambda row: (row.user, "", row.wckey))
    title = f"Cluster/User/WCKey Utilization {spans(wanted, seconds=True)}"
    order = "Cluster,Login,Proper Name,WCKey"
    return _usage_report(settings, wanted, title, order, lines, streams, reader, energy=False)


def wckey_by_user(
    settings: Settings, words: Sequence[str], streams: Streams, reader: Reader
) -> int:
    """WCKeys with what was used, and by whom."""
    wanted = conditions(words, ("users", "wckeys"), int(reader.now()), streams.stderr)
    found = _with_wckey(ask(NAME, "usage", wanted, settings, streams, reader))
    rows = _usage(found)
    names = _names(settings, rows)
    lines: list[Line] = []
    by_key: dict[str, dict[str, dict[str, int]]] = {}
    for row in rows:
        mine = by_key.setdefault(row.wckey, {}).setdefault(row.user, {})
        for kind, seconds in row.tres.items():
            mine[kind] = mine.get(kind, 0) + seconds
    for key, users in sorted(by_key.items()):
        for kind in names:
            total = found.totals.get(kind, 0)
            seconds = sum(used.get(kind, 0) for used in users.values())
            lines.append(Line("", "", key, kind, seconds, total))
        for user, used in sorted(users.items()):
            for kind in names:
                total = found.totals.get(kind, 0)
                lines.append(Line("", user, key, kind, used.get(kind, 0), total))
    title = f"Cluster/WCKey/User Utilization {spans(wanted, seconds=True)}"
    order = "Cluster,WCKey,Login,Proper Name"
    return _usage_report(settings, wanted, title, order, lines, streams, reader, energy=False)


def _with_wckey(found: ReportRows) -> ReportRows:
    rows = [row for row in found.rows if isinstance(row, UsageRow) and row.wckey]
    return ReportRows(list(rows), found.totals)


def top_usage(settings: Settings, words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """Those who used most."""
    known = ("accounts", "users", "group", "topcount")
    wanted = conditions(words, known, int(reader.now()), streams.stderr)
    found = ask(NAME, "usage", wanted, settings, streams, reader)
    group = "group" in wanted.flags
    if group:
        accounts: dict[str, set[str]] = {}
        for row in _usage(found):
            accounts.setdefault(row.user, set()).add(row.account)
        together = {user: ", ".join(sorted(names)) for user, names in accounts.items()}
        lines = _ranked(settings, found, lambda row: (row.user, together[row.user], ""))
    else:
        lines = _ranked(settings, found, lambda row: (row.user, row.account, ""))
    per_user = max(len(_names(settings, _usage(found))), 1)
    title = f"Top {wanted.top} Users {spans(wanted, seconds=True)}"
    order = "Cluster,Login,Proper Name,Account"
    some = lines[: wanted.top * per_user]
    return _usage_report(settings, wanted, title, order, some, streams, reader)


def _ranked(
    settings: Settings, found: ReportRows, key: Callable[[UsageRow], tuple[str, str, str]]
) -> list[Line]:
    """Lines by (user, account, WCKey), those with most of the first TRES first."""
    rows = _usage(found)
    names = _names(settings, rows)
    sums: dict[tuple[str, str, str], dict[str, int]] = {}
    for row in rows:
        mine = sums.setdefault(key(row), {})
        for kind, seconds in row.tres.items():
            mine[kind] = mine.get(kind, 0) + seconds
    first = names[0] if names else "cpu"
    ranked = sorted(sums.items(), key=lambda item: (-item[1].get(first, 0), item[0]))
    return [
        Line(account, user, wckey, kind, used.get(kind, 0), found.totals.get(kind, 0))
        for (user, account, wckey), used in ranked
        if any(used.get(each) for each in names)
        for kind in names
    ]


def _usage(found: ReportRows) -> list[UsageRow]:
    return [row for row in found.rows if isinstance(row, UsageRow)]


def _names(settings: Settings, rows: Iterable[UsageRow]) -> list[str]:
    return chosen_tres(settings, dict.fromkeys(kind for row in rows for kind in row.tres), ["cpu"])


def _usage_report(
    settings: Settings,
    wanted: Conditions,
    title: str,
    order: str,
    lines: Sequence[Line],
    streams: Streams,
    reader: Reader,
    *,
    tree: bool = False,
    energy: bool = True,
) -> int:
    cluster = cluster_of(reader)
    people: dict[str, str] = {}
    most = max((line.seconds for line in lines), default=0)
    wide = settings.unit.percent and settings.unit.seconds > 0

    def proper(line: Line) -> str:
        if line.user not in people:
            people[line.user] = full_name(line.user)
        return people[line.user]

    def account(line: Line) -> str:
        return " " * line.depth + line.account if tree else line.account

    columns: list[Column[Line]] = [
        Column("Account", -20 if tree else 15, account),
        Column("Cluster", 9, lambda line: cluster),
        Column("Energy", 18 if wide else 8, lambda line: amount(settings, 0, 0)),
        Column("Login", 9, lambda line: line.user),
        Column("Proper Name", 15, proper),
        Column("TRES Count", 10, lambda line: ""),
        Column("TRES Name", 14, lambda line: line.tres),
        Column(
            "Used",
            (18 if wide else 8) + max(len(str(most)) - 8, 0),
            lambda line: amount(settings, line.seconds, line.total),
        ),
        Column("WCKey", 15, lambda line: line.wckey),
    ]
    default = order + (
        ",TRES Name,Used" if settings.tres else ",Used,Energy" if energy else ",Used"
    )
    heads = [title, usage_words(settings, bool(settings.tres))]
    chosen = in_slurms_words(
        wanted.format, {"accounts": "Account", "tresname": "TRES Name", "proper": "Proper Name"}
    )
    return report(settings, heads, columns, default, chosen, lines, streams)


def full_name(user: str) -> str:
    """As the system has it; "" it does not know the user."""
    import pwd

    if not user:
        return ""
    try:
        return pwd.getpwnam(user).pw_gecos.partition(",")[0]
    except (KeyError, ValueError):
        return ""
