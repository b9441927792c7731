"""A worker that runs command lines for the thin client (cli/client).

It has the commands' modules loaded and runs one command at a time, with what the client sent as its
arguments, environment and directory. It opens no file of a user's, keeps no command that waits, and
asks the typed workers on behalf of whom the kernel says is there.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import posixpath
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from gsched.client import Client
from gsched.config import Config, load_config
from gsched.config.bundle import FILES
from gsched.config.lexer import INCLUDE
from gsched.frontend.direct import Direct
from gsched.frontend.limits import Limits
from gsched.frontend.names import Names
from gsched.frontend.occupied import Share
from gsched.frontend.substitutes import HELD_S, tell
from gsched.frontend.upstream import Upstream
from gsched.wire.codec import BadMessage, encode
from gsched.wire.commandline import CommandLine, Conversation
from gsched.wire.framing import frame
from gsched.wire.identity import Credentials, stream_peer
from gsched.wire.messages import OnBehalf, Reply, Write
from gsched.wire.paths import control_socket
from gsched.wire.short import ShortWay, short_socket
from gsched.wire.usertext import kept, shown
from gsched_cli.command import NAMES, SUBMITTING
from gsched_cli.common import OwnProcess, Run, Streams, error
from gsched_cli.kept import Kept
from gsched_cli.process import within
from gsched_cli.queue_lines import QueueLines
from gsched_cli.queue_records import Records

#: new objects after which garbage is looked for: a long queue makes many that all stay
YOUNG = 50_000
#: bytes of output that are sent at once
CHUNK = 256 << 10


class _Known:
    """The configuration, read again when one of its files is another than before."""

    def __init__(self, conf: str) -> None:
        self._conf = conf
        self._seen: object = None
        self._config: Config | None = None

    def config(self) -> Config:
        """Raises ConfigError, OSError. Cost: a look at five files."""
        seen = self._look()
        if self._config is None or seen is None or seen != self._seen:
            self._config = load_config(self._conf, needs=())
            self._seen = seen
        return self._config

    def _look(self) -> object:
        folder = os.path.dirname(self._conf)
        found: list[object] = []
        for path in (self._conf, *(os.path.join(folder, name) for name in FILES)):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        if found != self._seen:
            with open(self._conf, encoding="utf-8", errors="replace") as file:
                if any(INCLUDE.match(line) for line in file):
                    # Files that are not looked at.
                    return None
        return found


class _Asker(Client):
    """The reader of one command: asks on behalf of the client."""

    def __init__(
        self, path: str, known: _Known, who: Credentials, base: bytes, direct: Direct | None
    ) -> None:
        super().__init__(path, request_base=base)
        self._known = known
        self._who = who
        self._direct = direct

    def _carry(self, todo: Sequence[Write], ids: Sequence[bytes]) -> list[Reply]:
        if self._direct is None:
            return super()._carry(todo, ids)
        calls = [(each, kept(write)) for each, write in zip(ids, todo, strict=True)]
        return [shown(reply) for reply in self._direct.carry_out(calls, self._who)]

    def _files(self) -> Config:
        return self._known.config()

    def _connect(self, patience_s: float) -> socket.socket:
        fresh = self._sock is None
        sock = super()._connect(patience_s)
        if fresh:
            who = self._who
            self._first = frame(encode(OnBehalf(who.uid, who.gid, who.pid)))
        return sock

    @property
    def uid(self) -> int:
        return self._who.uid

    @property
    def gid(self) -> int:
        return self._who.gid


class _Files:
    """The client's files, as the client reads them."""

    def __init__(self, talk: Conversation, line: CommandLine) -> None:
        self._talk = talk
        name, self._script = line.script
        #: of the script that went along
        self._path = posixpath.normpath(posixpath.join(line.cwd, name)) if name else ""

    def read(self, path: str, most: int) -> bytes:
        if "\0" in path:
            raise ValueError("embedded null byte")
        if path == self._path:
            return self._script[:most]
        return self._talk.ask(b"R", os.fsencode(path))[:most]

    def kind(self, path: str) -> str:
        if path == self._path:
            return "f"
        return self._talk.ask(b"S", os.fsencode(path)).decode("ascii")

    def own(self) -> None:
        raise OwnProcess


