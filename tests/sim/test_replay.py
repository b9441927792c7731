"""`gsched sim`: schedules known by hand or from an independent twin, and what always holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim_support import easy, fifo, judge, random_gangs, replayed, starts

from gsched.simulate import replay_files, report
from gsched.simulate.fragmentation import Demand, Fragmentation, Left
from gsched.simulate.traces import TraceJob


def gang(name: str, submit: float, run: float, gpus: int, limit: float | None = None) -> TraceJob:
    return TraceJob(name, submit, run, run if limit is None else limit, gpus=gpus)


#: on 4 GPUs: A holds 3 of them until 10, though its limit is 20; B wants all, and so waits for A.
#: C (1 GPU for 30 s) would delay B beyond 20; D (1 GPU, limit 17, comes at 3) would not.
JOBS = [
    gang("A", 0, 10, 3, 20),
    gang("B", 1, 5, 4, 5),
    gang("C", 2, 30, 1, 30),
    gang("D", 3, 4.5, 1, 17),
]


def test_easy_by_hand() -> None:
    """D starts at once, B when A is over at 10, C after B at 15."""
    replay = replayed(JOBS)
    assert starts(replay) == {"A": 0, "B": 10, "C": 15, "D": 3}
    rows = {row.job.name: row for row in replay.record.rows}
    assert [name for name, row in rows.items() if row.backfilled] == ["D"]
    assert rows["D"].end == 7.5
    assert {row.state for row in rows.values()} == {"COMPLETED"}


def test_a_plan_for_all_delays_nobody_who_has_a_place() -> None:
    """8 GPUs, exact limits, planned to the second. A holds six until 100. B wants four and gets its
    place at 100, C wants eight and gets its own at 150. D (two, 160 s) fits beside A and B, and
    starts at once under EASY, but would delay C: it comes after C. E (two, 90 s) delays nobody."""
    jobs = [
        gang("A", 0, 100, 6),
        gang("B", 1, 50, 4),
        gang("C", 2, 10, 8),
        gang("D", 3, 160, 2),
        gang("E", 4, 90, 2),
    ]
    planned = ["SchedulerParameters=bf_resolution=1,bf_interval=1"]
    assert starts(replayed(jobs, "1x8", planned)) == {"A": 0, "B": 100, "C": 150, "D": 160, "E": 4}
    assert starts(replayed(jobs, "1x8"))["D"] == 3


def test_fifo_by_hand() -> None:
    """D fits at 3 beside A, but C and B are before it: B at 10, then C and D together at 15."""
    replay = replayed(JOBS, lines=["SchedulerType=sched/builtin"])
    assert starts(replay) == {"A": 0, "B": 10, "C": 15, "D": 15}
    assert not any(row.backfilled for row in replay.record.rows)


@pytest.mark.parametrize("seed", range(3))
def test_fifo_lets_nobody_overtake(seed: int) -> None:
    """Starts in order of arrival, each as soon as those before it have started and it fits."""
    jobs = random_gangs(seed, 100, [1, 2, 3, 5, 8])
    begun = starts(replayed(jobs, "1x8", ["SchedulerType=sched/builtin"]))
    assert begun == fifo(8, jobs)


def test_the_measures_by_hand() -> None:
    """Waits 0, 9, 13, 0; slowdowns 1, 14/10, 43/30, 1; GPU seconds 30 + 20 + 30 + 4.5 of 4 x 45."""
    replay = replayed(JOBS)
    found = report.summary(replay.record, replay.passes, replay.refused)
    assert found["wait_s"] == {"mean": 5.5, "median": 4.5, "p95": 13, "p99": 13, "max": 13}
    assert found["bounded_slowdown"]["mean"] == pytest.approx((1 + 1.4 + 43 / 30 + 1) / 4)
    assert found["makespan_s"] == 45
    assert found["gpu_utilisation"] == pytest.approx(84.5 / 180)
    # Until the last submission at 3 A alone runs: 9 of 12 GPU seconds.
    assert found["gpu_utilisation_arrivals"] == pytest.approx(9 / 12)
    # B waits from 1 to 10, C from 2 to 15.
    assert found["queue_length"] == pytest.approx((9 + 13) / 45)
    assert (found["queue_length_max"], found["backfilled"]) == (2, 1)
    # Kinds of jobs: 3, 4, 1 and 1 GPUs. One free (0-3, 7.5-10): 3 and 4 do not fit, half of 1.
    # Nothing is free from 3 to 7.5 and from 10 to 15, then three: 4 does not fit, a quarter of 3.
    lost = 5.5 * 0.5 + 30 * 0.75
    assert found["fragmentation"] == pytest.approx(lost / (5.5 + 90))


@pytest.mark.parametrize("seed", range(6))
def test_waits_are_those_of_an_independent_easy(seed: int) -> None:
    """On one node whose GPUs are all alike there is but one EASY."""
    jobs = random_gangs(seed, 120, [1, 1, 2, 3, 5, 8, 16])
    assert starts(replayed(jobs, "1x16")) == easy(16, jobs)


@pytest.mark.parametrize("gangs", ["packed", "anywhere"])
@pytest.mark.parametrize("seed", range(4))
def test_every_job_once_and_no_gpu_twice(tmp_path: Path, seed: int, gangs: str) -> None:
    jobs = random_gangs(seed, 150, [1, 1, 1, 2, 4, 8, 12])
    replay = replayed(jobs, "4x4", gangs=gangs)
    replay_files.write_schedule(tmp_path / "s.csv", replay.record)
    judge(tmp_path / "s.csv", jobs, {f"n{i}": 4 for i in range(1, 5)})
    # What the timeline tells is what the schedule tells.
    for sample in replay.record.samples:
        running = [r for r in replay.record.rows if r.start <= sample.time < r.end]
        waiting = [r for r in replay.record.rows if r.job.submit <= sample.time < r.start]
        assert sample.gpus == sum(row.job.gpus for row in running)
        assert (sample.running, sample.waiting) == (len(running), len(waiting))


def test_the_judge_sees_a_breach(tmp_path: Path) -> None:
    jobs = [gang("a", 0, 10, 2), gang("b", 0, 10, 2)]
    head = "job_id,submit,start,end,wait,user,account,partition,nodes,gpus,state,backfilled\n"
    bad = tmp_path / "s.csv"
    bad.write_text(
        head + "a,0,0,10,0,,,all,n1,n1:0-1,COMPLETED,0\nb,0,5,15,5,,,all,n1,n1:1-2,COMPLETED,0\n"
    )
    with pytest.raises(AssertionError, match="a and b on"):
        judge(bad, jobs, {"n1": 4})


def test_gangs_take_as_few_nodes_as_hold_them() -> None:
    """Two jobs of 3 GPUs on nodes of 4 leave one free on each: 2 GPUs on one node must wait, 2 GPUs
    anywhere need not. 6 GPUs take both nodes."""
    jobs = [gang("a", 0, 10, 3), gang("b", 0, 10, 3), gang("two", 0, 10, 2), gang("six", 1, 10, 6)]
    assert starts(replayed(jobs, "2x4")) == {"a": 0, "b": 0, "two": 10, "six": 20}
    anywhere = replayed(jobs, "2x4", gangs="anywhere")
    assert starts(anywhere) == {"a": 0, "b": 0, "two": 0, "six": 10}
    rows = {row.job.name: row for row in anywhere.record.rows}
    assert [node for node, _ in rows["two"].places] == ["n1", "n2"]


def test_the_limit_ends_a_job() -> None:
    jobs = [gang("late", 0, 100, 4, 60), gang("next", 0, 5, 4)]
    rows = {row.job.name: row for row in replayed(jobs).record.rows}
    assert (rows["late"].end, rows["late"].state) == (60, "TIMEOUT")
    assert rows["next"].start == 60
    rows = {row.job.name: row for row in replayed(jobs, kill=False).record.rows}
    assert (rows["late"].end, rows["late"].state) == (100, "COMPLETED")


def test_over_time_limit_counts() -> None:
    rows = replayed([gang("late", 0, 100, 4, 60)], lines=["OverTimeLimit=1"]).record.rows
    assert (rows[0].end, rows[0].state) == (100, "COMPLETED")


def test_what_can_never_run_is_told_and_the_rest_goes_on() -> None:
    """More memory than a node has is refused; more nodes than the partition has waits, as Slurm
    lets it."""
    fat = TraceJob("fat", 0, 10, 10, nodes=1, gpus=1, mem_mb=2000)
    replay = replayed([fat, gang("huge", 0, 10, 400), gang("a", 1, 10, 4)], "1x4:mem=1000")
    assert starts(replay) == {"fat": -1, "huge": -1, "a": 1}
    found = report.summary(replay.record, replay.passes, replay.refused)
    assert found["refusals"] == {"Requested node configuration is not available": 1}
    assert found["never_started"] == {"PartitionConfig": 1}
    assert found["states"] == {"COMPLETED": 1, "PENDING": 1, "REFUSED": 1}


def test_a_failed_job_fails_and_its_memory_counts() -> None:
    jobs = [
        TraceJob("bad", 0, 10, 10, nodes=1, gpus=1, mem_mb=700, good=False),
        TraceJob("big", 0, 10, 10, nodes=1, gpus=1, mem_mb=700),
    ]
    rows = replayed(jobs, "1x4:mem=1000").record.rows
    assert [(row.start, row.state) for row in rows] == [(0, "FAILED"), (10, "COMPLETED")]


def test_jobs_that_may_not_run_at_all_are_not_overtaken() -> None:
    """More nodes than the partition has: nobody is backfilled by starting behind such a job."""
    conf = ["SchedulerParameters=bf_interval=-1"]
    jobs = [gang("big", 0, 10, 9), gang("a", 1, 10, 1)]
    replay = replayed(jobs, "1x4", conf)
    assert replay.record.rows[0].reason == "PartitionConfig"
    assert not replay.record.rows[1].backfilled


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        replay = replayed(random_gangs(3, 200, [1, 2, 4, 8]), "3x4")
        replay_files.write_schedule(tmp_path / name, replay.record)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]


def test_the_priority_of_the_trace_counts_where_it_is_asked_for() -> None:
    """C, with more priority, goes before B; neither overtakes: B is behind by then."""
    jobs = [
        TraceJob(name, submit, 10, 10, gpus=1, priority=priority)
        for name, submit, priority in (("A", 0, 1), ("B", 1, 5), ("C", 2, 9))
    ]
    assert starts(replayed(jobs, "1x1")) == {"A": 0, "B": 10, "C": 20}
    replay = replayed(jobs, "1x1", own_priority=True)
    assert starts(replay) == {"A": 0, "B": 20, "C": 10}
    assert not any(row.backfilled for row in replay.record.rows)


def test_parts_of_gpus_share_one() -> None:
    """460 and 500 thousandths go onto one GPU, 600 onto another; a whole one finds none until 10.
    In use then: 1.56 of 2 GPUs; the rests, 0.04 and 0.4, suit no usual job."""
    jobs = [
        TraceJob(str(milli), 0, 10, 10, nodes=1, cpus=1, gpus=1, gpu_milli=milli)
        for milli in (460, 500, 600)
    ]
    jobs.append(TraceJob("whole", 1, 10, 10, nodes=1, cpus=1, gpus=1))
    replay = replayed(jobs, "1x2")
    assert starts(replay) == {"460": 0, "500": 0, "600": 0, "whole": 10}
    first, second, third = replay.record.samples[:3]
    assert (first.gpus, second.waiting_gpus, third.gpus) == (1.56, 1, 1)
    assert first.fragmented == 0.44
    assert [row.gpus for row in replay.record.rows] == [0.46, 0.5, 0.6, 1]


def test_fragmentation_by_hand() -> None:
    """Kinds: half want 2 whole GPUs and 4 CPUs, half want 0.3 of one and 1 CPU."""
    measure = Fragmentation([Demand(2, 4, 0), Demand(0.3, 1, 0), Demand(0, 9, 9)])
    assert measure.unusable(Left(0, 8, 0)) == 0
    assert measure.unusable(Left(3, 8, 0)) == 0
    # One whole GPU and half a GPU are no use to the first kind; the second takes both.
    assert measure.unusable(Left(1, 8, 0, (0.5,))) == pytest.approx((1 + 0.5) / 2)
    # A rest of 0.2 is of no use to either; without CPUs nothing is of use.
    assert measure.unusable(Left(3, 8, 0, (0.2,))) == pytest.approx(0.2)
    assert measure.unusable(Left(3, 0, 0, (0.2,))) == pytest.approx(3.2)
    assert measure.unusable(Left(3, 3, 0)) == pytest.approx(3 / 2)
