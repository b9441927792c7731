"""squeue against the transcripts of Slurm 26.05."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views_support import T0, Case, FakeReader, cpu_shape, invoke, make_job, mixed_queue, transcript

from gsched.model import Hold, Job, JobState, Phase, Verdict
from gsched.wire.messages import JobRows, Status
from gsched_cli.squeue import run
from gsched_cli.squeue_options import array_tasks

#: what the transcript shows that is not told by records: jobs of earlier cases, unstable sorts,
#: a list of states that Slurm itself cuts off
NOT_COMPARED = {
    "squeue -t all",
    "squeue -t nosuch",
    "squeue -S zz",
    "squeue --start",
}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def check(case: Case, reader: FakeReader) -> None:
    out, err, code = invoke(run, case.argv, reader, case.env)
    # The recorder put CWD in place of a longer path, after Slurm had padded it.
    out = out.replace("CWD" + " " * 17, "CWD     ")
    assert out == case.stdout, case.command
    assert (err, code) == (case.stderr, case.code), case.command


@pytest.fixture()
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    entry = pwd.getpwuid(os.getuid())
    ids = {"root": 0, "alice": 1001}

    def getpwnam(name: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", ids[name], 0, "", "", "")) or entry

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)


@pytest.mark.usefixtures("users")
@pytest.mark.shared
def test_views(shared: Path) -> None:
    for command, case in transcript(shared, "024").items():
        if command.startswith("squeue") and command not in NOT_COMPARED:
            check(case, mixed_queue())


@pytest.mark.shared
def test_formats(shared: Path) -> None:
    for command, case in transcript(shared, "025").items():
        late = command.startswith("SQUEUE_")
        check(case, mixed_queue(6 if late else 5))


# ---- beyond the transcripts --------------------------------------------------------------------


def ask(*argv: str, reader: FakeReader | None = None, **env: str) -> tuple[str, str, int]:
    return invoke(run, argv, reader or mixed_queue(), env)


def test_doubled_percent_is_one() -> None:
    """Programs build formats with a formatter of their own and leave the sign doubled."""
    assert ask("-h", "-j", "190", "-o", "%%i|%%T") == ("190|RUNNING\n", "", 0)


def test_unknown_ids() -> None:
    error = "slurm_load_jobs error: Invalid job id specified\n"
    assert ask("-h", "-j", "9") == ("", error, 1)
    assert ask("-h", "-j", "9,9") == ("", "", 0)


def test_ended_jobs_only_when_asked_for() -> None:
    reader = mixed_queue()
    reader.job_list = [ended_job(JobState.FAILED, 1 << 8, "NonZeroExitCode", "node1")]
    assert ask("-h", "-j", "300", reader=reader)[0] == ""
    row = "               300       gpu     wrap     root  F       0:07      1 (NonZeroExitCode)\n"
    assert ask("-h", "-t", "all", reader=reader) == (row, "", 0)
    assert ask("-h", "-t", "F", reader=reader) == (row, "", 0)
    assert ask("-h", "-t", "CD", reader=reader) == ("", "", 0)


def test_ends_explain_themselves() -> None:
    """As the transcript of 024 shows ended jobs: a node list, an explanation, or nothing."""
    reader = mixed_queue()
    reader.job_list = [
        ended_job(JobState.COMPLETED, 0, "", "node[1-2]"),
        ended_job(JobState.FAILED, 9, "RaisedSignal", "node1"),
        ended_job(JobState.CANCELLED, 0, "", ""),
        ended_job(JobState.TIMEOUT, 9, "TimeLimit", "node1"),
    ]
    out, _, _ = ask("-h", "-t", "all", "-S", "", "-o", "%t %M %D %R", reader=reader)
    assert out.split("\n")[:-1] == [
        "CD 0:07 2 node[1-2]",
        "F 0:07 1 (RaisedSignal:9(Killed))",
        "CA 0:07 1 ",
        "TO 0:07 1 (TimeLimit)",
    ]


def test_completing_shows_what_is_not_given_back() -> None:
    reader = mixed_queue()
    (job,) = [job for job in reader.job_list if job.id == 190]
    job.completing = True
    job.state = JobState.CANCELLED
    job.end_time = T0 + 4
    job.alloc[0].phase = Phase.RELEASED
    out, _, _ = ask("-h", "-j", "190", "-o", "%t|%T|%M|%D|%C|%N|%R", reader=reader)
    assert out == "CG|COMPLETING|0:04|1|1|node2|node2\n"
    assert ask("-h", "-t", "CG", "-o", "%i", reader=reader)[0] == "190\n"


def test_a_job_without_limit() -> None:
    reader = mixed_queue()
    (job,) = [job for job in reader.job_list if job.id == 190]
    job.time_limit = 0
    out, _, _ = ask("-h", "-j", "190", "-o", "%l|%L|%e", reader=reader)
    assert out == "UNLIMITED|UNLIMITED|NONE\n"


def test_expected_starts() -> None:
    reader = mixed_queue()
    reader.verdicts[192] = Verdict(
        192, "Resources", start=T0 + 1800, nodes="node1,node2,node3,node4"
    )
    header, first, *rest = ask("--start", reader=reader)[0].split("\n")
    assert header == (
        "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES "
        "SCHEDNODES           NODELIST(REASON)"
    )
    assert first == (
        "               192       gpu      big     root PD 2026-11-29T14:21:50      4 "
        "node[1-4]            (Resources)"
    )
    assert {line.split()[0] for line in rest if line} == {"196", "193_[1-5]", "194"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("%s", "1795960310"),
        ("standard", "2026-11-29T13:51:50"),
        ("relative", "13:51:50"),
        ("%a %T", "Sun 13:51:50"),
    ],
)
def test_time_format(given: str, text: str) -> None:
    out, _, _ = ask("-h", "-j190", "-o%S", SLURM_TIME_FORMAT=given)
    assert out == text + "\n"


def test_nobody_answers() -> None:
    from gsched.client import ControllerDown

    class Down(FakeReader):
        def jobs(self, query: object) -> JobRows:
            raise ControllerDown("no socket")

    text = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    assert ask(reader=Down()) == ("", text, 1)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["foo"], "squeue: error: Unrecognized option: foo\n"),
        (["--sta=R"], "squeue: option '--sta=R' is ambiguous; possibilities: "),
        (["--noheader=3"], "squeue: option '--noheader' doesn't allow an argument\n"),
        (["-o"], "squeue: option requires an argument -- 'o'\n"),
        (["-iX"], "squeue: error: --iterate=X\n"),
        (["-l", "-o%i"], "squeue: fatal: Options -o(--format) and -l(--long) are mutually excl"),
        (["-Ojobid", "-l"], "squeue: fatal: Options -o(--format) and -l(--long) are mutually ex"),
        (["-o%i", "-Ojobid"], "squeue: error: -O (--Format) is incompatible with -o (--format)\n"),
        (["-Ojobid", "-o%i"], "squeue: error: -o (--format) is incompatible with -O (--Format)\n"),
    ],
)
def test_refused_command_lines(argv: list[str], text: str) -> None:
    """As a real squeue answered them."""
    out, err, code = ask(*argv)
    assert (out, code) == ("", 1)
    assert err.startswith(text)


def test_long_arrays_are_cut() -> None:
    """The manual: 64 bytes, or as SLURM_BITSTR_LEN says; 0 is all of it."""
    reader = mixed_queue()
    (job,) = [job for job in reader.job_list if job.id == 193]
    job.array_pending = "1-99:2"
    out, _, _ = ask("-h", "-j", "193", "-o", "%K", reader=reader)
    assert len(out) <= 65
    assert out.endswith("...\n")
    full, _, _ = ask("-h", "-j", "193", "-o", "%K", reader=reader, SLURM_BITSTR_LEN="0")
    assert full == ",".join(str(n) for n in range(1, 100, 2)) + "\n"


def test_tasks_of_an_array() -> None:
    reader = mixed_queue()
    (job,) = [job for job in reader.job_list if job.id == 193]
    job.array_throttle = 2
    job.array_pending = "2-5"
    task = make_job(
        198,
        "arr",
        cpu_shape(),
        array_job_id=193,
        array_task_id=1,
        state=JobState.RUNNING,
        start_time=T0,
    )
    reader.job_list.append(task)
    assert ask("-h", "-j", "193", "-o", "%i|%A|%F|%K", reader=reader)[0] == (
        "193_[2-5%2]|193|193|2-5%2\n193_1|198|193|1\n"
    )
    assert ask("-h", "-j", "193_[1,4]", "-o", "%i", reader=reader)[0] == "193_4\n193_1\n"
    assert ask("-h", "-j", "198", "-o", "%i", reader=reader)[0] == "193_1\n"


def split_array(*records: dict[str, object]) -> FakeReader:
    """An array of ten tasks that waits for its hour, and tasks of it with records of their own."""
    reader = mixed_queue()
    whole = make_job(300, "arr", cpu_shape(), array_job_id=300, array_pending="0-2,4,6,8-9")
    whole.spec.begin = T0 + 3600
    reader.job_list = [whole]
    for number, fields in enumerate(records, 301):
        job = make_job(number, "arr", cpu_shape(), array_job_id=300, **fields)
        job.spec.begin = T0 + 3600
        reader.job_list.append(job)
    return reader


def test_waiting_tasks_of_an_array_share_a_line() -> None:
    """As Slurm 22.05 showed an array of which tasks 5, 3 and 7 were held, and 1 by its user: each
    reason once, the array's own first."""
    held = {"held": Hold.ADMIN, "priority": 0}
    reader = split_array(
        {"array_task_id": 5, **held},
        {"array_task_id": 3, "held": Hold.USER},
        {"array_task_id": 7, **held},
    )
    form = "%i|%T|%r|%R|%A|%K|%F"
    reasons = "BeginTime,JobHeldAdmin,JobHeldUser"
    assert ask("-h", "-o", form, reader=reader)[0] == (
        f"300_[0-9]|PENDING|{reasons}|({reasons})|300|0-9|300\n"
    )
    assert ask("-h", "-j", "300", "-t", "PD", "-o", "%i", reader=reader)[0] == "300_[0-9]\n"
    assert len(ask("-h", "-r", reader=reader)[0].splitlines()) == 10
    # Tasks that are named are shown one by one.
    assert ask("-h", "-j", "300_5,300_6", "-o", "%i %r", "-S", "i", reader=reader)[0] == (
        "300_5 JobHeldAdmin\n300_6 BeginTime\n"
    )
    # But those of one record together, as 22.05 showed A_20,A_30.
    assert ask("-h", "-j", "300_6,300_0,300_1,300_5", "-o", "%i", "-S", "A", reader=reader)[0] == (
        "300_[0-1,6]\n300_5\n"
    )
    assert ask("-h", "-r", "-j", "300_6,300_0", "-o", "%i", "-S", "i", reader=reader)[0] == (
        "300_0\n300_6\n"
    )


