"""A frontend of a host without the controller: carries its clients' connections to the gate.

Who a client is stands in what the kernel of this host says. A worker that runs command lines for
the thin client may name another, as with any frontend.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from typing import Any

import zmq

from gsched.config import Config, load_config
from gsched.frontend.tunnel import Ends, Open, Word, decode, encode
from gsched.wire.codec import BadMessage
from gsched.wire.codec import decode as decode_message
from gsched.wire.framing import Unframer
from gsched.wire.identity import Credentials, stream_peer
from gsched.wire.messages import OnBehalf, ToFrontend
from gsched.wire.paths import keys_dir
from gsched.wire.process import raise_file_limit, user_id
from gsched.wire.sockets import dial_controller

#: seconds that a connection may take to say whom it is of, and to find a link to the controller
PATIENCE_S = 5.0
BACKLOG_TURN = 64
#: connections that this host may have open; bytes that wait for a link to the controller before
#: clients are no longer read
MOST = 8192
MOST_BYTES = 64 << 20
#: seconds for which nobody is taken where no file is left: asking again at once would spin
REST_S = 0.2


class _Fresh:
    """A connection of one who may name another: its first message is looked at."""

    def __init__(self, sock: socket.socket, who: Credentials) -> None:
        self.sock = sock
        self.who = who
        self.held = b""
        self.until = time.monotonic() + PATIENCE_S


class Relay:
    """One process. `run` returns when its parent is gone or `stop` was called."""

    def __init__(self, listener: socket.socket, link: Any, proxies: frozenset[int], life_fd: int):
        """`link` is a DEALER to the gate with a monitor for lost connections."""
        self._listener = listener
        listener.setblocking(False)
        self._link = link
        self._monitor = link.get_monitor_socket()
        self._proxies = proxies
        self._life = life_fd
        self._poller = zmq.Poller()
        self._ends: Ends[int] = Ends(self._poller, self._tell, lambda key: key)
        self._fresh: dict[int, _Fresh] = {}
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._rest_until = 0.0
        self._number = 0
        self._stopping = False
        for thing in (listener, link, self._monitor, life_fd):
            self._poller.register(thing, zmq.POLLIN)

    def stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> None:
        while not self._stopping:
            self._flush()
            events = dict(self._poller.poll(20 if self._out else 500))
            if self._life in events:
                return
            if self._monitor in events:
                self._lost()
            if self._link in events:
                self._hear()
            for thing, what in events.items():
                if isinstance(thing, int):
                    if thing in self._fresh:
                        self._look(self._fresh[thing])
                    else:
                        self._ends.turn(thing, what)
            if self._listener.fileno() in events:
                self._accept()
            self._expire()
            self._ends.hold_up(self._out_bytes > MOST_BYTES)

    # -- clients

    def _accept(self) -> None:
        for _ in range(BACKLOG_TURN):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._poller.unregister(self._listener)
                self._rest_until = time.monotonic() + REST_S
                return
            who = stream_peer(sock)
            if len(self._ends) + len(self._fresh) >= MOST:
                sock.close()
                continue
            if who.uid in self._proxies:
                sock.setblocking(False)
                self._fresh[sock.fileno()] = _Fresh(sock, who)
                self._poller.register(sock, zmq.POLLIN)
            else:
                self._open(sock, who)

    def _open(self, sock: socket.socket, who: Credentials, first: bytes = b"") -> None:
        if not self._ends.room(who.uid):
            sock.close()
            return
        self._number += 1
        key = self._number
        self._tell(key, Open(key, who.uid, who.gid, who.pid))
        self._ends.add(key, sock, who.uid)
        if first:
            self._ends.said(key, first)

    def _look(self, fresh: _Fresh) -> None:
        try:
            data = fresh.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        fresh.held += data
        unframer = Unframer()
        try:
            frames = list(unframer.feed(fresh.held))
            message = decode_message(ToFrontend, frames[0]) if frames else None
        except BadMessage:
            data, message = b"", None
        if not data or len(fresh.held) > 1 << 20:
            self._forget(fresh)
            fresh.sock.close()
            return
        if message is None:
            return
        self._forget(fresh)
        who, rest = fresh.who, fresh.held
        if isinstance(message, OnBehalf):
            who = Credentials(message.pid, message.uid, message.gid)
            rest = rest[4 + len(frames[0]) :]
        self._open(fresh.sock, who, rest)

    def _forget(self, fresh: _Fresh) -> None:
        self._poller.unregister(fresh.sock)
        del self._fresh[fresh.sock.fileno()]

    def _expire(self) -> None:
        now = time.monotonic()
        if self._rest_until and now >= self._rest_until:
            self._rest_until = 0.0
            self._poller.register(self._listener, zmq.POLLIN)
        for fresh in [one for one in self._fresh.values() if one.until < now]:
            self._forget(fresh)
            fresh.sock.close()

    # -- the link

    def _tell(self, key: int, word: Word) -> None:
        data = encode(word)
        self._out.append(data)
        self._out_bytes += len(data)

    def _flush(self) -> None:
        while self._out:
            try:
                self._link.send(self._out[0], zmq.NOBLOCK)
            except zmq.ZMQError:
                return  # no link (yet): clients wait as long as they like
            self._out_bytes -= len(self._out.popleft())

    def _hear(self) -> None:
        for _ in range(256):
            try:
                data = self._link.recv(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            try:
                word = decode(data)
            except Exception:
                continue
            self._ends.heard(word.conn, word)

    def _lost(self) -> None:
        """The gate does not know the connections of a link that is gone: clients ask again."""
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
        for key in self._ends.known():
            self._ends.drop(key)
        self._out.clear()
        self._out_bytes = 0


def main(argv: list[str]) -> None:
    """A worker process: `CONF PATH LISTEN_FD LIFE_FD`, started by the frontend's parent."""
    conf, listen_fd, life_fd = argv[0], int(argv[2]), int(argv[3])
    config: Config = load_config(conf, needs=())
    raise_file_limit()
    context = zmq.Context(io_threads=1)
    link = dial_controller(
        context,
        config.slurmctld_host[0].addr,
        config.frontend_port,
        keys_dir(conf),
        events=zmq.EVENT_DISCONNECTED,
    )
    proxies = frozenset({0, os.geteuid(), user_id(config.slurm_user)[0]})
    relay = Relay(socket.socket(fileno=listen_fd), link, proxies, life_fd)
    signal.signal(signal.SIGTERM, relay.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    relay.run()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
