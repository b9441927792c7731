"""sacctmgr's `dump` and `load`: Slurm's flat file of a cluster's accounts, users and limits.

What Slurm's file has no place for (QOS) stands in comments, which Slurm's own `load` skips and this
one reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gsched.model.policy import ROOT, SHARES_PARENT, Assoc, Qos
from gsched.policy import Book
from gsched.wire.policy import PolicyOp
from gsched_cli.stop import Stop

HEAD = """\
# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
# then the accounts below their parent (root is there already)...
# Parent - 'root'
# Account - 'physics':MaxTRESPerJob=node=5:MaxJobs=4:FairShare=399:Description='The Physics'
# and the users in an account below a line with it as the parent:
# Parent - 'physics'
# User - 'kim':MaxTRESPerJob=node=2:MaxJobs=3:FairShare=1
# What follows a : may stand in any order, or be left out.
"""
#: begins a line about a QOS: a comment to Slurm
QOS_MARK = "#QOS - "

#: name in the file, field
_ASSOC: tuple[tuple[str, str], ...] = (
    ("DefaultQOS", "default_qos"),
    ("Fairshare", "shares"),
    ("GrpTRESMins", "grp_tres_mins"),
    ("GrpTRESRunMins", "grp_tres_run_mins"),
    ("GrpTRES", "grp_tres"),
    ("GrpJobs", "grp_jobs"),
    ("GrpJobsAccrue", "grp_jobs_accrue"),
    ("GrpSubmitJobs", "grp_submit_jobs"),
    ("GrpWall", "grp_wall"),
    ("MaxTRESMinsPerJob", "max_tres_mins_per_job"),
    ("MaxTRESRunMins", "max_tres_run_mins"),
    ("MaxTRESPerJob", "max_tres_per_job"),
    ("MaxTRESPerNode", "max_tres_per_node"),
    ("MaxJobs", "max_jobs"),
    ("MaxJobsAccrue", "max_jobs_accrue"),
    ("MaxSubmitJobs", "max_submit_jobs"),
    ("MaxWallDurationPerJob", "max_wall"),
    ("MinPrioThreshold", "min_prio_thresh"),
    ("Priority", "priority"),
    ("Comment", "comment"),
    ("GrpTRESGuarantee", "guarantee"),
    ("GrpTRESBorrow", "borrow"),
    ("GrpTRESLend", "lend"),
    ("GuaranteeUnit", "guarantee_unit"),
)
_QOS: tuple[tuple[str, str], ...] = (
    ("Description", "description"),
    ("Priority", "priority"),
    ("GraceTime", "grace_time"),
    ("Preempt", "preempt"),
    ("PreemptMode", "preempt_mode"),
    ("PreemptExemptTime", "preempt_exempt_time"),
    ("Flags", "flags"),
    ("UsageFactor", "usage_factor"),
    ("UsageThreshold", "usage_thres"),
    ("LimitFactor", "limit_factor"),
    ("GrpJobs", "grp_jobs"),
    ("GrpJobsAccrue", "grp_jobs_accrue"),
    ("GrpSubmitJobs", "grp_submit_jobs"),
    ("GrpWall", "grp_wall"),
    ("GrpTRES", "grp_tres"),
    ("GrpTRESMins", "grp_tres_mins"),
    ("GrpTRESRunMins", "grp_tres_run_mins"),
    ("MaxJobsPerAccount", "max_jobs_pa"),
    ("MaxJobsPerUser", "max_jobs_pu"),
    ("MaxJobsAccruePerAccount", "max_jobs_accrue_pa"),
    ("MaxJobsAccruePerUser", "max_jobs_accrue_pu"),
    ("MaxSubmitJobsPerAccount", "max_submit_jobs_pa"),
    ("MaxSubmitJobsPerUser", "max_submit_jobs_pu"),
    ("MaxWall", "max_wall"),
    ("MaxTRESPerJob", "max_tres_per_job"),
    ("MaxTRESPerNode", "max_tres_per_node"),
    ("MaxTRESPerAccount", "max_tres_pa"),
    ("MaxTRESPerUser", "max_tres_pu"),
    ("MaxTRESMins", "max_tres_mins_per_job"),
    ("MaxTRESRunMinsPerAccount", "max_tres_run_mins_pa"),
    ("MaxTRESRunMinsPerUser", "max_tres_run_mins_pu"),
    ("MinPrioThreshold", "min_prio_thresh"),
    ("MinTRESPerJob", "min_tres_per_job"),
)


# ---- dump ---------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    """Between single quotes; one within becomes a backquote, as Slurm keeps them."""
    return "'" + text.replace("'", "`").replace("\n", " ") + "'"


def _value(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{kind}={count}" for kind, count in sorted(value.items()))
    if name == "Fairshare" and value == SHARES_PARENT:
        return "parent"
    if isinstance(value, tuple):
        return _quoted(",".join(value))
    if name == "PreemptExemptTime" and isinstance(value, int):
        hours, rest = divmod(value, 3600)
        return _quoted(f"{hours}:{rest // 60:02}:{rest % 60:02}")
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    return str(value)


def _words(record: Assoc | Qos, table: tuple[tuple[str, str], ...], plain: object) -> str:
    """The settings that are not as they are where nothing was set."""
    text = ""
    for name, field in table:
        value = getattr(record, field)
        if name != "Fairshare" and value == getattr(plain, field):
            continue
        text += f":{name}={_value(name, value)}"
    return text


def _limits(assoc: Assoc) -> str:
    text = _words(assoc, _ASSOC, Assoc(0, ""))
    if assoc.qos is not None:
        text += ":QOS=" + _quoted(",".join(sorted(assoc.qos, key=lambda one: one.lstrip("+-"))))
    return text


def dump(book: Book, cluster: str) -> Iterator[str]:
    """The lines of the file after its head, without line ends."""
    root = book.account(ROOT)
    for qos in sorted(book.qos.values(), key=lambda one: one.id):
        plain = Qos(qos.id, qos.name)
        yield f"{QOS_MARK}{_quoted(qos.name)}{_words(qos, _QOS, plain)}"
    line = f"Cluster - {_quoted(cluster)}"
    own = book.clusters.get(cluster)
    if own is not None and own.classification:
        line += f":Classification={_quoted(own.classification)}"
    yield line + (_limits(root) if root is not None else "")
    yield from _below(book, ROOT)


def _below(book: Book, account: str) -> Iterator[str]:
    below = book.below(account)
    if not below:
        return
    yield f"Parent - {_quoted(account)}"
    for one in sorted((x for x in below if x.user), key=lambda x: (x.user, x.partition)):
        yield _user(book, one)
    children = sorted((x for x in below if x.is_account), key=lambda x: x.account)
    for one in children:
        account_ = book.accounts[one.account]
        line = f"Account - {_quoted(one.account)}:Description={_quoted(account_.description)}"
        line += f":Organization={_quoted(account_.organization)}"
        if account_.flags:
            line += ":Flags=" + _quoted(",".join(account_.flags))
        yield line + _limits(one)
    for one in children:
        yield from _below(book, one.account)


def _user(book: Book, assoc: Assoc) -> str:
    user = book.users[assoc.user]
    line = f"User - {_quoted(assoc.user)}"
    if assoc.partition:
        line += f":Partition={_quoted(assoc.partition)}"
    if user.coordinator:
        line += ":Coordinator=" + _quoted(",".join(user.coordinator))
    line += f":DefaultAccount={_quoted(user.default_account)}"
    keys = sorted(one.name for one in book.wckeys.values() if one.user == user.name)
    if user.default_wckey:
        line += f":DefaultWCKey={_quoted(user.default_wckey)}"
    if keys:
        line += ":WCKeys=" + _quoted(",".join(keys))
    if user.admin_level != "None":
        line += f":AdminLevel={_quoted(user.admin_level)}"
    return line + _limits(assoc)


# ---- load ---------------------------------------------------------------------------------------

_LINE = re.compile(r"\s*(#\s?QOS|Cluster|Parent|Account|Project|User)\s+-\s+(.*)\Z", re.I | re.S)


def _parts(text: str, number: int) -> list[str]:
    """A line at its colons, but not those between quotes or in a TRES (gres/gpu:h100=4)."""
    parts: list[str] = []
    # Which of them end with a quote: what was in it is never the begin of what follows.
    closed: list[bool] = []
    now, quote, ended = "", "", False
    for letter in text:
        if quote:
            if letter == quote:
                quote, ended = "", True
            else:
                now += letter
        elif letter in "'\"":
            quote = letter
        elif letter == ":":
            parts.append(now)
            closed.append(ended)
            now, ended = "", False
        else:
            now += letter
            ended = False
    if quote:
        raise Stop(1, f" line({number}) A quote is not closed\n")
    parts.append(now)
    whole: list[str] = parts[:1]
    for part, over in zip(parts[1:], closed, strict=True):
        # The type of a generic resource, or a time: the part before is not over yet.
        before = whole[-1] if len(whole) > 1 else ""
        if not over and (re.search(r"gres/[^=,]*\Z", before) or re.match(r"[0-9]", part)):
            whole[-1] += f":{part}"
        else:
            whole.append(part)
    return [part.strip() for part in whole]


class Loaded:
    """What a file asks for."""

    def __init__(self, text: str, cluster: str = "") -> None:
        """`cluster`: takes the place of the one that the file names. Stop with the line."""
        self.cluster = cluster
        self.qos: list[PolicyOp] = []
        self.later: list[PolicyOp] = []
        self.ops: list[PolicyOp] = []
        self.accounts: set[str] = {ROOT}
        self.users: set[str] = set()
        self._parent = ROOT
        for number, line in enumerate(text.splitlines(), 1):
            self._line(number, line)

    def _line(self, number: int, line: str) -> None:
        match = _LINE.match(line)
        if match is None:
            if line.strip() and not line.lstrip().startswith("#"):
                raise Stop(1, f" Misformatted line({number}): {line.strip()[:200]}\n")
            return
        title, parts = match[1].lower(), _parts(match[2], number)
        name, given = parts[0], parts[1:]
        if not name:
            raise Stop(1, f" Misformatted line({number}): {line.strip()[:200]}\n")
        settings = []
        for word in given:
            key, equals, value = word.partition("=")
            if not equals:
                raise Stop(1, f" Misformatted line({number}): {line.strip()[:200]}\n")
            settings.append((key.rstrip("+-").strip(), "=", value))
        if title.endswith("qos"):
            self._qos(name, settings)
        elif title == "cluster":
            self.cluster = self.cluster or name
            if settings:
                kept = [one for one in settings if one[0].lower() != "rpc"]
                # The ledger knows its own settings of the cluster in lower case.
                kept = [
                    ("classification", *one[1:]) if one[0].lower() == "classification" else one
                    for one in kept
                ]
                self.ops.append(PolicyOp("modify", "cluster", {}, kept))
        elif title == "parent":
            if name.lower() not in self.accounts:
                raise Stop(
                    1,
                    f" line({number}) You need to add this parent ({name}) as a child before "
                    "you can add children to it.\n",
                )
            self._parent = name.lower()
        elif title == "user":
            self._user(name, settings)
        else:
            self.accounts.add(name.lower())
            self.ops.append(
                PolicyOp(
                    "add",
                    "account",
                    {"name": [name]},
                    [*settings, ("parent", "=", self._parent)],
                )
            )

    def _qos(self, name: str, settings: list[tuple[str, str, str]]) -> None:
        # All QOS are there before any names another.
        later = [one for one in settings if one[0].lower() == "preempt"]
        rest = [one for one in settings if one[0].lower() != "preempt"]
        self.qos.append(PolicyOp("add", "qos", {"name": [name]}, rest))
        if later:
            self.later.append(PolicyOp("modify", "qos", {"name": [name]}, later))

    def _user(self, name: str, settings: list[tuple[str, str, str]]) -> None:
        where = {"name": [name], "account": [self._parent]}
        kept: list[tuple[str, str, str]] = []
        default = ""
        for key, sign, value in settings:
            low = key.lower()
            listed = [one.strip() for one in value.split(",") if one.strip()]
            if low == "partition":
                where["partition"] = listed
            elif low == "wckeys":
                where["wckey"] = listed
            elif low == "coordinator":
                self.later.append(
                    PolicyOp("add", "coordinator", {"name": [name], "account": listed})
                )
            elif low == "defaultaccount":
                default = value
            else:
                kept.append((key, sign, value))
        self.users.add(name.lower())
        self.ops.append(PolicyOp("add", "user", where, kept))
        if default:
            self.later.append(
                PolicyOp("modify", "user", {"name": [name]}, [("defaultaccount", "=", default)])
            )

    def changes(self) -> list[PolicyOp]:
        """All of it in an order in which it can be made."""
        return [*self.qos, *self.ops, *self.later]


def clean(book: Book) -> list[PolicyOp]:
    """What `load clean` takes away first: all accounts below root with what hangs there, and their
    users."""
    names = [name for name in book.accounts if name != ROOT]
    users = [name for name in book.users if name != ROOT]
    ops = []
    if users:
        ops.append(PolicyOp("delete", "user", {"name": users}))
    if names:
        ops.append(PolicyOp("delete", "account", {"name": names}))
    return ops
