"""The GPUs of this machine through NVML: inventory, links, MIG, health, use, and whose they are.

pynvml is imported here and only here, and only when a library is opened: it costs 55 ms.
Nothing here raises because of hardware: what is missing or broken comes back as a sentence.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from gsched import model
from slurmd_compat import fake_nvml

#: NVML's levels of PCIe closeness in the words of `nvidia-smi topo -m`.
LEVELS = {0: "INT", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}

MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS
_CPU_WORDS = 64  # 4096 CPUs
_PCI = Path("/sys/bus/pci/devices")
#: what the driver says of the devices that open the slices of a GPU
MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
_CAP = re.compile(r"gpu(\d+)/gi(\d+)/(?:ci(\d+)/)?access (\d+)")


class Mig(msgspec.Struct, frozen=True):
    """One MIG device: a slice of a GPU that is given out as a GPU of its own."""

    index: int
    uuid: str
    #: numbers of the GPU instance and of the compute instance in it
    gi: int
    ci: int
    #: as the driver names it, e.g. "3g.20gb"
    profile: str
    #: Slurm's gres type, made from the driver's name
    type: str
    memory_mib: int
    #: first memory slice and how many; -1 unknown
    start: int = -1
    size: int = 0


class Gpu(msgspec.Struct):
    """One GPU as NVML shows it."""

    index: int
    uuid: str
    #: N of /dev/nvidiaN; -1 unknown
    minor: int
    bus_id: str
    name: str
    #: Slurm's gres type as AutoDetect makes it: lower case, blanks as underscores
    type: str
    memory_mib: int
    #: NUMA node near it; -1 unknown
    numa: int = -1
    #: CPUs near it as list text, "0-55,112-167"; "" unknown
    cpus: str = ""
    mig_mode: bool = False
    mig: list[Mig] = []


class Fault(msgspec.Struct, frozen=True):
    """Why one GPU is out of service."""

    index: int
    #: "" when it was never seen in good health
    uuid: str
    reason: str


class Use(msgspec.Struct, frozen=True):
    """How busy one GPU is; -1 where the driver does not say (MIG mode)."""

    index: int
    uuid: str
    gpu_percent: int
    memory_percent: int
    memory_used_mib: int
    temperature_c: int
    power_w: int
    pids: tuple[int, ...]


class Detected(msgspec.Struct):
    """All that is known of a node's GPUs at one moment."""

    gpus: list[Gpu] = []
    #: NVLinks between gpus[i] and gpus[j] (through NVSwitch: all of them); 0 on the diagonal
    links: list[list[int]] = []
    #: PCIe closeness of gpus[i] and gpus[j], a key of LEVELS
    levels: list[list[int]] = []
    faults: list[Fault] = []
    driver: str = ""
    #: why there is no GPU, one sentence; "" when NVML answered
    reason: str = ""


def type_of(name: str) -> str:
    """Slurm's gres type for a product name: "NVIDIA H100 80GB HBM3" -> "nvidia_h100_80gb_hbm3"."""
    return name.lower().replace(" ", "_")


def mig_type(gpu: str, profile: str) -> str:
    """Slurm's gres type for a slice: the GPU's up to the first hyphen, and the profile:
    "NVIDIA A100-SXM4-40GB", "1g.5gb" -> "nvidia_a100_1g.5gb"."""
    return f"{type_of(gpu).partition('-')[0]}_{profile.lower()}"


def mig_caps(text: str) -> dict[tuple[int, int, int], list[int]]:
    """(minor of the GPU, GPU instance, compute instance) -> minors of the /dev/nvidia-caps devices
    that a process must open for that slice, from what the driver lists in mig-minors."""
    gi: dict[tuple[int, int], int] = {}
    ci: dict[tuple[int, int, int], int] = {}
    for line in text.splitlines():
        found = _CAP.fullmatch(line.strip())
        if found is None:
            continue
        gpu, instance, number = int(found[1]), int(found[2]), int(found[4])
        if found[3] is None:
            gi[gpu, instance] = number
        else:
            ci[gpu, instance, int(found[3])] = number
    return {key: sorted({gi[key[:2]], cap}) for key, cap in ci.items() if key[:2] in gi}


def matches(detected: str, configured: str) -> bool:
    """Whether gres.conf's Type= names a detected type: equal to it or a part of it, in any case."""
    return type_of(configured) in type_of(detected)


