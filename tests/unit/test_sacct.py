"""sacct against the transcripts of Slurm 26.05."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from acct_support import T244, AcctReader, array, ended, job_244, never_ran, shown
from hypothesis import given, settings
from hypothesis import strategies as st
from views_support import Case, cpu_shape, invoke, peer_config, share, transcript

from gsched.accounting.rows import row
from gsched.model import Hold, Job, JobSpec, JobState, Shape
from gsched.model.acct import AcctStep
from gsched.model.policy import Qos
from gsched_cli.fields_sacct import Look, clock
from gsched_cli.sacct import run

#: what the transcript shows and nobody records here: microseconds of CPU time, Slurm's own ids
NOT_COMPARED = ("totalcpu", "dbindex", "sacct -j 244 -o all -P", "--env-vars", "|", "[as ")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def reader_035() -> AcctReader:
    debug = [
        shown(never_ran(n, "wrap", JobState.CANCELLED, partition="debug", cancelled_by=0))
        for n in (37, 38)
    ]
    tasks = array(245, "sarr", {1: 246, 2: 247, 3: 245}, {2: 1, 3: 2})
    script = (
        b"#!/bin/bash\n#SBATCH -n2 --gpus=2 -t 5 -J steps -o /dev/null\n"
        b"srun -n2 true\nsrun -n1 -J named bash -c 'exit 2'\n"
    )
    return AcctReader(
        clock=T244 + 6, rows=[*debug, job_244(), *tasks], blobs={(244, "script"): script}
    )


def check(case: Case, reader: AcctReader) -> None:
    out, err, code = invoke(run, case.argv, reader, case.env)
    assert out == case.stdout, case.command
    assert (err, code) == (case.stderr, case.code), case.command


@pytest.mark.shared
def test_views_as_slurm_has_them(shared: Path) -> None:
    compared = 0
    for case in transcript(shared, "035-sacct").values():
        if case.command.startswith("sacct ") and not any(w in case.command for w in NOT_COMPARED):
            check(case, reader_035())
            compared += 1
    assert compared >= 33


@pytest.mark.shared
def test_all_fields(shared: Path) -> None:
    case = transcript(shared, "035-sacct")["sacct -j 244 -o all -P"]
    out, _, _ = invoke(run, case.argv, reader_035())

    def table(text: str) -> list[dict[str, str]]:
        names, *lines = [line.split("|") for line in text.splitlines()]
        rows = [dict(zip(names, cells, strict=True)) for cells in lines]
        for one in rows:
            # Numbers of Slurm's own database; how it was scheduled; CPU time in microseconds.
            for name in ("AssocID", "DBIndex", "QOSRAW", "Flags"):
                del one[name]
            for name in ("SystemCPU", "TotalCPU", "UserCPU"):
                del one[name]
        return rows

    assert table(out) == table(case.stdout)


@pytest.mark.shared
def test_arrays(shared: Path) -> None:
    cases = transcript(shared, "007-sbatch-array")
    rows = array(52, "arr.sh", {1: 53, 3: 54, 5: 55, 7: 56, 9: 52}, {})
    for command in ("sacct -j 52 -X", "sacct -j 52_3", "sacct -j 52 -P -o jobid,jobidraw,state"):
        check(cases[command], AcctReader(clock=T244 + 6, rows=rows))


def test_the_rest_of_an_array() -> None:
    """Transcript 007: `57_3 COMPLETED`, then `57_[0%1] CANCELLED+`."""
    rest = never_ran(57, "a", JobState.CANCELLED, array_job_id=57, cancelled_by=0)
    rest = msgspec.structs.replace(rest, array_pending="0", array_throttle=1)
    reader = AcctReader(clock=T244 + 6, rows=[shown(rest), *array(57, "a", {3: 58}, {})])
    out, _, _ = invoke(run, ["-j", "57", "-X", "-n", "-o", "jobid,state"], reader)
    assert out.split() == ["57_3", "COMPLETED", "57_[0%1]", "CANCELLED+"]
    out, _, _ = invoke(run, ["-j", "57_0", "-X", "-n", "-P", "-o", "jobid"], reader)
    assert out == "57_[0%1]\n"
    out, _, _ = invoke(run, ["-j", "57", "-X", "-n", "-P", "-o", "jobid", "--array"], reader)
    assert out == "57_3\n57_0\n"


@pytest.mark.shared
def test_exit_codes(shared: Path) -> None:
    """Transcript 030, without the steps of srun and what follows a requeue."""
    (case,) = (
        one
        for one in transcript(shared, "030-exit").values()
        if one.command.startswith("sacct -o jobid,jobname,state%25")
    )
    wanted = [
        (221, "x0", 0),
        (222, "x1", 1 << 8),
        (223, "x2", 42 << 8),
        (224, "x3", 255 << 8),
        (225, "x4", 0),
        (226, "x5", 9),
        (227, "x6", 15),
        (228, "x7", 11),
        (229, "x8", 127 << 8),
    ]
    rows = [
        shown(ended(n, name, JobState.FAILED if status else JobState.COMPLETED, status))
        for n, name, status in wanted
    ]
    cancelled = ended(236, "x15", JobState.CANCELLED, 15, cancelled_by=0)
    rows += [shown(cancelled)]
    rows += [shown(never_ran(235, "x14", JobState.PENDING, restarts=1, eligible_time=T244 + 5))]
    out, _, _ = invoke(run, case.argv, AcctReader(clock=T244 + 6, rows=rows))
    known = {str(number) for number, _, _ in wanted} | {"235", "236"}
    expected = [
        line
        for line in case.stdout.splitlines()[2:]
        if line.split()[0].removesuffix(".batch") in known
    ]
    assert out.splitlines()[2:] == expected


@pytest.mark.shared
def test_requeued_and_timed_out(shared: Path) -> None:
    first = ended(241, "rq", JobState.CANCELLED, 15, requeue_after=True)
    second = never_ran(241, "rq", JobState.PENDING, restarts=1, eligible_time=T244 + 4)
    reader = AcctReader(clock=T244 + 6, rows=[shown(second), shown(first)])
    case = transcript(shared, "033-")["sacct -D -X -j 241 -o jobid,state,restarts"]
    check(case, reader)
    out, _, _ = invoke(run, ["-X", "-n", "-P", "-j", "241", "-o", "state"], reader)
    assert out == "PENDING\n"
    preempted = ended(
        190,
        "low",
        JobState.PREEMPTED,
        15,
        alloc=[share("node1", 1), share("node2", 1)],
        requeue_after=True,
    )
    again = never_ran(190, "low", JobState.PENDING, restarts=1, eligible_time=T244 + 4)
    reader = AcctReader(clock=T244 + 6, rows=[shown(preempted), shown(again)])
    out, _, _ = invoke(run, ["-D", "-X", "-n", "-P", "-j", "190", "-o", "state,nodelist"], reader)
    assert out == "PREEMPTED|node[1-2]\nPENDING|None assigned\n"
    late = ended(237, "t", JobState.TIMEOUT, 9, time_limit=60, end_time=T244 + 89)
    reader = AcctReader(clock=T244 + 99, rows=[shown(late)])
    out, _, _ = invoke(run, ["-n", "-P", "-o", "jobid,state,exitcode,elapsed,timelimit"], reader)
    assert out == ("237|TIMEOUT|0:0|00:01:27|00:01:00\n237.batch|CANCELLED|0:9|00:01:27|\n")


@pytest.mark.parametrize(
    ("shape", "alloc", "asked", "given"),
    [
        # transcript 012 and 013: ReqTRES and AllocTRES
        (
            cpu_shape(gpus_total=3),
            [share("node1", 1, 7)],
            "billing=1,cpu=1,gres/gpu=3,mem=2000M,node=1",
            "billing=1,cpu=1,gres/gpu:h100=3,gres/gpu=3,mem=2000M,node=1",
        ),
        (
            cpu_shape(gpus_per_node=2, gpu_type="h100"),
            [share("node1", 1, 3)],
            "billing=1,cpu=1,gres/gpu:h100=2,gres/gpu=2,mem=2000M,node=1",
            "billing=1,cpu=1,gres/gpu:h100=2,gres/gpu=2,mem=2000M,node=1",
        ),
        (
            cpu_shape(gpus_per_node=2, min_nodes=2, max_nodes=2, nodes_set=True),
            [share("node1", 1, 3), share("node2", 1, 3)],
            "billing=2,cpu=2,gres/gpu=4,mem=4000M,node=2",
            "billing=2,cpu=2,gres/gpu:h100=4,gres/gpu=4,mem=4000M,node=2",
        ),
        (
            cpu_shape(ntasks=4, gpus_per_task=1),
            [share("node1", 4, 15)],
            "billing=4,cpu=4,gres/gpu=4,mem=8000M,node=1",
            "billing=4,cpu=4,gres/gpu:h100=4,gres/gpu=4,mem=8000M,node=1",
        ),
        (
            cpu_shape(ntasks=24),
            [share("node1", 12), share("node2", 12)],
            "billing=24,cpu=24,mem=48000M,node=1",
            "billing=24,cpu=24,mem=48000M,node=2",
        ),
        (cpu_shape(min_nodes=2048), [], "billing=2048,cpu=2048,mem=4000G,node=2048", ""),
        (
            Shape(mem_per_gpu=3072, gpus_total=2),
            [],
            "billing=1,cpu=1,gres/gpu=2,mem=6G,node=1",
            "",
        ),
    ],
)
def test_tres(shape: Shape, alloc: list, asked: str, given: str) -> None:
    bits = sum(part.gpus.bit_count() for part in alloc)
    more: dict[str, object] = {"gpu_types": {"h100": bits} if bits else {}}
    state = JobState.COMPLETED
    if not alloc:
        state = JobState.PENDING
        more["start_time"] = more["end_time"] = 0
    job = ended(1, "a", state, shape=shape, alloc=alloc, **more)
    reader = AcctReader(clock=T244 + 6, rows=[shown(job)])
    out, _, _ = invoke(run, ["-X", "-n", "-P", "-o", "reqtres,alloctres"], reader)
    assert out == f"{asked}|{given}\n"


def test_cancelled_before_it_ran() -> None:
    job = never_ran(7, "never", JobState.CANCELLED, cancelled_by=1001, held=Hold.USER)
    reader = AcctReader(clock=T244 + 6, rows=[shown(job)])
    what = "state,nodelist,elapsed,exitcode,alloccpus,reason"
    out, _, _ = invoke(run, ["-n", "-P", "-j", "7", "-o", what], reader)
    assert out == "CANCELLED by 1001|None assigned|00:00:00|0:0|0|JobHeldUser\n"
    assert invoke(run, ["-n", "-X", "-j", "7", "-o", "state"], reader)[0] == "CANCELLED+ \n"
    wide = invoke(run, ["-n", "-X", "-j", "7", "-o", "State%-32"], reader)[0]
    assert wide == f"{'CANCELLED by 1001':<32} \n"


def window(reader: AcctReader, *argv: str) -> list[str]:
    return invoke(run, ["-X", "-n", "-P", "-o", "jobid", *argv], reader)[0].split()


@pytest.mark.shared
def test_heterogeneous_jobs(shared: Path) -> None:
    case = transcript(shared, "023-env-het")["sacct -j 188"]
    parts = [
        ended(
            188 + n,
            "het.sh",
            JobState.COMPLETED,
            het_job_id=188,
            het_offset=n,
            alloc=[share("node1", 1 + n)],
        )
        for n in (0, 1)
    ]
    reader = AcctReader(clock=T244 + 6, rows=[shown(part) for part in parts])
    check(case, reader)
    assert window(reader, "-j", "188+1") == ["188+1"]


def test_the_step_that_contains() -> None:
    """PrologFlags=Contain brings .extern on all nodes."""
    job = ended(5, "a", JobState.FAILED, 256, alloc=[share("node1", 1), share("node2", 1)])
    reader = AcctReader(clock=T244 + 6, rows=[row(job, "peer", T244 + 6, contain=True)])
    out, _, _ = invoke(run, ["-n", "-P", "-o", "jobid,state,exitcode,nodelist"], reader)
    assert out == (
        "5|FAILED|1:0|node[1-2]\n5.batch|FAILED|1:0|node1\n5.extern|COMPLETED|0:0|node[1-2]\n"
    )


def test_the_window() -> None:
    """The manual's section on the default time window, and what a real Slurm answered."""
    day = T244 - T244 % 86400
    rows = [
        shown(
            ended(
                1,
                "yesterday",
                JobState.COMPLETED,
                start_time=day - 90,
                end_time=day - 60,
                submit_time=day - 100,
                eligible_time=day - 100,
            )
        ),
        shown(
            ended(
                2,
                "over",
                JobState.COMPLETED,
                start_time=day - 90,
                end_time=day + 60,
                submit_time=day - 100,
                eligible_time=day - 100,
            )
        ),
        shown(ended(3, "now", JobState.RUNNING, end_time=0)),
        shown(never_ran(4, "waits", JobState.PENDING)),
        shown(never_ran(5, "held", JobState.PENDING, held=Hold.USER, eligible_time=0)),
        shown(ended(6, "failed", JobState.FAILED, 256)),
    ]
    reader = AcctReader(clock=T244 + 6, rows=rows)
    assert window(reader) == ["2", "3", "4", "6"]
    # A held job was never eligible: only its id brings it.
    assert window(reader, "-j", "5") == ["5"]
    assert window(reader, "-j", "1") == ["1"]
    assert window(reader, "-S", "now-2days") == ["1", "2", "3", "4", "6"]
    assert window(reader, "-S", "now-2days", "-E", "midnight") == ["1", "2"]
    assert window(reader, "-s", "R") == ["3"]
    assert window(reader, "-s", "pending") == ["4"]
    assert window(reader, "-s", "CD") == []
    assert window(reader, "-S", "now-1hour", "-s", "FAILED") == []
    assert window(reader, "-S", "now-1hour", "-E", "now", "-s", "FAILED,CD") == ["6"]
    assert window(reader, "-S", "midnight", "-E", "now", "-s", "cd") == ["2"]
    # During yesterday's last minutes job 2 was running.
    assert window(reader, "-S", "now-2days", "-E", "midnight", "-s", "R") == ["1", "2"]


