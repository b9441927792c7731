"""scontrol listpids, in the words of a real Slurm 22.05; where nothing is there, of 26.05 (golden
032), which leaves the header out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import World
from launch_support import FakeAgent
from sbatch_support import SLURM_CONF
from views_support import FakeReader, invoke

from gsched.config import parse_config
from gsched.model.step import BATCH_STEP
from gsched.wire.steps import ListPids, Pids, StepPids
from gsched_cli.scontrol import run
from slurmd_compat import step_pids
from slurmd_compat.step_stat import FRESH_MS, StepStats
from slurmd_compat.usage import Processes

HEADER = "PID      JOBID    STEPID   LOCALID GLOBALID\n"
BATCH = """4776     2        batch    0       0       
4781     2        batch    -       -       
"""  # noqa: W291
STEP = """4797     2        0        2       2       
4798     2        0        3       3       
"""  # noqa: W291
ANSWER = Pids(
    [
        StepPids(2, BATCH_STEP, [(4776, 0, 0), (4781, -1, -1)]),
        StepPids(2, 0, [(4797, 2, 2), (4798, 3, 3)]),
    ]
)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[FakeReader]:
    conf = SLURM_CONF + f"SlurmdPidFile={tmp_path}/slurmd.%n.pid\nSlurmdSpoolDir=/spool/%n\n"
    made = FakeReader(conf=parse_config({"slurm.conf": conf}))
    agents = [
        FakeAgent(f"{tmp_path}/slurmd.node2.sock", [ANSWER] * 9),
        FakeAgent(f"{tmp_path}/slurmd.node1.sock", [Pids([])] * 9),
    ]
    yield made
    for agent in agents:
        agent.close()
        assert all(isinstance(word, ListPids) for word in agent.heard)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["2", "node2"], (HEADER + BATCH + STEP, "", 0)),
        (["*", "node2"], (HEADER + BATCH + STEP, "", 0)),
        (["2.0", "node2"], (HEADER + STEP, "", 0)),
        (["2.batch", "node2"], (HEADER + BATCH, "", 0)),
        (["2.7", "node2"], ("", "StepId=2.7 does not exist on node node2.\n", 1)),
        (["999", "node2"], ("", "There are no steps for job 999 on node node2.\n", 1)),
        (["2", "node1"], ("", "JobId=2 does not exist on node node1.\n", 1)),
        (["*", "node1"], ("", "No job steps exist on this node.\n", 1)),
        (["x", "node2"], ("", '"x" does not look like a jobid\n', 1)),
        (["2_1", "node2"], ("", '"2_1" does not look like a jobid\n', 1)),
        (["2.x", "node2"], (HEADER, '"2.x" does not look like a stepid\n', 0)),
        (["2", "node2", "y"], ("", "too many arguments for keyword:listpids\n", 1)),
        (
            ["2", "nosuch"],
            (
                "",
                "scontrol: error: Domain socket directory /spool/nosuch: "
                "No such file or directory\nJobId=2 does not exist on node nosuch.\n",
                1,
            ),
        ),
    ],
)
def test_what_is_said(reader: FakeReader, words: list[str], said: tuple[str, str, int]) -> None:
    assert invoke(run, ["listpids", *words], reader) == said


def test_on_a_host_that_is_no_node(reader: FakeReader) -> None:
    host = os.uname().nodename.partition(".")[0]
    assert invoke(run, ["listpids", "239"], reader) == (
        "",
        f"scontrol: error: Domain socket directory /spool/{host}: No such file or directory\n"
        "JobId=239 does not exist on node (null).\n",
        1,
    )
    # In a job it is that of the job.
    env = {"SLURMD_NODENAME": "node2"}
    assert invoke(run, ["listpids"], reader, env) == (HEADER + BATCH + STEP, "", 0)


def test_what_a_node_lists() -> None:
    """A task is what descends from its process, and what is in the step's control group."""
    world = World(1)
    world.run()
    world.create(1, ntasks=2)
    (share,) = world.leader.steps.shares.held.values()
    (record,) = world.leader.steps.records.values()
    own, gone = os.getpid(), 1 << 30

    def found(uid: int | None = None) -> list[StepPids]:
        return step_pids.listed(
            [record],
            lambda _: [(share.key, share.launch)],
            lambda _: {0: gone, 1: own},
            lambda _: gone,
            lambda _, step: [] if step == BATCH_STEP else [own, gone + 1],
            Processes(),
            uid,
        ).steps

    script, step = found()
    assert script == StepPids(7, BATCH_STEP, [(gone, 0, 0)])
    assert (step.step, step.pids[:2]) == (0, [(gone, 0, 0), (own, 1, 1)])
    assert (gone + 1, -1, -1) in step.pids
    assert found(uid=1000) == [script, step]
    assert found(uid=1001) == []


def test_many_questions_cost_one_look_at_the_processes() -> None:
    """Whoever asks in a loop must not keep the daemon from its work."""
    now = [1000]

    def nothing(*_: object) -> None:
        return None

    stats = StepStats(
        "n1", nothing, lambda _: [], lambda _: set(), nothing, nothing, lambda: now[0]
    )
    first = stats.processes()
    now[0] += FRESH_MS
    assert stats.processes() is first
    now[0] += 1
    assert stats.processes() is not first
