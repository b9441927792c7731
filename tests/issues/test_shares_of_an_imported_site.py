"""`gsched up --conf DIR` left the lines of DIR/gres.conf behind that are not about GPUs themselves:
shards were spread over all GPUs, whatever the site had said, and no flag of theirs held."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsched.config import Config, load_config
from gsched.gpushare import one_shared, parts
from gsched.local.conf import Layout
from gsched.local.files import FilesError, Options, prepare

SLURM = """\
ClusterName=site
SlurmctldHost=elsewhere(10.0.0.1)
GresTypes=gpu,shard,mps,dongle
NodeName=big[1-2] CPUs=8 RealMemory=8000 Gres=gpu:h100:4,shard:24,dongle:3
NodeName=old CPUs=8 RealMemory=8000 Gres=gpu:2,mps:200
PartitionName=prod Nodes=ALL Default=YES
"""
GRES = """\
# ours
AutoDetect=nvml
NodeName=big[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-3
NodeName=big[1-2] Name=shard Count=16 File=/dev/nvidia[0-1] \\
    Flags=one_sharing
Include more.conf
NodeName=old Name=mps Count=200 File=/dev/nvidia[0-1]
NodeName=big[1-2] Name=dongle File=/dev/dongle[0-2]
NodeName=elsewhere Name=shard Count=4 File=/dev/nvidia0
"""
MORE = "NodeName=big[1-2] AutoDetect=nvml Name=shard Count=8 File=/dev/nvidia3\n"


def made(tmp_path: Path, gres: str = GRES) -> Config:
    site, there = tmp_path / "site", tmp_path / "cluster"
    site.mkdir()
    there.mkdir()
    for name, text in (("slurm.conf", SLURM), ("gres.conf", gres), ("more.conf", MORE)):
        (site / name).write_text(text)
    prepare(Layout(there), Options(source=site))
    return load_config(str(there / "etc/slurm.conf"))


def test_the_shares_of_a_site_come_along(tmp_path: Path) -> None:
    config = made(tmp_path)
    for node in ("big1", "big2"):
        # 16 over the first two GPUs, 8 of the last one.
        expected = [("shard", 8), ("shard", 8), ("", 0), ("shard", 8)]
        assert parts(config, node) == expected
    assert parts(config, "old") == [("mps", 100), ("mps", 100)]
    assert one_shared(config, "shard")


def test_gpus_are_found_out_here(tmp_path: Path) -> None:
    config = made(tmp_path)
    assert {config.autodetect(node) for node in config.nodes} == {"nvml"}
    assert not [line for line in config.gres if line.name == "gpu"]


def test_devices_of_the_site_are_counted_alone(tmp_path: Path) -> None:
    line = next(line for line in made(tmp_path).gres if line.name == "dongle")
    assert (line.count, line.files) == (3, ())


@pytest.mark.parametrize("text", ["nonsense\n", "Name=dongle File=/dev/x[\n"])
def test_what_cannot_be_taken_over(tmp_path: Path, text: str) -> None:
    with pytest.raises(FilesError, match=r"gres\.conf:1: "):
        made(tmp_path, text)
