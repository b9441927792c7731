"""Jobs whose memory cgroup has killed a process of theirs."""

from __future__ import annotations

from unit.ledger_support import Bench, at

from gsched.model import JobState, Phase, Shape
from gsched_cli.jobview import exit_text


def test_a_script_that_hides_its_killed_child_ends_out_of_memory() -> None:
    b = Bench()
    job = b.job(shape=Shape(nodelist=("node1",)))
    b.schedule()
    b.report("node1", at(job, Phase.RUNNING))
    b.report("node1", at(job, Phase.RELEASED, wstatus=0, cause="oom"))
    assert (job.state, exit_text(job.wstatus)) == (JobState.OUT_OF_MEMORY, "0:125")
