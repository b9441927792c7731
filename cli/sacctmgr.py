"""sacctmgr: accounts, users, associations and QOS: lists them and changes them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gsched.policy import Book
from gsched.wire.policy import PolicyQuery
from gsched_cli import getopt_long, sacctmgr_change, sacctmgr_file, sacctmgr_list, sacctmgr_words
from gsched_cli.common import Reader, Streams, command_main, version_line
from gsched_cli.getopt_long import Arg
from gsched_cli.sacctmgr_help import HELP
from gsched_cli.sacctmgr_list import State
from gsched_cli.sacctmgr_table import Look
from gsched_cli.stop import Stop, asking, cluster_config

NAME = "sacctmgr"

_NO, _MAYBE = Arg.NO, Arg.MAYBE
_SHORT = "hinopPQrsvV"
_LONG: dict[str, tuple[Arg, str]] = {
    "associations": (_NO, "s"),
    "help": (_NO, "h"),
    "immediate": (_NO, "i"),
    "json": (_MAYBE, "json"),
    "noheader": (_NO, "n"),
    "oneliner": (_NO, "o"),
    "parsable": (_NO, "p"),
    "parsable2": (_NO, "P"),
    "quiet": (_NO, "Q"),
    "readonly": (_NO, "r"),
    "usage": (_NO, "h"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
    "yaml": (_MAYBE, "yaml"),
}
#: largest file that `load` reads, bytes
MOST = 64 << 20


class _Session:
    """The switches in force: options, and the commands of the same names."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        streams: Streams,
        reader: Reader,
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.streams = streams
        self.reader = reader
        self.immediate = False
        self.header = True
        self.parsable = ""
        self.quiet = False
        self.readonly = False
        self.associations = False
        #: "json", "yaml" or "": columns
        self.dump = ""
        self.interactive = False
        self.ended = False

    def state(self) -> State:
        """What the ledger holds now."""
        config = cluster_config(self.reader, NAME)
        rows = asking(lambda: self.reader.policy(PolicyQuery()), f"{NAME}: error:")
        look = Look(self.header, self.parsable)
        return State(Book(rows.records), config, look, self.associations)

    def say(self, text: str) -> None:
        self.streams.stdout.write(text)


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    session = _Session(argv, env, cwd, streams, reader)
    try:
        given, words = getopt_long.parse(argv, _SHORT, _LONG)
        for key, text in given:
            _switch(session, key, text)
        return _words(session, words) if words else _interactive(session)
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


def _switch(session: _Session, key: str, text: str | None = None) -> None:
    if key == "h":
        session.say(HELP)
        raise Stop(0)
    if key == "V":
        session.say(version_line())
        raise Stop(0)
    if key in ("p", "P"):
        session.parsable = key
    elif key == "i":
        session.immediate = True
    elif key == "n":
        session.header = False
    elif key == "Q":
        session.quiet = True
    elif key == "r":
        session.readonly = True
    elif key == "s":
        session.associations = True
    elif key in ("json", "yaml"):
        from gsched_cli.dump import asked

        session.dump = asked(key, text, NAME)


def _interactive(session: _Session) -> int:
    """Commands from standard input, one a line, until it ends or says exit."""
    streams = session.streams
    streams.files.own()
    session.interactive = True
    terminal = streams.stdin.isatty()
    if terminal:
        import contextlib

        with contextlib.suppress(ImportError):
            # Lines can be edited, and called back.
            import readline  # noqa: F401
    code, last = 0, ""
    while not session.ended:
        line = _line(streams, terminal)
        if line is None:
            session.say("\n")
            break
        if line.strip() == "!!":
            line = last
        try:
            words = shlex.split(line)
            if words:
                last = line
                code = _words(session, words) or code
        except ValueError as problem:
            streams.stderr.write(f"{NAME}: error: {problem}\n")
            code = 1
        except Stop as stop:
            streams.stderr.write(stop.text)
            code = stop.code or code
    return code


def _line(streams: Streams, terminal: bool) -> str | None:
    """The next line; None: no more."""
    prompt = f"{NAME}: "
    if terminal:
        try:
            return input(prompt)
        except EOFError:
            return None
    streams.stdout.write(prompt)
    line = streams.stdin.readline()
    if not line:
        return None
    streams.stdout.write(line if line.endswith("\n") else line + "\n")
    return line


def _words(session: _Session, words: Sequence[str]) -> int:
    """One command."""
    verb = sacctmgr_words.command(words[0])
    given = "quit" if verb == "exit" and words[0].lower().startswith("q") else verb
    rest = list(words[1:])
    plain = {
        "associations": "s",
        "oneliner": "o",
        "parsable": "p",
        "parsable2": "P",
        "quiet": "Q",
        "readonly": "r",
        "verbose": "v",
    }
    if verb in plain or verb in ("exit", "help", "version"):
        if rest and verb != "help":
            raise Stop(1, f"too many arguments for keyword:{given}\n")
        if verb == "exit":
            session.ended = True
        elif verb == "help":
            session.say(HELP)
        elif verb == "version":
            session.say(version_line())
        else:
            _switch(session, plain[verb])
        return 0
    return _DOES[verb](session, rest)


