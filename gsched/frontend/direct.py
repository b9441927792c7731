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
from gsched.frontend.upstream import Upstream
from gsched.wire.identity import Credentials
from gsched.wire.messages import TOO_OFTEN, Call, Refused, Reply, Write

#: Seconds between two looks at what is late.
_TICK_S = 0.25


class Direct:
    """The link of a worker that has one client at a time. One thread."""

    def __init__(self, upstream: Upstream, limits: Limits, names: Names) -> None:
        self._upstream = upstream
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
        now = time.monotonic()
        for place, (request_id, write) in enumerate(calls):
            if not self._accounts.take_token(self._accounts.user(who.uid, now), now):
                replies[place] = Refused(request_id, TOO_OFTEN, temporary=True)
                continue
            call = Call(request_id, write)
            self._names.put_into(call, who)
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
