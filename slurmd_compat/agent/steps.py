"""The steps of a node, pure: what clients, nodes and supervisors say, and what the agent asks.

Beside the agent's attempts and driven with them: the same `now`, the same list of actions. The
node that leads a job (the first one, of a heterogeneous job that of component 0) creates and
numbers its steps; every node runs its shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gsched.config import Config
from gsched.hostlist import compress
from gsched.layout import Planned, plan_step
from gsched.model import Job, NodeAlloc, Phase
from gsched.model.step import Step, StepSpec
from gsched.rawtext import to_bytes
from gsched.wire.codec import encode
from gsched.wire.steps import (
    AttachStep,
    CreateStep,
    FromAgent,
    NotTaken,
    PassedBack,
    Taken,
    TellSteps,
)
from slurmd_compat.agent.step_client import ClientTable
from slurmd_compat.agent.step_create import JobSteps, NoStep, Waiting
from slurmd_compat.agent.step_fit import MOST, unfit, unfit_callback
from slurmd_compat.agent.step_heard import Hearers
from slurmd_compat.agent.step_interactive import PATIENCE_MS, InteractiveJob, read
from slurmd_compat.agent.step_lead import Lead, Rules
from slurmd_compat.agent.step_post import Post
from slurmd_compat.agent.step_share import Shares
from slurmd_compat.agent.step_words import (
    Answer,
    Ask,
    ClientLost,
    ClientSaid,
    DropStep,
    LeadRecord,
    MailIn,
    SendMail,
    ShareRecord,
    Source,
    StepAction,
    StepInput,
    StepKey,
    WaitRecord,
)
from slurmd_compat.agent.words import Key, Record

#: ms within which the controller hears of steps that began or ended, and between two such reports
REPORT_MS = 200
#: most bytes of the id of a request
MOST_ID = 64
#: most steps in one report, and about how many bytes of them; the rest follows when these are kept
MOST_TOLD = 2000
MOST_TOLD_BYTES = 2 << 20

Planner = Callable[[StepSpec, Job, Sequence[NodeAlloc], Config], Planned]


def rules(config: Config) -> Rules:
    """What slurm.conf says of steps."""

    def number(key: str) -> int:
        text = config.raw.get(key, "0")
        return int(text) if text.isdigit() else 0

    return Rules(
        config.kill_wait,
        number("waittime"),
        number("killonbadexit") > 0,
        config.inactive_limit,
    )


class Steps:
    """All steps that a node leads or has a share of.

    `job_over(key, wstatus, cause, now)`: an interactive job has come to its end; `job_idle(key,
    now)`: nothing of an attempt's steps runs any more; `report_at(ms)`: the controller is to hear
    of something by then; `odd(text)` goes to the log. Cost of an input: constant, but
    O(tasks of a node) for a node's word.
    """

    def __init__(
        self,
        node: str,
        boot_id: str,
        config: Config,
        emit: Callable[[StepAction], None],
        job_over: Callable[[Key, int, str, int], None],
        job_idle: Callable[[Key, int], None],
        report_at: Callable[[int], None],
        plan: Planner = plan_step,
        odd: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.node = node
        self.boot_id = boot_id
        self.config = config
        self.rules = rules(config)
        self.emit = emit
        self.plan = plan
        #: says to the log what should not have come so far
        self.odd = odd
        self.job_over = job_over
        self._job_idle = job_idle
        self._report_at = report_at
        #: when the controller was last told of steps
        self._told_ms = -REPORT_MS
        self.clients = ClientTable(emit)
        self.shares = Shares(boot_id, emit, self, self._shares_idle)
        #: attempts that run here, and those of them that this node leads
        self.records: dict[Key, Record] = {}
        self.jobs: dict[Key, JobSteps] = {}
        self._interactive: dict[Key, InteractiveJob] = {}
        #: leads with something to tell the controller
        self._told_later: dict[StepKey, None] = {}
        self._post = Post(self)
        self._hearers = Hearers(self)

    # -- what the agent asks and says

    def busy(self, key: Key) -> bool:
        """Whether something of the attempt's steps is not over yet, here or (where it is led) on
        any node."""
        jobs = self.jobs.get(key)
        return self.shares.living(key) or (jobs is not None and bool(jobs.running))

    def ready(self, record: Record) -> None:
        """The node holds the attempt: shares of it may be launched here."""
        self.records[record.key] = record

    def running(self, record: Record, now: int) -> None:
        """The attempt runs: steps may be created."""
        self.records[record.key] = record
        if not record.launch.batch:
            return
        jobs = self.jobs[record.key] = JobSteps(record, self)
        if record.launch.job.spec.interactive:
            wire = read(record)
            if wire is None:
                self.job_over(record.key, 1 << 8, "failed", now)
                return
            job = self._interactive[record.key] = InteractiveJob(jobs, wire, self)
            job.begin(now)

    def never_ran(self, record: Record, cause: str, now: int) -> None:
        """An attempt ends before it ran: a client that waits for it is told."""
        if record.launch.batch and record.launch.job.spec.interactive:
            wire = read(record)
            if wire is not None and not wire.no_shell:
                InteractiveJob(JobSteps(record, self), wire, self).never_ran(now)

    def stop_job(self, key: Key, cause: str, now: int) -> None:
        """The attempt ends: so do its steps. `job_idle` follows unless nothing runs."""
        jobs = self.jobs.get(key)
        if jobs is not None and not jobs.stopping:
            jobs.stop(cause, now)
            interactive = self._interactive.get(key)
            if interactive is not None:
                interactive.revoke(cause, now)
        if jobs is None:
            self.shares.kill_job(key, cause)

    def node_lost(self, key: Key, node: str) -> None:
        """The attempt ends for this: whose step was there is told."""
        jobs = self.jobs.get(key)
        for lead in list(jobs.running) if jobs is not None else ():
            lead.node_lost(node)

    def signal_job(self, key: Key, signum: int) -> None:
        """To all shares of the attempt on this node."""
        self.shares.signal_job(key, signum)

    def reached(self, key: Key, signum: int, now: int) -> None:
        """The script's children, and so the clients of its steps, have the signal as well."""
        jobs = self.jobs.get(key)
        for lead in jobs.running if jobs is not None else ():
            lead.reached = (signum, now)

    def retry(self, key: Key, now: int) -> None:
        """The attempt goes on: steps that wait are looked at."""
        jobs = self.jobs.get(key)
        if jobs is not None:
            jobs.retry(now)

    def notify(self, key: Key, text: str) -> None:
        """A line for the client of an interactive job; nothing for any other."""
        interactive = self._interactive.get(key)
        if interactive is not None:
            interactive.notify(text)

    def signal_step(self, key: Key, step: int, signum: int, now: int) -> None:
        """To one step, on all its nodes; 0 ends it."""
        jobs = self.jobs.get(key)
        lead = jobs.leads.get(step) if jobs is not None else None
        if lead is None or lead.over:
            return
        if signum in (0, 9):
            lead.abort("cancelled", 9, now)
        else:
            lead.signal(signum, now)

    def told(self, key: Key, now: int) -> list[Step]:
        """What the controller has not kept yet, oldest first."""
        jobs = self.jobs.get(key)
        if jobs is None:
            return []
        found: list[Step] = []
        room = MOST_TOLD_BYTES
        for lead in jobs.dirty.values():
            young = now - lead.record.started_ms < REPORT_MS
            if young and not lead.over and lead.key.step not in jobs.tell_now:
                # A short one is told of once, at its end: else it were seen to run when it is over.
                self.report_soon(now)
                continue
            room -= lead.weight
            if found and (room < 0 or len(found) >= MOST_TOLD):
                break
            found.append(lead.report(now))
        if found:
            self._told_ms = now
        return found

    def all_told(self, key: Key, told: list[Step]) -> bool:
        """Whether these are all that the controller has not kept."""
        jobs = self.jobs.get(key)
        return jobs is None or len(jobs.dirty) <= len(told)

    def kept(self, key: Key, steps: Iterable[tuple[int, bool]], now: int) -> None:
        """The controller has these in its store."""
        jobs = self.jobs.get(key)
        if jobs is None:
            return
        heard = list(steps)
        for number, ended in heard:
            jobs.kept(number, ended)
        self._hearers.kept(key, [number for number, _ in heard])
        if jobs.dirty:
            self.report_soon(now)

    def forget(self, key: Key) -> None:
        """The attempt is forgotten, and its steps with it."""
        self._hearers.forget(key)
        jobs = self.jobs.pop(key, None)
        if jobs is not None:
            for lead in list(jobs.leads.values()):
                jobs.drop(lead)
        self.shares.forget_job(key)
        interactive = self._interactive.pop(key, None)
        if interactive is not None:
            interactive.forgotten()
        self.records.pop(key, None)

    def restore(
        self,
        leads: Iterable[LeadRecord],
        shares: Iterable[ShareRecord],
        records: Iterable[Record],
        now: int,
        waits: Iterable[WaitRecord] = (),
    ) -> None:
        """What the journal holds, after a restart of the daemon; before any input."""
        rebooted = set()
        for record in records:
            if record.phase == Phase.RELEASED and not record.launch.batch:
                continue
            self.records[record.key] = record
            if record.boot_id != self.boot_id:
                rebooted.add(record.key)
            if record.launch.batch and record.phase >= Phase.RUNNING:
                self.jobs[record.key] = JobSteps(record, self)
        for share in shares:
            if share.key.job in self.records:
                self.shares.restore(share, now)
            else:
                self.emit(DropStep(share.key))
        found: list[Lead] = []
        for lead_record in sorted(leads, key=lambda lead: lead.key):
            jobs = self.jobs.get(lead_record.key.job)
            if jobs is None:
                self.emit(DropStep(lead_record.key))
                continue
            lead = jobs.restore(lead_record)
            found.append(lead)
            if lead_record.told:
                lead.kept = True
            elif not lead_record.of_job:
                client = self.clients.new(lead_record.callback, main=True)
                self.clients.own(client, lead, jobs)
                lead.join(client, call=True, patience_ms=PATIENCE_MS)
        for lead in found:
            lead.restore(lead.key.job in rebooted, now)
        for wait in sorted(waits, key=lambda wait: wait.key.step, reverse=True):
            jobs = self.jobs.get(wait.key.job)
            if jobs is None or wait.key.job in rebooted or jobs.record.phase > Phase.RUNNING:
                self.emit(DropStep(wait.key))
                continue
            waiting = jobs.restore_waiting(wait)
            if waiting is not None and not wait.of_job:
                self.clients.call(waiting.client, PATIENCE_MS)
        for key, jobs in self.jobs.items():
            record = jobs.record
            if record.phase > Phase.RUNNING:
                jobs.stopping = record.kill or record.cause or "cancelled"
            if not record.launch.job.spec.interactive or record.phase != Phase.RUNNING:
                continue
            if record.ending is not None:
                continue
            wire = read(record)
            if wire is not None and key not in rebooted:
                job = self._interactive[key] = InteractiveJob(jobs, wire, self)
                job.restore(now)
            jobs.retry(now)

    # -- what its parts ask

    def report_soon(self, now: int) -> None:
        self._report_at(now + REPORT_MS)

    def report_now(self, now: int) -> None:
        self._report_at(now)

    def drop_lead(self, key: StepKey) -> None:
        self.emit(DropStep(key))

    def lead_finished(self, jobs: JobSteps, lead: Lead, now: int) -> None:
        """Nothing of a step is left anywhere. Whoever asks next is to hear of it: it is told at
        once, unless there are many."""
        self._report_at(max(now, self._told_ms + REPORT_MS))
        interactive = self._interactive.get(jobs.key)
        if lead.record.of_job and interactive is not None:
            interactive.step_over(lead, now)
        if not self.busy(jobs.key):
            self._job_idle(jobs.key, now)

    def _shares_idle(self, key: Key, now: int) -> None:
        if not self.busy(key):
            self._job_idle(key, now)

    # the node's own shares, as Listener

    def task_started(self, lead: StepKey, index: int, task: int, now: int) -> None:
        found = self._lead(lead)
        if found is not None:
            found.task_started(index, task, now)

    def task_ended(self, lead: StepKey, index: int, end: object, now: int) -> None:
        found = self._lead(lead)
        if found is not None:
            found.task_ended(index, end, now)  # type: ignore[arg-type]

    def share_over(self, lead: StepKey, index: int, error: str, now: int) -> None:
        found = self._lead(lead)
        if found is not None:
            found.share_over(index, error, now)

    def _lead(self, key: StepKey) -> Lead | None:
        jobs = self.jobs.get(key.job)
        return jobs.leads.get(key.step) if jobs is not None else None

    # -- inputs

    def apply(self, item: StepInput, now: int) -> None:
        if isinstance(item, Ask):
            self.ask(item, now)
        elif isinstance(item, MailIn):
            self._post.take(item, now)
        elif isinstance(item, ClientSaid | ClientLost):
            self._client(item, now)
        else:
            self.shares.event(item, now)

    def wake_at(self) -> int:
        """Monotonic ms at which `tick` is due; -1: nothing is."""
        marks = [self.shares.wake_at(), self._post.wake_at()]
        for jobs in self.jobs.values():
            marks += [lead.wake_at() for lead in jobs.running]
            marks += [self._limit_at(jobs), self._warn_at(jobs)]
        marks += [job.wake_at() for job in self._interactive.values()]
        return min((mark for mark in marks if mark >= 0), default=-1)

    def tick(self, now: int) -> None:
        self.shares.tick(now)
        for jobs in list(self.jobs.values()):
            for lead in jobs.running:
                lead.tick(now)
            if 0 <= self._warn_at(jobs) <= now:
                jobs.warned = True
                for lead in jobs.running:
                    lead.signal(jobs.job.spec.signal_num, now)
            if 0 <= self._limit_at(jobs) <= now:
                self.stop_job(jobs.key, "timeout", now)
        for job in list(self._interactive.values()):
            job.tick(now)
        self._post.tick(now)

    def _limit_at(self, jobs: JobSteps) -> int:
        """When the job's time is over; its script's supervisor keeps the same time."""
        record = jobs.record
        if not record.launch.limit_s or record.started_ms < 0 or jobs.stopping:
            return -1
        return record.started_ms + 1000 * record.launch.limit_s

    def _warn_at(self, jobs: JobSteps) -> int:
        spec = jobs.job.spec
        if not spec.signal_num or spec.signal_batch or jobs.warned:
            return -1
        limit = self._limit_at(jobs)
        return max(0, limit - 1000 * spec.signal_before) if limit >= 0 else -1

    # -- clients

    def _client(self, item: ClientSaid | ClientLost, now: int) -> None:
        found = self.clients.find(item.client)
        if found is None:
            return
        client, owner, jobs = found
        job = self._interactive.get(jobs.key) if jobs is not None else None
        if job is None and isinstance(owner, InteractiveJob):
            job = owner  # forgotten while the shell of its client goes on
        if job is not None and job.client is not client:
            job = None
        if isinstance(item, ClientLost):
            self.clients.forget(item.client)
            if isinstance(owner, Lead):
                owner.client_lost(client, now)
                if jobs is not None and owner.over:
                    jobs.forget_one(owner)
            elif isinstance(owner, Waiting) and jobs is not None:
                jobs.gave_up(owner)
            client.alive = False
            if job is not None:
                job.lost(now, met=item.met)
        elif isinstance(owner, Lead) and item.letter != "Z":
            owner.said(client, item.letter, item.data, now)
        elif isinstance(owner, Waiting) and jobs is not None:
            if item.letter == "G" and item.data:
                jobs.signalled(owner, item.data[0])
        elif job is not None:
            job.said(item.letter, item.data, now)

    # -- requests

    def find(self, job_id: int) -> Record | None:
        """The attempt that a job number means: any component's of one job."""
        found = None
        for record in self.records.values():
            job = record.launch.job
            ids = {job.id, *(part.id for part in record.launch.components)}
            if job_id in ids and (
                found is None
                or (record.launch.batch, record.attempt)
                > (
                    found.launch.batch,
                    found.attempt,
                )
            ):
                found = record
        return found

    def others(self, record: Record) -> set[str]:
        """Further nodes on which steps of a job run that this node leads."""
        jobs = self.jobs.get(record.key)
        if jobs is None:
            return set()
        found = {part.node for lead in jobs.running for part in lead.step.nodes}
        return found - {self.node}

    def ask(self, item: Ask, now: int) -> None:
        answer = self._answer(item, now)
        if answer is not None:
            self.reply(item.source, answer)

    def reply(self, source: Source, answer: FromAgent) -> None:
        """To a client here, or to the node that has passed its question on."""
        if source.kind == "node":
            word = PassedBack(source.token, encode(answer))
            self.emit(SendMail(source.job_id, source.attempt, source.node, word))
        else:
            self.emit(Answer(source, answer))

    def _answer(self, item: Ask, now: int) -> FromAgent | None:
        message = item.message
        job_id = message.spec.job_id if isinstance(message, CreateStep) else message.job_id
        wrong = _nonsense(message)
        if wrong:
            return NotTaken(
                f"error: Unable to create step for job {job_id}: Invalid {wrong} in the request",
                "EINVAL",
            )
        record = self.find(job_id)
        if record is None:
            return _not_confirmed(job_id, "Invalid job id specified", "ESLURM_INVALID_JOB_ID")
        if item.uid not in (0, record.launch.job.uid):
            return _not_confirmed(job_id, "Access/permission denied", "ESLURM_ACCESS_DENIED")
        if not record.launch.batch:
            return self._post.pass_on(item, record, now)
        if isinstance(message, TellSteps):
            return self._hearers.ask(item, record.key, now)
        if record.phase < Phase.RUNNING:
            return NotTaken(
                f"error: Unable to create step for job {job_id}: Job is pending execution",
                "ESLURM_JOB_PENDING",
            )
        jobs = self.jobs.get(record.key)
        if jobs is None or record.phase > Phase.RUNNING:
            return NotTaken(
                f"error: Unable to create step for job {job_id}: "
                "Job/step already completing or completed",
                "ESLURM_ALREADY_DONE",
            )
        if isinstance(message, AttachStep):
            return self._attach(jobs, message, now)
        try:
            number = jobs.create(
                message.spec, message.callback, message.environment, message.request_id, now
            )
        except NoStep as refused:
            return NotTaken(refused.message, refused.code)
        return Taken(message.request_id, number)

    def _attach(self, jobs: JobSteps, message: AttachStep, now: int) -> FromAgent:
        lead = jobs.leads.get(message.step)
        if lead is None or lead.over:
            return NotTaken("error: Could not get job step info: Invalid job id specified")
        client = self.clients.new(message.callback, main=False)
        self.clients.own(client, lead, jobs)
        if message.layout_only:
            self.clients.call(client)
            for line in layout(lead.step):
                self.clients.tell(client, "o", to_bytes(f"{line}\n"))
            self.clients.exit(client, 0)
        else:
            lead.attach(client, message.task, message.stdin, now)
        return Taken(message.request_id, message.step)

    # -- what must always hold

    def check_invariants(self) -> None:
        """Raises AssertionError where the state contradicts itself."""
        for jobs in self.jobs.values():
            for offset, job in enumerate(jobs.components):
                for part in job.alloc:
                    cpus = gpus = 0
                    for lead in jobs.running:
                        if lead.record.spec.overlap:
                            continue
                        for share in lead.step.nodes:
                            if (share.node, share.het_offset) != (part.node, offset):
                                continue
                            mine = share.alloc
                            assert not cpus & mine.cpu_ids, f"{lead.name}: a CPU held twice"
                            assert mine.shares or not gpus & mine.gpus, f"{lead.name}: a GPU twice"
                            cpus |= mine.cpu_ids
                            gpus |= 0 if mine.shares else mine.gpus
            for lead in jobs.leads.values():
                if lead.over:
                    assert all(place.over for place in lead.places) or lead.record.told
            assert not (jobs.stopping and jobs.waiting)


