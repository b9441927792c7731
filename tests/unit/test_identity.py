"""Who may speak for whom: decided from the kernel's word and from keys, never from messages."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from gsched.wire.codec import encode
from gsched.wire.identity import Admission, Credentials, KeyHolder, ipc_peer, stream_peer
from gsched.wire.keys import KeyProblem, key_table, load_pair, load_public, make_keys
from gsched.wire.messages import Ping
from gsched.wire.sockets import MAX_PARTS, ControllerSockets, Received, dial_controller, dial_local

KEY = b"k" * 32


@pytest.fixture
def admission() -> Admission:
    return Admission(frozenset({0, 990}), {KEY: KeyHolder("node", "gpu01")})


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("localhost:1000:1001:9699", Credentials(9699, 1000, 1001)),
        ("host:with:colons:1000:1001:9699", Credentials(9699, 1000, 1001)),
        ("127.0.0.1", None),
        ("localhost:1000:1001:", None),
        ("localhost:-1:1001:5", None),
        ("localhost:\u0661:0:5", None),
        ("", None),
    ],
)
def test_ipc_address(address: str, peer: Credentials | None) -> None:
    assert ipc_peer(address) == peer


def zap(domain: bytes, address: bytes, identity: bytes, mechanism: bytes, *rest: bytes) -> list:
    return [b"1.0", b"7", domain, address, identity, mechanism, *rest]


@pytest.mark.parametrize(
    ("request_", "status", "user"),
    [
        (zap(b"local", b"localhost:0:0:1", b"", b"NULL"), b"200", b"localhost:0:0:1"),
        (zap(b"local", b"localhost:990:0:1", b"", b"NULL"), b"200", b"localhost:990:0:1"),
        (zap(b"local", b"localhost:1000:0:1", b"", b"NULL"), b"400", b""),
        (zap(b"local", b"10.0.0.1", b"", b"NULL"), b"400", b""),
        (zap(b"nodes", b"10.0.0.1", b"gpu01", b"CURVE", KEY), b"200", b"node:gpu01"),
        (zap(b"nodes", b"10.0.0.1", b"gpu01", b"CURVE", b"z" * 32), b"400", b""),
        (zap(b"nodes", b"localhost:0:0:1", b"gpu01", b"NULL"), b"400", b""),
        (zap(b"other", b"localhost:0:0:1", b"", b"NULL"), b"400", b""),
    ],
)
def test_admission(admission: Admission, request_: list, status: bytes, user: bytes) -> None:
    reply = admission.decide(request_)
    assert reply[:3] == [b"1.0", b"7", status]
    assert reply[4] == user


@given(st.lists(st.binary(max_size=40), max_size=9))
def test_noise_is_not_admitted(request_: list[bytes]) -> None:
    assert Admission(frozenset({0})).decide(request_)[2] == b"400"


def test_stream_peer_is_this_process() -> None:
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        assert stream_peer(left) == (os.getpid(), os.getuid(), os.getgid())


def test_keys_are_made_once_and_secrets_are_closed(tmp_path: Path) -> None:
    keys = str(tmp_path / "keys")
    made = make_keys(keys, ["n1", "n2"])
    assert sorted(Path(p).name for p in made) == [
        *("controller.key", "frontend.key", "n1.key", "n2.key")
    ]
    before = {p: p.read_bytes() for p in (tmp_path / "keys").rglob("*.key*")}
    assert make_keys(keys, ["n1", "n2", "n3"]) == [f"{keys}/nodes/n3.key"]
    assert all(p.read_bytes() == data for p, data in before.items())
    for secret in (tmp_path / "keys").rglob("*.key_secret"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    # zmq.auth reads what was written.
    import zmq.auth

    public, secret_key = zmq.auth.load_certificate(f"{keys}/nodes/n1.key_secret")
    assert secret_key is not None
    assert zmq.curve_public(secret_key) == public == load_public(keys, "n1", node=True)
    table, problems = key_table(keys)
    assert problems == []
    assert sorted(table.values()) == [
        KeyHolder("node", "n1"),
        KeyHolder("node", "n2"),
        KeyHolder("node", "n3"),
        KeyHolder("proxy", "frontend"),
    ]


def test_bad_keys_are_named(tmp_path: Path) -> None:
    keys = str(tmp_path)
    make_keys(keys, ["n1"])
    (tmp_path / "nodes" / "n2.key").write_bytes(b"rubbish\xff")
    (tmp_path / "nodes" / "n3.key").write_bytes((tmp_path / "nodes" / "n1.key").read_bytes())
    assert len(key_table(keys)[1]) == 2
    os.chmod(tmp_path / "controller.key_secret", 0o644)
    with pytest.raises(KeyProblem, match="0600"):
        load_pair(keys, "controller")
    with pytest.raises(KeyProblem, match=r"\.\./n"):
        make_keys(keys, ["../n"])


def pump(sockets: ControllerSockets, done: Callable[[], bool]) -> None:
    """Serves handshakes until `done` (5 s at most)."""
    poller = zmq.Poller()
    sockets.register(poller)
    for _ in range(250):
        if done():
            return
        poller.poll(20)
        sockets.admit()
    raise AssertionError("it did not happen within 5 s")


def collect(sockets: ControllerSockets, count: int) -> list[Received]:
    """The next `count` messages (5 s at most)."""
    found: list[Received] = []

    def enough() -> bool:
        found.extend(sockets.receive(100))
        return len(found) >= count

    pump(sockets, enough)
    return found


def test_links_of_nodes_and_frontends(tmp_path: Path) -> None:
    keys = str(tmp_path / "keys")
    make_keys(keys, ["n1", "n2"])
    table, _ = key_table(keys)
    sockets = ControllerSockets(Admission(frozenset({os.getuid()}), table))
    sockets.bind_local(str(tmp_path / "ctl.sock"))
    port = sockets.bind_nodes("127.0.0.1", 0, load_pair(keys, "controller"))
    assert stat.S_IMODE((tmp_path / "ctl.sock").stat().st_mode) & 0o077 == 0
    context: zmq.Context = zmq.Context()
    local = dial_local(context, str(tmp_path / "ctl.sock"))
    node = dial_controller(context, "127.0.0.1", port, keys, node="n1")
    remote = dial_controller(context, "127.0.0.1", port, keys)
    for sock in (local, node, remote):
        sock.linger = 0
    # IMMEDIATE: a send waits for the link, which needs the controller's word.
    message = encode(Ping())
    waiting = [local, node, remote]
    found: list[Received] = []
    poller = zmq.Poller()
    sockets.register(poller)
    for _ in range(200):
        poller.poll(20)
        sockets.admit()
        for sock in list(waiting):
            if sock.poll(0, zmq.POLLOUT):
                sock.send(message)
                waiting.remove(sock)
        found += sockets.receive(10)
        if len(found) == 3:
            break
    assert sorted((m.role, m.name, m.remote) for m in found) == [
        ("node", "n1", True),
        ("proxy", "", False),
        ("proxy", "frontend", True),
    ]
    for received in found:
        assert received.payload == message
        if received.role == "node":
            assert sockets.send_node("n1", b"to n1")
            assert node.poll(2000) and node.recv() == b"to n1"
        else:
            assert sockets.answer(received.routing_id, [b"yes"], remote=received.remote)
    assert local.poll(2000) and local.recv() == b"yes"
    assert remote.poll(2000) and remote.recv() == b"yes"
    assert not sockets.send_node("n2", b"nobody there")
    assert sockets.undelivered == 1
    # n2 calls itself n1, as n1 does: its messages are n2's, and n1's orders go to n1.
    thief = dial_controller(context, "127.0.0.1", port, keys, node="n2")
    thief.linger = 0
    thief.set(zmq.ROUTING_ID, b"n1")
    thief.disconnect(f"tcp://127.0.0.1:{port}")
    thief.connect(f"tcp://127.0.0.1:{port}")
    pump(sockets, lambda: bool(thief.poll(0, zmq.POLLOUT)))
    thief.send(message)
    assert [m.name for m in collect(sockets, 1)] == ["n2"]
    # A key that is not in the table gets nothing through.
    make_keys(str(tmp_path / "other"), ["n1"])
    (tmp_path / "other" / "controller.key").write_bytes(
        (tmp_path / "keys" / "controller.key").read_bytes()
    )
    stranger = dial_controller(context, "127.0.0.1", port, str(tmp_path / "other"), node="n1")
    pump(sockets, lambda: sockets.admission.refused > 0)
    assert not stranger.poll(0, zmq.POLLOUT)
    # Several parts are several messages; too many are none, and the link goes on.
    node.send_multipart([b"a", b"b", b"c"])
    node.send_multipart([b"x"] * (MAX_PARTS + 1))
    node.send(message)
    after = collect(sockets, 4)
    assert [(m.name, m.payload) for m in after] == [
        *(("n1", b"a"), ("n1", b"b"), ("n1", b"c"), ("n1", message))
    ]
    assert sockets.dropped == 1
    assert sockets.send_node("n1", b"still n1's")
    assert node.poll(2000) and node.recv() == b"still n1's"
    for sock in (local, node, remote, thief, stranger):
        sock.close()
    context.term()
    sockets.close()