def test_what_was_never_eligible() -> None:
    """As a real Slurm answers: a job that was cancelled while it was held, one with --begin."""
    rows = [
        shown(never_ran(1, "heldcanc", JobState.CANCELLED, held=Hold.USER, cancelled_by=0)),
        shown(never_ran(2, "begin", JobState.PENDING, begin=T244 + 3600)),
        shown(ended(3, "rq", JobState.CANCELLED, requeue_after=True)),
        shown(never_ran(3, "rq", JobState.PENDING, restarts=1, eligible_time=T244 + 126)),
    ]
    reader = AcctReader(clock=T244 + 6, rows=rows)
    # Of job 3 the try that is over is the last one that matches.
    assert window(reader) == ["3"]
    assert invoke(run, ["-X", "-n", "-P", "-o", "state"], reader)[0] == "REQUEUED\n"
    assert window(reader, "-S", "midnight", "-E", "now", "-s", "CA") == ["1"]
    assert window(reader, "-s", "PD") == []
    assert window(reader, "-j", "1,2") == ["1", "2"]
    assert invoke(run, ["-X", "-n", "-P", "-j", "3", "-o", "state"], reader)[0] == "PENDING\n"


def test_times_are_cut_with_truncate() -> None:
    job = ended(4, "a", JobState.RUNNING, start_time=T244 - 6, end_time=0)
    reader = AcctReader(clock=T244, rows=[row(job, "peer", T244)])
    argv = ["-X", "-n", "-P", "-S", "now-3", "-T", "-o", "start,end,elapsed"]
    out, _, _ = invoke(run, argv, reader)
    assert out == "2026-11-29T13:54:35|2026-11-29T13:54:38|00:00:03\n"


