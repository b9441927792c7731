"""Inventory, links, health and claims against the fake NVML library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmd_compat import fake_nvml, gpus

Make = Callable[..., gpus.Nvml]


@pytest.fixture
def open_nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    for name in ("GSCHED_NVML_TOPOLOGY", "GSCHED_NVML_NODE"):
        monkeypatch.setenv(name, "")  # put back after the test: the library's user sets them
    try:
        fake_nvml.library()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    opened: list[gpus.Nvml] = []

    def begin(machine: str, node: str = "n1") -> gpus.Nvml:
        for nvml in opened:  # the library describes one machine at a time
            nvml.close()
        opened.append(gpus.Nvml(None, str(fake_nvml.topology(machine)), node))
        return opened[-1]

    yield begin
    for nvml in opened:
        nvml.close()


def write(path: Path, machine: dict[str, Any]) -> None:
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(machine))
    fresh.rename(path)


def test_inventory_of_a_dgx_h100(open_nvml: Make) -> None:
    found = open_nvml("dgx-h100").detect()
    assert found.reason == "" and found.faults == []
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    first, last = found.gpus[0], found.gpus[7]
    assert first.type == "nvidia_h100_80gb_hbm3"
    assert (first.numa, first.cpus) == (0, "0-55,112-167")
    assert (last.numa, last.cpus) == (1, "56-111,168-223")
    assert first.memory_mib == 81559
    # all pairs NV18, through NVSwitch
    assert found.links == [[0 if i == j else 18 for j in range(8)] for i in range(8)]
    levels = [gpus.LEVELS[level] for level in found.levels[0]]
    assert levels == ["INT", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]


def test_the_hybrid_cube_mesh_of_a_dgx_1v(open_nvml: Make) -> None:
    found = open_nvml("dgx-1v").detect()
    # NVIDIA/nccl#671: GPU0 X NV1 NV1 NV2 NV2 SYS SYS SYS
    assert found.links[0] == [0, 1, 1, 2, 2, 0, 0, 0]
    assert all(sum(row) == 6 for row in found.links)  # a V100 has six links
    assert all(found.links[i][j] == found.links[j][i] for i in range(8) for j in range(8))
    levels = [gpus.LEVELS[level] for level in found.levels[0]]
    assert levels == ["INT", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]


def test_bridged_pairs_and_nvswitch_a100(open_nvml: Make) -> None:
    pairs = open_nvml("a100-pcie").detect().links
    assert pairs == [[12 if i ^ 1 == j else 0 for j in range(8)] for i in range(8)]
    found = open_nvml("dgx-a100").detect()
    assert found.links[0] == [0, *[12] * 7]
    assert [gpu.numa for gpu in found.gpus] == [3, 3, 1, 1, 7, 7, 5, 5]  # NVIDIA/nccl#1505


def test_what_a_mig_node_gives_out(open_nvml: Make) -> None:
    found = open_nvml("a100-mig").detect()
    assert [mig.profile for mig in found.gpus[0].mig] == ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
    devices = gpus.allocatable(found, ["a100", "3g.20gb", "1g.5gb"])
    assert len(devices) == 4 + 7 + 6
    assert [device.type for device in devices[:4]] == ["3g.20gb", "a100", "1g.5gb", "1g.5gb"]
    assert devices[0].uuid.startswith("MIG-") and not any(devices[0].links)
    # Without a word of the configuration they go by Slurm's names.
    own = [device.type for device in gpus.allocatable(found)]
    assert own[:3] == ["nvidia_a100_3g.20gb", "nvidia_a100_2g.10gb", "nvidia_a100_1g.5gb"]
    assert own[-1] == "nvidia_a100-sxm4-40gb"
    caps = {(0, 1, 0): [30, 31], (1, 7, 0): [129, 130]}
    devices = gpus.allocatable(found, (), caps)
    assert [device.caps for device in devices[:5]] == [[30, 31], [], [], [], [129, 130]]
    assert {*gpus.slices(found)} == {found.gpus[0].uuid, found.gpus[1].uuid}
    assert gpus.slices(found)[found.gpus[0].uuid] == [device.uuid for device in devices[:4]]
    assert len({device.uuid for device in devices}) == 17
    assert devices[16].links == [0] * 11 + [12] * 5 + [0]


def test_types_match_as_substrings() -> None:
    assert gpus.type_of("NVIDIA H100 80GB HBM3") == "nvidia_h100_80gb_hbm3"
    assert gpus.matches("nvidia_h100_80gb_hbm3", "H100")
    assert gpus.matches("nvidia_h100_80gb_hbm3", "h100 80gb")
    assert not gpus.matches("nvidia_h100_80gb_hbm3", "a100")
    assert gpus.configured_type("nvidia_h100_80gb_hbm3", ["100", "h100", "a100"]) == "h100"
    assert gpus.configured_type("nvidia_h100_80gb_hbm3", ["", "v100"]) == "nvidia_h100_80gb_hbm3"


def test_cpu_list_text() -> None:
    assert gpus.cpu_text([]) == ""
    assert gpus.cpu_text([30, 6, 14, 22]) == "6,14,22,30"
    assert gpus.cpu_text([0, 1, 2, 3, 8, 10, 11]) == "0-3,8,10-11"


def test_faults_name_the_gpu_and_the_others_go_on(open_nvml: Make, tmp_path: Path) -> None:
    machine: dict[str, Any] = {
        "gpus": [{"bus": f"0000:0{n}:00.0"} for n in range(5)],
        "nvlink": {"pairs": [[2, 3, 2]]},
    }
    path = tmp_path / "m.json"
    write(path, machine)
    nvml = open_nvml(str(path))
    before = nvml.detect()
    assert before.faults == [] and nvml.faults() == []
    machine["gpus"][0]["lost"] = True
    machine["gpus"][1]["remapped"] = [0, 1, 1, 0]
    machine["gpus"][2]["links_down"] = [1]
    machine["gpus"][4]["ecc_uncorrected"] = 2
    write(path, machine)
    faults = {fault.index: fault for fault in nvml.faults()}
    assert sorted(faults) == [0, 1, 2, 4]
    assert faults[0].reason == "GPU is lost"
    assert faults[0].uuid == before.gpus[0].uuid
    assert "reset" in faults[1].reason
    assert faults[2].reason.endswith(": 1")
    assert faults[4].reason.startswith("2 uncorrectable ECC errors")
    after = nvml.detect()
    assert [gpu.index for gpu in after.gpus] == [1, 2, 3, 4]
    assert [device.fault != "" for device in gpus.allocatable(after)] == [True, True, False, True]
    assert [use.index for use in nvml.utilisation()] == [1, 2, 3, 4]
    machine["gpus"][0]["lost"] = False
    write(path, machine)
    assert 0 not in {fault.index for fault in nvml.faults()}


def test_utilisation(open_nvml: Make, tmp_path: Path) -> None:
    gpu = {"bus": "0000:01:00.0", "util": 42, "mem_util": 7, "temp": 61, "power_w": 333.9}
    gpu |= {"reserved_mib": 0, "processes": [{"pid": 77, "mem_mib": 1234}]}
    write(tmp_path / "m.json", {"gpus": [gpu]})
    nvml = open_nvml(str(tmp_path / "m.json"))
    nvml.detect()
    (use,) = nvml.utilisation()
    assert (use.gpu_percent, use.memory_percent, use.memory_used_mib) == (42, 7, 1234)
    assert (use.temperature_c, use.power_w, use.pids) == (61, 333, (77,))


def test_xid(open_nvml: Make, tmp_path: Path) -> None:
    write(tmp_path / "m.json", {"gpus": [{"bus": "0000:01:00.0"}]})
    nvml = open_nvml(str(tmp_path / "m.json"))
    assert nvml.wait_event(1) is None
    timer = threading.Timer(0.02, lambda: (tmp_path / "m.json.xid").write_text("0 79\n"))
    timer.start()
    assert nvml.wait_event(5000) == (0, 79)
    timer.join()


@pytest.mark.parametrize(
    ("library", "topology", "says"),
    [
        ("/nonexistent/libnvidia-ml.so.1", None, "cannot be loaded"),
        (None, "/nonexistent/m.json", "/nonexistent/m.json: No such file or directory"),
        (None, "/etc/passwd", "line 1"),
    ],
)
def test_no_gpus_is_an_empty_list_and_a_sentence(
    open_nvml: Make, library: str | None, topology: str | None, says: str
) -> None:
    found = gpus.detect(library, topology, "n1")
    assert found.gpus == [] and found.links == []
    assert found.reason.startswith("no GPUs: ") and says in found.reason
    assert gpus.inventory(library, topology, "n1") == []


def test_the_system_library_absent() -> None:
    """In a process of its own, where no other library has been loaded."""
    code = (
        "from slurmd_compat import gpus\nfound=gpus.detect(None,None,'n')\n"
        "assert found.gpus or found.reason, found"
    )
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_a_gpu_is_claimed_by_one_daemon_of_the_machine(tmp_path: Path) -> None:
    code = (
        "import sys,time\nfrom slurmd_compat.gpus import claim\n"
        f"c=claim(['GPU-a','GPU-b'],{str(tmp_path / 'locks')!r},'node1 of x')\n"
        "print(len(c.held),flush=True)\ntime.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "2\n"
        mine = gpus.claim(["GPU-b", "GPU-c", "../x"], tmp_path / "locks")
        assert mine.held == ("GPU-c",)
        assert f"pid {other.pid} node1 of x" in mine.refused["GPU-b"]
        assert "not a GPU's UUID" in mine.refused["../x"]
    finally:
        other.kill()
        other.wait()
        other.stdout.close()  # type: ignore[union-attr]
    end = time.monotonic() + 5
    again = gpus.claim(["GPU-b"], tmp_path / "locks")  # the kernel let go with the process
    while not again.held and time.monotonic() < end:
        again = gpus.claim(["GPU-b"], tmp_path / "locks")
    assert again.held == ("GPU-b",)
    assert gpus.claim(["GPU-b"], tmp_path / "locks").held == ()
    again.release()
    assert gpus.claim(["GPU-b"], tmp_path / "locks").held == ("GPU-b",)
    mine.release()


def test_a_lock_directory_that_cannot_be_made() -> None:
    refused = gpus.claim(["GPU-a"], "/proc/no-such").refused
    assert "cannot be locked" in refused["GPU-a"]
