"""The steps of one job on the node that leads it: asked for, waited for, numbered."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gsched.errors import message
from gsched.layout import Busy, Planned, StepRefused
from gsched.model import Job, NodeAlloc
from gsched.model.step import (
    COPY_STEPS,
    INTERACTIVE_STEP,
    Callback,
    Step,
    StepSpec,
)
from slurmd_compat.agent.step_fit import told, weight
from slurmd_compat.agent.step_image import with_image
from slurmd_compat.agent.step_lead import Lead
from slurmd_compat.agent.step_spoken import Client
from slurmd_compat.agent.step_words import (
    FIRST_WAIT,
    DropStep,
    LeadRecord,
    PutWait,
    StepKey,
    WaitRecord,
)
from slurmd_compat.agent.words import Key, Record

if TYPE_CHECKING:
    from slurmd_compat.agent.steps import Steps

#: most steps of one job that wait for room, or run
MOST_WAITING = 4096
MOST_RUNNING = 4096
#: most bytes of environments and arguments that requests of one job hold here
MOST_BYTES = 64 << 20


@dataclass
class Waiting:
    """A request for which there is no room yet."""

    record: WaitRecord
    client: Client

    def __post_init__(self) -> None:
        self.bytes = size_of(self.record.spec, self.record.environment)

    @property
    def spec(self) -> StepSpec:
        return self.record.spec


class NoStep(Exception):
    """The request is refused: srun's lines without "srun: "."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class JobSteps:
    """All steps of one attempt, in the order of their numbers."""

    def __init__(self, record: Record, steps: Steps) -> None:
        self.record = record
        self._steps = steps
        self.leads: dict[int, Lead] = {}
        #: of those: not over; with news for the controller
        self._live: dict[int, Lead] = {}
        #: bytes that the requests of these hold
        self._weights: dict[int, int] = {}
        self.dirty: dict[int, Lead] = {}
        self.waiting: list[Waiting] = []
        self.next_id = 0
        self.next_copy = COPY_STEPS
        self._last_wait = FIRST_WAIT
        #: cause of the job's end, once it is ending: no new steps
        self.stopping = ""
        #: request -> number of its step (-1 it waits)
        self.requests: dict[bytes, int] = {}
        #: steps that somebody waits for the controller to know
        self.tell_now: set[int] = set()
        #: the job's warning signal was sent to its steps
        self.warned = False

    @property
    def key(self) -> Key:
        return self.record.key

    @property
    def job(self) -> Job:
        return self.record.launch.job

    @property
    def components(self) -> list[Job]:
        return self.record.launch.components or [self.job]

    @property
    def running(self) -> list[Lead]:
        return list(self._live.values())

    # -- room

    def _held(self, offset: int) -> list[NodeAlloc]:
        """What steps that do not share hold of a component's nodes."""
        held = [NodeAlloc(part.node, 0, 0, 0) for part in self.components[offset].alloc]
        places = {part.node: part for part in held}
        for lead in self._live.values():
            if lead.record.spec.overlap:
                continue
            for share in lead.step.nodes:
                place = places.get(share.node)
                if place is None or share.het_offset != offset:
                    continue
                alloc = share.alloc
                place.cpus += alloc.cpus
                place.tasks += alloc.tasks
                place.mem_mb += alloc.mem_mb
                place.gpus |= alloc.gpus
                place.cpu_ids |= alloc.cpu_ids
                place.shares += alloc.shares
        return held

    def plan(self, spec: StepSpec) -> Planned:
        """Where the step's tasks would go now. Raises Busy, StepRefused."""
        if self.record.paused:
            raise Busy
        groups = spec.het_group or [0]
        if len(groups) > 1 and len(self.components) == 1:
            return self._plan_beside(spec)
        whole: Planned | None = None
        for index, offset in enumerate(groups):
            if not 0 <= offset < len(self.components):
                raise StepRefused(
                    "error: Requested het-group offset exceeds highest hetjob index "
                    f"({offset} > {len(self.components) - 1})"
                )
            job = self.components[offset]
            own = spec.of_part(index)
            if len(self.components) > 1:
                own = _of_component(own, job)
            part = self._place(own, job, offset)
            for share in part.nodes:
                share.het_offset, share.part = offset, index
            whole = part if whole is None else _joined(whole, part)
        assert whole is not None
        return whole

    def _place(self, spec: StepSpec, job: Job, offset: int) -> Planned:
        """The answer for one component. A request that the rules were not made for is refused: it
        is one user's, and the daemon is everybody's."""
        try:
            return self._steps.plan(spec, job, self._held(offset), self._steps.config)
        except (Busy, StepRefused):
            raise
        except Exception as error:
            self._steps.odd(f"job {job.id}: a step could not be laid out: {error!r}")
            raise StepRefused(
                f"error: Unable to create step for job {spec.job_id}: {message('EINVAL')}", "EINVAL"
            ) from error

    def _plan_beside(self, spec: StepSpec) -> Planned:
        """`srun a : b` in a job that is none of several components: each part has nodes of its
        own."""
        whole: Planned | None = None
        taken: list[str] = []
        size = len(self.job.alloc)
        for index in range(len(spec.het_group)):
            part = spec.of_part(index)
            own = copy.copy(part)
            own.exclude = [*part.exclude, *taken]
            if len(taken) + (part.min_nodes or 1) > size:
                raise StepRefused(
                    f"error: Allocation failure of {part.min_nodes or 1} nodes: "
                    f"job size of {size}, "
                    f"already allocated {len(taken)} nodes to previous components."
                )
            planned = self._place(own, self.job, 0)
            for share in planned.nodes:
                share.part = index
                taken.append(share.node)
            whole = planned if whole is None else _joined(whole, planned)
        assert whole is not None
        return whole

    def _bytes(self) -> int:
        """What the requests that are not over hold."""
        return sum(one.bytes for one in self.waiting) + sum(self._weights.values())

    # -- requests

    def create(
        self,
        spec: StepSpec,
        callback: Callback,
        environment: bytes,
        request_id: bytes,
        now: int,
        client: Client | None = None,
    ) -> int:
        """Starts the step or lets it wait (-1). Raises NoStep. With `client` (whose connection
        stands) it is the step of a job that is there for it."""
        number = self.requests.get(request_id) if request_id else None
        if number is not None:
            return number
        if self.stopping:
            raise NoStep(
                f"error: Unable to create step for job {spec.job_id}: "
                "Job/step already completing or completed",
                "ESLURM_ALREADY_DONE",
            )
        try:
            spec = with_image(spec, self.components)
        except StepRefused as refused:
            raise NoStep(str(refused)) from None
        if spec.origin == "salloc":
            # The interactive step takes nothing from those that are started in it.
            spec = msgspec.structs.replace(spec, overlap=True)
        if self._bytes() + size_of(spec, environment) > MOST_BYTES:
            raise NoStep(
                f"error: Unable to create step for job {spec.job_id}: "
                "Resource temporarily unavailable",
                "EAGAIN",
            )
        try:
            if len(self._live) >= MOST_RUNNING:
                raise Busy
            planned = self.plan(spec)
        except StepRefused as refused:
            raise NoStep(str(refused), refused.code) from None
        except Busy as busy:
            if spec.immediate >= 0 or len(self.waiting) >= MOST_WAITING:
                raise NoStep(
                    f"error: Unable to create step for job {spec.job_id}: {busy}",
                    "ESLURM_NODES_BUSY",
                ) from None
            self._last_wait -= 1
            key = StepKey(*self.key, self._last_wait)
            record = WaitRecord(key, spec, callback, environment, request_id, client is not None)
            self._steps.emit(PutWait(key, record))
            waiting = Waiting(record, client or self._steps.clients.new(callback, main=True))
            self._steps.clients.own(waiting.client, waiting, self)
            if client is None:
                self._steps.clients.call(waiting.client)
            self.waiting.append(waiting)
            if request_id:
                self.requests[request_id] = -1
            if not spec.quiet:
                self._steps.clients.say(
                    waiting.client,
                    f"{spec.program}: Job {spec.job_id} step creation temporarily disabled, "
                    f"retrying ({busy})",
                )
            return -1
        record = WaitRecord(
            StepKey(*self.key, FIRST_WAIT),
            spec,
            callback,
            environment,
            request_id,
            client is not None,
        )
        waiting = Waiting(record, client or self._steps.clients.new(callback, main=True))
        return self._start(waiting, planned, now, call=client is None)

    def _start(self, waiting: Waiting, planned: Planned, now: int, *, call: bool) -> int:
        spec = waiting.spec
        waited = waiting.record.key.step != FIRST_WAIT
        if spec.origin == "salloc" and INTERACTIVE_STEP not in self.leads:
            number = INTERACTIVE_STEP
        elif spec.origin == "sbcast":
            number = self.next_copy
            self.next_copy -= 1
        else:
            number = self.next_id
            self.next_id += 1
        key = StepKey(*self.key, number)
        limit = spec.time_limit or 0
        step = Step(
            self.job.id,
            self.job.attempt,
            number,
            spec.name,
            planned.ntasks,
            planned.nodes,
            planned.cpus_per_task,
            submit_line=told(spec.submit_line),
            cwd=spec.cwd,
            layout=planned.layout,
            time_limit=limit,
            srun=f"{spec.client_host}:0" if spec.client_host else "",
        )
        record = LeadRecord(
            key,
            step,
            spec,
            waiting.record.callback,
            waiting.record.environment,
            planned.task_cpus,
            planned.task_gpus,
            started_ms=now,
            of_job=waiting.record.of_job,
            request_id=waiting.record.request_id,
        )
        lead = self._add(record)
        if waiting.record.request_id:
            self.requests[waiting.record.request_id] = number
        lead.put()
        if waited:
            self._steps.emit(DropStep(waiting.record.key))
        self._steps.clients.own(waiting.client, lead, self)
        lead.join(waiting.client, call=call)
        if waited and not spec.quiet:
            lead.say(f"Step created for {lead.name}")
        for note in planned.notes:
            lead.say(f"error: {note}")
        for warning in planned.warnings:
            lead.say(f"warning: {warning}")
        lead.launch(now)
        self._steps.report_soon(now)
        return number

    def _add(self, record: LeadRecord) -> Lead:
        lead = Lead(
            record,
            self._steps.node,
            self._steps.rules,
            self._steps.emit,
            self._steps.shares,
            self.components,
            self._finished,
        )
        self.leads[record.key.step] = lead
        if not lead.over:
            self._live[record.key.step] = lead
            self._weights[record.key.step] = size_of(record.spec, record.environment)
        if not record.told and lead.counted:
            self.dirty[record.key.step] = lead
        return lead

    def restore(self, record: LeadRecord) -> Lead:
        """A step from the journal."""
        lead = self._add(record)
        self.next_id = max(self.next_id, record.key.step + 1)
        if record.key.step <= COPY_STEPS:
            self.next_copy = min(self.next_copy, record.key.step - 1)
        if record.request_id:
            self.requests[record.request_id] = record.key.step
        return lead

    def restore_waiting(self, record: WaitRecord) -> Waiting | None:
        """A request from the journal; None: it was met just before the daemon ended."""
        self._last_wait = min(self._last_wait, record.key.step)
        met = any(lead.record.of_job for lead in self.leads.values())
        if (record.of_job and met) or record.request_id in self.requests:
            self._steps.emit(DropStep(record.key))
            return None
        waiting = Waiting(record, self._steps.clients.new(record.callback, main=True))
        self._steps.clients.own(waiting.client, waiting, self)
        self.waiting.append(waiting)
        if record.request_id:
            self.requests[record.request_id] = -1
        return waiting

    def _finished(self, lead: Lead, now: int) -> None:
        self._live.pop(lead.key.step, None)
        self._weights.pop(lead.key.step, None)
        if lead.counted:
            self.dirty[lead.key.step] = lead
        for index, part in enumerate(lead.step.nodes):
            if part.node == self._steps.node:
                self._steps.shares.known(lead.share_key(index))
        self._steps.lead_finished(self, lead, now)
        self.retry(now)

    def retry(self, now: int) -> None:
        """Something has come free: whoever waits is tried again, in the order of asking."""
        for waiting in list(self.waiting):
            if self.stopping or waiting not in self.waiting:
                return
            try:
                planned = self.plan(waiting.spec)
            except Busy:
                continue
            except StepRefused as refused:
                self.waiting.remove(waiting)
                self._turn_away(waiting, str(refused))
                continue
            self.waiting.remove(waiting)
            self._start(waiting, planned, now, call=False)

    def _forget(self, waiting: Waiting) -> None:
        self.requests.pop(waiting.record.request_id, None)
        self._steps.emit(DropStep(waiting.record.key))

    def _turn_away(self, waiting: Waiting, message: str) -> None:
        self._forget(waiting)
        clients = self._steps.clients
        for line in message.split("\n"):
            clients.say(waiting.client, f"{waiting.spec.program}: {line}")
        clients.exit(waiting.client, 1)

    def gave_up(self, waiting: Waiting) -> None:
        """Its client has gone while it waited."""
        if waiting in self.waiting:
            self.waiting.remove(waiting)
            self._forget(waiting)

    def signalled(self, waiting: Waiting, signum: int) -> None:
        """A signal of a client whose step waits: srun gives up."""
        if signum not in (1, 2, 3, 14, 15) or waiting not in self.waiting:
            return
        self.waiting.remove(waiting)
        self._turn_away(waiting, "Cancelled pending job step with signal " + str(signum))

    # -- the job's end

    def stop(self, cause: str, now: int) -> None:
        """No new steps; those that are there end."""
        if not self.stopping:
            self.stopping = cause or "cancelled"
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            self._turn_away(
                one,
                f"error: Unable to create step for job {one.spec.job_id}: "
                "Job/step already completing or completed",
            )
        for lead in self.running:
            if not lead.stopping:
                lead.abort(_step_cause(self.stopping), 0, now)

    def forget_one(self, lead: Lead) -> None:
        """Controller and client know all of it: only the highest number is still of use."""
        if self.leads.get(lead.key.step) is not lead:
            # The job was forgotten before the client went.
            return
        if lead.record.told and lead.key.step != self.next_id - 1:
            self.drop(lead)

    def kept(self, number: int, ended: bool) -> None:
        """The controller has a step in its store as it was told."""
        lead = self.leads.get(number)
        if lead is None:
            return
        self.tell_now.discard(number)
        if ended or not lead.over:
            self.dirty.pop(number, None)
        lead.mark_kept(ended)
        self.forget_one(lead)

    def drop(self, lead: Lead) -> None:
        del self.leads[lead.key.step]
        self.dirty.pop(lead.key.step, None)
        self.requests.pop(lead.record.request_id, None)
        self._steps.drop_lead(lead.key)


