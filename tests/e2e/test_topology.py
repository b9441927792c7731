"""A cluster with switches: where gangs go, and what their jobs see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_support import LocalCluster

from gsched.model import JobState

SWITCHES = """
SwitchName=left Nodes=node[1,3]
SwitchName=right Nodes=node[2,4]
SwitchName=spine Switches=left,right
"""


@pytest.fixture(scope="module")
def network() -> Iterator[LocalCluster]:
    """Four nodes of 8 GPUs below two switches; the file came after the cluster was started."""
    options = ("--simulate", "peer", "--set", "TopologyPlugin=topology/tree")
    with LocalCluster(*options) as made:
        (made.dir / "etc/topology.conf").write_text(SWITCHES)
        made.run(["scontrol", "reconfigure"])
        yield made


def test_a_gang_below_one_switch_and_its_address(network: LocalCluster) -> None:
    script = (
        "#!/bin/sh\necho $SLURM_JOB_NODELIST $SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN\n"
    )
    # One node of the left switch is in use: the gang goes to the right one.
    blocker = network.sbatch("-w", "node1", "--gres=gpu:8", script="#!/bin/sh\nsleep 60\n")
    job_id = network.sbatch("-N2", "--gpus-per-node=8", "--switches=1", script=script)
    job = network.ended(job_id)
    network.run(["scancel", str(blocker)])
    assert job.state is JobState.COMPLETED
    assert network.output(job_id) == "node[2,4] spine.right.node2 switch.switch.node\n"
    shown = network.run(["scontrol", "show", "job", str(job_id)]).stdout
    assert "   Switches=1@00:05:00\n" in shown
    network.ended(blocker)


def test_the_switches_are_shown(network: LocalCluster) -> None:
    shown = network.run(["scontrol", "show", "topology", "node4"]).stdout
    assert shown.splitlines() == [
        "SwitchName=right Level=0 LinkSpeed=1 Nodes=node[2,4]",
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[1-4] Switches=left,right",
    ]