def test_what_shares_no_line() -> None:
    """As Slurm 22.05: another name or partition, a task that runs, an array without tasks that
    are still together."""
    reader = split_array({"array_task_id": 3}, {"array_task_id": 5}, {"array_task_id": 7})
    array, name, part, running = reader.job_list
    name.spec.name = "other"
    part.partition, part.spec.partitions = "debug", ("debug",)
    running.state, running.start_time = JobState.RUNNING, T0
    shown = ask("-h", "-o", "%i", "-S", "i", reader=reader)[0]
    assert shown.split() == ["300_3", "300_5", "300_7", "300_[0-2,4,6,8-9]"] or shown.split() == [
        "300_[0-2,4,6,8-9]",
        *("300_3", "300_5", "300_7"),
    ]
    reader.job_list.remove(array)
    name.spec.name, running.state, running.start_time = "arr", JobState.PENDING, 0
    assert ask("-h", "-o", "%i", "-S", "i", reader=reader)[0] == "300_3\n300_5\n300_7\n"


def test_a_throttled_array_keeps_its_limit_where_tasks_share_its_line() -> None:
    reader = split_array({"array_task_id": 3, "held": Hold.USER})
    reader.job_list[0].array_throttle = 2
    assert ask("-h", "-o", "%i", reader=reader)[0] == "300_[0-4,6,8-9%2]\n"


