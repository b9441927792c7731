"""scontrol: shows everything about jobs, nodes and configuration, and changes it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from gsched_cli import getopt_long, scontrol_absent
from gsched_cli.common import Reader, Streams, command_main, version_line
from gsched_cli.getopt_long import Arg
from gsched_cli.scontrol_help import HELP
from gsched_cli.stop import UNREACHABLE, Stop, asking, own_cluster

if TYPE_CHECKING:
    from gsched_cli.dump import Asked

NAME = "scontrol"

_NO, _YES, _MAYBE = Arg.NO, Arg.YES, Arg.MAYBE
_SHORT = "adFhM:oQu:vV"
_LONG: dict[str, tuple[Arg, str]] = {
    "all": (_NO, "a"),
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    "details": (_NO, "d"),
    "federation": (_NO, "ignored"),
    "future": (_NO, "F"),
    "help": (_NO, "h"),
    "hide": (_NO, "hide"),
    "json": (_MAYBE, "json"),
    "local": (_NO, "ignored"),
    "oneliner": (_NO, "o"),
    "quiet": (_NO, "Q"),
    "sibling": (_NO, "ignored"),
    "uid": (_YES, "u"),
    "usage": (_NO, "h"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
    "yaml": (_MAYBE, "yaml"),
}

#: keyword -> (fewest letters, keyword, fewest words after it, most words or -1)
_KEYWORDS: dict[str, tuple[int, str, int, int]] = {
    "all": (3, "all", 0, 0),
    "completing": (2, "completing", 0, 0),
    "create": (2, "create", 1, -1),
    "delete": (3, "delete", 1, -1),
    "details": (1, "details", 0, 0),
    "exit": (1, "exit", 0, 0),
    "getaddrs": (4, "getaddrs", 1, 1),
    "help": (2, "help", 0, 0),
    "hide": (2, "hide", 0, 0),
    "hold": (4, "hold", 1, -1),
    "holdu": (5, "uhold", 1, -1),
    "listpids": (5, "listpids", 0, 2),
    "notify": (1, "notify", 2, -1),
    "oneliner": (1, "oneliner", 0, 0),
    "pidinfo": (2, "pidinfo", 0, -1),
    "ping": (3, "ping", 0, 0),
    "quiet": (4, "quiet", 0, 0),
    "quit": (4, "exit", 0, 0),
    "reconfigure": (3, "reconfigure", 0, 0),
    "release": (3, "release", 1, -1),
    "requeue": (3, "requeue", 1, -1),
    "requeuehold": (8, "requeuehold", 1, -1),
    "resume": (3, "resume", 1, -1),
    "show": (3, "show", 1, -1),
    "shutdown": (8, "shutdown", 0, 1),
    "suspend": (2, "suspend", 1, -1),
    "top": (3, "top", 1, -1),
    "uhold": (2, "uhold", 1, -1),
    "update": (1, "update", 1, -1),
    "verbose": (5, "verbose", 0, 0),
    "version": (4, "version", 0, 0),
    "wait_job": (2, "wait_job", 1, 1),
    "write": (5, "write", 1, 3),
}
#: seconds between two looks of wait_job
_POLL = 1.0


class _Session:
    """The switches in force: options, and the commands of the same names."""

    def __init__(self, env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader) -> None:
        self.env = env
        self.cwd = cwd
        self.streams = streams
        self.reader = reader
        self.all = False
        self.detail = 0
        self.one_line = False
        self.future = False
        self.quiet = False
        self.ended = False
        #: "json", "yaml" or "": text; and what was on the command line
        self.dump = ""
        self.argv: Sequence[str] = ()


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    session = _Session(env, cwd, streams, reader)
    try:
        given, words = getopt_long.parse(argv, _SHORT, _LONG)
        session.argv = argv
        for key, value in given:
            if key in ("json", "yaml"):
                from gsched_cli.dump import asked

                session.dump = asked(key, value, NAME)
            elif key == "M":
                own_cluster(value or "", reader, NAME, f"{NAME}: error:", streams)
            else:
                _switch(session, key)
        return _words(session, words) if words else _interactive(session)
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


def _switch(session: _Session, key: str) -> None:
    if key == "a":
        session.all = True
    elif key == "hide":
        session.all = False
    elif key == "d":
        session.detail += 1
    elif key == "o":
        session.one_line = True
    elif key == "F":
        session.future = True
    elif key == "Q":
        session.quiet = True
    elif key == "V":
        session.streams.stdout.write(version_line())
        raise Stop(0)
    elif key == "h":
        session.streams.stdout.write(HELP)
        raise Stop(0)


def _interactive(session: _Session) -> int:
    """Commands from standard input, one a line, until it ends or says exit."""
    import shlex

    streams = session.streams
    streams.files.own()
    prompt = "scontrol: " if streams.stdin.isatty() else ""
    code = 0
    while not session.ended:
        streams.stdout.write(prompt)
        streams.stdout.flush()
        line = streams.stdin.readline()
        if not line:
            break
        try:
            words = shlex.split(line)
            if words:
                code = _words(session, words)
        except ValueError as problem:
            streams.stderr.write(f"{NAME}: error: {problem}\n")
            code = 1
        except Stop as stop:
            streams.stderr.write(stop.text)
            code = stop.code
    return code


def _keyword(word: str, rest: Sequence[str]) -> tuple[str, int, int]:
    low = word.lower()
    if low in _KEYWORDS:
        return _KEYWORDS[low][1:]
    for name, (least, keyword, fewest, most) in _KEYWORDS.items():
        if len(low) >= least and name.startswith(low):
            return keyword, fewest, most
    if low in scontrol_absent.KEYWORDS:
        raise scontrol_absent.refuse(low, rest)
    raise Stop(1, f"invalid keyword: {word}\n")


def _words(session: _Session, words: Sequence[str]) -> int:
    """One command."""
    rest = list(words[1:])
    keyword, fewest, most = _keyword(words[0], rest)
    plain = keyword in ("create", "delete", "update", "version")
    place = f"{words[0]} keyword" if plain else f"keyword:{words[0]}"
    if len(rest) < fewest:
        raise Stop(1, f"too few arguments for {place}\n")
    if 0 <= most < len(rest):
        session.streams.stderr.write(f"too many arguments for {place}\n")
        if keyword == "version":
            session.streams.stdout.write(version_line())
        return 1
    return _carry_out(session, keyword, rest)


def _carry_out(session: _Session, keyword: str, rest: list[str]) -> int:
    streams, reader = session.streams, session.reader
    if keyword == "show":
        return _show(session, rest)
    if keyword == "ping":
        if session.dump:
            from gsched_cli import scontrol_dump

            return scontrol_dump.ping(_asked(session), streams)
        from gsched_cli.scontrol_show import ping

        return ping(reader, streams)
    if keyword in ("version", "help"):
        streams.stdout.write(version_line() if keyword == "version" else HELP)
    elif keyword == "write":
        return _write(session, rest)
    elif keyword == "wait_job":
        return _wait_job(session, rest[0])
    elif keyword == "completing":
        return _completing(session)
    elif keyword == "getaddrs":
        return _addresses(session, rest[0])
    elif keyword == "pidinfo":
        from gsched_cli.scontrol_pids import pid_info

        return pid_info(rest, session.env, reader, streams)
    elif keyword == "listpids":
        from gsched_cli.scontrol_pids import list_pids

        return list_pids(rest, session.env, reader, streams)
    elif keyword == "exit":
        session.ended = True
    elif keyword in _SWITCHES:
        _switch(session, _SWITCHES[keyword])
    else:
        return _change(session, keyword, rest)
    return 0


_SWITCHES = {
    "all": "a",
    "details": "d",
    "hide": "hide",
    "oneliner": "o",
    "quiet": "Q",
    "verbose": "v",
}


def _change(session: _Session, keyword: str, rest: list[str]) -> int:
    from gsched_cli import scontrol_update as change

    streams, reader = session.streams, session.reader
    if keyword == "update":
        return change.update(rest, streams, reader)
    if keyword in ("create", "delete"):
        return _create(rest, streams, reader) if keyword == "create" else _delete(rest, reader)
    if keyword in ("hold", "uhold", "release"):
        return change.hold(keyword, rest, streams, reader)
    if keyword == "notify":
        return change.notify(rest[0], rest[1:], reader)
    if keyword == "reconfigure":
        return change.reconfigure(reader)
    if keyword == "shutdown":
        return change.shutdown(reader)
    return change.each_job(keyword, rest, streams, reader)


def _create(rest: list[str], streams: Streams, reader: Reader) -> int:
    from gsched_cli import scontrol_partition, scontrol_reservation, scontrol_words

    kind, words = scontrol_words.created(rest)
    if kind == "reservation":
        return scontrol_reservation.create(words, streams, reader)
    return scontrol_partition.create(words, reader)


def _delete(rest: list[str], reader: Reader) -> int:
    from gsched_cli import scontrol_partition, scontrol_reservation, scontrol_words

    kind, name = scontrol_words.deleted(rest)
    if kind == "reservation":
        return scontrol_reservation.delete(name, rest[0], reader)
    if kind == "partition":
        return scontrol_partition.delete(name, rest[0], reader)
    # Nodes are those of slurm.conf.
    raise Stop(
        1,
        f"{NAME}: error: failed to delete nodes {name}\n"
        f"delete_node {rest[0]}: Invalid node name specified\n",
    )


def _show(session: _Session, rest: list[str]) -> int:
    from gsched_cli.scontrol_show import ENTITIES, show

    low = rest[0].lower()
    if len(low) > 1 and "assoc_mgr".startswith(low):
        from gsched_cli.scontrol_assoc import show_assoc_mgr

        return show_assoc_mgr(rest[1:], session.reader, session.streams, one_line=session.one_line)
    if len(rest) > 2:
        session.streams.stderr.write("too many arguments for keyword:show\n")
        return 1
    # "show job=17" is another way to say "show job 17".
    entity, equals, value = rest[0].partition("=")
    what = rest[1] if len(rest) > 1 else (value if equals else None)
    kind = _entity(entity, ENTITIES)
    if kind is None:
        raise Stop(1, f"invalid entity:{entity} for keyword:show\n")
    if session.dump:
        from gsched_cli import scontrol_dump

        asked = _asked(session)
        return scontrol_dump.show(kind, what, asked, session.streams, session.all, session.future)
    return show(
        kind,
        what,
        session.env,
        session.streams,
        session.reader,
        one_line=session.one_line,
        detail=session.detail,
        all_=session.all,
        future=session.future,
    )


def _asked(session: _Session) -> Asked:
    from gsched_cli.dump import Asked

    return Asked(session.dump, NAME, session.argv, session.env, session.reader)


def _entity(word: str, table: dict[str, tuple[int, str]]) -> str | None:
    low = word.lower()
    if low in table:
        return table[low][1]
    for name, (least, kind) in table.items():
        if len(low) >= least and name.startswith(low):
            return kind
    return None


def _write(session: _Session, rest: list[str]) -> int:
    """`write batch_script ID [FILE]`: "-" is standard output."""
    from gsched.client import ControllerDown, RequestRefused
    from gsched.wire.messages import BlobQuery

    if rest[0].lower() != "batch_script":
        raise Stop(1, f"invalid write argument:{rest[0]}\n")
    if len(rest) < 2:
        raise Stop(1, f"too few arguments for keyword:write {rest[0]}\n")
    number = rest[1]
    failure = "job script retrieval failed: {}\n"
    if not (number.isascii() and number.isdigit() and len(number) < 11):
        raise Stop(1, failure.format("Invalid job id specified"))
    try:
        script = session.reader.blob(BlobQuery(int(number), "script"))
    except ControllerDown:
        raise Stop(1, failure.format(UNREACHABLE)) from None
    except RequestRefused as refusal:
        # Slurm's exit code for it is 0.
        raise Stop(0, failure.format(refusal)) from None
    name = rest[2] if len(rest) > 2 else f"slurm-{number}.sh"
    if name == "-":
        session.streams.stdout.flush()
        session.streams.stdout.buffer.write(script)
        return 0
    session.streams.files.own()
    path = os.path.join(session.cwd, name)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
        with os.fdopen(fd, "wb") as file:
            file.write(script)
    except OSError as problem:
        raise Stop(1, f"failed to open file `{name}`: {problem.strerror}\n") from None
    if not session.quiet:
        session.streams.stdout.write(f"batch script for job {number} written to {name}\n")
    return 0


def _wait_job(session: _Session, text: str) -> int:
    """Waits until a job's nodes are ready."""
    import time

    from gsched.model.states import JobState
    from gsched.wire.messages import JobQuery

    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise Stop(1, f"{NAME}: error: Invalid job id specified\n")
    session.streams.files.own()
    while True:
        query = JobQuery(ids=[int(text)])
        rows = asking(lambda query=query: session.reader.jobs(query), "slurm_load_jobs error:")  # type: ignore[misc]
        if not rows.jobs:
            raise Stop(1, f"{NAME}: error: Invalid job id specified\n")
        job = rows.jobs[0]
        if job.finished:
            raise Stop(1, f"{NAME}: Job is no longer pending execution\n")
        if job.state is JobState.RUNNING and not job.configuring:
            session.streams.stderr.write(f"{NAME}: Nodes are ready for job {text}\n")
            return 0
        time.sleep(_POLL)


