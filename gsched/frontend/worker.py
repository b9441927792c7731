"""A frontend worker: one loop, many connections; reads from snapshots, writes passed on."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gsched.frontend.accounting import Accounting, jobs_are_private
from gsched.frontend.limits import Accounts, Limits, User
from gsched.frontend.names import Names
from gsched.frontend.reader import CONNECT_FAILURE, Behind, Reads
from gsched.frontend.upstream import Upstream
from gsched.policy import privacy
from gsched.store import StoreError
from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.framing import Unframer, frame
from gsched.wire.identity import Credentials, stream_peer
from gsched.wire.messages import (
    TOO_OFTEN,
    AcctQuery,
    Call,
    OnBehalf,
    Read,
    Refused,
    Reply,
    SubmitJob,
    ToFrontend,
)
from gsched.wire.report import ReportQuery

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.frontend.filter import SubmitFilter

#: Malformed requests after which a connection is closed.
BAD_REQUESTS = 16
#: Bytes read from one connection in a turn.
CHUNK = 256 << 10
#: Bytes of answers that wait for a slow reader before its requests are no longer read.
HIGH_OUT = 4 << 20
#: Bytes of writes under way on one connection before it is no longer read.
HIGH_OPEN = 64 << 20
#: Reads that may wait on one connection.
MAX_READS = 64
#: Seconds that a read waits for the state version it asks for.
VERSION_S = 5.0
#: Seconds that an orphan goes on when its parent died and no other has come.
ORPHAN_S = 15.0
#: Seconds that a worker told to end gives its open requests.
LAST_WORDS_S = 3.0
_TICK_S = 0.25
#: Seconds between two looks at whether the state is new enough for a read.
_SOON_S = 0.001
#: no file, or no memory for one, is left
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
#: without room for another file a worker looks for new connections only so often, seconds
_REST_S = 0.25


class Connection:
    """One client: what it is owed, and what it may still ask."""

    def __init__(self, sock: socket.socket, who: Credentials, user: User) -> None:
        self.sock = sock
        #: who is at the other end, and whom its requests are of
        self.peer = self.who = who
        self.user = user
        self.unframer = Unframer()
        #: bytes in it, as counted for the user
        self.held = 0
        self.out: deque[memoryview] = deque()
        self.out_bytes = 0
        #: writes under way
        self.open = 0
        self.open_bytes = 0
        #: requests that came after a read that has to wait, in order: (query, until, what had been
        #: promised when it came)
        self.reads: deque[tuple[Read, float, int]] = deque()
        self.bad = 0
        #: no more is read; closed when everything owed is sent
        self.ending = False
        self.closed = False
        self.interest = selectors.EVENT_READ


class Worker:
    """Serves the clients of one listening socket until told to stop."""

    def __init__(
        self,
        listener: socket.socket,
        reads: Reads,
        upstream: Upstream,
        limits: Limits,
        *,
        path: str = "",
        life_fd: int = -1,
        proxies: frozenset[int] = frozenset(),
        accounting: Accounting | None = None,
        submit_filter: SubmitFilter | None = None,
    ) -> None:
        """`path` is where the listener should be found; `life_fd` ends when the parent does."""
        self._listener: socket.socket | None = listener
        self._reads = reads
        self._upstream = upstream
        self._accounts = Accounts(limits)
        self._names = Names()
        #: uids whose processes may ask for others
        self._proxies = proxies
        self._path = path
        self._life_fd = life_fd
        self._inode = _inode(path)
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        #: connections whose first read waits for a newer version
        self._waiting: set[Connection] = set()
        #: connections with requests that were read and not looked at, for want of room
        self._stalled: set[Connection] = set()
        #: set by a signal handler, read by the loop
        self._asked_to_stop = False
        self._stop_at: float | None = None
        self._orphan_at: float | None = None
        self._now = time.monotonic()
        #: malformed requests so far
        self.malformed = 0
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        #: the listener is not watched until then, for want of files; 0: it is
        self._rest_until = 0.0
        #: descriptors of the link, and the dial they are of
        self._watched: list[int] = []
        self._watched_dial = 0
        self._watch_upstream()
        self._accounting = accounting
        if accounting is not None:
            self._selector.register(accounting.fileno(), selectors.EVENT_READ, self._accounted)
        self._filter = submit_filter
        if submit_filter is not None:
            self._selector.register(
                submit_filter.fileno(), selectors.EVENT_READ, submit_filter.turn
            )
        if life_fd >= 0:
            self._selector.register(life_fd, selectors.EVENT_READ, self._parent_died)

    # ---- the loop -----------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop` and the last answer, or until it is an orphan that is not needed."""
        next_tick = 0.0
        self._reads.refresh()
        while not self._finished():
            if self._asked_to_stop:
                self._begin_to_stop()
            self._upstream.turn(self._now)
            wait = _SOON_S if self._waiting else _TICK_S
            if any(not self._full(connection) for connection in self._stalled):
                wait = 0
            for key, mask in self._selector.select(wait):
                self._now = time.monotonic()
                data = key.data
                if isinstance(data, Connection):
                    self._serve(data, mask)
                else:
                    data()
            self._now = time.monotonic()
            for connection in list(self._waiting):
                self._advance(connection)
            for connection in [c for c in self._stalled if not self._full(c)]:
                self._take(connection, b"")
                if not connection.closed:
                    self._flush(connection)
            if self._now >= next_tick:
                next_tick = self._now + _TICK_S
                self._tick()
        for connection in list(self._connections):
            self._close(connection)
        self._selector.close()
        if self._filter is not None:
            self._filter.close()

    def stop(self) -> None:
        """Takes no more connections; ends when nothing is owed, or some seconds later. May be
        called from a signal handler."""
        self._asked_to_stop = True

    def _begin_to_stop(self) -> None:
        if self._stop_at is None:
            self._stop_at = time.monotonic() + LAST_WORDS_S
            self._stop_listening()

    def _finished(self) -> bool:
        if self._stop_at is None:
            return False
        idle = not len(self._upstream) and not any(c.out for c in self._connections)
        idle = idle and not (self._filter is not None and len(self._filter))
        return idle or self._now >= self._stop_at

    def _tick(self) -> None:
        self._upstream.expire(self._now)
        self._watch_upstream()
        if self._rest_until and self._now >= self._rest_until:
            self._rest_until = 0.0
            if self._listener is not None:
                self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._reads.refresh()
        self._reads.watch(self._now, VERSION_S)
        self._accounts.purge(self._now)
        if self._accounting is not None:
            for who in self._accounting.overdue():
                if isinstance(who, Connection):
                    self._waiting.add(who)
        if self._path and self._listener is not None and _inode(self._path) != self._inode:
            # Another parent has put its socket there: clients no longer come here.
            self.stop()
        if self._orphan_at is not None and self._now >= self._orphan_at:
            self.stop()

    def _watch_upstream(self) -> None:
        """Follows the descriptors of the link, which a new dial changes."""
        if self._upstream.dials == self._watched_dial:
            return
        for fd in self._watched:
            self._selector.unregister(fd)
        self._watched = self._upstream.filenos()
        self._watched_dial = self._upstream.dials
        for fd in self._watched:
            self._selector.register(fd, selectors.EVENT_READ, _nothing)

    def _parent_died(self) -> None:
        self._selector.unregister(self._life_fd)
        os.close(self._life_fd)
        self._orphan_at = self._now + ORPHAN_S

    def _stop_listening(self) -> None:
        if self._listener is not None:
            if not self._rest_until:
                self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    # ---- connections --------------------------------------------------------------------------

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except OSError as problem:
            # Another worker was faster, the client has gone, or no file is left: then the
            # connection stays to be accepted, and asking again at once would spin.
            if problem.errno in _NO_ROOM:
                self._selector.unregister(self._listener)
                self._rest_until = self._now + _REST_S
            return
        sock.setblocking(False)
        try:
            who = stream_peer(sock)
        except OSError:
            sock.close()
            return
        limits = self._accounts.limits
        user = self._accounts.user(who.uid, self._now)
        if (
            user.connections >= limits.connections_per_user
            or len(self._connections) >= limits.connections
        ):
            sock.close()
            return
        user.connections += 1
        connection = Connection(sock, who, user)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        # Whoever connects has something to say, which is often there already.
        self._serve(connection, selectors.EVENT_READ)

    def _serve(self, connection: Connection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(connection)
        if mask & selectors.EVENT_READ and not connection.closed and not connection.ending:
            try:
                data = connection.sock.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                self._close(connection)
                return
            if not data:
                # What was asked is carried out all the same; nobody waits for the answer.
                self._close(connection)
                return
            self._take(connection, data)
        if not connection.closed:
            self._flush(connection)

    def _take(self, connection: Connection, data: bytes) -> None:
        """Looks at what was read, request by request, as long as there is room for answers."""
        self._stalled.discard(connection)
        frames = connection.unframer.feed(data)
        try:
            for payload in frames:
                self._request(connection, payload)
                if connection.closed or connection.ending:
                    break
                if self._full(connection):
                    self._stalled.add(connection)
                    break
        except BadMessage as problem:
            self._break_off(connection, f"malformed request: {problem}")
        frames.close()
        if connection.closed:
            return
        if connection.ending:
            connection.unframer = Unframer()
        # Another's, where one of the requests has said so.
        user = connection.user
        user.held += connection.unframer.pending - connection.held
        connection.held = connection.unframer.pending
        if user.held > self._accounts.limits.bytes_per_user:
            self._break_off(connection, "too many bytes of requests are under way")
            user.held -= connection.held
            connection.held, connection.unframer = 0, Unframer()

    def _break_off(self, connection: Connection, why: str) -> None:
        self.malformed += 1
        self._stalled.discard(connection)
        self._send(connection, encode(Refused(b"", why)))
        connection.ending = True

    def _full(self, connection: Connection) -> bool:
        """Whether no further request of the connection is looked at for now."""
        return (
            connection.ending
            or connection.out_bytes > HIGH_OUT
            or connection.open >= self._accounts.limits.per_connection
            or connection.open_bytes > HIGH_OPEN
        )

    def _request(self, connection: Connection, payload: bytes) -> None:
        try:
            request: object = decode(ToFrontend, payload)
        except BadMessage as problem:
            self.malformed += 1
            connection.bad += 1
            self._send(connection, encode(Refused(b"", f"malformed request: {problem}")))
            connection.ending = connection.bad >= BAD_REQUESTS
            return
        if isinstance(request, OnBehalf):
            self._on_behalf(connection, request)
        elif not self._accounts.take_token(connection.user, self._now):
            request_id = request.request_id if isinstance(request, Call) else b""
            refusal = Refused(request_id, TOO_OFTEN, temporary=True)
            self._send(connection, encode(refusal))
        elif isinstance(request, Call):
            self._forward(connection, request, len(payload))
        elif len(connection.reads) >= MAX_READS:
            self._send(connection, encode(Refused(b"", "too many requests are waiting")))
        else:
            query = cast("Read", request)
            connection.reads.append((query, self._now + VERSION_S, self._reads.promised))
            self._advance(connection)

    def _on_behalf(self, connection: Connection, said: OnBehalf) -> None:
        """The connection's further requests are another's."""
        busy = connection.open or connection.reads or connection.held
        # Only once: the connection of a client on another host is handed on as it is, and must not
        # go on to name somebody else.
        named = connection.who is not connection.peer
        if connection.peer.uid not in self._proxies or busy or named:
            self._break_off(connection, "not allowed to ask for others")
            return
        connection.user.connections -= 1
        connection.who = Credentials(said.pid, said.uid, said.gid)
        connection.user = self._accounts.user(said.uid, self._now)
        connection.user.connections += 1

    def _forward(self, connection: Connection, call: Call, size: int) -> None:
        who, user = connection.who, connection.user
        if not 1 <= len(call.request_id) <= 64:
            self._send(connection, encode(Refused(call.request_id, "malformed request id")))
            return
        limits = self._accounts.limits
        if user.open >= limits.per_user or user.open_bytes + size > limits.bytes_per_user:
            busy = Refused(call.request_id, "too many requests are under way", temporary=True)
            self._send(connection, encode(busy))
            return

        write = call.write
        self._names.put_into(call, who)

        def deliver(reply: Reply) -> None:
            connection.open -= 1
            connection.open_bytes -= size
            user.open -= 1
            user.open_bytes -= size
            if not connection.closed:
                self._send(connection, encode(reply))
                self._flush(connection)

        def judged(refusal: Refused | None) -> None:
            if refusal is not None:
                deliver(refusal)
            else:
                self._upstream.forward(call, who.uid, who.gid, who.pid, deliver, self._now)

        connection.open += 1
        connection.open_bytes += size
        user.open += 1
        user.open_bytes += size
        if self._filter is not None and isinstance(write, SubmitJob):
            self._filter.ask(call, who.uid, judged)
        else:
            judged(None)

    def _advance(self, connection: Connection) -> None:
        """Answers waiting reads in order, as far as the state is new enough."""
        while connection.reads and not connection.closed:
            query, until, known = connection.reads[0]
            try:
                if isinstance(query, AcctQuery | ReportQuery) and self._accounting is not None:
                    found = self._account(self._accounting, connection, query, known)
                    if found is None:
                        self._waiting.discard(connection)
                        return
                    answer = found
                else:
                    uid, up = connection.who.uid, self._upstream.up
                    answer = self._reads.answer(query, uid, up, known)
            except Behind:
                if self._now < until:
                    self._waiting.add(connection)
                    return
                if self._reads.give_up():
                    continue
                answer = encode(Refused(b"", CONNECT_FAILURE, temporary=True))
            connection.reads.popleft()
            self._send(connection, answer)
        if connection in self._waiting:
            self._waiting.discard(connection)
            if not connection.closed:
                self._flush(connection)

    def _account(
        self,
        accounting: Accounting,
        connection: Connection,
        query: AcctQuery | ReportQuery,
        known: int,
    ) -> bytes | None:
        """The answer to a question for accounting; None while its thread works on it."""
        if not accounting.under_way(connection):
            live = None
            if isinstance(query, ReportQuery) or not accounting.goes_on(connection, query):
                try:
                    live = self._reads.live(query, known)
                except StoreError:
                    return encode(Refused(b"", CONNECT_FAILURE, temporary=True))
            accounting.ask(connection, query, connection.who.uid, live)
        return accounting.answer(connection)

    def _accounted(self) -> None:
        """Answers of accounting are there: the loop hands them out."""
        assert self._accounting is not None
        for who in self._accounting.ready():
            if isinstance(who, Connection) and not who.closed:
                self._waiting.add(who)

    def _send(self, connection: Connection, payload: bytes) -> None:
        data = memoryview(frame(payload))
        connection.out.append(data)
        connection.out_bytes += len(data)

    def _flush(self, connection: Connection) -> None:
        while connection.out:
            data = connection.out[0]
            try:
                sent = connection.sock.send(data)
            except BlockingIOError:
                break
            except OSError:
                self._close(connection)
                return
            connection.out_bytes -= sent
            if sent == len(data):
                connection.out.popleft()
            else:
                connection.out[0] = data[sent:]
        if connection.ending and not connection.out and not connection.open:
            self._close(connection)
            return
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        """Reads no further from who does not read, or has enough under way."""
        interest = selectors.EVENT_WRITE if connection.out else 0
        if not self._full(connection) and connection not in self._stalled:
            interest |= selectors.EVENT_READ
        if interest != connection.interest:
            # An empty interest cannot be registered.
            if not connection.interest:
                self._selector.register(connection.sock, interest, connection)
            elif not interest:
                self._selector.unregister(connection.sock)
            else:
                self._selector.modify(connection.sock, interest, connection)
            connection.interest = interest

    def _close(self, connection: Connection) -> None:
        if connection.closed:
            return
        connection.closed = True
        if connection.interest:
            self._selector.unregister(connection.sock)
        connection.sock.close()
        connection.out.clear()
        connection.reads.clear()
        connection.user.connections -= 1
        connection.user.held -= connection.held
        connection.held = 0
        self._stalled.discard(connection)
        self._connections.discard(connection)
        self._waiting.discard(connection)
        if self._accounting is not None:
            self._accounting.forget(connection)


def _nothing() -> None:
    """The link to the controller is served in every turn."""


def _inode(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _submit_filter(config: Config) -> SubmitFilter | None:
    """The site's own filter, where JobSubmitPlugins asks for it."""
    if "python" not in config.job_submit_plugins:
        return None
    from gsched.frontend.filter import FILE, SubmitFilter
    from gsched.wire.process import Log

    folder = os.path.dirname(config.slurmctld_log_file)
    path = os.path.join(folder, "frontend.log") if config.slurmctld_log_file else ""
    log = Log(path, config.slurmctld_debug, foreground=False)
    return SubmitFilter(os.path.join(os.path.dirname(config.path), FILE), log.logger.error)


def main(argv: list[str]) -> None:
    """A worker process: `CONF PATH LISTEN_FD LIFE_FD`, started by the frontend's parent."""
    from gsched.config import load_config
    from gsched.wire.paths import control_socket
    from gsched.wire.process import raise_file_limit, user_id

    conf, path, listen_fd, life_fd = argv[0], argv[1], int(argv[2]), int(argv[3])
    config = load_config(conf, needs=())
    raise_file_limit()
    admins = frozenset({0, os.geteuid(), user_id(config.slurm_user)[0]})
    worker = Worker(
        socket.socket(fileno=listen_fd),
        Reads(
            config.state_save_location,
            config.cluster_name,
            admins,
            private=jobs_are_private(config),
            private_policy=privacy.words(config.private_data),
        ),
        Upstream(control_socket(config.run_dir)),
        Limits.from_parameters(config.slurmctld_parameters),
        path=path,
        life_fd=life_fd,
        proxies=admins,
        accounting=Accounting(config, admins),
        submit_filter=_submit_filter(config),
    )
    handler: Callable[..., None] = lambda *_: worker.stop()  # noqa: E731
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with contextlib.suppress(KeyboardInterrupt):
        worker.run()


if __name__ == "__main__":
    main(sys.argv[1:])
