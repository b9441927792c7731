"""sacctmgr's listings of what accounting's database keeps: events, transactions, reservations,
runaway jobs; and the controller's own state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from gsched import hostlist, tres, units
from gsched.wire.report import EventRow, ReportQuery, ResvRow, RunawayRow, TransactionRow
from gsched_cli.process import user_name
from gsched_cli.sacctmgr_change import agreed
from gsched_cli.sacctmgr_list import State
from gsched_cli.sacctmgr_table import Field, chosen, written
from gsched_cli.sacctmgr_words import Said
from gsched_cli.stop import Stop, asking
from gsched_cli.text import timestamp

if TYPE_CHECKING:
    from gsched_cli.common import Reader, Streams

Row = TypeVar("Row")
_DAY = 86400
#: what events say of the cluster itself
REGISTERED = "Cluster Registered TRES"


class _Question:
    """A listing: whom it asks, and how it writes."""

    def __init__(
        self, reader: Reader, streams: Streams, state: State, env: Mapping[str, str]
    ) -> None:
        self.reader = reader
        self.streams = streams
        self.state = state
        self.env = env
        self.now = reader.now()
        #: -i: nothing is asked
        self.immediate = False

    def when(self, said: Said, key: str, default: int) -> int:
        """A condition that is a time. Stop."""
        text = said.where.get(key)
        if not text:
            return default
        try:
            return units.parse_time_point(text[0], int(self.now), past=True)
        except units.UnitError:
            raise Stop(1, f"sacctmgr: error: Invalid time specification: {text[0]}\n") from None

    def rows(self, kind: str, said: Said, start: int, only: dict[str, list[str]]) -> list[object]:
        """The database's answer; what it could not say is said on standard error."""
        cluster = said.where.get("cluster")
        own = self.state.cluster.lower()
        if cluster and own not in {name.lower() for name in cluster}:
            return []
        query = ReportQuery(
            kind,
            self.when(said, "start", start),
            self.when(said, "end", int(self.now) + 1),
            {key: values for key, values in only.items() if values},
        )
        answer = asking(lambda: self.reader.report(query), "sacctmgr: error:")
        if answer.warning:
            self.streams.stderr.write(f"sacctmgr: error: {answer.warning}\n")
        return list(answer.rows)

    def time(self, when: int) -> str:
        return timestamp(when, self.env, self.now, "Unknown")

    def write(self, form: str, fields: Sequence[Field[Row]], rows: Sequence[Row]) -> None:
        self.streams.stdout.write(written(chosen(form, fields), rows, self.state.look))


def listing(
    reader: Reader,
    streams: Streams,
    state: State,
    kind: str,
    said: Said,
    env: Mapping[str, str],
    *,
    immediate: bool = False,
) -> int:
    """The rows of one kind. The exit code."""
    ask = _Question(reader, streams, state, env)
    ask.immediate = immediate
    _KINDS[kind](ask, said)
    return 0


# ---- events -------------------------------------------------------------------------------------


def _events(ask: _Question, said: Said) -> None:
    yesterday = units.parse_time_point("midnight", int(ask.now), past=True) - _DAY
    start = 0 if said.on("alltime") or said.where.get("state") else yesterday
    nodes = [one for text in said.where.get("node", []) for one in hostlist.expand(text)]
    states = [one.upper() for one in said.where.get("state", [])]
    rows = [one for one in ask.rows("events", said, start, {"nodes": nodes}) if _event(one)]
    kinds = {one.lower()[:1] for one in said.where.get("event", [])}
    users = said.where.get("user")
    reasons = said.where.get("reason")
    found = []
    for row in rows:
        assert isinstance(row, EventRow)
        if states and not any(row.state.upper().startswith(one) for one in states):
            continue
        if kinds and ("n" if row.node else "c") not in kinds:
            continue
        if users and (not row.node or user_name(row.uid) not in users):
            continue
        if reasons and not any(one.lower() in row.reason.lower() for one in reasons):
            continue
        if "open" in {one.lower() for one in said.where.get("condflags", [])} and row.end:
            continue
        if not row.node and (states or nodes):
            continue
        found.append(row)
    ask.write(
        said.format or "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User",
        _event_fields(ask),
        found,
    )


