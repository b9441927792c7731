"""sacctmgr's `list` of what the ledger holds: accounts, associations, users, QOS, WCKeys, TRES, the
cluster, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from gsched import tres
from gsched.hostlist import compress
from gsched.model.policy import ROOT, Account, Assoc, Cluster, Qos, User
from gsched.policy import Book
from gsched_cli import sacctmgr_fields as fields
from gsched_cli.sacctmgr_fields import AssocRow, QosRow, WckeyRow
from gsched_cli.sacctmgr_table import Field, Look, chosen, written
from gsched_cli.sacctmgr_words import Said
from gsched_cli.stop import Stop

if TYPE_CHECKING:
    from gsched.config import Config


class State(NamedTuple):
    """What there is to list."""

    book: Book
    config: Config
    look: Look
    #: -s: with associations
    associations: bool = False

    @property
    def cluster(self) -> str:
        return self.config.cluster_name


def own_cluster(state: State, said: Said) -> bool:
    """Whether the conditions let this cluster through."""
    wanted = said.where.get("cluster")
    return not wanted or state.cluster.lower() in {one.lower() for one in wanted}


def _low(said: Said, key: str) -> set[str] | None:
    wanted = said.where.get(key)
    return {one.lower() for one in wanted} if wanted else None


# ---- associations -------------------------------------------------------------------------------


def ordered(book: Book, account: str = ROOT, depth: int = 0) -> Iterable[tuple[Assoc, int]]:
    """All associations down the tree, users before accounts, by name; with their depth."""
    own = book.account(account)
    if own is None:
        return
    yield own, depth
    below = book.below(account)
    for one in sorted((x for x in below if x.user), key=lambda x: (x.user, x.partition)):
        yield one, depth + 1
    for one in sorted((x for x in below if x.is_account), key=lambda x: x.account):
        yield from ordered(book, one.account, depth + 1)


def _row(state: State, said: Said, assoc: Assoc, depth: int) -> AssocRow:
    book = state.book
    bare = said.on("woplimits") or said.on("wopinfo")
    limits = assoc if bare else book.effective(assoc)
    if said.on("wolimits"):
        limits = Assoc(0, "")
    return AssocRow(
        assoc,
        limits,
        book,
        state.cluster,
        known(state),
        depth if said.on("tree") else 0,
        said.on("withrawqos"),
        book.accounts.get(assoc.account),
        book.users.get(assoc.user),
    )


def known(state: State) -> tuple[str, ...]:
    return tres.tracked(state.config)


def associations(state: State, said: Said) -> list[AssocRow]:
    """Those that the conditions let through, in the order of the tree."""
    if not own_cluster(state, said):
        return []
    accounts, users = _low(said, "account"), _low(said, "user")
    if accounts is not None and said.on("withsubaccounts"):
        accounts = {
            one.account for name in accounts for one in state.book.subtree(name) if one.is_account
        }
    parents, ids = _low(said, "parent"), _low(said, "id")
    partitions = said.where.get("partition")
    qos, default = _low(said, "qos"), _low(said, "defaultqos")
    flags = _low(said, "flags")
    found = []
    for assoc, depth in ordered(state.book):
        if accounts is not None and assoc.account not in accounts:
            continue
        if users is not None and assoc.user.lower() not in users:
            continue
        if parents is not None and assoc.parent not in parents:
            continue
        if ids is not None and str(assoc.id) not in ids:
            continue
        if partitions and assoc.partition not in partitions:
            continue
        if qos is not None and qos.isdisjoint(state.book.allowed_qos(assoc)):
            continue
        if default is not None and (state.book.effective(assoc).default_qos or "") not in default:
            continue
        if flags is not None and flags.isdisjoint(one.lower() for one in assoc.flags):
            continue
        if said.on("onlydefaults"):
            if not assoc.user or state.book.default_account(assoc.user) != assoc.account:
                continue
            if assoc.partition and state.book.exact(assoc.account, assoc.user) is not None:
                continue
        found.append(_row(state, said, assoc, depth))
    return _from_top(found) if said.on("tree") else found


def _from_top(rows: list[AssocRow]) -> list[AssocRow]:
    """What is shown below nothing that is shown stands at the left."""
    depths: dict[str, int] = {}
    found = []
    for row in rows:
        above = row.assoc.account if row.assoc.user else row.assoc.parent
        depth = depths.get(above, -1) + 1
        if not row.assoc.user:
            depths[row.assoc.account] = depth
        found.append(row._replace(depth=depth))
    return found


def list_associations(state: State, said: Said) -> str:
    short = said.on("wolimits") or said.on("woplimits")
    form = said.format or (fields.ASSOC_SHORT if short else fields.ASSOC_DEFAULT)
    table = fields.ASSOC_TREE if said.on("tree") else fields.ASSOC
    if said.on("wopinfo"):
        table = (*fields.NO_PARENT, *table)
    return written(chosen(form, table, fields.EMPTY), associations(state, said), state.look)


# ---- accounts and users -------------------------------------------------------------------------


def _alone(state: State, account: Account | None, user: User | None) -> AssocRow:
    """The row of one that is listed without its associations."""
    nothing = Assoc(0, account.name if account else "", user.name if user else "")
    return AssocRow(
        nothing, nothing, state.book, state.cluster, known(state), 0, False, account, user
    )


def _both(own: tuple[Field[AssocRow], ...]) -> tuple[Field[AssocRow], ...]:
    """An entity's own columns before those of associations."""
    taken = {name.lower() for field in own for name in field.names}
    rest = [one for one in fields.ASSOC if not taken & {name.lower() for name in one.names}]
    return (*own, *rest)


