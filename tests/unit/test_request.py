"""What options mean together: shapes, GPU forms, and what excludes what.

Sentences and results are from transcripts of Slurm 26.05 (themes 004, 006, 012, 013) and from
`sbatch -vv` of 22.05 where those say nothing.
"""

from __future__ import annotations

import pytest
from sbatch_support import sbatch

from gsched.model import Shape


def shape(*argv: str) -> Shape:
    return sbatch(*argv, "--wrap", "true").sent.spec.shape


def tres(*argv: str) -> dict[str, str]:
    return sbatch(*argv, "--wrap", "true").sent.spec.tres


@pytest.mark.parametrize(
    ("argv", "total", "node", "task", "socket", "kind"),
    [
        (["--gpus=3"], 3, 0, 0, 0, ""),
        (["-G", "2"], 2, 0, 0, 0, ""),
        (["--gpus=h100:2"], 2, 0, 0, 0, "h100"),
        (["--gpus=h100=2"], 2, 0, 0, 0, "h100"),
        (["--gpus=h100"], 1, 0, 0, 0, "h100"),
        (["--gpus=0"], 0, 0, 0, 0, ""),
        (["-N2", "--gpus-per-node=2"], 0, 2, 0, 0, ""),
        (["--gres=gpu"], 0, 1, 0, 0, ""),
        (["--gres=gpu:h100"], 0, 1, 0, 0, "h100"),
        (["--gres=gpu:h100:1"], 0, 1, 0, 0, "h100"),
        (["--gres=gpu:1K"], 0, 1024, 0, 0, ""),
        (["--gres=none"], 0, 0, 0, 0, ""),
        (["-n4", "--gpus-per-task=1"], 0, 0, 1, 0, ""),
        (["-n4", "--gpus-per-task=h100:1"], 0, 0, 1, 0, "h100"),
        (["-n2", "--tres-per-task=gres/gpu:2"], 0, 0, 2, 0, ""),
        (["-n2", "--tres-per-task=cpu=2,gres/gpu:h100=1"], 0, 0, 1, 0, "h100"),
        (["--gpus-per-socket=2", "--sockets-per-node=1"], 0, 0, 0, 2, ""),
    ],
)
def test_gpu_forms(
    argv: list[str], total: int, node: int, task: int, socket: int, kind: str
) -> None:
    got = shape(*argv)
    assert (got.gpus_total, got.gpus_per_node, got.gpus_per_task, got.gpus_per_socket) == (
        *(total, node, task, socket),
    )
    assert got.gpu_type == kind


def test_how_gpu_requests_are_shown() -> None:
    # SLURM_GPUS=h100:2, TresPerNode=gres/gpu:2, SLURM_TRES_PER_TASK and SLURM_TRES_BIND.
    assert tres("--gpus=h100:2") == {"per_job": "gres/gpu:h100:2"}
    assert tres("--gpus-per-node=2") == {"per_node": "gres/gpu:2"}
    assert tres("--gres=gpu:2") == {"per_node": "gres/gpu:2", "gres": "gres/gpu:2"}
    assert tres("-n4", "--gpus-per-task=h100:1") == {
        "per_task": "gres/gpu:h100=1",
        "bind": "gres/gpu:per_task:1",
    }
    assert tres("--gpus=4", "--gpu-bind=closest") == {
        "per_job": "gres/gpu:4",
        "bind": "gres/gpu:closest",
    }
    assert tres("-c2") == {"per_task": "cpu=2"}


def test_tasks_follow_from_gpus() -> None:
    assert shape("--gpus=4", "--gpus-per-task=2").ntasks == 2
    assert shape("--gpus=2", "--ntasks-per-gpu=2").ntasks == 4