def test_filters() -> None:
    other = ended(3, "mj", JobState.COMPLETED, uid=1001, user="alice", account="prod", qos="low")
    wide = ended(
        4, "wide", JobState.COMPLETED, alloc=[share("node3", 2), share("node4", 2)], wckey="w"
    )
    rows = [shown(ended(2, "one", JobState.COMPLETED)), shown(other), shown(wide)]
    reader = AcctReader(clock=T244 + 6, rows=rows)
    assert window(reader) == ["2", "3", "4"]
    assert window(reader, "-u", "1001") == ["3"]
    assert window(reader, "-A", "prod,none") == ["3"]
    assert window(reader, "-q", "low") == ["3"]
    assert window(reader, "-N", "node[2-3]") == ["4"]
    assert window(reader, "-i", "2") == ["4"]
    assert window(reader, "-I", "1-3") == ["2", "3"]
    assert window(reader, "-W", "w") == ["4"]
    assert window(reader, "--name=mj,wide") == ["3", "4"]
    assert window(reader, "-k", "59", "-K", "61") == ["2", "3", "4"]
    assert window(reader, "-k", "30") == []
    assert window(reader, "-M", "elsewhere") == []
    assert window(reader, "-M", "elsewhere,peer", "-j", "2") == ["2"]


def test_whose_jobs() -> None:
    reader = AcctReader(clock=T244 + 6, uid=1001)
    window(reader)
    window(reader, "-a")
    window(reader, "-j", "2")
    window(reader, "-u", "0")
    assert [query.uids for query in reader.asked] == [[1001], [], [], [0]]


