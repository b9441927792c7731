"""sbatch as a whole, in-process: what it sends, prints and returns."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sbatch_support import SLURM_CONF, FakeCluster, ended_job, sbatch

from gsched.client import ControllerDown, RequestRefused
from gsched.config import ConfigError, parse_config
from gsched.model import JobState
from gsched.wire.messages import Done, Forecast, JobQuery, JobRows, Refused, Reply, SubmitJob, Write
from gsched_cli.options import BY_NAME

SCRIPT = b"#!/bin/sh\ntrue\n"


# ---- the script -------------------------------------------------------------------------------


def test_a_script_file(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(SCRIPT)
    ran = sbatch("a.sh", "--config x", "", "-n", "5", cwd=tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, "Submitted batch job 1\n", "")
    sent = ran.sent
    assert sent.script == SCRIPT
    assert sent.spec.name == "a.sh"
    assert sent.spec.command == f"{tmp_path}/a.sh"
    assert sent.spec.args == ("--config x", "", "-n", "5")
    assert sent.spec.submit_line == "sbatch a.sh --config x  -n 5"
    assert (sent.spec.work_dir, sent.spec.shape.ntasks) == (str(tmp_path), 0)
    assert (sent.user, sent.group) == ("alice", "users")
    assert (sent.spec.alloc_node, sent.spec.alloc_sid, sent.spec.umask) == ("login1", 4711, 0o027)


def test_a_script_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "tool.sh").write_bytes(SCRIPT)
    ran = sbatch("tool.sh", cwd="/", env={"PATH": f"/nonexistent:{tmp_path}"})
    assert ran.sent.spec.command == f"{tmp_path}/tool.sh"


def test_standard_input() -> None:
    ran = sbatch("-n3", stdin=SCRIPT)
    assert (ran.sent.spec.name, ran.sent.spec.command) == ("sbatch", "")
    assert ran.sent.script == SCRIPT


def test_wrap() -> None:
    ran = sbatch("--wrap", "echo wrapped $0 $#; exit 3", "-o", "wrap.out")
    assert ran.sent.script == (
        b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\necho wrapped $0 $#; exit 3\n"
    )
    assert (ran.sent.spec.name, ran.sent.spec.command) == ("wrap", "")
    assert ran.sent.spec.std_out == "wrap.out"
    assert ran.sent.spec.submit_line == "sbatch --wrap echo wrapped $0 $#; exit 3 -o wrap.out"


def test_a_script_of_more_than_4_mb(tmp_path: Path) -> None:
    (tmp_path / "big.sh").write_bytes(b"#!/bin/sh\n".ljust((4 << 20) + 1, b"#"))
    ran = sbatch("big.sh", cwd=tmp_path)
    assert ran.code == 1
    assert ran.err.startswith(
        "sbatch: error: Batch job submission failed: "
        "Pathname of a file, directory or other parameter too long\n"
    )


def test_a_job_name_for_sql() -> None:
    # squeue of a job named 'a b "c"' shows a b `c`.
    assert sbatch('--job-name=a b "c"', "--wrap", "true").sent.spec.name == "a b `c`"


def test_the_working_directory() -> None:
    assert sbatch("-D", "/tmp", "--wrap", "true").sent.spec.work_dir == "/tmp"
    assert sbatch("-D", "sub", "--wrap", "true", cwd="/home/a").sent.spec.work_dir == "/home/a/sub"


@pytest.mark.parametrize("option", ["account", "qos"])
def test_an_empty_name_is_not_the_default(option: str) -> None:
    """A real one refuses such a job: what is sent names what there cannot be."""
    for how in (
        sbatch(f"--{option}=", "--wrap", "true"),
        sbatch("--wrap", "true", env={f"SBATCH_{option.upper()}": ""}),
    ):
        assert getattr(how.sent.spec, option) == "(null)"


# ---- precedence --------------------------------------------------------------------------------

PRECEDENCE = (
    b"#!/bin/sh\n#SBATCH --job-name=fromfile\n#SBATCH --time=10\n#SBATCH --ntasks=2\ntrue\n"
)


def test_command_line_beats_environment_beats_script() -> None:
    env = {"SBATCH_JOB_NAME": "fromenv", "SBATCH_TIMELIMIT": "20"}

    def seen(*argv: str, env: dict[str, str] | None = None) -> tuple[str, int | None, int]:
        spec = sbatch(*argv, env=env, stdin=PRECEDENCE).sent.spec
        return spec.name, spec.time_limit, spec.shape.ntasks

    assert seen() == ("fromfile", 600, 2)
    assert seen(env=env) == ("fromenv", 1200, 2)
    assert seen("-J", "fromcli", "-t", "30", "-n", "1", env=env) == ("fromcli", 1800, 1)
    assert seen("-t", "30", "-t", "40") == ("fromfile", 2400, 2)


def test_flags_in_the_environment() -> None:
    # From sbatch -vv: empty, "yes" and a number other than 0 set a flag; "no" unsets no-kill.
    env = {
        "SBATCH_OVERCOMMIT": "yes",
        "SBATCH_SPREAD_JOB": "",
        "SBATCH_REQUEUE": "",
        "SBATCH_NO_KILL": "no",
        "SBATCH_IGNORE_PBS": "yes",
    }
    spec = sbatch(env=env, stdin=b"#!/bin/sh\n#PBS -N pbs\ntrue\n").sent.spec
    assert (spec.shape.overcommit, spec.spread, spec.requeue) == (True, True, True)
    assert (spec.kill_on_node_fail, spec.name) == (True, "sbatch")
    assert not sbatch("--wrap", "x", env={"SBATCH_OVERCOMMIT": "0"}).sent.spec.shape.overcommit


def test_a_wrong_value_in_the_environment() -> None:
    ran = sbatch("--wrap", "true", env={"SBATCH_TIMELIMIT": "abc"})
    assert (ran.code, ran.err) == (255, "sbatch: error: Invalid --time specification\n")


def test_pbs_directives_count_unless_ignored() -> None:
    script = b"#!/bin/sh\n#PBS -N pbsname -l walltime=00:10:00,nodes=2:ppn=4\n#SBATCH -J x\n"
    spec = sbatch(stdin=script).sent.spec
    assert (spec.name, spec.time_limit) == ("pbsname", 600)
    assert (spec.shape.min_nodes, spec.shape.ntasks_per_node) == (2, 4)
    assert sbatch("--ignore-pbs", stdin=script).sent.spec.name == "x"


# ---- what goes along ----------------------------------------------------------------------------

ENV = {"KEEP": "kept", "OTHER": "other", "PORT": "1", "K": "a,b", "SLURM_FOO": "f", "PATH": "/bin"}


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ([], ENV),
        (["--export=ALL"], ENV),
        (["--export=NONE"], {"SLURM_FOO": "f"}),
        (["--export=NIL"], {"SLURM_FOO": "f"}),
        (["--export=ALL,PORT=29999,WS=16"], {**ENV, "PORT": "29999", "WS": "16"}),
        (["--export=KEEP,WS=4"], {"SLURM_FOO": "f", "KEEP": "kept", "WS": "4"}),
        (["--export=K,OTHER=v"], {"SLURM_FOO": "f", "K": "a,b", "OTHER": "v"}),
        (["--export=ALL,K=x,y,OTHER=v"], {**ENV, "K": "x", "OTHER": "v"}),
        (["--export=NEW=a b"], {"SLURM_FOO": "f", "NEW": "a b"}),
    ],
)
def test_export(export: list[str], expected: dict[str, str]) -> None:
    got = sbatch(*export, "--wrap", "true", env=ENV, cwd="/home/a").environment
    own = {
        "SLURM_SUBMIT_DIR": "/home/a",
        "SLURM_SUBMIT_HOST": "login1",
        "SLURM_JOB_NAME": "wrap",
        "SLURM_PRIO_PROCESS": "0",
    }
    assert got == {**expected, **own}


def test_export_file(tmp_path: Path) -> None:
    (tmp_path / "vars").write_bytes(b"A=1\0B=x\ny\0")
    got = sbatch("--export-file=vars", "--export=NIL", "--wrap", "true", cwd=tmp_path).environment
    assert (got["A"], got["B"]) == ("1", "x\ny")


@pytest.mark.parametrize(
    ("export", "values", "login"),
    [
        ([], {"A": "1"}, False),
        (["--export=ALL"], {"A": "1"}, False),
        (["--export=KEEP"], {"A": "1"}, True),
        (["--export=NIL"], {"A": "1"}, True),
        (["--export=A=2,KEEP"], {"A": "2"}, True),
    ],
)
def test_an_export_file_stands_for_the_environment(
    tmp_path: Path, export: list[str], values: dict[str, str], login: bool
) -> None:
    """As Slurm 22.05: nothing of the submitter's comes along, the node leaves nothing of the file
    out, and with a list the user's login environment lies below it."""
    (tmp_path / "vars").write_bytes(b"A=1\0")
    words = ["--export-file=vars", *export, "--wrap", "true"]
    ran = sbatch(*words, env={"KEEP": "x", "HOME": "/h"}, cwd=tmp_path)
    own = ("SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_JOB_NAME", "SLURM_PRIO_PROCESS")
    assert {name: text for name, text in ran.environment.items() if name not in own} == values
    assert (ran.sent.spec.export, ran.sent.spec.get_user_env) == ("", login)


