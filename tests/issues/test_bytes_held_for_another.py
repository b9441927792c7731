"""Half a request that came together with the word whose it is was counted for the process that
said so, and when its connection closed taken off the user's account, which went below nothing."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from gsched.frontend.limits import Limits
from gsched.frontend.reader import Reads
from gsched.frontend.upstream import Upstream
from gsched.frontend.worker import Worker
from gsched.wire.codec import encode
from gsched.wire.framing import frame
from gsched.wire.messages import OnBehalf


def test_half_a_request_is_the_users(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "s"))
    listener.listen(1)
    upstream = Upstream(str(tmp_path / "none"))
    own, other = os.getuid(), 4711
    worker = Worker(
        listener,
        Reads(str(tmp_path), "c", frozenset()),
        upstream,
        Limits.from_parameters([]),
        proxies=frozenset({own}),
    )
    accounts = worker._accounts
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(tmp_path / "s"))
        client.sendall(frame(encode(OnBehalf(other, other, 1))) + frame(b"x" * 100)[:60])
        worker._accept()
        now = time.monotonic()
        assert (accounts.user(own, now).held, accounts.user(other, now).held) == (0, 60)
    (connection,) = worker._connections
    worker._serve(connection, 1)
    assert (accounts.user(own, now).held, accounts.user(other, now).held) == (0, 0)
    upstream.close()
    listener.close()
