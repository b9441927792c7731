"""The step supervisor under test: building it, starting steps, and a client to connect to."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

import pytest

from slurmd_compat.stepd import Status, encode_spec, read_status

SOURCES = Path(__file__).resolve().parents[1] / "slurmd_compat" / "stepd"
NOBODY = pwd.getpwnam("nobody")
STAMP = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\] error: "


def build(target: Path, *flags: str) -> Path:
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    done = subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
        + [*flags, "-o", str(target), *sources],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        if flags and "sanit" in done.stderr + done.stdout:
            pytest.skip("the compiler has no sanitizers")
        pytest.fail(done.stderr)
    return target


def dial(place: Path) -> socket.socket:
    """A connection to a supervisor's control socket, which may be about to be made."""
    end = time.monotonic() + 20
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(20)
        try:
            s.connect(f"{place}/ctl")
            return s
        except OSError:
            s.close()
            assert time.monotonic() < end, "there is no control socket"
            time.sleep(0.01)


class Step:
    """One supervisor, its event socket, and what came over it."""

    def __init__(self, binary: Path, base: Path, records: list[tuple[str, str | int]]) -> None:
        self.dir = base / "step"
        self.out = base
        self.dir.mkdir(mode=0o700)
        (self.dir / "spec").write_bytes(encode_spec(records))
        self.status = Status()
        self.lines: list[str] = []
        self._rest = ""
        self.events, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        self.pid = os.posix_spawn(
            binary,
            [str(binary), str(self.dir), str(theirs.fileno())],
            {"TZ": "UTC"} | {key: os.environ[key] for key in REPORTS if key in os.environ},
        )
        theirs.close()

    def until(self, word: str, seconds: float = 20) -> list[str]:
        """Reads events until one begins with these words."""
        end = time.monotonic() + seconds
        while not any(f"{line} ".startswith(f"{word} ") for line in self.lines):
            ready, _, _ = select.select([self.events], [], [], max(end - time.monotonic(), 0))
            data = self.events.recv(4096).decode() if ready else ""
            if not data:
                pytest.fail(f"no {word!r} within {seconds} s, only {self.lines}")
            *whole, self._rest = (self._rest + data).split("\n")
            self.lines += whole
            for line in whole:
                self.status.feed(line)
        return self.lines

    def tell(self, text: str) -> None:
        self.events.sendall(text.encode() + b"\n")

    def connect(self) -> socket.socket:
        os.kill(self.pid, signal.SIGUSR1)
        return dial(self.dir)

    def finish(self, seconds: float = 20) -> Status:
        self.until("released", seconds)
        _, wstatus = os.waitpid(self.pid, 0)
        self.pid = 0
        assert wstatus in (0, 1 << 8)
        left = read_status(self.dir)
        assert left is not None and left.released and left.wstatus == self.status.wstatus
        return self.status


class Start(Protocol):
    """Starts one step; `out` is the folder of its user, where its files are."""

    out: Path

    def __call__(self, script: str, *more: tuple[str, str | int], **keys: str | int) -> Step: ...


def starter(binary: Path, nobody: bool) -> Iterator[Start]:
    base = Path(subprocess.check_output(["mktemp", "-d", "/tmp/stepd-test.XXXXXX"], text=True)[:-1])
    base.chmod(0o755)
    out = base / "out"
    out.mkdir()
    ids = (NOBODY.pw_uid, NOBODY.pw_gid) if nobody else (os.getuid(), os.getgid())
    os.chown(out, *ids)
    steps: list[Step] = []

    def begin(script: str, *more: tuple[str, str | int], **keys: str | int) -> Step:
        place = base / str(len(steps))
        place.mkdir()
        name = keys.pop("out", str(out / "o"))
        path = keys.pop("path", "/usr/bin:/bin")
        records: dict[str, str | int] = {
            "uid": ids[0],
            "gid": ids[1],
            "cwd": str(out),
            "stdout": name,
            "stderr": keys.pop("err", name),
            "label": "JOB 7 ON gpu01",
            "killwait": 1,
            **keys,
        }
        argv = [("arg", "/bin/bash"), ("arg", "-c"), ("arg", script)]
        step = Step(
            binary,
            place,
            [
                *records.items(),
                *([] if any(key == "arg" for key, _ in more) else argv),
                *([("env", f"PATH={path}")] if path else []),
                *more,
            ],
        )
        step.out = out
        steps.append(step)
        return step

    begin.out = out  # type: ignore[attr-defined]
    yield cast(Start, begin)
    for step in steps:
        if step.pid:
            with contextlib.suppress(OSError):
                step.tell("kill9 silent")
                step.until("released", 10)
            with contextlib.suppress(ProcessLookupError):
                os.kill(step.pid, signal.SIGKILL)
            os.waitpid(step.pid, 0)
        step.events.close()
    shutil.rmtree(base)


def text(step: Step, name: str = "o") -> str:
    return (step.out / name).read_text()


