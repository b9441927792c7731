"""sshare: what associations were promised, what they have used, and what follows for their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from gsched import tres
from gsched.model.policy import ROOT, SHARES_PARENT
from gsched.policy import Book
from gsched.policy.fairshare import Standing
from gsched.policy.multifactor import MULTIFACTOR
from gsched.policy.usage import stretch_of
from gsched_cli import getopt_long
from gsched_cli.columns import BadField, Column, delimited, parse_format, table
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.getopt_long import Arg
from gsched_cli.sshare_help import FIELDS, HELP, USAGE
from gsched_cli.standing import measured
from gsched_cli.stop import Stop, asking, own_cluster

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model.job import Job

NAME = "sshare"
ASKING = "sshare: error: Couldn't get shares from controller:"
_NO, _YES = Arg.NO, Arg.YES
_SHORT = "aA:ehlM:mno:pPqu:UvV"
_LONG: dict[str, tuple[Arg, str]] = {
    "accounts": (_YES, "A"),
    "all": (_NO, "a"),
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    "format": (_YES, "o"),
    "help": (_NO, "h"),
    "helpformat": (_NO, "e"),
    "json": (Arg.MAYBE, "json"),
    "yaml": (Arg.MAYBE, "yaml"),
    "long": (_NO, "l"),
    "noheader": (_NO, "n"),
    "parsable": (_NO, "p"),
    "parsable2": (_NO, "P"),
    "partition": (_NO, "m"),
    "uid": (_YES, "u"),
    "usage": (_NO, "usage"),
    "user": (_YES, "u"),
    "users": (_YES, "u"),
    "Users": (_NO, "U"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
}


@dataclass
class Wanted:
    """What the options ask for."""

    everybody: bool = False
    accounts: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    users_only: bool = False
    long: bool = False
    partitions: bool = False
    format: str = ""
    header: bool = True
    parsable: str = ""
    cluster: str = ""
    #: "json", "yaml" or "": columns
    dump: str = ""


@dataclass
class Share:
    """One line."""

    standing: Standing
    tree: bool
    #: levels below the first one that is shown
    depth: int
    cluster: str
    limits: str
    run_mins: str
    raw: str

    @property
    def is_root(self) -> bool:
        return not self.standing.above


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        wanted = _options(argv, streams)
        _report(wanted, argv, env, streams, reader)
        return 0
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except BadField as name:
        error(streams, NAME, f'Invalid field requested: "{name}"')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


def _options(argv: Sequence[str], streams: Streams) -> Wanted:
    given, operands = getopt_long.parse(argv, _SHORT, _LONG)
    wanted = Wanted()
    for key, value in given:
        text = value or ""
        names = [one.strip().lower() for one in text.split(",") if one.strip()]
        if key == "a":
            wanted.everybody = True
        elif key == "A":
            wanted.accounts += names
        elif key == "u":
            wanted.users += [one.strip() for one in text.split(",") if one.strip()]
        elif key == "U":
            wanted.users_only = True
        elif key == "l":
            wanted.long = True
        elif key == "m":
            wanted.partitions = True
        elif key == "n":
            wanted.header = False
        elif key == "o":
            wanted.format = f"{wanted.format},{text}" if wanted.format else text
        elif key in ("p", "P"):
            wanted.parsable = key
        elif key == "M":
            wanted.cluster = text
        elif key in ("json", "yaml"):
            from gsched_cli.dump import asked

            wanted.dump = asked(key, text or None, NAME)
        elif key in ("V", "h", "usage", "e"):
            streams.stdout.write({"V": version_line(), "h": HELP, "usage": USAGE, "e": FIELDS}[key])
            raise Stop(0)
    wanted.accounts += [one.lower() for one in operands]
    return wanted


def _report(
    wanted: Wanted, argv: Sequence[str], env: Mapping[str, str], streams: Streams, reader: Reader
) -> None:
    config = asking(reader.config, ASKING)
    if wanted.cluster:
        cluster = own_cluster(wanted.cluster, reader, NAME, ASKING, streams)
        streams.stdout.write("" if wanted.dump else f"CLUSTER: {cluster}\n")
    if config.priority_type != MULTIFACTOR:
        raise Stop(
            1,
            f"You are not running a supported priority plugin\n({config.priority_type}).\n"
            "Only 'priority/multifactor' is supported.\n",
        )
    shares = _shares(wanted, config, reader)
    if wanted.dump:
        from gsched_cli.dump import Asked
        from gsched_cli.sshare_json import document

        streams.stdout.write(document(Asked(wanted.dump, NAME, argv, env, reader), shares))
        return
    shown = [
        # What is not left justified is not indented.
        each._replace(column=each.column._replace(read=lambda s: s.standing.assoc.account))
        if each.column.name == "Account" and each.width > 0
        else each
        for each in parse_format(_format(wanted, config), _columns(), everything=False)
    ]
    if wanted.parsable:
        last = wanted.parsable == "p"
        lines = delimited(shown, shares, wanted.header, "|", last=last)
    else:
        lines = table(shown, shares, wanted.header)
    streams.stdout.writelines(lines)


def _format(wanted: Wanted, config: Config) -> str:
    if wanted.format:
        return wanted.format
    names = ["account", "user", "rawshares", "normshares", "rawusage"]
    if wanted.partitions:
        names.insert(2, "partition")
    if wanted.long:
        names.append("normusage")
    names += ["effectvusage", "fairshare"]
    if wanted.long:
        names += ["levelfs"] if _is_tree(config) else []
        names += ["grptresmins", "tresrunmins"]
    return ",".join(names)


def _is_tree(config: Config) -> bool:
    return not {"NO_FAIR_TREE", "DEPTH_OBLIVIOUS"} & set(config.priority_flags)


def _shares(wanted: Wanted, config: Config, reader: Reader) -> list[Share]:
    book, meter, running, now, standing = measured(reader, config, ASKING)
    known = tres.tracked(config)
    to_come = _to_come(book, running, now)
    users = _users(wanted, book, reader)
    shares: list[Share] = []
    depths: dict[str, int] = {}

    def add(one: Standing, depth: int) -> None:
        assoc = one.assoc
        used = meter.used(assoc.id, now).tres
        shares.append(
            Share(
                one,
                _is_tree(config),
                depth,
                config.cluster_name,
                tres.text(assoc.grp_tres_mins, known, convert=False),
                _list(known, to_come.get(assoc.id, {})),
                _list(known, {name: max(0.0, value) / 60 for name, value in used.items()}),
            )
        )

    for one in _in_order(book, standing):
        assoc = one.assoc
        if wanted.accounts and assoc.account not in wanted.accounts:
            continue
        if not assoc.is_account:
            if users is None or assoc.user in users:
                add(one, 0 if wanted.users_only else depths.get(assoc.account, -1) + 1)
        elif not wanted.users_only:
            depths[assoc.account] = depths.get(assoc.parent, -1) + 1
            add(one, depths[assoc.account])
    return shares


def _in_order(book: Book, standing: Mapping[int, Standing]) -> list[Standing]:
    """Each account with its users, then the accounts below it, by name."""
    found: list[Standing] = []

    def walk(account: str) -> None:
        own = book.account(account)
        if own is None or own.id not in standing:
            return
        found.append(standing[own.id])
        below = book.below(account)
        users = [one for one in below if not one.is_account]
        users.sort(key=lambda one: (one.user, one.partition))
        found.extend(standing[one.id] for one in users)
        for name in sorted(one.account for one in below if one.is_account):
            walk(name)

    walk(ROOT)
    return found


def _users(wanted: Wanted, book: Book, reader: Reader) -> set[str] | None:
    """Names of users who are shown; None: all."""
    if wanted.users:
        ids = {str(one.uid): one.name for one in book.users.values() if one.uid >= 0}
        return {ids.get(name, name) for name in wanted.users}
    if wanted.everybody:
        return None
    return {_login(book, reader.uid)}


def _login(book: Book, uid: int) -> str:
    for user in book.users.values():
        if user.uid == uid:
            return user.name
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _to_come(book: Book, jobs: Sequence[Job], now: float) -> dict[int, dict[str, float]]:
    """TRES-minutes that running jobs may still use, by association."""
    found: dict[int, dict[str, float]] = {}
    for job in jobs:
        assoc = book.assocs.get(job.assoc_id)
        if assoc is None or not job.end_time:
            continue
        minutes = max(0.0, job.end_time - now) / 60
        stretch = stretch_of(job)
        held = stretch.tres if stretch is not None else {}
        for above in book.chain(assoc):
            mine = found.setdefault(above.id, {})
            for name, count in held.items():
                mine[name] = mine.get(name, 0.0) + count * minutes
    return found


def _list(known: Sequence[str], amounts: Mapping[str, float]) -> str:
    """All TRES that the cluster counts."""
    return ",".join(f"{name}={int(amounts.get(name, 0))}" for name in known)


# ---- columns -------------------------------------------------------------------------------------


def _columns() -> list[Column[Share]]:
    return [
        Column("Account", -20, _account),
        Column("Cluster", 10, lambda s: s.cluster),
        Column("EffectvUsage", 13, lambda s: f"{s.standing.effective:.6f}"),
        Column("FairShare", 10, _factor),
        Column("GrpTRESMins", 30, lambda s: s.limits),
        Column("GrpTRESRaw", 30, lambda s: s.raw),
        Column("ID", 6, lambda s: str(s.standing.assoc.id)),
        Column("LevelFS", 10, _level),
        Column("NormShares", 11, _norm_shares),
        Column("NormUsage", 11, lambda s: "" if s.is_root else f"{s.standing.norm_usage:.6f}"),
        Column("Partition", 12, lambda s: s.standing.assoc.partition),
        Column("RawShares", 10, _raw_shares),
        Column("RawUsage", 11, lambda s: str(int(s.standing.raw_usage))),
        Column("TRESRunMins", 30, lambda s: s.run_mins),
        Column("User", 10, lambda s: s.standing.assoc.user),
    ]


def _account(share: Share) -> str:
    return " " * share.depth + share.standing.assoc.account


def _norm_shares(share: Share) -> str:
    # Of root Fair Tree says nothing.
    return f"{0.0 if share.is_root and share.tree else share.standing.norm_shares:.6f}"


def _raw_shares(share: Share) -> str:
    if share.is_root:
        return ""
    shares = share.standing.assoc.shares
    return "parent" if shares == SHARES_PARENT else str(shares)


def _factor(share: Share) -> str:
    if share.tree and share.standing.assoc.is_account:
        return ""
    return f"{share.standing.factor:.6f}"


def _level(share: Share) -> str:
    return "" if share.is_root or not share.tree else f"{share.standing.level:.6f}"
