"""The frontend's parent: owns the socket that commands connect to, and keeps workers on it.

It opens no database and speaks to nobody, so that there is little that can end it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from gsched.config import Config, ConfigError, load_config
from gsched.config.locate import find_slurm_conf
from gsched.frontend.occupied import Occupied
from gsched.frontend.substitutes import MOST, Substitutes
from gsched.wire.paths import reachable
from gsched.wire.process import (
    Log,
    PidFile,
    ProcessProblem,
    become,
    flags,
    into_background,
    leave,
    own_directory,
    raise_file_limit,
)

USAGE = "Usage: gsched-frontend [-D] [-f FILE] [-r] [-V]"
#: Connections that may wait to be accepted.
BACKLOG = 1024
#: A worker that lives shorter than this is not restarted at once, seconds.
SHORT_LIFE_S = 1.0


@dataclass(frozen=True)
class Kind:
    """What a listening socket is for."""

    #: of the socket, beside frontend.sock
    file: str
    #: that serves it
    module: str


TYPED = Kind("frontend.sock", "gsched.frontend.worker")
LINES = Kind("command.sock", "gsched.frontend.commands")
#: on a host without the controller, in the place of TYPED
RELAY = Kind("frontend.sock", "gsched.frontend.relay")
#: for those: no socket of its own kind beside the others, it listens on FrontendPort
GATE = Kind("", "gsched.frontend.gate")


@dataclass
class Options:
    """The command line."""

    foreground: bool = False
    conf: str = ""
    #: the controller is on another host
    remote: bool = False


class Parent:
    """Keeps `count` workers alive until it is told to stop."""

    def __init__(self, conf: str, config: Config, log: Any, *, remote: bool = False) -> None:
        self._conf = conf
        self._config = config
        self._log = log
        self._path = config.frontend_socket
        self._lock = self._take_lock()
        self._folder = os.path.dirname(self._path)
        kinds = (RELAY if remote else TYPED, LINES)
        self._listeners = {kind: self._bind(kind) for kind in kinds}
        self._gate = not remote
        # Workers notice by the end of this pipe that the parent is gone.
        self._life, self._life_end = os.pipe()
        #: pid -> process, when it was started, what for
        self._workers: dict[int, tuple[subprocess.Popen[bytes], float, Kind]] = {}
        #: kind of which a worker died young -> when there may be another
        self._not_before: dict[Kind, float] = {}
        #: pids of workers that were told to end: others take their places at once
        self._leaving: set[int] = set()
        self._substitutes = Substitutes()
        #: whose clients they are busy with; twice as many as there may be, for those that leave
        self._occupied = Occupied.make(2 * (self.count + MOST))
        #: pid -> place in it
        self._places: dict[int, int] = {}
        #: through which workers say that a client holds them
        self._words, self._words_end = os.pipe()
        for fd in (self._words, self._words_end):
            os.set_blocking(fd, False)
        self._stopping = False
        self._renew = False

    @property
    def count(self) -> int:
        """How many workers of each kind there should be."""
        cpus = len(os.sched_getaffinity(0))
        return self._config.frontends or max(2, cpus // 2)

    def _take_lock(self) -> int:
        path = os.path.join(self._config.run_dir, "frontend.lock")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProcessProblem(f"another frontend serves {self._path}") from None
        except OSError as error:
            raise ProcessProblem(f"cannot lock {path}: {error.strerror}") from None
        return fd

    def _socket(self, kind: Kind) -> str:
        return os.path.join(self._folder, kind.file)

    def _bind(self, kind: Kind) -> socket.socket:
        """Listens under another name, then takes the place: there is never no socket there, and
        whoever listened before goes on with the clients it has."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = self._socket(kind)
        temporary = f"{path}.{os.getpid()}"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            listener.bind(reachable(temporary))
            os.chmod(temporary, 0o666)
            listener.listen(BACKLOG)
            os.rename(temporary, path)
        except OSError as error:
            listener.close()
            raise ProcessProblem(f"cannot listen on {path}: {error.strerror}") from None
        return listener

    def run(self) -> None:
        """Until SIGTERM. Starts workers that are missing, and all anew after SIGHUP."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._again)
        # Only to end the wait below.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        wake, wake_end = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        import select

        while not self._stopping:
            self._reap()
            self._not_before = {
                kind: then for kind, then in self._not_before.items() if then > time.monotonic()
            }
            if self._renew:
                self._renew = False
                self._reload()
            wanted = dict.fromkeys(self._listeners, self.count)
            wanted[LINES] = self._substitutes.wanted(self.count, time.monotonic())
            wanted[GATE] = int(self._gate and self._config.frontend_port > 0)
            for kind, count in wanted.items():
                there = self._there(kind)
                if time.monotonic() >= self._not_before.get(kind, 0.0):
                    for _ in range(count - len(there)):
                        self._start(kind)
                if kind is LINES:
                    self._dismiss(self._substitutes.surplus(there, count))
            patience = SHORT_LIFE_S if self._not_before else 5.0
            ready, _, _ = select.select([wake, self._words], [], [], patience)
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            if self._words in ready:
                self._substitutes.hear(os.read(self._words, 4096))
        self._end()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _again(self, *_: object) -> None:
        self._renew = True

    def _there(self, kind: Kind) -> list[int]:
        """Pids of the workers that stay, oldest first."""
        return [
            pid
            for pid, (_, _, of) in self._workers.items()
            if of is kind and pid not in self._leaving
        ]

    def _dismiss(self, pids: list[int]) -> None:
        """They finish what they have, and are not counted any more."""
        for pid in pids:
            self._workers[pid][0].terminate()
            self._leaving.add(pid)
            self._substitutes.gone(pid)

    def _reload(self) -> None:
        try:
            self._config = load_config(self._conf, needs=())
        except (ConfigError, OSError) as error:
            self._log.error(f"the configuration is kept as it was: {error}")
            return
        # The new ones start beside them, except where there can be only one.
        self._dismiss([pid for pid, one in self._workers.items() if one[2] is not GATE])
        for process, _, kind in self._workers.values():
            if kind is GATE:
                process.terminate()
        self._log.info("workers are started anew")

    def _start(self, kind: Kind) -> None:
        # The gate has no use for it: it listens for itself.
        listen = self._listeners.get(kind, self._listeners[LINES]).fileno()
        place = -1
        fds: tuple[int, ...] = (listen, self._life, self._words_end)
        table: tuple[str, ...] = ()
        if kind is LINES:
            free = set(range(self._occupied.places)) - set(self._places.values())
            place = min(free, default=-1)
            fds = (*fds, self._occupied.fd)
            numbers = (self._occupied.fd, place, max(2, self.count), self.count + MOST // 2)
            table = tuple(map(str, numbers))
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", kind.module),
                *(self._conf, self._path, str(listen), str(self._life)),
                *(str(self._words_end), "local" if self._gate else "remote"),
                *table,
            ],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._workers[process.pid] = (process, time.monotonic(), kind)
        if place >= 0:
            self._places[process.pid] = place

    def _reap(self) -> None:
        for pid, (process, since, kind) in list(self._workers.items()):
            code = process.poll()
            if code is None:
                continue
            del self._workers[pid]
            self._leaving.discard(pid)
            self._substitutes.gone(pid)
            self._occupied.put(self._places.pop(pid, -1), -1)
            now = time.monotonic()
            lived = now - since
            self._log.info(f"worker {pid} ended", code=code, lived_s=round(lived, 1))
            if lived < SHORT_LIFE_S and not self._stopping:
                # It would die again: do not spend the machine on that.
                self._not_before[kind] = now + SHORT_LIFE_S - lived

    def _end(self) -> None:
        """The socket goes first: a client is told at once that nobody is there."""
        for kind, listener in self._listeners.items():
            with contextlib.suppress(OSError):
                os.unlink(self._socket(kind))
            listener.close()
        for process, _, _ in self._workers.values():
            process.terminate()
        until = time.monotonic() + 5
        for process, _, _ in self._workers.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def parse(argv: list[str]) -> Options:
    """Reads the command line; exits for -V, -h and mistakes."""
    options = Options()
    for name, value in flags("gsched-frontend", USAGE, argv, "Df:hrvV"):
        if name == "-D":
            options.foreground = True
        elif name == "-f":
            options.conf = value
        elif name == "-r":
            options.remote = True
    return options


def main() -> NoReturn:
    """Entry point of gsched-frontend."""
    options = parse(sys.argv[1:])
    conf = os.path.abspath(options.conf or find_slurm_conf(os.environ))
    try:
        config = load_config(conf, needs=())
        own_directory(config.run_dir, config.slurm_user, 0o755)
        become(config.slurm_user)
        raise_file_limit()
        if not options.foreground:
            into_background()
        folder = os.path.dirname(config.slurmctld_log_file)
        path = os.path.join(folder, "frontend.log") if config.slurmctld_log_file else ""
        log = Log(path, config.slurmctld_debug, foreground=options.foreground)
        if options.remote and not config.frontend_port:
            raise ProcessProblem("FrontendPort is not set: there is nobody to pass requests to")
        parent = Parent(conf, config, log.logger, remote=options.remote)
        pid_file = PidFile(os.path.join(config.run_dir, "frontend.pid"))
    except (ConfigError, ProcessProblem, OSError) as error:
        leave(f"gsched-frontend: fatal: {error}", 1)
    log.logger.info(f"serving {config.frontend_socket}", workers=parent.count)
    try:
        parent.run()
    finally:
        pid_file.remove()
    log.logger.info("ended")
    sys.exit(0)


if __name__ == "__main__":
    main()
