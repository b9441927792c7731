"""Steps between a leading node and the controller, with words lost, doubled and late, and a
controller that dies: every step becomes one fact, before its job's, whatever happens in between."""

from __future__ import annotations

import random

import msgspec
import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import Ledger, Outcome, TakeOver
from gsched.ledger.invariants import check
from gsched.ledger.state import Meta
from gsched.model import Fact, Job, JobState, Node, NodeAlloc, Phase, Step, StepNode, StepState
from gsched.wire.nodes import AttemptReport, StepsKept

ACCOUNTING = CONF + "AccountingStorageType=accounting_storage/slurmdbd\n"
KINDS = {"meta": Meta, "job": Job, "node": Node, "step": Step, "outbox": Fact}


class Cluster:
    """A controller with its disk, and a node that leads a job: what an agent promises, no more."""

    def __init__(self, seed: int) -> None:
        self.rnd = random.Random(seed)
        self.bench = Bench(ACCOUNTING)
        self.disk: dict[tuple[str, bytes], bytes] = {}
        self.facts: list[Fact] = []
        #: reports and answers on their way
        self.up: list[AttemptReport] = []
        self.down: list[StepsKept] = []
        out = Outcome()
        self.bench.led.put_meta(out)
        for node in self.bench.led.nodes.values():
            self.bench.led.put_node(node, out)
        self._carry_out(out)
        apply = self.bench.apply

        def durable(command: object) -> Outcome:
            out = apply(command)
            self._carry_out(out)
            return out

        self.bench.apply = durable  # type: ignore[method-assign]
        job = self.bench.job(requeue=False)
        self.bench.schedule()
        self.job_id = job.id
        self.node = job.batch_host
        #: step -> (running, begun at, ended at); of those the controller has not kept
        self.steps: dict[int, tuple[bool, float, float]] = {}
        self.dirty: dict[int, bool] = {}
        self.next = 0
        self.phase = Phase.RUNNING

    @property
    def job(self) -> Job:
        return self.bench.led.jobs[self.job_id]

    # -- the controller

    def _carry_out(self, out: Outcome) -> None:
        """Durable first, then the answers are on their way."""
        for key, value in out.puts.items():
            if key[0] == "outbox" and isinstance(value, Fact):
                self.facts.append(msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=Fact))
            if value is None:
                self.disk.pop(key, None)
            elif isinstance(value, msgspec.Struct):
                self.disk[key] = msgspec.msgpack.encode(value)
        self.down += [m for _, m in out.messages if isinstance(m, StepsKept)]

    def controller_dies(self) -> None:
        def records(table: str) -> list[object]:
            kind = KINDS[table]
            found = sorted((k, v) for (t, k), v in self.disk.items() if t == table)
            return [msgspec.msgpack.decode(value, type=kind) for _, value in found]

        [meta] = records("meta")
        self.bench.led = Ledger.load(
            self.bench.config,
            meta,  # type: ignore[arg-type]
            records("job"),  # type: ignore[arg-type]
            records("node"),  # type: ignore[arg-type]
            step_records=records("step"),  # type: ignore[arg-type]
        )
        self.bench.apply(TakeOver())
        for name in self.bench.config.nodes:
            attempts = [self._report()] if name == self.node else []
            self.bench.register(name, attempts, epoch=self.bench.led.meta.epoch)

    # -- the node

    def _report(self) -> AttemptReport:
        now = self.bench.now
        told = []
        for number in list(self.dirty)[: self.rnd.choice([1, 3, 100])]:
            running, begun, ended = self.steps[number]
            alloc = NodeAlloc(self.node, 1, 1, 100)
            step = Step(self.job_id, 1, number, f"s{number}", 1, [StepNode(alloc, [0])])
            step.start_time = int(1000 * (now - begun))
            if not running:
                step.state, step.end_time = StepState.COMPLETED, int(1000 * (now - ended))
                step.wstatus = number % 7 << 8
            told.append(step)
        phase = self.phase
        if len(told) < len(self.dirty):
            phase = min(phase, Phase.ENDED)
        return at(self.job, phase, steps=told, wstatus=0)

    def begin(self) -> None:
        self.steps[self.next] = (True, self.bench.now, 0.0)
        self.dirty[self.next] = True
        self.next += 1

    def end(self, number: int) -> None:
        self.steps[number] = (False, self.steps[number][1], self.bench.now)
        self.dirty[number] = False

    def kept(self, word: StepsKept) -> None:
        for number, ended in word.steps:
            running = self.dirty.get(number)
            if running is not None and (ended or running):
                del self.dirty[number]

    # -- one thing that may happen

    def happen(self) -> None:
        rnd = self.rnd
        self.bench.now += rnd.choice([0, 0.01, 0.3, 2])
        choice = rnd.random()
        running = [number for number, (runs, _, _) in self.steps.items() if runs]
        if choice < 0.2 and self.phase == Phase.RUNNING:
            self.begin()
        elif choice < 0.4 and running:
            self.end(rnd.choice(running))
        elif choice < 0.6:
            self.up.append(self._report())
        elif choice < 0.8 and self.up:
            # In any order, some twice, some never.
            report = self.up.pop(rnd.randrange(len(self.up)))
            if rnd.random() < 0.3:
                self.up.append(report)
            if rnd.random() < 0.8:
                self.bench.report(self.node, report)
        elif choice < 0.97 and self.down:
            word = self.down.pop(rnd.randrange(len(self.down)))
            if rnd.random() < 0.2:
                self.down.append(word)
            if rnd.random() < 0.8:
                self.kept(word)
        elif choice >= 0.97:
            self.controller_dies()

    def settle(self) -> None:
        """The script is over, and nothing is lost any more."""
        for number in [number for number, (runs, _, _) in self.steps.items() if runs]:
            self.end(number)
        self.phase = Phase.RELEASED
        for _ in range(1000):
            self.bench.report(self.node, self._report())
            while self.down:
                self.kept(self.down.pop(0))
            if not self.dirty and self.job.finished and not self.job.completing:
                return
        raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("seed", range(60))
def test_every_step_becomes_one_fact_before_its_job(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(250):
        cluster.happen()
        check(cluster.bench.led)
    cluster.settle()
    assert cluster.job.state == JobState.COMPLETED
    steps = [step.id for fact in cluster.facts for step in fact.steps]
    assert sorted(steps) == list(range(cluster.next))
    numbers = [fact.seq for fact in cluster.facts]
    # What came before the job (the cluster's size, its nodes) has the first ones.
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    # The job's own fact is the last one.
    assert [fact.job is not None for fact in cluster.facts].index(True) == len(cluster.facts) - 1
    by_number = {step.id: step for fact in cluster.facts for step in fact.steps}
    for number, (_, begun, ended) in cluster.steps.items():
        step = by_number[number]
        assert step.wstatus == number % 7 << 8
        # Ages are told when the word leaves: on its way it grows old.
        assert step.start_time >= int(begun) - 1 and step.end_time >= int(ended) - 1
        assert step.start_time <= step.end_time
    assert cluster.job.derived_wstatus == max((n % 7 << 8 for n in by_number), default=0)
    assert not cluster.bench.led.steps
    assert not [key for key in cluster.disk if key[0] == "step"]
