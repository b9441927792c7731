"""Whom a uid and a gid belong to, as the host of the frontend knows it."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import time
from typing import TYPE_CHECKING

from gsched.wire.messages import Call, ExplainJob, SubmitJob, UpdateJob

if TYPE_CHECKING:
    from gsched.wire.identity import Credentials

#: Seconds for which an answer of the name service is believed.
FRESH_S = 300.0
#: Groups told of one user.
MOST_GROUPS = 1024
#: Users remembered before starting over.
_MOST = 10_000


class Names:
    """Names of users and groups, asked of the system once in a while.

    A client's word on its own name is not taken: the name decides which groups a job has and under
    whom it is shown. Asking may wait for a directory service, which is why it is the frontend that
    asks and never the controller.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], tuple[float, list[str]]] = {}
        self._known: dict[tuple[int, int], tuple[float, str, str]] = {}

    def of(self, uid: int, gid: int) -> tuple[str, str]:
        """(user, group); the number as text where there is no name."""
        now = time.monotonic()
        known = self._known.get((uid, gid))
        if known is not None and now - known[0] < FRESH_S:
            return known[1], known[2]
        try:
            user = pwd.getpwuid(uid).pw_name
        except (KeyError, OSError):
            user = str(uid)
        try:
            group = grp.getgrgid(gid).gr_name
        except (KeyError, OSError):
            group = str(gid)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[uid, gid] = (now, user, group)
        return user, group

    def put_into(self, call: Call, who: Credentials) -> None:
        """Says in a write who asks, and in which groups the user is where it may matter."""
        user, group = self.of(who.uid, who.gid)
        if isinstance(call.write, SubmitJob):
            call.write.user, call.write.group = user, group
        may_need = isinstance(call.write, SubmitJob | UpdateJob | ExplainJob)
        call.user = user
        call.groups = self.groups(who.uid, who.gid) if may_need else []

    def groups(self, uid: int, gid: int) -> list[str]:
        """Names of all groups that the user is in, at most MOST_GROUPS."""
        now = time.monotonic()
        known = self._groups.get((uid, gid))
        if known is not None and now - known[0] < FRESH_S:
            return known[1]
        numbers = {gid}
        with contextlib.suppress(KeyError, OSError):
            entry = pwd.getpwuid(uid)
            numbers.update(os.getgrouplist(entry.pw_name, entry.pw_gid))
        names = []
        for number in sorted(numbers)[:MOST_GROUPS]:
            with contextlib.suppress(KeyError, OSError):
                names.append(grp.getgrgid(number).gr_name)
        if len(self._groups) >= _MOST:
            self._groups.clear()
        self._groups[uid, gid] = (now, names)
        return names
