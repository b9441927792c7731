"""`gsched up --conf DIR` left DIR/topology.conf behind: the site's TopologyPlugin knew no switch,
and jobs were placed anywhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gsched.config import load_config
from gsched.local.conf import Layout
from gsched.local.files import Options, prepare


@pytest.mark.parametrize("included", [False, True])
def test_the_switches_of_a_site_come_along(tmp_path: Path, included: bool) -> None:
    site, there = tmp_path / "site", tmp_path / "cluster"
    site.mkdir()
    there.mkdir()
    (site / "slurm.conf").write_text(
        "ClusterName=site\nSlurmctldHost=elsewhere(10.0.0.1)\nTopologyPlugin=topology/tree\n"
        "NodeName=big[1-4] CPUs=8 RealMemory=8000\nPartitionName=prod Nodes=ALL Default=YES\n"
    )
    leaves = "SwitchName=a Nodes=big[1-2]\nSwitchName=b \\\n  Nodes=big[3-4]\n"
    (site / "leaves.conf").write_text(leaves)
    first = "Include leaves.conf\n" if included else leaves
    (site / "topology.conf").write_text(f"# ours\n{first}SwitchName=top Switches=a,b\n")
    prepare(Layout(there), Options(source=site))
    switches = load_config(there / "etc/slurm.conf").switches
    assert [(one.name, one.nodes) for one in switches] == [
        ("a", ("big1", "big2")),
        ("b", ("big3", "big4")),
        ("top", ()),
    ]
