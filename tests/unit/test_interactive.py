"""Jobs of srun and salloc in the ledger: sentences and states of Slurm 22.05 and 26.05."""

from __future__ import annotations

import msgspec
from unit.ledger_support import Bench, at

from gsched.ledger import Start, Write
from gsched.model import Job, JobSpec, JobState, Phase, Shape
from gsched.scheduling import run_pass
from gsched.wire.messages import (
    Call,
    CancelJobs,
    Done,
    FirstLook,
    Refused,
    Reply,
    SubmitJob,
    UpdateJob,
)
from gsched.wire.nodes import Prepare

ALL = Shape(min_nodes=4, max_nodes=4, nodes_set=True, exclusive=1)


def submit(bench: Bench, request_id: bytes = b"r", **kw: object) -> list[tuple[bytes, Reply]]:
    kw.setdefault("interactive", "srun")
    spec = JobSpec(**kw)  # type: ignore[arg-type]
    call = Call(request_id, SubmitJob(spec, b"\0opaque", b"A=1", "user", "group"), 1000, 1000, 1)
    return bench.apply(Write(call)).answers


def look(reply: Reply) -> FirstLook:
    assert isinstance(reply, Done)
    return msgspec.json.decode(reply.data, type=FirstLook)


def last(bench: Bench) -> Job:
    return bench.led.jobs[bench.led.meta.next_job_id - 1]


def test_the_answer_comes_with_the_first_pass_and_says_that_it_started() -> None:
    bench = Bench()
    assert submit(bench) == []
    # It is durable all the same: the record is written before anything is said.
    assert b"r" in bench.led.answers
    # Repeated meanwhile: still one job, still no answer.
    assert submit(bench) == []
    [(request_id, reply)] = bench.schedule().answers
    assert request_id == b"r" and look(reply) == FirstLook(True)
    assert len(bench.led.jobs) == 1
    # Repeated later it is the same job.
    [(_, again)] = submit(bench)
    assert isinstance(again, Done) and again.value == reply.value  # type: ignore[union-attr]


def test_what_lies_in_the_place_of_the_script_goes_to_the_first_node() -> None:
    bench = Bench()
    submit(bench)
    bench.schedule()
    job = last(bench)
    [order] = [o for o in bench.sent[job.batch_host] if isinstance(o, Prepare)]
    assert order.launch.batch and order.launch.job.spec.interactive == "srun"


def test_a_busy_cluster_says_so() -> None:
    bench = Bench()
    bench.job(shape=ALL)
    bench.schedule()
    submit(bench)
    [(_, reply)] = bench.schedule().answers
    assert look(reply) == FirstLook(False, "Resources")


def test_what_the_partition_does_not_have_is_said_and_queued() -> None:
    # golden 037: srun -N9 on four nodes
    bench = Bench()
    submit(bench, shape=Shape(min_nodes=9, max_nodes=9, nodes_set=True))
    [(_, reply)] = bench.schedule().answers
    seen = look(reply)
    assert not seen.started
    assert seen.note == "Requested partition configuration not available now"


def test_without_a_pass_the_answer_comes_after_two_seconds() -> None:
    bench = Bench()
    submit(bench)
    bench.now += 1
    assert not bench.tick().answers
    bench.now += 1
    [(_, reply)] = bench.tick().answers
    assert look(reply) == FirstLook(False)


def test_immediate_is_refused_where_nodes_are_busy() -> None:
    bench = Bench()
    bench.job(shape=ALL)
    bench.schedule()
    submit(bench, immediate=1)
    [(_, reply)] = bench.schedule().answers
    assert isinstance(reply, Refused) and reply.message == "Requested nodes are busy"
    job = last(bench)
    # As the peer's sacct shows it: FAILED, 1:0, started and ended at once.
    assert (job.state, job.wstatus, job.start_time) == (JobState.FAILED, 1 << 8, job.end_time)
    # A repeated request is refused again, and makes no second job.
    count = len(bench.led.jobs)
    [(_, again)] = submit(bench, immediate=1)
    assert isinstance(again, Refused) and again.message == "Requested nodes are busy"
    assert len(bench.led.jobs) == count


def test_immediate_with_too_many_nodes_is_refused_for_the_partition() -> None:
    # golden 040: salloc -I -N9
    bench = Bench()
    shape = Shape(min_nodes=9, max_nodes=9, nodes_set=True)
    submit(bench, immediate=1, interactive="salloc", shape=shape)
    [(_, reply)] = bench.schedule().answers
    assert isinstance(reply, Refused)
    assert reply.message == "Requested partition configuration not available now"


