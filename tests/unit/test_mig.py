"""Slices of GPUs (MIG): names, device files, islands, and what takes them out of service."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from sbatch_support import sbatch

from gsched.cluster import Cluster
from gsched.config import parse_config
from gsched.gres import GresError, parse_gres
from gsched.local import shapes
from gsched.model import Gpu, Job, JobSpec, Node, Shape
from slurmd_compat import binding, gpus, inventory

#: as the driver lists them on a machine with an A100 in MIG mode
MIG_MINORS = """config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi2/access 21
gpu0/gi2/ci0/access 22
gpu0/gi2/ci1/access 23
gpu1/gi7/access 192
gpu1/gi7/ci0/access 193
"""
DEVICES = """Character devices:
195 nvidia
195 nvidiactl
237 nvidia-caps
511 nvidia-uvm

Block devices:
  8 sd
"""

A = Gpu("MIG-a", "1g.5gb", minor=0, bus_id="0000:01:00.0", caps=[12, 13])
B = Gpu("MIG-b", "1g.5gb", minor=0, bus_id="0000:01:00.0", caps=[21, 22])
C = Gpu("MIG-c", "1g.5gb", minor=1, bus_id="0000:02:00.0", caps=[192, 193])
WHOLE = Gpu("GPU-d", "a100", minor=2, bus_id="0000:03:00.0")


@pytest.mark.parametrize(
    ("gpu", "profile", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", "nvidia_a100_1g.5gb"),
        ("NVIDIA A100-SXM4-80GB", "3g.40gb", "nvidia_a100_3g.40gb"),
        ("NVIDIA H100 80GB HBM3", "1g.10gb", "nvidia_h100_80gb_hbm3_1g.10gb"),
        ("NVIDIA A100-SXM4-40GB", "1g.5gb+me", "nvidia_a100_1g.5gb+me"),
    ],
)
def test_types_are_slurms(gpu: str, profile: str, expected: str) -> None:
    assert gpus.mig_type(gpu, profile) == expected


def test_the_type_of_gres_conf_is_a_part_of_the_name() -> None:
    kinds = ["a100", "1g.5gb", "a100_3g.20gb"]
    assert gpus.configured_type("nvidia_a100_1g.5gb", kinds) == "1g.5gb"
    assert gpus.configured_type("nvidia_a100_3g.20gb", kinds) == "a100_3g.20gb"
    assert gpus.configured_type("nvidia_a100-sxm4-40gb", kinds) == "a100"


def test_devices_of_slices() -> None:
    assert gpus.mig_caps(MIG_MINORS) == {
        (0, 1, 0): [12, 13],
        (0, 2, 0): [21, 22],
        (0, 2, 1): [21, 23],
        (1, 7, 0): [192, 193],
    }
    assert gpus.mig_caps("") == {}
    assert binding.caps_major(DEVICES) == 237
    assert binding.caps_major("Character devices:\n195 nvidia\n") == 0


def test_a_job_opens_its_slices_and_no_others() -> None:
    node = [A, B, C, WHOLE]
    rules = binding.device_rules(node, 0b0001, caps_major=237)
    assert rules.allow == ("c 195:0", "c 237:12", "c 237:13")
    assert rules.deny == ("c 195:1", "c 195:2", *(f"c 237:{n}" for n in (21, 22, 192, 193)))
    # Without the driver's devices only whole GPUs can be kept apart.
    assert binding.device_rules(node, 0b0001).deny == ("c 195:1", "c 195:2")
    files = binding.device_files(node, 0b0011)
    assert files == ["/dev/nvidia0", *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in (12, 13, 21, 22))]
    assert binding.visible_devices(node, 0b0101, constrained=True) == "MIG-a,MIG-c"


def test_two_compute_instances_share_the_device_of_their_gpu_instance() -> None:
    node = [Gpu("MIG-x", minor=0, caps=[21, 22]), Gpu("MIG-y", minor=0, caps=[21, 23])]
    assert binding.device_rules(node, 0b01, caps_major=237).deny == ("c 237:23",)


# ---- requests and placement ---------------------------------------------------------------------


def test_profiles_are_types() -> None:
    shape = sbatch("--gres=gpu:1g.10gb:2", "--wrap", "true").sent.spec.shape
    assert (shape.gpu_type, shape.gpus_per_node) == ("1g.10gb", 2)
    assert parse_gres("gpu:1g.10gb").count == 1
    assert parse_gres("gpu:1g.5gb+me").type == "1g.5gb+me"
    for text in ("gpu:1.5", "gpu:1g", "gpu:4gb"):
        with pytest.raises(GresError):
            parse_gres(text)


CONF = """
ClusterName=c
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
NodeName=n1 CPUs=16 RealMemory=64000 Gres=gpu:1g.5gb:6
PartitionName=p Nodes=ALL Default=YES State=UP
"""


def test_slices_of_one_gpu_go_together() -> None:
    cluster = Cluster(parse_config({"slurm.conf": CONF}))
    buses = [0, 1, 1, 1, 0, 0]
    found = [Gpu(f"MIG-{i}", "1g.5gb", i, bus_id=str(bus)) for i, bus in enumerate(buses)]
    cluster.node_changed(Node("n1", gpus=found))
    cluster.set_usable("n1", True)
    for job_id, count in ((1, 2), (2, 3), (3, 1)):
        shape = Shape(gpus_per_node=count, gpu_type="1g.5gb", mem_per_node=1)
        spec = JobSpec(shape=shape)
        cluster.queue_job(Job(job_id, 1, 1, "u", "g", spec, partition="p", priority=9 - job_id))
    plan = cluster.schedule(0, 0)
    held = {start.job_id: start.alloc[0].gpus for start in plan.starts}
    assert sorted(held) == [1, 2, 3]
    parents = {job: {buses[b] for b in range(6) if held[job] >> b & 1} for job in held}
    assert all(len(found) == 1 for found in parents.values())


# ---- configuration ------------------------------------------------------------------------------


def slice_lines(gres_conf: str) -> list[Gpu]:
    """What gres.conf alone makes of a node."""
    conf = CONF.replace("1g.5gb:6", "1g.5gb:2")
    config = parse_config({"slurm.conf": conf, "gres.conf": gres_conf})
    return inventory.Inventory(config, config.nodes["n1"]).gpus


def test_multiple_files_are_one_device() -> None:
    found = slice_lines(
        "Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[12,13]\n"
        "Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[21,22]\n"
    )
    assert [(gpu.type, gpu.minor) for gpu in found] == [("1g.5gb", 0), ("1g.5gb", 0)]


def test_lines_choose_among_what_the_driver_finds() -> None:
    config = parse_config(
        {
            "slurm.conf": CONF,
            "gres.conf": "AutoDetect=nvml\n"
            "Name=gpu Type=small File=/dev/nvidia1\n"
            "Name=gpu Type=mine MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[12-13]\n"
            "Name=gpu Type=big File=/dev/nvidia2\n",
        }
    )
    lines = config.gres_lines("n1")
    node = [Gpu(g.uuid, g.type, g.minor, caps=g.caps) for g in (A, B, C, WHOLE)]
    kept = [gpu for gpu in node if inventory._named(gpu, lines)]
    assert [(gpu.uuid, gpu.type) for gpu in kept] == [
        ("MIG-a", "mine"),
        ("MIG-c", "1g.5gb"),
        ("GPU-d", "big"),
    ]


# ---- health -------------------------------------------------------------------------------------


def test_a_faulty_gpu_takes_its_slices_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = gpus.Gpu(0, "GPU-p", 0, "b", "NVIDIA A100-SXM4-40GB", "t", 1, mig_mode=True)
    parent.mig = [gpus.Mig(i, f"MIG-{i}", i, 0, "1g.5gb", "t", 1) for i in range(2)]
    found = gpus.Detected(gpus=[parent], links=[[0]], faults=[gpus.Fault(0, "GPU-p", "ill")])
    assert [gpu.fault for gpu in gpus.allocatable(found)] == ["ill", "ill"]
    monkeypatch.setattr(inventory, "HEALTH_S", 0.0)
    known = gpus.allocatable(gpus.Detected(gpus=[parent], links=[[0]]))
    state = [gpus.Fault(0, "GPU-p", "NVML answers no more")]
    nvml = SimpleNamespace(faults=lambda: list(state))
    here = SimpleNamespace(nvml=nvml, gpus=known, slices=gpus.slices(found))
    told = threading.Event()
    watch = inventory.HealthWatch(here, told.set)  # type: ignore[arg-type]
    assert told.wait(10)
    assert watch.faults == {f"MIG-{i}": "NVML answers no more" for i in range(2)}
    told.clear()
    state.clear()
    assert told.wait(10)
    watch.stop()
    assert watch.faults == {"MIG-0": "", "MIG-1": ""}


# ---- trial clusters -----------------------------------------------------------------------------


def test_trial_clusters_have_slices() -> None:
    shape = shapes.find("a100-mig")
    assert shape.gres == "gpu:3g.20gb:1,gpu:2g.10gb:1,gpu:1g.5gb:9,gpu:a100:6"
    assert shape.gpus == 17


def test_a_gpu_in_mig_mode_without_slices_offers_nothing(tmp_path: Path) -> None:
    machine = {
        "defaults": {"mig_capable": 1, "name": "NVIDIA A100-SXM4-40GB"},
        "gpus": [{"bus": "1"}, {"bus": "2", "mig_mode": 1}, {"bus": "3", "mig": [{"gi": 1}]}],
    }
    (tmp_path / "m.json").write_text(json.dumps(machine))
    shape = shapes.from_file(str(tmp_path / "m.json"))
    assert (shape.gpus, shape.gres) == (2, "gpu:a100:1,gpu:mig:1")
