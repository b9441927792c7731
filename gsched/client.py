"""Python's way in: typed requests to a frontend of this host, over its Unix socket.

    with Client.from_env(os.environ) as client:
        rows = client.jobs(JobQuery(active_only=True))

Imports are few on purpose: every command starts here.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from gsched import rawtext
from gsched.wire.changes import JobChanges, JobDelta
from gsched.wire.codec import MAX_FRAME, BadMessage
from gsched.wire.framing import ConnectionClosed, frame, recv_frame
from gsched.wire.messages import (
    AcctQuery,
    AcctRows,
    Blob,
    BlobQuery,
    Call,
    Done,
    FromFrontend,
    JobQuery,
    JobRows,
    NodeQuery,
    NodeRows,
    PartitionQuery,
    PartitionRows,
    Read,
    Refused,
    Reply,
    Status,
    StatusQuery,
    StepQuery,
    StepRows,
    Write,
)
from gsched.wire.paths import reachable
from gsched.wire.policy import PolicyQuery, PolicyRows
from gsched.wire.report import ReportQuery, ReportRows
from gsched.wire.usertext import encode

if TYPE_CHECKING:
    from gsched.config import Config

#: Seconds to look for a frontend before giving up; while a request is under way longer, because
#: it may have been carried out.
PATIENCE_S = 0.5
PATIENCE_UNDER_WAY_S = 5.0
#: Seconds to wait for one answer.
ANSWER_S = 70.0
#: Requests of `call_many` that are under way at once.
WINDOW = 256

#: Slurm's sentence for it.
CONNECT_FAILURE = "Unable to contact slurm controller (connect failure)"

_answers: msgspec.msgpack.Decoder[FromFrontend] = msgspec.msgpack.Decoder(FromFrontend)

T = TypeVar("T")


class ControllerDown(Exception):
    """Nobody answers. The text is Slurm's sentence for it."""

    def __init__(self, why: str = "") -> None:
        super().__init__(CONNECT_FAILURE)
        #: what exactly happened, for a log
        self.why = why


