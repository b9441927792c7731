"""Many jobs that wait for each other.

A chain of some hundred jobs with --kill-on-invalid-dep ended the controller when its first job
failed: each cancelled job cancelled the next within its own call. The node repeated the report that
did it, so that every restart ended the same way. And each end of one of n singletons of a name
looked n times at all jobs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from ledger_support import Bench, at

from gsched.ledger import Write
from gsched.model import Job, JobState, Phase
from gsched.wire.messages import Call, CancelJobs, Done

LENGTH = 500


def test_a_failed_job_takes_its_whole_chain_with_it() -> None:
    bench = Bench()
    first = bench.job(hold=False)
    bench.schedule()
    chain = [
        bench.job(dependency=f"afterok:{first.id + number}", kill_on_invalid_dep=True)
        for number in range(LENGTH)
    ]
    other = bench.job(dependency=f"afternotok:{first.id}")
    host = first.batch_host
    bench.report(host, at(first, Phase.RUNNING))
    bench.report(host, at(first, Phase.ENDED, wstatus=256))
    bench.report(host, at(first, Phase.RELEASED, wstatus=256))
    assert first.state is JobState.FAILED
    assert {job.state for job in chain} == {JobState.CANCELLED}
    assert other.state is JobState.PENDING and not other.deps


def test_singletons_go_one_by_one_without_looking_at_all_pairs() -> None:
    bench = Bench()
    row = [bench.job(name="s", dependency="singleton", hold=True) for _ in range(300)]
    led = bench.led
    looked = 0

    class Counting(dict[int, Job]):
        def values(self):  # type: ignore[no-untyped-def]
            nonlocal looked
            looked += 1
            return super().values()

    led.jobs = Counting(led.jobs)
    for job in row[:3]:
        cancelled = led.apply(Write(Call(b"%d" % job.id, CancelJobs([str(job.id)]), 0)), bench.now)
        assert isinstance(cancelled.answers[0][1], Done)
    assert looked <= 6
    assert [bool(job.deps) for job in row[3:6]] == [False, True, True]
