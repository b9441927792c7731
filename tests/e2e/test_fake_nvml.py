"""The fake NVML library, asked through unmodified pynvml: known machines read back as they are."""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from slurmd_compat import fake_nvml

SOURCES = Path(__file__).resolve().parents[2] / "slurmd_compat" / "fake_nvml"
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("nvml") / fake_nvml.LIBRARY
    subprocess.run(
        [os.environ.get("CC", "cc"), *FLAGS, "-shared", "-fPIC"]
        + ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(target)]
        + [*sorted(str(path) for path in SOURCES.glob("*.c")), "-lpthread"],
        check=True,
    )
    return target


Open = Callable[..., Any]


@pytest.fixture
def nvml(library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Open]:
    """nvml(description or name, node) opens the library on it and returns pynvml."""
    lib = ctypes.CDLL(str(library))
    monkeypatch.setattr(pynvml, "nvmlLib", lib)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    opened = 0

    def begin(machine: str | dict[str, Any], node: str = "n1") -> Any:
        nonlocal opened
        if isinstance(machine, dict):
            path = tmp_path / "machine.json"
            path.write_text(json.dumps(machine))
        else:
            path = fake_nvml.topology(machine)
        while opened:
            pynvml.nvmlShutdown()
            opened -= 1
        monkeypatch.setenv("GSCHED_NVML_TOPOLOGY", str(path))
        monkeypatch.setenv("GSCHED_NVML_NODE", node)
        pynvml.nvmlInit()
        opened += 1
        return pynvml

    yield begin
    while opened:
        pynvml.nvmlShutdown()
        opened -= 1


def handles(nv: Any) -> list[Any]:
    return [nv.nvmlDeviceGetHandleByIndex(i) for i in range(nv.nvmlDeviceGetCount())]


def code(call: Callable[[], object]) -> int:
    with pytest.raises(pynvml.NVMLError) as caught:
        call()
    return int(caught.value.value)


def test_a_dgx_h100(nvml: Open) -> None:
    nv = nvml("dgx-h100")
    gpus = handles(nv)
    assert len(gpus) == 8
    assert {nv.nvmlDeviceGetName(h) for h in gpus} == {"NVIDIA H100 80GB HBM3"}
    assert [nv.nvmlDeviceGetMinorNumber(h) for h in gpus] == list(range(8))
    assert nv.nvmlDeviceGetCudaComputeCapability(gpus[0]) == (9, 0)
    assert nv.nvmlSystemGetDriverVersion() == "550.54.15"
    assert nv.nvmlSystemGetCudaDriverVersion() == 12040
    bus = nv.nvmlDeviceGetPciInfo(gpus[0])
    texts = [t.decode() if isinstance(t, bytes) else t for t in (bus.busId, bus.busIdLegacy)]
    assert texts == ["00000000:1B:00.0", "0000:1B:00.0"]
    # deepseek-ai/DeepEP#145: 0-55,112-167 near GPU 0-3
    words = nv.nvmlDeviceGetCpuAffinity(gpus[0], 4)
    cpus = {64 * w + b for w in range(4) for b in range(64) if words[w] >> b & 1}
    assert cpus == set(range(56)) | set(range(112, 168))
    assert list(nv.nvmlDeviceGetMemoryAffinity(gpus[7], 1, 0)) == [2]  # NUMA node 1
    assert nv.nvmlDeviceGetTopologyCommonAncestor(gpus[0], gpus[1]) == nv.NVML_TOPOLOGY_NODE
    assert nv.nvmlDeviceGetTopologyCommonAncestor(gpus[0], gpus[4]) == nv.NVML_TOPOLOGY_SYSTEM
    assert nv.nvmlDeviceGetP2PStatus(gpus[0], gpus[7], 2) == nv.NVML_P2P_STATUS_OK
    links = 0
    for link in range(nv.NVML_NVLINK_MAX_LINKS):
        try:
            links += nv.nvmlDeviceGetNvLinkState(gpus[0], link)
        except nv.NVMLError:
            break
    assert links == 18
    assert nv.nvmlDeviceGetNvLinkRemoteDeviceType(gpus[0], 0) == nv.NVML_NVLINK_DEVICE_TYPE_SWITCH
    fabric = nv.c_nvmlGpuFabricInfo_v2_t()
    nv.nvmlDeviceGetGpuFabricInfoV(gpus[0], ctypes.byref(fabric))
    assert fabric.state == 3
    nearest = nv.nvmlDeviceGetTopologyNearestGpus(gpus[0], nv.NVML_TOPOLOGY_NODE)
    assert len(nearest) == 3
    assert len(nv.nvmlSystemGetTopologyGpuSet(0)) == 4