class RequestRefused(Exception):
    """A read was refused; the text is the frontend's sentence."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.message)
        self.code = refusal.code


class Client:
    """A connection to a frontend, made when first needed and again when it breaks.

    A read sees what this client wrote before it. Not for several threads at once.
    """

    def __init__(self, path: str, *, slurm_conf: str = "", request_base: bytes = b"") -> None:
        """`path` is a frontend's socket. `request_base`: the ids of its writes are made from it,
        so that the same program run again carries nothing out twice."""
        self._request_base = request_base
        self._writes = 0
        self._path = path
        self._slurm_conf = slurm_conf
        self._sock: socket.socket | None = None
        #: what goes before the first request of a connection, in one piece with it
        self._first = b""
        #: state version of the last write that was answered
        self._seen = 0

    @classmethod
    def from_env(cls, env: Mapping[str, str], request_base: bytes = b"") -> Client:
        """The cluster that `SLURM_CONF` names, else the default one. `request_base`: see Client.

        Raises ControllerDown when there is no slurm.conf at all.
        """
        from gsched.config.locate import find_slurm_conf

        conf = find_slurm_conf(env)
        path = os.path.join(_run_dir(conf), "frontend.sock")
        return cls(path, slurm_conf=conf, request_base=request_base)

    # ---- the Reader protocol ------------------------------------------------------------------

    def jobs(self, query: JobQuery) -> JobRows:
        """Jobs that match. Raises ControllerDown."""
        query.min_version = max(query.min_version, self._seen)
        return self._read(query, JobRows)

    def changes(self, query: JobChanges) -> JobDelta:
        """What is different of the jobs that match. Raises ControllerDown."""
        query.min_version = max(query.min_version, self._seen)
        return self._read(query, JobDelta)

    def nodes(self, query: NodeQuery) -> NodeRows:
        """All nodes. Raises ControllerDown."""
        query.min_version = max(query.min_version, self._seen)
        return self._read(query, NodeRows)

    def accounting(self, query: AcctQuery) -> AcctRows:
        """One page of attempts; ask on with `query.after = rows.last` while `rows.more`.

        Raises RequestRefused (no accounting, or its database is down), ControllerDown.
        """
        query.min_version = max(query.min_version, self._seen)
        return self._read(query, AcctRows)

    def steps(self, query: StepQuery) -> StepRows:
        """Running jobs that match, and their steps. Raises ControllerDown."""
        query.min_version = max(query.min_version, self._seen)
        return self._read(query, StepRows)

    def policy(self, query: PolicyQuery) -> PolicyRows:
        """Accounts, users, associations, QOS, WCKeys; with `used` what was used. Raises
        ControllerDown."""
        query.min_version = max(query.min_version, self._seen)
        return self._read(query, PolicyRows)

    def report(self, query: ReportQuery) -> ReportRows:
        """Usage, events, transactions ... of the accounting database. Raises RequestRefused (no
        accounting, or its database is down), ControllerDown."""
        query.min_version = max(query.min_version, self._seen)
        return self._read(query, ReportRows)

    def blob(self, query: BlobQuery) -> bytes:
        """A job's script or environment. Raises RequestRefused, ControllerDown."""
        return self._read(query, Blob).data

    def status(self) -> Status:
        """Of the cluster as the frontend sees it. Raises ControllerDown."""
        return self._read(StatusQuery(), Status)

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        """Carries a write out once, however often the connection breaks; durable when answered.

        A later call with the same `request_id` gets the same answer (for some 15 minutes). Raises
        ControllerDown; RequestRefused where the request cannot be understood at all.
        """
        return self.call_many([write], [request_id or self.new_request_id()])[0]

    def new_request_id(self) -> bytes:
        """The id of the next write."""
        if not self._request_base:
            return os.urandom(16)
        import hashlib

        self._writes += 1
        return hashlib.sha256(self._request_base + b"%d" % self._writes).digest()[:16]

    def call_many(
        self, writes: Iterable[Write], request_ids: Iterable[bytes] | None = None
    ) -> list[Reply]:
        """Carries many writes out, up to 256 under way at once; replies in their order."""
        todo = list(writes)
        ids = [os.urandom(16) for _ in todo] if request_ids is None else list(request_ids)
        if len(ids) != len(todo) or len(set(ids)) != len(ids):
            raise ValueError("every write needs a request id of its own")
        found = self._carry(todo, ids)
        # Reads that follow see what these writes did.
        self._seen = max(self._seen, *(r.version for r in found if isinstance(r, Done)), 0)
        return found

    def _carry(self, todo: Sequence[Write], ids: Sequence[bytes]) -> list[Reply]:
        """The answers to writes, in their order."""
        replies: dict[bytes, Reply] = {}
        failures = 0
        while len(replies) < len(todo):
            before = len(replies)
            left = [(i, w) for i, w in zip(ids, todo, strict=True) if i not in replies]
            try:
                self._pipeline(left, replies, under_way=bool(failures or replies))
            except (OSError, ConnectionClosed) as error:
                # A worker died: the next one is asked with the same request ids.
                self.close()
                failures = 0 if len(replies) > before else failures + 1
                if failures > 20 or isinstance(error, TimeoutError):
                    raise ControllerDown(str(error)) from None
                time.sleep(min(0.02 * failures, 0.2))
        return [replies[i] for i in ids]

    def settings(self) -> Config:
        """slurm.conf as it is now, without what was changed of partitions at run time: asks nobody.
        Raises ConfigError."""
        return self._files()

    def config(self) -> Config:
        """The cluster's configuration: slurm.conf as it is now, and what was changed of partitions
        at run time, where a frontend can tell. Raises ConfigError."""
        from gsched.config.overrides import with_partitions

        config = self._files()
        try:
            rows = self._read(PartitionQuery(self._seen), PartitionRows)
        except (ControllerDown, RequestRefused):
            return config
        return with_partitions(config, rows.changes)

    def _files(self) -> Config:
        """slurm.conf and the files beside it, of which none is needed by all commands."""
        from gsched.config import load_config
        from gsched.config.locate import find_slurm_conf

        return load_config(self._slurm_conf or find_slurm_conf(os.environ), needs=())

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    @property
    def uid(self) -> int:
        """The caller's user id, as the frontend will see it."""
        return os.geteuid()

    @property
    def gid(self) -> int:
        """The caller's group id, as the frontend will see it."""
        return os.getegid()

    # ---- connection ---------------------------------------------------------------------------

    def _pipeline(
        self, left: list[tuple[bytes, Write]], replies: dict[bytes, Reply], *, under_way: bool
    ) -> None:
        sock = self._connect(PATIENCE_UNDER_WAY_S if under_way else PATIENCE_S)
        waiting: set[bytes] = set()
        queue = iter(left)
        exhausted = False
        while waiting or not exhausted:
            batch = []
            while not exhausted and len(waiting) < WINDOW:
                item = next(queue, None)
                if item is None:
                    exhausted = True
                    break
                payload = encode(Call(item[0], item[1]))
                if len(payload) > MAX_FRAME:
                    text = f"the request has {len(payload)} bytes, at most {MAX_FRAME} are taken"
                    replies[item[0]] = Refused(item[0], text)
                    continue
                waiting.add(item[0])
                batch.append(frame(payload))
            if batch:
                self._say(sock, b"".join(batch))
            if not waiting:
                break
            # Half a window is sent at a time: neither side idles while the other works.
            while waiting and (exhausted or len(waiting) > WINDOW // 2):
                answer = self._receive(sock)
                if isinstance(answer, Refused) and not answer.request_id:
                    # It could not even be read: that will not change by repeating it.
                    raise RequestRefused(answer)
                if not isinstance(answer, Done | Refused) or answer.request_id not in waiting:
                    raise ConnectionClosed("the frontend answered out of turn")
                waiting.discard(answer.request_id)
                replies[answer.request_id] = answer

    def _read(self, query: Read, kind: type[T]) -> T:
        request = frame(encode(query))
        for attempt in range(10):
            try:
                sock = self._connect(PATIENCE_UNDER_WAY_S if attempt else PATIENCE_S)
                self._say(sock, request)
                answer = self._receive(sock)
            except (OSError, ConnectionClosed) as error:
                self.close()
                if isinstance(error, TimeoutError):
                    raise ControllerDown(str(error)) from None
                continue
            if isinstance(answer, kind):
                return answer
            if isinstance(answer, Refused):
                if answer.temporary and answer.message == CONNECT_FAILURE:
                    raise ControllerDown("the frontend has nothing to read")
                raise RequestRefused(answer)
            self.close()
        raise ControllerDown("the frontends do not stay")

    def _say(self, sock: socket.socket, data: bytes) -> None:
        first, self._first = self._first, b""
        sock.sendall(first + data)

    def _receive(self, sock: socket.socket) -> FromFrontend:
        try:
            return _unpacked(recv_frame(sock))
        except (msgspec.DecodeError, BadMessage) as error:
            raise ConnectionClosed(f"the frontend's answer cannot be read: {error}") from None

    def _connect(self, patience_s: float) -> socket.socket:
        if self._sock is not None:
            return self._sock
        until = time.monotonic() + patience_s
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(ANSWER_S)
                sock.connect(reachable(self._path))
            except OSError as error:
                sock.close()
                if time.monotonic() > until or isinstance(error, PermissionError):
                    raise ControllerDown(f"{self._path}: {error.strerror}") from None
                time.sleep(0.02)
                continue
            self._sock = sock
            return sock

    def close(self) -> None:
        """Gives the connection back. The next request makes another."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _unpacked(data: bytes) -> FromFrontend:
    """An answer, with texts as commands have them. Packed records in it stay as they are."""
    found = _answers.decode(data)
    if rawtext.marked(data) and not isinstance(found, JobDelta):
        return cast(FromFrontend, rawtext.unpack(data, _answers))
    return found


def _run_dir(slurm_conf: str) -> str:
    """The directory of SlurmctldPidFile, by a quick look at the file: parsing all of it costs
    more than most commands take."""
    key = "slurmctldpidfile"
    includes = False
    found = ""
    try:
        with open(slurm_conf, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                words = line.strip()
                lower = words[: len(key)].lower()
                if lower == key:
                    name, _, value = words.partition("=")
                    if name.strip().lower() == key:
                        found = value.split("#")[0].strip().strip('"')
                elif lower.startswith("include"):
                    includes = True
    except OSError as error:
        raise ControllerDown(f"{slurm_conf}: {error.strerror}") from None
    if found and "%" not in found:
        return os.path.dirname(found)
    if includes or found:
        from gsched.config import load_config

        return load_config(slurm_conf, needs=()).run_dir
    return "/var/run"
