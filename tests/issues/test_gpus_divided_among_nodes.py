"""Node daemons that share a machine's GPUs counted theirs from 0 each: a job of the second node was
pointed at the GPUs of the first, whose devices were not closed to it either.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from gsched.config import load_config
from slurmd_compat import binding
from slurmd_compat.inventory import Inventory


def second_node(tmp_path: Path) -> Inventory:
    spec = find_spec("slurmd_compat.fake_nvml")
    assert spec is not None and spec.submodule_search_locations
    fake = Path(next(iter(spec.submodule_search_locations)))
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu\n"
        f"NvmlLibrary={fake}/libnvidia-ml.so.1\nNvmlTopology={fake}/dgx-1v.json\n"
        "NodeName=n[1-2] CPUs=4 RealMemory=1000 Gres=gpu:v100:3\nPartitionName=p Nodes=ALL\n"
    )
    (tmp_path / "gres.conf").write_text(
        "NodeName=n1 AutoDetect=nvml Name=gpu Type=v100 File=/dev/nvidia[0-2]\n"
        "NodeName=n2 AutoDetect=nvml Name=gpu Type=v100 File=/dev/nvidia[3,4,7]\n"
    )
    config = load_config(str(tmp_path / "slurm.conf"))
    return Inventory(config, config.nodes["n2"])


def test_a_job_is_pointed_at_its_own_nodes_gpus(tmp_path: Path) -> None:
    node = second_node(tmp_path)
    assert [gpu.minor for gpu in node.gpus] == [3, 4, 7]
    seen = binding.gpu_variables(node.gpus, 0b101, False, autodetect="nvml", numbers=node.numbers)
    assert seen == {"CUDA_VISIBLE_DEVICES": "3,7", "SLURM_JOB_GPUS": "3,7"}


def test_the_other_nodes_devices_are_closed(tmp_path: Path) -> None:
    node = second_node(tmp_path)
    rules = binding.device_rules(node.gpus, 0b101, node.foreign)
    assert rules.allow == ("c 195:3", "c 195:7")
    assert rules.deny == tuple(f"c 195:{minor}" for minor in (0, 1, 2, 4, 5, 6))


def test_links_are_those_among_the_nodes_own_gpus(tmp_path: Path) -> None:
    # A DGX-1V's mesh: 3-7 one link, 4-7 two, 3-4 none.
    assert [gpu.links for gpu in second_node(tmp_path).gpus] == [[0, 0, 1], [0, 0, 2], [1, 2, 0]]
