"""What a node must know again after its daemon was killed: attempts, and the epochs it has seen.

One append-only file of checked records; the last one about an attempt counts. A record is with the
kernel when `put` returns, so it survives a SIGKILL at any instant; it need not survive a power cut,
because then nothing of the attempts does either (the boot id tells). A torn end is cut off.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from slurmd_compat.agent import Identity, Key, Record
from slurmd_compat.agent.step_words import LeadRecord, ShareRecord, StepKey, WaitRecord

_MAGIC = b"gsched-journal 1\n"
_HEAD = struct.Struct("<II")
_PUT, _DEL, _IDENTITY, _LEAD, _SHARE, _STEP_DEL, _WAIT = range(7)
#: bytes after which the file is rewritten if most of it is of the past
_COMPACT = 1 << 18
_MAX_RECORD = 32 << 20

K = TypeVar("K")
T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode_any = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode
_decode_record = msgspec.msgpack.Decoder(Record).decode
_decode_key = msgspec.msgpack.Decoder(Key).decode
_decode_lead = msgspec.msgpack.Decoder(LeadRecord).decode
_decode_share = msgspec.msgpack.Decoder(ShareRecord).decode
_decode_wait = msgspec.msgpack.Decoder(WaitRecord).decode
_decode_step_key = msgspec.msgpack.Decoder(StepKey).decode
_decode_identity = msgspec.msgpack.Decoder(Identity).decode


class SpoolBusy(Exception):
    """Another daemon uses the spool directory."""


class Journal:
    """The open journal of a spool directory. One process; `close` or die."""

    def __init__(self, spool: Path) -> None:
        """Opens it and reads what it holds. Raises SpoolBusy, OSError."""
        spool.mkdir(parents=True, exist_ok=True)
        self._path = spool / "journal"
        self._lock = os.open(spool / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SpoolBusy(f"another slurmd is using {spool}") from None
        self.identity = Identity()
        self._live: dict[Key, bytes] = {}
        #: steps led here, and shares of steps that others lead
        self._leads: dict[StepKey, bytes] = {}
        self._shares: dict[StepKey, bytes] = {}
        self._waits: dict[StepKey, bytes] = {}
        #: bytes of all these
        self._live_size = 0
        #: sentences about what could not be read
        self.problems: list[str] = []
        self._fd = -1
        self._size = 0
        self._read()
        self._compact()

    def records(self) -> list[Record]:
        """What is held, oldest first."""
        found = []
        for key, raw in self._live.items():
            try:
                found.append(_decode_record(raw))
            except (msgspec.DecodeError, ValueError) as error:
                self.problems.append(f"journal: record of job {key.job_id} unreadable: {error}")
        return found

    def leads(self) -> list[LeadRecord]:
        """Steps that this node leads."""
        return self._readable(self._leads, _decode_lead)

    def shares(self) -> list[ShareRecord]:
        """Shares of steps that other nodes lead."""
        return self._readable(self._shares, _decode_share)

    def waits(self) -> list[WaitRecord]:
        """Requests for steps that wait for room."""
        return self._readable(self._waits, _decode_wait)

    def _readable(self, held: dict[StepKey, bytes], decode: Callable[[bytes], T]) -> list[T]:
        found = []
        for key, raw in held.items():
            try:
                found.append(decode(raw))
            except (msgspec.DecodeError, ValueError) as error:
                name = f"step {key.job_id}.{key.step}"
                self.problems.append(f"journal: record of {name} unreadable: {error}")
        return found

    def __contains__(self, key: Key) -> bool:
        return key in self._live

    def put(self, record: Record) -> None:
        """Keeps the record in place of an older one. OSError: the older one still counts."""
        raw = _encode(record)
        self._append(_PUT, raw)
        self._keep(self._live, record.key, raw)

    def delete(self, key: Key) -> None:
        """Forgets an attempt. OSError: it is still known."""
        if key in self._live:
            self._append(_DEL, _encode(key))
            self._drop(self._live, key)

    def put_lead(self, record: LeadRecord) -> None:
        """As `put`, of a step that this node leads."""
        raw = _encode(record)
        self._append(_LEAD, raw)
        self._keep(self._leads, record.key, raw)

    def put_share(self, record: ShareRecord) -> None:
        """As `put`, of a share of a step that another node leads."""
        raw = _encode(record)
        self._append(_SHARE, raw)
        self._keep(self._shares, record.key, raw)

    def put_wait(self, record: WaitRecord) -> None:
        """As `put`, of a request for a step that waits."""
        raw = _encode(record)
        self._append(_WAIT, raw)
        self._keep(self._waits, record.key, raw)

    def delete_step(self, key: StepKey) -> None:
        """Forgets a step, share or waiting request. OSError: it is still known."""
        if key in self._leads or key in self._shares or key in self._waits:
            self._append(_STEP_DEL, _encode(key))
            self._drop_step(key)

    def _drop_step(self, key: StepKey) -> None:
        self._drop(self._leads, key)
        self._drop(self._shares, key)
        self._drop(self._waits, key)

    def _keep(self, held: dict[K, bytes], key: K, raw: bytes) -> None:
        self._live_size += len(raw) - len(held.get(key, b""))
        held[key] = raw

    def _drop(self, held: dict[K, bytes], key: K) -> None:
        self._live_size -= len(held.pop(key, b""))

    def put_identity(self, identity: Identity) -> None:
        """Keeps the clusters and their epochs. OSError: the older ones still count."""
        self._append(_IDENTITY, _encode(identity))
        self.identity = identity

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._lock)

    # -- the file

    def _append(self, kind: int, raw: bytes) -> None:
        data = _framed(kind, raw)
        written = 0
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(28, "No space left on device")
        except OSError:
            if written:
                # Half a record must not stand before the next whole one.
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)
        if self._size > _COMPACT and self._size > 4 * self._live_size:
            # A full disk leaves the long file, which is as good.
            with contextlib.suppress(OSError):
                self._compact()

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        if not data.startswith(_MAGIC):
            if data:
                self.problems.append(f"{self._path} is no journal of this release: set aside")
                self._path.replace(self._path.with_suffix(".bad"))
            return
        at = len(_MAGIC)
        while at + _HEAD.size <= len(data):
            size, check = _HEAD.unpack_from(data, at)
            body = data[at + _HEAD.size : at + _HEAD.size + size]
            if size > _MAX_RECORD or len(body) != size or zlib.crc32(body) != check:
                break
            at += _HEAD.size + size
            try:
                self._take(body)
            except (msgspec.DecodeError, ValueError) as error:
                self.problems.append(f"journal: a record was passed over: {error}")
        if at != len(data):
            self.problems.append(f"journal: {len(data) - at} bytes of a torn record cut off")

    def _take(self, body: bytes) -> None:
        kind, raw = _decode_any(body)
        if kind == _PUT:
            record = _decode_record(raw)
            self._keep(self._live, record.key, bytes(raw))
        elif kind == _DEL:
            self._drop(self._live, _decode_key(raw))
        elif kind == _LEAD:
            self._keep(self._leads, _decode_lead(raw).key, bytes(raw))
        elif kind == _SHARE:
            self._keep(self._shares, _decode_share(raw).key, bytes(raw))
        elif kind == _STEP_DEL:
            self._drop_step(_decode_step_key(raw))
        elif kind == _WAIT:
            self._keep(self._waits, _decode_wait(raw).key, bytes(raw))
        elif kind == _IDENTITY:
            self.identity = _decode_identity(raw)

    def _compact(self) -> None:
        """Rewrites the file to what still counts."""
        parts = [_MAGIC, _framed(_IDENTITY, _encode(self.identity))]
        parts += [_framed(_PUT, raw) for raw in self._live.values()]
        parts += [_framed(_LEAD, raw) for raw in self._leads.values()]
        parts += [_framed(_SHARE, raw) for raw in self._shares.values()]
        parts += [_framed(_WAIT, raw) for raw in self._waits.values()]
        data = b"".join(parts)
        temporary = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.rename(temporary, self._path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._size = len(data)


def _framed(kind: int, raw: bytes) -> bytes:
    body = _encode((kind, msgspec.Raw(raw)))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body