class _Input(io.RawIOBase):
    """The client's standard input, asked for when it is read first."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._data: io.BytesIO | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._data is None:
            self._data = io.BytesIO(self._talk.ask(b"I"))
        return self._data.readinto(buffer)


class _Output(io.RawIOBase):
    """Standard output or error: kept until there is enough, or the command is done, so that nothing
    was said when a command turns out to need a process of its own."""

    def __init__(self, letter: bytes, said: list[tuple[bytes, bytes]], flush: Callable[[], None]):
        self._letter = letter
        self._said = said
        self._send = flush

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._said.append((self._letter, bytes(data)))
        if len(data) >= CHUNK:
            self._send()
        return len(data)


class _Mover:
    """The client that stays when its command has said what it wants: it listens already, and gets
    the plan as the last word."""

    def __init__(self, line: CommandLine, who: Credentials) -> None:
        self._line = line
        self.behalf: tuple[int, int, int] | None = (who.uid, who.gid, who.pid)
        #: b"" until there is one
        self.plan = b""

    def listening(self, ports: str = "") -> tuple[int, bytes]:
        if not self._line.port or not within(self._line.port, ports):
            raise OwnProcess
        return self._line.port, self._line.secret

    def follow(self, plan: bytes) -> int:
        self.plan = plan
        return 0


class _Run:
    """One command line."""

    def __init__(
        self,
        talk: Conversation,
        line: CommandLine,
        reader: _Asker,
        names: Names,
        who: Credentials,
        kept: Kept[QueueLines | Records],
    ) -> None:
        self._talk = talk
        self._kept = kept
        self.mover = _Mover(line, who)
        self._line = line
        self._reader = reader
        self._names = names
        self._said: list[tuple[bytes, bytes]] = []
        #: something has been sent: it cannot run again elsewhere
        self.spoken = False

    def streams(self) -> Streams:
        def text(raw: io.RawIOBase, write: bool) -> io.TextIOWrapper:
            buffer: Any = (
                io.BufferedWriter(raw, CHUNK) if write else io.BufferedReader(raw, 1 << 16)
            )
            return io.TextIOWrapper(
                buffer, "utf-8", "surrogateescape", newline="\n", write_through=False
            )

        return Streams(
            text(_Input(self._talk), False),
            text(_Output(b"O", self._said, self._send), True),
            text(_Output(b"E", self._said, self._send), True),
            _Files(self._talk, self._line),
            self._kept,
        )

    def _send(self) -> None:
        self.spoken = self.spoken or bool(self._said)
        self._talk.say_all(self._said)
        self._said.clear()

    def run(self, function: Run) -> int:
        """The exit code. Raises OwnProcess, OSError where the client has gone."""
        line = self._line
        streams = self.streams()
        try:
            code = self._call(function, streams)
        except (OwnProcess, ConnectionError, TimeoutError):
            raise
        except Exception as problem:
            error(streams, line.name, str(problem).strip() or type(problem).__name__)
            code = 1
        streams.stderr.flush()
        streams.stdout.flush()
        return code

    def end(self, letter: bytes, data: bytes) -> None:
        """The last word, together with what was not said yet."""
        self._talk.say_all([*self._said, (letter, data)])

    def _call(self, function: Run, streams: Streams) -> int:
        line = self._line
        if line.name not in SUBMITTING:
            return function(line.argv, line.env, line.cwd, streams, self._reader)
        from gsched_cli.process import Process

        user, group = self._names.of(self._reader.uid, self._reader.gid)

        def own(*_: object) -> NoReturn:
            raise OwnProcess

        process = Process(
            umask=line.umask,
            sid=line.sid,
            host=line.host,
            user=user,
            group=group,
            soft_limit=line.limits.get,
            sleep=own,
            become=own if self._reader.uid == 0 else None,
            mover=self.mover,
            terminal=line.terminal,
            window=line.window,
        )
        submit = cast(Callable[..., int], function)
        return submit(line.argv, line.env, line.cwd, streams, self._reader, process)


def plain_zone(zone: str | None) -> bool:
    """Whether TZ names a time zone of this host, or spells one out, and no file of the user's: the
    C library opens whatever path stands there, be it a pipe in which nobody writes."""
    name = (zone or "").removeprefix(":")
    own = name == "/etc/localtime" or name.startswith("/usr/share/zoneinfo/")
    return (own or not name.startswith("/")) and ".." not in name.split("/") and len(name) < 256


class Commands:
    """Takes connections of one listening socket, one after another."""

    def __init__(
        self,
        listener: socket.socket,
        conf: str,
        frontend: str,
        *,
        local: bool = False,
        share: Share | None = None,
    ) -> None:
        """`frontend` is the socket of the typed workers; `local`: the controller is on this host,
        writes go straight to it; `share` says whose clients are taken, None: everybody's."""
        self._listener = listener
        self._share = share
        self._known = _Known(conf)
        self._frontend = frontend
        self._names = Names()
        self._kept: Kept[QueueLines | Records] = Kept()
        self._run = {name: self._loaded(name) for name in NAMES}
        self._zone = os.environ.get("TZ")
        self._direct = self._link() if local else None

    def _link(self) -> Direct | None:
        config = self._known.config()
        if "python" in config.job_submit_plugins:
            # The typed workers have the site's own filter.
            return None
        path = control_socket(config.run_dir)
        limits = Limits.from_parameters(config.slurmctld_parameters)
        return Direct(Upstream(path), limits, self._names, ShortWay(short_socket(path)))

    @staticmethod
    def _loaded(name: str) -> Run:
        module = importlib.import_module(f"gsched_cli.{name}")
        return cast(Run, module.run)

    def serve(self) -> None:
        """One client, if there is one."""
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        with sock:
            try:
                talk, who = Conversation(sock), stream_peer(sock)
                if self._share is not None and not self._share.enter(who.uid, self._more):
                    # What it asks beyond its share runs in a process of its own.
                    talk.say(b"P", b"")
                    return
                self._converse(talk, who)
            except (OSError, BadMessage):
                # It has gone, or is none of ours: it runs the command itself.
                return
            finally:
                if self._share is not None:
                    self._share.leave()

    def _more(self) -> bool:
        """Whether further clients wait."""
        return bool(select.select([self._listener], [], [], 0)[0])

    def _converse(self, talk: Conversation, who: Credentials) -> None:
        talk.say(b"H", b"")
        line = talk.request()
        function = self._run.get(line.name)
        if function is None:
            talk.say(b"P", b"")
            return
        zone = line.env.get("TZ")
        if not plain_zone(zone):
            # It would be opened here, with this process's rights.
            talk.say(b"P", b"")
            return
        self._in_zone(zone)
        base = line.request_id.hex().encode()
        reader = _Asker(self._frontend, self._known, who, base, self._direct)
        with reader:
            one = _Run(talk, line, reader, self._names, who, self._kept)
            try:
                code = one.run(function)
            except OwnProcess:
                if not one.spoken:
                    talk.say(b"P", b"")
                return
            # Before the connection of the reader is closed: the client waits.
            if one.mover.plan:
                one.end(b"M", one.mover.plan)
            else:
                one.end(b"X", bytes([code & 0xFF]))

    def _in_zone(self, zone: str | None) -> None:
        """Times are shown in the client's zone."""
        if zone == self._zone:
            return
        self._zone = zone
        if zone is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = zone
        time.tzset()