# ---- reading ------------------------------------------------------------------------------------


def _list(session: _Session, words: list[str]) -> int:
    kind = sacctmgr_words.entity("list", words)
    rest = words[1:]
    if kind in ("configuration", "stats"):
        from gsched_cli import sacctmgr_server as server

        config = kind == "configuration"
        reader = session.reader
        session.say(server.configuration(reader, session.env) if config else server.stats(reader))
        return 0
    said = sacctmgr_words.listed(kind, rest)
    state = session.state()
    if said.on("withdeleted"):
        from gsched_cli import sacctmgr_acts

        state = sacctmgr_acts.with_deleted(session.reader, session.streams, state)
    if session.dump:
        from gsched_cli import sacctmgr_json
        from gsched_cli.dump import Asked

        to = Asked(session.dump, NAME, session.argv, session.env, session.reader)
        session.say(sacctmgr_json.document(to, state, kind, said))
        return 0
    if kind == "problem":
        from gsched_cli.process import uid_of

        session.say(sacctmgr_list.list_problems(state, said, lambda name: uid_of(name) is not None))
    elif kind in ("federation", "resource"):
        from gsched_cli import sacctmgr_outside as outside

        lists = {"federation": outside.list_federations, "resource": outside.list_resources}
        session.say(lists[kind](state, said))
    elif kind in _LISTS:
        session.say(_LISTS[kind](state, said))
    else:
        from gsched_cli import sacctmgr_facts

        return sacctmgr_facts.listing(
            *(session.reader, session.streams, state, kind, said, session.env),
            immediate=session.immediate,
        )
    return 0


_LISTS = {
    "account": sacctmgr_list.list_accounts,
    "association": sacctmgr_list.list_associations,
    "cluster": sacctmgr_list.list_clusters,
    "qos": sacctmgr_list.list_qos,
    "tres": sacctmgr_list.list_tres,
    "user": sacctmgr_list.list_users,
    "wckey": sacctmgr_list.list_wckeys,
}


# ---- changing -----------------------------------------------------------------------------------


def _change(verb: str, session: _Session, words: list[str]) -> int:
    if session.readonly:
        raise Stop(1, "Can't run this command in readonly mode.\n")
    kind = sacctmgr_words.entity(verb, words)
    if kind not in sacctmgr_words.KEYS:
        raise sacctmgr_list.refuse(f"{verb} {kind}")
    op = sacctmgr_words.change(verb, kind, words[1:])
    if not session.immediate:
        session.streams.files.own()
    state = session.state()
    if verb == "delete" and kind == "cluster":
        return _delete_cluster(session, state, op.where.get("name", []))
    if verb == "modify" and kind == "cluster" and op.settings:
        from gsched_cli.sacctmgr_outside import cluster_settings

        limits = sacctmgr_change.limits(state, op, None)
        session.say(" Setting\n" + cluster_settings(op))
        session.say("  Default Limits:\n" + limits if limits else "")
    sacctmgr_change.check(state, op)
    resets = any(name == "rawusage" for name, _, _ in op.settings)
    if resets and "cluster" not in op.where and (kind != "user" or "account" in op.where):
        session.say(f"No cluster specified, resetting on local cluster {state.cluster}\n")
    if verb == "add" and kind == "user" and not session.immediate:
        _sure_of_users(session, op.where.get("name", []))
    if verb == "delete" and kind == "coordinator":
        session.say(sacctmgr_change.asked_of_coordinators(op))
    return sacctmgr_change.settled(
        session.reader,
        session.streams,
        [op],
        sacctmgr_change.report(state, op),
        immediate=session.immediate,
    )


def _delete_cluster(session: _Session, state: State, names: Sequence[str]) -> int:
    """The only cluster that there is cannot go."""
    if state.cluster.lower() in {name.lower() for name in names}:
        raise sacctmgr_list.refuse("deleting the only cluster")
    session.say(" Nothing deleted\n")
    return 1


def _sure_of_users(session: _Session, users: Sequence[str]) -> None:
    """Names that nobody has are asked about."""
    from gsched_cli.process import uid_of

    for name in users:
        if uid_of(name) is None:
            session.say(f"There is no uid for user '{name}'\n")
            if not sacctmgr_change.agreed(session.streams, sacctmgr_change.SURE):
                raise Stop(1)


def _add(session: _Session, words: list[str]) -> int:
    return _change("add", session, words)


def _modify(session: _Session, words: list[str]) -> int:
    if words and words[0].lower() == "job":
        from gsched_cli import sacctmgr_acts

        if session.readonly:
            raise Stop(1, "Can't run this command in readonly mode.\n")
        return sacctmgr_acts.modify_job(
            *(session.reader, session.streams, words[1:], session.env),
            cluster=cluster_config(session.reader, NAME).cluster_name,
            immediate=session.immediate,
        )
    return _change("modify", session, words)