def test_memory_both_ways(nvml: Open) -> None:
    nv = nvml(
        {
            "gpus": [
                {"bus": "0000:01:00.0", "mem_mib": 1000, "reserved_mib": 100, "used_mib": 200},
            ]
        }
    )
    (gpu,) = handles(nv)
    mib = 1 << 20
    old = nv.nvmlDeviceGetMemoryInfo(gpu)
    assert (old.total, old.used, old.free) == (1000 * mib, 300 * mib, 700 * mib)
    new = nv.nvmlDeviceGetMemoryInfo(gpu, version=nv.nvmlMemory_v2)
    assert (new.reserved, new.used, new.free) == (100 * mib, 200 * mib, 700 * mib)
    assert code(lambda: nv.nvmlDeviceGetMemoryInfo(gpu, version=0x01000028)) == 25


def test_uuids_are_stable_and_differ_by_node(nvml: Open) -> None:
    def uuids(node: str) -> list[str]:
        nv = nvml("dgx-a100", node)
        return [nv.nvmlDeviceGetUUID(h) for h in handles(nv)]

    one, again, two = uuids("n1"), uuids("n1"), uuids("n2")
    assert one == again
    assert len({*one, *two}) == 16
    assert all(len(u) == 40 and u.startswith("GPU-") and u.count("-") == 5 for u in one)
    nv = nvml("dgx-a100", "n2")
    assert nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetHandleByUUID(two[3])) == 3
    assert code(lambda: nv.nvmlDeviceGetHandleByUUID(one[3])) == nv.NVML_ERROR_NOT_FOUND
    by_bus = nv.nvmlDeviceGetHandleByPciBusId("0000:4E:00.0")
    assert nv.nvmlDeviceGetIndex(by_bus) == 3


def test_mig(nvml: Open) -> None:
    nv = nvml("a100-mig")
    gpu = handles(nv)[0]
    assert nv.nvmlDeviceGetMigMode(gpu) == [1, 1]
    found = []
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except nv.NVMLError_NotFound:
            continue
    names = [nv.nvmlDeviceGetName(mig) for mig in found]
    assert names == [
        f"NVIDIA A100-SXM4-40GB MIG {p}" for p in ("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb")
    ]
    flags = [nv.nvmlDeviceIsMigDeviceHandle(h) for h in (gpu, found[0])]
    assert [getattr(flag, "value", flag) for flag in flags] == [0, 1]
    assert nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found[1])) == 0
    attributes = nv.nvmlDeviceGetAttributes_v2(found[0])
    assert (attributes.multiprocessorCount, attributes.gpuInstanceSliceCount) == (42, 3)
    instance = nv.nvmlDeviceGetGpuInstanceById(gpu, nv.nvmlDeviceGetGpuInstanceId(found[0]))
    info = nv.nvmlGpuInstanceGetInfo(instance)
    assert (info.profileId, info.placement.start, info.placement.size) == (9, 4, 4)
    compute = nv.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    assert nv.nvmlComputeInstanceGetInfo_v2(compute).placement.size == 3
    profile = nv.nvmlDeviceGetGpuInstanceProfileInfo(gpu, nv.NVML_GPU_INSTANCE_PROFILE_1_SLICE)
    assert (profile.id, profile.instanceCount) == (19, 7)
    # A GPU in MIG mode has neither NVLink nor utilisation of its own.
    assert code(lambda: nv.nvmlDeviceGetNvLinkState(gpu, 0)) == nv.NVML_ERROR_NOT_SUPPORTED
    assert code(lambda: nv.nvmlDeviceGetUtilizationRates(gpu)) == nv.NVML_ERROR_NOT_SUPPORTED


