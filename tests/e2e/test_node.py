"""The node daemon as a process: jobs run, survive it, end on time, and say what they had."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_support import NodeUnderTest

from gsched.model import Phase
from gsched.wire.nodes import Forget, Kill, SetLimit, Signal


@pytest.fixture(scope="module")
def node() -> Iterator[NodeUnderTest]:
    made = NodeUnderTest()
    made.start()
    yield made
    made.close()


@pytest.fixture
def own_node() -> Iterator[NodeUnderTest]:
    """A node whose daemon the test may kill."""
    made = NodeUnderTest()
    made.start()
    yield made
    made.close()


def written(path: Path, patience: float = 10.0) -> str:
    """The text of a file once there is some."""
    end = time.monotonic() + patience
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end, f"nothing in {path}"
        time.sleep(0.02)
    return path.read_text()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_it_registers_what_it_has(node: NodeUnderTest) -> None:
    facts = node.registered
    assert facts is not None
    assert (facts.node, facts.cpus, facts.mem_mb, facts.version) == (
        "node1",
        16,
        64000,
        "26.05.0",
    )
    assert [gpu.type for gpu in facts.gpus] == ["h100"] * 8
    # DGX-like: every GPU reaches every other one over 18 NVLinks.
    assert facts.gpus[0].links == [0] + [18] * 7
    assert len({gpu.uuid for gpu in facts.gpus}) == 8
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_script_runs_and_its_exit_code_arrives(node: NodeUnderTest) -> None:
    node.run(5, "#!/bin/sh\necho $0\necho hello $MYVAR\nexit 42\n", env={"MYVAR": "world"})
    report = node.phase(5, Phase.RELEASED)
    assert (report.wstatus, report.cause, report.error) == (42 << 8, "", "")
    assert report.max_rss_kb > 0
    script = node.dir / "spool/node1/job00005/slurm_script"
    assert node.output("slurm-5.out") == f"{script}\nhello world\n"
    node.order(Forget(0, 5, 1))
    node.until("job 5 forgotten", lambda: not node.last)
    assert list((node.dir / "spool/node1").glob("job*")) == []


def test_the_end_is_one_report_where_nothing_is_left(node: NodeUnderTest) -> None:
    node.history.clear()
    jobs = range(60, 65)
    for job_id in jobs:
        node.run(job_id, "#!/bin/sh\n")
        node.phase(job_id, Phase.RELEASED)
    apart = {r.job_id for m in node.history for r in m.attempts if r.phase == Phase.ENDED}
    # A busy machine may keep the supervisor waiting in between, but not every time.
    assert len(apart.intersection(jobs)) < len(jobs)


def test_gpus_and_the_environment(node: NodeUnderTest) -> None:
    node.run(
        7,
        "#!/bin/sh\nenv\n",
        gpus=2,
        std_out="env-%4j.out",
        limit_s=600,
    )
    node.phase(7, Phase.RELEASED)
    env = dict(line.split("=", 1) for line in node.output("env-0007.out").splitlines())
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert env["SLURM_JOB_GPUS"] == "0,1"
    assert env["SLURM_GPUS_ON_NODE"] == "2"
    assert env["SLURM_CONF"] == str(node.conf)
    assert env["SLURM_JOB_CPUS_PER_NODE"] == "1"
    assert int(env["SLURM_JOB_END_TIME"]) - int(env["SLURM_JOB_START_TIME"]) == 600
    assert int(env["SLURM_TASK_PID"]) > 1
    assert env["PWD"] == str(node.work)


def test_output_patterns_and_modes(node: NodeUnderTest) -> None:
    (node.work / "app.out").write_text("old\n")
    node.run(8, "#!/bin/sh\necho new\n", std_out="app.out", open_mode="append")
    node.phase(8, Phase.RELEASED)
    assert node.output("app.out") == "old\nnew\n"
    node.run(9, "#!/bin/sh\necho trunc\n", std_out="app.out")
    node.phase(9, Phase.RELEASED)
    assert node.output("app.out") == "trunc\n"
    node.run(10, "#!/bin/sh\necho o\necho e >&2\n", std_out="both-%x-%N.out", std_err="sub/%j.err")
    node.phase(10, Phase.RELEASED)
    assert node.output("both-test-node1.out") == "o\n"
    assert node.output("sub/10.err") == "e\n"
    (node.work / "in.txt").write_text("data\n")
    node.run(11, "#!/bin/sh\ncat\n", std_in="in.txt", std_out="in.out")
    node.phase(11, Phase.RELEASED)
    assert node.output("in.out") == "data\n"


def test_an_output_that_cannot_be_opened_fails_the_job_as_in_slurm(node: NodeUnderTest) -> None:
    node.run(12, "#!/bin/sh\necho hi\n", std_out="/proc/nothing/here.out")
    report = node.phase(12, Phase.RELEASED)
    # ExitCode 0:53
    assert (report.wstatus, report.error) == (53, "")


def test_cancel_kills_everything(node: NodeUnderTest) -> None:
    script = "#!/bin/sh\nsetsid sh -c 'echo $$ > child; sleep 1000' &\nsleep 1000\n"
    node.run(13, script, std_out="c.out")
    child = int(written(node.work / "child"))
    node.order(Kill(0, 13, 1, "cancelled"))
    report = node.phase(13, Phase.RELEASED)
    assert (report.wstatus, report.cause) == (15, "cancelled")
    assert not alive(child)
    assert re.search(
        r"\[\S+\] error: \*\*\* JOB 13 ON node1 CANCELLED AT \S+ DUE to SIGNAL Terminated \*\*\*",
        node.output("c.out"),
    )


def test_what_ignores_sigterm_is_killed(node: NodeUnderTest) -> None:
    script = "#!/bin/sh\ntrap '' TERM\necho on > deaf\nwhile :; do sleep 0.1; done\n"
    node.run(14, script)
    written(node.work / "deaf")
    node.order(Kill(0, 14, 1, "cancelled"))
    assert node.phase(14, Phase.RELEASED).wstatus == 9


def test_signals_reach_the_batch_shell(node: NodeUnderTest) -> None:
    script = (
        "#!/bin/bash\ntrap 'echo usr1; exit 3' USR1\necho on > ready\nwhile :; do sleep 0.1; done\n"
    )
    node.run(15, script, std_out="sig.out")
    written(node.work / "ready")
    node.order(Signal(0, 15, 1, 10, "batch"))
    assert node.phase(15, Phase.RELEASED).wstatus == 3 << 8
    assert node.output("sig.out") == "usr1\n"


def test_the_warning_before_the_limit_is_for_the_batch_shell_only_with_b(
    node: NodeUnderTest,
) -> None:
    script = "#!/bin/bash\ntrap 'echo usr1' USR1\nfor i in $(seq 18); do sleep 0.1; done\n"
    for job_id, batch in ((40, True), (41, False)):
        node.run(
            job_id,
            script,
            limit_s=61,
            std_out=f"warn{job_id}.out",
            signal_num=10,
            signal_before=60,
            signal_batch=batch,
        )
    for job_id in (40, 41):
        node.phase(job_id, Phase.RELEASED)
    assert node.output("warn40.out") == "usr1\n"
    assert node.output("warn41.out") == ""


def test_a_limit_can_be_shortened(node: NodeUnderTest) -> None:
    node.run(16, "#!/bin/sh\nexec sleep 1000\n", limit_s=1000)
    node.phase(16, Phase.RUNNING)
    node.order(SetLimit(0, 16, 1, 1))
    assert node.phase(16, Phase.RELEASED).cause == "timeout"


def test_a_login_environment_for_export_none(node: NodeUnderTest) -> None:
    node.run(
        17, "#!/bin/sh\n/usr/bin/env\n", std_out="login.out", export="NONE", env={"MYVAR": "x"}
    )
    node.phase(17, Phase.RELEASED)
    env = dict(line.split("=", 1) for line in node.output("login.out").splitlines() if "=" in line)
    assert "MYVAR" not in env
    assert env["HOME"] == pwd.getpwuid(os.geteuid()).pw_dir
    assert env["SLURM_EXPORT_ENV"] == "NONE"


def test_the_job_outlives_a_killed_daemon(own_node: NodeUnderTest) -> None:
    node = own_node
    node.run(5, "#!/bin/sh\necho begun > begun\nsleep 1.5\nexit 7\n")
    written(node.work / "begun")
    node.kill()
    node.start()
    assert node.registered is not None and len(node.registered.attempts) == 1
    assert node.phase(5, Phase.RELEASED).wstatus == 7 << 8


def test_an_end_while_no_daemon_is_there(own_node: NodeUnderTest) -> None:
    node = own_node
    node.run(5, "#!/bin/sh\necho begun > begun\nsleep 0.5\nexit 7\n")
    written(node.work / "begun")
    node.kill()
    time.sleep(1)
    node.start()
    assert node.phase(5, Phase.RELEASED).wstatus == 7 << 8


def test_a_killed_supervisor_loses_the_job_and_leaves_nothing(own_node: NodeUnderTest) -> None:
    node = own_node
    node.run(5, "#!/bin/sh\necho $$ > shell\nsleep 1000\n")
    shell = int(written(node.work / "shell"))
    stepd = int((node.dir / "spool/node1/job00005/status").read_text().split()[2])
    os.kill(stepd, 9)
    report = node.phase(5, Phase.RELEASED)
    assert (report.wstatus, report.cause) == (-1, "node")
    assert not alive(shell)


def test_the_time_limit_holds_without_a_controller(own_node: NodeUnderTest) -> None:
    node = own_node
    node.run(5, "#!/bin/sh\necho $$ > shell\nexec sleep 1000\n", limit_s=2, std_out="t.out")
    shell = int(written(node.work / "shell"))
    node.vanish()
    node.kill()
    node.until("the job's end", lambda: not alive(shell))
    assert "DUE TO TIME LIMIT" in written(node.work / "t.out")
    node.listen()
    node.start()
    report = node.phase(5, Phase.RELEASED)
    assert report.cause == "timeout"
    assert 1900 <= report.elapsed_ms < 8000


def test_a_new_controller_gets_to_know_the_node_at_once(own_node: NodeUnderTest) -> None:
    node = own_node
    node.run(5, "#!/bin/sh\nexec sleep 1000\n")
    node.phase(5, Phase.RUNNING)
    node.vanish()
    node.epoch = 2
    node.session = ""
    node.registered = None
    node.listen()
    node.history.clear()
    node.until(
        "a registration",
        lambda: any(report.session == node.session for report in node.history),
        patience=8,
    )
    assert node.registered is not None
    assert node.registered.cluster == "uuid-1"
    assert [r.phase for r in node.registered.attempts] == [Phase.RUNNING]
    node.order(Kill(0, 5, 1, "cancelled"))
    node.phase(5, Phase.RELEASED)


def test_a_requeued_job_truncates_and_knows_it_was_restarted(node: NodeUnderTest) -> None:
    node.run(20, "#!/bin/sh\necho restart=$SLURM_RESTART_COUNT\n", std_out="rq.out")
    node.phase(20, Phase.RELEASED)
    assert node.output("rq.out") == "restart=\n"
    node.run(
        20,
        "#!/bin/sh\necho restart=$SLURM_RESTART_COUNT\n",
        std_out="rq.out",
        attempt=2,
        restarts=1,
        open_mode="append",
    )
    node.phase(20, Phase.RELEASED, attempt=2)
    assert node.output("rq.out") == "restart=\nrestart=1\n"


@pytest.mark.parametrize("exit_code", [0, 3])
def test_prolog_and_epilog(exit_code: int) -> None:
    node = NodeUnderTest("Prolog={0}/prolog\nEpilog={0}/epilog")
    try:
        text = node.conf.read_text().replace("{0}", str(node.dir))
        node.conf.write_text(text)
        for which in ("prolog", "epilog"):
            script = node.dir / which
            code = exit_code if which == "prolog" else 0
            script.write_text(
                f"#!/bin/sh\necho $SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID >> {node.work}/hooks\n"
                f"exit {code}\n"
            )
            script.chmod(0o755)
        node.start()
        node.run(5, "#!/bin/sh\necho job >> hooks\n")
        report = node.phase(5, Phase.RELEASED)
        lines = node.output("hooks").splitlines()
        if exit_code:
            assert report.wstatus == -1
            assert report.error == f"prolog {node.dir}/prolog failed with exit code 3"
            assert lines == ["prolog_slurmd 5", "epilog_slurmd 5"]
        else:
            assert report.wstatus == 0
            assert lines == ["prolog_slurmd 5", "job", "epilog_slurmd 5"]
    finally:
        node.close()


def test_a_prolog_that_hangs_is_ended() -> None:
    node = NodeUnderTest("Prolog={0}/prolog\nPrologEpilogTimeout=1")
    try:
        node.conf.write_text(node.conf.read_text().replace("{0}", str(node.dir)))
        script = node.dir / "prolog"
        script.write_text("#!/bin/sh\nsleep 1000\n")
        script.chmod(0o755)
        node.start()
        node.run(5, "#!/bin/sh\n")
        # The loop does not wait with it: another job is refused in the same second.
        node.run(6, "#!/bin/sh\n")
        for job_id in (5, 6):
            report = node.phase(job_id, Phase.RELEASED)
            assert report.error == f"prolog {script} did not end within 1 s"
    finally:
        node.close()


@pytest.mark.root
def test_the_job_runs_as_its_user(node: NodeUnderTest) -> None:
    try:
        user = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("there is no user nobody")
    os.chown(node.work, user.pw_uid, user.pw_gid)
    node.work.chmod(0o777)
    node.run(30, "#!/bin/sh\nid -u\numask\nls -ln $0\n", user=user, umask=0o027, std_out="me.out")
    assert node.phase(30, Phase.RELEASED).wstatus == 0
    uid, mask, script = node.output("me.out").splitlines()
    assert (uid, mask) == (str(user.pw_uid), "0027")
    assert script.startswith("-r-x------")
    status = (node.work / "me.out").stat()
    assert (status.st_uid, status.st_mode & 0o777) == (user.pw_uid, 0o640)
    # Neither the specification nor the environment can be read by the job.
    node.run(31, "#!/bin/sh\ncat $(dirname $0)/spec $(dirname $0)/environment\n", user=user)
    assert node.phase(31, Phase.RELEASED).wstatus == 1 << 8


@pytest.mark.root
def test_memory_is_held_to_the_share_and_the_groups_go() -> None:
    node = NodeUnderTest(cgroups=True)
    try:
        node.start()
        script = f"#!/bin/sh\n{sys.executable} -c 'bytearray(400 << 20)'\nexit 3\n"
        node.run(5, script, mem_mb=100)
        report = node.phase(5, Phase.RELEASED)
        if "not confined to their memory" in node.log():
            pytest.skip("no memory cgroup on this machine")
        assert (report.wstatus, report.cause) == (3 << 8, "oom")
        node.run(6, "#!/bin/sh\ncat /proc/self/cgroup\n", std_out="cg.out")
        node.phase(6, Phase.RELEASED)
        assert "/node1/job_6.1" in node.output("cg.out")
        # The script may think that all went well: what it started had not the memory it needed.
        script = f"#!/bin/sh\n{sys.executable} -c 'bytearray(400 << 20)'\nexit 0\n"
        node.run(7, script, mem_mb=100)
        report = node.phase(7, Phase.RELEASED)
        assert (report.wstatus, report.cause) == (0, "oom")
        assert (
            "error: Detected 1 oom_kill event in StepId=7.batch. "
            "Some of the step tasks have been OOM Killed."
        ) in node.output("slurm-7.out")
        node.order(Forget(0, 5, 1), Forget(0, 6, 1), Forget(0, 7, 1))
        node.until("all forgotten", lambda: not node.last)
        own = f"nodetest-{zlib.crc32(str(node.dir / 'spool' / 'node1').encode()):08x}"

        def left() -> list[Path]:
            found = Path("/sys/fs/cgroup").rglob("node1/job_[567].1")
            return [path for path in found if own in str(path)]

        # A group that was still busy is tried again after two seconds.
        node.until("its groups gone", lambda: not left())
        assert node.end() == 0
    finally:
        node.close()


def test_sigterm_ends_the_daemon_and_leaves_jobs(own_node: NodeUnderTest) -> None:
    node = own_node
    node.run(5, "#!/bin/sh\necho $$ > shell\nexec sleep 1000\n")
    shell = int(written(node.work / "shell"))
    assert node.end() == 0
    assert alive(shell)
    assert not (node.dir / "run/slurmd.node1.pid").exists()
    refused = slurmd("-D", "-c", "-f", str(node.conf), "-N", "node1")
    assert refused.returncode == 1
    assert "-c refused: job00005 still runs" in refused.stderr
    node.start()
    node.order(Kill(0, 5, 1, "cancelled"))
    node.phase(5, Phase.RELEASED)


def slurmd(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "slurmd_compat.main", *words],
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_the_flags_that_only_print(node: NodeUnderTest) -> None:
    assert slurmd("-V").stdout == "slurm 26.05.0\n"
    line = slurmd("-C").stdout.splitlines()
    assert re.fullmatch(
        r"NodeName=\S+ CPUs=\d+ Boards=1 SocketsPerBoard=\d+ CoresPerSocket=\d+ "
        r"ThreadsPerCore=\d+ RealMemory=\d+",
        line[0],
    )
    assert line[1].startswith("UpTime=")
    found = slurmd("-G", "-f", str(node.conf), "-N", "node1").stdout
    assert len(re.findall(r"Gres Name=gpu Type=h100 Count=1 Index=\d", found)) == 8


def test_mistakes_are_one_sentence(node: NodeUnderTest) -> None:
    unknown = slurmd("-D", "-f", str(node.conf), "-N", "node9")
    assert unknown.returncode == 1 and "no node9" in unknown.stderr
    twice = slurmd("-D", "-f", str(node.conf), "-N", "node1")
    assert twice.returncode == 1 and "another slurmd is using" in twice.stderr
    for process in (unknown, twice):
        assert "Traceback" not in process.stderr
