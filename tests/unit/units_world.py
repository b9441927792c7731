"""Teams on a cluster of whole nodes, on a virtual clock: what each would have on one of its own."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from unit.ledger_support import Bench, at

from gsched.ledger.invariants import check
from gsched.ledger.outcome import Outcome
from gsched.model import Gpu, Job, JobState, Phase, Shape
from gsched.model.policy import ROOT, Account, Assoc
from gsched.policy import quota, units
from gsched.wire.nodes import Kill, Prepare

GPU = "gres/gpu"
CONF = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu
DefMemPerCPU=100
SlurmdTimeout=0
MinJobAge=0
PriorityType=priority/basic
SchedulerType=sched/{order}
SchedulerParameters=preempt_max=0,preempt_cooldown=0
NodeName=DEFAULT CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:h100:8
NodeName=node[1-{nodes}]
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 DefaultTime=1:00:00 State=UP
"""


@dataclass(frozen=True)
class Wish:
    """A job as its user submits it: times in seconds."""

    submit: int
    team: str
    gpus: int
    nodes: int
    run: int
    limit: int


@dataclass
class Team:
    units: int
    borrows: bool = True
    parent: str = ROOT


class _Quick(Bench):
    """Invariants are looked at where the clock stands, not after every command."""

    def apply(self, command: object) -> Outcome:
        out = self.led.apply(command, self.now)  # type: ignore[arg-type]
        for node, orders in out.orders.items():
            self.sent.setdefault(node, []).extend(orders)
        return out


