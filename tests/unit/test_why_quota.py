"""Why a job waits for guarantees: what is said, and that what is suggested helps. Four nodes of
eight GPUs."""

from __future__ import annotations

import pytest
from unit.test_limits import Bench, assoc, submit
from unit.test_reclaim import GPU, NODE, job, settle, teams
from unit.test_why_limits import ask, words

from gsched.model import Job, JobState
from gsched.wire.messages import Done


def held(made: Bench, user: str, account: str, **shape: object) -> Job:
    found = job(made, user, account, **shape)
    settle(made)
    return found


def said(made: Bench, waiting: Job) -> list[str]:
    return words(ask(made, Done(b"", 0, value=waiting.id)))


def suggested(made: Bench, waiting: Job) -> list[list[str]]:
    return [one.options for one in ask(made, Done(b"", 0, value=waiting.id)).suggestions]


def starts(made: Bench, account: str, user: str, gpus: int) -> bool:
    """Whether the same with so many GPUs does start."""
    answer = submit(made, user, account=account, time_limit=3600, **(NODE | {"gpus_total": gpus}))
    assert isinstance(answer, Done)
    made.schedule()
    return made.led.jobs[answer.value].state == JobState.RUNNING


def test_an_account_that_has_borrowed_all_that_it_may() -> None:
    """Its guarantee of 16 and 4 more."""
    made = teams(borrow={GPU: 4})
    for gpus in (8, 8, 2):
        held(made, "ana", "lab", gpus_total=gpus)
    waits = held(made, "ana", "lab", gpus_total=4)
    text = said(made, waits)
    assert text[0].startswith("Account lab may have 20 GPUs at once, 18 in use by ")
    assert text[0].endswith(": it wants 4.")
    assert ["--gpus=2"] in suggested(made, waits)
    assert starts(made, "lab", "ana", 2)


def test_gpus_that_others_do_not_lend() -> None:
    """other lends 10 of its 16: six are kept."""
    made = teams()
    assoc(made, 11, guarantee={GPU: 16}, lend={GPU: 10})
    for gpus in (8, 8, 8):
        held(made, "ana", "lab", gpus_total=gpus)
    waits = held(made, "ana", "lab", gpus_total=4)
    assert said(made, waits)[0] == (
        "Of 32 GPUs 24 are in use, and 6 are kept for accounts that do not lend all that they are "
        "guaranteed: it wants 4."
    )
    assert ["--gpus=2"] in suggested(made, waits)
    assert starts(made, "lab", "ana", 2)


@pytest.mark.parametrize("unit", ["", "node"])
def test_what_is_taken_back_and_when(unit: str) -> None:
    made = teams(guarantee_unit=unit)
    old = [held(made, "ana", "lab") for _ in range(4)]
    waits = job(made, "ben", "other")
    made.led.cluster.claims.went(waits.id)
    made.led.units.news.clear()
    plan = made.schedule
    if not unit:
        # A pass that asks nobody to make way, as the job has not been looked at.
        plan()
        made.led.cluster.claims.came(waits)
        assert said(made, waits)[-1] == (
            f"Account other takes back what it is guaranteed from job {old[3].id} when the "
            "scheduler comes to it next."
        )
    plan()
    assert waits.claim is not None
    until = old[3].way.until if old[3].way is not None else 0
    assert said(made, waits) == [
        f"Account other takes back what it is guaranteed: job {old[3].id} makes way, and it starts "
        f"when that has ended, at @{until} at the latest."
    ]
    settle(made)
    assert waits.state == JobState.RUNNING


def test_who_comes_first_where_an_account_has_its_nodes() -> None:
    made = teams(guarantee_unit="node")
    for _ in range(2):
        held(made, "ben", "other")
    for _ in range(2):
        held(made, "ana", "lab")
    first, second = (held(made, "ben", "other", gpus_total=8) for _ in range(2))
    assert f"Job {first.id} comes before it where account other has what it is guaranteed." in said(
        made, second
    )
