"""The submit filter, without its process: what it sees, and what becomes of what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gsched.frontend.filter import Broken, described, rebuilt
from gsched.frontend.filter_process import Filter
from gsched.model import JobSpec, Shape

SPEC = JobSpec(
    name="train",
    shape=Shape(gpus_per_node=2, nodelist=("n1", "n2"), mem_per_cpu=1000),
    partitions=("a", "b"),
    time_limit=600,
    rlimits={"NOFILE": 1024},
    tres={"per_node": "gres/gpu:2"},
    args=("--x", "y z"),
)


def test_a_spec_is_one_flat_dict_and_comes_back_the_same() -> None:
    request = described(SPEC)
    assert request["partitions"] == ["a", "b"] and request["nodelist"] == ["n1", "n2"]
    assert request["gpus_per_node"] == 2 and request["time_limit"] == 600
    assert "shape" not in request
    assert rebuilt(request) == SPEC


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"partition": "x"}, "job_submit.py: unknown field 'partition'"),
        ({"partitions": "x"}, "job_submit.py: partitions: Expected `array`, got `str`"),
        ({"ntasks": "4"}, "job_submit.py: ntasks: Expected `int`, got `str`"),
        ({"hold": 1}, "job_submit.py: hold: Expected `bool`, got `int`"),
    ],
)
def test_values_of_a_wrong_kind_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(Broken) as caught:
        rebuilt(described(SPEC) | change)
    assert str(caught.value) == text


def test_a_field_that_is_gone_is_named() -> None:
    request = described(SPEC)
    del request["ntasks"]
    with pytest.raises(Broken, match=r"field 'ntasks' is missing"):
        rebuilt(request)


def judged(tmp_path: Path, code: str, uid: int = 1000) -> dict[str, Any]:
    path = tmp_path / "job_submit.py"
    path.write_text(code)
    return Filter(str(path)).answer({"request": {"name": "n", "comment": ""}, "uid": uid})


def test_a_request_may_be_changed_in_place_or_returned(tmp_path: Path) -> None:
    code = "def job_submit(request, uid):\n    request['comment'] = f'of {uid}'\n"
    assert judged(tmp_path, code) == {"request": {"name": "n", "comment": "of 1000"}}
    code = "def job_submit(request, uid):\n    return {'name': 'm'}\n"
    assert judged(tmp_path, code) == {"request": {"name": "m"}}


def test_it_may_be_refused_in_two_ways(tmp_path: Path) -> None:
    for line in ("raise Refuse('no account')", "return 'no account'"):
        code = f"def job_submit(request, uid):\n    {line}\n"
        assert judged(tmp_path, code) == {"refusal": "no account"}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "def job_submit(request, uid):\n    1 / 0\n",
            "ZeroDivisionError: division by zero, line 2",
        ),
        ("def job_submit(request, uid):\n    request['x']\n", "KeyError: 'x', line 2"),
        ("def job_submit(request, uid):\n    return 7\n", "job_submit returned int"),
        ("import nosuch_module\n", "ModuleNotFoundError"),
        ("def job_submit(\n", "SyntaxError"),
        ("x = 1\n", "there is no function job_submit(request, uid)"),
        ("def job_submit(request, uid):\n    raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_what_goes_wrong_in_it_is_a_sentence(tmp_path: Path, code: str, text: str) -> None:
    answer = judged(tmp_path, code)
    assert text in answer["error"] and answer["error"].startswith("job_submit.py: ")


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    answer = Filter(str(tmp_path / "job_submit.py")).answer({"request": {}, "uid": 0})
    assert "No such file" in answer["error"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "job_submit.py"
    path.write_text("def job_submit(request, uid):\n    return 'one'\n")
    site = Filter(str(path))
    assert site.answer({"request": {}, "uid": 0}) == {"refusal": "one"}
    path.write_text("def job_submit(request, uid):\n    return 'two'\n")
    os.utime(path, ns=(1, 1))
    assert site.answer({"request": {}, "uid": 0}) == {"refusal": "two"}
