"""Writes of a command that runs in a worker, straight to the controller.

The worker has asked the kernel who the client is: to go through a typed worker as well would only
cost two more changes of process on the way of every write.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Sequence
from functools import partial

from gsched.frontend.limits import Accounts, Limits
from gsched.frontend.names import Names
from gsched.frontend.upstream import REPEAT_S, Upstream
from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.identity import Credentials
from gsched.wire.messages import TOO_OFTEN, Call, Refused, Reply, Write
from gsched.wire.short import ShortWay

#: so many writes at most go the short way at once: of more ZeroMQ makes few messages
FEW = 16
#: Seconds between two looks at what is late.
_TICK_S = 0.25


class Direct:
    """The link of a worker that has one client at a time. One thread."""

    def __init__(
        self, upstream: Upstream, limits: Limits, names: Names, short: ShortWay | None = None
    ) -> None:
        """Writes go by `short`, and by `upstream` where that does not lead on."""
        self._upstream = upstream
        self._short = short
        self._accounts = Accounts(limits)
        self._names = names
        self._poll = select.poll()
        self._watched: list[int] = []
        self._dial = 0

    def carry_out(self, calls: Sequence[tuple[bytes, Write]], who: Credentials) -> list[Reply]:
        """The answers to (request id, write) in their order; waits for all of them.

        As through a typed worker: what no controller answers is refused in time (temporary), and
        the kernel's word of the sender goes with it.
        """
        replies: dict[int, Reply] = {}
        asked: dict[int, Call] = {}
        now = time.monotonic()
        for place, (request_id, write) in enumerate(calls):
            if not self._accounts.take_token(self._accounts.user(who.uid, now), now):
                replies[place] = Refused(request_id, TOO_OFTEN, temporary=True)
                continue
            call = Call(request_id, write)
            self._names.put_into(call, who)
            asked[place] = call
        if self._short is not None and len(asked) <= FEW:
            self._shortly(self._short, asked, who, replies)
            now = time.monotonic()
            if len(replies) == len(calls):
                self._accounts.purge(now)
                return [replies[place] for place in range(len(calls))]
        for place, call in asked.items():
            if place not in replies:
                deliver = partial(replies.__setitem__, place)
                self._upstream.forward(call, who.uid, who.gid, who.pid, deliver, now)
        tick = now + _TICK_S
        while True:
            # First of all: the link may have come back while nobody asked.
            self._upstream.turn(now)
            if len(replies) == len(calls):
                self._accounts.purge(now)
                return [replies[place] for place in range(len(calls))]
            if now >= tick:
                tick = now + _TICK_S
                self._upstream.expire(now)
            self._watch()
            self._poll.poll(_TICK_S * 1000)
            now = time.monotonic()

    @staticmethod
    def _shortly(
        short: ShortWay, asked: dict[int, Call], who: Credentials, replies: dict[int, Reply]
    ) -> None:
        """Answers that come the short way; whatever lacks one may be asked again."""
        waiting: dict[bytes, int] = {}
        for place, call in asked.items():
            # As Upstream binds it to the user: the answer is the same whichever way it is asked.
            bound = who.uid.to_bytes(4, "big") + call.request_id
            sent = Call(bound, call.write, who.uid, who.gid, who.pid, call.groups, call.user)
            if not short.ask(encode(sent)):
                break
            waiting[bound] = place
        until = time.monotonic() + REPEAT_S
        while waiting:
            payload = short.hear(max(until - time.monotonic(), 0.001))
            if payload is None:
                return
            try:
                reply: Reply = decode(Reply, payload)
            except BadMessage:
                continue
            answered = waiting.pop(reply.request_id, None)
            if answered is not None:
                reply.request_id = asked[answered].request_id
                replies[answered] = reply

    def _watch(self) -> None:
        """Follows the descriptors of the link, which a new dial changes."""
        if self._upstream.dials == self._dial:
            return
        for fd in self._watched:
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
        self._watched = self._upstream.filenos()
        self._dial = self._upstream.dials
        for fd in self._watched:
            self._poll.register(fd, select.POLLIN)
