"""What processes use now, from /proc: a task is its process and all that descend from it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(slots=True)
class Use:
    """A task's processes together."""

    rss_kb: int = 0
    vm_kb: int = 0
    #: of user and system, with children that have ended
    cpu_ms: int = 0
    #: page faults that had to read
    pages: int = 0
    #: bytes
    read: int = 0
    write: int = 0
    pids: list[int] = field(default_factory=list)


class Processes:
    """The processes of this host at one moment. Cost: a read for each, 10 us."""

    def __init__(self) -> None:
        #: pid -> fields of its stat file after the name
        self._stat: dict[int, list[bytes]] = {}
        self._children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    fields = file.read(4096).rpartition(b")")[2].split()
            except OSError:
                continue
            pid = int(name)
            self._stat[pid] = fields
            self._children.setdefault(int(fields[1]), []).append(pid)

    def below(self, pid: int) -> Iterable[int]:
        """A process and its descendants."""
        todo = [pid]
        while todo:
            one = todo.pop()
            if one in self._stat:
                yield one
                todo += self._children.get(one, [])

    def use(self, pid: int) -> Use:
        """What the task of a process uses."""
        found = Use()
        for one in self.below(pid):
            fields = self._stat[one]
            found.pids.append(one)
            found.pages += int(fields[9])
            found.cpu_ms += sum(int(value) for value in fields[11:15]) * _TICK_MS
            found.vm_kb += int(fields[20]) // 1024
            found.rss_kb += int(fields[21]) * _PAGE_KB
            read, write = _moved(one)
            found.read += read
            found.write += write
        found.pids.sort()
        return found


def _moved(pid: int) -> tuple[int, int]:
    """Bytes read and written by a process; 0 where it may not be looked at."""
    try:
        with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
            lines = file.read(1024).split(b"\n")
    except OSError:
        return 0, 0
    values = {line.partition(b":")[0]: line.partition(b":")[2] for line in lines}
    return int(values.get(b"rchar", b"0")), int(values.get(b"wchar", b"0"))
