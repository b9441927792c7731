"""The controller's host end of other hosts' frontends: each of their clients' connections becomes
one to the frontend here, on behalf of the client.

Only holders of a frontend's key are let in (CURVE); they may speak for any user, as the frontend of
this host may.
"""

from __future__ import annotations

import signal
import socket
from collections import deque
from typing import Any

import zmq

from gsched.config import load_config
from gsched.frontend.tunnel import Close, Ends, Open, Word, decode, encode
from gsched.wire.codec import encode as encode_message
from gsched.wire.framing import frame
from gsched.wire.identity import Admission
from gsched.wire.keys import CONTROLLER, KeyPair, key_table, load_pair
from gsched.wire.messages import OnBehalf
from gsched.wire.paths import keys_dir, reachable
from gsched.wire.process import raise_file_limit
from gsched.wire.sockets import listen_frontends

#: connections that all relays together may have open
MOST = 8192

#: routing id of the relay, number of the connection
_Key = tuple[bytes, int]


class Gate:
    """One process. `run` returns when its parent is gone or `stop` was called."""

    def __init__(self, sock: Any, zap: Any, admission: Admission, frontend: str, life_fd: int):
        self._sock = sock
        self._zap = zap
        self._admission = admission
        self._frontend = frontend
        self._life = life_fd
        self._poller = zmq.Poller()
        self._ends: Ends[_Key] = Ends(self._poller, self._tell, lambda key: key[1])
        self._out: deque[tuple[bytes, bytes]] = deque()
        self._stopping = False
        for thing in (sock, zap, life_fd):
            self._poller.register(thing, zmq.POLLIN)

    def stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> None:
        while not self._stopping:
            self._flush()
            events = dict(self._poller.poll(20 if self._out else 1000))
            if self._life in events:
                return
            if self._zap in events:
                while self._zap.poll(0):
                    self._zap.send_multipart(self._admission.decide(self._zap.recv_multipart()))
            if self._sock in events:
                self._hear()
            for thing, what in events.items():
                if isinstance(thing, int) and thing != self._life:
                    self._ends.turn(thing, what)

    def _hear(self) -> None:
        for _ in range(256):
            try:
                frames = self._sock.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            if len(frames) != 2:
                continue
            try:
                word = decode(frames[1])
            except Exception:
                continue
            key = (frames[0], word.conn)
            if isinstance(word, Open):
                self._open(key, word)
            else:
                self._ends.heard(key, word)

    def _open(self, key: _Key, word: Open) -> None:
        if key in self._ends:
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            if len(self._ends) >= MOST or not self._ends.room(word.uid):
                raise OSError("too many")
            sock.connect(reachable(self._frontend))
            sock.sendall(frame(encode_message(OnBehalf(word.uid, word.gid, word.pid))))
        except OSError:
            sock.close()
            self._tell(key, Close(word.conn))
            return
        self._ends.add(key, sock, word.uid)

    def _tell(self, key: _Key, word: Word) -> None:
        self._out.append((key[0], encode(word)))

    def _flush(self) -> None:
        gone: set[bytes] = set()
        while self._out:
            relay, data = self._out[0]
            if relay not in gone:
                try:
                    self._sock.send_multipart([relay, data], zmq.NOBLOCK)
                except zmq.Again:
                    return
                except zmq.ZMQError:
                    gone.add(relay)
            self._out.popleft()
        for key in [key for key in self._ends.known() if key[0] in gone] if gone else ():
            self._ends.drop(key)


def main(argv: list[str]) -> None:
    """A worker process: `CONF PATH LISTEN_FD LIFE_FD`, started by the frontend's parent."""
    conf, path, life_fd = argv[0], argv[1], int(argv[3])
    config = load_config(conf, needs=())
    raise_file_limit()
    folder = keys_dir(conf)
    pair: KeyPair = load_pair(folder, CONTROLLER)
    table, _ = key_table(folder)
    admission = Admission(
        frozenset(), {key: holder for key, holder in table.items() if holder.role == "proxy"}
    )
    host = config.slurmctld_host[0]
    address = host.addr if host.addr != host.name else "0.0.0.0"
    context = zmq.Context(io_threads=1)
    sock, zap = listen_frontends(context, address, config.frontend_port, pair)
    gate = Gate(sock, zap, admission, path, life_fd)
    signal.signal(signal.SIGTERM, gate.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gate.run()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