def configured_type(detected: str, configured: Iterable[str]) -> str:
    """The type a GPU goes by: the longest of the configured ones that matches, else its own."""
    return max((c for c in configured if c and matches(detected, c)), key=len, default=detected)


def cpu_text(cpus: Iterable[int]) -> str:
    """List text of CPU numbers: {0, 1, 2, 8} -> "0-2,8"."""
    parts: list[str] = []
    run: list[int] = []
    for cpu in [*sorted(set(cpus)), None]:
        if run and cpu is not None and cpu == run[-1] + 1:
            run.append(cpu)
            continue
        if run:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
        run = [] if cpu is None else [cpu]
    return ",".join(parts)


class Nvml:
    """An open NVML. Keep one for the life of a daemon: opening a real driver costs 10-1000 ms.
    One at a time in a process: the library knows one machine.

    `library` is the path of libnvidia-ml.so.1 (None: the system's, or the fake one when a topology
    is given). `topology` and `node` describe the machine to the fake library and mean nothing to a
    real one. If it cannot be opened, `reason` is a sentence and all answers are empty.
    """

    def __init__(self, library: str | None, topology: str | None, node: str) -> None:
        self.reason = ""
        self.driver = ""
        self._nvml: Any = None
        self._seen: dict[int, str] = {}
        self._links_up: dict[int, set[int]] = {}
        self._events: Any = None
        try:
            if topology is not None:
                os.environ["GSCHED_NVML_TOPOLOGY"] = str(topology)
                os.environ["GSCHED_NVML_NODE"] = node
                library = library or str(fake_nvml.library())
            self._open(library)
        except ImportError:
            self.reason = "no GPUs: the Python package nvidia-ml-py is not installed"
        except OSError as error:
            self.reason = f"no GPUs: {error}"

    def _open(self, library: str | None) -> None:
        import pynvml

        name = library or "libnvidia-ml.so.1"
        try:
            lib = ctypes.CDLL(name)
        except OSError as error:
            self.reason = f"no GPUs: the NVML library {name} cannot be loaded: {error}"
            return
        # Handed over ready-made, so that a path works; what pynvml cached is of another library.
        pynvml.nvmlLib = lib
        getattr(pynvml, "_nvmlGetFunctionPointer_cache", {}).clear()
        try:
            pynvml.nvmlInit()
            self.driver = _text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            why = _problem_of_fake(lib) or str(error)
            self.reason = f"no GPUs: NVML ({name}) does not start: {why}"
            return
        self._nvml = pynvml

    def __enter__(self) -> Nvml:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives NVML back; every later question has an empty answer."""
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            if self._events is not None:
                _try(nvml, nvml.nvmlEventSetFree, self._events)
            _try(nvml, nvml.nvmlShutdown)

    def _handles(self) -> Iterator[tuple[int, Any, str]]:
        """(index, handle, "") of each GPU, or (index, None, reason) of one that does not answer."""
        nvml = self._nvml
        count = 0 if nvml is None else _try(nvml, nvml.nvmlDeviceGetCount, otherwise=0)
        for index in range(count):
            try:
                yield index, nvml.nvmlDeviceGetHandleByIndex(index), ""
            except nvml.NVMLError as error:
                yield index, None, str(error)

    def _one(self, index: int, handle: Any) -> Gpu:
        """Raises NVMLError when the GPU does not even say who it is."""
        nvml = self._nvml
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        name = _text(nvml.nvmlDeviceGetName(handle))
        bus = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
        gpu = Gpu(
            index=index,
            uuid=uuid,
            minor=_try(nvml, nvml.nvmlDeviceGetMinorNumber, handle, otherwise=-1),
            bus_id=bus,
            name=name,
            type=type_of(name),
            memory_mib=nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
            numa=self._numa(handle, bus),
        )
        words = _try(nvml, nvml.nvmlDeviceGetCpuAffinity, handle, _CPU_WORDS, otherwise=())
        gpu.cpus = cpu_text(
            64 * w + b for w, word in enumerate(words) for b in range(64) if word >> b & 1
        )
        mode = _try(nvml, nvml.nvmlDeviceGetMigMode, handle, otherwise=[0])
        gpu.mig_mode = mode[0] == 1
        gpu.mig = list(self._migs(handle)) if gpu.mig_mode else []
        return gpu

    def _numa(self, handle: Any, bus: str) -> int:
        nvml = self._nvml
        words = _try(nvml, nvml.nvmlDeviceGetMemoryAffinity, handle, 4, 0, otherwise=())
        for w, word in enumerate(words):
            if word:
                return int(64 * w + (word & -word).bit_length() - 1)
        try:  # sysfs writes the domain with four digits
            return int((_PCI / bus.lower()[-12:] / "numa_node").read_text())
        except (OSError, ValueError):
            return -1

    def _migs(self, handle: Any) -> Iterator[Mig]:
        nvml = self._nvml
        most = _try(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle, otherwise=0)
        for index in range(most):  # numbers may have holes: not found does not mean the last
            mig = _try(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            if mig is None:
                continue
            try:
                uuid = _text(nvml.nvmlDeviceGetUUID(mig))
                name = _text(nvml.nvmlDeviceGetName(mig))
                gi = nvml.nvmlDeviceGetGpuInstanceId(mig)
                ci = nvml.nvmlDeviceGetComputeInstanceId(mig)
                memory = nvml.nvmlDeviceGetMemoryInfo(mig).total >> 20
            except nvml.NVMLError:
                continue  # taken apart while we looked
            start, size = -1, 0
            instance = _try(nvml, nvml.nvmlDeviceGetGpuInstanceById, handle, gi)
            info = instance and _try(nvml, nvml.nvmlGpuInstanceGetInfo, instance)
            if info:
                start, size = int(info.placement.start), int(info.placement.size)
            profile = name.rpartition("MIG ")[2]
            kind = mig_type(name.partition(" MIG ")[0], profile)
            yield Mig(index, uuid, gi, ci, profile, kind, memory, start, size)

    def detect(self) -> Detected:
        """Everything about all GPUs. Cost: about 8 ms for 8 GPUs with 18 links (fake library)."""
        found = Detected(driver=self.driver, reason=self.reason)
        handles: list[Any] = []
        for index, handle, problem in self._handles():
            if not problem:
                try:
                    found.gpus.append(self._one(index, handle))
                    handles.append(handle)
                    self._seen[index] = found.gpus[-1].uuid
                    continue
                except self._nvml.NVMLError as error:
                    problem = str(error)
            found.faults.append(Fault(index, self._seen.get(index, ""), problem))
        found.links = self._link_matrix(found.gpus, handles)
        found.levels = self._level_matrix(handles)
        # The GPUs that do not answer are named already; here come those that answer and are ill.
        for gpu, handle in zip(found.gpus, handles, strict=True):
            reason = self._illness(gpu.index, handle)
            if reason:
                found.faults.append(Fault(gpu.index, gpu.uuid, reason))
        if not self.reason and not found.gpus and not found.faults:
            found.reason = "no GPUs: NVML lists none"
        return found

    def _link_matrix(self, gpus: Sequence[Gpu], handles: Sequence[Any]) -> list[list[int]]:
        nvml = self._nvml
        place = {gpu.bus_id.upper(): at for at, gpu in enumerate(gpus)}
        matrix = [[0] * len(gpus) for _ in gpus]
        to_switch = [0] * len(gpus)
        for at, handle in enumerate(handles):
            up = set()
            for link in range(MAX_LINKS):
                try:
                    if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                        continue
                    remote = _text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
                except nvml.NVMLError:
                    break  # past the last link, or no NVLink at all
                up.add(link)
                peer = place.get(remote.upper())
                if peer is not None:
                    matrix[at][peer] += 1
                    continue
                kind = _try(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
                to_switch[at] += kind in (None, nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)
            self._links_up.setdefault(gpus[at].index, up)
        for i in range(len(gpus)):
            for j in range(len(gpus)):
                if i != j:
                    matrix[i][j] += min(to_switch[i], to_switch[j])
        return matrix

    def _level_matrix(self, handles: Sequence[Any]) -> list[list[int]]:
        nvml = self._nvml
        matrix = [[0] * len(handles) for _ in handles]
        for i, a in enumerate(handles):
            for j in range(i):
                level = _try(
                    nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, a, handles[j], otherwise=50
                )
                matrix[i][j] = matrix[j][i] = int(level)
        return matrix

    def _illness(self, index: int, handle: Any) -> str:
        """Why a GPU that answers must not be given out; "" if it is well."""
        nvml = self._nvml
        rows = _try(nvml, nvml.nvmlDeviceGetRemappedRows, handle, otherwise=(0, 0, 0, 0))
        if rows[3]:
            return "row remapping failed: the GPU must be replaced"
        if rows[2]:
            return "row remapping pending: the GPU must be reset"
        if _try(nvml, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle, otherwise=0):
            return "page retirement pending: the GPU must be reset"
        errors = _try(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, 1, 0, otherwise=0)
        if errors:
            return f"{errors} uncorrectable ECC errors since the driver was loaded"
        down = [
            str(link)
            for link in sorted(self._links_up.get(index, ()))
            if not _try(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link, otherwise=1)
        ]
        return f"NVLink down that was up before: {','.join(down)}" if down else ""

    def faults(self) -> list[Fault]:
        """The health check: which GPUs are out of service and why. Cost: 0.1 ms a GPU (fake)."""
        found = []
        for index, handle, problem in self._handles():
            reason = problem or self._illness(index, handle)
            if reason:
                found.append(Fault(index, self._seen.get(index, ""), reason))
        return found

    def utilisation(self) -> list[Use]:
        """How busy the GPUs that answer are. Cost: 30 us a GPU (fake)."""
        nvml = self._nvml
        uses = []
        for index, handle, problem in self._handles():
            if problem:
                continue
            rates = _try(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
            memory = _try(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
            running = _try(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle, otherwise=())
            power = _try(nvml, nvml.nvmlDeviceGetPowerUsage, handle, otherwise=-1000)
            uses.append(
                Use(
                    index=index,
                    uuid=self._seen.get(index, ""),
                    gpu_percent=rates.gpu if rates else -1,
                    memory_percent=rates.memory if rates else -1,
                    memory_used_mib=memory.used >> 20 if memory else -1,
                    temperature_c=_try(
                        nvml, nvml.nvmlDeviceGetTemperature, handle, 0, otherwise=-1
                    ),
                    power_w=power // 1000,
                    pids=tuple(process.pid for process in running),
                )
            )
        return uses

    def wait_event(self, timeout_ms: int) -> tuple[int, int] | None:
        """Waits for an Xid: (index, Xid), or None after the timeout. Blocks: use a thread."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for _, handle, problem in self._handles():
                    if not problem:
                        _try(nvml, nvml.nvmlDeviceRegisterEvents, handle, 0x8, self._events)
            event = nvml.nvmlEventSetWait(self._events, timeout_ms)
            return int(nvml.nvmlDeviceGetIndex(event.device)), int(event.eventData)
        except nvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _try(nvml: Any, function: Any, *args: Any, otherwise: Any = None) -> Any:
    """The answer of NVML, or `otherwise` where this driver or GPU does not have one."""
    try:
        return function(*args)
    except nvml.NVMLError:
        return otherwise


