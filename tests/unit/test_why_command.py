"""`gsched why` and `scontrol show job -dd`: the request, who may ask, the words, the JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from unit.why_support import CONF, World
from views_support import FakeReader, invoke

from gsched.controller.verbs import why as verb
from gsched.wire.messages import Call, Done, ExplainJob, Refused, Reply, UpdateNode, Write
from gsched_cli import scontrol
from gsched_cli import why as command


class Log:
    """Complaints."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def error(self, text: str) -> None:
        self.said.append(text)


class Asking(FakeReader):
    """A reader that passes ExplainJob to a world's controller."""

    world: World
    asker = 1000

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        assert isinstance(write, ExplainJob)
        return explain(self.world, write, self.asker)

    def now(self) -> float:
        return self.world.now


def explain(world: World, write: ExplainJob, uid: int = 1000) -> Reply:
    log = Log()
    call = Call(b"1", write, uid, uid, 1, groups=["users"])
    reply = verb.explain(call, write, world.led, world.now, log)
    assert not log.said
    return reply


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def world() -> World:
    """Job 1 has all GPUs of node 1 for two hours, node 2 is drained, job 2 wants four nodes."""
    made = World()
    made.started("--gres=gpu:8", "--nodelist=node1", "--time=2:00:00", "-J", "busy")
    made.write(UpdateNode(["node2"], "drain", "bad fan"), uid=0)
    made.sbatch("--nodes=3", "--gres=gpu:8", "--time=1:00:00", "-J", "train")
    made.settle()
    return made


def run(monkeypatch: pytest.MonkeyPatch, world: World, *argv: str) -> Result:
    reader = Asking()
    reader.world = world
    monkeypatch.setattr(command, "LazyReader", lambda env: reader)
    return CliRunner().invoke(command.why, argv)


