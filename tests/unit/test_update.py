"""scontrol's verbs for jobs. Texts are Slurm's: transcripts 033, 041 and 043, and what the same
commands of a Slurm 22.05 said where those are silent."""

from __future__ import annotations

import copy

import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.ledger import Tick
from gsched.model import Hold, Job, JobState, Phase, Shape
from gsched.wire.messages import CancelJobs, Done, UpdateJob
from gsched.wire.nodes import Notify, Order, Pause, SetLimit


def change(b: Bench, job: Job, uid: int = 0, verb: str = "update", **fields: str) -> str:
    """What scontrol would say ("" nothing)."""
    given = {key.replace("_", "-"): value for key, value in fields.items()}
    reply = b.write(UpdateJob([str(job.id)], verb, given), uid)
    assert isinstance(reply, Done)
    return reply.errors[0][1] if reply.errors else ""


def running(b: Bench, **kw: object) -> Job:
    job = b.job(**kw)
    b.schedule()
    b.report(job.alloc[0].node, at(job, Phase.RUNNING))
    return job


def orders(b: Bench, node: str = "node1") -> list[Order]:
    return b.sent[node]


def test_the_fields_of_transcript_033() -> None:
    b = Bench()
    job, other = b.job(hold=True, time_limit=1200), running(b)
    assert change(b, job, timelimit="30") == "" and job.time_limit == 1800
    assert change(b, job, timelimit="+10") == "" and job.time_limit == 2400
    assert change(b, job, name="newname", partition="debug") == ""
    assert change(b, job, partition="nosuch") == "Invalid partition name specified"
    assert change(b, job, nice="50") == ""
    refused = change(b, job, priority="1234")
    assert refused == "Job is in held state, pending scheduler release" and job.priority == 0
    for key, value in {
        "numnodes": "2",
        "gres": "gpu:2",
        "nodelist": "node3",
        "features": "rackB",
        "comment": "new comment",
        "starttime": "now+1hour",
        "dependency": f"afterok:{other.id}",
        "qos": "high",
        "account": "prod",
        "stdout": "/tmp/new.out",
        "minmemorynode": "5000",
        "requeue": "0",
    }.items():
        assert change(b, job, **{key: value}) == "", key
    assert change(b, job, nosuch="1").startswith(
        "Update of this parameter is not supported: nosuch=1"
    )
    spec, shape = job.spec, job.spec.shape
    assert (spec.name, spec.nice, spec.account, spec.qos) == ("newname", 50, "prod", "high")
    assert (shape.min_nodes, shape.max_nodes, shape.gpus_per_node) == (2, 2, 2)
    assert spec.tres["per_node"] == "gres/gpu:2" and shape.mem_per_node == 5000
    assert (shape.nodelist, shape.features) == (("node3",), "rackB")
    assert spec.begin == int(b.now) + 3600 and spec.requeue is False
    assert spec.comment == "new comment" and spec.std_out == "/tmp/new.out"


def test_a_job_is_changed_whole_or_not_at_all() -> None:
    b = Bench()
    job = b.job(hold=True)
    before = copy.deepcopy(job)
    assert change(b, job, name="x", gres="gpu:2", partition="nosuch") != ""
    assert change(b, job, comment="x", numnodes="99") != ""
    assert job == before


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("numnodes", "0", "Node count specification invalid"),
        ("numnodes", "x", "Node count specification invalid"),
        ("numnodes", "99", "Requested partition configuration not available now"),
        ("features", "nosuch", "Invalid feature specification"),
        ("reqnodelist", "nosuch", "Invalid node name specified"),
        ("excnodelist", "nosuch", "Invalid node name specified"),
        ("gres", "foo:1", "Invalid generic resource (gres) specification"),
        ("reservationname", "nosuch", "Requested reservation is invalid"),
        ("licenses", "nosuch", "Invalid license specification"),
        ("dependency", "afterok:1", "Job dependency problem"),
        ("dependency", "bogus", "Job dependency problem"),
        ("deadline", "uts5", "Invalid time specified"),
        ("mailtype", "bogus", "Invalid MailType: bogus"),
        (
            "timemin",
            "99:00:00",
            "Invalid time-min specification (exceeds job's time or other limits)",
        ),
    ],
)
def test_what_a_waiting_job_cannot_be_given(field: str, value: str, says: str) -> None:
    b = Bench()
    job = b.job(hold=True, time_limit=600)
    before = copy.deepcopy(job)
    assert change(b, job, **{field: value}) == says
    assert job == before


