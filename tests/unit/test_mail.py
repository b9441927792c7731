"""Mail about jobs. Subjects and events are those that a real Slurm's mail program was given."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.controller.mailer import Mailer
from gsched.ledger.mail import Mail
from gsched.ledger.outcome import Outcome
from gsched.model import Job, JobSpec, Phase, Shape
from gsched.wire.messages import CancelJobs, Refused, SubmitJob, UpdateJob

BEGIN, END, FAIL, REQUEUE, LIMIT, HALF = 0x1, 0x2, 0x4, 0x8, 0x10, 0x80
ARRAY_TASKS, INVALID = 0x200, 0x400
ALL = BEGIN | END | FAIL | REQUEUE | 0x100 | INVALID


def subjects(out: Outcome) -> list[str]:
    return [mail.subject for mail in out.mails]


def tell(bench: Bench, ended: Job | None = None, **how: object) -> Outcome:
    """Every node reports all it holds; the last outcome is that of the node with `ended`."""
    out = Outcome()
    nodes = sorted(bench.led.nodes, key=lambda name: ended is not None and name == ended.batch_host)
    for node in nodes:
        held = [bench.led.jobs[job_id] for job_id in bench.led.parts[node]]
        reports = [
            at(job, Phase.RELEASED, **how) if job is ended else at(job, Phase.RUNNING)
            for job in held
        ]
        out = bench.report(node, *reports)
    return out


def start(bench: Bench) -> Outcome:
    out = bench.schedule()
    tell(bench)
    return out


def end(bench: Bench, job: Job, wstatus: int, cause: str = "") -> Outcome:
    return tell(bench, job, wstatus=wstatus, cause=cause)


def test_begin_and_failure() -> None:
    bench = Bench()
    job = bench.job(name="mj", mail_type=ALL)
    bench.now += 1
    out = start(bench)
    assert subjects(out) == ["Slurm Job_id=1 Name=mj Began, Queued time 00:00:01"]
    assert out.mails[0].recipient == "user"
    bench.now += 1
    out = end(bench, job, 3 << 8)
    assert subjects(out) == ["Slurm Job_id=1 Name=mj Failed, Run time 00:00:01, FAILED, ExitCode 3"]
    variables = out.mails[0].variables
    assert variables["SLURM_JOB_EXIT_CODE2"] == "3:0"
    assert variables["SLURM_JOB_EXIT_CODE"] == "768"
    assert variables["SLURM_JOB_MAIL_TYPE"] == "Failed"
    assert variables["SLURM_JOB_STATE"] == "FAILED"


@pytest.mark.parametrize(
    ("mail_type", "wstatus", "said"),
    [
        (END, 0, ["Ended, Run time 00:00:05, COMPLETED, ExitCode 0"]),
        # END alone is not for failures.
        (END, 2 << 8, []),
        (FAIL, 2 << 8, ["Failed, Run time 00:00:05, FAILED, ExitCode 2"]),
        (FAIL, 0, []),
        (ALL, 9, ["Failed, Run time 00:00:05, FAILED"]),
        (0, 0, []),
    ],
)
def test_ends(mail_type: int, wstatus: int, said: list[str]) -> None:
    bench = Bench()
    job = bench.job(name="x", mail_type=mail_type, mail_user="bob@x")
    start(bench)
    bench.now += 5
    out = end(bench, job, wstatus)
    assert subjects(out) == [f"Slurm Job_id=1 Name=x {text}" for text in said]
    assert all(mail.recipient == "bob@x" for mail in out.mails)


def test_cancel_is_an_end() -> None:
    bench = Bench()
    job = bench.job(name="wrap", mail_type=ALL)
    out = bench.apply_write(CancelJobs(["1"]))
    assert subjects(out) == [
        "Slurm Job_id=1 Name=wrap Ended, Run time 00:00:00, CANCELLED, ExitCode 0"
    ]
    assert out.mails[0].variables["SLURM_JOB_NODELIST"] == "(null)"
    assert job.finished


def test_requeue() -> None:
    bench = Bench()
    job = bench.job(name="rq", mail_type=ALL)
    start(bench)
    bench.now += 5
    assert subjects(bench.apply_write(UpdateJob(["1"], "requeue"))) == []
    out = end(bench, job, 15)
    assert subjects(out) == ["Slurm Job_id=1 Name=rq Requeued, Run time 00:00:05"]


def test_an_array_is_told_of_as_a_whole() -> None:
    bench = Bench()
    master = bench.job(name="mix", array="1-2", mail_type=ALL)
    assert subjects(start(bench)) == [f"Slurm Array Summary Job_id={master.id}_* ({master.id}) "
                                      "Name=mix Began"]  # fmt: skip
    first, second = sorted(bench.led.jobs.values(), key=lambda job: job.array_task_id)
    assert subjects(end(bench, first, 0)) == []
    assert subjects(end(bench, second, 1 << 8)) == [
        f"Slurm Array Summary Job_id={master.id}_* ({master.id}) Name=mix Failed, Mixed, "
        "ExitCode [0-1]"
    ]


def test_or_each_task_for_itself() -> None:
    bench = Bench()
    master = bench.job(name="wrap", array="1-2", mail_type=ALL | ARRAY_TASKS)
    start(bench)
    second = next(job for job in bench.led.jobs.values() if job.array_task_id == 2)
    assert subjects(end(bench, second, 0)) == [
        f"Slurm Array Task Job_id={master.id}_2 ({second.id}) Name=wrap Ended, "
        "Run time 00:00:00, COMPLETED, ExitCode 0"
    ]


def test_shares_of_the_time_limit() -> None:
    bench = Bench(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0"))
    job = bench.job(name="tl", time_limit=600, mail_type=HALF | LIMIT)
    start(bench)
    bench.now += 299
    assert subjects(bench.tick()) == []
    bench.now += 1
    assert subjects(bench.tick()) == [
        "Slurm Job_id=1 Name=tl Reached 50% of time limit, Run time 00:05:00"
    ]
    bench.now += 300
    assert subjects(end(bench, job, 15, "timeout")) == [
        "Slurm Job_id=1 Name=tl Reached time limit, Run time 00:10:00"
    ]


def test_a_dependency_that_can_never_be() -> None:
    bench = Bench()
    first = bench.job()
    bench.job(name="inv", dependency="afterok:1", mail_type=INVALID)
    start(bench)
    assert subjects(end(bench, first, 1 << 8)) == ["Slurm Job_id=2 Name=inv Invalid dependency"]


def test_a_heterogeneous_job_is_one_mail() -> None:
    bench = Bench()
    specs = [JobSpec(name="h", mail_type=ALL), JobSpec(name="h", shape=Shape(ntasks=2))]
    bench.write(SubmitJob(specs[0], b"#!/bin/sh\n", b"", "user", "g", specs[1:]))
    assert subjects(bench.schedule()) == ["Slurm Job_id=1 Name=h Began, Queued time 00:00:00"]
    assert subjects(bench.apply_write(CancelJobs(["1"]))) == [
        "Slurm Job_id=1 Name=h Ended, Run time 00:00:00, CANCELLED, ExitCode 0"
    ]


@pytest.mark.parametrize("user", ["-A/etc/passwd", "|sh", "/etc/motd", "a b", "x\n", "a,,b", "a;b"])
def test_recipients_that_are_none_are_refused(user: str) -> None:
    reply = Bench().submit(mail_type=ALL, mail_user=user)
    assert isinstance(reply, Refused) and "mail-user" in reply.message


def test_a_name_stays_in_its_line() -> None:
    bench = Bench()
    bench.job(name="a\nBcc: all\x1b", mail_type=ALL)
    (mail,) = start(bench).mails
    assert "Name=a Bcc: all  Began" in mail.subject


# ---- the mail program --------------------------------------------------------------------------


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_program_gets_words_not_a_command_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = script(tmp_path / "mail", f'for a; do echo "[$a]"; done > {out}; env >> {out}')
    said: list[str] = []
    mailer = Mailer(program, said.append)
    mailer.send([Mail("bob", "$(touch x) `id`; rm", {"SLURM_JOB_ID": "7"})])
    mailer.finish(30)
    lines = out.read_text().splitlines()
    assert lines[:3] == ["[-s]", "[$(touch x) `id`; rm]", "[bob]"]
    assert "SLURM_JOB_ID=7" in lines and not said
    assert not any(line.startswith("PYTEST") for line in lines)


def test_a_slow_or_missing_program_holds_nobody_up(tmp_path: Path) -> None:
    said: list[str] = []
    slow = Mailer(script(tmp_path / "slow", "exec sleep 3"), said.append)
    begin = time.monotonic()
    slow.send([Mail("bob", str(n)) for n in range(1100)])
    assert time.monotonic() - begin < 2
    assert said == ["more than 1000 mails wait: some are not sent"]
    missing = Mailer(str(tmp_path / "nosuch"), said.append)
    missing.send([Mail("bob", "1"), Mail("bob", "2")])
    missing.finish(30)
    assert len(said) == 2 and "nosuch" in said[1]