def test_pages_are_put_together() -> None:
    rows = [shown(ended(n, "a", JobState.COMPLETED)) for n in range(1, 26)]
    reader = AcctReader(clock=T244 + 6, rows=rows, page=4)
    assert window(reader) == [str(n) for n in range(1, 26)]
    assert len(reader.asked) == 7


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["extra"], "sacct: error: Unknown arguments:\nsacct: error:  extra\n"),
        (["-j", "1.abc"], "sacct: fatal: Bad step specified: 1\n"),
        (["-i", "abc"], 'sacct: error: Invalid numeric value "abc" for requested node range.\n'),
        (["-k", "abc"], "sacct: fatal: Invalid time limit specification\n"),
        (["-g", "nosuch"], "sacct: error: Invalid group id: nosuch\n"),
        (["-s", "R,CG"], "sacct: fatal: job state CG is not supported / accounted\n"),
        (
            ["-s", "configuring"],
            "sacct: fatal: job state configuring is not supported / accounted\n",
        ),
        (["-s", "R,NOPE"], "sacct: fatal: unrecognized job state value 'NOPE'\n"),
        (
            ["--units=X"],
            "sacct: error: Invalid unit type 'X'. Possible options are 'KMGTP'\n"
            "sacct: fatal: Invalid unit type\n",
        ),
        (
            ["-S", "2030-01-01", "-E", "2020-01-01"],
            "sacct: error: Start time (2030-01-01T00:00:00) requested is after end time "
            "(2020-01-01T00:00:00).\n",
        ),
        (
            ["-B"],
            "sacct: fatal: When requesting job scripts you must also request specific jobs with "
            "the '-j' option.\n",
        ),
    ],
)
def test_mistakes(argv: list[str], sentence: str) -> None:
    """As a real Slurm 22.05 words them."""
    assert invoke(run, argv, AcctReader(clock=T244)) == ("", sentence, 1)


