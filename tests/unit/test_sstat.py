"""sstat against transcript 036: the same table, sentences and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from acct_support import T244
from views_support import FakeReader, cpu_shape, invoke, make_job, share, transcript

from gsched.model import Job, JobState, NodeAlloc, Step, StepNode
from gsched.wire.codec import decode, encode
from gsched.wire.messages import AskAgent, Done, Refused, Reply, Write
from gsched.wire.steps import FromAgent, NotTaken, StatSteps, StepUse, ToAgent, Usages
from gsched_cli.sstat import run

#: what the processes of transcript 036 used
SCRIPT = StepUse(-5, "batch", 1, ["node1"], 11552, "node1", 0, 11552, 690712, "node1", 0, 690712)
SLEEP = StepUse(0, "sleep", 1, ["node1"], 1692, "node1", 0, 1692, 2920, "node1", 0, 2920)


class Agents(FakeReader):
    """Job 248 with its script and a step, and the agent that knows what they use."""

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        self.sent.append(write)
        if self.answers:
            return self.answers.pop(0)
        assert isinstance(write, AskAgent)
        question = decode(ToAgent, write.payload)
        assert isinstance(question, StatSteps) and question.job_id == write.job_id
        uses = [u for u in (SCRIPT, SLEEP) if not question.steps or u.step in question.steps]
        return Done(b"", 1, blob=encode(Usages(uses)))


def job(**more: object) -> Job:
    fields = {"state": JobState.RUNNING, "alloc": [share("node1", 1)], "start_time": T244, **more}
    return make_job(248, "ss", cpu_shape(), **fields)  # type: ignore[arg-type]


def agents(**more: object) -> Agents:
    shares = [StepNode(NodeAlloc("node1", 1, 1, 2000), [0])]
    return Agents([job(**more)], step_list=[Step(248, 1, 0, "sleep", 1, shares)], clock=T244 + 3)


@pytest.mark.shared
def test_transcript(shared: Path) -> None:
    cases = transcript(shared, "036")
    same = (
        *("sstat -a -P -o jobid,ntasks,maxrss,avecpu,nodelist 248", "sstat 99999999"),
        *("sstat", "sstat -e"),
    )
    for command in same:
        case = cases[command]
        found = invoke(run, case.argv, agents())
        assert found == (case.stdout, case.stderr, case.code), command
    # The heading, and of the row what depends on no clock and no disk.
    case = cases["sstat 248.batch"]
    out, err, code = invoke(run, case.argv, agents())
    assert (err, code) == ("", 0)
    mine, theirs = out.splitlines(), case.stdout.splitlines()
    assert mine[:2] == theirs[:2]
    width = theirs[1].index(" -------- ----------") + 9
    assert mine[2][:width] == theirs[2][:width]


def test_the_step_is_the_first_one_that_srun_made() -> None:
    out, err, code = invoke(run, ["-n", "-P", "-o", "jobid,alloctres,averss,maxvmsize"], agents())
    assert (out, err, code) == ("", "sstat: error: You didn't give me any jobs to stat.\n", 1)
    argv = ["-n", "-P", "-o", "jobid,alloctres,averss,maxvmsize", "-j", "248"]
    assert invoke(run, argv, agents()) == ("248.0|cpu=1,mem=2000M,node=1|1692K|2920K\n", "", 0)


def test_other_forms() -> None:
    assert invoke(run, ["-p", "-n", "-o", "jobid,maxrss", "248.0"], agents())[0] == "248.0|1692K|\n"
    # The peer: bytes without a unit.
    argv = ["--noconvert", "-P", "-o", "jobid,maxrss", "248"]
    assert invoke(run, argv, agents())[0] == "JobID|MaxRSS\n248.0|1732608\n"
    out, _, _ = invoke(run, ["-n", "-o", "jobid%20", "248,248.batch"], agents())
    assert out == f"{'248.0':>20} \n{'248.batch':>20} \n"


def test_pids_are_asked_for_where_they_are_shown() -> None:
    reader = agents()
    out, _, _ = invoke(run, ["-i", "248"], reader)
    assert out.splitlines()[0].split() == ["JobID", "Nodelist", "Pids"]
    asked = [decode(ToAgent, write.payload) for write in reader.sent]  # type: ignore[union-attr]
    assert [question.pids for question in asked] == [True]
    reader = agents()
    invoke(run, ["248"], reader)
    assert not decode(ToAgent, reader.sent[0].payload).pids  # type: ignore[union-attr]


def test_what_does_not_run() -> None:
    def said(*argv: str, reader: Agents | None = None) -> str:
        out, err, code = invoke(run, ["-n", *argv], reader or agents())
        assert (out, code) == ("", 0)
        return err

    # The sentences are the transcript's and the peer's.
    assert said("248.9") == "sstat: error: StepId=248.9 not found running.\n"
    assert said("248.extern") == "sstat: error: StepId=248.extern not found running.\n"
    over = agents(state=JobState.COMPLETED, end_time=T244 + 1)
    assert said("248", reader=over) == "sstat: error: No steps running for JobId=248\n"
    assert over.sent == []
    gone = agents()
    gone.answers = [Done(b"", 1, blob=encode(NotTaken("no such job", unknown=True)))]
    assert said("248", reader=gone) == "sstat: error: No steps running for JobId=248\n"
    away = agents()
    away.answers = [Refused(b"", "Communication connection failure", "X", temporary=True)]
    sentence = "couldn't get steps for JobId=248: Communication connection failure"
    assert said("248", reader=away) == f"sstat: error: {sentence}\n"
    other = agents()
    other.answers = [Done(b"", 1, blob=encode(NotTaken("error: Access/permission denied")))]
    assert said("248", reader=other) == "sstat: error: Access/permission denied\n"


def test_bad_input() -> None:
    for argv, sentence in (
        (["abc"], "sstat: fatal: Bad job/step specified: abc\n"),
        (["248.x"], "sstat: fatal: Bad job/step specified: 248.x\n"),
        (["-o", "nosuch", "248"], 'sstat: error: Invalid field requested: "nosuch"\n'),
        (["--nosuch"], "sstat: unrecognized option '--nosuch'\n"),
    ):
        assert invoke(run, argv, agents()) == ("", sentence, 1)


def test_tasks_on_several_nodes() -> None:
    use = StepUse(0, "a", 4, ["node1", "node2"], 900, "node2", 3, 600)
    use.ave_cpu_ms, use.min_cpu_ms, use.min_cpu_node, use.min_cpu_task = 61_000, 1_000, "node1", 1
    reader = agents()
    reader.answers = [Done(b"", 1, blob=encode(Usages([use])))]
    names = "nodelist,averss,maxrsstask,mincpu,mincpunode,mincputask,avecpu,tresusageintot"
    out, _, _ = invoke(run, ["-n", "-P", "-o", names, "248"], reader)
    total = "cpu=00:04:04,energy=0,fs/disk=0,mem=2400K,pages=0,vmem=0"
    assert out == f"node[1-2]|600K|3|00:00:01|node1|1|00:01:01|{total}\n"


def test_the_answer_is_one_of_an_agent() -> None:
    assert decode(FromAgent, encode(Usages([SLEEP]))) == Usages([SLEEP])