@dataclass
class World:
    nodes: int
    teams: dict[str, Team]
    order: str = "builtin"
    unit: str = "node"
    #: more lines of slurm.conf, and words of the partition
    conf: str = ""
    partition: str = ""
    b: Bench = field(init=False)
    #: wish -> its job, when its last attempt started, when it ended
    jobs: dict[Wish, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    #: times that guaranteed work made way (never), and that borrowed work did
    wronged: int = 0
    taken: int = 0
    #: (time, job) of jobs that were first of their team and had room beside its guaranteed work
    idle: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = CONF.format(nodes=self.nodes, order=self.order).rstrip() + " " + self.partition
        self.b = _Quick(f"{text}\n{self.conf}", register=False)
        for name in self.b.config.nodes:
            self.b.register(name, gpus=self.links(name))
        book = self.b.led.book
        for record in book.first:
            if not isinstance(record, Assoc) or record.id not in book.assocs:
                book.put(record)
        size = self.size
        for number, (name, team) in enumerate(self.teams.items(), 10):
            book.put(Account(name))
            made = Assoc(number, name, parent=team.parent)
            made.guarantee = {GPU: team.units * size}
            made.guarantee_unit = self.unit
            made.borrow = {} if team.borrows else {GPU: 0}
            book.put(made)
        assert not quota.broken_promise(book, {GPU: self.nodes * 8})
        assert not units.broken(book, self.b.led.units.of_nodes)

    def links(self, name: str) -> list[Gpu]:
        """GPUs of a node: all linked, or in two islands of four."""
        group = self.size
        return [
            Gpu(
                f"{name}-{i}",
                "h100",
                i,
                links=[18 if i != j and i // group == j // group else 0 for j in range(8)],
            )
            for i in range(8)
        ]

    def run(self, wishes: list[Wish]) -> World:
        """All of them to their ends."""
        self.b.now = float(int(self.b.now))
        zero = int(self.b.now)
        todo: list[tuple[int, int, int, Wish | None]] = [
            (zero + one.submit, 0, number, one) for number, one in enumerate(wishes)
        ]
        heapq.heapify(todo)
        while todo:
            now = todo[0][0]
            self.b.now = float(now)
            while todo and todo[0][0] == now:
                _, job_id, number, wish = heapq.heappop(todo)
                if wish is not None:
                    self.jobs[wish] = self.submit(wish)
                    continue
                job = self.b.led.jobs.get(job_id)
                if job is not None and job.attempt == number and job.state == JobState.RUNNING:
                    self.ends[job_id] = now - zero
                    self.report(job, Phase.RELEASED)
            for job in self.settle():
                self.starts[job.id] = now - zero
                wish = next(w for w, one in self.jobs.items() if one == job.id)
                heapq.heappush(todo, (now + wish.run, job.id, job.attempt, None))
            check(self.b.led)
            self.idle += self.held_back()
        return self

    @property
    def size(self) -> int:
        """GPUs of a unit."""
        return 8 if self.unit == "node" else 4

    def submit(self, wish: Wish) -> int:
        shape = Shape(
            gpus_per_node=wish.gpus, min_nodes=wish.nodes, max_nodes=wish.nodes, ntasks=wish.nodes
        )
        return self.b.job(shape=shape, account=wish.team, time_limit=wish.limit).id

    def settle(self) -> list[Job]:
        """Passes until nothing changes; what is told to end is gone at once. The jobs that run
        now and did not before, or are another attempt."""
        b, led = self.b, self.b.led
        before = {job.id: job.attempt for job in led.jobs.values() if job.alloc}
        for _ in range(200):
            out = b.schedule()
            busy = bool(out.orders)
            for node, orders in list(b.sent.items()):
                b.sent[node] = []
                for order in orders:
                    if isinstance(order, Prepare) and not order.go:
                        job = led.jobs[order.launch.job.id]
                        self.report(job, Phase.PREPARED, node)
                    if isinstance(order, Kill):
                        gone = led.jobs[order.job_id]
                        if gone.attempt == order.attempt and gone.alloc:
                            self.taken += order.cause == "preempted"
                            self.wronged += order.cause == "preempted" and bool(gone.pool)
                            self.report(gone, Phase.RELEASED)
                            busy = True
            if not busy:
                break
        else:
            raise AssertionError("it does not come to rest")
        return [
            job
            for job in led.jobs.values()
            if job.state == JobState.RUNNING and before.get(job.id) != job.attempt
        ]

    def report(self, job: Job, phase: Phase, only: str = "") -> None:
        """What nodes say once a job has come to a phase there; all others run on."""
        led = self.b.led
        for node in [part.node for part in job.alloc if only in ("", part.node)]:
            said = []
            for job_id in led.parts[node]:
                other = led.jobs[job_id]
                mine = next(part for part in other.alloc if part.node == node)
                if job_id == job.id:
                    wstatus = 0 if phase == Phase.RELEASED else -1
                    said.append(at(other, phase, wstatus=wstatus))
                else:
                    said.append(at(other, max(mine.phase, Phase.PREPARED)))
            self.b.report(node, *said)

    def held_back(self) -> list[tuple[float, int]]:
        """Jobs that come first in their team, but for what is guaranteed, and would have room on
        its nodes if only its guaranteed work were there."""
        led = self.b.led
        found = []
        for name, team in self.teams.items():
            mine = [one for one in led.jobs.values() if one.spec.account == name]
            waiting = [one for one in mine if one.state == JobState.PENDING]
            used: dict[tuple[str, int], int] = {}
            for job in mine:
                for part in job.alloc if job.pool == name and not job.finished else ():
                    for first in range(0, 8, self.size):
                        count = (part.gpus >> first & (1 << self.size) - 1).bit_count()
                        if count:
                            unit = part.node, first
                            used[unit] = used.get(unit, 0) + count
            assert len(used) <= team.units
            assert all(count <= self.size for count in used.values())
            if waiting:
                first = min(waiting, key=lambda one: (-one.priority, one.id))
                # What its team has borrowed before it is not taken from the team.
                if any(
                    one.alloc
                    and not one.pool
                    and (-one.priority, one.id) < (-first.priority, first.id)
                    for one in mine
                    if not one.finished
                ):
                    continue
                free = [self.size - count for count in used.values()]
                free += [self.size] * (team.units - len(used))
                want = first.spec.shape
                if sum(each >= want.gpus_per_node for each in free) >= want.min_nodes:
                    found.append((self.b.now, first.id))
        return found

    def waits(self) -> dict[Wish, int]:
        """Seconds until the attempt that came to its end had begun."""
        return {wish: self.starts[job_id] - wish.submit for wish, job_id in self.jobs.items()}

    def waits_of(self, team: str) -> dict[Wish, int]:
        """Those of one team, of which all have started."""
        mine = {wish: job_id for wish, job_id in self.jobs.items() if wish.team == team}
        return {wish: self.starts[job_id] - wish.submit for wish, job_id in mine.items()}
