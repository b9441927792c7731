"""A whole cluster in one process under a virtual clock, with faults: for the tests.

The controller's ledger, its scheduling and the nodes' agents are the production ones; network,
disks, processes and jobs are played here. The same seed gives the same history. What jobs really
did is written down apart from what the ledger believes, so that both can be compared.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from gsched.config import Config
from gsched.ledger import Configure, Tick
from gsched.simulate.client import Client
from gsched.simulate.controller import Controller, Disk
from gsched.simulate.node import SimNode

#: one-way delay of a message, seconds: (least, most)
DELAY = (0.0005, 0.02)


@dataclass
class Faults:
    """Probabilities and rates while the weather is bad; all zero: a calm world."""

    #: per message
    lose: float = 0.0
    double: float = 0.0
    #: a delay of up to `late_s` instead of a usual one
    late: float = 0.0
    late_s: float = 5.0
    #: per batch: the controller dies before its commit; after it, before anything is sent
    die_before_commit: float = 0.0
    die_after_commit: float = 0.0
    #: per action of an agent: the daemon dies before carrying it out
    daemon_dies: float = 0.0
    #: per virtual second
    node_reboots: float = 0.0
    partitions: float = 0.0
    supervisor_dies: float = 0.0
    second_controller: float = 0.0
    clock_jumps: float = 0.0
    disk_full: float = 0.0
    node_disk_full: float = 0.0


@dataclass
class Run:
    """One real start of a job's script."""

    job_id: int
    attempt: int
    node: str
    gpus: tuple[str, ...]
    start: float
    #: > 0: only so many parts of its one GPU
    shares: int = 0
    #: None while it runs
    end: float | None = None
    #: it stands still: others may use its GPUs
    still: bool = False
    #: its CPUs on the node, of which partition it is, and when it was at work: (from, until)
    cpus: int = 0
    partition: str = ""
    worked: list[tuple[float, float]] = field(default_factory=list)
    #: when it began, or went on
    since: float = 0.0

    def stop(self, now: float) -> None:
        """It stands still from now on."""
        self.still = True
        self.worked.append((self.since, now))

    def go(self, now: float) -> None:
        """It goes on."""
        self.still, self.since = False, now

    def stretches(self) -> list[tuple[float, float]]:
        """When it was at work, until its end."""
        last = [] if self.still or self.end is None else [(self.since, self.end)]
        return [*self.worked, *last]


