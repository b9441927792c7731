"""Those who need not make way any more: the word of it is said again to a node that may have missed
it, and a node that has not heard it in time."""

from __future__ import annotations

from unit.ledger_support import Bench, at
from unit.test_preempt import WHOLE, bench, fill, over, sent

from gsched.model import Job, JobState, Phase
from gsched.wire.messages import CancelJobs
from gsched.wire.nodes import Preempt


def spared(requeue: bool = True) -> tuple[Bench, Job, str]:
    """One that was warned with a minute's grace, for a job that is cancelled then."""
    b = bench(grace_time=60)
    jobs = fill(b, requeue=requeue)
    high = b.job(shape=WHOLE, qos="high", time_limit=600)
    b.schedule()
    (victim,) = [job for job in jobs if job.way is not None]
    b.write(CancelJobs([str(high.id)]), uid=0)
    assert (victim.way, victim.state) == (None, JobState.RUNNING)
    return b, victim, victim.alloc[0].node


def test_a_node_that_registers_anew_is_told_that_a_job_is_spared() -> None:
    """It counts the grace time down by itself, and would end the job."""
    b, victim, node = spared()
    before = len(sent(b, node, Preempt))
    b.register(node, [at(victim, Phase.RUNNING)])
    (order,) = sent(b, node, Preempt)[before:]
    assert (order.job_id, order.attempt, order.grace_s) == (victim.id, victim.attempt, -1)


def test_one_that_was_ended_before_its_node_heard_is_queued_again() -> None:
    """SIGTERM ended it: that is no failure of its own."""
    b, victim, _ = spared()
    over(b, victim, cause="preempted", wstatus=15)
    assert (victim.state, victim.restart_reason) == (JobState.PENDING, "preempted")
    assert victim.preempted == 1


def test_one_that_cannot_be_queued_again_was_preempted() -> None:
    b, victim, _ = spared(requeue=False)
    over(b, victim, cause="preempted", wstatus=15)
    assert victim.state == JobState.PREEMPTED
