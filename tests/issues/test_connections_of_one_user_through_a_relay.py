"""One user of a login host could take all connections that the relays together may have, and as
much of the relay's memory as it could write: nothing was counted by user, and clients were read
also where there was no link to the controller.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import zmq

from gsched.frontend import relay as relays
from gsched.frontend import tunnel
from gsched.frontend.relay import Relay


class Host:
    def __init__(self, path: str) -> None:
        self.context = zmq.Context()
        self.link = self.context.socket(zmq.DEALER)
        self.link.set(zmq.SNDHWM, 1)
        self.link.linger = 0
        self.link.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        # Nobody answers there.
        self.link.connect("tcp://127.0.0.1:1")
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(100)
        self.life, self.other = socket.socketpair()
        # The user who runs this test is nobody's proxy here.
        self.relay = Relay(self.listener, self.link, frozenset(), self.life.fileno())
        self.thread = threading.Thread(target=self.relay.run)
        self.thread.start()

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(5)
        sock.connect(self.path)
        return sock

    def close(self) -> None:
        self.other.close()
        self.thread.join()
        for sock in (self.listener, self.life):
            sock.close()
        self.link.disable_monitor()
        self.link.close(linger=0)
        self.context.destroy(linger=0)


@pytest.fixture
def host(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(tunnel, "MOST_PER_USER", 3)
    monkeypatch.setattr(relays, "MOST_BYTES", 1 << 20)
    made = Host(f"{tmp_path}/sock")
    yield made
    made.close()


def test_so_many_and_no_more(host: Host) -> None:
    held = [host.connect() for _ in range(3)]
    assert host.connect().recv(1) == b"", "one too many is closed"
    for sock in held:
        sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            sock.recv(1)
    held.pop().close()
    for _ in range(100):
        again = host.connect()
        again.settimeout(0.1)
        try:
            assert again.recv(1) == b""
        except TimeoutError:
            return
    raise AssertionError("a place that was given back is not given anew")


def test_nothing_is_read_that_cannot_be_sent_on(host: Host) -> None:
    written = 0
    for sock in [host.connect() for _ in range(3)]:
        sock.settimeout(0.5)
        while True:
            try:
                written += sock.send(bytes(1 << 16))
            except TimeoutError:
                break
    # The bound, the pieces of one turn, and the kernel's own room.
    assert written < (1 << 20) + 3 * (tunnel.CHUNK + (1 << 19))