def test_formats_beyond_the_transcript() -> None:
    """Widths that are no number, names cut short, SACCT_FORMAT: as a real Slurm has them."""
    reader = AcctReader(clock=T244 + 6, rows=[shown(ended(1, "a", JobState.COMPLETED))])
    assert invoke(run, ["-o", "jobid%abc"], reader)[0] == " \n" * 4
    assert invoke(run, ["-X", "-n", "-o", "jobid,sta"], reader)[0] == (
        "1            2026-11-29T13:54:40 \n"
    )
    out, _, _ = invoke(run, ["-X", "-P"], reader, {"SACCT_FORMAT": "jobid,user"})
    assert out == "JobID|User\n1|root\n"
    out, _, _ = invoke(run, ["-X", "-n", "-P", "-o", "start"], reader, {"SLURM_TIME_FORMAT": "%H"})
    assert out == "13\n"


def test_memory_and_cpu_time() -> None:
    look = Look({}, 0)
    assert (look.kilobytes(1636), look.kilobytes(2048), look.kilobytes(0)) == ("1636K", "2M", "0")
    assert Look({}, 0, unit="G").kilobytes(4000 * 1024) == "3.91G"
    assert Look({}, 0, convert=False).megabytes(6144) == "6144M"
    assert clock(39) == "00:00.039"
    assert clock(0) == "00:00:00"
    assert clock(61_000) == "00:01:01"
    assert clock(3_661_500) == "01:01:01"


