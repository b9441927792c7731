"""ZeroMQ sockets with every limit set: the controller's two ROUTERs, and who dials them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import zmq
import zmq.backend

from gsched.wire.codec import MAX_FRAME
from gsched.wire.identity import LOCAL_DOMAIN, NODE_DOMAIN, Admission, KeyHolder, key_holder
from gsched.wire.keys import CONTROLLER, FRONTEND, KeyPair, load_pair, load_public
from gsched.wire.paths import reachable
from gsched.wire.short import MARK, ShortEnd, short_socket

#: Messages that may wait in one direction of one link before they are dropped. What is dropped
#: is asked again: nodes report anew, frontends repeat the request id.
HIGH_WATER = 4096
#: Messages that may travel as the parts of one.
MAX_PARTS = 128
#: Above MAX_FRAME, so that a message of just over it is answered and not cut off.
_MAX_MESSAGE = MAX_FRAME + 4096

# Called for every message: an operation with an enumeration's member, and each layer around the
# library's own function, cost more than what they do.
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
_NOW, _NOW_AND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_option: Any = zmq.backend.Socket.get
_put: Any = zmq.backend.Socket.send

_LOCAL_PROXY = KeyHolder("proxy", "")


class BindFailed(Exception):
    """The controller cannot have its address; the text names it."""


class Received(NamedTuple):
    """A message, with what is known of its sender apart from what it says."""

    #: "node", "proxy"
    role: str
    #: node's name, or the name of a frontend's key ("" on this host)
    name: str
    #: where an answer goes
    routing_id: bytes
    payload: memoryview | bytes
    #: came over the network
    remote: bool


class ControllerSockets:
    """The controller's end of all links. One thread."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.context = zmq.Context(io_threads=1)
        # At most this many sockets exist, but every node's link is one more file.
        self.context.set(zmq.MAX_SOCKETS, 64)
        self._zap = self.context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind("inproc://zeromq.zap.01")
        self._local = self._router(LOCAL_DOMAIN)
        self._nodes = self._router(NODE_DOMAIN)
        #: what commands of this host send, past ZeroMQ's threads
        self._short: ShortEnd | None = None
        # node -> routing id of its last link. Routing ids are libzmq's own and never what a peer
        # calls itself: one node could else take over another's link and read its orders.
        self._links: dict[str, bytes] = {}
        #: messages without content or with too many parts, and messages of peers without a role
        self.dropped = 0
        #: answers that could not be handed over (peer gone, or it does not read)
        self.undelivered = 0

    def _router(self, domain: bytes) -> zmq.Socket[bytes]:
        sock = self.context.socket(zmq.ROUTER)
        sock.linger = 200
        sock.set(zmq.ZAP_DOMAIN, domain)
        sock.set(zmq.MAXMSGSIZE, _MAX_MESSAGE)
        sock.set(zmq.RCVHWM, HIGH_WATER)
        sock.set(zmq.SNDHWM, HIGH_WATER)
        sock.set(zmq.BACKLOG, 4096)
        # A peer that is gone is told by an error instead of silence, and counted.
        sock.set(zmq.ROUTER_MANDATORY, 1)
        return sock

    def bind_local(self, path: str) -> None:
        """Listens on a Unix socket for frontends of this host (mode 0600)."""
        old = os.umask(0o177)
        try:
            self._local.bind(f"ipc://{reachable(path)}")
        except zmq.ZMQError as error:
            raise BindFailed(f"cannot listen on {path}: {error.strerror}") from None
        finally:
            os.umask(old)
        try:
            self._short = ShortEnd(self.admission, short_socket(path))
        except OSError as error:
            raise BindFailed(f"cannot listen on {short_socket(path)}: {error.strerror}") from None

    def bind_nodes(self, address: str, port: int, pair: KeyPair) -> int:
        """Listens on tcp for nodes and remote frontends, with CURVE; returns the port (0: any)."""
        _listen_curve(self._nodes, address, port, pair)
        return int(bytes(self._nodes.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").rsplit(b":", 1)[1])

    @property
    def handshakes(self) -> zmq.Socket[bytes]:
        """The socket that is readable when `admit` has something to do."""
        return self._zap

    def register(self, poller: zmq.Poller, *, nodes: bool = True) -> None:
        """Adds all sockets to a poller, or those that are not for the network."""
        for sock in (self._zap, self._local, self._nodes) if nodes else (self._zap, self._local):
            poller.register(sock, zmq.POLLIN)
        if self._short is not None:
            poller.register(self._short.fileno(), zmq.POLLIN)

    def admit(self) -> None:
        """Answers waiting handshakes; cheap when there are none."""
        while readable(self._zap):
            request = self._zap.recv_multipart()
            self._zap.send_multipart(self.admission.decide(request))

    def receive(self, limit: int, *, nodes: bool = True) -> Iterator[Received]:
        """Gives waiting messages, some `limit` from each side, without blocking; with `nodes` not
        set, of this host alone.

        A multipart message is several messages of one sender: it costs the threads between two
        processes one signal instead of many.
        """
        if self._short is not None:
            for name, message in self._short.receive(limit):
                yield Received(_LOCAL_PROXY.role, _LOCAL_PROXY.name, name, message, False)
        for sock, remote in ((self._nodes, True), (self._local, False)):
            if remote and not nodes:
                continue
            taken = 0
            while taken < limit and readable(sock):
                sender: zmq.Frame = sock.recv(copy=False)
                parts = _parts(sock, sender)
                taken += 1 + len(parts)
                if not 0 < len(parts) <= MAX_PARTS:
                    self.dropped += 1
                    continue
                holder = self._sender(parts[0], remote)
                if holder is None:
                    self.dropped += 1
                    continue
                if holder.role == "node":
                    self._links[holder.name] = sender.bytes
                for part in parts:
                    yield Received(holder.role, holder.name, sender.bytes, part.bytes, remote)

    def _sender(self, part: zmq.Frame, remote: bool) -> KeyHolder | None:
        """Whose message it is. Asked for every one: a routing id may pass to another peer."""
        try:
            if remote:
                return key_holder(str(part.get("User-Id")))
            if self.admission.is_proxy(str(part.get("Peer-Address"))):
                return _LOCAL_PROXY
        except zmq.ZMQError:
            pass
        return None

    def answer(self, routing_id: bytes, payloads: Sequence[bytes], *, remote: bool) -> bool:
        """Sends messages to a frontend; False when it is gone or does not read."""
        # A frontend of another host may call its link what it likes.
        if not remote and routing_id.startswith(MARK) and self._short is not None:
            sent = self._short.answer(routing_id, payloads)
            self.undelivered += not sent
            return sent
        sock = self._nodes if remote else self._local
        sent = True
        for at in range(0, len(payloads), MAX_PARTS):
            sent = self._send(sock, routing_id, payloads[at : at + MAX_PARTS]) and sent
        return sent

    def send_node(self, node: str, payload: bytes) -> bool:
        """Sends on the link of the node's last message; False when there is none any more (its
        next report heals that)."""
        link = self._links.get(node)
        if link is None:
            self.undelivered += 1
            return False
        return self._send(self._nodes, link, [payload])

    def _send(self, sock: zmq.Socket[bytes], routing_id: bytes, payloads: Sequence[bytes]) -> bool:
        try:
            _put(sock, routing_id, _NOW_AND_MORE)
            for payload in payloads[:-1]:
                _put(sock, payload, _NOW_AND_MORE)
            _put(sock, payloads[-1], _NOW)
        except zmq.ZMQError:
            # EHOSTUNREACH: gone; EAGAIN: its queue is full. Both are healed by repetition.
            self.undelivered += 1
            return False
        return True

    def close(self) -> None:
        """Sends what is queued (200 ms at most) and closes."""
        if self._short is not None:
            self._short.close()
        for sock in (self._local, self._nodes, self._zap):
            sock.close()
        self.context.term()


def listen_frontends(
    context: zmq.Context[zmq.Socket[bytes]], address: str, port: int, pair: KeyPair
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """The socket for frontends of other hosts, with CURVE, and the one on which handshakes are to
    be decided (`Admission.decide`). Raises BindFailed."""
    zap = context.socket(zmq.REP)
    zap.linger = 0
    zap.bind("inproc://zeromq.zap.01")
    sock = context.socket(zmq.ROUTER)
    sock.linger = 200
    sock.set(zmq.ZAP_DOMAIN, NODE_DOMAIN)
    sock.set(zmq.MAXMSGSIZE, _MAX_MESSAGE)
    # What may be under way is bounded for each connection that is carried.
    sock.set(zmq.RCVHWM, 0)
    sock.set(zmq.SNDHWM, 0)
    sock.set(zmq.ROUTER_MANDATORY, 1)
    _listen_curve(sock, address, port, pair)
    return sock, zap


def _listen_curve(sock: zmq.Socket[bytes], address: str, port: int, pair: KeyPair) -> None:
    """Listens on tcp (port 0: any) for those whose keys are admitted. Raises BindFailed."""
    sock.set(zmq.CURVE_SERVER, 1)
    sock.set(zmq.CURVE_PUBLICKEY, pair.public)
    sock.set(zmq.CURVE_SECRETKEY, pair.secret)
    sock.set(zmq.IPV6, 1 if ":" in address else 0)
    _keep_alive(sock)
    sock.set(zmq.HANDSHAKE_IVL, 10_000)
    try:
        sock.bind(f"tcp://{_host(address)}:{port or '*'}")
    except zmq.ZMQError as error:
        raise BindFailed(f"cannot listen on {address}:{port}: {error.strerror}") from None


def readable(sock: zmq.Socket[bytes]) -> bool:
    """Whether a message waits. Asking costs a tenth of the exception of a failed attempt."""
    return bool(_option(sock, _EVENTS) & _POLLIN)


def _keep_alive(sock: zmq.Socket[bytes]) -> None:
    """The kernel notices a dead peer: pings of ZeroMQ's own would cost more than all reports."""
    sock.set(zmq.TCP_KEEPALIVE, 1)
    sock.set(zmq.TCP_KEEPALIVE_IDLE, 20)
    sock.set(zmq.TCP_KEEPALIVE_INTVL, 10)
    sock.set(zmq.TCP_KEEPALIVE_CNT, 3)
    # What was sent and is not acknowledged: milliseconds.
    sock.set(zmq.TCP_MAXRT, 30_000)


def _parts(sock: zmq.Socket[bytes], first: zmq.Frame) -> list[zmq.Frame]:
    """The parts after the sender's; one more than MAX_PARTS where there are too many."""
    parts: list[zmq.Frame] = []
    more = first.more
    while more:
        part: zmq.Frame = sock.recv(zmq.NOBLOCK, copy=False)
        more = part.more
        if len(parts) <= MAX_PARTS:
            parts.append(part)
    return parts


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _dealer(context: zmq.Context[zmq.Socket[bytes]], events: int) -> zmq.Socket[bytes]:
    sock = context.socket(zmq.DEALER)
    if events:
        # Before the connect: a handshake that is over when the monitor comes is never told.
        sock.get_monitor_socket(events)
    sock.linger = 0
    sock.set(zmq.MAXMSGSIZE, _MAX_MESSAGE)
    sock.set(zmq.RCVHWM, HIGH_WATER)
    sock.set(zmq.SNDHWM, HIGH_WATER)
    # Nothing is queued for a link that does not exist: the sender knows better when to repeat.
    sock.set(zmq.IMMEDIATE, 1)
    sock.set(zmq.RECONNECT_IVL, 50)
    sock.set(zmq.RECONNECT_IVL_MAX, 1000)
    return sock


def dial_local(
    context: zmq.Context[zmq.Socket[bytes]], path: str, *, events: int = 0
) -> zmq.Socket[bytes]:
    """A frontend's link to the controller of the same host. Connects in the background.

    `events` are ZeroMQ's monitor events that `get_monitor_socket()` of the socket shall tell.
    """
    sock = _dealer(context, events)
    sock.connect(f"ipc://{reachable(path)}")
    return sock


def dial_controller(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    port: int,
    keys_dir: str,
    *,
    node: str | None = None,
    events: int = 0,
) -> zmq.Socket[bytes]:
    """A link to the controller over tcp: as a node (its name), else as a remote frontend.

    Connects, and connects again, in the background. `events` as for `dial_local`. Raises
    KeyProblem.
    """
    name = FRONTEND if node is None else node
    pair = load_pair(keys_dir, name, node=node is not None)
    server = load_public(keys_dir, CONTROLLER)
    sock = _dealer(context, events)
    sock.set(zmq.CURVE_PUBLICKEY, pair.public)
    sock.set(zmq.CURVE_SECRETKEY, pair.secret)
    sock.set(zmq.CURVE_SERVERKEY, server)
    sock.set(zmq.IPV6, 1 if ":" in address else 0)
    _keep_alive(sock)
    sock.set(zmq.HANDSHAKE_IVL, 10_000)
    sock.set(zmq.RECONNECT_IVL_MAX, 5_000)
    sock.connect(f"tcp://{_host(address)}:{port}")
    return sock