class _Held:
    """Tells the parent when one client takes long."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._told = False
        signal.signal(signal.SIGALRM, self._late)
        # Libraries that look up users need not know of it.
        signal.siginterrupt(signal.SIGALRM, False)

    def _late(self, *_: object) -> None:
        self._told = True
        tell(self._fd, True)

    def __enter__(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, HELD_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._told:
            self._told = False
            tell(self._fd, False)


def main(argv: list[str]) -> None:
    """A worker process: `CONF FRONTEND LISTEN_FD LIFE_FD WORDS_FD WHERE TABLE_FD PLACE SOME
    MOST`,
    started by the parent. WORDS_FD: see gsched.frontend.substitutes; WHERE: "local" on the
    controller's host; TABLE_FD and what follows: gsched.frontend.occupied."""
    conf, frontend, listen_fd, life_fd = argv[0], argv[1], int(argv[2]), int(argv[3])
    listener = socket.socket(fileno=listen_fd)
    listener.setblocking(False)
    commands = Commands(
        listener, conf, frontend, local=argv[5] == "local", share=Share.of(argv[6:])
    )
    asked: list[int] = []
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    held = _Held(int(argv[4]))
    poll = select.epoll()
    # One worker for each client: the others would wake in vain and be in its way.
    poll.register(listener.fileno(), select.EPOLLIN | select.EPOLLEXCLUSIVE)
    poll.register(life_fd, select.EPOLLIN)
    poll.register(wake, select.EPOLLIN)
    # What is loaded stays: it need not be looked through again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)
    while not asked:
        ready = {fd for fd, _ in poll.poll()}
        if life_fd in ready:
            return
        if wake in ready:
            # What signal it was is known by its handler.
            os.read(wake, 4096)
        if listener.fileno() in ready:
            with held:
                commands.serve()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