def test_json() -> None:
    reader = reader_035()
    reader.conf = peer_config()
    out, _, code = invoke(run, ["--json"], reader)
    data = json.loads(out)
    (job,) = (one for one in data["jobs"] if one["job_id"] == 244)
    assert code == 0
    # A word as in 22.05, which programs in the field take (torchx); the list of 26.05 for those
    # that name its layout.
    assert job["state"] == {"current": "FAILED", "reason": "None"}
    named = json.loads(invoke(run, ["--json=v0.0.45"], reader)[0])
    states = [one["state"] for one in named["jobs"] if one["job_id"] == 244]
    assert states == [{"current": ["FAILED"], "reason": "None"}]
    assert job["exit_code"]["return_code"] == {"set": True, "infinite": False, "number": 2}
    assert [step["step"]["id"] for step in job["steps"]] == ["244.batch", "244.0", "244.1"]
    assert job["time"]["limit"]["number"] == 5
    assert data["errors"] == []


@pytest.mark.shared
def test_json_has_slurms_fields(shared: Path) -> None:
    """The first 200 lines of transcript 026: the fields of a job in their order."""
    cases = transcript(shared, "026-squeue-json")
    text = cases["sacct --json | head -200"].stdout
    wanted = [
        line.strip().split('"')[1] for line in text.splitlines() if line.startswith('      "')
    ]
    reader = reader_035()
    reader.conf = peer_config()
    out, _, _ = invoke(run, ["--json", "-j", "244"], reader)
    assert list(json.loads(out)["jobs"][0])[: len(wanted)] == wanted


WORDS = st.one_of(
    st.sampled_from(
        ["-j", "-o", "-S", "-E", "-s", "-u", "-X", "-P", "-N", "-i", "-k", "-D", "-T", "--units"]
    ),
    st.text(max_size=12),
    st.from_regex(r"[0-9]{1,12}(_\[?[0-9,%-]{0,9}\]?)?(\.[a-z0-9]{0,6})?", fullmatch=True),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(WORDS, max_size=6))
def test_any_words_give_an_answer(words: list[str]) -> None:
    out, err, code = invoke(run, words, reader_035())
    assert code in (0, 1)
    assert out or err or not code
    assert "Traceback" not in err


def test_a_job_that_says_nothing() -> None:
    bare = Job(1, 0, 0, "", "", JobSpec())
    reader = AcctReader(clock=T244, rows=[shown(bare)])
    out, _, _ = invoke(run, ["-n", "-P", "-j", "1", "-o", "jobid,state,submit,reqtres"], reader)
    assert out == "1|PENDING|Unknown|billing=1,cpu=1,node=1\n"


# ---- what a comparison with a real Slurm (22.05) over random command lines found -----------------


def cells(reader: AcctReader, *argv: str) -> list[str]:
    out, err, code = invoke(run, ["-n", "-a", *argv], reader)
    assert (err, code) == ("", 0)
    return out.splitlines()


