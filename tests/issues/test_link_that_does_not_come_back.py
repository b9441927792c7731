"""A frontend whose link to the controller was refused once must find a controller again.

ZeroMQ gives a connection up for good after some failed handshakes (a peer that speaks another
protocol, a refusal): the frontend then answered "connect failure" as long as it lived.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import zmq

from gsched.frontend.upstream import REDIAL_S, Upstream
from gsched.wire.messages import Call, Done, Ping, Reply, decode, encode


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