def _problem_of_fake(lib: ctypes.CDLL) -> str:
    try:
        function = lib.gsched_nvml_problem
    except AttributeError:
        return ""
    function.restype = ctypes.c_char_p
    return _text(function() or b"")


def detect(library: str | None, topology: str | None, node: str) -> Detected:
    """Opens NVML, asks everything, closes it. Never raises; see `Detected.reason`."""
    with Nvml(library, topology, node) as nvml:
        return nvml.detect()


def inventory(library: str | None, topology: str | None, node: str) -> list[Gpu]:
    """The GPUs in good enough health to name themselves; [] where there are none."""
    return detect(library, topology, node).gpus


def link_matrix(library: str | None, topology: str | None, node: str) -> list[list[int]]:
    """NVLinks between the GPUs of `inventory`, by their place in it; 0 on the diagonal."""
    return detect(library, topology, node).links


def slices(found: Detected) -> dict[str, list[str]]:
    """UUID of each GPU in MIG mode -> those of its slices, which share its fate."""
    return {gpu.uuid: [mig.uuid for mig in gpu.mig] for gpu in found.gpus if gpu.mig_mode}


def allocatable(
    found: Detected,
    types: Iterable[str] = (),
    caps: Mapping[tuple[int, int, int], list[int]] | None = None,
) -> list[model.node.Gpu]:
    """What the node can give out, as the controller keeps it: whole GPUs, and the MIG devices of
    GPUs in MIG mode. `types` are the Type= words of gres.conf for this node, `caps` what
    `mig_caps` found.

    A GPU that does not name itself is absent; one that is ill carries its fault. MIG devices
    have no links. A GPU in MIG mode without instances offers nothing.
    """
    types = tuple(types)
    ill = {fault.uuid: fault.reason for fault in found.faults if fault.uuid}
    out: list[model.node.Gpu] = []
    places: dict[int, int] = {}  # row of `found.links` -> bit
    for row, gpu in enumerate(found.gpus):
        common = {
            "minor": gpu.minor,
            "numa": gpu.numa,
            "cores": gpu.cpus,
            "bus_id": gpu.bus_id,
            "fault": ill.get(gpu.uuid, ""),
        }
        if not gpu.mig_mode:
            places[row] = len(out)
            kind = configured_type(gpu.type, types)
            out.append(_model(gpu.uuid, kind, gpu.memory_mib, gpu.name, common))
        for mig in gpu.mig:
            kind = configured_type(mig.type, types)
            name = f"{gpu.name} MIG {mig.profile}"
            device = _model(mig.uuid, kind, mig.memory_mib, name, common)
            device.caps = list((caps or {}).get((gpu.minor, mig.gi, mig.ci), ()))
            out.append(device)
    for device in out:
        device.links = [0] * len(out)
    for row, bit in places.items():
        for other, other_bit in places.items():
            out[bit].links[other_bit] = found.links[row][other]
    return out


