"""sacctmgr's changes of accounting's own database: fields of jobs that are over, archives; and what
only it still knows of policy that was deleted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gsched import units
from gsched.model.policy import (
    Account,
    Assoc,
    Cluster,
    Federation,
    PolicyRecord,
    Qos,
    Resource,
    User,
    Wckey,
)
from gsched.policy import Book
from gsched.policy.settings import names
from gsched.wire.messages import AcctQuery, AcctRows
from gsched.wire.report import ReportQuery, ReportRows, RunawayRow, TransactionRow
from gsched_cli.sacctmgr_change import SURE, agreed
from gsched_cli.sacctmgr_list import State, refuse
from gsched_cli.sacctmgr_words import split
from gsched_cli.stop import Stop, asking
from gsched_cli.text import timestamp

if TYPE_CHECKING:
    from gsched_cli.common import Reader, Streams

_UNPRIVILEGED = "sacctmgr: error: Your user doesn't have privilege to perform this action\n"
COMMIT = "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): "
#: what jobs are found by -> fewest letters; what is set -> (fewest letters, field)
_WHERE = {"cluster": 1, "endtime": 1, "jobs": 1, "starttime": 1, "users": 1, "wckeys": 1}
_WHERE_ALSO = {"jobid": "jobs", "jobids": "jobs", "job": "jobs", "clusters": "cluster"}
_SET = {
    "admincomment": (2, "admin_comment"),
    "comment": (1, "comment"),
    "derivedexitcode": (12, "derived_wstatus"),
    "derivedexitstring": (12, "comment"),
    "newwckey": (1, "wckey"),
    "systemcomment": (2, "system_comment"),
}
_KEEPS = {
    f"purge{what}after": f"purge{name}after"
    for what, name in (("event", "event"), ("job", "job"), ("step", "step"), ("resv", "resv"))
} | {"purgetxnafter": "purgetxnafter", "purgeusageafter": "purgeusageafter"}
_ARCHIVED = {"events": "archiveevents", "jobs": "archivejobs", "steps": "archivesteps"} | {
    "reservations": "archiveresvs",
    "txn": "archivetxn",
    "usage": "archiveusage",
}
#: what gsched keeps in the rows of jobs
_NOWHERE = ("suspend", "purgesuspendafter")


# ---- jobs that are over -------------------------------------------------------------------------


def modify_job(
    reader: Reader,
    streams: Streams,
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cluster: str,
    immediate: bool,
) -> int:
    """`modify job where ... set ...`. The exit code. Stop."""
    where: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    place = "where"
    for word in words:
        low = word.lower()
        if low in ("where", "set"):
            place = low
            continue
        name, sign, value = split(word)
        if place == "where":
            key = _key(name, _WHERE) if sign else ""
            if not key:
                raise Stop(1, f" Unknown condition: {word}\n Use keyword 'set' to modify value\n")
            where.setdefault(key, []).extend(
                [value] if key in ("starttime", "endtime") else names(value)
            )
            continue
        field = _field(name) if sign == "=" else ""
        if not field:
            streams.stdout.write(
                f" Unknown option: {word}\n Use keyword 'where' to modify condition\n"
            )
            continue
        if field == "derived_wstatus":
            digits = value.partition(":")[0]
            if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
                streams.stderr.write(
                    f"sacctmgr: error: Invalid value for DerivedExitCode ({value})\n"
                )
                continue
            value = digits
        values[field] = [value]
    if not values:
        raise Stop(1, " You didn't give me anything to set\n")
    found = [] if _elsewhere(where, cluster) else _ended(where, reader)
    if not found:
        raise Stop(1, " Nothing modified\n")
    streams.stdout.write(" Modified jobs...\n")
    now = reader.now()
    for job_id, _, submit in found:
        streams.stdout.write(f"  {job_id} submitted at {timestamp(submit, env, now)}\n")
    if not immediate and not agreed(streams, COMMIT):
        streams.stdout.write(" Changes Discarded\n")
        return 0
    ids = [f"/{job_id}/{restarts}" for job_id, restarts, _ in found]
    done = _do(reader, ReportQuery("change", only={"ids": ids, **values}), "Error with request")
    missed = {(job, tries) for job, tries, _ in found} - {
        (row.job_id, row.restarts) for row in done.rows if isinstance(row, RunawayRow)
    }
    if missed:
        some = ", ".join(str(job_id) for job_id, _ in sorted(missed))
        raise Stop(1, f"sacctmgr: error: not in the database yet, and not changed: {some}\n")
    return 0


def _key(name: str, keys: Mapping[str, int]) -> str:
    low = name.lower()
    if low in _WHERE_ALSO:
        return _WHERE_ALSO[low]
    return next((key for key in keys if low and key.startswith(low)), "")


def _field(name: str) -> str:
    low = name.lower()
    for full, (least, field) in _SET.items():
        if len(low) >= least and full.startswith(low):
            return field
    return ""


def _elsewhere(where: Mapping[str, list[str]], cluster: str) -> bool:
    wanted = where.get("cluster")
    return wanted is not None and cluster.lower() not in {name.lower() for name in wanted}


def _ended(where: Mapping[str, list[str]], reader: Reader) -> list[tuple[int, int, int]]:
    """(job, restarts, submitted) of the last attempts that are over and meet the conditions."""
    from gsched_cli import sacct_options

    wanted = sacct_options.Wanted()
    if "jobs" in where:
        sacct_options.jobs_named(wanted, ",".join(where["jobs"]), "sacctmgr")
    for name in where.get("users", ()):
        sacct_options.users_named(wanted, name, "sacctmgr")
    query: AcctQuery = wanted.query
    query.wckeys = list(where.get("wckeys", ()))
    query.allocations = query.ineligible = True
    now = int(reader.now())
    query.start = _when(where.get("starttime"), now, 0)
    query.end = _when(where.get("endtime"), now, now + 1)
    found: dict[int, tuple[int, int, int]] = {}

    def page() -> AcctRows:
        return reader.accounting(query)

    while True:
        rows = asking(page, "sacctmgr: error:")
        for job in rows.jobs:
            found.pop(job.job_id, None)
            if job.end_time:
                found[job.job_id] = job.job_id, job.restarts, job.submit
        if not rows.more:
            return list(found.values())
        query = msgspec.structs.replace(query, after=rows.last)


def _when(texts: Sequence[str] | None, now: int, default: int) -> int:
    if not texts:
        return default
    try:
        return units.parse_time_point(texts[0], now, past=True)
    except units.UnitError as problem:
        raise Stop(1, f"{problem}\n") from None


def _do(reader: Reader, query: ReportQuery, what: str) -> ReportRows:
    from gsched.client import RequestRefused

    def ask() -> ReportRows:
        try:
            return reader.report(query)
        except RequestRefused as refusal:
            if refusal.code == "ESLURM_ACCESS_DENIED":
                raise Stop(1, f"{_UNPRIVILEGED} {what}: {refusal}\n") from None
            raise

    return asking(ask, "sacctmgr: error:")


# ---- archives -----------------------------------------------------------------------------------


def archive(
    reader: Reader, streams: Streams, words: Sequence[str], cwd: str, *, immediate: bool
) -> int:
    """`archive dump ...` and `archive load ...`. The exit code. Stop."""
    low = words[0].lower() if words else ""
    if low and "dump".startswith(low):
        return _dump(reader, streams, words[1:], immediate=immediate)
    if low and "load".startswith(low):
        return _load(reader, streams, words[1:], cwd)
    raise Stop(
        1, 'No valid entity in archive command\nInput line must include, "Dump", or "load"\n'
    )


def _dump(reader: Reader, streams: Streams, words: Sequence[str], *, immediate: bool) -> int:
    only: dict[str, list[str]] = {}
    for word in words:
        name, sign, value = split(word)
        low = name.lower() if sign else word.lower()
        kinds = [key for key in _ARCHIVED if len(low) >= 2 and key.startswith(low)]
        if low in _NOWHERE:
            continue
        if not sign and kinds:
            only[_ARCHIVED[kinds[0]]] = ["yes"]
        elif sign and low in _KEEPS:
            if units.parse_age(value) is None:
                raise Stop(1, f"sacctmgr: error: Invalid purge string '{value}'\n")
            only[_KEEPS[low]] = [value]
        elif sign and len(low) >= 2 and "directory".startswith(low):
            only["archivedir"] = [value]
        elif sign and low == "script":
            raise refuse("archive dump Script=")
        else:
            raise Stop(1, f" Unknown condition: {word}\n")
    if not immediate:
        question = (
            "This may result in loss of accounting database records (if Purge* options enabled).\n"
        )
        if not agreed(streams, question + SURE):
            return 1
    _do(reader, ReportQuery("archive", only=only), "Problem dumping archive")
    return 0


def _load(reader: Reader, streams: Streams, words: Sequence[str], cwd: str) -> int:
    path = ""
    for word in words:
        name, sign, value = split(word)
        low = name.lower()
        if not sign or (low and "file".startswith(low)):
            path = value
        elif low and "insert".startswith(low):
            raise refuse("archive load Insert=")
        else:
            raise Stop(1, f" Unknown option: {word}\n")
    if not path:
        raise Stop(
            1,
            "sacctmgr: error: Error with request.\n"
            " Problem loading archive file: Unspecified error\n",
        )
    where = os.path.join(cwd, path)
    _do(reader, ReportQuery("load", only={"file": [where]}), "Problem loading archive file")
    return 0


# ---- what was deleted ---------------------------------------------------------------------------

_RECORDS: dict[str, type[PolicyRecord]] = {
    "account": Account,
    "assoc": Assoc,
    "cluster": Cluster,
    "federation": Federation,
    "qos": Qos,
    "resource": Resource,
    "user": User,
    "wckey": Wckey,
}


def with_deleted(reader: Reader, streams: Streams, state: State) -> State:
    """With what there was, below what there is."""
    rows = asking(lambda: reader.report(ReportQuery("deleted")), "sacctmgr: error:")
    if rows.warning:
        streams.stderr.write(f"sacctmgr: error: {rows.warning}\n")
    book = state.book
    records: list[PolicyRecord] = []
    there = {
        *(("account", name) for name in book.accounts),
        *(("user", name) for name in book.users),
        *(("qos", name) for name in book.qos),
        *(("assoc", str(number)) for number in book.assocs),
        *(("wckey", str(number)) for number in book.wckeys),
        *(("resource", name) for name in book.resources),
        *(("federation", name) for name in book.federations),
        *(("cluster", name) for name in book.clusters),
    }
    places = {(one.account, one.user, one.partition) for one in book.assocs.values()}
    for row in rows.rows:
        if not isinstance(row, TransactionRow) or (row.action, row.actor) in there:
            continue
        record = msgspec.json.decode(row.info, type=_RECORDS[row.action])
        if isinstance(record, Assoc):
            place = record.account, record.user, record.partition
            if place in places:
                continue
            places.add(place)
        records.append(record)
    return state._replace(book=Book([*book.records(), *records]))
