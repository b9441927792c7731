"""Prolog and epilog: the site's scripts, run one after the other without keeping anybody waiting.

The same machinery fetches a user's login environment for jobs that start from it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gsched.rawtext import to_bytes
from slurmd_compat.agent import HookDone, Key

#: seconds for which a login environment is waited for, as Slurm does
LOGIN_S = 8
#: ms that a killed program has to be gone: one that waits for a dead file server is left then
GONE_MS = 5000
#: name of the file in the job's directory that takes it (NUL-separated NAME=value)
LOGIN_FILE = "login"


@dataclass
class Command:
    """One program to run. `output` takes its standard output; a failure of an `optional` one is
    no failure of the hook."""

    argv: list[str]
    env: Mapping[str, str]
    timeout_s: int | None = None
    output: Path | None = None
    optional: bool = False


@dataclass
class _Running:
    key: Key
    which: str
    todo: list[Command]
    command: Command | None = None
    pid: int = 0
    pidfd: int = -1
    #: monotonic ms; 0 none
    deadline: int = 0
    timed_out: bool = False
    errors: list[str] = field(default_factory=list)


def scripts(patterns: tuple[str, ...]) -> list[str]:
    """The programs that Prolog= or Epilog= names, glob patterns expanded in order of name."""
    found: list[str] = []
    for pattern in patterns:
        if any(char in pattern for char in "*?["):
            found += sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        else:
            found.append(pattern)
    return found


def login_command(user: str, output: Path) -> Command:
    """Prints a user's login environment: as root through su, else through a login shell of ours."""
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    if os.geteuid() == 0:
        return Command(
            ["/bin/su", "-", user, "-c", "/usr/bin/env -0"],
            {"PATH": path},
            LOGIN_S,
            output,
            optional=True,
        )
    # As after a login, not as this daemon was started.
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = "/"
    env = {"PATH": path, "HOME": home, "USER": user, "LOGNAME": user}
    argv = ["/bin/sh", "-l", "-c", "/usr/bin/env -0"]
    return Command(argv, env, LOGIN_S, output, optional=True)


class Hooks:
    """All hooks that run now. `watch`/`unwatch` add and drop a descriptor in the caller's poll."""

    def __init__(self, watch: Callable[[int], None], unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._by_fd: dict[int, _Running] = {}
        #: programs that no signal ends, to be reaped if they ever do: pidfd -> pid
        self._left: dict[int, int] = {}

    def start(self, key: Key, which: str, commands: list[Command], now: int) -> HookDone | None:
        """Starts a hook's programs; HookDone at once if there is nothing to wait for."""
        return self._next(_Running(key, which, list(commands)), now)

    def owns(self, fd: int) -> bool:
        return fd in self._by_fd or fd in self._left

    def ended(self, fd: int, now: int) -> HookDone | None:
        """Takes note that the program behind a descriptor ended."""
        running = self._by_fd.pop(fd, None)
        self._unwatch(fd)
        os.close(fd)
        status = 0
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(running.pid if running else self._left.pop(fd), 0)
        if running is None:
            return None
        command = running.command
        assert command is not None
        if status and not command.optional:
            running.errors.append(_sentence(running.which, command, status, running.timed_out))
            # A failed script is the end of it; what would follow may rely on it.
            running.todo.clear()
        return self._next(running, now)

    def deadline(self) -> int | None:
        """Monotonic ms of the next timeout."""
        return min((r.deadline for r in self._by_fd.values() if r.deadline), default=None)

    def on_time(self, now: int) -> list[HookDone]:
        """Kills what has run for too long; the hooks that are over without one that stays."""
        done = []
        for fd, running in list(self._by_fd.items()):
            if not running.deadline or now < running.deadline:
                continue
            if not running.timed_out:
                running.deadline = now + GONE_MS
                running.timed_out = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(running.pid, signal.SIGKILL)
                continue
            del self._by_fd[fd]
            self._left[fd] = running.pid
            command = running.command
            assert command is not None
            if not command.optional:
                sentence = _sentence(running.which, command, 0, True)
                running.errors.append(f"{sentence} and cannot be ended")
                running.todo.clear()
            if (over := self._next(running, now)) is not None:
                done.append(over)
        return done

    def _next(self, running: _Running, now: int) -> HookDone | None:
        while running.todo:
            command = running.todo.pop(0)
            try:
                running.pid = _spawn(command)
            except OSError as error:
                if not command.optional:
                    name = command.argv[0]
                    running.errors.append(f"{running.which} {name}: {error.strerror}")
                    running.todo.clear()
                continue
            running.command = command
            running.timed_out = False
            running.deadline = now + 1000 * command.timeout_s if command.timeout_s else 0
            running.pidfd = os.pidfd_open(running.pid)
            self._by_fd[running.pidfd] = running
            self._watch(running.pidfd)
            return None
        return HookDone(running.key, running.which, "; ".join(running.errors))


def _spawn(command: Command) -> int:
    """posix_spawn: a fork of a grown daemon would cost tens of ms."""
    output = str(command.output) if command.output else os.devnull
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        command.argv[0],
        command.argv,
        {to_bytes(name): to_bytes(value) for name, value in command.env.items()},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, output, flags, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGCHLD),
    )


def _sentence(which: str, command: Command, status: int, timed_out: bool) -> str:
    name = command.argv[0]
    if timed_out:
        return f"{which} {name} did not end within {command.timeout_s} s"
    if os.WIFSIGNALED(status):
        return f"{which} {name} was ended by signal {os.WTERMSIG(status)}"
    return f"{which} {name} failed with exit code {os.WEXITSTATUS(status)}"