INVALID = "sbatch: error: Invalid generic resource (gres) specification\n"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["--gpus-per-task=2"],
            "Failed to validate job spec. --gpus-per-task or --tres-per-task used without either "
            "--gpus or -n/--ntasks is not allowed.",
        ),
        (
            ["--gpus=4", "--gpus-per-task=1", "-n3"],
            "Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested "
            "tasks differ from -n/--ntasks.",
        ),
        (
            ["--gpus=3", "--gpus-per-task=2"],
            "Failed to validate job spec, --gpus not multiple of --gpus-per-task",
        ),
        (
            ["--gpus=5", "--gpus-per-node=2"],
            "Failed to validate job spec, --gpus is not multiple of --gres=gpu/--gpus-per-node",
        ),
        (
            ["--gpus=4", "--gpus-per-node=2", "-N3"],
            "Failed to validate job spec. Based on --gpu and --gres=gpu/--gpus-per-node required "
            "nodes (2) doesn't fall between min_nodes (3) and max_nodes (3) boundaries.",
        ),
        (["-N3", "-n4", "--gpus=2"], "Failed to validate job spec, --gpus < -N"),
        (["-N2-3", "-n4", "--gpus=1"], "Failed to validate job spec, --gpus < -N"),
        (["-N3", "-n3", "--gpus=h100:2"], "Failed to validate job spec, --gpus < -N"),
        (
            ["--mem-per-gpu=8G"],
            "Requested mem_per_tres=gres/gpu:8192 but did not request any GPU.",
        ),
        (
            ["--gpus-per-socket=1"],
            "--gpus-per-socket option requires --sockets-per-node specification",
        ),
        (
            ["--cpus-per-gpu=2", "-c3", "--gpus=1"],
            "--cpus-per-gpu is mutually exclusive with --cpus-per-task",
        ),
    ],
)
def test_gpu_forms_that_contradict(argv: list[str], sentence: str) -> None:
    ran = sbatch(*argv, "--wrap", "true")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"sbatch: error: {sentence}\n{INVALID}"


@pytest.mark.parametrize(
    "argv", [["--gres=gpu:h100:2,gpu:1"], ["--gpus=h100:2,1"], ["--gpus=abc", "--gres=gpu:2"]]
)
def test_typed_and_untyped_do_not_mix(argv: list[str]) -> None:
    ran = sbatch(*argv, "--wrap", "true")
    assert (ran.code, ran.err) == (
        1,
        "sbatch: error: Invalid GRES specification (with and without type identification)\n",
    )


@pytest.mark.parametrize(
    "value", ["--gres=nosuch:1", "--gres=gpu:", "--gres=gpu:2k", "--gpus=a:b:c", "--gpus=-1"]
)
def test_gres_that_cannot_be_read(value: str) -> None:
    ran = sbatch(value, "--wrap", "true")
    assert (ran.code, ran.err) == (1, INVALID)


#: of a real 22.05, whose controller refuses them
EMPTY_GRES = "Invalid Trackable RESource (TRES) specification"
EMPTY_NODES = "Node count specification invalid"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--gres="], EMPTY_GRES),
        (["--gres=,"], EMPTY_GRES),
        (["--gres=,gpu:1"], EMPTY_GRES),
        (["--gres=gpu:1,"], EMPTY_GRES),
        (["--nodelist="], EMPTY_NODES),
        (["--nodelist=,"], EMPTY_NODES),
        (["-w", ""], EMPTY_NODES),
    ],
)
def test_an_option_that_names_nothing(argv: list[str], sentence: str) -> None:
    ran = sbatch(*argv, "--wrap", "true")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"sbatch: error: Batch job submission failed: {sentence}\n"


@pytest.mark.parametrize("option", ["--exclude=", "--gpus=", "--constraint=", "--licenses="])
def test_an_option_that_may_name_nothing(option: str) -> None:
    assert sbatch(option, "--wrap", "true").code == 0


def test_a_node_that_is_named_beside_nothing() -> None:
    assert shape("--nodelist=,node1").nodelist == ("node1",)


