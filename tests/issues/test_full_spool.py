"""The disk of a node's spool fills up while jobs run: each is told what is wrong, what runs goes on
and its end is known, and once there is room the node is as before."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_support import NodeUnderTest
from step_support import Listener, create, finished, socket_of

from gsched.model import Phase
from gsched.wire.nodes import Forget
from gsched.wire.steps import NotTaken

pytestmark = pytest.mark.root


@pytest.fixture
def node() -> Iterator[NodeUnderTest]:
    made = NodeUnderTest()
    spool = made.dir / "spool"
    spool.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(spool)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        made.close()
        pytest.skip("file systems cannot be mounted here")
    made.start()
    yield made
    subprocess.run(["umount", "-l", str(spool)], check=True)
    made.close()


def fill(spool: Path) -> Path:
    filler = spool / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return filler


def test_a_spool_that_fills_while_steps_run(node: NodeUnderTest) -> None:
    first, second, third = Listener(), Listener(), Listener()
    gate, over = node.work / "gate", node.work / "over"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    node.run(1, f"#!/bin/sh\nwhile [ ! -e {over} ]; do sleep 0.05; done\nexit 3\n", cpus=4)
    node.phase(1, Phase.RUNNING)
    create(socket_of(node), first, 1, ["sh", "-c", f"echo begun; {wait}; echo done"])
    node.until("the step", first.output)
    filler = fill(node.dir / "spool")
    # A new step is refused, or ends, in words.
    answer = create(socket_of(node), second, 1, ["true"], overlap=True)
    if isinstance(answer, NotTaken):
        said = answer.message
    else:
        assert finished(node, second) != 0
        said = "\n".join(second.errors)
    assert "No space left on device" in said
    # A new job is refused, and that is this node's fault.
    node.run(2, "#!/bin/sh\n")
    report = node.phase(2, Phase.RELEASED)
    assert report.cause == "disk" and "No space left on device" in report.error
    # What ran, runs, and its end is known.
    gate.touch()
    assert finished(node, first) == 0
    assert first.output() == {0: b"begun\ndone\n"}
    over.touch()
    assert node.phase(1, Phase.RELEASED).wstatus == 3 << 8
    filler.unlink()
    node.order(Forget(0, 1, 1), Forget(0, 2, 1))
    node.run(3, "#!/bin/sh\nsleep 60\n", cpus=2)
    node.phase(3, Phase.RUNNING)
    create(socket_of(node), third, 3, ["true"])
    assert finished(node, third) == 0
    # A daemon that starts now finds all that it must know.
    node.kill()
    node.start()
    assert node.last[3, 1].phase == Phase.RUNNING
    for listener in (first, second, third):
        listener.close()