def fails(reader: AcctReader, *argv: str) -> str:
    out, err, code = invoke(run, argv, reader)
    assert (out, code) == ("", 1)
    return err


def test_numbers_and_durations_are_never_cut_and_times_merely_end() -> None:
    reader = reader_035()
    form = "-Xo" + ",".join(f"{name}%3" for name in ("elapsed", "priority", "start", "state"))
    assert cells(reader, "-j", "244", form) == ["00:00:00 1869 202 FA+ "]
    # Between delimiters, too.
    assert cells(reader, "-P", "-j", "244", "-Xo", "start%10,state%1") == ["2026-11-29|FAILED"]


def test_a_field_that_comes_twice_has_its_last_width() -> None:
    reader = reader_035()
    out = cells(reader, "-X", "-j", "244", "-o", "jobid,state,jobid%5")
    assert out == ["  244     FAILED   244 "]
    out = cells(reader, "-X", "-j", "244", "-o", "jobid%-5,state,jobid")
    assert out == ["244       FAILED 244   "]


@pytest.mark.parametrize("name", ["a", "AL", "all"])
def test_any_beginning_of_all_is_all(name: str) -> None:
    out, _, _ = invoke(run, ["-P", "-X", "-j", "244", "-o", name], reader_035())
    assert out.startswith("Account|AdminComment|AllocCPUS|")


def test_dbindex_is_the_number_of_the_sluid() -> None:
    """Both as they stand in transcript 035."""
    out = cells(reader_035(), "-P", "-X", "-j", "244", "-o", "sluid,dbindex")
    assert out == ["s0Z9M8KSC6YA00|1127738970372777984"]


def test_steps_tell_the_association_and_jobs_the_number_of_their_qos() -> None:
    reader = reader_035()
    job = next(one for one in reader.rows if one.job_id == 244)
    job.assoc_id = 5
    reader.policy_records = [Qos(1, "normal"), Qos(3, "high")]
    out = cells(reader, "-P", "-j", "244", "-o", "jobid,associd,qosraw")
    assert out == ["244|5|1", "244.batch|5|", "244.0|5|", "244.1|5|"]
    assert cells(reader, "-P", "-X", "-x", "5", "-o", "jobid") == ["244"]
    assert cells(reader, "-P", "-X", "-x", "6,abc", "-o", "jobid") == []


def test_refusals_in_slurms_words() -> None:
    reader = reader_035()
    reader.policy_records = [Qos(1, "normal"), Qos(2, "low")]
    assert fails(reader, "-q", "low,nosuch") == (
        "sacct: error: You gave a bad qos 'nosuch'. Valid QOS's are normal,low\n"
        "sacct: fatal: problem processing qos list\n"
    )
    for word in ("CG", "cf", "STOPPED"):
        assert fails(reader, "-s", word) == (
            f"sacct: fatal: job state {word} is not supported / accounted\n"
        )
    assert fails(reader, "-k", "0") == "sacct: fatal: Invalid time limit specification\n"
    assert fails(reader, "-c") == "Slurm job completion is disabled\n"
    assert fails(reader, "-f", "x") == "x is not a valid file\n"
    assert fails(reader, "--whole-hetjob=foo") == (
        'sacct: error: Invalid --whole-hetjob value "foo". Valid values: [yes|no].\n'
    )
    env = {"SLURM_TIME_FORMAT": "%s"}
    said = invoke(run, ["-S", f"uts{T244}", "-E", f"uts{T244 - 9}"], reader, env)[1]
    assert said == (
        f"sacct: error: Start time ({T244}) requested is after end time ({T244 - 9}).\n"
    )
    # Without -S, states are those of this moment.
    assert "requested is after end time" in fails(reader, "-s", "F", "-E", "2026-01-01")