def _completing(session: _Session) -> int:
    """Jobs in COMPLETING and the nodes they still hold."""
    from gsched.wire.messages import JobQuery
    from gsched_cli.jobview import JobView
    from gsched_cli.text import duration, timestamp

    query = JobQuery(active_only=True)
    rows = asking(lambda: session.reader.jobs(query), "slurm_load_jobs error:")
    now = session.reader.now()
    for job in rows.jobs:
        if job.completing:
            view = JobView(job, None, now)
            end = timestamp(job.end_time, session.env, now)
            lasted = duration(max(int(now) - job.end_time, 0))
            session.streams.stdout.write(
                f"JobId={job.id} EndTime={end} CompletingTime={lasted} "
                f"Nodes(COMPLETING)={view.node_text}\n"
            )
    return 0


def _addresses(session: _Session, text: str) -> int:
    from gsched.hostlist import HostlistError, expand
    from gsched_cli.stop import cluster_config

    config = cluster_config(session.reader, NAME)
    try:
        names = expand(text)
    except HostlistError as problem:
        raise Stop(1, f"{problem}\n") from None
    code = 0
    for name in names:
        node = config.nodes.get(name)
        if node is None:
            session.streams.stderr.write(f"Node {name} not found\n")
            code = 1
        else:
            session.streams.stdout.write(f"{name}: {node.addr}:{config.port_of(name)}\n")
    return code


if __name__ == "__main__":
    main()