@pytest.mark.parametrize(
    ("field", "value"),
    [("gres", "gpu:99"), ("mincpusnode", "99"), ("minmemorynode", "999999"), ("cpuspertask", "99")],
)
def test_what_no_node_can_give_is_refused_as_at_submission(field: str, value: str) -> None:
    """Of a job that is held it is not: neither is that refused at submission."""
    b = Bench()
    job, held = b.job(begin=int(b.now) + 3600), b.job(hold=True)
    before = copy.deepcopy(job)
    says = "Requested node configuration is not available"
    assert change(b, job, **{field: value}) == says
    assert job == before
    assert change(b, held, **{field: value}) == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timelimit", "20"),
        ("timelimit", "5"),
        ("nice", "10"),
        ("nice", "5"),
        ("timemin", "5"),
        ("mailtype", "BEGIN,END"),
        ("excnodelist", "node1"),
        ("numcpus", "4"),
        ("cpuspertask", "2"),
        ("taskspernode", "4"),
        ("switches", "2"),
        ("wckey", "ww"),
        ("features", ""),
        ("nodelist", ""),
        ("arraytaskthrottle", "3"),
    ],
)
def test_what_an_owner_may_change(field: str, value: str) -> None:
    b = Bench()
    job = b.job(hold=True, time_limit=600)
    assert change(b, job, 1000, **{field: value}) == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nice", "-5"),
        ("deadline", "now+1day"),
        ("contiguous", "yes"),
        ("admincomment", "x"),
        ("oversubscribe", "yes"),
        ("corespec", "1"),
    ],
)
def test_what_only_an_administrator_may_change(field: str, value: str) -> None:
    b = Bench()
    job = b.job(time_limit=600)
    assert change(b, job, 1000, **{field: value}) == "Access/permission denied"
    assert change(b, job, 0, **{field: value}) == ""


def test_priority_is_the_administrators() -> None:
    b = Bench()
    job = b.job()
    assert change(b, job, 1000, priority="4294967293") == "Access/permission denied"
    lower = "Changes to job priority are not persistent, change nice instead"
    assert change(b, job, 1000, priority="3") == lower
    assert change(b, job, 0, priority="77") == "" and job.priority == 77
    assert change(b, job, 1000, priority="0") == "" and job.held == Hold.USER
    assert change(b, job, 1000, verb="release") == "" and job.priority == 77


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("name comment nice requeue=0 mailtype=END timelimit=5 licenses= numnodes=1", ""),
        ("reqnodelist=node1 arraytaskthrottle=2 priority=0 switches=1", ""),
        ("timelimit=90:00", "Access/permission denied"),
        ("numnodes=3", "Requested operation not supported on this system"),
        (
            "partition=debug features=rackA numcpus=1 numtasks=2 mincpusnode=2 minmemorynode=5 "
            "gres=gpu:1 starttime=now+5 dependency=singleton qos=low account=research wckey=x "
            "stdout=/tmp/x excnodelist=node4 cpuspertask=2 oversubscribe=yes",
            "Job is no longer pending execution",
        ),
    ],
)
def test_what_a_running_job_may_be_given_by_its_owner(fields: str, says: str) -> None:
    for item in fields.split():
        b = Bench()
        job = running(b)
        key, equals, value = item.partition("=")
        assert change(b, job, 1000, **{key: value if equals else "5"}) == says, item