def test_an_empty_export_list_is_none() -> None:
    ran = sbatch("--export=", "--wrap", "true", env={"KEEP": "x"})
    assert ran.sent.spec.export == "NONE" and "KEEP" not in ran.environment


def test_files_named_none_are_no_files() -> None:
    """As Slurm 22.05, in upper and lower case."""
    spec = sbatch("-o", "none", "-e", "None", "-i", "NONE", "--wrap", "x").sent.spec
    assert (spec.std_out, spec.std_err, spec.std_in) == ("/dev/null",) * 3
    assert sbatch("-o", "nonesuch", "--wrap", "x").sent.spec.std_out == "nonesuch"


def test_the_working_directory_stays_as_it_was_named() -> None:
    """As Slurm 22.05; what lies above a link is not for this process to say."""
    for named, kept in (("/tmp/", "/tmp/"), ("/a/../b", "/a/../b"), ("./s/..", "/d/./s/..")):
        assert sbatch("-D", named, "--wrap", "x", cwd="/d").sent.spec.work_dir == kept


def test_names_and_values_need_not_be_utf_8() -> None:
    odd = os.fsdecode(b"\xff\xfe")
    ran = sbatch("--wrap", "true", env={"ODD": odd})
    assert b"ODD=\xff\xfe" in ran.sent.environment.split(b"\0")