def accounts(state: State, said: Said) -> list[Account]:
    """Those that the conditions let through, by name."""
    names, descriptions = _low(said, "name"), _low(said, "description")
    organizations, parents = _low(said, "organization"), _low(said, "parent")
    flags = _low(said, "flags")
    found = []
    for name, account in sorted(state.book.accounts.items()):
        own = state.book.account(name)
        if names is not None and name not in names:
            continue
        if descriptions is not None and account.description.lower() not in descriptions:
            continue
        if organizations is not None and account.organization.lower() not in organizations:
            continue
        if parents is not None and (own is None or own.parent not in parents):
            continue
        if flags is not None and flags.isdisjoint(one.lower() for one in account.flags):
            continue
        found.append(account)
    return found if own_cluster(state, said) else []


def _inner(said: Said) -> Said:
    """The conditions that are about associations."""
    skip = ("name", "description", "organization", "parent", "defaultaccount", "adminlevel")
    where = {key: value for key, value in said.where.items() if key not in (*skip, "wckey")}
    return Said(where, None)


def list_accounts(state: State, said: Said) -> str:
    with_assoc = state.associations or said.on("withassoc")
    form = fields.ACCOUNT_DEFAULT + (",Coordinators" if said.on("withcoord") else "")
    if with_assoc:
        form += "," + fields.ACCOUNT_ASSOC
    shown = chosen(said.format or form, _both(fields.ACCOUNT), fields.EMPTY)
    found = accounts(state, said)
    rows = [_alone(state, account, None) for account in found]
    if with_assoc:
        by_account: dict[str, list[AssocRow]] = {}
        for row in associations(state, _inner(said)):
            by_account.setdefault(row.assoc.account, []).append(row)
        rows = [row for account in found for row in by_account.get(account.name, ())]
    return written(shown, rows, state.look)


def users(state: State, said: Said) -> list[User]:
    """Those that the conditions let through, by name."""
    names, accounts_ = _low(said, "name"), _low(said, "defaultaccount")
    levels = said.where.get("adminlevel")
    wckeys = said.where.get("defaultwckey")
    found = []
    for name, user in sorted(state.book.users.items()):
        if names is not None and name.lower() not in names:
            continue
        if accounts_ is not None and user.default_account not in accounts_:
            continue
        if levels and not any(user.admin_level.lower().startswith(x.lower()) for x in levels):
            continue
        if wckeys and user.default_wckey not in wckeys:
            continue
        found.append(user)
    return found if own_cluster(state, said) else []


def list_users(state: State, said: Said) -> str:
    with_assoc = state.associations or said.on("withassoc")
    form = fields.USER_DEFAULT + (",Coordinators" if said.on("withcoord") else "")
    if with_assoc:
        form += "," + fields.USER_ASSOC
    shown = chosen(said.format or form, _both(fields.USER), fields.EMPTY)
    found = users(state, said)
    narrowed = any(key in said.where for key in ("account", "partition", "id"))
    rows = [_alone(state, None, user) for user in found]
    if with_assoc or narrowed:
        by_user: dict[str, list[AssocRow]] = {}
        for row in associations(state, _inner(said)):
            by_user.setdefault(row.assoc.user, []).append(row)
        if with_assoc:
            rows = [
                row
                for user in found
                for row in sorted(
                    by_user.get(user.name, ()), key=lambda r: (r.assoc.account, r.assoc.partition)
                )
            ]
        else:
            rows = [row for row in rows if row.user and row.user.name in by_user]
    return written(shown, rows, state.look)