def test_the_limit_of_a_running_job() -> None:
    b = Bench(CONF + "OverTimeLimit=1\n")
    job = running(b, time_limit=600)
    assert change(b, job, 1000, timelimit="5") == ""
    order = orders(b)[-1]
    # one minute of OverTimeLimit more
    assert isinstance(order, SetLimit) and order.limit_s == 360
    assert job.end_time == job.start_time + 300
    assert change(b, job, 0, endtime=str(job.start_time + 7100)) == ""
    assert job.time_limit == 7140 and orders(b)[-1].limit_s == 7200  # type: ignore[union-attr]


def test_nothing_of_a_finished_job_can_be_changed() -> None:
    b = Bench()
    job = running(b)
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    for verb in ("update", "hold", "uhold", "release"):
        assert change(b, job, verb=verb, comment="late") == "Job has already finished"
    assert change(b, job, verb="suspend") == "Job/step already completing or completed"


def test_a_hold_of_a_running_job_counts_when_it_is_queued_again() -> None:
    b = Bench()
    job = running(b)
    assert change(b, job, verb="hold") == "" and job.priority == 0
    assert job.state == JobState.RUNNING
    change(b, job, verb="requeue")
    b.report("node1", at(job, Phase.RELEASED, wstatus=15))
    assert b.verdict(job) == "JobHeldAdmin"


def test_a_requeued_job_waits_two_minutes() -> None:
    """Transcript 033: submitted (again) at :28, eligible at 2:01 minutes later."""
    b = Bench()
    job = running(b)
    b.now += 30
    change(b, job, verb="requeue")
    b.now += 2
    b.report("node1", at(job, Phase.RELEASED, wstatus=15))
    assert job.state == JobState.PENDING and job.submit_time == int(b.now)
    assert job.eligible_time == job.submit_time + 121
    assert b.verdict(job) == "BeginTime"
    b.now += 120
    b.schedule()
    assert job.state == JobState.PENDING
    b.now += 1
    b.schedule()
    assert job.state == JobState.RUNNING and job.restarts == 1


@pytest.mark.parametrize("early", [True, False])
def test_starttime_now_ends_the_wait(early: bool) -> None:
    b = Bench()
    job = running(b)
    change(b, job, verb="requeue")
    if early:
        assert change(b, job, 1000, starttime="now") == ""
    b.report("node1", at(job, Phase.RELEASED, wstatus=15))
    if not early:
        assert change(b, job, 1000, starttime="now") == ""
    b.schedule()
    assert job.state == JobState.RUNNING and job.attempt == 2


def test_requeuehold_says_so_and_its_owner_may_let_it_go() -> None:
    b = Bench()
    job = running(b)
    assert change(b, job, verb="requeuehold") == ""
    b.report("node1", at(job, Phase.RELEASED, wstatus=15))
    assert b.verdict(job) == "job requeued in held state" and job.priority == 0
    assert change(b, job, verb="requeuehold") == "Job is pending execution"
    assert change(b, job, 1000, verb="release") == "" and job.reason == ""
    assert b.verdict(job) == "BeginTime"


def test_a_finished_job_may_be_queued_again() -> None:
    b = Bench()
    job = running(b)
    b.report("node1", at(job, Phase.RELEASED, wstatus=1 << 8))
    assert job.reason == "NonZeroExitCode"
    assert change(b, job, 1000, verb="requeue") == ""
    assert job.state == JobState.PENDING and job.reason == "" and job.restarts == 1
    no = b.job(requeue=False)
    assert change(b, no, verb="requeue") == "Requested operation is presently disabled"


def test_a_requeue_that_is_under_way_can_be_cancelled() -> None:
    b = Bench()
    job = running(b)
    change(b, job, verb="requeue")
    b.write(CancelJobs(["1"]), uid=1000)
    b.report("node1", at(job, Phase.RELEASED, wstatus=15))
    assert job.state == JobState.CANCELLED and job.cancelled_by == 1000 and not job.completing


