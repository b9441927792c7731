"""TZ may be a path, and the C library opens it. A user whose TZ named a pipe in which nobody writes
stopped the worker that ran his command, for ever, and a few such commands all commands of a host.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from e2e_support import BIN, LocalCluster

from gsched.frontend.commands import plain_zone


@pytest.mark.parametrize(
    ("zone", "plain"),
    [
        (None, True),
        ("", True),
        ("UTC", True),
        (":Europe/Zurich", True),
        ("CET-1CEST,M3.5.0,M10.5.0/3", True),
        ("<+0330>-3:30", True),
        (":/etc/localtime", True),
        ("/usr/share/zoneinfo/Europe/Zurich", True),
        ("/tmp/pipe", False),
        (":/tmp/pipe", False),
        ("../../../tmp/pipe", False),
        (":Europe/../../../../tmp/pipe", False),
        ("/usr/share/zoneinfo/../../../tmp/pipe", False),
        ("/etc/localtime/../shadow", False),
        ("X" * 5000, False),
    ],
)
def test_what_a_zone_may_be(zone: str | None, plain: bool) -> None:
    assert plain_zone(zone) is plain


def test_others_commands_go_on() -> None:
    with LocalCluster("--simulate", "peer", "--nodes", "1") as cluster:
        pipe = cluster.work / "pipe"
        os.mkfifo(pipe)
        zones = [str(pipe), f":{pipe}", f"../../..{pipe}", *[f":{pipe}"] * 9]
        asking = [
            subprocess.Popen([BIN / "squeue"], env=cluster.env() | {"TZ": zone}) for zone in zones
        ]
        try:
            # Whoever has opened the pipe waits for somebody who writes.
            for _ in range(20):
                assert cluster.run(["squeue", "-h"], timeout=10).stdout == ""
        finally:
            for one in asking:
                one.kill()
                one.wait()
        frontend = (cluster.dir / "run/frontend.pid").read_text().strip()
        workers = Path(f"/proc/{frontend}/task/{frontend}/children").read_text().split()
        waits = [Path(f"/proc/{pid}/wchan").read_text() for pid in workers]
        assert len(waits) >= 2 and "wait_for_partner" not in waits
