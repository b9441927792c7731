"""Licences: their grammar, and that no more are given than there are."""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import Ledger
from gsched.licenses import LicenseError, exist, parse
from gsched.model import JobState, Phase, Shape
from gsched.wire.messages import CancelJobs, Refused, UpdateJob

WITH = CONF + "Licenses=matlab:3,ansys:2\n"


def bench() -> Bench:
    return Bench(WITH)


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("", []),
        ("matlab", [{"matlab": 1}]),
        ("matlab:2,ansys", [{"matlab": 2, "ansys": 1}]),
        ("matlab;matlab:2", [{"matlab": 3}]),
        ("matlab:2|ansys", [{"matlab": 2}, {"ansys": 1}]),
    ],
)
def test_texts(text: str, choices: list[dict[str, int]]) -> None:
    assert parse(text) == choices


@pytest.mark.parametrize("text", ["a:0", "a:x", ":2", "a:1:2", "a|b,c", ",", "a b", "a:-1"])
def test_what_names_no_licences(text: str) -> None:
    with pytest.raises(LicenseError):
        parse(text)


def test_there_must_be_so_many_in_all() -> None:
    totals = {"matlab": 3, "ansys": 2}
    assert exist("matlab:3,ansys:2", totals) and exist("matlab:4|ansys", totals)
    assert not exist("matlab:2,matlab:2", totals)
    assert not exist("nosuch", totals) and not exist("nosuch|ansys", totals)


def test_unknown_and_too_many_are_refused() -> None:
    b = bench()
    for text in ("nosuch", "matlab:4", "matlab:x"):
        reply = b.submit(licenses=text)
        assert isinstance(reply, Refused) and reply.message == "Invalid license specification"


def test_those_that_are_taken_are_waited_for() -> None:
    b = bench()
    first, second = b.job(licenses="matlab:2"), b.job(licenses="matlab:2")
    other, third = b.job(licenses="ansys"), b.job(licenses="matlab")
    out = b.schedule()
    assert [j.state == JobState.RUNNING for j in (first, second, other, third)] == [
        True,
        False,
        True,
        # One is left, and the job ahead has no use for it.
        True,
    ]
    verdict = out.view["verdict", second.id.to_bytes(8, "big")]
    assert verdict is not None and verdict.reason == "Licenses"  # type: ignore[attr-defined]
    assert first.licenses_alloc == "matlab:2"
    b.report(first.alloc[0].node, at(first, Phase.RELEASED, wstatus=0))
    b.schedule()
    assert second.state == JobState.RUNNING


def test_no_two_of_a_pass_take_the_same() -> None:
    b = bench()
    jobs = [b.job(licenses="ansys") for _ in range(5)]
    b.schedule()
    assert sum(job.state == JobState.RUNNING for job in jobs) == 2
    b.schedule()
    assert sum(job.state == JobState.RUNNING for job in jobs) == 2


def test_each_task_of_an_array_takes_its_own() -> None:
    b = bench()
    master = b.job(array="0-9", licenses="matlab")
    b.schedule()
    running = [j for j in b.led.jobs.values() if j.state == JobState.RUNNING]
    assert len(running) == 3 and {j.array_job_id for j in running} == {master.id}


def test_the_first_alternative_that_is_free_is_taken() -> None:
    b = bench()
    jobs = [b.job(licenses="ansys:2|matlab:3") for _ in range(3)]
    b.schedule()
    assert [job.licenses_alloc for job in jobs] == ["ansys:2", "matlab:3", ""]


def test_a_held_job_keeps_none_from_others_and_a_cancelled_one_gives_back() -> None:
    b = bench()
    held = b.job(licenses="ansys:2", hold=True)
    job = b.job(licenses="ansys:2")
    b.schedule()
    assert job.state == JobState.RUNNING
    b.write(UpdateJob([str(held.id)], "release"), uid=0)
    assert b.verdict(held) == "Licenses"
    b.write(CancelJobs([str(job.id)]))
    b.report(job.alloc[0].node, at(job, Phase.RELEASED))
    b.schedule()
    assert held.state == JobState.RUNNING


def test_what_runs_holds_them_after_a_restart() -> None:
    b = bench()
    b.job(licenses="ansys:2", shape=Shape(gpus_per_node=1))
    b.schedule()
    b.led = Ledger.load(b.config, b.led.meta, b.led.jobs.values(), b.led.nodes.values())
    for name in b.config.nodes:
        assert not b.led.node_up(name)
    waiting = b.job(licenses="ansys")
    assert b.verdict(waiting) == "Licenses"
