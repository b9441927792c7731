"""The controller's own look at a decoded submission; sentences from transcripts of Slurm 26.05."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sbatch_support import CONFIG

from gsched import admission
from gsched.model import JobSpec, Shape


def check(script: bytes = b"#!/bin/sh\n", shape: Shape | None = None, **fields: object) -> tuple:
    spec = JobSpec(**fields)  # type: ignore[arg-type]
    if shape is not None:
        spec.shape = shape
    problem = admission.validate(spec, CONFIG, script)
    return (problem.code, problem.message, problem.notes) if problem else ()


def test_the_plainest_job_is_fine() -> None:
    assert check() == ()


UNAVAILABLE = (
    "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
    "Requested node configuration is not available",
)


@pytest.mark.parametrize(
    ("shape", "note"),
    [
        (Shape(cpus_per_task=17), "CPU count per node can not be satisfied"),
        (Shape(ntasks_per_node=17), "CPU count per node can not be satisfied"),
        (Shape(min_cpus_node=17), "CPU count per node can not be satisfied"),
        (Shape(mem_per_node=65 * 1024), "Memory specification can not be satisfied"),
        (Shape(mem_per_cpu=70000), "Memory specification can not be satisfied"),
        (Shape(tmp_disk_mb=99999 * 1024), "Temporary disk specification can not be satisfied"),
        (
            Shape(cores_per_socket=64),
            "Socket, core and/or thread specification can not be satisfied",
        ),
    ],
)
def test_shapes_that_no_node_holds(shape: Shape, note: str) -> None:
    assert check(shape=shape) == (*UNAVAILABLE, (note,))


@pytest.mark.parametrize("shape", [Shape(min_nodes=5), Shape(ntasks=65), Shape(mem_per_node=0)])
def test_shapes_that_wait_for_a_larger_partition(shape: Shape) -> None:
    # Slurm queues them (PartitionConfig) unless EnforcePartLimits is set.
    assert check(shape=shape) == ()


@pytest.mark.parametrize(
    ("fields", "code", "message", "notes"),
    [
        (
            {"partitions": ("nosuch",)},
            "ESLURM_INVALID_PARTITION_NAME",
            "Invalid partition name specified",
            ("invalid partition specified: nosuch",),
        ),
        (
            {"licenses": "nosuch:1"},
            "ESLURM_INVALID_LICENSES",
            "Invalid license specification",
            (),
        ),
        (
            {"time_limit": 600, "time_min": 900},
            "ESLURM_INVALID_TIME_MIN_LIMIT",
            "Invalid time-min specification (exceeds job's time or other limits)",
            (),
        ),
        # The same by Slurm 22.05.8 for no limit at all (0), and beside the partition's default.
        *(
            (
                fields,
                "ESLURM_INVALID_TIME_MIN_LIMIT",
                "Invalid time-min specification (exceeds job's time or other limits)",
                (),
            )
            for fields in (
                {"time_limit": 600, "time_min": 0},
                {"time_min": 0},
                {"time_min": 7200},
                {"time_min": 1200, "partitions": ("debug",)},
            )
        ),
        *(
            ({"array": text}, "ESLURM_INVALID_ARRAY", "Invalid job array specification", ())
            for text in ("abc", "5-1", "1-99999999", "1-20002", "20001", "1-5%x", "1-5:0", "")
            if text
        ),
        *(
            ({"dependency": text}, "ESLURM_DEPENDENCY", "Job dependency problem", ())
            for text in ("foo:1", "afterok", "afterok:", "afterok:1,", "afterok:1?after:2,after:3")
        ),
        *(
            (
                {"shape": Shape(features=text)},
                "ESLURM_INVALID_FEATURE",
                "Invalid feature specification",
                (),
            )
            for text in ("nosuch", "a&&&", "rackA&", "(rackA", "[rackA*2&nosuch]")
        ),
        *(
            ({"shape": shape}, "ESLURM_INVALID_NODE_NAME", "Invalid node name specified", ())
            for shape in (
                Shape(nodelist=("nosuch",)),
                Shape(exclude=("nosuch",)),
                Shape(nodelist=("node1",), exclude=("node1",)),
            )
        ),
        (
            {"shape": Shape(min_nodes=0)},
            "ESLURM_INVALID_NODE_COUNT",
            "Node count specification invalid",
            (),
        ),
        (
            {"name": "x" * 5000},
            "ESLURM_PATHNAME_TOO_LONG",
            "Pathname of a file, directory or other parameter too long",
            (),
        ),
    ],
)
def test_refusals(
    fields: dict[str, object], code: str, message: str, notes: tuple[str, ...]
) -> None:
    assert check(**fields) == (code, message, notes)  # type: ignore[arg-type]


def test_scripts_of_more_than_4_mb_are_refused() -> None:
    big = b"#!/bin/sh\n".ljust((4 << 20) + 1, b"#")
    assert check(big)[0] == "ESLURM_PATHNAME_TOO_LONG"
    assert check(big[:-1]) == ()


@pytest.mark.parametrize(
    "text",
    ["rackA", "rackA&h100", "rackA|rackB", "[rackA*2&rackB*2]", "(rackA|rackB)&h100", "h100*4"],
)
def test_constraints(text: str) -> None:
    assert check(shape=Shape(features=text)) == ()


_number = st.one_of(st.integers(-(2**62), 2**62), st.integers(-2, 20))
_text = st.text(max_size=20)


def _any_struct(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    values = {
        int: _number,
        str: _text,
        bool: st.booleans(),
    }
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.type in values:
            fields[field.name] = st.one_of(st.just(field.default), values[field.type])
        elif field.type == tuple[str, ...]:
            fields[field.name] = st.lists(_text, max_size=2).map(tuple)
        elif field.type == int | None:
            fields[field.name] = st.one_of(st.none(), _number)
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


@given(_any_struct(JobSpec), _any_struct(Shape))
def test_whatever_a_client_sends_is_judged(spec: JobSpec, shape: Shape) -> None:
    spec.shape = shape
    problem = admission.validate(spec, CONFIG, b"#!/bin/sh\n")
    if problem is not None:
        assert problem.code and problem.message
    else:
        assert 1 <= shape.min_nodes and shape.cpus_per_task >= 1


@given(st.text(alphabet="ab&|[]()*,19 ", max_size=24))
def test_any_constraint_is_read_or_not(text: str) -> None:
    names = admission.feature_names(text)
    assert names is None or all(name in text for name in names)
