"""The process that runs a site's `job_submit.py`: questions come on standard input, a socket.

It has nothing of the worker's but the request: what the filter breaks, it breaks here.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from types import ModuleType
from typing import Any

import msgspec

from gsched.frontend.filter import FILE, LIMIT_S
from gsched.wire.framing import ConnectionClosed, recv_frame, send_frame


class Refuse(Exception):
    """`raise Refuse("sentence")` in a filter refuses the submission with that sentence."""


class Filter:
    """The site's function, read again when its file has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mark: tuple[int, int] = (0, 0)
        self._function: Any = None

    def _load(self) -> None:
        found = os.stat(self._path)
        mark = (found.st_mtime_ns, found.st_ino)
        if self._function is not None and mark == self._mark:
            return
        with open(self._path, "rb") as file:
            code = compile(file.read(), self._path, "exec")
        module = ModuleType("job_submit")
        module.__file__ = self._path
        module.__dict__["Refuse"] = Refuse
        exec(code, module.__dict__)
        function = module.__dict__.get("job_submit")
        if not callable(function):
            raise TypeError("there is no function job_submit(request, uid)")
        self._function, self._mark = function, mark

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """What the filter says to one submission; never raises."""
        request, uid = question["request"], question["uid"]
        try:
            self._load()
            result = self._function(request, uid)
        except Refuse as refusal:
            return {"refusal": str(refusal)}
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)
            lines = [f"line {f.lineno}" for f in where if f.filename == self._path][-1:]
            text = ", ".join([f"{type(error).__name__}: {error}", *lines])
            return {"error": f"{FILE}: {text}", "log": traceback.format_exc()}
        if isinstance(result, str):
            return {"refusal": result}
        if result is not None and not isinstance(result, dict):
            kind = type(result).__name__
            return {"error": f"{FILE}: job_submit returned {kind}, not a dict, a str or None"}
        return {"request": request if result is None else result}


def main(argv: list[str]) -> None:
    """`PATH`: answers until the other side closes."""
    sock = socket.socket(fileno=os.dup(0))
    site = Filter(argv[0])
    first = True
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while True:
        try:
            question = msgspec.msgpack.decode(recv_frame(sock))
        except (ConnectionClosed, OSError):
            return
        if first:
            send_frame(sock, b"\xc0")
            first = False
        # Should the worker be gone, nobody else ends a filter that hangs.
        signal.alarm(int(LIMIT_S) * 2)
        answer = site.answer(question)
        signal.alarm(0)
        try:
            packed = msgspec.msgpack.encode(answer)
        except (TypeError, ValueError, RecursionError) as error:
            packed = msgspec.msgpack.encode({"error": f"{FILE}: {error}"})
        try:
            send_frame(sock, packed)
        except OSError:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
