"""Claims come before borrowers: nobody is lent what is taken back at once. 4 nodes of 8 GPUs, two
teams with 16 each."""

from __future__ import annotations

from unit.ledger_support import at
from unit.test_limits import Bench, assoc, submit
from unit.test_reclaim import GPU, NODE, job, settle, teams

from gsched.model import Job, JobState, Phase
from gsched.wire.messages import Done

RUNNING, PENDING = JobState.RUNNING, JobState.PENDING


def ends(made: Bench, job: Job) -> None:
    made.report(job.alloc[0].node, at(job, Phase.RELEASED, wstatus=0))


def short(
    made: Bench, seconds: int, user: str = "ana", account: str = "lab", **shape: object
) -> Job:
    answer = submit(made, user, account=account, time_limit=seconds, **(NODE | shape))
    assert isinstance(answer, Done), answer
    return made.led.jobs[answer.value]


def full() -> tuple[Bench, list[Job], list[Job]]:
    """Both teams have two nodes each."""
    made = teams()
    mine = [job(made) for _ in range(2)]
    theirs = [job(made, "ben", "other") for _ in range(2)]
    settle(made)
    assert all(one.state == RUNNING for one in [*mine, *theirs])
    return made, mine, theirs


def test_a_claim_has_what_comes_free_before_a_borrower_of_higher_rank() -> None:
    made, _, theirs = full()
    borrower = job(made)
    claim = job(made, "ben", "other")
    settle(made)
    assert borrower.state == claim.state == PENDING
    ends(made, theirs[0])
    settle(made)
    assert claim.state == RUNNING and claim.restarts == 0
    assert borrower.state == PENDING and borrower.restarts == 0 and borrower.attempt == 0


def test_without_a_claim_what_comes_free_is_lent() -> None:
    made, _, theirs = full()
    borrower = job(made)
    settle(made)
    ends(made, theirs[0])
    settle(made)
    assert borrower.state == RUNNING


def test_nobody_borrows_the_rest_of_what_a_claim_takes_back() -> None:
    """A node has four free GPUs and four borrowed ones; a claim wants all of them."""
    made = teams()
    mine = [job(made) for _ in range(2)]
    settle(made)
    loan = job(made, gpus_total=4)
    settle(made)
    theirs = job(made, "ben", "other")
    settle(made)
    assert all(one.state == RUNNING for one in [*mine, loan, theirs])
    second = short(made, 60, gpus_total=4)
    claim = job(made, "ben", "other")
    settle(made)
    assert claim.state == RUNNING and claim.alloc[0].gpus == 0xFF
    assert (loan.restarts, loan.state) == (1, PENDING)
    # It was never begun.
    assert (second.restarts, second.attempt, second.state) == (0, 0, PENDING)


def test_what_a_claim_cannot_use_is_lent() -> None:
    """Half of two nodes is guaranteed work: a claim to a whole one has to wait, a job that is gone
    by then has not."""
    made = teams()
    assoc(made, 10, guarantee={GPU: 8})
    assoc(made, 11, guarantee={GPU: 24})
    halves = [job(made, gpus_total=4) for _ in range(4)]
    settle(made)
    theirs = [job(made, "ben", "other") for _ in range(2)]
    settle(made)
    for node in sorted({one.alloc[0].node for one in halves}):
        ends(made, next(one for one in halves if one.alloc and one.alloc[0].node == node))
    settle(made)
    mine = [one for one in halves if one.state == RUNNING]
    assert len({one.alloc[0].node for one in mine}) == len(mine) == 2
    claim = job(made, "ben", "other")
    lent = short(made, 60, gpus_total=4)
    settle(made)
    assert claim.state == PENDING
    assert lent.state == RUNNING
    assert all(one.state == RUNNING and one.restarts == 0 for one in [*mine, *theirs])


def test_as_many_tasks_of_an_array_go_first_as_the_account_is_owed() -> None:
    made, _, theirs = full()
    answer = submit(made, "ben", account="other", array="0-5", time_limit=3600, **NODE)
    assert isinstance(answer, Done), answer
    borrower = job(made)
    settle(made)
    for one in theirs:
        ends(made, one)
    settle(made)
    tasks = [one for one in made.led.jobs.values() if one.array_job_id and one.state == RUNNING]
    assert len(tasks) == 2 and borrower.attempt == 0
