"""What a share of a node is called: values from Slurm's transcripts and manual pages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gsched.model import Gpu
from slurmd_compat import binding

NODE = [Gpu(uuid=f"GPU-{n}", minor=n) for n in range(8)]


def test_the_variables_of_the_transcript() -> None:
    """26.05/018: the first two of eight GPUs listed by file."""
    for constrained in (False, True):
        assert binding.gpu_variables(NODE, 0b11, constrained) == {
            "SLURM_JOB_GPUS": "0,1",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "GPU_DEVICE_ORDINAL": "0,1",
            "ROCR_VISIBLE_DEVICES": "0,1",
            "ZE_AFFINITY_MASK": "0,1",
        }


def test_constrained_devices_count_from_zero() -> None:
    given_away = 0b10110000
    assert binding.visible_devices(NODE, given_away, constrained=True) == "0,1,2"
    assert binding.visible_devices(NODE, given_away, constrained=False) == "4,5,7"
    variables = binding.gpu_variables(NODE, given_away, constrained=True)
    assert variables["SLURM_JOB_GPUS"] == "4,5,7"  # always the node's numbers
    assert variables["ROCR_VISIBLE_DEVICES"] == "0,1,2"


def test_flags_of_gres_conf() -> None:
    """gres.conf(5): AutoDetect=nvml sets nvidia_gpu_env; flags override; no_gpu_env sets none."""

    def names(flags: tuple[str, ...], autodetect: str = "") -> set[str]:
        found = set(binding.gpu_variables(NODE, 1, False, flags, autodetect))
        return found - {"SLURM_JOB_GPUS"}

    assert names((), "nvml") == {"CUDA_VISIBLE_DEVICES"}
    assert names(("amd_gpu_env",), "nvml") == {"ROCR_VISIBLE_DEVICES"}
    assert names(("opencl_env", "intel_gpu_env")) == {"GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}
    assert names(("no_gpu_env",)) == set()
    assert len(names((), "off")) == 4


def test_no_gpus_no_variables() -> None:
    assert binding.gpu_variables(NODE, 0, True) == {}


def test_mig_devices_go_by_uuid() -> None:
    node = [Gpu(uuid="MIG-a", minor=0), Gpu(uuid="MIG-b", minor=0), Gpu(uuid="GPU-c", minor=1)]
    assert binding.visible_devices(node, 0b101, constrained=True) == "MIG-a,GPU-c"
    assert binding.gpu_variables(node, 0b010, True)["SLURM_JOB_GPUS"] == "1"
    # One slice opens the device of its GPU; the other GPU's stays shut.
    assert binding.device_rules(node, 0b010) == binding.DeviceRules(("c 195:0",), ("c 195:1",))
    assert binding.device_files(node, 0b011) == ["/dev/nvidia0"]


def test_device_rules_use_minors_not_places() -> None:
    node = [Gpu(uuid="a", minor=3), Gpu(uuid="b", minor=0), Gpu(uuid="c", minor=-1)]
    rules = binding.device_rules(node, 0b001)
    assert rules == binding.DeviceRules(allow=("c 195:3",), deny=("c 195:0",))
    assert binding.device_rules(node, 0).deny == ("c 195:0", "c 195:3")
    assert binding.device_files(node, 0b101) == ["/dev/nvidia3"]


def test_abstract_cpus_of_a_hyperthreaded_machine() -> None:
    """Two sockets of two cores, the second threads numbered last."""
    machine = [(n, n // 2 % 2, n % 2) for n in range(8)]
    order = binding.abstract_order(machine)
    assert order == [0, 4, 1, 5, 2, 6, 3, 7]
    assert binding.machine_cpus(0b0011, order) == [0, 4]  # both threads of the first core
    assert binding.machine_cpus(0b1 << 8, order) is None
    assert binding.machine_cpus(0, order) == []


def test_list_text() -> None:
    assert binding.list_text([]) == ""
    assert binding.list_text([*range(56), *range(112, 168)]) == "0-55,112-167"
    assert binding.list_text([30, 6, 14, 22, 6]) == "6,14,22,30"


@given(st.sets(st.integers(0, 300)))
def test_bits_and_lists_are_faithful(numbers: set[int]) -> None:
    assert binding.bits(sum(1 << n for n in numbers)) == sorted(numbers)
    back: set[int] = set()
    for part in filter(None, binding.list_text(numbers).split(",")):
        first, _, last = part.partition("-")
        back |= set(range(int(first), int(last or first) + 1))
    assert back == numbers