def _delete(session: _Session, words: list[str]) -> int:
    return _change("delete", session, words)


# ---- files --------------------------------------------------------------------------------------


def _dump(session: _Session, words: list[str]) -> int:
    """`dump CLUSTER [file=NAME]`."""
    name = path = ""
    for word in words:
        key, sign, value = sacctmgr_words.split(word)
        if not sign:
            name = value
        elif key.lower() in ("file", "f"):
            path = value
        elif "clusters".startswith(key.lower()):
            name = value
        else:
            raise Stop(1, f" Unknown option: {word}\n")
    if not name:
        raise Stop(1, " We need a cluster to dump.\n")
    session.streams.files.own()
    state = session.state()
    if name.lower() != state.cluster.lower():
        raise Stop(1, f" Cluster {name} doesn't exist.\n")
    if not _privileged(session, state):
        raise Stop(1, " Your user does not have sufficient privileges to dump clusters.\n")
    if not path:
        path = f"./{state.cluster}.cfg"
        session.say(f" No filename given, using {path}.\n")
    lines = list(sacctmgr_file.dump(state.book, state.cluster))
    try:
        with open(
            os.path.join(session.cwd, path), "w", encoding="utf-8", errors="surrogateescape"
        ) as file:
            file.write(sacctmgr_file.HEAD)
            file.writelines(f"{line}\n" for line in lines)
    except OSError as problem:
        raise Stop(1, f' Unable to write "{path}": {problem.strerror}\n') from None
    if not session.quiet:
        session.streams.stderr.writelines(f"{NAME}: {line}\n" for line in lines)
    return 0


def _privileged(session: _Session, state: State) -> bool:
    from gsched_cli.process import user_name

    if session.reader.uid == 0:
        return True
    return state.book.level(user_name(session.reader.uid)) != "None"


def _load(session: _Session, words: list[str]) -> int:
    """`load FILE [cluster=] [clean]`."""
    if session.readonly:
        raise Stop(1, "Can't run this command in readonly mode.\n")
    path = cluster = ""
    clean = False
    for word in words:
        key, sign, value = sacctmgr_words.split(word)
        low = key.lower()
        if low == "clean":
            clean = True
        elif not sign or low in ("file", "f"):
            path = value
        elif low and "clusters".startswith(low):
            cluster = value
        else:
            raise Stop(1, f" Unknown option: {word}\n")
    if not path:
        raise Stop(1, " No filename given, specify one with file=''\n")
    session.streams.files.own()
    state = session.state()
    try:
        with open(os.path.join(session.cwd, path), encoding="utf-8", errors="replace") as file:
            text = file.read(MOST)
    except OSError as problem:
        raise Stop(1, f' Unable to read "{path}": {problem.strerror}\n') from None
    loaded = sacctmgr_file.Loaded(text, cluster)
    if loaded.cluster and loaded.cluster.lower() != state.cluster.lower():
        raise Stop(1, f" error: This is the accounting of cluster {state.cluster} alone\n")
    ops = loaded.changes()
    session.say(f"For cluster {state.cluster}\n")
    if clean:
        ops = [*sacctmgr_file.clean(state.book), *ops]
    if not ops:
        session.say(" Nothing new added.\n")
        return 0
    return sacctmgr_change.settled(
        session.reader,
        session.streams,
        ops,
        sacctmgr_change.loaded(state),
        immediate=session.immediate,
        load=True,
    )


# ---- the rest -----------------------------------------------------------------------------------


def _ping(session: _Session, words: list[str]) -> int:
    status = asking(session.reader.status, f"{NAME}: error:")
    word = "UP" if status.controller_up else "DOWN"
    session.say(f"slurmdbd(primary) at {status.cluster_name} is {word}\n")
    return 0 if status.controller_up else 1


def _clear(session: _Session, words: list[str]) -> int:
    from gsched_cli import sacctmgr_server

    return sacctmgr_server.clear(session.reader, words)


def _reconfigure(session: _Session, words: list[str]) -> int:
    from gsched.wire.messages import Reconfigure, Refused

    if words:
        raise Stop(1, "too many arguments for reconfigure keyword\n")
    reply = asking(lambda: session.reader.call(Reconfigure()), f"{NAME}: error:")
    if isinstance(reply, Refused):
        raise Stop(1, f"{NAME}: error: {reply.message}\n")
    return 0


def _shutdown(session: _Session, words: list[str]) -> int:
    raise Stop(
        1,
        f"{NAME}: error: accounting is part of the controller here: scontrol shutdown ends it\n",
    )


def _archive(session: _Session, words: list[str]) -> int:
    from gsched_cli import sacctmgr_acts

    return sacctmgr_acts.archive(
        session.reader, session.streams, words, session.cwd, immediate=session.immediate
    )


_DOES = {
    "add": _add,
    "archive": _archive,
    "clear": _clear,
    "delete": _delete,
    "dump": _dump,
    "list": _list,
    "load": _load,
    "modify": _modify,
    "ping": _ping,
    "reconfigure": _reconfigure,
    "shutdown": _shutdown,
}