def _event(row: object) -> bool:
    return isinstance(row, EventRow)


def _event_fields(ask: _Question) -> list[Field[EventRow]]:
    cluster = ask.state.cluster

    def lasted(row: EventRow) -> str:
        return units.format_padded(max(0, (row.end or int(ask.now)) - row.begin))

    def who(row: EventRow) -> str:
        return f"{user_name(row.uid)}({row.uid})" if row.node and row.uid >= 0 else ""

    return [
        Field(("Cluster",), "Cluster", 10, lambda r: cluster, 1),
        Field(("ClusterNodes",), "Cluster Nodes", 20, lambda r: r.cluster_nodes, 8),
        Field(("Duration",), "Duration", 13, lasted, 2),
        Field(("TimeEnd", "End"), "TimeEnd", 19, lambda r: ask.time(r.end), 2),
        Field(("Event",), "Event", 7, lambda r: "Node" if r.node else "Cluster", 2),
        Field(("EventRaw",), "EventRaw", 8, lambda r: "2" if r.node else "1", 6),
        Field(("NodeName",), "NodeName", -15, lambda r: r.node, 2),
        Field(("TimeStart", "Start"), "TimeStart", 19, lambda r: ask.time(r.begin), 2),
        Field(
            ("Reason",),
            "Reason",
            30,
            lambda r: r.reason if r.node else r.reason or REGISTERED,
            1,
        ),
        Field(("State",), "State", 6, lambda r: r.state if r.node else "", 2),
        Field(("TRES",), "TRES", 20, lambda r: r.tres, 2),
        Field(("User",), "User", 10, who, 1),
    ]


# ---- transactions -------------------------------------------------------------------------------


def _transactions(ask: _Question, said: Said) -> None:
    only = {
        "actions": said.where.get("action", []),
        "actors": said.where.get("actor", []),
        "accounts": said.where.get("account", []),
        "users": said.where.get("user", []),
    }
    rows = [one for one in ask.rows("transactions", said, 0, only) if _transaction(one)]
    fields: list[Field[TransactionRow]] = [
        Field(("Action",), "Action", 20, lambda r: r.action, 4),
        Field(("Actor",), "Actor", 10, lambda r: r.actor, 4),
        Field(("Info",), "Info", 20, lambda r: r.info, 2),
        Field(("TimeStamp", "Time"), "Time", 19, lambda r: ask.time(r.time), 1),
        Field(("Where",), "Where", 20, lambda r: r.where, 2),
    ]
    found = [one for one in rows if isinstance(one, TransactionRow)]
    ask.write(said.format or "Time,Action,Actor,Where,Info", fields, found)


def _transaction(row: object) -> bool:
    return isinstance(row, TransactionRow)


# ---- reservations -------------------------------------------------------------------------------


