"""Why a job waits for a limit: whose it is, who uses it up, when that ends, what would help."""

from __future__ import annotations

from typing import Any

from unit.test_limits import assoc, bench, qos, run, submit

from gsched.model import Job
from gsched.model.why import Why
from gsched.scheduling.explain import Asked, explain
from gsched.wire.messages import Done
from gsched_cli.why_words import sentences


def job_of(made: Any, answer: object) -> Job:
    assert isinstance(answer, Done)
    job: Job = made.led.jobs[answer.value]
    return job


def ask(made: Any, answer: object) -> Why:
    now = int(made.now)
    return explain(made.led, job_of(made, answer), Asked(now, now))


def words(why: Why) -> list[str]:
    return sentences(why, lambda time: f"@{time}")


def test_gpus_of_an_account() -> None:
    made = bench()
    assoc(made, 10, grp_tres={"gres/gpu": 8})
    first = submit(made, gpus_total=6, time_limit=600)
    other = submit(made, "ben", account="lab", gpus_total=1, time_limit=1200)
    waits = submit(made, gpus_total=4)
    assert run(made, first, other, waits) == ["R", "R", "AssocGrpGRES"]
    why = ask(made, waits)
    assert (why.reason, why.never, [cause.kind for cause in why.causes]) == (
        *("AssocGrpGRES", False),
        ["limit"],
    )
    [cause] = why.causes
    assert (cause.what, cause.scope, cause.whose) == ("gres/gpu", "all", "account lab")
    assert (cause.want, cause.limit, cause.have) == (4, 8, 7)
    one, two = job_of(made, first), job_of(made, other)
    assert [(ref.id, ref.detail) for ref in cause.jobs] == [(str(one.id), "6"), (str(two.id), "1")]
    # Seven come free with the first.
    assert cause.until == one.end_time
    assert words(why) == [
        f"Account lab may have 8 GPUs at once, 7 in use by {one.id} (6), {two.id} (1), "
        f"until @{one.end_time} at the latest: it wants 4."
    ]
    # One GPU is left.
    assert ["--gpus=1"] in [suggestion.options for suggestion in why.suggestions]


def test_jobs_of_a_user() -> None:
    made = bench()
    qos(made, max_jobs_pu=1)
    first, waits = submit(made, time_limit=600), submit(made)
    run(made, first, waits)
    job = job_of(made, first)
    assert words(ask(made, waits)) == [
        f"User ana in QOS normal may have 1 running job at once, 1 in use by {job.id}, "
        f"until @{job.end_time} at the latest: it wants 1."
    ]


def test_what_one_job_may_have() -> None:
    made = bench()
    qos(made, max_tres_per_job={"cpu": 4}, max_wall=30)
    waits = submit(made, ntasks=6, time_limit=3600)
    run(made, waits)
    why = ask(made, waits)
    assert why.never
    assert words(why) == [
        "QOS normal lets a job have at most 30 minutes of wall time: it wants 60.",
        "QOS normal lets a job have at most 4 CPUs: it wants 6.",
    ]
    assert words(ask(made, waits))[0] == words(why)[0]


def test_minutes() -> None:
    made = bench()
    assoc(made, 20, grp_tres_mins={"cpu": 0})
    qos(made, grp_tres_run_mins={"cpu": 30})
    first, second = submit(made, "ben", time_limit=1200), submit(made, time_limit=1200)
    run(made, first, second)
    assert words(ask(made, second)) == [
        "User ana in account lab has used 0 of 0 CPU minutes.",
        f"QOS normal may have 30 CPU minutes at once, 20 in use by {job_of(made, first).id} (1): "
        "it wants 20.",
    ]


def test_without_limits_none_is_named() -> None:
    made = bench()
    assert run(made, submit(made)) == ["R"]
    waits = submit(made, ntasks=65)
    assert all(cause.kind != "limit" for cause in ask(made, waits).causes)


def test_a_fair_share_that_is_too_low() -> None:
    made = bench()
    made.led.ranking.fair = {20: 0.25}
    qos(made, "gold", flags=("EnforceUsageThreshold",), usage_thres=0.3)
    waits = submit(made, qos="gold")
    assert run(made, waits) == ["QOSUsageThreshold"]
    why = ask(made, waits)
    assert words(why)[0] == (
        "QOS gold takes jobs of those whose fair share is at least 0.3: it is 0.25 now."
    )
