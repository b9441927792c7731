"""A writer killed at any moment: what it acknowledged is there, and nothing is half there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gsched.store import Store, number_key

WRITER = """
import sys
from gsched.store import Store, number_key
store = Store.open(sys.argv[1])
promises = sys.argv[2] == "promise"
n = 0
while True:
    changes = {("job", number_key(2 * n + i)): b"%d" % n for i in range(2)}
    # Every third commit is one without a promise, as when nobody waits for an answer.
    promised = promises and n % 3
    if promised:
        assert store.promise(changes)
    else:
        store.commit(changes)
    n += 1
    sys.stdout.write("%d\\n" % n)
    sys.stdout.flush()
    if promised:
        store.settle()
"""


@pytest.mark.parametrize("how", ["commit", "promise"])
@pytest.mark.parametrize("after", [1, 57, 302])
def test_nothing_acknowledged_is_lost(tmp_path: Path, after: int, how: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), how], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for _ in range(after):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split("\n")[:-1]
    writer.wait()
    acknowledged = int(rest[-1]) if rest else after
    store = Store.open(str(tmp_path))
    records = dict(store.load("job"))
    # Whole commits only, in order, at least those that were acknowledged.
    assert len(records) % 2 == 0
    assert len(records) // 2 >= acknowledged
    assert records == {
        number_key(2 * n + i): b"%d" % n for n in range(len(records) // 2) for i in range(2)
    }
    store.close()