def test_suspend_and_resume() -> None:
    b = Bench()
    job = running(b, time_limit=600, shape=Shape(gpus_per_node=8))
    assert change(b, job, 1000, verb="suspend") == "Access/permission denied"
    b.now += 100
    assert change(b, job, verb="suspend") == "" and job.state == JobState.SUSPENDED
    limit, stop = orders(b)[-2:]
    assert isinstance(limit, SetLimit) and limit.limit_s == 0
    # SIGTSTP, and SIGSTOP two seconds later: Slurm's suspend_grace_time.
    assert isinstance(stop, Pause) and stop.grace_s == 2
    assert (job.pre_suspend_s, job.suspend_time) == (100, int(b.now))
    assert b.led.cluster.used("node1")[2] == 0xFF
    assert change(b, job, verb="suspend") == ""
    b.now += 50
    assert change(b, job, verb="resume") == "" and job.state == JobState.RUNNING
    go, limit = orders(b)[-2:]
    assert isinstance(go, Pause) and go.grace_s == -1
    # 50 seconds more from the start of the script: 500 of 600 are left
    assert isinstance(limit, SetLimit) and limit.limit_s == 650
    assert job.end_time == int(b.now) + 500
    assert change(b, job, verb="resume") == "Job is not suspended"
    b.now += 10
    change(b, job, verb="suspend")
    b.now += 5
    change(b, job, verb="resume")
    assert orders(b)[-1].limit_s == 655  # type: ignore[union-attr]
    assert job.pre_suspend_s == 110
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    assert job.state == JobState.COMPLETED


def test_a_limit_that_was_changed_while_the_node_was_away_reaches_it() -> None:
    b = Bench()
    job = running(b, time_limit=600)
    b.led.live["node1"].session = ""
    change(b, job, timelimit="20")
    b.sent.clear()
    b.register("node1", [at(job, Phase.RUNNING)])
    assert [o.limit_s for o in orders(b) if isinstance(o, SetLimit)] == [1200]


def test_what_cannot_be_suspended() -> None:
    b = Bench()
    job = b.job()
    assert change(b, job, verb="suspend") == "Job is pending execution"
    assert change(b, job, verb="resume") == "Job is pending execution"


def test_a_node_that_comes_back_is_told_again_to_stop() -> None:
    b = Bench()
    job = running(b)
    change(b, job, verb="suspend")
    b.sent.clear()
    b.register("node1", [at(job, Phase.RUNNING)])
    assert [o.grace_s for o in orders(b) if isinstance(o, Pause)] == [2]
    change(b, job, verb="resume")
    b.sent.clear()
    b.register("node1", [at(job, Phase.RUNNING)])
    assert [o.grace_s for o in orders(b) if isinstance(o, Pause)] == [-1]


def test_a_suspended_job_can_be_cancelled_and_requeued() -> None:
    b = Bench()
    job = running(b)
    change(b, job, verb="suspend")
    b.write(CancelJobs(["1"]), uid=0)
    assert job.state == JobState.CANCELLED
    b.report("node1", at(job, Phase.RELEASED, wstatus=9))
    other = running(b)
    change(b, other, verb="suspend")
    change(b, other, verb="requeue")
    b.report("node1", at(other, Phase.RELEASED, wstatus=9))
    # scontrol(1): a suspended job that is requeued is held
    assert other.state == JobState.PENDING and other.held and other.suspend_time == 0


def test_notify_is_a_line_for_a_running_job() -> None:
    """Transcript 033: of a waiting job it is disabled."""
    b = Bench()
    job = running(b)
    waiting = b.job(hold=True)
    assert change(b, job, 1000, verb="notify", message="hello\nthere") == ""
    order = orders(b)[-1]
    assert isinstance(order, Notify) and order.text == "hello there"
    assert change(b, waiting, verb="notify", message="x") == (
        "Requested operation is presently disabled"
    )
    assert change(b, job, 1001, verb="notify", message="x") == "Invalid user id"
    long = "\u20ac" * 1000
    change(b, job, verb="notify", message=long)
    assert len(orders(b)[-1].text.encode()) <= 900  # type: ignore[union-attr]