def test_resource_limits() -> None:
    limits = {"NOFILE": 20000, "STACK": 8388608, "CORE": 0, "CPU": -1}
    assert sbatch("--wrap", "x", limits=limits).sent.spec.rlimits == limits
    some = sbatch("--propagate=NOFILE,STACK", "--wrap", "x", limits=limits).sent.spec.rlimits
    assert some == {"NOFILE": 20000, "STACK": 8388608}
    assert sbatch("--propagate=NONE", "--wrap", "x", limits=limits).sent.spec.rlimits == {}
    # The site's choice, which the user may override.
    for line, names in (
        ("PropagateResourceLimits=NOFILE,RLIMIT_CORE", {"NOFILE", "CORE"}),
        ("PropagateResourceLimits=NONE", set()),
        ("PropagateResourceLimitsExcept=STACK,CPU", {"NOFILE", "CORE"}),
        ("PropagateResourceLimitsExcept=ALL", set()),
    ):
        cluster = FakeCluster(configured=parse_config({"slurm.conf": f"{SLURM_CONF}\n{line}\n"}))
        taken = sbatch("--wrap", "x", limits=limits, cluster=cluster).sent.spec.rlimits
        assert taken == {name: limits[name] for name in names}
        sbatch("--propagate=CPU", "--wrap", "x", limits=limits, cluster=cluster)
        assert cluster.submitted[-1].spec.rlimits == {"CPU": -1}
    with pytest.raises(ConfigError, match="FOO is no resource limit"):
        parse_config({"slurm.conf": f"{SLURM_CONF}\nPropagateResourceLimits=FOO\n"})
    bad = sbatch("--propagate=foo", "--wrap", "x")
    assert (bad.code, bad.err) == (
        1,
        "sbatch: error: Bad rlimit name: foo\nsbatch: error: --propagate=foo is not valid.\n",
    )


