"""The yardsticks' adapters: the formats, and answers known from arithmetic."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gsched.simulate import yardstick_fgd, yardstick_queue


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


def queue_folder(path: Path, rows: str) -> Path:
    path.joinpath("cluster.json").write_text('{"gpus": 4}')
    path.joinpath("jobs.csv").write_text("job_id,submit_s,runtime_s,gpus,estimate_s,user\n" + rows)
    return path


#: A runs to 10 (limit 20); B wants all and is promised 20; C would delay B; D ends by then.
JOBS = "A,0,10,3,20,u\nB,1,5,4,5,u\nC,2,30,1,30,u\nD,3,4.5,1,17,u\n"


@pytest.mark.parametrize("policy", yardstick_queue.POLICIES)
def test_nobody_delays_the_first(tmp_path: Path, policy: str) -> None:
    """D starts at once beside A, B when A ends early, C after B."""
    yardstick_queue.run(queue_folder(tmp_path, JOBS), policy, "arrival")
    rows = [line.split(",")[:3] for line in (tmp_path / "schedule.csv").read_text().split()[1:]]
    assert rows == [
        ["A", "0.0", "10.0"],
        ["B", "10.0", "15.0"],
        ["C", "15.0", "45.0"],
        ["D", "3.0", "7.5"],
    ]


def test_promises_are_told(tmp_path: Path) -> None:
    yardstick_queue.run(queue_folder(tmp_path, JOBS), "conservative", "arrival")
    promised = [line.split(",")[3] for line in (tmp_path / "schedule.csv").read_text().split()[1:]]
    assert promised == ["", "20.0", "25.0", ""]


def test_the_shortest_may_be_first(tmp_path: Path) -> None:
    jobs = "A,0,10,4,10,u\nB,1,9,4,9,u\nC,2,3,4,3,u\n"
    yardstick_queue.run(queue_folder(tmp_path, jobs), "easy", "shortest")
    starts = [line.split(",")[1] for line in (tmp_path / "schedule.csv").read_text().split()[1:]]
    assert starts == ["0.0", "13.0", "10.0"]


def test_a_job_too_big_is_named(tmp_path: Path) -> None:
    folder = queue_folder(tmp_path, "A,0,10,5,10,u\n")
    with pytest.raises(yardstick_fgd.YardstickError, match="job A asks for 5 of 4 GPUs"):
        yardstick_queue.run(folder, "easy", "arrival")


def test_weeks_of_waiting_are_planned_too(tmp_path: Path) -> None:
    """Three jobs for all GPUs, 2,000,000 s each: they are promised, and start, one after the
    other, although none ends early."""
    rows = "".join(f"{name},{at},2000000,4,2000000,u\n" for at, name in enumerate("ABC"))
    yardstick_queue.run(queue_folder(tmp_path, rows), "conservative", "arrival")
    table = [line.split(",") for line in (tmp_path / "schedule.csv").read_text().split()[1:]]
    assert [(row[1], row[3]) for row in table] == [
        ("0.0", ""),
        ("2000000.0", "2000000.0"),
        ("4000000.0", "4000000.0"),
    ]
