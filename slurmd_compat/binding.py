"""What a share of a node means in words: the variables that name its GPUs, the device rules, the
CPU lists. Pure functions; the bit of a GPU is its place in the node's list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gsched.bits import bits
from gsched.model import Gpu

#: NVIDIA's character devices: /dev/nvidiaN is 195:N. The control device (195:255) and nvidia-uvm
#: belong to everybody.
NVIDIA_MAJOR = 195

#: gres.conf's Flags= words for the environment -> the variable they stand for
ENVIRONMENT_FLAGS = {
    "nvidia_gpu_env": "CUDA_VISIBLE_DEVICES",
    "amd_gpu_env": "ROCR_VISIBLE_DEVICES",
    "intel_gpu_env": "ZE_AFFINITY_MASK",
    "opencl_env": "GPU_DEVICE_ORDINAL",
}


def list_text(numbers: Iterable[int]) -> str:
    """A list with ranges, as cpusets and Slurm's Cores= take it: [0, 1, 2, 8] -> "0-2,8"."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def is_mig(gpu: Gpu) -> bool:
    """Whether this is a slice of a GPU."""
    return gpu.uuid.startswith("MIG-")


def visible_devices(
    gpus: Sequence[Gpu],
    bitmap: int,
    constrained: bool,
    numbers: Sequence[int] = (),
    scope: int = 0,
) -> str:
    """The value of CUDA_VISIBLE_DEVICES.

    With the devices constrained (ConstrainDevices=yes and enforced) the job sees only its own, so
    that they count from 0: `scope` are those that it sees, by default these. Otherwise the numbers
    are the machine's: `numbers` of each GPU, by default its place. Where the node has MIG devices
    numbers mean nothing and UUIDs are used.
    """
    own = bits(bitmap)
    if any(is_mig(gpu) for gpu in gpus):
        return ",".join(gpus[bit].uuid for bit in own)
    if constrained:
        seen = bits(scope or bitmap)
        return ",".join(str(seen.index(bit)) for bit in own)
    return ",".join(str(number) for number in _numbered(own, numbers))


def _numbered(own: Iterable[int], numbers: Sequence[int]) -> list[int]:
    return [numbers[bit] if bit < len(numbers) else bit for bit in own]


def gpu_variables(
    gpus: Sequence[Gpu],
    bitmap: int,
    constrained: bool,
    flags: Collection[str] = (),
    autodetect: str = "",
    numbers: Sequence[int] = (),
    scope: int = 0,
    name: str = "SLURM_JOB_GPUS",
) -> dict[str, str]:
    """The environment that tells a job which GPUs it has; {} for a share without GPUs.

    flags are the environment words of gres.conf's Flags= for this node, autodetect its AutoDetect
    ("" or "off": none): without flags AutoDetect=nvml sets CUDA_VISIBLE_DEVICES alone, and a
    list of files sets the variables of all vendors, as Slurm does. `scope` as for visible_devices;
    `name`: the variable with the numbers on the machine (of a step SLURM_STEP_GPUS).
    """
    if not bitmap:
        return {}
    own = _numbered(bits(bitmap), numbers)
    variables = {name: ",".join(str(number) for number in own)}
    given = {flag.lower() for flag in flags} & {*ENVIRONMENT_FLAGS, "no_gpu_env"}
    if "no_gpu_env" in given:
        return variables
    if not given:
        given = {"nvidia_gpu_env"} if autodetect.lower() == "nvml" else set(ENVIRONMENT_FLAGS)
    visible = visible_devices(gpus, bitmap, constrained, numbers, scope)
    for flag, variable in ENVIRONMENT_FLAGS.items():
        if flag in given:
            variables[variable] = visible
    return variables


def share_variables(name: str, count: int, parts: int) -> dict[str, str]:
    """What a job with `count` of the `parts` of its GPU is told of them: how many shards, or how
    much of the GPU's threads MPS may let it use."""
    if name == "mps":
        percent = 100 * count / max(parts, 1)
        text = f"{percent:.2f}".rstrip("0").rstrip(".")
        return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": text}
    return {"SLURM_SHARDS_ON_NODE": str(count)}


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """Device rules in the words of cgroup v1, "c MAJOR:MINOR"."""

    allow: tuple[str, ...]
    deny: tuple[str, ...]


def device_rules(
    gpus: Sequence[Gpu], bitmap: int, foreign: Iterable[int] = (), caps_major: int = 0
) -> DeviceRules:
    """Which GPUs' devices a share may open and which not. `foreign` are the minors of GPUs that
    the machine has beside the node's. GPUs without a known minor are left out:
    there is no device to name. The slices of one GPU share its device, so that it is open as soon
    as one of them is in the share; what keeps them apart are the devices of the slices themselves,
    of the driver's nvidia-caps (`caps_major`, 0 unknown).
    """
    own = {gpus[bit].minor for bit in bits(bitmap) if bit < len(gpus)} - {-1}
    others = ({gpu.minor for gpu in gpus} | {*foreign}) - own - {-1}
    caps = {cap for bit in bits(bitmap) if bit < len(gpus) for cap in gpus[bit].caps}
    # Several compute instances of one GPU instance share the device of that.
    barred = {cap for gpu in gpus for cap in gpu.caps} - caps
    if not caps_major:
        caps = barred = set()
    return DeviceRules(
        allow=_rules(own, caps, caps_major),
        deny=_rules(others, barred, caps_major),
    )


def _rules(minors: Iterable[int], caps: Iterable[int], caps_major: int) -> tuple[str, ...]:
    return (
        *(f"c {NVIDIA_MAJOR}:{minor}" for minor in sorted(minors)),
        *(f"c {caps_major}:{cap}" for cap in sorted(caps)),
    )


def caps_major(devices: str) -> int:
    """The number of the driver's devices for MIG in the text of /proc/devices; 0 not there."""
    for line in devices.splitlines():
        number, _, name = line.strip().partition(" ")
        if name == "nvidia-caps" and number.isdigit():
            return int(number)
    return 0


def device_files(gpus: Sequence[Gpu], bitmap: int) -> list[str]:
    """The device files of a share, in the order of their bits, each once."""
    own = [gpus[bit] for bit in bits(bitmap)]
    files = [f"/dev/nvidia{gpu.minor}" for gpu in own if gpu.minor >= 0]
    files += [f"/dev/nvidia-caps/nvidia-cap{cap}" for gpu in own for cap in gpu.caps]
    return list(dict.fromkeys(files))


def abstract_order(machine: Iterable[tuple[int, int, int]]) -> list[int]:
    """The machine's CPU for each of Slurm's abstract CPU numbers.

    Slurm counts socket by socket, core by core, thread by thread; kernels often count the second
    threads last. `machine` has (CPU, socket, core) rows.
    """
    return [cpu for cpu, _, _ in sorted(machine, key=lambda row: (row[1], row[2], row[0]))]


def machine_cpus(cpu_ids: int, order: Sequence[int]) -> list[int] | None:
    """The machine's CPUs for a bitmap of abstract ones; None when the machine does not have them
    all (a simulated node)."""
    wanted = bits(cpu_ids)
    if wanted and wanted[-1] >= len(order):
        return None
    return sorted(order[number] for number in wanted)
