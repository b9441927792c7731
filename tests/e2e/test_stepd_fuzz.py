"""Nonsense for the parts of the supervisor that read what tasks and clients write, in its own
process and with sanitizers: thousands of turns in a second."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from stepd_support import SOURCES

HARNESS = Path(__file__).resolve().parents[1] / "stepd_fuzz.c"


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("fuzz") / "stepd_fuzz"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c")) if path.name != "stepd.c"]
    done = subprocess.run(
        [
            *(os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"),
            *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCES}"),
            *("-o", str(target), str(HARNESS), *sources),
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        if "sanit" in done.stderr:
            pytest.skip("the compiler has no sanitizers")
        pytest.fail(done.stderr)
    return target


@pytest.mark.parametrize("what", ["pmi", "wire"])
@pytest.mark.parametrize("seed", range(4))
def test_nonsense(harness: Path, what: str, seed: int) -> None:
    done = subprocess.run(
        [harness, what, str(seed), "150"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
