"""What this node has to offer: GPUs by gres.conf and NVML, CPUs and memory, and their health."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path

from gsched import SLURM_VERSION
from gsched.config import Config, GresLine, NodeConfig
from gsched.model import Gpu
from gsched.wire.codec import PROTOCOL
from gsched.wire.nodes import Register
from slurmd_compat import gpus
from slurmd_compat.binding import is_mig

#: where daemons of one machine agree on whose a real GPU is
LOCKS = "/run/lock/gsched"
LOCKS_OF_USERS = "/tmp/gsched-gpu-locks"
#: seconds between looks at the health of the GPUs
HEALTH_S = 30.0


def boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def uptime_s() -> int:
    return int(float(Path("/proc/uptime").read_text().split()[0]))


def memory_mb() -> tuple[int, int]:
    """(all, available) memory of the machine, MB."""
    found = {"MemTotal": 0, "MemAvailable": 0}
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) >> 10
    return found["MemTotal"], found["MemAvailable"]


def cpu_load() -> int:
    """The one-minute load, times 100."""
    try:
        return int(os.getloadavg()[0] * 100)
    except OSError:
        return -1


def machine_cpus() -> tuple[int, int, int]:
    """(sockets, cores per socket, threads per core) of the CPUs this process may use."""
    packages: set[str] = set()
    cores: set[tuple[str, str]] = set()
    cpus = sorted(os.sched_getaffinity(0))
    for cpu in cpus:
        base = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            package = (base / "physical_package_id").read_text().strip()
            core = (base / "core_id").read_text().strip()
        except OSError:
            return 1, len(cpus), 1
        packages.add(package)
        cores.add((package, core))
    sockets, count = len(packages), len(cores)
    if len(cpus) % count or count % sockets:
        return 1, len(cpus), 1
    return sockets, count // sockets, len(cpus) // count


def _caps(simulated: bool) -> dict[tuple[int, int, int], list[int]]:
    if simulated:
        return {}
    try:
        return gpus.mig_caps(gpus.MIG_MINORS.read_text())
    except OSError:
        return {}


def _named(gpu: Gpu, lines: list[GresLine]) -> bool:
    """Whether lines of gres.conf name a GPU or slice by its files; it takes their type. A slice is
    named by its GPU (File), or by itself (MultipleFiles)."""
    device = f"/dev/nvidia{gpu.minor}"
    caps = {f"/dev/nvidia-caps/nvidia-cap{number}" for number in gpu.caps}
    for line in lines:
        if device in line.files:
            # One line for all slices of a GPU cannot say what kind each is.
            gpu.type = gpu.type if gpu.caps or is_mig(gpu) else line.type or gpu.type
            return True
        if device in line.multiple_files and caps and caps <= {*line.multiple_files}:
            gpu.type = line.type or gpu.type
            return True
    return False


class Inventory:
    """The GPUs of a node and the locks that make them its own. Keep it for the daemon's life."""

    def __init__(self, config: Config, node: NodeConfig) -> None:
        """Opens NVML where gres.conf asks for it and the node is to have GPUs. Never raises
        because of hardware: `problems` has the sentences."""
        self.config = config
        self.node = node
        self.problems: list[str] = []
        self.gpus: list[Gpu] = []
        #: the machine's number of each GPU: not its place where other nodes have a share of them
        self.numbers: list[int] = []
        #: minor numbers of the machine's GPUs that are not this node's
        self.foreign: list[int] = []
        #: UUID of a GPU in MIG mode -> those of its slices
        self.slices: dict[str, list[str]] = {}
        self.nvml: gpus.Nvml | None = None
        self._claim: gpus.Claim | None = None
        self.simulated = bool(config.nvml_topology)
        if node.gpus:
            self._find()

    def _find(self) -> None:
        node, config = self.node, self.config
        lines = config.gres_lines(node.name)
        found: list[Gpu] = []
        numbers: dict[str, int] = {}
        if config.autodetect(node.name) == "nvml":
            self.nvml = gpus.Nvml(
                node.expand(config.nvml_library) or None,
                node.expand(config.nvml_topology) or None,
                node.name,
            )
            detected = self.nvml.detect()
            if detected.reason:
                self.problems.append(detected.reason)
            self.problems += [f"GPU {f.index}: {f.reason}" for f in detected.faults]
            types = [*node.gpu_types, *(line.type for line in lines if line.type)]
            found = gpus.allocatable(detected, types, _caps(self.simulated))
            self.slices = gpus.slices(detected)
            if not self.slices:
                # Slices have no number of their own: beside them all go by their places.
                numbers = {gpu.uuid: gpu.index for gpu in detected.gpus}
        machine = found
        named = [line for line in lines if line.files or line.multiple_files]
        if found and named:
            # The lines say which of the machine's GPUs are this node's.
            found = [gpu for gpu in found if _named(gpu, named)]
        elif not found and self.nvml is None:
            found = machine = self._from_lines()
        if len(found) > node.gpus:
            self.problems.append(
                f"{len(found)} GPUs found, {node.gpus} configured: the first {node.gpus} are used"
            )
            found = found[: node.gpus]
        own = {gpu.uuid for gpu in found}
        places = [place for place, gpu in enumerate(machine) if gpu.uuid in own]
        for gpu in found:
            gpu.links = [gpu.links[at] if at < len(gpu.links) else 0 for at in places]
        self.gpus = found
        self.numbers = [numbers.get(machine[at].uuid, at) for at in places]
        minors = {gpu.minor for gpu in found} | {-1}
        self.foreign = sorted({gpu.minor for gpu in machine} - minors)

    def _from_lines(self) -> list[Gpu]:
        """GPUs as gres.conf alone describes them; without a line, as Gres= counts them."""
        found: list[Gpu] = []
        name = self.node.name
        for line in self.config.gres_lines(name):
            # The files of MultipleFiles are together one device.
            files = line.files or line.multiple_files[:1] * line.count or ("",) * line.count
            for path in files:
                digits = path[len(path.rstrip("0123456789")) :]
                found.append(
                    Gpu(
                        uuid=f"GRES-{name}-gpu-{len(found)}",
                        type=line.type,
                        minor=int(digits) if digits else -1,
                        cores=gpus.cpu_text(line.cores),
                        links=[max(0, link) for link in line.links],
                        name=path,
                    )
                )
        if not found:
            for item in self.node.gres:
                if item.name == "gpu":
                    for _ in range(item.count):
                        found.append(Gpu(uuid=f"GRES-{name}-gpu-{len(found)}", type=item.type))
        return found

    def claim(self) -> None:
        """Takes the GPUs for this process, against every other daemon of the machine. What is
        another's keeps its place with a fault."""
        if self._claim is not None or not self.gpus:
            return
        if self.simulated or self.nvml is None:
            lock_dir = os.path.join(self.config.run_dir, "gpu-locks")
        else:
            lock_dir = LOCKS if os.geteuid() == 0 else LOCKS_OF_USERS
        owner = f"node {self.node.name} of cluster {self.config.cluster_name}"
        self._claim = gpus.claim([gpu.uuid for gpu in self.gpus], lock_dir, owner)
        for gpu in self.gpus:
            refusal = self._claim.refused.get(gpu.uuid, "")
            if refusal:
                gpu.fault = refusal
                self.problems.append(refusal)

    def close(self) -> None:
        """Gives the GPUs back to whoever asks for them next."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None
        if self.nvml is not None:
            self.nvml.close()

    def facts(self) -> Register:
        """The hardware part of a registration. With SlurmdParameters=config_overrides the numbers
        of slurm.conf stand, as in Slurm."""
        node = self.node
        sockets, cores, threads = machine_cpus()
        cpus, mem_mb = sockets * cores * threads, memory_mb()[0]
        if "config_overrides" in self.config.slurmd_parameters:
            cpus, mem_mb = node.cpus, node.real_memory
        system = os.uname()
        tmp_mb = 0
        with contextlib.suppress(OSError):
            room = os.statvfs(self.config.tmp_fs)
            tmp_mb = room.f_blocks * room.f_frsize >> 20
        return Register(
            protocol=PROTOCOL,
            node=node.name,
            cluster="",
            boot_id=boot_id(),
            session="",
            epoch=0,
            version=SLURM_VERSION,
            cpus=cpus,
            mem_mb=mem_mb,
            gpus=self.gpus,
            attempts=[],
            uptime_s=uptime_s(),
            arch=platform.machine(),
            os=f"{system.sysname} {system.release} {system.version}",
            tmp_disk_mb=tmp_mb,
            conf=self.config.checksum,
            gres_conf=self.config.gres_checksum(node.name),
        )

    def by_uuid(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


class HealthWatch:
    """Looks after the GPUs in a thread of its own: a driver may hang where the daemon must not.

    `wake` is called from that thread when something changed; `faults` then has a sentence for
    every GPU that ever was ill ("" where it is well again).
    """

    def __init__(self, inventory: Inventory, wake: Callable[[], None]) -> None:
        self._inventory = inventory
        self._wake = wake
        self.faults: dict[str, str] = {}
        self._stop = threading.Event()
        if inventory.nvml is not None and inventory.gpus:
            threading.Thread(target=self._run, name="gpu-health", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        nvml = self._inventory.nvml
        assert nvml is not None
        mine = {gpu.uuid for gpu in self._inventory.gpus}
        refused = {gpu.uuid for gpu in self._inventory.gpus if "belongs to" in gpu.fault}
        last = {gpu.uuid: gpu.fault for gpu in self._inventory.gpus if gpu.fault}
        slices = self._inventory.slices
        while not self._stop.wait(HEALTH_S):
            try:
                found = {
                    uuid: fault.reason
                    for fault in nvml.faults()
                    # What is wrong with a GPU is wrong with its slices.
                    for uuid in (fault.uuid, *slices.get(fault.uuid, ()))
                }
                now = {uuid: why for uuid, why in found.items() if uuid in mine - refused}
            except Exception:  # a driver in trouble must not end the watch over it
                continue
            for uuid in refused:
                now[uuid] = last.get(uuid, "")
            if now != last:
                healed = {uuid: "" for uuid in {**last, **self.faults} if uuid not in now}
                self.faults = {**healed, **now}
                last = now
                self._wake()