def test_the_umask_may_be_named() -> None:
    assert sbatch("--wrap", "x", env={"SLURM_UMASK": "0077"}).sent.spec.umask == 0o077
    assert sbatch("--wrap", "x", env={"SLURM_UMASK": "foo"}).sent.spec.umask == 0o027


@pytest.mark.parametrize(
    ("value", "num", "before", "batch"),
    [
        ("USR1", 10, 60, False),
        ("10", 10, 60, False),
        ("SIGUSR2@120", 12, 120, False),
        ("B:TERM@30", 15, 30, True),
        ("RB:usr1", 10, 60, True),
    ],
)
def test_signal(value: str, num: int, before: int, batch: bool) -> None:
    spec = sbatch(f"--signal={value}", "--wrap", "x").sent.spec
    assert (spec.signal_num, spec.signal_before, spec.signal_batch) == (num, before, batch)


def test_mail_types() -> None:
    # scontrol shows --mail-type=ALL as INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT.
    assert sbatch("--mail-type=ALL", "--wrap", "x").sent.spec.mail_type == 0x50F
    assert sbatch("--mail-type=END,foo", "--wrap", "x").sent.spec.mail_type == 0x2
    assert sbatch("--mail-type=none,all", "--wrap", "x").sent.spec.mail_type == 0


def test_priority_nought_is_held() -> None:
    assert sbatch("--priority=abc", "--wrap", "x").sent.spec.hold
    assert sbatch("-H", "--wrap", "x").sent.spec.hold
    assert sbatch("--nice", "--wrap", "x").sent.spec.nice == 100


# ---- what is said -------------------------------------------------------------------------------


def test_options_without_effect_are_named_once() -> None:
    ran = sbatch("--network=x", "--power=y", "--network=z", "--wrap", "true")
    assert ran.err == "sbatch: warning: no effect in this release: --network, --power\n"
    assert ran.sent.spec.ignored == ("--network", "--power")
    assert sbatch("-Q", "--network=x", "--wrap", "true").err == ""


def test_parsable_and_clusters() -> None:
    assert sbatch("--parsable", "--wrap", "x").out == "1\n"
    assert sbatch("--parsable", "-M", "peer", "--wrap", "x").out == "1;peer\n"
    for words in (["-M", "peer"], ["-Mall"], ["--cluster=PEER"], ["--clusters=nope,peer"]):
        ran = sbatch(*words, "--wrap", "x")
        assert ran.out == "Submitted batch job 1 on cluster peer\n", words


@pytest.mark.parametrize("name", ["nope", ""])
@pytest.mark.parametrize("more", [[], ["--test-only"]])
def test_another_cluster(name: str, more: list[str]) -> None:
    ran = sbatch(f"--clusters={name}", *more, "--wrap", "x")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"sbatch: error: No cluster '{name}' known by database.\n"
        f"sbatch: error: '{name}' can't be reached now, or it is an invalid entry for --cluster.  "
        "Use 'sacctmgr list clusters' to see available clusters.\n"
    )