def _nonsense(message: CreateStep | AttachStep | TellSteps) -> str:
    """What of a request cannot be meant; "" nothing."""
    if isinstance(message, TellSteps):
        return ""
    if len(message.request_id) > MOST_ID:
        return "id"
    if isinstance(message, CreateStep):
        return unfit(message.spec) or unfit_callback(message.callback)
    if not -1 <= message.task <= MOST:
        return "task"
    return unfit_callback(message.callback)


def _not_confirmed(job_id: int, why: str, code: str) -> NotTaken:
    text = f"error: Unable to confirm allocation for job {job_id}: {why}"
    unknown = code == "ESLURM_INVALID_JOB_ID"
    if unknown:
        text += f"\nCheck SLURM_JOB_ID environment variable. Expired or invalid job {job_id}"
    return NotTaken(text, code, unknown)


def layout(step: Step) -> list[str]:
    """As sattach --layout prints it."""
    lines = [
        "Job step layout:",
        f"\t{step.ntasks} tasks, {len(step.nodes)} nodes "
        f"({compress([share.node for share in step.nodes])})",
        "",
    ]
    for index, share in enumerate(step.nodes):
        # A blank at the end, as Slurm has it.
        numbers = "".join(f"{task} " for task in share.tasks)
        lines.append(f"\tNode {index} ({share.node}), {len(share.tasks)} task(s): {numbers}")
    return lines
