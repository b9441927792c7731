"""The site's submit filter: `job_submit.py` beside slurm.conf, run in a process of its own.

The worker's side: a thread hands one submission after the other to that process and gives it
LIMIT_S for each; the worker's loop goes on meanwhile, and the controller's knows nothing of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from gsched.model import JobSpec, Shape
from gsched.wire.codec import BadMessage
from gsched.wire.framing import ConnectionClosed, recv_frame, send_frame
from gsched.wire.messages import Call, Refused, SubmitJob

FILE = "job_submit.py"
#: seconds the filter may take for a submission
LIMIT_S = 5.0
#: seconds until it has started and read its file
START_S = 20.0
#: submissions that may wait for it
MOST_WAITING = 1000

#: Slurm's sentence where a plugin refuses without a code of its own
MESSAGE = "Unspecified error"

Deliver = Callable[[Refused | None], None]

_SHAPE = frozenset(Shape.__struct_fields__)


class Broken(Exception):
    """The filter did not do what a filter does; one sentence."""


def described(spec: JobSpec) -> dict[str, Any]:
    """A spec as the filter sees it: one flat dict of plain values."""
    values = {name: getattr(spec, name) for name in spec.__struct_fields__ if name != "shape"}
    values |= {name: getattr(spec.shape, name) for name in spec.shape.__struct_fields__}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def rebuilt(values: dict[str, Any]) -> JobSpec:
    """The spec that a filter's dict describes. Raises Broken."""
    known = set(JobSpec.__struct_fields__) - {"shape"} | _SHAPE
    strange = [name for name in values if name not in known]
    missing = sorted(known - set(values))
    if strange or missing:
        which = f"unknown field {strange[0]!r}" if strange else f"field {missing[0]!r} is missing"
        raise Broken(f"{FILE}: {which}")
    shape = [values[name] for name in Shape.__struct_fields__]
    rows = [shape if name == "shape" else values[name] for name in JobSpec.__struct_fields__]
    try:
        return msgspec.convert(rows, JobSpec)
    except msgspec.ValidationError as error:
        raise Broken(f"{FILE}: {_with_name(str(error))}") from None


def _with_name(text: str) -> str:
    """The field's name in the place of its number in msgspec's sentence."""
    head, at, path = text.partition(" - at `$[")
    if not at:
        return text
    numbers = [part.rstrip("`") for part in path.replace("[", "").split("]")]
    names: tuple[str, ...] = JobSpec.__struct_fields__
    with contextlib.suppress(ValueError, IndexError):
        name = names[int(numbers[0])]
        if name == "shape":
            name = Shape.__struct_fields__[int(numbers[1])]
        return f"{name}: {head}"
    return text


class SubmitFilter:
    """Judges submissions; one per worker. `complain` takes sentences for the log."""

    def __init__(self, path: str, complain: Callable[[str], object]) -> None:
        self._path = path
        self._complain = complain
        self._todo: SimpleQueue[tuple[Call, int, Deliver]] = SimpleQueue()
        self._done: deque[tuple[Deliver, Refused | None]] = deque()
        self._open = 0
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)

    # ---- for the worker's loop ----------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when a judgement is there."""
        return self._wake

    def __len__(self) -> int:
        """Submissions that are not judged yet."""
        return self._open

    def ask(self, call: Call, uid: int, deliver: Deliver) -> None:
        """Judges a submission in its turn; `deliver` is called by `turn` with the refusal, or None
        once the call holds what the filter made of it."""
        self._open += 1
        if self._todo.qsize() >= MOST_WAITING:
            busy = Refused(call.request_id, "too many requests are under way", temporary=True)
            self._finish(deliver, busy)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="filter", daemon=True)
            self._thread.start()
        self._todo.put((call, uid, deliver))

    def turn(self) -> None:
        """Hands out what was judged."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        while self._done:
            deliver, refusal = self._done.popleft()
            self._open -= 1
            deliver(refusal)

    def close(self) -> None:
        """Ends the filter's process."""
        self._end()

    def _finish(self, deliver: Deliver, refusal: Refused | None) -> None:
        self._done.append((deliver, refusal))
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_end, b"\0")

    # ---- the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            try:
                call, uid, deliver = self._todo.get(timeout=600)
            except Empty:
                continue
            refusal = None
            try:
                self._judge(call, uid)
            except Broken as broken:
                self._complain(f"a submission of uid {uid} was refused: {broken}")
                refusal = Refused(call.request_id, MESSAGE, "SLURM_ERROR", notes=[str(broken)])
            except _Refusal as said:
                notes = str(said).splitlines() or [f"refused by {FILE}"]
                refusal = Refused(call.request_id, MESSAGE, "SLURM_ERROR", notes=notes)
            self._finish(deliver, refusal)

    def _judge(self, call: Call, uid: int) -> None:
        """Changes the call in place; raises Broken, _Refusal."""
        write = call.write
        assert isinstance(write, SubmitJob)
        request = described(write.spec)
        request |= {
            "components": [described(spec) for spec in write.components],
            "user": write.user,
            "group": write.group,
            "script": write.script.decode("utf-8", "replace"),
            "test_only": write.test_only,
        }
        answer = self._exchange({"request": request, "uid": uid})
        if answer.get("log"):
            self._complain(str(answer["log"]))
        if "error" in answer:
            raise Broken(str(answer["error"]))
        if "refusal" in answer:
            raise _Refusal(str(answer["refusal"]))
        changed = answer.get("request")
        if not isinstance(changed, dict):
            raise Broken(f"{FILE}: an answer without a request")
        components = changed.pop("components", None)
        for name in ("user", "group", "script", "test_only"):
            changed.pop(name, None)
        if not isinstance(components, list) or len(components) != len(write.components):
            raise Broken(f"{FILE}: components cannot be added or taken away")
        spec = rebuilt(changed)
        write.components = [rebuilt(each) for each in components]
        write.spec = spec

    def _exchange(self, question: dict[str, Any]) -> dict[str, Any]:
        limit = LIMIT_S
        if self._sock is None:
            self._begin()
            limit = START_S
        assert self._sock is not None
        began = time.monotonic()
        try:
            self._sock.settimeout(limit)
            send_frame(self._sock, msgspec.msgpack.encode(question))
            if limit == START_S:
                # A word when it has started: only from then on its time counts.
                recv_frame(self._sock)
                self._sock.settimeout(LIMIT_S)
            answer: dict[str, Any] = msgspec.msgpack.decode(recv_frame(self._sock))
        except TimeoutError:
            self._end()
            spent = time.monotonic() - began
            raise Broken(f"{FILE}: no answer after {spent:.0f} s") from None
        except (OSError, ConnectionClosed, BadMessage, msgspec.DecodeError):
            self._end()
            raise Broken(f"{FILE}: its process ended without an answer") from None
        return answer

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gsched.frontend.filter_process", self._path],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise Broken(f"{FILE}: its process cannot be started: {error.strerror}") from None
        finally:
            theirs.close()
        self._sock = ours

    def _end(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Refusal(Exception):
    """What the filter says to the user."""