def test_top_reorders_the_users_own_jobs() -> None:
    b = Bench(CONF + "SchedulerParameters=enable_user_top\n")
    begin = int(b.now) + 3600
    first, second, third = (b.job(begin=begin) for _ in range(3))
    others = b.job(uid=1001, begin=begin)
    before = sorted((j.priority for j in (first, second, third)), reverse=True)
    reply = b.write(UpdateJob([str(third.id), str(second.id)], "top"), 1000)
    assert isinstance(reply, Done) and not reply.errors
    assert [third.priority, second.priority, first.priority] == before
    assert others.spec.nice == 0 and third.spec.nice < 0 < first.spec.nice
    # the nice values say the same as the priorities
    change(b, third, verb="hold")
    change(b, third, verb="release")
    assert third.priority == before[0]


def test_top_of_one_task_says_nothing_of_the_others() -> None:
    b = Bench()
    b.job(begin=int(b.now) + 3600)
    b.job(array="1-3", begin=int(b.now) + 3600)
    b.write(UpdateJob(["2_1"], "top"), 0)
    nice = {j.array_task_id: j.spec.nice for j in b.led.jobs.values() if j.array_job_id}
    assert nice[1] < 0 and nice[-1] == 0


def test_top_is_disabled_for_users_by_default() -> None:
    b = Bench()
    job = b.job(begin=int(b.now) + 3600)
    assert change(b, job, 1000, verb="top") == "Access/permission denied"
    assert change(b, job, 0, verb="top") == ""


def test_requeue_of_an_array_is_for_the_tasks_that_have_begun() -> None:
    b = Bench()
    first = b.job(array="1-6", shape=Shape(gpus_per_node=8))
    b.schedule()
    for name in b.led.nodes:
        (job_id,) = b.led.parts[name]
        b.report(name, at(b.led.jobs[job_id], Phase.RUNNING))
    reply = b.write(UpdateJob(["1"], "requeue"), 1000)
    assert isinstance(reply, Done) and reply.value == 4 and not reply.errors
    for name in b.led.nodes:
        (job_id,) = b.led.parts[name]
        b.report(name, at(b.led.jobs[job_id], Phase.RELEASED, wstatus=15))
    assert [j.restarts for j in b.led.jobs.values() if j.array_task_id >= 0] == [1, 1, 1, 1]
    assert first.array_pending and change(b, first, verb="requeue") == "Job is pending execution"


def test_an_array_is_changed_together_and_task_by_task() -> None:
    b = Bench()
    job = b.job(array="1-4", hold=True, time_limit=600)
    b.write(UpdateJob(["1"], "update", {"timelimit": "+5"}), 0)
    b.write(UpdateJob(["1_2"], "update", {"timelimit": "7"}), 0)
    limits = {j.array_task_id: j.time_limit for j in b.led.jobs.values()}
    assert limits == {-1: 900, 2: 420} and job.array_pending == "1,3-4"
    b.now += 1
    b.apply(Tick())


def test_a_job_that_was_cancelled_while_it_waited_for_another_waits_again() -> None:
    b = Bench()
    first = running(b)
    second = b.job(dependency=f"afterany:{first.id}")
    b.write(CancelJobs([str(second.id)]))
    assert change(b, second, verb="requeue") == ""
    assert b.verdict(second) == "Dependency"
    b.report("node1", at(first, Phase.RELEASED, wstatus=0))
    change(b, second, starttime="now")
    b.schedule()
    assert second.state == JobState.RUNNING
    third = b.job(dependency=f"afterany:{second.id}")
    b.write(CancelJobs([str(third.id)]))
    b.report("node1", at(second, Phase.RELEASED, wstatus=0))
    change(b, third, verb="requeue")
    b.now += 122
    for name in b.led.nodes:
        b.report(name)
    b.apply(Tick())
    b.schedule()
    assert third.state == JobState.RUNNING
