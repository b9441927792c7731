"""The site's programs about a node: the health check, what is called for processes that stay."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_support import NodeUnderTest

from gsched.model import Phase
from gsched.wire.nodes import Kill


def node_with(*lines: str) -> NodeUnderTest:
    made = NodeUnderTest("\n".join(lines))
    made.conf.write_text(made.conf.read_text().replace("{0}", str(made.dir)))
    return made


def program(node: NodeUnderTest, name: str, text: str) -> None:
    path = node.dir / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def sick() -> Iterator[NodeUnderTest]:
    lines = ("HealthCheckProgram={0}/check", "HealthCheckInterval=1", "HealthCheckNodeState=ALLOC")
    made = node_with(*lines)
    yield made
    made.close()


def test_the_health_check_runs_at_the_start_and_in_its_states(sick: NodeUnderTest) -> None:
    program(sick, "check", f"echo $SLURMD_NODENAME >> {sick.work}/checks; exit 1")
    sick.start()
    checks = sick.work / "checks"
    sick.until("the first", checks.exists)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        sick.pump()
    # Since then it is idle: not its state.
    assert checks.read_text() == "node1\n"
    sick.run(1, "#!/bin/sh\nsleep 60\n", cpus=16)
    sick.phase(1, Phase.RUNNING)
    sick.until("the next", lambda: len(checks.read_text().splitlines()) >= 3)
    assert f"health {sick.dir}/check failed with exit code 1" in sick.log()
    sick.order(Kill(0, 1, 1, "cancelled"))
    sick.phase(1, Phase.RELEASED)


def test_a_failed_epilog_is_told() -> None:
    node = node_with("Epilog={0}/epilog")
    try:
        told = f"echo $SLURM_JOB_EXIT_CODE $SLURM_JOB_EXIT_CODE2 > {node.work}/told"
        program(node, "epilog", f"{told}; exit 4")
        node.start()
        node.run(1, "#!/bin/sh\nexit 5\n")
        report = node.phase(1, Phase.RELEASED)
        assert (report.wstatus, report.fault) == (5 << 8, "Epilog error")
        # A wait status, and EXIT:SIGNAL (man slurm.conf).
        assert node.output("told") == "1280 5:0\n"
        assert f"epilog {node.dir}/epilog failed with exit code 4" in node.log()
    finally:
        node.close()


@pytest.mark.root
def test_processes_that_cannot_be_killed() -> None:
    freezer = Path("/sys/fs/cgroup/freezer")
    if not freezer.is_dir():
        pytest.skip("needs the freezer of cgroup v1: what it has frozen cannot be killed")
    ice = freezer / f"gsched-ice-{os.getpid()}"
    ice.mkdir()
    node = node_with("UnkillableStepTimeout=1", "UnkillableStepProgram={0}/stuck")
    try:
        program(node, "stuck", f"echo $SLURM_JOB_ID $SLURM_STEP_ID >> {node.work}/called")
        node.start()
        script = f"#!/bin/sh\necho $$ > {ice}/cgroup.procs\necho FROZEN > {ice}/freezer.state\n"
        node.run(1, script + "sleep 60\n")
        node.phase(1, Phase.RUNNING)
        node.until("ice", lambda: (ice / "freezer.state").read_text() == "FROZEN\n")
        pid = int((ice / "cgroup.procs").read_text().split()[0])
        node.order(Kill(0, 1, 1, "cancelled"))
        node.until("its fault", lambda: node.last[1, 1].fault)
        fault = node.last[1, 1].fault
        assert fault.startswith("Kill task failed: JobId=1 StepId=batch: ")
        assert f"{pid} (slurm_script, D" in fault
        assert node.last[1, 1].phase < Phase.RELEASED
        called = node.work / "called"
        # The batch step's number as 32 bits (slurm.h: SLURM_BATCH_SCRIPT).
        node.until("the call", lambda: called.exists() and called.read_text())
        assert called.read_text() == f"1 {0xFFFFFFFB}\n"
        (ice / "freezer.state").write_text("THAWED")
        assert node.phase(1, Phase.RELEASED).cause == "cancelled"
    finally:
        (ice / "freezer.state").write_text("THAWED")
        node.close()
        end = time.monotonic() + 5
        while ice.exists() and time.monotonic() < end:
            try:
                ice.rmdir()
            except OSError:
                time.sleep(0.05)