def test_immediate_starts_where_there_is_room() -> None:
    bench = Bench()
    submit(bench, immediate=1)
    [(_, reply)] = bench.schedule().answers
    assert look(reply).started


def test_some_seconds_to_start_in_then_it_is_cancelled() -> None:
    bench = Bench()
    bench.job(shape=ALL)
    bench.schedule()
    submit(bench, immediate=4)
    [(_, reply)] = bench.schedule().answers
    assert not look(reply).started
    job = last(bench)
    bench.now += 3
    bench.tick()
    assert job.state == JobState.PENDING
    bench.now += 1
    bench.tick()
    # The peer: CANCELLED by its owner, 0:0.
    assert (job.state, job.cancelled_by, job.wstatus) == (JobState.CANCELLED, 1000, 0)


def test_it_is_not_queued_again() -> None:
    bench = Bench()
    submit(bench, requeue=True)
    bench.schedule()
    job = last(bench)
    bench.report(job.batch_host, at(job, Phase.RUNNING))
    reply = bench.write(UpdateJob([str(job.id)], "requeue"))
    assert isinstance(reply, Done)
    assert [text for _, text in reply.errors] == ["Only batch jobs are accepted or processed"]
    assert job.state == JobState.RUNNING
    # Nor where its node is lost.
    bench.now += 61
    bench.tick()
    assert job.state == JobState.NODE_FAIL
    assert not job.requeue_after and not job.completing


def test_a_node_that_cannot_begin_it_ends_it() -> None:
    bench = Bench()
    submit(bench)
    bench.schedule()
    job = last(bench)
    node = job.batch_host
    bench.report(node, at(job, Phase.RELEASED, error="no such user", cause="failed"))
    assert (job.state, job.reason) == (JobState.FAILED, "JobLaunchFailure")
    assert not job.held


def test_its_end_is_what_the_first_node_says() -> None:
    # golden 039: FAILED 0:9 for a killed step, FAILED 8:0, COMPLETED 0:0
    for wstatus, state in (
        (9, JobState.FAILED),
        (8 << 8, JobState.FAILED),
        (0, JobState.COMPLETED),
    ):
        bench = Bench()
        submit(bench)
        bench.schedule()
        job = last(bench)
        bench.report(job.batch_host, at(job, Phase.RUNNING))
        bench.report(job.batch_host, at(job, Phase.RELEASED, wstatus=wstatus))
        assert (job.state, job.wstatus) == (state, wstatus)


def test_cancelled_while_it_waits() -> None:
    bench = Bench()
    bench.job(shape=ALL)
    bench.schedule()
    submit(bench)
    bench.schedule()
    job = last(bench)
    bench.write(CancelJobs([str(job.id)]))
    assert job.state == JobState.CANCELLED
    # A pass that comes while its answer is still held back.
    submit(bench, b"s")
    job = last(bench)
    bench.write(CancelJobs([str(job.id)]))
    [(_, reply)] = bench.apply(Start(run_pass(bench.led, bench.now))).answers
    assert not look(reply).started


def test_a_restart_forgets_who_waits_but_not_until_when() -> None:
    bench = Bench()
    bench.job(shape=ALL)
    bench.schedule()
    submit(bench, immediate=4)
    job = last(bench)
    led = type(bench.led).load(
        bench.config,
        bench.led.meta,
        [msgspec.structs.replace(j) for j in bench.led.jobs.values()],
        list(bench.led.nodes.values()),
        list(bench.led.answers.items()),
    )
    from gsched.ledger import TakeOver, Tick

    led.apply(TakeOver(), bench.now)
    call = Call(b"r", SubmitJob(job.spec, b"\0opaque", b"A=1", "user", "group"), 1000, 1000, 1)
    [(_, reply)] = led.apply(Write(call), bench.now).answers
    assert isinstance(reply, Done) and reply.value == job.id
    led.apply(Tick(), bench.now + 5)
    assert led.jobs[job.id].state == JobState.CANCELLED


def test_a_job_whose_client_has_gone_is_cancelled() -> None:
    bench = Bench()
    submit(bench, interactive="salloc")
    bench.schedule()
    job = last(bench)
    node = job.batch_host
    bench.report(node, at(job, Phase.RUNNING))
    bench.report(node, at(job, Phase.RELEASED, wstatus=0, cause="cancelled"))
    assert (job.state, job.cancelled_by) == (JobState.CANCELLED, job.uid)