def _reservations(ask: _Question, said: Said) -> None:
    today = units.parse_time_point("midnight", int(ask.now), past=True)
    nodes = [one for text in said.where.get("node", []) for one in hostlist.expand(text)]
    only = {
        "names": said.where.get("name", []),
        "ids": said.where.get("id", []),
        "nodes": nodes,
    }
    known = tres.tracked(ask.state.config)
    fields: list[Field[ResvRow]] = [
        Field(("Associations",), "Associations", 15, lambda r: r.assocs, 1),
        Field(("Cluster",), "Cluster", 10, lambda r: ask.state.cluster, 1),
        Field(("TimeEnd", "End"), "TimeEnd", 19, lambda r: ask.time(r.end), 2),
        Field(("Flags",), "Flags", 20, lambda r: r.flags, 2),
        Field(("ID",), "ID", 10, lambda r: str(r.id), 1),
        Field(("Name",), "Name", 15, lambda r: r.name, 2),
        Field(("NodeNames",), "NodeNames", 15, lambda r: r.nodes, 5),
        Field(("TimeStart", "Start"), "TimeStart", 19, lambda r: ask.time(r.begin), 2),
        Field(("TRES",), "TRES", 30, lambda r: tres.text(r.tres, known), 2),
        Field(("UnusedWall",), "UnusedWall", 10, lambda r: _unused(ask, r), 1),
    ]
    rows = ask.rows("reservations", said, today, only)
    found = [one for one in rows if isinstance(one, ResvRow)]
    form = "Cluster,Name,TRES,TimeStart,TimeEnd,UnusedWall"
    ask.write(said.format or form, fields, found)


def _unused(ask: _Question, row: ResvRow) -> str:
    """Seconds of wall time that no job used: jobs count by their part of the CPUs."""
    cpus = row.tres.get("cpu", 0)
    seconds = max(0, min(row.end, int(ask.now)) - row.begin)
    taken = row.used.get("cpu", 0) / cpus if cpus else 0.0
    return f"{max(0.0, seconds - taken):.6f}"


# ---- runaway jobs -------------------------------------------------------------------------------


def _runaway(ask: _Question, said: Said) -> None:
    uid = ask.reader.uid
    if uid != 0 and ask.state.book.level(user_name(uid)) == "None":
        raise Stop(
            1, "sacctmgr: error: You must have an AdminLevel>=Operator to fix runaway jobs\n"
        )
    rows = ask.rows("runaway", said, 0, {})
    found = [one for one in rows if isinstance(one, RunawayRow)]
    if not found:
        ask.streams.stdout.write(
            f"Runaway Jobs: No runaway jobs found on cluster {ask.state.cluster}\n"
        )
        return
    say = ask.streams.stdout.write
    say(
        "NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and "
        "no end time in the database\n"
    )
    fields: list[Field[RunawayRow]] = [
        Field(("Cluster",), "Cluster", 10, lambda r: ask.state.cluster, 1),
        Field(("ID",), "ID", -12, lambda r: str(r.job_id), 1),
        Field(("Name",), "Name", 10, lambda r: r.name, 1),
        Field(("Partition",), "Partition", 10, lambda r: r.partition, 1),
        Field(("State",), "State", 6, lambda r: r.state, 1),
        Field(("TimeSubmit", "Submit"), "TimeSubmit", 19, lambda r: ask.time(r.submit), 5),
        Field(("TimeStart", "Start"), "TimeStart", 19, lambda r: ask.time(r.start), 5),
        Field(("TimeEnd", "End"), "TimeEnd", 19, lambda r: ask.time(r.end), 5),
    ]
    form = "ID,Name,Partition,Cluster,State%10,TimeSubmit,TimeStart,TimeEnd"
    ask.write(said.format or form, fields, found)
    if not ask.immediate and not agreed(ask.streams, _FIX):
        say(" Changes Discarded\n")
        return
    ids = [f"/{row.job_id}/{row.restarts}" for row in found]
    asking(lambda: ask.reader.report(ReportQuery("mend", only={"ids": ids})), "sacctmgr: error:")


_FIX = (
    "\nWould you like to fix these runaway jobs?\n(This will set the end time for each job to the "
    "latest out of the start, eligible, or submit times, and set the state to completed.\nOnce "
    "corrected, this will trigger the rollup to reroll usage from before the earliest submit time "
    "of all the runaway jobs.)\n\n (You have 30 seconds to decide)\n(N/y): "
)


_KINDS: dict[str, Callable[[_Question, Said], None]] = {
    "event": _events,
    "reservation": _reservations,
    "runawayjobs": _runaway,
    "transaction": _transactions,
}