def test_a_lost_gpu_says_so_and_the_others_go_on(nvml: Open, tmp_path: Path) -> None:
    machine = {"gpus": [{"bus": f"0000:0{n}:00.0"} for n in range(1, 4)]}
    nv = nvml(machine)
    gpus = handles(nv)
    machine["gpus"][1]["lost"] = True  # type: ignore[assignment]
    fresh = tmp_path / "fresh"
    fresh.write_text(json.dumps(machine))
    fresh.rename(tmp_path / "machine.json")  # while the library is open
    assert code(lambda: nv.nvmlDeviceGetTemperature(gpus[1], 0)) == nv.NVML_ERROR_GPU_IS_LOST
    assert code(lambda: nv.nvmlDeviceGetHandleByIndex(1)) == nv.NVML_ERROR_GPU_IS_LOST
    assert nv.nvmlDeviceGetCount() == 3
    assert nv.nvmlDeviceGetTemperature(gpus[2], 0) > 0
    (tmp_path / "machine.json").write_text("{ broken")
    assert nv.nvmlDeviceGetTemperature(gpus[2], 0) > 0  # what was read stays true


def test_processes_and_health(nvml: Open) -> None:
    nv = nvml(
        {
            "gpus": [
                {
                    "bus": "0000:01:00.0",
                    "util": 87,
                    "ecc_uncorrected": 3,
                    "remapped": [1, 2, 0, 1],
                    "retired": [4096, 8192],
                    "processes": [
                        {"pid": 10, "mem_mib": 100, "util": 40},
                        {"pid": 11, "mem_mib": 50},
                        {"pid": 12, "mem_mib": 5, "graphics": True},
                    ],
                }
            ]
        }
    )
    (gpu,) = handles(nv)
    running = nv.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert [(p.pid, p.usedGpuMemory >> 20) for p in running] == [(10, 100), (11, 50)]
    assert [p.pid for p in nv.nvmlDeviceGetGraphicsRunningProcesses(gpu)] == [12]
    assert nv.nvmlDeviceGetProcessUtilization(gpu, 0)[0].smUtil == 40
    assert nv.nvmlDeviceGetUtilizationRates(gpu).gpu == 87
    assert nv.nvmlDeviceGetTotalEccErrors(gpu, 1, 0) == 3
    assert nv.nvmlDeviceGetRemappedRows(gpu) == (1, 2, 0, 1)
    assert nv.nvmlDeviceGetRetiredPages(gpu, 1) == [4096, 8192]
    assert nv.nvmlDeviceGetAccountingPids(gpu) == [10, 11, 12]
    assert nv.nvmlDeviceGetAccountingStats(gpu, 10).gpuUtilization == 40
    assert nv.nvmlDeviceGetSupportedGraphicsClocks(gpu, 2619)[0] == 1980


def test_xid_events(nvml: Open, tmp_path: Path) -> None:
    nv = nvml({"gpus": [{"bus": "0000:01:00.0"}, {"bus": "0000:02:00.0"}]})
    log = tmp_path / "machine.json.xid"
    log.write_text("1 13\n")  # of the past
    events = nv.nvmlEventSetCreate()
    nv.nvmlDeviceRegisterEvents(handles(nv)[1], nv.nvmlEventTypeXidCriticalError, events)
    assert code(lambda: nv.nvmlEventSetWait(events, 10)) == nv.NVML_ERROR_TIMEOUT

    def write() -> None:
        time.sleep(0.03)
        with log.open("a") as f:
            f.write("0 31\n1 79\n")  # GPU 0 is not registered

    writer = threading.Thread(target=write)
    writer.start()
    event = nv.nvmlEventSetWait(events, 5000)
    writer.join()
    assert (event.eventType, event.eventData) == (8, 79)
    assert nv.nvmlDeviceGetIndex(event.device) == 1
    nv.nvmlEventSetFree(events)
    assert code(lambda: nv.nvmlEventSetWait(events, 10)) == nv.NVML_ERROR_INVALID_ARGUMENT