# ---- QOS, WCKeys, TRES --------------------------------------------------------------------------


def qos(state: State, said: Said) -> list[Qos]:
    """Those that the conditions let through, by number."""
    names, ids = _low(said, "name"), _low(said, "id")
    descriptions, modes = _low(said, "description"), _low(said, "preemptmode")
    return [
        one
        for one in sorted(state.book.qos.values(), key=lambda one: one.id)
        if (names is None or one.name in names)
        and (ids is None or str(one.id) in ids)
        and (descriptions is None or one.description.lower() in descriptions)
        and (modes is None or one.preempt_mode in modes)
    ]


def list_qos(state: State, said: Said) -> str:
    shown = chosen(said.format or fields.QOS_DEFAULT, fields.QOS, fields.EMPTY)
    return written(shown, [QosRow(one, known(state)) for one in qos(state, said)], state.look)


def list_wckeys(state: State, said: Said) -> str:
    names, users_ = said.where.get("name"), _low(said, "user")
    rows = [
        WckeyRow(one, state.cluster)
        for one in sorted(state.book.wckeys.values(), key=lambda one: (one.name, one.user))
        if (not names or one.name in names)
        and (users_ is None or one.user in users_)
        and own_cluster(state, said)
    ]
    return written(chosen(said.format or fields.WCKEY_DEFAULT, fields.WCKEY), rows, state.look)


class TresRow(NamedTuple):
    kind: str
    name: str
    id: int


TRES: tuple[Field[TresRow], ...] = (
    Field(("ID",), "ID", 6, lambda r: str(r.id), 1),
    Field(("Name",), "Name", 10, lambda r: r.name, 1),
    Field(("Type",), "Type", 8, lambda r: r.kind, 1),
)
#: numbers of those that a site adds
_FIRST_OWN = 1001


def tres_rows(config: Config) -> list[TresRow]:
    """All TRES that are counted, with Slurm's numbers."""
    rows = []
    for number, full in enumerate(tres.tracked(config)):
        kind, _, name = full.partition("/")
        place = number + 1
        if number >= len(tres.BASE):
            place = _FIRST_OWN + number - len(tres.BASE)
        rows.append(TresRow(kind, name, place))
    return rows


def tres_found(state: State, said: Said) -> list[TresRow]:
    """Those that the conditions let through."""
    names, ids, kinds = _low(said, "name"), _low(said, "id"), _low(said, "type")
    return [
        row
        for row in tres_rows(state.config)
        if (names is None or row.name.lower() in names)
        and (ids is None or str(row.id) in ids)
        and (kinds is None or row.kind in kinds)
    ]


def list_tres(state: State, said: Said) -> str:
    rows = tres_found(state, said)
    return written(chosen(said.format or "Type,Name%15,ID", TRES), rows, state.look)


# ---- the cluster --------------------------------------------------------------------------------

#: version of Slurm's own protocol in 26.05
RPC = 11520


class ClusterRow(NamedTuple):
    state: State
    assoc: AssocRow
    own: Cluster


def _fed_number(own: Cluster) -> str:
    known = ("", "ACTIVE", "INACTIVE", "DRAIN")
    return str(known.index(own.fed_state)) if own.fed_state in known else "0"


def _host(state: State) -> str:
    hosts = state.config.slurmctld_host
    return hosts[0].addr or hosts[0].name if hosts else ""


def total(config: Config) -> dict[str, int]:
    """All that the cluster's nodes have."""
    found = dict.fromkeys(tres.BASE, 0)
    found["node"] = len(config.nodes)
    for conf in config.nodes.values():
        found["cpu"] += conf.cpus
        found["mem"] += conf.real_memory
        for item in conf.gres:
            for name in (f"gres/{item.name}", f"gres/{item.name}:{item.type}"):
                if not name.endswith(":"):
                    found[name] = found.get(name, 0) + item.count
    found["billing"] = found["cpu"]
    return found