def test_the_end_of_the_window_is_not_in_it() -> None:
    """Submitted and eligible at 13:54:38; started and ended two seconds later."""
    reader = AcctReader(clock=T244 + 60, rows=[shown(ended(1, "a", JobState.FAILED, 256))])
    for end, found in (("13:54:38", []), ("13:54:39", ["1"])):
        assert window(reader, "-S", "13:00", "-E", f"2026-11-29T{end}") == found
        assert window(reader, "-j", "1", "-E", f"2026-11-29T{end}") == found
        assert window(reader, "-S", "13:00", "-s", "PD", "-E", f"2026-11-29T{end}") == found
    # Of states without -E one second counts.
    for start, found in (("13:54:38", []), ("13:54:39", ["1"]), ("13:54:40", ["1"])):
        assert window(reader, "-s", "F", "-S", start) == found
    assert window(reader, "-s", "F", "-S", "13:54:41") == []


def test_a_named_job_is_there_wherever_clocks_stand() -> None:
    """The client's clock is five seconds behind the controller's."""
    reader = AcctReader(clock=T244 - 5, rows=[shown(ended(1, "a", JobState.RUNNING, end_time=0))])
    assert window(reader, "-j", "1") == ["1"]


def test_only_steps_of_the_window_are_shown() -> None:
    job = shown(ended(1, "a", JobState.COMPLETED, end_time=T244 + 10))
    job.steps = [
        AcctStep("batch", "batch", "COMPLETED", start=T244 + 2, end=T244 + 10),
        AcctStep("0", "a", "COMPLETED", start=T244 + 3, end=T244 + 4),
        AcctStep("1", "b", "COMPLETED", start=T244 + 8, end=T244 + 9),
    ]
    reader = AcctReader(clock=T244 + 60, rows=[job])

    def steps(*argv: str) -> list[str]:
        return cells(reader, "-P", "-o", "jobid", *argv)

    assert steps() == ["1", "1.batch", "1.0", "1.1"]
    assert steps("-S", "13:54:43") == ["1", "1.batch", "1.1"]
    assert steps("-E", "13:54:45") == ["1", "1.batch", "1.0"]


def test_limits_are_compared_in_whole_minutes() -> None:
    reader = AcctReader(clock=T244 + 60, rows=[shown(ended(1, "a", JobState.FAILED))])
    reader.rows[0].time_limit = 60
    assert window(reader, "-k", "00:30") == ["1"]
    assert window(reader, "-k", "2") == []


def test_nodes_and_cpus_are_those_it_ran_on() -> None:
    reader = AcctReader(clock=T244 + 60, rows=[shown(never_ran(1, "a", JobState.PENDING))])
    assert window(reader) == ["1"]
    assert window(reader, "-i", "1") == []
    assert window(reader, "-I", "1") == []


def test_whole_hetjob() -> None:
    rows = [shown(ended(7 + n, "h", JobState.FAILED)) for n in range(2)]
    for n, one in enumerate(rows):
        one.het_job_id = one.group_id = 7
        one.het_offset = one.sub_id = n
    reader = AcctReader(clock=T244 + 60, rows=rows)

    def ids(*argv: str) -> list[str]:
        return cells(reader, "-X", "-P", "-o", "jobid", *argv)

    assert ids("-j", "8") == ids("-j", "8", "--whole-hetjob=no") == ["7+1"]
    assert ids("-j", "8", "--whole-hetjob") == ids("-j", "7+1", "--whole-hetjob=yes")
    assert ids("-j", "8", "--whole-hetjob") == ids("-j", "7") == ["7+0", "7+1"]
    assert ids("-j", "7", "--whole-hetjob=no") == ["7+0"]


def test_flags_are_not_taken_for_all() -> None:
    """A 22.05 refuses a flag that there is not; those that there are would not be found here."""
    from views_support import invoke, mixed_queue

    from gsched_cli import sacct

    said = "sacct: error: str_2_job_flags: Invalid job flag x\n"
    assert invoke(sacct.run, ["-F", "x"], mixed_queue(), {}, "") == ("", said, 1)
    out, err, code = invoke(sacct.run, ["-F", "SchedMain"], mixed_queue(), {}, "")
    assert (out, code) == ("", 1) and err.startswith("sacct: error: flags of jobs are not kept")
