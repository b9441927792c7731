"""Which format a file has, by what stands in it, and the file itself, gzipped or not."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gsched.simulate.traces import gang, openb, sacct, swf
from gsched.simulate.traces.job import Trace, TraceError

FORMATS = ("swf", "gang", "openb", "sacct")

_GZIP = b"\x1f\x8b"
_SWF_LINE = re.compile(r"\s*-?[0-9.]+(?:\s+-?[0-9.eE+]+){17}\s*\Z")


def read_trace(path: Path, form: str = "", gpus: bool = False) -> Trace:
    """All jobs of a file, by submission. `form`: one of FORMATS, "" to look; `gpus`: the
    processors of SWF are GPUs. TraceError for what cannot be read, in one sentence."""
    with _text(path) as text:
        form = form or _find(path, text)
        if form == "swf":
            trace = swf.read(str(path), text, gpus)
        elif form == "gang":
            trace = gang.read(str(path), text)
        elif form == "openb":
            trace = openb.read(str(path), text)
        else:
            trace = sacct.read(str(path), text)
    if not trace.jobs:
        raise TraceError(f"{path}: there is no job in it that ran")
    trace.jobs.sort(key=lambda job: job.submit)
    return trace


def read_nodes(path: Path) -> list[openb.NodeRow]:
    """A list of nodes (sn, cpu_milli, memory_mib, gpu, model)."""
    with _text(path) as text:
        found = openb.read_nodes(str(path), text)
    if not found:
        raise TraceError(f"{path}: there is no node in it")
    return found


@contextmanager
def _text(path: Path) -> Iterator[io.TextIOBase]:
    try:
        with open(path, "rb") as raw:
            if raw.peek(2)[:2] != _GZIP:
                yield _decoded(raw)
                return
            with gzip.open(raw) as unpacked:
                yield _decoded(unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: the file is damaged: {error}") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from None


def _decoded(raw: IO[bytes] | gzip.GzipFile) -> io.TextIOBase:
    return io.TextIOWrapper(raw, "utf-8-sig", "backslashreplace", newline="")


def _find(path: Path, text: io.TextIOBase) -> str:
    """By the first lines; the text stands at its beginning again afterwards."""
    form = ""
    for _ in range(10_000):
        line = text.readline(1 << 16)
        if not line:
            break
        if line.startswith(";") or _SWF_LINE.match(line):
            form = "swf"
            break
        if not line.strip():
            continue
        names = {name.strip().lower() for name in re.split(r"[|,]", line)}
        if "|" in line and set(sacct.NEEDED) <= names:
            form = "sacct"
        elif set(gang.NEEDED) <= names:
            form = "gang"
        elif set(openb.TASKS) <= names:
            form = "openb"
        break
    if not form:
        raise TraceError(
            f"{path}: neither SWF, nor a table with {','.join(gang.NEEDED)} or "
            f"{','.join(openb.TASKS)}, nor the output of sacct -P with JobID and Submit"
        )
    text.seek(0)
    return form
