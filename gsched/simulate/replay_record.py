"""What a replay leaves behind: a row for each job, and the state of the cluster over time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gsched import gpushare
from gsched.config import Config
from gsched.model import Job, JobSpec, NodeUse, Shape, Verdict
from gsched.simulate.fragmentation import Demand, Fragmentation, Left
from gsched.simulate.replay_spec import demand
from gsched.simulate.traces import TraceJob

#: states beyond Slurm's: the ledger did not take it; it waited to the end in vain
REFUSED = "REFUSED"
#: reason words of jobs that wait their turn; the first one has none yet
IN_LINE = {"", "None", "Priority", "Resources"}
PENDING = "PENDING"


@dataclass(slots=True)
class Row:
    """What became of a job. Times are seconds of the trace; below 0: never."""

    job: TraceJob
    partition: str = ""
    start: float = -1.0
    end: float = -1.0
    state: str = PENDING
    #: it started before a job of its partition that was ahead of it
    backfilled: bool = False
    #: the last word on why it waits
    reason: str = ""
    restarts: int = 0
    #: (node, bitmap of GPUs)
    places: list[tuple[str, int]] = field(default_factory=list)
    #: parts of GPUs count as such
    gpus: float = 0
    cpus: int = 0

    @property
    def wait(self) -> float:
        return self.start - self.job.submit


class Sample(NamedTuple):
    """The cluster from this moment until the next sample."""

    time: float
    #: in use; of GPUs in parts, the parts
    gpus: float
    cpus: int
    running: int
    waiting: int
    #: GPUs that those who wait have asked for
    waiting_gpus: float
    #: free GPUs that the usual job cannot use
    fragmented: float


class Record:
    """Takes note of all that happens. Cost: constant per event and node."""

    def __init__(self, config: Config, jobs: Sequence[TraceJob], specs: Sequence[JobSpec]) -> None:
        self.rows = [Row(job) for job in jobs]
        self.samples: list[Sample] = []
        self.total_gpus = sum(conf.gpus for conf in config.nodes.values())
        self.total_cpus = sum(conf.cpus for conf in config.nodes.values())
        self.waiting = self.ended = 0
        self._config = config
        #: node -> its GPUs' parts by bit, for nodes that have any
        self._parts = {
            name: [number for _, number in parts]
            for name in config.nodes
            if (parts := gpushare.parts(config, name)) is not None
        }
        self._running = self._cpus = 0
        self._waiting_gpus = self._gpus = self._lost = 0.0
        self._measure = Fragmentation(self._demand(spec.shape) for spec in specs)
        #: node -> (GPUs, CPUs, fragmented) as counted
        self._counted = dict.fromkeys(config.nodes, (0.0, 0, 0.0))
        for name in config.nodes:
            self.used(NodeUse(name))
        #: job id -> its row's number
        self._index: dict[int, int] = {}
        #: partition -> (rank, row number) of jobs that may still wait
        self._ahead: dict[str, list[tuple[int, int, int]]] = {}
        self._rank: dict[int, tuple[int, int, int]] = {}
        #: started at this moment: (row number, partition, rank it had)
        self._begun: list[tuple[int, str, tuple[int, int, int]]] = []

    def _demand(self, shape: Shape) -> Demand:
        per_gpu = max(max(parts) for parts in self._parts.values()) if shape.share else 1
        return demand(shape, per_gpu)

    # ---- jobs -----------------------------------------------------------------------------------

    def submitted(self, index: int, job: Job) -> None:
        """The ledger has taken it."""
        self._index[job.id] = index
        row = self.rows[index]
        row.partition = row.job.partition or job.partition
        self._queue(index, job)

    def prioritised(self, index: int, jobs: Mapping[int, Job]) -> None:
        """It has been given another priority."""
        self._place(index, jobs[self._rank[index][1]])

    def _queue(self, index: int, job: Job) -> None:
        self.waiting += 1
        self._waiting_gpus += self.rows[index].job.wanted_gpus
        self._place(index, job)

    def _place(self, index: int, job: Job) -> None:
        rank = (-job.priority, job.id, index)
        self._rank[index] = rank
        heapq.heappush(self._ahead.setdefault(job.partition, []), rank)

    def refused(self, index: int) -> None:
        self.rows[index].state = REFUSED

    def started(self, job: Job, now: float) -> int:
        """Its script begins; the number of its row."""
        index = self._index[job.id]
        row = self.rows[index]
        row.start, row.end, row.state = now, -1.0, job.state.name
        row.restarts = job.restarts
        row.places = [(part.node, part.gpus) for part in job.alloc]
        row.gpus = sum(
            part.shares / self._parts[part.node][part.gpus.bit_length() - 1]
            if part.shares
            else part.gpus.bit_count()
            for part in job.alloc
        )
        row.cpus = sum(part.cpus for part in job.alloc)
        self.waiting -= 1
        self._waiting_gpus -= row.job.wanted_gpus
        self._running += 1
        self._begun.append((index, job.partition, self._rank.pop(index)))
        return index

    def name_of(self, job_id: int) -> str:
        """What the trace calls a job; "" it does not know it."""
        index = self._index.get(job_id)
        return self.rows[index].job.name if index is not None else ""

    def start_of(self, job_id: int) -> float:
        return self.rows[self._index[job_id]].start

    def over(self, job: Job, now: float) -> None:
        """It has ended for good, and nothing is left of it; told once or more often."""
        row = self.rows[self._index[job.id]]
        if row.end >= 0 or row.state == job.state.name:
            return
        if row.start >= 0:
            row.end = now
            self._running -= 1
        else:
            self.waiting -= 1
            self._waiting_gpus -= row.job.wanted_gpus
            self._rank.pop(self._index[job.id], None)
        row.state = job.state.name
        self.ended += 1

    def requeued(self, job: Job) -> None:
        """Its attempt was taken back and it waits again; told once or more often."""
        index = self._index[job.id]
        row = self.rows[index]
        if row.restarts == job.restarts or index in self._rank:
            return
        row.restarts, row.start, row.state = job.restarts, -1.0, PENDING
        self._running -= 1
        self._queue(index, job)

    def told(self, verdict: Verdict) -> None:
        """Why it waits."""
        index = self._index.get(verdict.job_id)
        if index is not None:
            self.rows[index].reason = verdict.reason

    # ---- the cluster ----------------------------------------------------------------------------

    def used(self, use: NodeUse) -> None:
        """What a node's jobs hold has changed."""
        conf = self._config.nodes[use.name]
        whole = use.gpus_alloc.bit_count()
        gpus: float = whole
        rests: tuple[float, ...] = ()
        if use.parts:
            parts = self._parts[use.name]
            rests = tuple(sorted(1 - held / parts[bit] for bit, held in use.parts.items()))
            gpus -= sum(rests)
        cpus, mem = conf.cpus - use.cpus_alloc, conf.real_memory - use.mem_alloc_mb
        lost = self._measure.unusable(Left(conf.gpus - whole, cpus, mem, rests))
        before = self._counted[use.name]
        self._gpus += gpus - before[0]
        self._cpus += use.cpus_alloc - before[1]
        self._lost += lost - before[2]
        self._counted[use.name] = (gpus, use.cpus_alloc, lost)

    def sample(self, now: float) -> None:
        """All that happened at this moment is told."""
        self._judge_starts()
        sample = Sample(
            now,
            # Sums of fractions come back to what they were but for the last digits.
            round(self._gpus, 6),
            self._cpus,
            self._running,
            self.waiting,
            round(self._waiting_gpus, 6),
            round(max(0.0, self._lost), 6),
        )
        if not self.samples or self.samples[-1][1:] != sample[1:]:
            self.samples.append(sample)

    def _judge_starts(self) -> None:
        """Who of those that have just started has overtaken one that still waits."""
        for index, partition, rank in self._begun:
            queue = self._ahead.get(partition, [])
            while queue and not self._stands(queue[0]):
                heapq.heappop(queue)
            self.rows[index].backfilled = bool(queue) and queue[0] < rank
        self._begun.clear()

    def _stands(self, rank: tuple[int, int, int]) -> bool:
        """Whether a place in the line is still taken, by a job that waits its turn (and not for an
        administrator, as with a limit above the partition's)."""
        return self._rank.get(rank[2]) == rank and self.rows[rank[2]].reason in IN_LINE

    def close(self, now: float) -> None:
        """The replay is over at `now`."""
        if self.samples and self.samples[-1].time < now:
            self.samples.append(self.samples[-1]._replace(time=now))
