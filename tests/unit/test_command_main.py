"""The wrapper around every command: an exit code and a sentence, never a traceback."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pytest

from gsched_cli.common import LazyReader, Reader, Streams, error, guarded, version_line


def test_a_command_gets_its_streams_and_directory(capsys: pytest.CaptureFixture[str]) -> None:
    def run(
        argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
    ) -> int:
        streams.stdout.write(f"{argv} {cwd}")
        error(streams, "squeue", "one\ntwo")
        return 7

    assert guarded("squeue", run, ["-l"], {}) == 7
    got = capsys.readouterr()
    assert got.out == f"['-l'] {os.getcwd()}"
    assert got.err == "squeue: error: one\nsqueue: error: two\n"


@pytest.mark.parametrize(
    ("problem", "code", "err"),
    [
        (RuntimeError("it broke"), 1, "squeue: error: it broke\n"),
        (RuntimeError(), 1, "squeue: error: RuntimeError\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_whatever_happens(
    capsys: pytest.CaptureFixture[str], problem: BaseException, code: int, err: str
) -> None:
    def run(*_: object) -> int:
        raise problem

    assert guarded("squeue", run, [], {}) == code
    assert capsys.readouterr().err == err


def test_no_cluster_is_looked_for_before_it_is_asked() -> None:
    reader = LazyReader({"SLURM_CONF": "/nonexistent/slurm.conf"})
    assert reader.uid == os.getuid()
    assert reader.now() > 0


def test_the_version() -> None:
    assert version_line() == "slurm 26.05.0\n"
