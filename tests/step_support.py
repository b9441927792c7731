"""A client of steps as the tests play it: its listener, and a request to a node's socket."""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import Any

from node_support import NodeUnderTest
from waiting import until

from gsched.model import Phase
from gsched.model.step import Callback, StepSpec
from gsched.wire.codec import decode, encode
from gsched.wire.framing import recv_frame, send_frame
from gsched.wire.steps import CreateStep, FromAgent


class Listener:
    """What srun's side of a step hears: everything on all connections, taken in by a thread."""

    def __init__(self) -> None:
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.secret = os.urandom(32)
        self.callback = Callback("127.0.0.1", self.sock.getsockname()[1], self.secret)
        #: (kind, index, letter, body)
        self.heard: list[tuple[str, int, str, bytes]] = []
        self.control: list[socket.socket] = []
        self.data: list[socket.socket] = []
        self._buffers: dict[int, bytes] = {}
        self._kinds: dict[int, tuple[str, int]] = {}
        self._open: dict[int, socket.socket] = {}
        self._stop, self._stopped = os.pipe()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._stop:
                    return
                if fd == self.sock.fileno():
                    peer, _ = self.sock.accept()
                    self._open[peer.fileno()] = peer
                    self._buffers[peer.fileno()] = b""
                    poll.register(peer, select.POLLIN)
                    continue
                peer = self._open[fd]
                try:
                    data = peer.recv(65536)
                except OSError:
                    data = b""
                if not data:
                    poll.unregister(fd)
                    kind, index = self._kinds.pop(fd, ("?", 0))
                    self.heard.append((kind, index, "gone", b""))
                    peer.close()
                    self._open.pop(fd)
                    continue
                self._feed(fd, peer, data)

    def _feed(self, fd: int, peer: socket.socket, data: bytes) -> None:
        held = self._buffers[fd] + data
        if fd not in self._kinds:
            if len(held) < 44:
                self._buffers[fd] = held
                return
            assert held[:5] == b"GSIO\x01" and held[12:44] == self.secret
            kind = chr(held[5])
            self._kinds[fd] = (kind, int.from_bytes(held[6:8], "big"))
            (self.control if kind == "C" else self.data).append(peer)
            held = held[44:]
        while len(held) >= 4 and len(held) >= 4 + int.from_bytes(held[:4], "big"):
            size = int.from_bytes(held[:4], "big")
            letter, body = chr(held[4]), held[5 : 4 + size]
            self.heard.append((*self._kinds[fd], letter, body))
            held = held[4 + size :]
            if letter == "X":
                # As a client does: everything is there, it ends.
                peer.shutdown(socket.SHUT_WR)
        self._buffers[fd] = held

    def said(self, letter: str, kind: str = "C") -> list[bytes]:
        return [body for k, _, which, body in list(self.heard) if (k, which) == (kind, letter)]

    @property
    def errors(self) -> list[str]:
        return b"".join(self.said("e")).decode().splitlines()

    def output(self, letter: str = "O") -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for body in self.said(letter, "D"):
            task = int.from_bytes(body[:4], "big")
            found[task] = found.get(task, b"") + body[4:]
        return found

    @property
    def code(self) -> int | None:
        """The exit code, once it is told and, as a client waits for them, no data are to come."""
        codes = self.said("X")
        assert len(codes) <= 1
        if not codes or any(kind == "D" for kind, _ in list(self._kinds.values())):
            return None
        return codes[0][0]

    def say(self, letter: str, body: bytes = b"") -> None:
        self.control[-1].sendall((len(body) + 1).to_bytes(4, "big") + letter.encode() + body)

    def close(self) -> None:
        os.write(self._stopped, b"x")
        self.thread.join()
        for peer in self._open.values():
            peer.close()
        self.sock.close()


def ask(path: str, message: Any) -> Any:
    """One request over a node's socket; its answer."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(path)
        send_frame(sock, encode(message))
        return decode(FromAgent, recv_frame(sock))


def create(path: str, listener: Listener, job_id: int, argv: list[str], **fields: Any) -> Any:
    fields.setdefault("cwd", "/tmp")
    spec = StepSpec(job_id, name=argv[0].rpartition("/")[2], argv=argv, **fields)
    environment = f"PATH={os.environ['PATH']}".encode()
    return ask(path, CreateStep(os.urandom(8), spec, listener.callback, environment))


def socket_of(node: NodeUnderTest) -> str:
    """Where the node takes requests about steps."""
    return str(node.dir / "run" / "slurmd.node1.sock")


def a_job(node: NodeUnderTest, job_id: int, **fields: object) -> None:
    """A job that lasts, for steps to run in."""
    node.run(job_id, "#!/bin/sh\nsleep 60\n", **fields)
    node.phase(job_id, Phase.RUNNING)


def finished(node: NodeUnderTest, client: Listener) -> int:
    """The exit code that the client is told."""
    until(f"an exit code; {client.heard}", lambda: node.pump(1) or client.code is not None)
    assert client.code is not None
    return client.code