def wait_for(path: Path, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


#: where sanitizers report to
REPORTS = ("ASAN_OPTIONS", "UBSAN_OPTIONS")
#: how the supervisor under test is built, beside the usual
FLAGS = os.environ.get("GSCHED_STEPD_CFLAGS", "")

ALL = 0xFFFFFFFF
FREE = 64 << 10
#: what the supervisor grants beyond it once some input has come: it holds four times as much
MORE = 192 << 10


class Client:
    """What srun is to a step: listens, takes the data connections of its nodes, keeps what they
    say, and carries out exchanges among them."""

    def __init__(self, nodes: int = 1) -> None:
        self.secret = secrets.token_bytes(32)
        self.nodes = nodes
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.out: dict[int, bytearray] = defaultdict(bytearray)
        self.err: dict[int, bytearray] = defaultdict(bytearray)
        self.closed: set[tuple[str, int]] = set()
        self.credit: dict[int, int] = defaultdict(int)
        self.aborts: list[tuple[int, bytes]] = []
        self.exchanges: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.connections: dict[int, socket.socket] = {}
        self.gone: set[int] = set()
        self.faults: list[str] = []
        self.changed = threading.Condition()
        #: cleared: nothing is read, as by a client that is stopped
        self.reading = threading.Event()
        self.reading.set()
        #: called with the first connection
        self.window: tuple[int, int] | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def records(self, index: int = 0) -> list[tuple[str, str | int]]:
        """The keys of the order that lead here."""
        return [
            ("io", f"127.0.0.1:{self.port}"),
            ("io_secret", self.secret.hex()),
            ("io_index", index),
            ("nnodes", self.nodes),
        ]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _exactly(self, sock: socket.socket, n: int) -> bytes:
        data = b""
        while len(data) < n:
            if self.connections:  # only the hello is always read
                self.reading.wait()
            part = sock.recv(min(n - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return data

    def _serve(self, sock: socket.socket) -> None:
        index = -1
        try:
            hello = self._exactly(sock, 44)
            index = int.from_bytes(hello[6:8], "big")
            if hello[:6] != b"GSIO\1D" or hello[8:12] != bytes(4) or hello[12:] != self.secret:
                self.faults.append(f"hello {hello!r}")
            with self.changed:
                self.connections[index] = sock
                if self.window:
                    self.say(index, b"W", struct.pack(">HH", *self.window))
                self.changed.notify_all()
            while True:
                length = int.from_bytes(self._exactly(sock, 4), "big")
                body = self._exactly(sock, length)
                with self.changed:
                    self._take(index, chr(body[0]), body[1:])
                    self.changed.notify_all()
        except (EOFError, OSError):
            pass
        with self.changed:
            self.gone.add(index)
            self.changed.notify_all()
        sock.close()

    def _take(self, index: int, letter: str, body: bytes) -> None:
        number = int.from_bytes(body[:4], "big")
        rest = body[4:]
        if letter in "OE":
            if (letter, number) in self.closed:
                self.faults.append(f"{letter} {number} after its end: {rest!r}")
            if rest:
                (self.out if letter == "O" else self.err)[number] += rest
            else:
                self.closed.add((letter, number))
        elif letter == "C":
            self.credit[number] += int.from_bytes(rest, "big")
        elif letter == "A":
            self.aborts.append((number, rest))
        elif letter == "K":
            parts = self.exchanges[number]
            if index in parts:
                self.faults.append(f"two parts of round {number}")
            parts[index] = rest
            if len(parts) == self.nodes:
                all_parts = b"".join(
                    struct.pack(">I", len(parts[i])) + parts[i] for i in range(self.nodes)
                )
                for i in range(self.nodes):
                    self.say(i, b"K", struct.pack(">I", number) + all_parts)
        else:
            self.faults.append(f"unknown letter {letter!r}")

    def say(self, index: int, letter: bytes, body: bytes) -> None:
        self.connections[index].sendall(struct.pack(">I", len(body) + 1) + letter + body)

    def feed(self, task: int, data: bytes, index: int = 0) -> None:
        """Sends input, as much as there is credit for at a time; then b"" is its end."""
        self.until(lambda: index in self.connections)
        if not data:
            self.say(index, b"I", struct.pack(">I", task))
            return
        at, used = 0, getattr(self, "used", 0)
        while at < len(data):
            room = FREE + self.credit[task] - used
            if room <= 0:
                self.until(lambda: FREE + self.credit[task] > used)  # noqa: B023
                continue
            part = data[at : at + room]
            self.say(index, b"I", struct.pack(">I", task) + part)
            at += len(part)
            used += len(part)
        self.used = used

    def until(self, ready: Callable[[], object], seconds: float = 20) -> None:
        with self.changed:
            assert self.changed.wait_for(ready, seconds), (
                f"out {dict(self.out)!r:.500} err {dict(self.err)!r:.500} {self.faults}"
            )

    def finish(self, seconds: float = 20) -> None:
        """Waits until all nodes have closed their connections."""
        self.until(lambda: len(self.gone) >= self.nodes, seconds)
        assert not self.faults

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in list(self.connections.values()):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


Records = list[tuple[str, str | int]]


def tasks(n: int, script: str, *, first: int = 0, total: int = 0, own: object = None) -> Records:
    """Records of n tasks that run a shell script with SLURM_PROCID set."""
    records: Records = [("arg", "bash"), ("arg", "-c"), ("arg", script)]
    records.append(("ntasks", total or n))
    for i in range(first, first + n):
        records += [("task", i), ("tenv", f"SLURM_PROCID={i}")]
        if callable(own):
            records += own(i)
    return records


def assert_small(pid: int) -> None:
    """At most 5 MB of it are resident; sanitizers keep memory of their own."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+)", status, re.M)
    assert found and (int(found[1]) < 5 << 10 or "sanitize" in FLAGS), found[0]


def mover_of(step: Step) -> int:
    """The process of a supervisor that moves streams: its only child of the same program."""
    children = Path(f"/proc/{step.pid}/task/{step.pid}/children").read_text().split()
    found = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text()[:5] == "stepd"]
    assert len(found) == 1
    return int(found[0])
