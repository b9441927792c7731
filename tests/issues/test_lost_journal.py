"""A node daemon whose journal or spool directory was lost while jobs ran told the controller of
nothing, which started them again: two of each ran, on the same GPUs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_support import NodeUnderTest

from gsched.model import Phase

SCRIPT = """#!/bin/bash
(trap '' TERM; while sleep 0.2; do echo inner >> ticks; done) &
setsid bash -c 'while sleep 0.2; do echo apart >> ticks; done' &
while sleep 0.2; do echo outer >> ticks; done
"""


@pytest.fixture
def node() -> Iterator[NodeUnderTest]:
    made = NodeUnderTest()
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("what", ["", "journal"])
def test_nothing_of_an_unknown_attempt_goes_on(node: NodeUnderTest, what: str) -> None:
    ticks = node.work / "ticks"
    node.run(5, SCRIPT, gpus=8)
    node.phase(5, Phase.RUNNING)
    node.until("ticks", lambda: ticks.exists() and len(set(ticks.read_text().split())) == 3)
    node.kill()
    spool = node.dir / "spool" / "node1"
    if what:
        (spool / what).unlink()
    else:
        shutil.rmtree(spool)
    node.start()
    node.until("a report", lambda: bool(node.history))
    assert (5, 1) not in node.last
    size = ticks.stat().st_size
    time.sleep(1)
    assert ticks.stat().st_size == size
    assert list(Path(spool).glob("job*")) == []


def test_a_known_attempt_goes_on(node: NodeUnderTest) -> None:
    node.run(6, "#!/bin/sh\nsleep 2\nexit 3\n")
    node.phase(6, Phase.RUNNING)
    node.kill()
    node.start()
    assert node.phase(6, Phase.RELEASED).wstatus == 3 << 8
