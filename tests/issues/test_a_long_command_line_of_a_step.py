"""`srun sh -c '...'` with an argument of 100 KB stopped a whole node: the controller took no report
in which the step's command line stood, so that none of the node's jobs ended any more.
"""

from __future__ import annotations

from typing import Any

import pytest
from agent_world import World
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import sane
from gsched.model import NodeAlloc, Phase, Step, StepNode
from gsched.model.step import Callback, StepSpec
from gsched.wire.nodes import AttemptReport, Report
from gsched.wire.steps import CreateStep, NotTaken
from slurmd_compat.agent.step_words import Ask, Source


def test_the_controller_takes_it_and_hears_of_the_other_jobs() -> None:
    bench = Bench(CONF)
    job = bench.job()
    bench.schedule()
    for phase in (Phase.PREPARED, Phase.RUNNING):
        bench.report(job.alloc[0].node, at(job, phase))
    share = StepNode(NodeAlloc(job.alloc[0].node, 1, 1, 100), [0])
    line = "srun " + "a" * 100_000
    step = Step(job.id, job.attempt, 0, nodes=[share], submit_line=line)
    out = bench.report(job.batch_host, at(job, Phase.RUNNING, steps=[step]))
    assert not out.log
    assert bench.led.steps[job.id][0].submit_line == "srun " + "a" * ((64 << 10) - 5)


def _answered(**said: Any) -> tuple[World, Any]:
    world = World(1)
    world.run()
    spec = StepSpec(7, argv=["true"], **said)
    world.feed("n1", Ask(Source("local", 1), 1000, 1000, _create(spec)))
    return world, world.answers[-1]


def _create(spec: StepSpec) -> CreateStep:
    return CreateStep(b"1", spec, Callback("127.0.0.1", 4000, bytes(32)))


@pytest.mark.parametrize(
    "said",
    [
        {"submit_line": "srun " + "a" * 500_000},
        {"overcommit": True, "cpus_per_task": 1 << 20},
        {"overcommit": True, "cpus_per_task": 1 << 30},
        {"time_limit": (1 << 31) - 1},
        {"name": "n" * 4096},
    ],
)
def test_what_a_node_tells_of_any_step_is_taken(said: dict[str, Any]) -> None:
    world, answer = _answered(**said)
    world.advance(600)
    if isinstance(answer, NotTaken):
        return
    report: AttemptReport = world.leader.report_message(world.now).attempts[0]
    steps = [*report.steps, *world.kept.values()]
    assert steps
    report.steps = steps
    assert sane.problem(Report("s", 1, 1, [report])) == ""
    assert all(len(step.submit_line) <= 64 << 10 for step in steps)
