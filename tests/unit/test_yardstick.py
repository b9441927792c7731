"""The yardsticks' adapters: the formats, and answers known from arithmetic."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gsched.simulate import yardstick_fgd


def folder(path: Path, tasks: str) -> Path:
    path.joinpath("nodes.csv").write_text(
        "node_id,cpu_milli,memory_mib,gpus,gpu_model\nn0,8000,1000,2,T4\nn1,8000,1000,1,A10\n"
    )
    head = "task_id,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    path.joinpath("history.csv").write_text(head + "a,1000,10,1,500,\nb,1000,10,1,1000,\n")
    path.joinpath("tasks.csv").write_text("seq," + head + tasks)
    return path


TASKS = ["0,a,1000,10,1,500,A10", "1,b,1000,10,2,1000,T4", "2,c,1000,10,1,500,", "3,d,1,1,1,1,T4"]


@pytest.mark.parametrize("policy", list(yardstick_fgd.POLICIES))
def test_yardstick_folder_and_stream_agree(tmp_path: Path, policy: str) -> None:
    answers = ["0,n1,0", "1,n0,0|1", "2,n1,0", "3,,"]
    out = io.StringIO()
    yardstick_fgd.run(folder(tmp_path, "\n".join(TASKS) + "\n"), policy, [], out)
    assert (tmp_path / "placements.csv").read_text().split() == ["seq,node_id,gpus", *answers]
    yardstick_fgd.run(folder(tmp_path, ""), policy, [t + "\n" for t in TASKS], out)
    assert out.getvalue().split() == answers


def test_yardstick_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(yardstick_fgd.YardstickError, match=r"nodes.csv cannot be read"):
        yardstick_fgd.run(tmp_path, "fgd", [], io.StringIO())
    with pytest.raises(yardstick_fgd.YardstickError, match="not as it should be"):
        yardstick_fgd.run(folder(tmp_path, ""), "fgd", ["1,2\n"], io.StringIO())
