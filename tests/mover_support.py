"""The C client with a plan, and an agent and supervisors that speak to it over real sockets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import socket
import struct
import subprocess
import termios
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import pytest
from waiting import PATIENCE

SOURCES = Path(__file__).resolve().parents[1] / "cli" / "client"
#: more flags for the compiler (tools/sanitize-program.sh client)
FLAGS = os.environ.get("GSCHED_CLIENT_CFLAGS", "").split()
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SECRET = bytes(range(100, 132))
ALL = 0xFFFFFFFF


def build(target: Path, *flags: str) -> Path:
    """The client as `target`, which is to be named gsched-mover."""
    done = subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]
        + [*FLAGS, *flags, "-o", str(target), *sorted(map(str, SOURCES.glob("*.c")))],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        if "sanit" in done.stderr + done.stdout and (flags or FLAGS):
            pytest.skip("the compiler has no sanitizers")
        pytest.fail(done.stderr)
    return target


def message(letter: str, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data) + 1) + letter.encode() + data


def numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def hello(kind: str = "D", place: int = 0, secret: bytes = SECRET) -> bytes:
    return b"GSIO\x01" + kind.encode() + struct.pack(">H", place) + bytes(4) + secret


class Peer:
    """One connection to the client: the agent's, or that of a node's supervisor."""

    def __init__(self, port: int, kind: str, place: int = 0, family: int = socket.AF_INET) -> None:
        self.sock = socket.socket(family)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        self.sock.sendall(hello(kind, place))

    def say(self, letter: str, data: bytes = b"") -> None:
        self.sock.sendall(message(letter, data))

    def output(self, task: int, data: bytes, letter: str = "O") -> None:
        self.say(letter, numbers(task) + data)

    def hear(self) -> tuple[str, bytes]:
        """The next message; ("", b"") once the client has closed."""
        head = self._exactly(5)
        if not head:
            return "", b""
        (size,) = struct.unpack(">I", head[:4])
        return chr(head[4]), self._exactly(size - 1)

    def expect(self, letter: str) -> bytes:
        got, data = self.hear()
        assert got == letter, (got, data)
        return data

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                data = self.sock.recv(min(size, 1 << 20))
            except ConnectionResetError:
                data = b""
            if not data:
                return b""
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def leave(self) -> None:
        """Says no more, as a supervisor does (take_leave of slurmd_compat/stepd/io.c): closing with
        something unread would throw away what the other side has not got yet."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()


class Moving:
    """The client at work. `plan` are records; a list stands for several of one key."""

    def __init__(
        self,
        binary: Path,
        *,
        name: str = "srun",
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        cwd: Path | None = None,
        wrap: Iterable[str] = (),
        preexec: object = None,
        env: dict[str, str] | None = None,
        plan: dict[str, str | list[str]] | None = None,
        raw: bytes | None = None,
    ) -> None:
        records: dict[str, str | list[str]] = {"mode": "step", "job": "7", "stdin": "-"}
        records |= {"stdout": "-", "stderr": "-"} | (plan or {})
        packed = b"".join(
            f"{key}={value}\0".encode()
            for key, values in records.items()
            for value in (values if isinstance(values, list) else [values])
        )
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port: int = listener.getsockname()[1]
        file = os.memfd_create("plan")
        os.write(file, SECRET + (packed if raw is None else raw))
        os.lseek(file, 0, os.SEEK_SET)
        self.process = subprocess.Popen(
            [*wrap, str(binary), name, str(listener.fileno()), str(file)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            pass_fds=[listener.fileno(), file],
            preexec_fn=preexec,  # type: ignore[arg-type]
        )
        listener.close()
        os.close(file)
        self.peers: list[Peer] = []

    def peer(self, kind: str, place: int = 0, family: int = socket.AF_INET) -> Peer:
        self.peers.append(Peer(self.port, kind, place, family))
        return self.peers[-1]

    def agent(self) -> Peer:
        return self.peer("C")

    def node(self, place: int = 0) -> Peer:
        return self.peer("D", place)

    def step(self, nodes: int = 1, tasks: int = 1) -> tuple[Peer, list[Peer]]:
        """A step that has begun: its agent and its nodes."""
        agent = self.agent()
        agent.say("N", numbers(nodes, tasks))
        return agent, [self.node(place) for place in range(nodes)]

    def done(self, code: int = 0) -> tuple[bytes, bytes]:
        """What it wrote, once it has ended with that code."""
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == code, (self.process.returncode, out, err)
        return out, err

    def end(self, agent: Peer, nodes: Iterable[Peer] = (), code: int = 0) -> tuple[bytes, bytes]:
        """The step ends: what the client wrote."""
        for node in nodes:
            node.leave()
        agent.say("X", bytes([code]))
        return self.done(code)

    def memory_kb(self) -> int:
        """The most that it has had resident."""
        with open(f"/proc/{self.process.pid}/status") as file:
            (line,) = [line for line in file if line.startswith("VmHWM:")]
        return int(line.split()[1])

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


class Terminal:
    """A program in a session of its own on a pseudo terminal."""

    def __init__(self, rows: int = 30, columns: int = 90) -> None:
        self.master, self.slave = pty.openpty()
        self.size(rows, columns)

    def size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def own(self) -> None:
        """In the program: the terminal is its controlling one."""
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def shown(self, text: bytes) -> bytes:
        got = b""
        while text not in got:
            got += os.read(self.master, 4096)
        return got

    def close(self) -> None:
        for fd in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(fd)