def test_array_expressions() -> None:
    assert list(array_tasks("1-5%2")) == [1, 2, 3, 4, 5]
    assert list(array_tasks("0-8:4,11")) == [0, 4, 8, 11]
    assert list(array_tasks("a-b")) == []
    assert list(array_tasks("0-99999999999")) == []


words = st.sampled_from(
    ["-o", "-O", "-j", "-t", "-u", "-S", "-w", "-h", "-l", "-r", "-p", "--start", "--me", "-A"]
    + ["-n", "%i", "%.10j %R", "192", "193_2", "193_[1-", "all", "PD,R", "root", "node[1-2]"]
    + ["--states=all", "--form", "--nos", "-M", "peer", "-s", "jobid:", "--helpFormat", "-q"]
)


@settings(deadline=None)
@given(argv=st.lists(words | st.text(max_size=12), max_size=6))
def test_any_command_line_ends_with_a_sentence(argv: list[str]) -> None:
    if any(word.startswith(("-i", "--i")) for word in argv):
        return
    _out, err, code = ask(*argv)
    assert code in (0, 1)
    assert code == 0 or err


@settings(deadline=None)
@given(text=st.text(alphabet="%.0123456789iRjMtT|,:- ax#", max_size=30))
def test_any_format_prints_a_line_per_job(text: str) -> None:
    for option in ("-o", "-O"):
        out, _, code = ask("-h", option, text)
        assert (out.count("\n"), code) == (8, 0)


def ended_job(state: JobState, wstatus: int, reason: str, nodes: str) -> Job:
    return make_job(
        300,
        "wrap",
        cpu_shape(),
        state=state,
        wstatus=wstatus,
        reason=reason,
        start_time=T0,
        end_time=T0 + 7,
        last_nodes=nodes,
    )


def test_when_the_scheduler_last_looked() -> None:
    """No waiting job's record says so: as in `scontrol show job`, the last pass counts."""
    reader = mixed_queue()
    last_pass = T0 + 60
    reader.status = lambda: Status("uuid", "peer", 1, 1, True, last_pass=last_pass)  # type: ignore
    pending = ask("-h", "-j", "192", "-O", "lastschedeval", reader=reader)[0]
    assert pending.strip() == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(last_pass))
    names = ask("--helpFormat")[0].split()
    assert "PreemptTime" in names and "cpus-per-task" in names