def test_quietly() -> None:
    assert sbatch("-Q", "--wrap", "x").out == ""
    assert sbatch("--quiet", "--parsable", "--wrap", "x").out == ""


def test_verbosely() -> None:
    """One -v is enough, as for srun."""
    assert sbatch("-v", "-J", "vv", "--wrap", "true").err.splitlines()[:4] == [
        "sbatch: defined options",
        "sbatch: -------------------- --------------------",
        "sbatch: job-name            : vv",
        "sbatch: verbose             : 1",
    ]


def test_version_and_help() -> None:
    assert (sbatch("-V").code, sbatch("-V").out) == (0, "slurm 26.05.0\n")
    shown = sbatch("--help")
    assert shown.code == 0
    for name in BY_NAME:
        assert f"--{name}" in shown.out
    assert sbatch("--usage").out.startswith("Usage: sbatch ")
    assert sbatch("-t", "abc", "--help").code == 255


@dataclass
class Oracle(FakeCluster):
    """Answers --test-only."""

    found: Forecast = field(default_factory=lambda: Forecast(0, 1, "node1", "gpu"))

    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        assert isinstance(write, SubmitJob) and write.test_only
        if self.refusals:
            return self.refusals.pop(0)
        return Done(b"", 1, value=74, data=msgspec.json.encode(self.found).decode())


def test_test_only_says_when_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    oracle = Oracle(found=Forecast(1795960091, 64, "node[1-4]", "gpu"))
    ran = sbatch("--test-only", "-N4", "--exclusive", stdin=SCRIPT, cluster=oracle)
    # As in transcript 009, "a" and all.
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == (
        "sbatch: Job 74 to start at 2026-11-29T13:48:11 a using 64 processors on nodes node[1-4] "
        "in partition gpu\n"
    )


def test_test_only_that_can_never_be() -> None:
    refusal = Refused(b"", "Requested node configuration is not available")
    ran = sbatch("--test-only", "-N9", stdin=SCRIPT, cluster=Oracle(refusals=[refusal]))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "allocation failure: Requested node configuration is not available\n"


def test_uid_is_for_root() -> None:
    ran = sbatch("--uid=0", "--wrap", "x")
    assert (ran.code, ran.err) == (255, "sbatch: error: --uid only permitted by root user\n")
    assert sbatch("--uid=1000", "--gid=1000", "--wrap", "x").code == 0
    assert sbatch("--uid=no such", "--wrap", "x").err == (
        "sbatch: error: Invalid --uid specification\n"
    )


# ---- the controller's answers -------------------------------------------------------------------


def refused(message: str, *notes: str, temporary: bool = False) -> Refused:
    return Refused(b"", message, "X", notes=list(notes), temporary=temporary)


def test_a_refusal_is_printed_with_its_notes() -> None:
    cluster = FakeCluster(refusals=[refused("Requested node configuration is not available", "N")])
    ran = sbatch("--wrap", "x", cluster=cluster)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "sbatch: error: N\nsbatch: error: Batch job submission failed: "
        "Requested node configuration is not available\n"
    )


def test_a_temporary_refusal_is_tried_again_under_one_request_id() -> None:
    cluster = FakeCluster(refusals=[refused("busy", temporary=True)] * 3)
    ran = sbatch("--wrap", "x", cluster=cluster)
    assert (ran.code, ran.out) == (0, "Submitted batch job 1\n")
    assert ran.err.count("Slurm temporarily unable to accept job, sleeping and retrying") == 1
    assert len(set(cluster.request_ids)) == 1 and len(cluster.request_ids) == 4
    assert ran.slept == [1.0, 2.0, 3.0]


def test_it_gives_up_at_last() -> None:
    cluster = FakeCluster(refusals=[refused("busy", temporary=True)] * 50)
    ran = sbatch("--wrap", "x", cluster=cluster)
    assert ran.code == 1
    assert ran.err.endswith("sbatch: error: Batch job submission failed: busy\n")
    assert len(ran.slept) == 15


