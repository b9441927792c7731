"""Words between nodes of one job, and between clients and agents: who may say what to whom."""

from __future__ import annotations

from unit.ledger_support import Bench, at

from gsched.ledger import NodeMessage
from gsched.model import Job, JobSpec, Phase, Shape
from gsched.wire.messages import AskAgent, Done, Refused, SubmitJob
from gsched.wire.nodes import AgentAnswer, AgentCall, StepMail

TWO = Shape(min_nodes=2, max_nodes=2, nodes_set=True)


def running(bench: Bench, nodes: int = 2, **kw: object) -> Job:
    job = bench.job(shape=Shape(min_nodes=nodes, max_nodes=nodes, nodes_set=True), **kw)
    bench.schedule()
    for part in job.alloc:
        bench.report(part.node, at(job, Phase.PREPARED))
    return job


def mail(bench: Bench, sender: str, job: Job, to: str, attempt: int = 0) -> list[tuple[str, str]]:
    """(whom it was given to, whose it is said to be)."""
    letter = StepMail(job.id, attempt or job.attempt, to, b"word")
    out = bench.apply(NodeMessage(sender, letter))
    assert all(isinstance(m, StepMail) and m.payload == b"word" for _, m in out.messages)
    assert not out.puts
    return [(node, m.node) for node, m in out.messages]  # type: ignore[union-attr]


def test_mail_goes_between_the_leader_and_the_others() -> None:
    bench = Bench()
    job = running(bench, 3)
    first, second, third = [part.node for part in job.alloc]
    outside = next(name for name in bench.config.nodes if name not in (first, second, third))
    assert mail(bench, first, job, second) == [(second, first)]
    assert mail(bench, third, job, first) == [(first, third)]
    # Nobody named: the one that leads.
    assert mail(bench, second, job, "") == [(first, second)]
    assert mail(bench, second, job, third) == []
    assert mail(bench, outside, job, first) == []
    assert mail(bench, first, job, outside) == []
    assert mail(bench, first, job, "nosuch") == []
    assert mail(bench, first, job, second, attempt=job.attempt + 1) == []


def test_mail_of_a_heterogeneous_job_is_of_its_first_component() -> None:
    bench = Bench()
    parts = [JobSpec(shape=Shape(nodelist=(f"node{n}",))) for n in (1, 2)]
    reply = bench.write(SubmitJob(parts[0], b"#!/bin/sh\n", b"", components=parts[1:]))
    assert isinstance(reply, Done)
    bench.schedule()
    leader, other = bench.led.jobs[reply.value], bench.led.jobs[reply.value + 1]
    assert (leader.batch_host, other.batch_host) == ("node1", "node2")
    assert mail(bench, "node1", leader, "node2") == [("node2", "node1")]
    assert mail(bench, "node2", leader, "") == [("node1", "node2")]
    assert mail(bench, "node2", other, "node1") == []
    assert mail(bench, "node3", leader, "node1") == []


def ask(bench: Bench, job_id: int, uid: int = 1000, request_id: bytes = b"q") -> object:
    """The call that the agent gets, or the answer that comes at once."""
    from gsched.ledger import Write
    from gsched.wire.messages import Call

    out = bench.apply(Write(Call(request_id, AskAgent(job_id, b"stat"), uid, uid, 1)))
    assert not out.puts
    if out.answers:
        return out.answers[0][1]
    return out.messages[0] if out.messages else None


def test_a_question_goes_to_the_leading_agent_and_its_answer_back() -> None:
    bench = Bench()
    job = running(bench)
    node, call = ask(bench, job.id)  # type: ignore[misc]
    assert node == job.batch_host and isinstance(call, AgentCall)
    assert (call.uid, call.payload) == (1000, b"stat")
    # The frontend repeats what is not answered: it is asked once.
    assert ask(bench, job.id) is None
    # Only who was asked may answer.
    other = job.alloc[1].node
    assert not bench.apply(NodeMessage(other, AgentAnswer(call.token, b"lies"))).answers
    out = bench.apply(NodeMessage(node, AgentAnswer(call.token, b"used")))
    [(request_id, reply)] = out.answers
    assert request_id == b"q" and isinstance(reply, Done) and reply.blob == b"used"
    assert not out.puts
    # Doubled on the way.
    assert not bench.apply(NodeMessage(node, AgentAnswer(call.token, b"used"))).answers


def test_who_may_ask_and_of_what() -> None:
    bench = Bench()
    job = running(bench)
    waiting = bench.job(hold=True)
    for job_id, uid, sentence in (
        (job.id, 1001, "Access/permission denied"),
        (99, 1000, "Invalid job id specified"),
        (waiting.id, 1000, "Job is pending execution"),
    ):
        reply = ask(bench, job_id, uid, b"%d%d" % (job_id, uid))
        assert isinstance(reply, Refused) and reply.message == sentence
    assert isinstance(ask(bench, job.id, 0, b"root"), tuple)


def test_an_unanswered_question_is_repeated_then_refused() -> None:
    bench = Bench()
    job = running(bench)
    _, call = ask(bench, job.id)  # type: ignore[misc]
    bench.now += 3
    out = bench.tick()
    assert [m for _, m in out.messages if isinstance(m, AgentCall)] == [call]
    bench.now += 17
    [(_, reply)] = bench.tick().answers
    assert isinstance(reply, Refused) and reply.temporary
    assert reply.message == "Socket timed out on send/recv operation"
    assert not bench.led.relay.by_token and not bench.led.relay.by_request


def test_a_question_to_an_agent_that_is_gone_is_refused() -> None:
    bench = Bench()
    job = running(bench)
    ask(bench, job.id)
    bench.led.live[job.batch_host].session = ""
    [(_, reply)] = bench.tick().answers
    assert isinstance(reply, Refused) and reply.temporary
    assert reply.message == "Communication connection failure"
    assert isinstance(ask(bench, job.id, request_id=b"again"), Refused)


def test_answers_to_another_controllers_questions_mean_nothing() -> None:
    bench = Bench()
    job = running(bench)
    node, call = ask(bench, job.id)  # type: ignore[misc]
    stale = call.token - (1 << 32)
    assert not bench.apply(NodeMessage(node, AgentAnswer(stale, b"old"))).answers
    assert call.token >> 32 == bench.led.meta.epoch
