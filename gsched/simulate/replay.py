"""A trace replayed: the production ledger and its passes under a virtual clock.

What a user would send becomes a `Write` command, what a node would say a `NodeMessage`; passes
are run and recorded as the controller does. Nothing is stored and nothing fails. At each moment
all ends and arrivals are taken in first, then passes follow until nothing more starts.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from gsched.config import Config
from gsched.ledger import Ledger, Meta, Outcome, Start, TakeOver, Tick, Write
from gsched.ledger.commands import Command
from gsched.ledger.suspend import suspended_s
from gsched.model import Job, JobSpec, JobState, NodeUse, Plan, PolicyRecord, Verdict
from gsched.scheduling import Planner, run_pass
from gsched.simulate.replay_cluster import ClusterError
from gsched.simulate.replay_node import ReplayNode
from gsched.simulate.replay_record import Record
from gsched.simulate.teams import Teams
from gsched.simulate.traces import TraceJob
from gsched.wire.messages import (
    Call,
    Done,
    ManagePolicy,
    PolicyOp,
    Refused,
    Reply,
    SubmitJob,
    UpdateJob,
)
from gsched.wire.nodes import LaunchSpec

CLUSTER = "22222222-2222-2222-2222-222222222222"
#: the wall clock at a trace's zero, where the trace has no date: 2024-01-01
EPOCH = 1_704_067_200
#: virtual seconds between two ticks: they forget what has long ended
TICK_S = 3600.0
#: uid of the first user
FIRST_UID = 1000
NEVER = float("inf")
#: wakings in a row after which nothing is expected any more
IDLE_WAKES = 1000
#: jobs that came or ended between two words about the progress
PROGRESS_STEP = 200

SCRIPT = b"#!/bin/sh\n"
FAILED = 1 << 8
KILLED = 15

#: (time, job id, attempt, exit status, cause, seconds that it stood still) of a script that runs
_End = tuple[float, int, int, int, str, int]


class Replay:
    """One cluster and the jobs that come to it, each with the request that stands for it.

    Cost: per job some tens of us for each of its nodes, and the passes.
    """

    def __init__(
        self,
        config: Config,
        jobs: Sequence[TraceJob],
        specs: Sequence[JobSpec],
        epoch: int | None = None,
        own_priority: bool = False,
        policy: Iterable[PolicyRecord] = (),
        changes: Iterable[PolicyOp] = (),
    ) -> None:
        # The site's programs are not run.
        config = msgspec.structs.replace(config, prolog_slurmctld=(), epilog_slurmctld=())
        self.jobs = jobs
        self.record = Record(config, jobs, specs)
        #: sentence of a refusal -> jobs that got it
        self.refused: Counter[str] = Counter()
        self.passes = 0
        self.pass_s = 0.0
        #: of the longest pass
        self.longest_s = 0.0
        self.plans = 0
        self.plan_s = 0.0
        self._specs = specs
        self._own_priority = own_priority
        self._epoch = EPOCH if epoch is None else epoch
        self._ledger = Ledger(config, Meta(CLUSTER))
        #: how the accounts stand over time
        self.teams = Teams()
        for each in policy:
            self._ledger.book.put(each)
        self._changes = list(changes)
        self._nodes = {
            name: ReplayNode(conf)
            for name, conf in config.nodes.items()
            if conf.state.upper() != "FUTURE"
        }
        self._uids: dict[str, int] = {}
        self._ends: list[_End] = []
        #: of jobs that stand still
        self._standing: dict[int, _End] = {}
        #: times at which the ledger asked to be woken
        self._wakes: list[float] = []
        self._planner = Planner()
        #: when the next plan is due
        self._plan_at = NEVER
        self._next_tick = TICK_S
        self._now = 0.0

    # ---- the clock ------------------------------------------------------------------------------

    def run(self, progress: Callable[[int, int], None] | None = None) -> None:
        """From the first submission until the last job has ended, or none of those that wait can
        ever start. `progress` is told now and then how many have come and how many have ended."""
        self._begin()
        came = told = idle = 0
        while came < len(self.jobs) or self._ends or self._standing or self.record.waiting:
            arrival = self.jobs[came].submit if came < len(self.jobs) else NEVER
            ending = self._ends[0][0] if self._ends else NEVER
            waking = self._wakes[0] if self._wakes else NEVER
            now = min(arrival, ending, waking, self._plan_at)
            # Only time can still help: not for ever.
            idle = idle + 1 if arrival == ending == NEVER else 0
            if now == NEVER or idle > IDLE_WAKES:
                break
            self._now = now
            first = came
            while came < len(self.jobs) and self.jobs[came].submit <= self._now:
                came += 1
            self._moment(range(first, came))
            done = came + self.record.ended
            if progress is not None and done >= told + PROGRESS_STEP:
                told = done
                progress(came, self.record.ended)
        self.record.close(self._now)

    def _begin(self) -> None:
        self._now = self.jobs[0].submit
        self._next_tick = self._now + TICK_S
        self._apply([TakeOver()])
        if self._changes:
            self._found_accounts()
        epoch = self._ledger.meta.epoch
        self._apply([message for node in self._nodes.values() for message in node.register(epoch)])
        self._wakes.clear()

    def _moment(self, arrivals: range) -> None:
        """All that happens at this moment of virtual time."""
        woken = False
        while self._wakes and self._wakes[0] <= self._now:
            heapq.heappop(self._wakes)
            woken = True
        commands: list[Command] = list(self._scripts_end())
        commands += [self._submission(index) for index in arrivals]
        if woken or self._now >= self._next_tick:
            self._next_tick = self._now + TICK_S
            commands.append(Tick())
        self._apply(commands, woken)
        self._plan()
        self.record.sample(self._now)
        self.teams.note(self._ledger, self._now)

    # ---- one batch ------------------------------------------------------------------------------

    def _apply(self, commands: list[Command], schedule: bool = False) -> None:
        """Carries commands out, then what they ask for, then passes, until all is quiet."""
        while commands or schedule:
            if not commands:
                schedule = False
                commands = [Start(self._pass())]
            out = Outcome()
            now = self._epoch + self._now
            for command in commands:
                self._ledger.apply(command, now, out)
            schedule = schedule or out.schedule
            # A tick asks for the next second; those of a replay are rarer.
            if out.wake_at is not None and not any(isinstance(c, Tick) for c in commands):
                heapq.heappush(self._wakes, max(out.wake_at - self._epoch, self._now + 1))
            commands = self._carry_out(out)

    def _pass(self) -> Plan:
        began = time.perf_counter()
        plan = run_pass(self._ledger, self._ledger.meta.last_now)
        took = time.perf_counter() - began
        self.passes += 1
        self.pass_s += took
        self.longest_s = max(self.longest_s, took)
        return plan

    def _plan(self) -> None:
        """Makes the plan for the whole queue where one is due. It takes no virtual time, so that
        all of it still fits."""
        due = self._planner.due_at(self._ledger) - self._epoch
        if due <= self._now:
            began = time.perf_counter()
            self._planner.prepare(self._ledger, self._epoch + self._now).run()
            self.plans += 1
            self.plan_s += time.perf_counter() - began
            self._apply([], self._planner.apply(self._ledger))
            due = self._planner.due_at(self._ledger) - self._epoch
        self._plan_at = max(due, self._now + 1)

    def _carry_out(self, out: Outcome) -> list[Command]:
        """Answers go to the users, orders to the nodes; what these say to it."""
        said: list[Command] = []
        for request_id, reply in out.answers:
            index = int.from_bytes(request_id, "big")
            if index >= len(self.jobs):
                self.record.prioritised(index - len(self.jobs), self._ledger.jobs)
            elif isinstance(reply, Done):
                self.record.submitted(index, self._ledger.jobs[reply.value])
                if self._own_priority and self.jobs[index].priority is not None:
                    said.append(self._prioritise(index, reply.value))
            else:
                self.record.refused(index)
                self.refused[reply.message] += 1
        begun: list[LaunchSpec] = []
        for name, orders in out.orders.items():
            node = self._nodes[name]
            launches, awaited = node.obey(orders)
            begun += launches
            if awaited:
                said.append(node.report())
        if begun:
            self._begin_scripts(begun)
        self._take_note(out)
        return said

    def _take_note(self, out: Outcome) -> None:
        for job in out.puts.values():
            if not isinstance(job, Job):
                continue
            if job.id in self._standing and job.state != JobState.SUSPENDED:
                heapq.heappush(self._ends, self._standing.pop(job.id))
            self.teams.told(job, self.record.name_of(job.id), self._now)
            if job.finished and not job.completing:
                self.record.over(job, self._now)
            elif job.state == JobState.PENDING and job.restarts:
                self.record.requeued(job)
        for job_id, reason in out.words.items():
            self.record.told(Verdict(job_id, reason))
        for use in out.view.values():
            if isinstance(use, NodeUse):
                self.record.used(use)
            elif isinstance(use, Verdict):
                self.record.told(use)

    # ---- accounts ------------------------------------------------------------------------------

    def _found_accounts(self) -> None:
        """The accounts as they are to be, and the trace's users in those that they name."""
        now = self._epoch + self._now
        reply = self._manage(self._changes, now)
        if isinstance(reply, Refused):
            raise ClusterError(reply.message.strip())
        book = self._ledger.book
        users: dict[tuple[str, str], None] = {
            (job.user or "nobody", job.account.lower()): None
            for job in self.jobs
            if job.account.lower() in book.accounts
        }
        missing = [one for one in users if book.find(one[1], one[0]) is None]
        adding = [PolicyOp("add", "user", {"name": [u], "account": [a]}) for u, a in missing]
        if adding:
            self._manage(adding, now)

    def _manage(self, ops: list[PolicyOp], now: float) -> Reply:
        request = b"accounts%d" % self._ledger.book.version
        out = self._ledger.apply(
            Write(Call(request, ManagePolicy(ops, load=True), 0, 0, 1, user="root")), now
        )
        return dict(out.answers)[request]

    # ---- users ----------------------------------------------------------------------------------

    def _submission(self, index: int) -> Write:
        user = self.jobs[index].user or "nobody"
        uid = self._uids.setdefault(user, FIRST_UID + len(self._uids))
        job = SubmitJob(self._specs[index], SCRIPT, b"", user, user)
        return Write(Call(index.to_bytes(8, "big"), job, uid, uid, 1))

    def _prioritise(self, index: int, job_id: int) -> Write:
        """As `scontrol update` by an administrator at once after the submission."""
        update = UpdateJob([str(job_id)], "update", {"priority": str(self.jobs[index].priority)})
        return Write(Call((index + len(self.jobs)).to_bytes(8, "big"), update, 0, 0, 1))

    # ---- scripts --------------------------------------------------------------------------------

    def _begin_scripts(self, begun: list[LaunchSpec]) -> None:
        """Of gangs too: their nodes are prepared within the same moment."""
        for launch in begun:
            job = launch.job
            index = self.record.started(job, self._now)
            trace = self.jobs[index]
            length, wstatus, cause = trace.run, 0 if trace.good else FAILED, ""
            if launch.limit_s and length > launch.limit_s:
                length, wstatus, cause = float(launch.limit_s), KILLED, "timeout"
            end = (self._now + length, job.id, job.attempt, wstatus, cause, 0)
            heapq.heappush(self._ends, end)

    def _stood_still(self, end: _End, job: Job) -> bool:
        """Whether a script does not end then as its job stands still, or did so until now: it ends
        so much later."""
        at, job_id, attempt, wstatus, cause, known = end
        if job.state == JobState.SUSPENDED:
            self._standing[job_id] = end
            return True
        late = suspended_s(job)
        if late > known:
            heapq.heappush(self._ends, (at + late - known, job_id, attempt, wstatus, cause, late))
        return late > known

    def _scripts_end(self) -> Iterator[Command]:
        """The reports of nodes whose scripts end now."""
        nodes: dict[str, None] = {}
        while self._ends and self._ends[0][0] <= self._now:
            end = heapq.heappop(self._ends)
            _, job_id, attempt, wstatus, cause, _ = end
            job = self._ledger.jobs.get(job_id)
            if job is None or job.attempt != attempt or not job.alloc:
                continue
            if not job.finished and self._stood_still(end, job):
                continue
            name = job.batch_host
            elapsed = int(1000 * (self._now - self.record.start_of(job_id)))
            if self._nodes[name].end((job_id, attempt), wstatus, cause, elapsed):
                nodes[name] = None
        for name in nodes:
            yield self._nodes[name].report()