def test_a_controller_that_is_down_is_not_waited_for_long() -> None:
    sentence = "Unable to contact slurm controller (connect failure)"
    cluster = FakeCluster(refusals=[refused(sentence, temporary=True)] * 50)
    ran = sbatch("--wrap", "x", cluster=cluster)
    assert (ran.code, ran.slept) == (1, [1.0, 2.0, 3.0])
    assert ran.err == f"sbatch: error: Batch job submission failed: {sentence}\n"


class _Down(FakeCluster):
    def call(self, write: Write, request_id: bytes | None = None) -> Reply:
        raise ControllerDown


def test_no_controller() -> None:
    ran = sbatch("--wrap", "x", cluster=_Down())
    assert (ran.code, ran.err) == (
        1,
        "sbatch: error: Batch job submission failed: "
        "Unable to contact slurm controller (connect failure)\n",
    )


@pytest.mark.parametrize(
    ("wstatus", "state", "code"),
    [
        (7 << 8, JobState.FAILED, 7),
        (0, JobState.COMPLETED, 0),
        (9, JobState.FAILED, 1),
        # It never ran: it has no code, and Slurm 22.05 exits with 0.
        (0, JobState.CANCELLED, 0),
        (15, JobState.TIMEOUT, 1),
    ],
)
def test_wait(wstatus: int, state: JobState, code: int) -> None:
    running = ended_job(1, 0, JobState.RUNNING)
    cluster = FakeCluster(job_rows=[[running], [running], [ended_job(1, wstatus, state)]])
    ran = sbatch("-W", "--wrap", "x", cluster=cluster)
    assert (ran.code, ran.out) == (code, "Submitted batch job 1\n")
    assert len(ran.slept) == 2 and ran.slept == sorted(ran.slept)


class _Busy(FakeCluster):
    asked = 0

    def jobs(self, query: JobQuery) -> JobRows:
        self.asked += 1
        if self.asked % 2:
            raise RequestRefused(refused("Rate limit exceeded, please retry", temporary=True))
        if self.asked % 4:
            raise ControllerDown
        return super().jobs(query)


def test_wait_outlasts_refusals_and_a_dead_controller() -> None:
    cluster = _Busy(job_rows=[[ended_job(1, 5 << 8, JobState.FAILED)]])
    ran = sbatch("-W", "--wrap", "x", cluster=cluster)
    assert (ran.code, len(ran.slept), ran.err) == (5, 3, "")


def test_wait_takes_the_highest_code_of_an_array() -> None:
    rows = [[ended_job(number, number << 8, JobState.FAILED) for number in (1, 3, 2)]]
    assert sbatch("-W", "-a", "1-3", "--wrap", "x", cluster=FakeCluster(job_rows=rows)).code == 3


# ---- whatever is typed ---------------------------------------------------------------------------