C = Field[ClusterRow]
_CLUSTER_OWN: tuple[C, ...] = (
    C(("Classification",), "Class", 9, lambda r: r.own.classification, 2),
    C(("Cluster", "Name"), "Cluster", 10, lambda r: r.state.cluster, 2),
    C(("ClusterNodes",), "Cluster Nodes", 20, lambda r: compress(list(r.state.config.nodes)), 8),
    C(("ControlHost",), "ControlHost", 15, lambda r: _host(r.state), 8),
    C(("ControlPort",), "ControlPort", 12, lambda r: str(r.state.config.slurmctld_port), 8),
    C(("Federation",), "Federation", 10, lambda r: r.own.federation, 3),
    C(("Features",), "Features", 20, lambda r: ",".join(r.own.features), 3),
    C(("FedState",), "FedState", 12, lambda r: r.own.fed_state or "NA", 4),
    C(("FedStateRaw",), "FedStateRaw", 11, lambda r: _fed_number(r.own), 9),
    C(("ID",), "ID", 6, lambda r: str(r.own.fed_id), 1),
    C(("Flags",), "Flags", 20, lambda r: "None", 2),
    C(("NodeCount",), "NodeCount", 9, lambda r: str(len(r.state.config.nodes)), 2),
    C(("NodeNames",), "Cluster Nodes", 20, lambda r: compress(list(r.state.config.nodes)), 5),
    C(("PluginIDSelect",), "PluginIDSelect", 14, lambda r: "0", 2),
    C(("RPC",), "RPC", 5, lambda r: str(RPC), 1),
    C(("TRES",), "TRES", 20, lambda r: tres.sorted_text(total(r.state.config), convert=True), 2),
)


def _of_assoc(field: Field[AssocRow]) -> C:
    def read(row: ClusterRow) -> str:
        return field.read(row.assoc)

    return C(field.names, field.header, field.width, read, field.least)


def list_clusters(state: State, said: Said) -> str:
    names = _low(said, "name")
    taken = {name.lower() for field in _CLUSTER_OWN for name in field.names}
    rest = [_of_assoc(one) for one in fields.ASSOC if one.names[0].lower() not in taken]
    form = "Cluster,ControlHost,ControlPort,RPC"
    if not said.on("wolimits"):
        form += ",Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,DefaultQOS"
    if said.on("withfed"):
        form += ",Federation,ID,Features,FedState"
    shown = chosen(said.format or form, (*_CLUSTER_OWN, *rest))
    root = state.book.account(ROOT)
    rows = []
    if root is not None and (names is None or state.cluster.lower() in names):
        own = state.book.clusters.get(state.cluster, Cluster(state.cluster))
        rows = [ClusterRow(state, _row(state, said, root, 0), own)]
    return written(shown, rows, state.look)


# ---- problems -----------------------------------------------------------------------------------


class Problem(NamedTuple):
    account: str
    user: str
    text: str
    cluster: str


PROBLEM: tuple[Field[Problem], ...] = (
    Field(("Cluster",), "Cluster", 10, lambda r: r.cluster, 1),
    Field(("Account",), "Account", 10, lambda r: r.account, 1),
    Field(("User",), "User", 10, lambda r: r.user, 1),
    Field(("Problem",), "Problem", 40, lambda r: r.text, 1),
)


def problems(state: State, exists: Callable[[str], bool]) -> list[Problem]:
    """Accounts that nobody can use, users that there are not, and users without an account."""
    found = []
    for assoc, _ in ordered(state.book):
        if assoc.is_account and assoc.account != ROOT:
            if not any(one.user for one in state.book.subtree(assoc.account)):
                found.append(Problem(assoc.account, "", "Account has no users", state.cluster))
    for name in sorted(state.book.users):
        mine = [one for one in state.book.assocs.values() if one.user == name]
        if not mine:
            found.append(Problem("", name, "User has no associations", state.cluster))
        elif not exists(name):
            text = "User does not have a uid"
            found += [Problem(one.account, name, text, state.cluster) for one in mine]
    return found


def list_problems(state: State, said: Said, exists: Callable[[str], bool]) -> str:
    accounts_, users_ = _low(said, "account"), _low(said, "user")
    rows = [
        row
        for row in problems(state, exists)
        if (accounts_ is None or row.account in accounts_)
        and (users_ is None or row.user in users_)
    ]
    shown = chosen(said.format or "Cluster,Account,User,Problem", PROBLEM)
    return written(shown, rows, state.look)


def refuse(kind: str) -> Stop:
    return Stop(1, f"sacctmgr: error: {kind} is not available here\n")