@dataclass
class World:
    """Events in time order; everything else hangs on it."""

    config: Config
    seed: int
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = 1_000_000.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.runs: list[Run] = []
        self.history: list[str] = []
        #: plans of the whole queue that were taken over
        self.plans = 0
        #: nodes that no message reaches until the time given
        self.cut_off: dict[str, float] = {}
        self.disk = Disk()
        self.controller: Controller | None = None
        self.nodes = {name: SimNode(self, name) for name in self.config.nodes}
        self._machines = self.config.nodes
        self.client = Client(self)
        self.calm = False
        #: something is still planned until then
        self.busy_until = 0.0
        #: how far the controller's wall clock is off
        self.wall_offset = 0.0
        self.start_controller()
        for node in self.nodes.values():
            node.boot()

    # ---- time -----------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Schedules an event."""
        self._sequence += 1
        heapq.heappush(self._events, (max(when, self.now), self._sequence, what))

    def run_until(self, end: float, check: Callable[[], bool] | None = None) -> None:
        """Plays events up to virtual time `end`, or until `check` says that it is enough."""
        while self._events and self._events[0][0] <= end:
            self.now, _, what = heapq.heappop(self._events)
            what()
            if check is not None and check():
                return
        self.now = max(self.now, end)

    def chance(self, probability: float) -> bool:
        """True with that probability, never in calm weather."""
        return not self.calm and probability > 0 and self.random.random() < probability

    def note(self, text: str) -> None:
        """A line of the history, shown when a test fails."""
        self.history.append(f"{self.now - 1_000_000:9.4f} {text}")

    # ---- network ----------------------------------------------------------------------------

    def send(self, node: str, deliver: Callable[[], None]) -> None:
        """Carries a message between the controller and a node, or does not."""
        if self.cut_off.get(node, 0) > self.now or self.chance(self.faults.lose):
            return
        copies = 2 if self.chance(self.faults.double) else 1
        for _ in range(copies):
            delay = self.random.uniform(*DELAY)
            if self.chance(self.faults.late):
                delay = self.random.uniform(0, self.faults.late_s)
            self.at(self.now + delay, deliver)

    # ---- controller ---------------------------------------------------------------------------

    def start_controller(self) -> None:
        """A controller process takes the state (raising the epoch)."""
        self.controller = Controller(self, self.disk)
        self.note(f"controller starts, epoch {self.controller.ledger.meta.epoch}")
        self.controller.begin()

    def reconfigure(self, config: Config) -> None:
        """The files change, and the controller, if there is one, is told to read them."""
        self.config = config
        self.note(f"configuration with {len(config.nodes)} nodes")
        if self.controller is not None:
            self.controller.receive(Configure(config))

    def controller_died(self, who: Controller) -> None:
        """Another one is started some time later."""
        if who is self.controller:
            self.note("controller dies")
            self.controller = None
            self.at(self.now + self.random.uniform(0.1, 8.0), self._restart)

    def _restart(self) -> None:
        if self.controller is None:
            self.start_controller()

    def _second_controller(self) -> None:
        """The controller's host freezes; another one takes the state over; the old one comes back,
        knows nothing of it and goes on. (Both at once on one state is what the lock prevents; a
        node that has not heard of the new one yet cannot tell them apart.)"""
        old = self.controller
        assert old is not None
        self.note("the controller freezes; a second one takes over")
        old.frozen = True
        old.disk = self.disk.copy()
        self.start_controller()
        assert self.controller is not None
        epoch = self.controller.ledger.meta.epoch + 1

        def thaw() -> None:
            if all(node.known_epoch >= epoch for node in self.nodes.values()):
                self.note("the frozen controller goes on")
                old.frozen = False
                old.receive(Tick())
            else:
                self.at(self.now + 1.0, thaw)

        self.at(self.now + 1.0, thaw)

    # ---- weather --------------------------------------------------------------------------------

    def weather(self, until: float) -> None:
        """Rolls the dice of the per-second faults up to `until`; then the weather is calm."""
        if self.now >= until:
            self.calm = True
            self.cut_off.clear()
            self.note("calm from here")
            return
        faults, rnd = self.faults, self.random
        for name, node in self.nodes.items():
            if self.chance(faults.node_reboots):
                node.reboot()
            if self.chance(faults.partitions):
                self.cut_off[name] = self.now + rnd.uniform(1, 60)
                self.note(f"{name} cut off until {self.cut_off[name] - 1_000_000:.1f}")
            if self.chance(faults.supervisor_dies):
                node.kill_a_supervisor()
            if self.chance(faults.node_disk_full):
                node.disk_full_until = self.now + rnd.uniform(1, 10)
        if self.controller is not None:
            if self.chance(faults.second_controller):
                self._second_controller()
            elif self.chance(faults.clock_jumps):
                self.wall_offset = rnd.uniform(-500, 500)
                self.note("the wall clock jumps")
            elif self.chance(faults.disk_full):
                self.disk.full_until = self.now + rnd.uniform(0.5, 5)
                self.note("the controller's disk is full")
        self.at(self.now + 1.0, lambda: self.weather(until))

    def _parts(self, node: str) -> int:
        """Parts of each GPU of a node, which are as many as its neighbours have."""
        # A node that has left the configuration may still have jobs.
        conf = self._machines[node]
        count = sum(item.count for item in conf.gres if item.name in ("shard", "mps"))
        return count // conf.gpus if conf.gpus else 0

    # ---- what really happened --------------------------------------------------------------------

    def started(
        self,
        job_id: int,
        attempt: int,
        node: str,
        gpus: tuple[str, ...],
        shares: int = 0,
        cpus: int = 0,
        partition: str = "",
    ) -> Run:
        """A script really starts. Raises AssertionError where that must not be."""
        part = f"{shares} parts of " if shares else ""
        self.note(f"{node}: job {job_id} attempt {attempt} runs on {part}{','.join(gpus)}")
        if any(run.job_id == job_id and run.attempt == attempt for run in self.runs):
            raise AssertionError(f"job {job_id} attempt {attempt} was started twice")
        run = Run(job_id, attempt, node, gpus, self.now, shares)
        run.cpus, run.partition, run.since = cpus, partition, self.now
        self.alone(run)
        self.runs.append(run)
        return run

    def alone(self, mine: Run) -> None:
        """Raises AssertionError where a script that starts or goes on has not its GPUs for itself,
        but for those of scripts that stand still."""
        beside, node = mine.shares, mine.node
        for run in self.runs:
            if run is mine or run.end is not None or run.still or run.node != node:
                continue
            if set(run.gpus) & set(mine.gpus):
                if not (run.shares and mine.shares):
                    raise AssertionError(
                        f"{node}: jobs {run.job_id} and {mine.job_id} run on the same GPU at once"
                    )
                beside += run.shares
        if beside > self._parts(node):
            raise AssertionError(f"{node}: {beside} parts of {mine.gpus} are in use")
