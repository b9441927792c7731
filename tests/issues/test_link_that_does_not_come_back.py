"""A frontend knows of its link to the controller, however quick the handshake was.

The monitor was attached after the connect: where the handshake was over by then, the frontend
answered "connect failure" as long as it lived (one kill test in some hundred). A link is also
dialled anew when none comes about, since ZeroMQ gives up after some failed handshakes.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import zmq

from gsched.frontend import upstream
from gsched.frontend.upstream import REDIAL_S, Upstream
from gsched.wire.codec import decode, encode
from gsched.wire.messages import Call, Done, Ping, Reply


def test_after_a_stranger_at_the_address_the_controller_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ctl.sock"
    stranger = socket.socket(socket.AF_UNIX)
    stranger.bind(str(path))
    stranger.listen()
    link = Upstream(str(path))
    peer, _ = stranger.accept()
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 128)
    time.sleep(0.3)
    now = 100.0
    link.turn(now)
    assert not link.up
    peer.close()
    stranger.close()
    path.unlink()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    controller = context.socket(zmq.ROUTER)
    controller.bind(f"ipc://{path}")
    answers: list[Reply] = []
    # The clock of the loop goes on; what it waits for is real.
    link.expire(now + REDIAL_S + 1)
    link.forward(Call(b"r", Ping()), 0, 0, 1, answers.append, now + REDIAL_S + 1)
    poller = zmq.Poller()
    poller.register(controller, zmq.POLLIN)
    end = time.monotonic() + 20
    while not answers and time.monotonic() < end:
        link.turn(now + REDIAL_S + 1)
        if poller.poll(20):
            sender, frame = controller.recv_multipart()
            call = decode(Call, frame)
            controller.send_multipart([sender, encode(Done(call.request_id, 1))])
    assert answers and isinstance(answers[0], Done)
    link.close()
    controller.close(linger=0)
    context.term()


def test_a_handshake_that_is_over_at_once_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is made slowly here, as on a machine where the process loses its turn just then."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    controller = context.socket(zmq.ROUTER)
    controller.bind(f"ipc://{tmp_path / 'ctl.sock'}")
    dial = upstream.dial_local

    def slowly(*args: object, **kw: object) -> zmq.Socket[bytes]:
        sock = dial(*args, **kw)  # type: ignore[arg-type]
        time.sleep(0.3)
        return sock

    monkeypatch.setattr(upstream, "dial_local", slowly)
    link = Upstream(str(tmp_path / "ctl.sock"))
    link.turn(1.0)
    assert link.up
    link.close()
    controller.close(linger=0)
    context.term()
