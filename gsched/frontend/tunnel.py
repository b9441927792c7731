"""Connections of clients on other hosts, carried over one link: what both ends share.

A frontend on a login or compute host (relay.py) has no database. It takes its clients' connections
and carries them, byte for byte, to the controller's host (gate.py), where each becomes a connection
to a frontend there, on behalf of whom the kernel of the client's host named.
"""

from __future__ import annotations

import contextlib
import socket
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec
import zmq

#: bytes that may be under way in one direction of a connection
WINDOW = 1 << 20
CHUNK = 128 << 10
#: most connections of one user that an end carries, as many as a frontend takes of one
MOST_PER_USER = 1024


class _Word(msgspec.Struct, array_like=True, tag=True, gc=False):
    #: number of the connection, the relay's own
    conn: int


class Open(_Word):
    """A client, and who it is."""

    uid: int
    gid: int
    pid: int


class Bytes(_Word):
    data: bytes


class Passed(_Word):
    """So many of the bytes have been handed on: as many more may come."""

    count: int


class Close(_Word):
    pass


Word = Open | Bytes | Passed | Close
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Word).decode

Key = TypeVar("Key", bound=Hashable)


class _End:
    __slots__ = ("closing", "credit", "key", "out", "sock", "uid", "watched")

    def __init__(self, key: object, sock: socket.socket, uid: int) -> None:
        self.key = key
        self.sock = sock
        self.uid = uid
        self.out: deque[memoryview] = deque()
        #: bytes that may still be sent to the other side
        self.credit = WINDOW
        #: the other side has closed: what is here is still handed on
        self.closing = False
        self.watched = 0


class Ends(Generic[Key]):
    """One side's ends of all connections. `tell(key, word)` sends to the other side; it is called
    with words in order and must keep that order."""

    def __init__(
        self,
        poller: zmq.Poller,
        tell: Callable[[Key, Word], None],
        number: Callable[[Key], int],
    ) -> None:
        self._poller = poller
        self._tell = tell
        self._number = number
        self._by_key: dict[Key, _End] = {}
        self._by_fd: dict[int, _End] = {}
        self._users: Counter[int] = Counter()
        self._held_up = False

    def room(self, uid: int) -> bool:
        """Whether one more connection of a user's may be carried."""
        return self._users[uid] < MOST_PER_USER

    def hold_up(self, so: bool) -> None:
        """Nothing more is read from the sockets while what was read cannot be sent on. Cost: the
        connections, where it changes."""
        if so != self._held_up:
            self._held_up = so
            for end in self._by_key.values():
                self._watch(end)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def known(self) -> list[Key]:
        return list(self._by_key)

    def add(self, key: Key, sock: socket.socket, uid: int) -> None:
        """Takes over a connected socket of a user's."""
        sock.setblocking(False)
        end = _End(key, sock, uid)
        self._users[uid] += 1
        self._by_key[key] = end
        self._by_fd[sock.fileno()] = end
        self._watch(end)

    def said(self, key: Key, data: bytes) -> None:
        """Bytes that were read from the socket before it was taken over."""
        end = self._by_key[key]
        end.credit -= len(data)
        self._tell(key, Bytes(self._number(key), data))
        self._watch(end)

    def heard(self, key: Key, word: Word) -> None:
        """A word of the other side; of an unknown connection it means nothing."""
        end = self._by_key.get(key)
        if end is None:
            return
        if isinstance(word, Bytes):
            end.out.append(memoryview(word.data))
            self._push(end)
        elif isinstance(word, Passed):
            end.credit += word.count
        elif isinstance(word, Close):
            end.closing = True
            if not end.out:
                self.drop(key)
                return
        if key in self._by_key:
            self._watch(end)

    def turn(self, fd: int, events: int) -> None:
        """The poller says that something can be done at a socket."""
        end = self._by_fd.get(fd)
        if end is None:
            return
        if events & zmq.POLLOUT:
            self._push(end)
        if events & (zmq.POLLIN | zmq.POLLERR) and self._known(end):
            self._pull(end)
        if self._known(end):
            self._watch(end)

    def drop(self, key: Key) -> None:
        """Forgets a connection without a word."""
        end = self._by_key.pop(key, None)
        if end is None:
            return
        self._users[end.uid] -= 1
        if not self._users[end.uid]:
            del self._users[end.uid]
        del self._by_fd[end.sock.fileno()]
        with contextlib.suppress(KeyError):
            self._poller.unregister(end.sock)
        end.sock.close()

    def _known(self, end: _End) -> bool:
        return self._by_fd.get(end.sock.fileno()) is end

    def _end(self, end: _End) -> None:
        key: Key = end.key  # type: ignore[assignment]
        if not end.closing:
            self._tell(key, Close(self._number(key)))
        self.drop(key)

    def _watch(self, end: _End) -> None:
        reads = end.credit > 0 and not end.closing and not self._held_up
        wanted = (zmq.POLLIN if reads else 0) | (zmq.POLLOUT if end.out else 0)
        if wanted == end.watched:
            return
        if wanted:
            self._poller.register(end.sock, wanted)
        else:
            self._poller.unregister(end.sock)
        end.watched = wanted

    def _pull(self, end: _End) -> None:
        if end.credit <= 0 or self._held_up:
            return
        try:
            data = end.sock.recv(min(CHUNK, end.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(end)
            return
        end.credit -= len(data)
        key: Key = end.key  # type: ignore[assignment]
        self._tell(key, Bytes(self._number(key), data))

    def _push(self, end: _End) -> None:
        done = 0
        try:
            while end.out:
                sent = end.sock.send(end.out[0])
                done += sent
                if sent < len(end.out[0]):
                    end.out[0] = end.out[0][sent:]
                else:
                    end.out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._end(end)
            return
        key: Key = end.key  # type: ignore[assignment]
        if done and not end.closing:
            self._tell(key, Passed(self._number(key), done))
        if end.closing and not end.out:
            self.drop(key)
