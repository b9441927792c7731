"""Links to supervisors: their words line by line, commands to them, taking note of their end."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gsched.rawtext import to_bytes
from slurmd_compat.stepd import Status

#: ms between looks at a supervisor that has begun but does not answer yet, and how often
ADOPT_MS = 50
ADOPT_TRIES = 100


@dataclass
class Link:
    """A connection to one supervisor."""

    key: Any
    sock: socket.socket
    #: its process, if it is a child of this daemon; 0 otherwise
    pid: int = 0
    status: Status = field(default_factory=Status)
    buffer: bytes = b""
    #: what of the status the agent was told
    told_started: bool = False
    told_ended: bool = False
    #: tasks with news that the agent was not told of yet
    changed: list[int] = field(default_factory=list)


def link_to_none(key: Any, left: Status) -> Link:
    """In the place of a connection where a supervisor is gone: what it left is its last word."""
    link = Link(key, _NO_SOCKET)
    link.status = left
    return link


_NO_SOCKET: Any = None


class Links:
    """Those of one kind of step. `tell(link)` is called when a supervisor has said something,
    `gone(link)` when a link has ended; the caller's poll calls back through `watch`."""

    def __init__(
        self,
        watch: Callable[[int, Callable[[int], None]], None],
        unwatch: Callable[[int], None],
        tell: Callable[[Link], None],
        gone: Callable[[Link], None],
        log: Any,
    ) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._tell = tell
        self._gone = gone
        self._log = log
        self.held: dict[Any, Link] = {}
        #: supervisors of ours whose exit status nobody has read yet
        self.zombies: list[int] = []

    def follow(self, link: Link) -> None:
        self.held[link.key] = link
        self._watch(link.sock.fileno(), lambda _: self._read(link))

    def say(self, key: Any, command: str) -> None:
        """A command to a supervisor; one that is gone is noticed by the end of its link."""
        link = self.held.get(key)
        if link is not None:
            with contextlib.suppress(OSError):
                link.sock.send(to_bytes(command) + b"\n")

    def drop(self, key: Any) -> Link | None:
        """Lets go of a link; its process is reaped when it ends."""
        link = self.held.pop(key, None)
        if link is not None:
            self._unwatch(link.sock.fileno())
            link.sock.close()
            if link.pid:
                self.zombies.append(link.pid)
        return link

    def children(self) -> Iterable[int]:
        """Processes of ours whose exit status nobody has read yet."""
        return [*self.zombies, *(link.pid for link in self.held.values() if link.pid)]

    def reap(self) -> None:
        """Takes note of supervisors of ours that have ended, whenever they do."""
        left = []
        for pid in self.zombies:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    left.append(pid)
        self.zombies = left

    def close(self) -> None:
        for link in self.held.values():
            link.sock.close()

    def _read(self, link: Link) -> None:
        try:
            data = link.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(link.key)
            self._gone(link)
            return
        *lines, link.buffer = (link.buffer + data).split(b"\n")
        for raw in lines:
            line = raw.decode(errors="replace")
            if link.status.feed(line):
                if line.startswith("task "):
                    link.changed.append(int(line.split(None, 2)[1]))
            elif line.startswith("error"):
                self._log.error(f"job {link.key.job_id}: supervisor: {line[6:]}")
        self._tell(link)


def is_alive(pid: int) -> bool:
    """Whether a living supervisor has this pid (a zombie is none)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name == "stepd" and rest.split()[:1] not in (["Z"], ["X"])
