"""The worker's link to the controller: many writes under way, each answered exactly once here."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import zmq
from zmq.utils.monitor import recv_monitor_message

from gsched.frontend.reader import CONNECT_FAILURE
from gsched.wire.codec import MAX_FRAME, BadMessage, decode, encode
from gsched.wire.messages import Call, Done, Refused, Reply
from gsched.wire.sockets import MAX_PARTS, dial_local, readable

#: Seconds without a link after which a write is refused.
NO_LINK_S = 2.0
#: Seconds after which an unanswered write is sent again: an answer may have been dropped.
REPEAT_S = 5.0
#: Seconds without a link after which a new one is dialled from scratch.
REDIAL_S = 5.0
#: Seconds after which a write is given up although there is a link.
GIVE_UP_S = 60.0

#: A message grows no further once it carries this much, bytes.
_ENOUGH = 1 << 20

#: Slurm's sentence for a controller that is there and does not answer.
TIMED_OUT = "Socket timed out on send/recv operation"

T = TypeVar("T")


@dataclass
class Pending:
    """A write under way."""

    frame: bytes
    uid: int
    #: the id as the client gave it
    request_id: bytes
    #: whoever waits for the answer: a client that came back after its connection broke waits twice
    deliver: list[Callable[[Reply], None]]
    since: float
    #: when it was last sent; 0 not on this link
    sent: float = 0.0


class Upstream:
    """Forwards writes and hands the answers back. One thread."""

    def __init__(self, path: str) -> None:
        """`path` is the controller's local socket; it need not be there."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._path = path
        self._dialled = 0.0
        #: how often a link was dialled: with each, `filenos` are other descriptors (of perhaps the
        #: same numbers)
        self.dials = 0
        self._dial()
        self._pending: OrderedDict[bytes, Pending] = OrderedDict()
        self._unsent: deque[bytes] = deque()
        #: True while there is a link
        self.up = False
        self._down_since = 0.0
        #: answers that could not be read or that nobody waits for
        self.strange = 0

    def _dial(self) -> None:
        self.dials += 1
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._sock = dial_local(self._context, self._path, events=events)
        self._monitor = self._sock.get_monitor_socket()

    def _hang_up(self) -> None:
        self._sock.disable_monitor()
        self._monitor.close(linger=0)
        self._sock.close(linger=0)

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `turn` has something to do (edge triggered).
        Others after a new dial: see `dials`."""
        return [self._sock.fileno(), self._monitor.fileno()]

    def forward(
        self, call: Call, uid: int, gid: int, pid: int, deliver: Callable[[Reply], None], now: float
    ) -> None:
        """Takes a write. One that is under way already is not sent again.

        The kernel's word replaces what the call says of its sender, and the request id is bound to
        the user: nobody can ask for the answer to another's request.
        """
        request_id = call.request_id
        bound = uid.to_bytes(4, "big") + request_id
        known = self._pending.get(bound)
        if known is not None:
            known.deliver.append(deliver)
            return
        call.request_id, call.uid, call.gid, call.pid = bound, uid, gid, pid
        frame = encode(call)
        if len(frame) > MAX_FRAME:
            text = f"the request has {len(frame)} bytes, at most {MAX_FRAME} are taken"
            deliver(Refused(request_id, text))
            return
        self._pending[bound] = Pending(frame, uid, request_id, [deliver], now)
        self._unsent.append(bound)

    def __len__(self) -> int:
        return len(self._pending)

    def turn(self, now: float) -> None:
        """Sends what can be sent and delivers what has come. Never blocks.

        Must run before every wait: the descriptors tell only of changes.
        """
        self._watch(now)
        self._send(now)
        for reply in self._receive():
            pending = self._pending.pop(reply.request_id, None)
            if pending is None:
                self.strange += 1
                continue
            reply.request_id = pending.request_id
            for deliver in pending.deliver:
                deliver(reply)

    def _watch(self, now: float) -> None:
        while readable(self._monitor):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.up = True
            elif self.up:
                # Whether the lost link had carried them cannot be known: all are sent again.
                self.up = False
                self._down_since = now
                self._unsent = deque(self._pending)

    def _send(self, now: float) -> None:
        """What waits leaves as the parts of few messages: one signal to the other side each."""
        while self._unsent and self.up:
            batch: list[Pending] = []
            size = taken = 0
            for bound in islice(self._unsent, MAX_PARTS):
                taken += 1
                pending = self._pending.get(bound)
                if pending is not None:
                    batch.append(pending)
                    size += len(pending.frame)
                    if size > _ENOUGH:
                        break
            if batch:
                try:
                    self._sock.send_multipart([p.frame for p in batch], zmq.NOBLOCK)
                except zmq.Again:
                    return
            for pending in batch:
                pending.sent = now
            for _ in range(taken):
                self._unsent.popleft()

    def _receive(self) -> Iterator[Reply]:
        while readable(self._sock):
            for part in self._sock.recv_multipart():
                try:
                    yield _read(part)
                except BadMessage:
                    self.strange += 1

    def expire(self, now: float) -> None:
        """Repeats and gives up by time. Call it some times a second."""
        if not self.up and now - max(self._down_since, self._dialled) >= REDIAL_S:
            # ZeroMQ connects again by itself, but not after every kind of failed handshake.
            self._dialled = now
            self._hang_up()
            self._dial()
        if not self._pending:
            return
        for bound, pending in list(self._pending.items()):
            if not self.up:
                start = max(pending.since, self._down_since)
                if now - start >= NO_LINK_S:
                    self._refuse(
                        bound, CONNECT_FAILURE, "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR"
                    )
            elif now - pending.since >= GIVE_UP_S:
                self._refuse(bound, TIMED_OUT, "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT")
            elif pending.sent and now - pending.sent >= REPEAT_S:
                pending.sent = 0.0
                self._unsent.append(bound)

    def _refuse(self, bound: bytes, message: str, code: str) -> None:
        pending = self._pending.pop(bound)
        refusal = Refused(pending.request_id, message, code, temporary=True)
        for deliver in pending.deliver:
            deliver(refusal)

    def close(self) -> None:
        self._hang_up()
        self._context.term()


def _read(frame: bytes) -> Reply:
    reply: Done | Refused = decode(Reply, frame)
    return reply