def test_what_is_not_there_is_not_supported(nvml: Open) -> None:
    nv = nvml("dgx-h100")
    gpu = handles(nv)[0]
    for call in (
        lambda: nv.nvmlDeviceGetFanSpeed(gpu),
        lambda: nv.nvmlDeviceGetEncoderUtilization(gpu),
        lambda: nv.nvmlDeviceCreateGpuInstance(gpu, 19),
        lambda: nv.nvmlDeviceGetNumaNodeId(gpu),
    ):
        assert code(call) == nv.NVML_ERROR_NOT_SUPPORTED
    assert code(lambda: nv.nvmlDeviceGetName(ctypes.c_void_p(0))) == nv.NVML_ERROR_INVALID_ARGUMENT
    nv.nvmlShutdown()
    assert code(lambda: nv.nvmlDeviceGetName(gpu)) == nv.NVML_ERROR_UNINITIALIZED
    nv.nvmlInit()


def test_every_function_of_pynvml_is_there(library: Path) -> None:
    import re

    wanted = set(
        re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"', Path(pynvml.__file__).read_text())
    )
    lib = ctypes.CDLL(str(library))
    missing = {name for name in wanted if not hasattr(lib, name)}
    # A newer pynvml may know more; what this one asks for today is all there or newer than it.
    assert not {name for name in missing if not name.endswith(("_v1", "_v4"))}


def test_the_topologies_that_are_shipped_are_read(nvml: Open) -> None:
    counts = {}
    for name in fake_nvml.topologies():
        counts[name] = nvml(name).nvmlDeviceGetCount()
    eights = dict.fromkeys(("a100-mig", "a100-pcie", "dgx-1v", "dgx-a100", "dgx-h100", "peer"), 8)
    assert counts == {**eights, "gb200": 4}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "ends too early"),
        ("{", "a string was expected"),
        ('{"gpus": 3}', 'no list "gpus"'),
        ('{"gpus": [{}]}', "GPU 0: bus is not like"),
        ('{"gpus": [{"bus": "0000:01:00.0", "cpus": "9-1"}]}', "cpus is no list"),
        ("[" * 100, "nested too deeply"),
        ('{\n"gpus": [],\n}', "line 3"),
    ],
)
def test_a_bad_file_is_named_in_a_sentence(
    nvml: Open, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    monkeypatch.setenv("GSCHED_NVML_TOPOLOGY", str(tmp_path / "bad.json"))
    assert code(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    problem = ctypes.CDLL(str(library)).gsched_nvml_problem
    problem.restype = ctypes.c_char_p
    assert says in problem().decode()


HARNESS = """
#include "topology.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    static struct topology t;
    char why[256];
    int good = 0;
    for (int i = 1; i < argc; i++)
        good += topology_load(&t, argv[i], "n", why, sizeof why) == 0;
    printf("%d\\n", good);
    return 0;
}
"""


def test_fuzzed_files_under_sanitizers(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(HARNESS)
    binary = tmp_path / "fuzz"
    built = subprocess.run(
        [os.environ.get("CC", "cc"), *FLAGS, "-fsanitize=address,undefined", f"-I{SOURCES}"]
        + ["-fno-sanitize-recover=undefined", "-o", str(binary), str(tmp_path / "main.c")]
        + [str(SOURCES / "json.c"), str(SOURCES / "topology.c")],
        capture_output=True,
        text=True,
    )
    if built.returncode:
        assert "sanit" in built.stderr, built.stderr
        pytest.skip("the compiler has no sanitizers")
    rng = random.Random(3)
    seeds = [fake_nvml.topology(name).read_bytes() for name in fake_nvml.topologies()]
    tokens = [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b"\\u12",
        b"1e999",
        b"-",
        b"null",
        b"\0",
        b",",
        b":",
    ]
    tokens += [b"99999999999999999999", b"-1", b"[" * 40, b"\xff", b'"a":', b"0-4095", b"true"]
    paths = []
    for n in range(1500):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(data) + 1)
            kind = rng.randrange(3)
            if kind == 0:
                data[at : at + rng.choice([0, 1, 5, 60])] = rng.choice(tokens)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 40)]
            elif at < len(data):
                data[at] = rng.randrange(256)
        path = tmp_path / f"f{n}"
        path.write_bytes(bytes(data))
        paths.append(str(path))
    done = subprocess.run([binary, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 0 < int(done.stdout) < len(paths)
