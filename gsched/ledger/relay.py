"""Words that pass through: between the nodes of one job, and between a client and an agent.

Nothing of it is stored. Mail may be lost, both sides repeat it. A client's request is repeated to
the agent until it answers, and refused where it cannot: what is under way dies with the process,
and clients put unanswered requests anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsched.errors import message
from gsched.ledger import hetero
from gsched.ledger.outcome import Outcome
from gsched.ledger.select import may_touch
from gsched.model import Job, JobState
from gsched.wire.messages import AskAgent, Call, Done, Refused
from gsched.wire.nodes import AgentAnswer, AgentCall, StepMail

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

#: seconds after which an agent's answer is waited for no longer, and between two repeats
PATIENCE_S = 20.0
REPEAT_S = 3.0
#: questions under way, and bytes of all of them
MOST_ASKED = 4096
MOST_BYTES = 256 << 20


@dataclass
class Asked:
    """A question that an agent has not answered yet."""

    request_id: bytes
    node: str
    call: AgentCall
    since: float
    sent: float


class Relay:
    """Questions under way; of this process alone."""

    def __init__(self) -> None:
        self.by_token: dict[int, Asked] = {}
        self.by_request: dict[bytes, int] = {}
        self.bytes = 0
        self._last = 0

    def add(self, epoch: int, asked: Asked) -> None:
        """Numbers a question: an answer to one of another controller's is none of this one's."""
        self._last += 1
        token = asked.call.token = (epoch & 0x7FFF_FFFF) << 32 | self._last
        self.by_token[token] = asked
        self.by_request[asked.request_id] = token
        self.bytes += len(asked.call.payload)

    def drop(self, token: int) -> Asked | None:
        asked = self.by_token.pop(token, None)
        if asked is not None:
            del self.by_request[asked.request_id]
            self.bytes -= len(asked.call.payload)
        return asked

    def full(self, more: int) -> bool:
        return len(self.by_token) >= MOST_ASKED or self.bytes + more > MOST_BYTES


# ---- between nodes ------------------------------------------------------------------------------


def mail(led: Ledger, sender: str, letter: StepMail, out: Outcome) -> None:
    """Carries a word from the node `sender` to another one of the same attempt, one of them the
    one that leads it; anything else is dropped. A letter to nobody is for the one that leads.
    Cost: the nodes of the job."""
    job = led.jobs.get(letter.job_id)
    if job is None or job.het_offset or letter.attempt != job.attempt or not job.alloc:
        return
    leader = job.batch_host
    to = letter.node or leader
    if leader not in (sender, to):
        return
    other = to if sender == leader else sender
    if not any(part.node == other for member in hetero.unit(led, job) for part in member.alloc):
        return
    if led.live[to].session:
        carried = StepMail(letter.job_id, letter.attempt, sender, letter.payload)
        out.messages.append((to, carried))


# ---- between clients and agents ----------------------------------------------------------------


def ask(led: Ledger, call: Call, write: AskAgent, now: float, out: Outcome) -> Refused | None:
    """Puts a client's question to the agent that leads the job; or says why not."""
    if call.request_id in led.relay.by_request:
        # Repeated by the frontend: it is under way.
        return None
    job = led.jobs.get(write.job_id)
    code = "ESLURM_INVALID_JOB_ID" if job is None else _unfit(led, call, job)
    if code or job is None:
        return Refused(call.request_id, message(code), code)
    leader = led.jobs[job.het_job_id] if job.het_job_id else job
    node = leader.batch_host
    if not led.live[node].session:
        return _gone(call.request_id)
    if led.relay.full(len(write.payload)):
        return Refused(call.request_id, message("EAGAIN"), "EAGAIN", temporary=True)
    question = AgentCall(0, call.uid, call.gid, write.payload)
    led.relay.add(led.meta.epoch, Asked(call.request_id, node, question, now, now))
    out.messages.append((node, question))
    out.wake(now + REPEAT_S)
    return None


def _unfit(led: Ledger, call: Call, job: Job) -> str:
    if job.het_job_id and job.het_job_id not in led.jobs:
        return "ESLURM_INVALID_JOB_ID"
    if not may_touch(led, call.uid, job):
        return "ESLURM_ACCESS_DENIED"
    if job.state == JobState.PENDING:
        return "ESLURM_JOB_PENDING"
    return "ESLURM_ALREADY_DONE" if job.finished and not job.completing else ""


def _gone(request_id: bytes) -> Refused:
    return Refused(
        request_id,
        message("SLURM_COMMUNICATIONS_CONNECTION_ERROR"),
        "SLURM_COMMUNICATIONS_CONNECTION_ERROR",
        temporary=True,
    )


def answered(led: Ledger, node: str, answer: AgentAnswer, out: Outcome) -> None:
    """An agent's answer goes to whoever asked; only from the node that was asked."""
    asked = led.relay.by_token.get(answer.token)
    if asked is None or asked.node != node:
        return
    led.relay.drop(answer.token)
    out.answers.append((asked.request_id, Done(asked.request_id, 0, blob=answer.payload)))


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Repeats what is not answered; gives up where the agent is gone or takes too long."""
    for token, asked in list(led.relay.by_token.items()):
        live = led.live.get(asked.node)
        if live is None or not live.session:
            led.relay.drop(token)
            out.answers.append((asked.request_id, _gone(asked.request_id)))
        elif now - asked.since >= PATIENCE_S:
            led.relay.drop(token)
            code = "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT"
            refusal = Refused(asked.request_id, message(code), code, temporary=True)
            out.answers.append((asked.request_id, refusal))
        elif now - asked.sent >= REPEAT_S:
            asked.sent = now
            out.messages.append((asked.node, asked.call))