def _model(uuid: str, kind: str, mib: int, name: str, common: dict[str, Any]) -> model.node.Gpu:
    return model.node.Gpu(uuid=uuid, type=kind, memory_mib=mib, name=name, **common)


class Claim:
    """The GPUs that this process holds against every other daemon of the machine.

    The locks are the kernel's (flock): they go with the process, however it ends.
    """

    def __init__(self, held: dict[str, int], refused: dict[str, str]) -> None:
        self._held = held
        #: uuid -> sentence: who has it
        self.refused = refused

    @property
    def held(self) -> tuple[str, ...]:
        """The UUIDs that are ours, in the order asked for."""
        return tuple(self._held)

    def release(self, uuids: Iterable[str] | None = None) -> None:
        """Lets go of some (None: all)."""
        for uuid in list(self._held if uuids is None else uuids):
            fd = self._held.pop(uuid, None)
            if fd is not None:
                os.close(fd)


def _own(directory: Path) -> None:
    """Makes the directory of the locks. Where anybody may make directories (/run/lock) an ordinary
    user may have made it before root: that one is set aside."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    found = directory.lstat()
    if os.geteuid() == 0 and (found.st_uid != 0 or not stat.S_ISDIR(found.st_mode)):
        directory.rename(directory.with_name(f"{directory.name}.{os.urandom(8).hex()}"))
        directory.mkdir(mode=0o755)


def claim(uuids: Iterable[str], lock_dir: str | Path, owner: str = "") -> Claim:
    """Locks each UUID for this process, host-wide among those that use the same `lock_dir`.

    `owner` (node and cluster) is what the others read when they are refused. Never raises: what
    cannot be locked is in `refused` with a sentence. Simulated GPUs of different clusters may
    have equal UUIDs; give those clusters lock directories of their own.
    """
    held: dict[str, int] = {}
    refused: dict[str, str] = {}
    directory = Path(lock_dir)
    with contextlib.suppress(OSError):
        _own(directory)
    for uuid in uuids:
        if uuid in held:
            continue
        if not uuid or "/" in uuid:
            refused[uuid] = f"not a GPU's UUID: {uuid!r}"
            continue
        path = directory / f"{uuid}.lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o600)
            # Whoever may read it could lock it, too.
            os.fchmod(fd, 0o600)
        except OSError as error:
            refused[uuid] = f"GPU {uuid} cannot be locked: {path}: {error.strerror}"
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = os.pread(fd, 200, 0).decode(errors="replace").strip()
            refused[uuid] = f"GPU {uuid} belongs to another daemon: {other or 'unknown'}"
            os.close(fd)
            continue
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} {owner}\n".encode(errors="replace"), 0)
        held[uuid] = fd
    return Claim(held, refused)
