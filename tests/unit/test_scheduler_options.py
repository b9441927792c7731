"""SchedulerParameters: names, bounds and defaults of slurm.conf(5), and the log of wrong values."""

from __future__ import annotations

import pytest

from gsched.scheduling.options import TIER_BITS, Options, read


def test_defaults_are_those_of_the_manual_but_for_the_documented_ones() -> None:
    found = read("")
    assert (found.interval, found.resolution, found.max_array) == (30, 60, 20)
    assert (found.full_interval, found.batch_delay) == (60, 3)
    assert (found.window, found.plan_jobs, found.plan_test, found.depth) == (604_800, 1000, 0, 0)
    assert found.problems == () and found.plans and found.gap == 0


def test_units_are_minutes_seconds_and_microseconds() -> None:
    found = read("bf_window=2880,bf_resolution=300,bf_interval=15,sched_min_interval=500000")
    assert (found.window, found.resolution, found.interval) == (172_800, 300, 15)
    assert found.gap == 0.5


def test_bounds_go_to_the_core() -> None:
    rules = read(
        "bf_max_job_user=7,bf_max_job_assoc=5,bf_max_job_part=40,bf_job_part_count_reserve=10,"
        "bf_max_job_user_part=3,bf_max_job_array_resv=0,bf_min_prio_reserve=900,"
        "bf_min_age_reserve=60,bf_one_resv_per_job,bf_busy_nodes"
    ).rules()
    assert rules["max_user"] == 5 and rules["max_partition"] == 10
    assert rules["max_user_partition"] == 3 and rules["max_array"] == 0
    assert rules["min_priority"] == 900 and rules["tier_bits"] == TIER_BITS
    assert rules["min_age"] == 60 and rules["one_per_unit"] and rules["busy_first"]


def test_what_the_plan_looks_at() -> None:
    planning = read("bf_max_job_test=5000,bf_plan_exact=200").planning()
    assert (planning["max_test"], planning["plan_jobs"]) == (5000, 200)


@pytest.mark.parametrize(
    "text",
    [
        "bf_interval=0",
        "bf_interval=10801",
        "bf_window=0",
        "bf_window=43201",
        "bf_resolution=3601",
        "bf_max_job_test=0",
        "bf_max_job_array_resv=1001",
        "bf_max_job_start=-1",
        "bf_min_age_reserve=2592001",
        "bf_max_job_user=many",
        "bf_window=",
        "default_queue_depth=-5",
    ],
)
def test_a_wrong_value_is_logged_and_the_default_kept(text: str) -> None:
    name, _, value = text.partition("=")
    found = read(text)
    assert found.problems == (f"Invalid SchedulerParameters {name}: {value}",)
    assert found.rules() == Options().rules() and found.interval == 30


def test_minus_one_and_builtin_make_no_plans() -> None:
    off = read("bf_interval=-1")
    assert not off.plans and off.problems == ()
    assert not read("", "sched/builtin").plans


def test_defer_lets_passes_wait() -> None:
    assert read("defer").gap == 3
    assert read("defer,batch_sched_delay=10").gap == 10
    assert read("batch_sched_delay=10").gap == 0


def test_words_without_meaning_here_are_passed_over() -> None:
    found = read(
        "bf_yield_interval=1,bf_max_time=9,bf_continue,max_rpc_cnt=150,enable_user_top,,x="
    )
    assert found == Options()
