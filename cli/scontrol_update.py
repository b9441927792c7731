"""The verbs of scontrol that change something: update, hold, release, requeue, ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gsched.wire.messages import (
    Done,
    JobQuery,
    Reconfigure,
    Refused,
    Reply,
    Shutdown,
    UpdateJob,
    UpdateNode,
    Write,
)
from gsched_cli import scontrol_words
from gsched_cli.common import Reader, Streams, error
from gsched_cli.scontrol_words import NO_ENTITY, bare, kind_of
from gsched_cli.stop import UNREACHABLE, Stop, asking

NAME = "scontrol"

#: fields of a job: lower-case name -> (fewest letters it may be cut to, name sent on)
JOB_FIELDS: dict[str, tuple[int, str]] = {
    "account": (1, "account"),
    "admincomment": (1, "admincomment"),
    "arraytaskthrottle": (2, "arraytaskthrottle"),
    "burstbuffer": (1, "burstbuffer"),
    "clusterfeatures": (8, "clusterfeatures"),
    "comment": (3, "comment"),
    "contiguous": (4, "contiguous"),
    "corespec": (4, "corespec"),
    "cpuspertask": (9, "cpuspertask"),
    "deadline": (3, "deadline"),
    "delayboot": (3, "delayboot"),
    "dependency": (1, "dependency"),
    "eligibletime": (2, "starttime"),
    "endtime": (2, "endtime"),
    "exclusive": (4, "exclusive"),
    "excnodelist": (3, "excnodelist"),
    "extra": (3, "extra"),
    "features": (1, "features"),
    "gres": (2, "gres"),
    "licenses": (1, "licenses"),
    "mailtype": (5, "mailtype"),
    "mailuser": (5, "mailuser"),
    "mincpusnode": (4, "mincpusnode"),
    "minmemorycpu": (10, "minmemorycpu"),
    "minmemorynode": (10, "minmemorynode"),
    "mintmpdisknode": (5, "mintmpdisknode"),
    "timemin": (5, "timemin"),
    "jobname": (4, "name"),
    "name": (2, "name"),
    "nice": (2, "nice"),
    "nodelist": (8, "nodelist"),
    "numcpus": (6, "numcpus"),
    "numnodes": (8, "numnodes"),
    "numtasks": (8, "numtasks"),
    "oversubscribe": (2, "oversubscribe"),
    "partition": (2, "partition"),
    "prefer": (3, "prefer"),
    "priority": (2, "priority"),
    "qos": (2, "qos"),
    "reboot": (3, "reboot"),
    "reqcores": (4, "reqcores"),
    "reqnodelist": (8, "nodelist"),
    "reqnodes": (8, "numnodes"),
    "reqprocs": (4, "numtasks"),
    "reqsockets": (4, "reqsockets"),
    "reqthreads": (4, "reqthreads"),
    "requeue": (4, "requeue"),
    "reservationname": (3, "reservationname"),
    "resetaccruetime": (6, "resetaccruetime"),
    "shared": (2, "oversubscribe"),
    "sitefactor": (5, "sitefactor"),
    "stdout": (3, "stdout"),
    "starttime": (2, "starttime"),
    "switches": (5, "switches"),
    "stderr": (4, "stderr"),
    "stdin": (4, "stdin"),
    "taskspernode": (2, "taskspernode"),
    "threadspec": (4, "threadspec"),
    "timelimit": (5, "timelimit"),
    "tresperjob": (7, "tresperjob"),
    "trespernode": (7, "trespernode"),
    "trespersocket": (7, "trespersocket"),
    "trespertask": (7, "trespertask"),
    "wait-for-switch": (4, "wait-for-switch"),
    "wckey": (2, "wckey"),
    "workdir": (2, "workdir"),
}
#: fields of a node, the same way
NODE_FIELDS: dict[str, tuple[int, str]] = {
    "activefeatures": (3, "activefeatures"),
    "availablefeatures": (3, "availablefeatures"),
    "comment": (2, "comment"),
    "extra": (1, "extra"),
    "features": (1, "availablefeatures"),
    "gres": (1, "gres"),
    "nodeaddr": (5, "nodeaddr"),
    "nodehostname": (5, "nodehostname"),
    "reason": (1, "reason"),
    "resumeafter": (4, "resumeafter"),
    "state": (1, "state"),
    "weight": (1, "weight"),
}
#: what a node may be told: word -> (fewest letters, word sent on)
NODE_STATES: dict[str, tuple[int, str]] = {
    "noresp": (3, "noresp"),
    "no_resp": (3, "noresp"),
    "cancel_reboot": (3, "cancel_reboot"),
    "down": (3, "down"),
    "drain": (3, "drain"),
    "fail": (3, "fail"),
    "future": (3, "future"),
    "idle": (3, "idle"),
    "power_down": (7, "power_down"),
    "power_up": (7, "power_up"),
    "resume": (3, "resume"),
    "undrain": (3, "undrain"),
}
NOT_SUPPORTED = "Requested operation not supported on this system"
_UNSUPPORTED_FIELD = "Update of this parameter is not supported: "


def lookup(word: str, table: dict[str, tuple[int, str]]) -> str | None:
    """The entry a word, possibly cut short, stands for; None if there is none."""
    low = word.lower()
    if low in table:
        return table[low][1]
    for name, (least, value) in table.items():
        if len(low) >= least and name.startswith(low):
            return value
    return None


# ---- update ----------------------------------------------------------------------------------


def update(words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """`update ENTITY=... KEY=VALUE ...`."""
    kind, words = scontrol_words.updated(words)
    if kind in ("job", "jobname"):
        return _update_job(kind, words, streams, reader)
    if kind == "node":
        return _update_node(words, reader)
    if kind == "partition":
        from gsched_cli import scontrol_partition

        name = scontrol_partition.name_of(words)
        if not name:
            raise Stop(1, NO_ENTITY)
        return scontrol_partition.update(name, words, reader)
    if kind == "reservation":
        from gsched_cli import scontrol_reservation

        return scontrol_reservation.update(words, streams, reader)
    raise Stop(1, f"slurm_update error: {NOT_SUPPORTED}\n")


def _pairs(
    words: Sequence[str], entity: tuple[str, ...], table: dict[str, tuple[int, str]]
) -> dict[str, str]:
    fields: dict[str, str] = {}
    seen_entity = False
    for word in words:
        key, equals, value = word.partition("=")
        if key.lower() in entity and not seen_entity:
            seen_entity = True
            continue
        # "priority+=5" and "timelimit-=10" add to what is there.
        sign = key[-1:] if key[-1:] in ("+", "-") else ""
        name = lookup(key.rstrip("+-"), table)
        # "nice" alone is nice=100, as in Slurm.
        if name is None or not (equals or name in scontrol_words.ALONE):
            raise Stop(1, f"{_UNSUPPORTED_FIELD}{word}\nRequest aborted\n")
        fields[name] = sign + value
    if not fields:
        raise Stop(1, "No changes specified\n")
    return fields


def _update_job(kind: str, words: Sequence[str], streams: Streams, reader: Reader) -> int:
    whose = [word for word in words if word.lower().startswith("userid=")]
    named = [word for word in words if kind_of(word) == kind]
    rest = [word for word in words if word not in (*whose, *named)]
    fields = _pairs(rest, (), JOB_FIELDS)
    # Of several the last one counts.
    ids = named[-1].partition("=")[2]
    if kind == "jobname":
        ids = ",".join(_of_name(ids, whose[-1].partition("=")[2] if whose else "", reader))
    for name in ("timelimit", "timemin"):
        if name in fields:
            _check_time("TimeLimit" if name == "timelimit" else "TimeMin", fields[name])
    request = UpdateJob(_split(ids), "update", fields)
    return _report(_call(reader, request, ids), ids, streams)


def _check_time(name: str, value: str) -> None:
    from gsched.units import UnitError, parse_duration

    try:
        parse_duration(value.lstrip("+-"))
    except UnitError:
        raise Stop(1, f"{NAME}: error: Invalid {name} value\n") from None


def _of_name(name: str, user: str, reader: Reader) -> list[str]:
    """Ids of the jobs of that name that have not ended, of one user where one is named."""
    from gsched_cli.process import uid_of

    query = JobQuery(active_only=True)
    rows = asking(lambda: reader.jobs(query), f"{NAME}: error: Could not load state information:")
    uid = uid_of(user) if user else reader.uid or None
    if user and uid is None:
        raise Stop(1, f"Invalid UserID: {user}\nRequest aborted\n")
    found = [str(job.id) for job in rows.jobs if job.spec.name == name and uid in (None, job.uid)]
    if not found:
        whose = "" if uid is None else f"user ID {uid} and "
        raise Stop(1, f"{NAME}: error: No jobs with {whose}name '{name}'\n")
    return found


def _update_node(words: Sequence[str], reader: Reader) -> int:
    from gsched.hostlist import HostlistError, expand

    names = next(word for word in words if kind_of(word) == "node").partition("=")[2]
    fields = _pairs(words, ("node",), NODE_FIELDS)
    try:
        nodes = _all_nodes(reader) if names.upper() == "ALL" else expand(names)
    except HostlistError as problem:
        raise Stop(1, f"{NAME}: error: {problem}\n") from None
    state = ""
    if "state" in fields:
        given = fields.pop("state")
        found = lookup(given, NODE_STATES)
        if found is None:
            word = next(word for word in words if word.endswith(f"={given}"))
            raise Stop(
                1,
                f"Invalid input: {word}\nRequest aborted\n"
                "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n"
                "Not all states are valid given a node's prior state\n",
            )
        state = found
    reason = fields.pop("reason", "")
    if state in ("down", "drain", "fail") and not reason:
        raise Stop(1, "You must specify a reason when DOWNING or DRAINING a node. Request denied\n")
    reply = _simple(reader, UpdateNode(nodes, state, reason, fields), "slurm_update error: ")
    if reply.errors:
        raise Stop(1, f"slurm_update error: {reply.errors[0][1]}\n")
    return 0


def _all_nodes(reader: Reader) -> list[str]:
    from gsched.wire.messages import NodeQuery

    rows = asking(lambda: reader.nodes(NodeQuery()), "slurm_update error:")
    return [node.name for node in rows.nodes]


# ---- hold, release, requeue ------------------------------------------------------------------


def hold(verb: str, words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """`hold`, `uhold`, `release`: each word is a list of ids, or jobname=NAME."""
    code = 0
    for word in words:
        try:
            ids = _named(word, reader)
            if not ids:
                raise Stop(1, "slurm_suspend error:Invalid job id specified\n")
            reply = _call(reader, UpdateJob(ids, verb), bare(word))
        except Stop as stop:
            streams.stderr.write(stop.text)
            code = stop.code
            continue
        failed = _report(reply, bare(word), streams)
        if failed:
            code = failed
            streams.stderr.write(f"slurm_suspend error:{_last(reply)}\n")
    return code


def _named(word: str, reader: Reader) -> list[str]:
    key, equals, name = word.partition("=")
    if not equals or key.lower() not in ("jobname", "name"):
        return _split(bare(word))
    query = JobQuery(active_only=True)
    rows = asking(lambda: reader.jobs(query), "slurm_suspend error:")
    return [
        str(job.id) for job in rows.jobs if job.spec.name == name and reader.uid in (0, job.uid)
    ]


def each_job(verb: str, words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """`requeue`, `requeuehold`, `suspend`, `resume`, `top`: lists of ids."""
    code = 0
    fields: dict[str, str] = {}
    for word in words:
        if word.lower().startswith("state="):
            continue
        if word.lower() == "incomplete" and verb.startswith("requeue"):
            fields["incomplete"] = "1"
            continue
        word = bare(word)
        try:
            reply = _call(reader, UpdateJob(_split(word), verb, fields), word)
        except Stop as stop:
            streams.stderr.write(stop.text)
            code = stop.code
            continue
        code = _report(reply, word, streams) or code
    return code


def notify(job: str, words: Sequence[str], reader: Reader) -> int:
    """`notify ID[.STEP] MESSAGE`: what is for a step goes where its job's words go."""
    job = job.partition(".")[0]
    prefix = "job notify failure: "
    reply = _simple(reader, UpdateJob([job], "notify", {"message": " ".join(words)}), prefix)
    if reply.errors:
        raise Stop(1, f"{prefix}{reply.errors[0][1]}\n")
    return 0