def test_words(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    done = run(monkeypatch, world, "2")
    assert done.exit_code == 0
    # 1,000,000 seconds after the epoch, and two hours more.
    assert done.output.splitlines() == [
        "Job 2 (train, alice) waits: Resources",
        "  Only 2 of the 3 nodes that it wants have room in partition gpu: 1 of 4 nodes is out of"
        " use.",
        "",
        "Partition gpu has 4 nodes; 3 are wanted with 8 GPUs, 1 CPU, 1000M of memory each; 2 have"
        " room",
        "       1  is out of use",
        "          node2 is DRAINED: bad fan (root)",
        "       1  has fewer than 8 free GPUs",
        "",
        "Expected start: 1970-01-12T15:46:40, planned: node[1,3-4] will be kept for it",
        "It would start now with",
        "    --nodes=2    on node[3-4]",
    ]


def test_json(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    done = run(monkeypatch, world, "--json", "2")
    assert done.exit_code == 0
    answer: dict[str, Any] = json.loads(done.output)
    assert answer["schema"] == 1
    (job,) = answer["jobs"]
    assert (job["job"], job["state"], job["reason"]) == ("2", "PENDING", "Resources")
    assert job["start"] == {"time": 1_007_200, "basis": "planned", "nodes": "node[1,3-4]"}
    assert job["causes"][0]["kind"] == "resources" and job["causes"][0]["text"].startswith("Only 2")
    assert job["suggestions"] == [
        {"options": ["--nodes=2"], "without": [], "partition": "gpu", "nodes": "node[3-4]"}
    ]
    (place,) = job["places"]
    assert [(one["what"], one["nodes"], one["alone"]) for one in place["lacks"]] == [
        ("state", 1, 1),
        ("gpus", 1, 1),
    ]


def test_another_time(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    done = run(monkeypatch, world, "--at", "1970-01-12T15:46:39", "2")
    assert "would not start then: Resources" in done.output
    done = run(monkeypatch, world, "--at", "1970-01-12T15:46:40", "2")
    assert "Job 2 (train, alice) would start then" in done.output
    wrong = run(monkeypatch, world, "--at", "noonish", "2")
    assert wrong.exit_code == 1 and "--at noonish" in wrong.output


def test_a_running_job_says_so(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    done = run(monkeypatch, world, "1")
    assert done.output == (
        "Job 1 (busy, alice) does not wait: it is RUNNING.\n"
        "  started 1970-01-12T13:46:40 on node1\n"
    )


@pytest.mark.parametrize("job", ["77", "x", "1_4", "1+1", "2,3", ""])
def test_no_such_job(monkeypatch: pytest.MonkeyPatch, world: World, job: str) -> None:
    done = run(monkeypatch, world, job)
    assert done.exit_code == 1
    assert done.output == "Error: Invalid job id specified\n"


def test_array_tasks_and_components() -> None:
    world = World()
    array = world.sbatch("--array=0-3%1", "--gres=gpu:1")
    world.settle()
    number = array.array_job_id
    names = {
        text: [one["job"] for one in json.loads(explained(world, text))]
        for text in (str(number), f"{number}_2", f"{number}_0")
    }
    assert names == {
        str(number): [f"{number}_[1-3]"],
        f"{number}_2": [f"{number}_2"],
        f"{number}_0": [f"{number}_0"],
    }
    world.started("--nodes=4", "--gres=gpu:6", "-J", "full")
    het = world.sbatch("--gres=gpu:1", ":", "--gres=gpu:7")
    world.settle()
    (whole,) = json.loads(explained(world, str(het.id)))
    assert [part["job"] for part in whole["components"]] == [f"{het.id}+0", f"{het.id}+1"]
    (second,) = json.loads(explained(world, f"{het.id}+1"))
    assert second["job"] == f"{het.id}+1" and second["causes"][0]["kind"] == "resources"


def explained(world: World, text: str) -> str:
    reply = explain(world, ExplainJob([text]))
    assert isinstance(reply, Done), reply
    return reply.data


def test_private_jobs() -> None:
    world = World(CONF + "PrivateData=jobs\n")
    world.started("--nodes=4", "--gres=gpu:8", uid=1001)
    world.sbatch("--nodes=4", "--gres=gpu:8", "--time=2:00:00", uid=1001)
    mine = world.sbatch("--gres=gpu:1", uid=1000)
    licensed = world.sbatch("--dependency=afterany:1", uid=1000)
    world.settle()
    refused = explain(world, ExplainJob(["1"]))
    assert isinstance(refused, Refused) and refused.message == "Invalid job id specified"
    (why,) = json.loads(explained(world, str(mine.id)))
    assert why["ahead"]["jobs"] == 1 and why["ahead"]["first"]["id"] == ""
    (why,) = json.loads(explained(world, str(licensed.id)))
    assert [one["id"] for one in why["causes"][0]["jobs"]] == [""]
    reply = explain(world, ExplainJob(["1"]), uid=0)
    assert isinstance(reply, Done)


def test_too_many_at_once() -> None:
    reply = explain(World(), ExplainJob([str(n) for n in range(1, 40)]))
    assert isinstance(reply, Refused) and reply.message == "At most 32 jobs are explained at a time"


def test_a_question_changes_nothing(world: World) -> None:
    before = world.led.cluster.schedule(int(world.now), 256)
    explain(world, ExplainJob(["2"]))
    explain(world, ExplainJob(["2"], int(world.now) + 5000))
    after = world.led.cluster.schedule(int(world.now), 256)
    assert after == before
    world.led.cluster.check()


def test_scontrol_show_job_in_detail(world: World) -> None:
    reader = Asking(job_list=list(world.led.jobs.values()))
    reader.world = world
    plain, _, _ = invoke(scontrol.run, ["show", "job", "-d", "2"], reader)
    assert "Why" not in plain
    out, _, _ = invoke(scontrol.run, ["show", "job", "-dd", "2"], reader)
    lines = [line.strip() for line in out.splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("JobState=")) + 1
    assert lines[first : first + 6] == [
        "Why=Only 2 of the 3 nodes that it wants have room in partition gpu: 1 of 4 nodes is out of"
        " use.",
        "WhyDemand=state Partition=gpu Never=0 Nodes=1/4 Alone=1 NodeList=node2",
        "WhyDemand=gpus Partition=gpu Never=0 Nodes=1/4 Alone=1 NodeList=node1",
        "WhyAhead=0 First=(null)",
        "WhyStart=1970-01-12T15:46:40 Basis=planned NodeList=node[1,3-4]",
        "WhyInstead=--nodes=2",
    ]
    running, _, _ = invoke(scontrol.run, ["show", "job", "-dd", "1"], reader)
    assert "Why" not in running
