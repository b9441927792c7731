"""A heterogeneous job one of whose components might not start (its partition was down, or it waited
for another job) got places in the plan for the others, which passes then kept for good: nobody
else had them, although nothing ran.
"""

from __future__ import annotations

import pytest
from unit.ledger_support import Bench, at

from gsched.model import Job, JobSpec, JobState, Phase, Shape
from gsched.scheduling import Planner
from gsched.wire.messages import Done, SubmitJob, UpdatePartition

GANG = Shape(gpus_per_node=8, min_nodes=4, max_nodes=4, nodes_set=True)
WHOLE = Shape(gpus_per_node=8, min_nodes=1)
ONE = Shape(gpus_per_node=1)


def hetero(b: Bench, leader: JobSpec, other: JobSpec) -> Job:
    reply = b.write(SubmitJob(leader, b"#!/bin/sh\n", b"A=1", "user", "group", components=[other]))
    assert isinstance(reply, Done)
    return b.led.jobs[reply.value]


@pytest.mark.parametrize("why", ["partition", "dependency"])
def test_a_component_gets_no_place_while_another_may_not_start(why: str) -> None:
    b = Bench()
    planner = Planner()
    running = b.job(shape=WHOLE, time_limit=600)
    b.schedule()
    node = running.alloc[0].node
    b.report(node, at(running, Phase.RUNNING))
    leader = JobSpec(shape=ONE, partitions=("debug",), time_limit=600)
    if why == "partition":
        b.write(UpdatePartition("debug", "update", {"state": "down"}), uid=0)
    else:
        held = b.job(hold=True)
        leader = JobSpec(shape=ONE, time_limit=600, dependency=f"afterany:{held.id}")
    first = hetero(b, leader, JobSpec(shape=ONE, partitions=("gpu",), time_limit=600))
    gang = b.job(shape=GANG, time_limit=600)
    b.schedule()
    planner.prepare(b.led, b.now).run()
    assert planner.apply(b.led)
    b.schedule()
    assert gang.state == JobState.PENDING
    b.report(node, at(running, Phase.RELEASED, wstatus=0))
    b.schedule()
    assert gang.state == JobState.RUNNING
    assert first.state == JobState.PENDING