def test_the_command_line_names_what_the_script_does_not() -> None:
    script = b"#!/bin/sh\n#SBATCH --gres= --nodelist=\n"
    ran = sbatch("--gres=gpu:1", "-w", "node1", stdin=script)
    assert ran.sent.spec.shape.nodelist == ("node1",)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["--mem=1G", "--mem-per-cpu=1G"],
            "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
        ),
        (
            ["--gres=gpu:2", "--gpus-per-node=1"],
            "--gpus-per-node and --gres=gpu are mutually exclusive.",
        ),
        (
            ["--gpus-per-task=1", "--ntasks-per-gpu=1", "-n2"],
            "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
        ),
    ],
)
def test_fatal_contradictions(argv: list[str], sentence: str) -> None:
    ran = sbatch(*argv, "--wrap", "true")
    assert (ran.code, ran.err) == (1, f"sbatch: fatal: {sentence}\n")


def test_memory_on_the_command_line_silences_the_environment_only() -> None:
    got = sbatch("--mem-per-cpu=2G", "--wrap", "true", env={"SBATCH_MEM_PER_NODE": "3G"})
    assert (got.sent.spec.shape.mem_per_cpu, got.sent.spec.shape.mem_per_node) == (2048, None)
    script = b"#!/bin/sh\n#SBATCH --mem=1G\ntrue\n"
    assert "mutually exclusive" in sbatch("--mem-per-cpu=2G", stdin=script).err


@pytest.mark.parametrize(
    ("value", "megabytes"),
    [
        *(("1500", 1500), ("2G", 2048), ("2g", 2048), ("2048m", 2048), ("1537k", 2)),
        *(("3000000K", 2930), ("0", 0)),
    ],
)
def test_memory_units(value: str, megabytes: int) -> None:
    assert shape(f"--mem={value}").mem_per_node == megabytes


@pytest.mark.parametrize(
    ("argv", "low", "high", "named"),
    [
        ([], 1, 0, False),
        (["-N2"], 2, 2, True),
        (["-N2-3"], 2, 3, True),
        (["--nodes=2k"], 2048, 2048, True),
        (["--nodes=1,3"], 1, 3, True),
        (["-N2-4", "-n3"], 2, 3, True),
        (["-w", "node[2-3]"], 2, 0, False),
        (["-w", "node1,node2", "-N1"], 2, 2, True),
        (["-w", "node1", "-N3"], 3, 3, True),
    ],
)
def test_node_counts(argv: list[str], low: int, high: int, named: bool) -> None:
    got = shape(*argv)
    assert (got.min_nodes, got.max_nodes, got.nodes_set) == (low, high, named)


def test_more_nodes_than_tasks_are_taken_back() -> None:
    ran = sbatch("-N2", "-n1", "--wrap", "true")
    assert ran.err == ("sbatch: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n")
    assert (ran.sent.spec.shape.min_nodes, ran.sent.spec.shape.max_nodes) == (1, 1)
    # Recorded (22.05): said also where the request is refused for its GPUs.
    ran = sbatch("-n2", "-N3", "--gpus=1", "--wrap", "true")
    first, *rest = ran.err.splitlines()
    assert first == "sbatch: warning: can't run 2 processes on 3 nodes, setting nnodes to 2"
    assert rest[0] == "sbatch: error: Failed to validate job spec, --gpus < -N"
    assert "warning" not in sbatch("-Q", "-n2", "-N3", "--gpus=1", "--wrap", "true").err


def test_exclusive_and_oversubscribe_are_one_switch() -> None:
    assert (shape("--exclusive").exclusive, shape("--exclusive=user").exclusive) == (1, 2)
    both = shape("--exclusive", "-s")
    assert (both.exclusive, both.oversubscribe) == (0, True)


def test_extra_node_info_implies_tasks() -> None:
    got = shape("-B2:3:2")
    assert (got.sockets_per_node, got.cores_per_socket, got.threads_per_core) == (2, 3, 2)
    assert got.ntasks == 12