def _of_component(spec: StepSpec, job: Job) -> StepSpec:
    """The step on one component of a heterogeneous job: as large as the component where srun did
    not say how large."""
    shape = job.spec.shape
    own = copy.copy(spec)
    own.ntasks = spec.ntasks or shape.ntasks
    own.ntasks_per_node = spec.ntasks_per_node or (0 if own.ntasks else shape.ntasks_per_node)
    if not spec.cpus_per_task and shape.cpus_per_task_set:
        own.cpus_per_task = shape.cpus_per_task
    if not spec.min_nodes and (not own.ntasks or own.ntasks >= len(job.alloc)):
        own.min_nodes = own.max_nodes = len(job.alloc)
    return own


def size_of(spec: StepSpec, environment: bytes) -> int:
    """What a request of a user's weighs: all that is kept of it, whatever field it stands in."""
    return len(environment) + weight(spec)


def _step_cause(cause: str) -> str:
    """What a step's supervisors are told of a job's end."""
    if cause == "inactive":
        return "timeout"
    return cause if cause in ("timeout", "preempted", "requeue", "node", "oom") else "cancelled"


def _joined(first: Planned, second: Planned) -> Planned:
    """Two components' parts of one step: the tasks of the second are numbered on."""
    for share in second.nodes:
        share.tasks = [task + first.ntasks for task in share.tasks]
    return Planned(
        nodes=[*first.nodes, *second.nodes],
        ntasks=first.ntasks + second.ntasks,
        cpus_per_task=max(first.cpus_per_task, second.cpus_per_task),
        warnings=[*first.warnings, *second.warnings],
        notes=[*first.notes, *second.notes],
        task_cpus=[*first.task_cpus, *second.task_cpus],
        task_gpus=[*first.task_gpus, *second.task_gpus],
        layout=first.layout,
    )
