"""scancel against the transcripts of Slurm 26.05."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views_support import FakeReader, invoke, mixed_queue, transcript

from gsched.wire.messages import CancelJobs, Done, Refused, Reply
from gsched_cli.scancel import run

UNKNOWN = "Invalid job id specified"
ENDED = "Job/step already completing or completed"


def ask(
    *argv: str, reader: FakeReader | None = None, stdin: str = "", **env: str
) -> tuple[str, str, int]:
    return invoke(run, argv, reader or mixed_queue(), env, stdin)


def answering(*errors: tuple[str, str]) -> FakeReader:
    reader = mixed_queue()
    reader.answers = [Done(b"", 1, errors=list(errors))]
    return reader


@pytest.mark.shared
def test_transcript(shared: Path) -> None:
    answers: dict[str, list[tuple[str, str]]] = {
        "scancel 99999999": [("99999999", UNKNOWN)],
        "scancel -Q 99999999": [("99999999", UNKNOWN)],
        "scancel 219": [("219", ENDED)],
        "[as alice] scancel 218": [("218", "Access/permission denied")],
    }
    compared = 0
    for command, case in transcript(shared, "029").items():
        if "scancel" not in command or command == "scancel 218.99":
            continue
        reader = answering(*answers.get(command, []))
        words = case.argv if not command.startswith("[") else ["218"]
        assert invoke(run, words, reader) == (case.stdout, case.stderr, case.code), command
        compared += 1
    assert compared == 18


def test_a_step_is_unknown() -> None:
    """The transcript has the sentence twice, for two ways to the node."""
    sentence = "scancel: error: Kill job error on job step id 218: Invalid job id specified\n"
    reader = answering(("step 218", UNKNOWN))
    assert ask("218.99", reader=reader) == ("", sentence, 225)


def sent(*argv: str, **env: str) -> CancelJobs:
    reader = mixed_queue()
    assert ask(*argv, reader=reader, **env) == ("", "", 0)
    (write,) = reader.sent
    assert isinstance(write, CancelJobs)
    return write


def test_what_is_asked_of_the_controller() -> None:
    assert sent("17", "18,19") == CancelJobs(["17", "18", "19"])
    assert sent("17_4", "17_[1-3,5]", "20_") == CancelJobs(["17_4", "17_[1-3,5]", "20"])
    assert sent("-s", "USR1", "17") == CancelJobs(["17"], 10, "steps")
    assert sent("-b", "-s", "sigusr1", "17") == CancelJobs(["17"], 10, "batch")
    assert sent("-f", "-s", "2", "17") == CancelJobs(["17"], 2, "all")
    assert sent("-s", "KILL", "17") == CancelJobs(["17"], 9, "all")
    assert sent("--me", "-t", "pd", "-n", "x") == CancelJobs([], user=0, state=0, name="x")
    assert sent("-p", "gpu", "-A", "a", "-q", "b", "-w", "n[1-2]") == CancelJobs(
        [], partition="gpu", account="a", qos="b", nodelist=["n1", "n2"]
    )
    assert sent("17", SCANCEL_NAME="x", SCANCEL_BATCH="no") == CancelJobs(["17"], name="x")


def test_ended_and_unknown_jobs_are_no_failure() -> None:
    reader = answering(("1", UNKNOWN), ("2", ENDED))
    assert ask("1", "2", reader=reader) == ("", "", 0)
    out, err, code = ask("-v", "2", reader=answering(("2", ENDED)))
    assert (out, code) == ("", 0)
    assert err == (
        f"scancel: Terminating job 2\nscancel: error: Kill job error on job id 2: {ENDED}\n"
    )


def test_interactive() -> None:
    reader = mixed_queue()
    question = "Cancel job_id={} name={} partition=gpu [y/n]? "
    out, err, code = ask("-i", "190", "192", "195", reader=reader, stdin="y\nwhat\nn\nyes\n")
    assert (err, code) == ("", 0)
    assert out == "".join(
        question.format(job, name)
        for job, name in [(190, "runner"), (192, "big"), (192, "big"), (195, "small")]
    )
    assert reader.sent == [CancelJobs(["190", "195"])]


def test_interactive_without_answers_cancels_nothing() -> None:
    reader = mixed_queue()
    assert ask("-i", "190", reader=reader)[2] == 0
    assert reader.sent == []


def test_nobody_answers() -> None:
    """As a real scancel without a controller."""
    from gsched.client import ControllerDown

    class Down(FakeReader):
        def call(self, write: object, request_id: bytes | None = None) -> Reply:
            raise ControllerDown("no socket")

    sentence = "Unable to contact slurm controller (connect failure)\n"
    assert ask("3", reader=Down()) == (
        "",
        f"scancel: error: Kill job error on job id 3: {sentence}",
        8,
    )
    assert ask("-n", "x", reader=Down()) == ("", f"slurm_load_jobs error: {sentence}", 1)


def test_refused() -> None:
    reader = mixed_queue()
    reader.answers = [Refused(b"", "Invalid signal 77")]
    assert ask("3", reader=reader) == ("", "scancel: error: Invalid signal 77\n", 1)


@pytest.mark.parametrize("text", ["abc", "1_x", "1.batch", "0", "1_[", "1-2", "", "9" * 11])
def test_bad_ids(text: str) -> None:
    assert ask(text) == ("", f"scancel: error: Invalid job id {text}\n", 1)


words = st.sampled_from(
    ["-s", "USR1", "-n", "-u", "root", "-b", "-f", "-i", "-v", "-Q", "190", "191_[1-2]", "-w"]
    + ["node[1-2]", "--sig", "--state=R", "--nos", "-t", "RUNNING", "190,192", "--me", "-H"]
)


@settings(deadline=None)
@given(argv=st.lists(words | st.text(max_size=12), max_size=6))
def test_any_command_line_ends_with_a_sentence(argv: list[str]) -> None:
    _out, err, code = ask(*argv)
    assert 0 <= code < 256
    assert code == 0 or err


# ---- steps -----------------------------------------------------------------------------------


def test_steps_are_named_to_the_controller() -> None:
    reader = FakeReader()
    out, err, code = invoke(run, ["-v", "91.1", "17_4.0", "18+1.2"], reader)
    assert (out, code) == ("", 0)
    assert err.splitlines() == [
        "scancel: Terminating step 91.1",
        "scancel: Terminating step 17_4.0",
        "scancel: Terminating step 18+1.2",
    ]
    # One request, and no other: naming steps alone means no jobs.
    assert reader.sent == [CancelJobs([], 0, steps=[("91", 1), ("17_4", 0), ("18+1", 2)])]


def test_a_signal_for_a_step_beside_a_job() -> None:
    reader = FakeReader()
    assert invoke(run, ["-s", "USR1", "91.77", "92"], reader)[2] == 0
    assert reader.sent == [CancelJobs([], 10, steps=[("91", 77)]), CancelJobs(["92"], 10, "steps")]


def test_a_step_that_is_gone() -> None:
    sentence = "Invalid job id specified"
    reply = Done(b"", 1, errors=[("step 91", sentence)])
    reader = FakeReader(answers=[reply, reply])
    said = f"scancel: error: Kill job error on job step id 91: {sentence}\n"
    assert invoke(run, ["91.0"], reader) == ("", said, 225)
    assert invoke(run, ["-Q", "91.0"], reader) == ("", "", 225)
    assert invoke(run, ["91.batch"], FakeReader()) == (
        "",
        "scancel: error: Invalid job id 91.batch\n",
        1,
    )