_value = st.one_of(
    st.text(max_size=10),
    st.sampled_from(
        [
            "1",
            "0",
            "-1",
            "2-4",
            "gpu:2",
            "h100:1",
            "ALL",
            "now+1hour",
            "block",
            "1:2:3",
            "a,b",
            "4G",
        ]
    ),
)
_options = st.builds(
    lambda name, form, value: {
        0: [f"--{name}"],
        1: [f"--{name}={value}"],
        2: [f"--{name}", value],
    }[form],
    # --export-file=5 would read from whatever the test runner has open there.
    st.sampled_from(sorted(set(BY_NAME) - {"export-file"})),
    st.integers(0, 2),
    _value,
)
_argv = st.lists(st.one_of(_options, st.lists(st.text(max_size=6), max_size=1)), max_size=6).map(
    lambda groups: [word for group in groups for word in group]
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_argv, st.one_of(st.just(SCRIPT), st.binary(max_size=80).map(lambda b: b"#!/bin/sh\n" + b)))
def test_any_command_line_gives_a_code_and_a_sentence(argv: list[str], script: bytes) -> None:
    ran = sbatch(*argv, stdin=script, cwd="/nonexistent", cluster=FakeCluster(job_rows=[[]]))
    assert 0 <= ran.code <= 255
    assert "Traceback" not in ran.err
    if not ran.cluster.submitted:
        assert ran.err or ran.out
    else:
        assert isinstance(ran.sent, SubmitJob)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([f"SBATCH_{name}" for option in BY_NAME.values() for name in option.env]),
        _value,
        max_size=5,
    )
)
def test_any_environment_gives_a_code_and_a_sentence(env: dict[str, str]) -> None:
    ran = sbatch("--wrap", "true", env=env, cluster=FakeCluster(job_rows=[[]]))
    assert 0 <= ran.code <= 255
    assert ran.cluster.submitted or ran.err or ran.out


HET = b"""#!/bin/bash
#SBATCH -n1 --mem=100 -t 7 -J hh -o x.out -C rackA --gres=gpu:1 -c2 --comment=c1 --nice=5 -p debug
#SBATCH -H --exclusive --mail-type=END --mail-user=bob --begin=now+1hour --wckey=w1 --mincpus=3
#SBATCH hetjob
#SBATCH -n2
hostname
"""


def test_components_take_over_what_is_said_once_for_all() -> None:
    ran = sbatch(stdin=HET)
    assert ran.out == "Submitted batch job 1\n"
    leader, (second,) = ran.sent.spec, ran.sent.components
    # As `scontrol show job` of a real Slurm showed it for the same script.
    for spec in (leader, second):
        assert (spec.name, spec.time_limit, spec.std_out) == ("hh", 420, "x.out")
        assert spec.comment == "c1"
        assert (spec.nice, spec.hold, spec.wckey, spec.shape.mem_per_node) == (5, True, "w1", 100)
        assert spec.begin == leader.begin > 0
    assert leader.partitions == ("debug",) and second.partitions == ()
    assert leader.shape.features == "rackA" and second.shape.features == ""
    assert leader.shape.gpus_per_node == 1 and second.shape.gpus_per_node == 0
    assert (second.shape.ntasks, second.shape.cpus_per_task) == (2, 1)
    assert (leader.shape.min_cpus_node, second.shape.min_cpus_node) == (3, 0)
    assert leader.shape.exclusive == 1 and second.shape.exclusive == 0
    assert (leader.mail_user, second.mail_user, second.mail_type) == ("bob", "", 0)


def test_components_on_the_command_line_override_those_of_the_script() -> None:
    ran = sbatch("-n1", "-J", "q2", ":", "-n3", "-p", "debug", stdin=HET)
    (second,) = ran.sent.components
    assert (ran.sent.spec.name, ran.sent.spec.partitions) == ("q2", ("debug",))
    assert (second.name, second.partitions, second.shape.ntasks) == ("q2", ("debug",), 3)


def test_a_colon_parts_components_of_wrap() -> None:
    ran = sbatch("-n1", "--wrap", "sleep 100", ":", "-n2", ":", "-n4")
    assert [spec.shape.ntasks for spec in ran.sent.components] == [2, 4]
    assert {spec.name for spec in (ran.sent.spec, *ran.sent.components)} == {"wrap"}


def test_the_exit_code_of_a_refusal_may_be_chosen() -> None:
    refusal = Refused(b"", "Invalid partition name specified")
    for env, code in (({}, 1), ({"SLURM_EXIT_ERROR": "77"}, 77), ({"SLURM_EXIT_ERROR": "x"}, 1)):
        ran = sbatch(stdin=SCRIPT, env=env, cluster=FakeCluster(refusals=[refusal]))
        assert ran.code == code
        assert sbatch("-n", "x", stdin=SCRIPT, env=env).code == code