def reconfigure(reader: Reader) -> int:
    """`reconfigure`."""
    _simple(reader, Reconfigure(), "slurm_reconfigure error:")
    return 0


def shutdown(reader: Reader) -> int:
    """`shutdown`."""
    _simple(reader, Shutdown(), "slurm_shutdown error:")
    return 0


# ---- helpers ---------------------------------------------------------------------------------


def _split(ids: str) -> list[str]:
    """Ids at commas outside brackets."""
    items, depth, start = [], 0, 0
    for place, char in enumerate(ids):
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            items.append(ids[start:place])
            start = place + 1
    items.append(ids[start:])
    return [item for item in items if item]


def _call(reader: Reader, request: Write, what: str) -> Reply:
    from gsched.client import ControllerDown

    try:
        return reader.call(request)
    except ControllerDown:
        raise Stop(1, f"{UNREACHABLE} for job {what}\n") from None


def _simple(reader: Reader, request: Write, prefix: str) -> Done:
    reply = _asked(lambda: reader.call(request), prefix)
    if isinstance(reply, Refused):
        raise Stop(1, f"{prefix}{reply.message}\n")
    return reply


def _asked(question: Callable[[], Reply], prefix: str) -> Reply:
    from gsched.client import ControllerDown

    try:
        return question()
    except ControllerDown:
        raise Stop(1, f"{prefix}{UNREACHABLE}\n") from None


def _report(reply: Reply, what: str, streams: Streams) -> int:
    """Says what went wrong; the exit code."""
    if isinstance(reply, Refused):
        streams.stderr.write(_sentence(reply.message, what))
        return 1
    for note in reply.notes:
        error(streams, NAME, note)
    for job, message in reply.errors:
        streams.stderr.write(_sentence(message, job))
    return 1 if reply.errors else 0


def _sentence(message: str, job: str) -> str:
    if message.startswith(_UNSUPPORTED_FIELD):
        return f"{message}\nRequest aborted\n"
    return f"{message} for job {job}\n"


def _last(reply: Reply) -> str:
    return reply.message if isinstance(reply, Refused) else reply.errors[-1][1]
