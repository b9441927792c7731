"""Jobs that stand still for others, which stand still for others ...: as many as there is memory
for, and anybody with a QOS that preempts within itself can have them."""

from __future__ import annotations

import inspect
import sys

from unit.ledger_support import CONF, Bench
from unit.test_preempt import rank, tell

from gsched.ledger import expected
from gsched.model import JobState, Phase, Shape

WITHIN = (
    CONF.replace("State=UP", "OverSubscribe=FORCE:1 State=UP")
    + "PreemptType=preempt/qos\nPreemptMode=SUSPEND,GANG,WITHIN\n"
)
LONG = 60
#: what Python has for 1000 by default, in proportion to a chain that is not too slow for a test
DEPTH = 100


def test_a_long_chain_is_reckoned_without_recursion() -> None:
    b = Bench(WITHIN)
    shape = Shape(min_cpus_node=16, mem_per_node=1, nodelist=("node1",))
    jobs = []
    for place in range(LONG):
        job = b.job(shape=shape, time_limit=600)
        rank(b, 1000 + place, job)
        b.schedule()
        b.schedule()
        assert job.state == JobState.RUNNING
        tell(b, Phase.RUNNING)
        jobs.append(job)
    assert sum(bool(job.paused) for job in jobs) == LONG - 1
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + DEPTH)
    try:
        last = expected.free_at(b.led, jobs[-1])
    finally:
        sys.setrecursionlimit(before)
    # Each has ten minutes, one after the other.
    assert last == int(b.now) + LONG * 600
