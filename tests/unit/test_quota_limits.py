"""Bounds on borrowing and lending in passes: 32 GPUs (4 nodes x 8), by arithmetic."""

from __future__ import annotations

from unit.test_limits import GPUS, assoc, bench, run, submit

GPU = "gres/gpu"
FOUR = {"gpus_total": 4, "time_limit": 600}


def test_no_more_is_borrowed_than_the_account_may() -> None:
    made = bench()
    assoc(made, 10, guarantee={GPU: 8}, borrow={GPU: 4})
    jobs = [submit(made, **FOUR) for _ in range(4)]
    assert run(made, *jobs) == ["R", "R", "R", "AssocBorrowLimit"]
    assoc(made, 10, borrow={GPU: 8})
    assert run(made, jobs[3]) == ["R"]


def test_without_a_bound_all_that_is_idle_is_lent() -> None:
    made = bench()
    assoc(made, 10, guarantee={GPU: 8})
    assoc(made, 11, guarantee={GPU: 24})
    jobs = [submit(made, **FOUR) for _ in range(8)]
    assert run(made, *jobs) == ["R"] * 8


def test_what_is_not_lent_stays_free_for_its_owner() -> None:
    made = bench()
    assoc(made, 11, guarantee={GPU: 16}, lend={GPU: 4})
    jobs = [submit(made, **FOUR) for _ in range(6)]
    # 12 of the 16 are kept: 20 are left for lab.
    assert run(made, *jobs) == ["R"] * 5 + ["AssocGuaranteeKept"]
    own = [submit(made, "ben", account="other", **FOUR) for _ in range(3)]
    assert run(made, *own) == ["R"] * 3
    # Of what other uses nothing need be kept any more, but all is in use.
    assert run(made, jobs[5])[0] in ("Resources", "AssocGuaranteeKept")


def test_nobody_slips_through_within_one_pass() -> None:
    """Jobs of both accounts and of a third that start in one pass leave what is kept."""
    made = bench()
    assoc(made, 10, guarantee={GPU: 12}, lend={GPU: 0})
    jobs = []
    for _ in range(8):
        jobs += [
            submit(made, "ben", account="other", **GPUS),
            submit(made, "ben", account="lab", **GPUS),
        ]
    for _ in range(8):
        jobs.append(submit(made, "ben", account="other", **GPUS))
    told = run(made, *jobs)
    other = [word for number, word in enumerate(told) if number % 2 == 0 or number >= 16]
    # lab has all its 8 x 2 = 16 (12 guaranteed, 4 more); other no more than 32 - 16.
    assert [told[number] for number in range(1, 16, 2)] == ["R"] * 8
    assert other.count("R") <= 10
    made.schedule()
    assert made.led.limits.tally.of(("assoc", 10, "")).tres[GPU] == 16
