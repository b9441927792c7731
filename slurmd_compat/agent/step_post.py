"""Words between the nodes of one job, as the agent takes and sends them.

Each side repeats until it is answered, so that nothing here minds what is lost or comes twice.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from gsched.model import Phase
from gsched.wire.codec import BadMessage, decode, encode
from gsched.wire.steps import (
    AttachStep,
    CreateStep,
    FollowStep,
    FromAgent,
    LaunchStep,
    NotTaken,
    PassedBack,
    PassOn,
    StepKnown,
    StepShare,
    StopStep,
    ToAgent,
)
from slurmd_compat.agent.step_create import JobSteps
from slurmd_compat.agent.step_words import Answer, Ask, MailIn, SendMail, Source, StepKey
from slurmd_compat.agent.words import Record

if TYPE_CHECKING:
    from slurmd_compat.agent.steps import Steps

#: most requests passed on to a leading node without an answer yet, and ms until they are dropped
MOST_PASSED = 1024
PASSED_MS = 15_000


class Post:
    """One per agent."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._tokens = itertools.count(1)
        #: requests passed on: token -> (who asked, until when)
        self._passed: dict[int, tuple[Source, int]] = {}

    def wake_at(self) -> int:
        """Monotonic ms; -1: nothing is due."""
        return min((until for _, until in self._passed.values()), default=-1)

    def tick(self, now: int) -> None:
        for token, (_, until) in list(self._passed.items()):
            if until <= now:
                del self._passed[token]

    def pass_on(self, item: Ask, record: Record, now: int) -> FromAgent | None:
        """To the node that leads the job."""
        if item.source.kind == "node" or len(self._passed) >= MOST_PASSED:
            return NotTaken("error: Unable to create step: Requested nodes are busy")
        token = next(self._tokens)
        self._passed[token] = (item.source, now + PASSED_MS)
        job = record.launch.job
        lead = next((part for part in record.launch.components if not part.het_offset), job)
        word = PassOn(token, item.uid, item.gid, encode(item.message))
        self._steps.emit(SendMail(lead.id, lead.attempt, "", word))
        return None

    # -- words of other nodes

    def take(self, item: MailIn, now: int) -> None:
        """A word that the controller has carried here."""
        mail = item.mail
        if isinstance(mail, PassedBack):
            passed = self._passed.pop(mail.token, None)
            if passed is not None:
                try:
                    self._steps.emit(Answer(passed[0], decode(FromAgent, mail.payload)))
                except BadMessage:
                    return
            return
        if isinstance(mail, PassOn):
            self._passed_on(item, mail, now)
            return
        if isinstance(mail, StepShare):
            jobs = self._led(item)
            lead = jobs.leads.get(mail.step) if jobs is not None else None
            if lead is not None:
                nodes = lead.step.nodes
                if mail.index < len(nodes) and nodes[mail.index].node == item.node:
                    lead.heard(mail.index, mail, now)
            elif jobs is not None and mail.released:
                # Forgotten long ago.
                known = StepKnown(mail.step)
                self._steps.emit(SendMail(item.job_id, item.attempt, item.node, known))
            return
        record = self._mine(item)
        if record is None:
            return
        cluster = record.cluster
        lead_key = StepKey(
            item.job_id,
            item.attempt,
            cluster,
            mail.step.id if isinstance(mail, LaunchStep) else mail.step,
        )
        if isinstance(mail, LaunchStep):
            self._launch(item, mail, lead_key, now)
        else:
            for share in self._steps.shares.of_step(lead_key):
                if isinstance(mail, FollowStep):
                    self._steps.shares.follow(share.key, mail, now)
                elif isinstance(mail, StopStep):
                    self._steps.shares.stop(share.key, mail.signum, mail.cause, now)
                else:
                    self._steps.shares.known(share.key)

    def _led(self, item: MailIn) -> JobSteps | None:
        for key, jobs in self._steps.jobs.items():
            if (key.job_id, key.attempt) == (item.job_id, item.attempt):
                return jobs
        return None

    def _mine(self, item: MailIn) -> Record | None:
        """The attempt here that belongs to a leading node's job, if that node leads it."""
        for record in self._steps.records.values():
            job = record.launch.job
            parts = record.launch.components or [job]
            first = parts[0]
            if (first.id, first.attempt) == (item.job_id, item.attempt):
                if first.alloc and first.alloc[0].node == item.node:
                    return record
        return None

    def _launch(self, item: MailIn, mail: LaunchStep, lead: StepKey, now: int) -> None:
        if mail.index >= len(mail.step.nodes):
            return
        part = mail.step.nodes[mail.index]
        if part.node != self._steps.node:
            return
        for record in self._steps.records.values():
            job = record.launch.job
            parts = record.launch.components or [job]
            if job.het_offset == part.het_offset and (parts[0].id, parts[0].attempt) == (
                item.job_id,
                item.attempt,
            ):
                key = StepKey(*record.key, mail.step.id)
                if record.kill or record.phase > Phase.RUNNING:
                    self._steps.shares.refuse(
                        key, mail, item.node, lead, "Job/step already completing or completed", now
                    )
                elif record.phase >= Phase.PREPARED:
                    self._steps.shares.launch(key, mail, item.node, lead, now)
                return

    def _passed_on(self, item: MailIn, mail: PassOn, now: int) -> None:
        source = Source("node", mail.token, item.node, item.job_id, item.attempt)
        try:
            message = decode(ToAgent, mail.payload)
        except BadMessage:
            return
        if isinstance(message, CreateStep | AttachStep):
            self._steps.ask(Ask(source, mail.uid, mail.gid, message), now)
