"""The step supervisor with real processes: nothing of a step outlives `released`."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stepd_support import FLAGS, NOBODY, STAMP, Start, alive, dial, starter, text, wait_for

from slurmd_compat.cgroups import Cgroups
from slurmd_compat.stepd import Status, encode_spec, read_status


@pytest.mark.parametrize(
    ("script", "wstatus"),
    [
        ("exit 0", 0),
        ("exit 3", 3 << 8),
        ("exit 300", 44 << 8),  # 300 modulo 256
        ("no-such-command-x", 127 << 8),
        ("kill -9 $$", 9),
        ("kill -TERM $$", 15),
    ],
)
def test_exit_status_arrives(start: Start, script: str, wstatus: int) -> None:
    step = start(script)
    status = step.finish()
    assert status.wstatus == wstatus
    assert status.cause == "none"
    assert [line.split()[0] for line in step.lines] == ["started", "ended", "released"]


def test_runs_as_the_user_with_exactly_its_environment(start: Start) -> None:
    step = start(
        "id -u; id -g; pwd; umask; env; ps -o pgid= -p $$ | tr -d ' '; echo $$; ulimit -Sn; "
        "cat /proc/self/oom_score_adj; grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd",
        ("env", "A=b c"),
        ("groups", ""),
        ("umask", "0027"),
        ("rlimit_nofile", "200:unlimited" if os.getuid() else "200:300"),
        ("pid_env", "SLURM_TASK_PID"),
    )
    status = step.finish()
    lines = text(step).splitlines()
    uid = os.stat(step.out).st_uid
    assert lines[0] == str(uid)
    assert lines[2] == str(step.out)
    assert lines[3] == "0027"
    env = {line for line in lines if re.match(r"^[A-Z_a-z]+=", line)}
    shell = {f"PWD={step.out}", "SHLVL=0", "SHLVL=1", "_=/usr/bin/env"}
    assert env - shell == {"A=b c", "PATH=/usr/bin:/bin", f"SLURM_TASK_PID={status.pid}"}
    rest = lines[lines.index(str(status.pid)) :]
    assert rest[0] == rest[1] == str(status.pid)  # it leads a process group of its own
    assert rest[2] == "200"
    if os.getuid() == 0:
        assert rest[3] == "0"
    assert [line.split()[1] for line in rest[4:6]] == ["0" * 16] * 2
    assert rest[6:10] == ["0", "1", "2", "3"] and len(rest) == 10  # 3 is ls reading the folder
    assert os.stat(step.out / "o").st_mode & 0o777 == 0o640


def test_streams(start: Start) -> None:
    out = start.out
    (out / "in").write_text("data\n")
    step = start("cat; echo e >&2; echo o", stdin=f"{out}/in", out=f"{out}/a", err=f"{out}/b")
    assert step.finish().wstatus == 0
    assert text(step, "a") == "data\no\n" and text(step, "b") == "e\n"
    step = start("echo new", out=f"{out}/a", openmode="append")
    step.finish()
    assert text(step, "a") == "data\no\nnew\n"
    step = start("echo trunc", out=f"{out}/a", openmode="truncate")
    step.finish()
    assert text(step, "a") == "trunc\n"
    step = start("read x || echo nothing; echo gone", out="", err="")
    assert step.finish().wstatus == 0


def test_missing_directories_of_an_output_file_are_made(start: Start) -> None:
    out = start.out
    step = start("echo hi", out=f"{out}/sub/dir/x.out")
    assert step.finish().wstatus == 0
    assert text(step, "sub/dir/x.out") == "hi\n"


def test_missing_working_directory_falls_back_to_tmp(start: Start) -> None:
    step = start("pwd", cwd="/nonexistent")
    assert step.finish().wstatus == 0
    message = r"couldn't chdir to `/nonexistent': No such file or directory: going to /tmp instead"
    assert re.fullmatch(STAMP + message + "\n/tmp\n", text(step))


@pytest.mark.parametrize("which", ["stdin", "stdout"])
def test_files_that_do_not_open_fail_the_step_with_0_53(start: Start, which: str) -> None:
    missing = "/proc/no-such/file"
    step = start("true", **({"stdin": missing} if which == "stdin" else {"out": missing}))
    status = step.finish()
    assert status.wstatus == 53  # golden 043: ExitCode 0:53
    assert status.failed is not None
    assert status.failed[1].startswith(f"open: Could not open {which} file {missing}: ")


@pytest.mark.root
def test_files_are_opened_with_the_rights_of_the_user(binary: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for begin in starter(binary, nobody=True):
        status = begin("true", out=f"{tmp_path}/x.out").finish()
        assert (status.wstatus, status.failed and status.failed[0]) == (53, 13)
        assert not (tmp_path / "x.out").exists()


def test_what_cannot_be_executed(start: Start) -> None:
    out = start.out
    (out / "s").write_text("#!/nonexistent/interp\n")
    (out / "s").chmod(0o755)
    step = start("", ("arg", f"{out}/s"))
    assert step.finish().wstatus == 2 << 8
    wanted = r"execve\(\): bad interpreter\(/nonexistent/interp\): No such file or directory\n"
    assert re.fullmatch(STAMP + wanted, text(step))
    step = start("", ("arg", "/etc/passwd"))
    assert step.finish().wstatus == 13 << 8  # golden 037: exit code 13
    assert re.fullmatch(STAMP + r"execve\(\): /etc/passwd: Permission denied\n", text(step))


def test_time_limit(start: Start) -> None:
    step = start("trap 'echo term; exit 0' TERM; echo up; sleep 300 & wait", limit=1)
    status = step.finish()
    assert (status.wstatus, status.cause) == (0, "timeout")
    assert 1000 <= status.elapsed_ms < 4000
    line = STAMP + r"\*\*\* JOB 7 ON gpu01 CANCELLED AT \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d "
    assert re.fullmatch("up\n" + line + r"DUE TO TIME LIMIT \*\*\*\nterm\n", text(step))


def test_limit_can_be_changed_and_a_warning_comes_before_it(start: Start) -> None:
    step = start(
        "trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done",
        ("warn_signal", int(signal.SIGUSR1)),
        ("warn_before", 1),
        limit=3600,
    )
    wait_for(step.out / "o")
    step.tell("limit 2")
    status = step.finish()
    assert (status.wstatus, status.cause) == (15, "timeout")
    assert text(step).startswith("up\nusr1\n[")


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("cancelled", " DUE to SIGNAL Terminated"),
        ("requeue", " DUE TO JOB REQUEUE"),
        ("silent", None),
    ],
)
def test_kill_says_why_in_the_error_file(start: Start, cause: str, words: str | None) -> None:
    step = start("echo up; exec sleep 300", killwait=30)
    wait_for(step.out / "o")
    step.tell(f"kill {cause}\nkill {cause}")  # once more changes nothing
    status = step.finish()
    assert (status.wstatus, status.cause) == (15, "killed")
    body = r"\*\*\* JOB 7 ON gpu01 CANCELLED AT \S+" + re.escape(words or "") + r" \*\*\*\n"
    assert re.fullmatch("up\n" + (STAMP + body if words else ""), text(step))


def test_who_ignores_sigterm_gets_sigkill(start: Start) -> None:
    step = start("trap '' TERM; echo up; while :; do sleep 0.05; done", killwait=1)
    wait_for(step.out / "o")
    begun = time.monotonic()
    step.tell("kill cancelled")
    assert step.finish().wstatus == 9
    assert 1 <= time.monotonic() - begun < 4
    step = start("trap '' TERM; echo up; while :; do sleep 0.05; done", killwait=60)
    wait_for(step.out / "o")
    step.until("started")
    step.tell("kill9 cancelled")
    assert step.finish().wstatus == 9


def test_stopped_processes_end_too(start: Start) -> None:
    # Continued, it must not be over before it is told to end.
    step = start(
        "sleep 300 & echo $! > pid; kill -STOP $!; echo up; kill -STOP $$; sleep 300", killwait=60
    )
    wait_for(step.out / "o")
    step.tell("kill cancelled")
    assert step.finish().wstatus == 15
    assert not alive(int(text(step, "pid")))


#: Forks twice, takes a session of its own, ignores SIGTERM and keeps a zombie.
DAEMON = """\
(setsid bash -c 'trap "" TERM; bash -c "true & exec sleep 300" &
echo $$ > daemon.new; mv daemon.new daemon; while :; do sleep 1; done' > /dev/null 2>&1 &)
"""


def test_daemons_stopped_children_and_zombies_are_gone_at_released(start: Start) -> None:
    step = start(
        DAEMON + "(sleep 300 & echo $! > stopped; kill -STOP $!); "
        "setsid nohup sleep 300 > /dev/null 2>&1 & echo $! > session; "
        "while [ ! -e daemon ]; do sleep 0.02; done; exit 5"
    )
    status = step.finish()
    assert status.wstatus == 5 << 8  # the batch shell's own, whatever came after
    for name in ("daemon", "stopped", "session"):
        assert not alive(int(text(step, name)))
    assert step.lines[-1] == "released"


def test_a_fork_bomb_ends(start: Start) -> None:
    bomb = "f() { f & f & sleep 0.01; }; trap '' TERM; ulimit -u 4000; n=0; echo up; "
    step = start(
        bomb + "g() { (trap '' TERM; while :; do (sleep 0.05) & sleep 0.01; done) & }; "
        "for i in 1 2 3 4; do g; done; exit 0",
        killwait=0,
    )
    assert step.finish().wstatus == 0
    left = subprocess.run(["pgrep", "-s", str(step.status.stepd_pid or 0)], capture_output=True)
    assert step.lines[-1] == "released" and left.returncode in (0, 1)


def test_a_fifo_as_output_holds_up_nobody(start: Start) -> None:
    out = start.out
    os.mkfifo(out / "fifo")
    os.chown(out / "fifo", os.stat(out).st_uid, os.stat(out).st_gid)
    step = start("echo never", out=f"{out}/fifo", killwait=5)
    step.until("started")
    with step.connect() as ctl:
        ctl.sendall(b"ping\n")
        assert ctl.recv(100).startswith(b"state running pid ")
        ctl.sendall(b"kill cancelled\n")
        assert step.finish().wstatus == 15


def test_signals_reach_the_shell_or_all(start: Start) -> None:
    step = start(
        "trap 'echo b >> got' USR1; bash -c 'trap \"echo c >> got\" USR1; echo up; "
        "while [ ! -e stop ]; do sleep 0.05; done' & while [ ! -e stop ]; do wait; done"
    )
    wait_for(step.out / "o")
    got = step.out / "got"
    step.tell(f"signal {int(signal.SIGUSR1)} batch")
    wait_for(got)
    assert got.read_text() == "b\n"
    step.tell(f"signal {int(signal.SIGUSR1)} all")
    end = time.monotonic() + 10
    while sorted(got.read_text().split()) != ["b", "b", "c"] and time.monotonic() < end:
        time.sleep(0.01)
    (step.out / "stop").touch()
    assert step.finish().wstatus == 0
    assert sorted(got.read_text().split()) == ["b", "b", "c"]


def test_survives_its_parent_and_is_adopted(binary: Path, tmp_path: Path) -> None:
    place = tmp_path / "step"
    place.mkdir(mode=0o700)
    records: list[tuple[str, str | int]] = [
        ("arg", "/bin/bash"),
        ("arg", "-c"),
        ("arg", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 42"),
        ("env", "PATH=/usr/bin:/bin"),
        ("uid", os.getuid()),
        ("gid", os.getgid()),
    ]
    (place / "spec").write_bytes(encode_spec(records))
    code = (
        "import os,socket,sys\na,b=socket.socketpair()\nos.set_inheritable(b.fileno(),True)\n"
        f"os.posix_spawn('{binary}',['stepd','{place}',str(b.fileno())],dict(os.environ))\n"
        "a.recv(100)\nos.kill(os.getpid(),9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    status = read_status(place)
    assert status is not None and status.state == "running" and alive(status.pid)
    with dial(place) as ctl:
        ctl.sendall(b"watch\n")
        assert ctl.recv(100) == f"started {status.pid}\n".encode()
        (tmp_path / "go").touch()
        data = b""
        while b"released" not in data:
            data += ctl.recv(1000)
        assert data.startswith(f"ended {42 << 8} none ".encode())
    final = read_status(place)
    assert final is not None and final.released and final.wstatus == 42 << 8


def test_the_same_directory_is_never_begun_twice(start: Start, binary: Path) -> None:
    step = start("echo once >> n; sleep 0.3")
    step.until("started")
    again = subprocess.run([binary, step.dir], capture_output=True)
    assert again.returncode == 3
    step.finish()
    assert subprocess.run([binary, step.dir], capture_output=True).returncode == 3
    assert text(step, "n") == "once\n"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (b"", "1 to"),
        (b"arg=/bin/true", "cut off"),
        (b"arg=true\0", "no absolute path"),
        (b"arg=/bin/true\0nonsense\0", "without '='"),
        (b"arg=/bin/true\0uid=-1\0", "uid=-1"),
        (b"arg=/bin/true\0umask=999\0", "umask=999"),
        (b"arg=/bin/true\0stdout=rel\0", "stdout=rel"),
    ],
)
def test_a_bad_spec_is_a_recorded_failure(
    binary: Path, tmp_path: Path, spec: bytes, says: str
) -> None:
    (tmp_path / "spec").write_bytes(spec)
    assert subprocess.run([binary, tmp_path]).returncode == 1
    status = read_status(tmp_path)
    assert status is not None and status.released and status.wstatus == 1 << 8
    assert status.failed is not None and says in status.failed[1]


def test_a_record_cut_off_in_the_middle_of_a_line_is_read_without_it(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("stepd 1 7\nstate running\nstarted 77\nended 256 none 1")
    assert read_status(tmp_path) == Status(stepd_pid=7, state="running", pid=77)
    (tmp_path / "status").write_text("stepd 1 7\nstarted 77\nend\nended 256 none 1 2 3 4\n")
    status = read_status(tmp_path)
    assert status is not None and status.wstatus == 256 and status.elapsed_ms == 4


def test_what_to_run_may_come_through_standard_input(binary: Path, tmp_path: Path) -> None:
    records: list[tuple[str, str | int]] = [
        ("arg", "/bin/sh"),
        ("arg", "-c"),
        ("arg", f"echo here > {tmp_path}/out"),
        ("uid", os.getuid()),
        ("gid", os.getgid()),
    ]
    place = tmp_path / "step"
    place.mkdir()
    code = (
        "import os,socket,sys\na,b=socket.socketpair()\nos.set_inheritable(b.fileno(),True)\n"
        f"pid=os.posix_spawn('{binary}',['stepd','{place}',str(b.fileno()),'-'],dict(os.environ))\n"
        "sys.exit(os.waitpid(pid,0)[1])"
    )
    with open(tmp_path / "spec", "w+b") as spec:
        spec.write(encode_spec(records))
        spec.seek(0)
        assert subprocess.run([sys.executable, "-c", code], stdin=spec).returncode == 0
    assert (tmp_path / "out").read_text() == "here\n"
    assert {path.name for path in place.iterdir()} == {"status"}


def test_unknown_words_get_an_error_and_change_nothing(start: Start) -> None:
    step = start("echo up; while [ ! -e stop ]; do sleep 0.02; done")
    wait_for(step.out / "o")
    with step.connect() as ctl:
        for bad in (b"", b"kill", b"signal 0 all", b"signal 9 none", b"limit -1", b"limit x", b"?"):
            ctl.sendall(bad + b"\n")
            assert ctl.recv(200).startswith(b"error "), bad
        ctl.sendall(b"x" * 5000)
        assert b"error line too long" in ctl.recv(200)
    (step.out / "stop").touch()
    assert step.finish().wstatus == 0


@pytest.mark.root
def test_other_users_may_not_control_it(binary: Path) -> None:
    for begin in starter(binary, nobody=True):
        step = begin("sleep 300")
        step.until("started")
        step.connect().close()
        for path in (step.dir, step.dir.parent):
            path.chmod(0o755)
        (step.dir / "ctl").chmod(0o666)
        code = (
            f"import os,socket\nos.setuid({NOBODY.pw_uid})\ns=socket.socket(socket.AF_UNIX)\n"
            f"s.settimeout(5)\ns.connect('{step.dir}/ctl')\ntry:\n"
            "  s.sendall(b'kill9 cancelled\\n')\n"
            "  assert s.recv(100)==b''\nexcept (ConnectionError,BrokenPipeError): pass\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        with step.connect() as ctl:
            ctl.sendall(b"ping\n")
            assert ctl.recv(100).startswith(b"state running")


def test_is_small_while_it_waits(start: Start) -> None:
    step = start("sleep 300", *[("env", f"V{n}={'x' * 10000}") for n in range(60)])
    step.until("started")
    with step.connect() as ctl:  # one turn of its loop, so that it has given back the environment
        ctl.sendall(b"ping\n")
        ctl.recv(100)
    memory = Path(f"/proc/{step.pid}/smaps_rollup").read_text()
    dirty = sum(int(kb) for kb in re.findall(r"^Private_Dirty:\s+(\d+)", memory, re.M))
    assert dirty < 1024 or "sanitize" in FLAGS  # those keep memory of their own
    fields = Path(f"/proc/{step.pid}/stat").read_text().rsplit(")", 1)[1].split()
    assert int(fields[11]) + int(fields[12]) <= 2  # ticks of 10 ms, user and system


def test_sanitizers_find_nothing_in_whole_lives(sanitized: Path) -> None:
    for begin in starter(sanitized, nobody=os.getuid() == 0):
        for step in (
            begin("sleep 300 & exit 3", cwd="/nonexistent"),
            begin("sleep 300", limit=1),
            begin("true", out="/proc/no-such/x"),
            begin("", ("arg", "/etc/passwd")),
        ):
            assert step.finish().wstatus in (3 << 8, 15, 53, 13 << 8)


def test_fuzzed_specs_under_sanitizers(sanitized: Path, tmp_path: Path) -> None:
    """Only `--check`, which runs nothing: a mutated spec could name any program and any file."""
    rng = random.Random(7)
    keys = b"arg env uid gid groups umask cwd stdin stdout stderr openmode limit killwait label"
    keys += b" cgroup_procs cgroup_kill rlimit_nofile rlimit_x warn_signal warn_before pid_env"
    keys += (
        b" task task task targ tenv tcpus tnote tstdin tstdout tstderr ntasks nnodes io io_secret"
    )
    keys += b" io_index pty stdin_task pmi pmi_jobid pmi_mapping task_prolog user_task_epilog"
    values = [b"", b"0", b"-1", b"/", b"/bin/true", b"1,2,", b",", b"9" * 30, b"a=b", b"1:2", b":"]
    values += [
        b"h:1",
        b"h:99999",
        b":1",
        b"ab" * 32,
        b"ab" * 31 + b"x-",
        b"1",
        b"2",
        b"7",
        b"-2",
        b"-3",
    ]
    values += [b"unlimited:unlimited", b"append", b"\xff\xfe", b"/" + b"x" * 5000, b"x\ny", b"="]
    outcomes = set()
    for _ in range(400):
        records = [
            rng.choice(keys.split()) + b"=" + rng.choice(values) for _ in range(rng.randrange(8))
        ]
        data = bytearray(b"arg=/bin/true\0" + b"".join(record + b"\0" for record in records))
        for _ in range(rng.choice([0, 0, 1, 5])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        (tmp_path / "spec").write_bytes(bytes(data[: rng.choice([len(data), rng.randrange(99)])]))
        done = subprocess.run(
            [sanitized, "--check", tmp_path / "spec"],
            capture_output=True,
            text=True,
            errors="replace",
        )
        assert done.returncode in (0, 1), done.stderr
        assert "runtime error" not in done.stderr and "Sanitizer" not in done.stderr
        outcomes.add(done.returncode)
    assert outcomes == {0, 1}


def test_fuzzed_control_input_under_sanitizers(sanitized: Path) -> None:
    rng = random.Random(11)
    words = [b"ping", b"watch", b"limit", b"signal", b"kill", b"batch", b"all", b"0", b"64", b"-1"]
    words += [b"attach", b"h:1", b"h:0", b"ab" * 32, b"notify", b"5"]
    words += [b"99999999999999999999", b"\0", b"\xff", b"", b" ", b"x" * 200, b"18"]
    for begin in starter(sanitized, nobody=False):
        step = begin("trap '' TERM; while :; do sleep 0.05; done", killwait=600)
        step.until("started")
        for _ in range(150):
            with step.connect() as ctl, contextlib.suppress(OSError):
                for _ in range(rng.randrange(1, 6)):
                    line = b" ".join(rng.choice(words) for _ in range(rng.randrange(1, 4)))
                    if line.startswith(
                        (b"kill ", b"limit 0", b"limit 64", b"limit 18", b"signal 6")
                    ):
                        continue
                    ctl.sendall(line + rng.choice([b"\n", b"\n", b""]))
                if rng.random() < 0.5:
                    ctl.settimeout(0.05)
                    ctl.recv(4096)
        step.tell("kill9 silent")
        assert step.finish().wstatus == 9


@pytest.mark.root
def test_in_control_groups_strangers_are_found_too(start: Start) -> None:
    """A member of the step's group that is no descendant of the supervisor ends with it."""
    groups = Cgroups(f"gsched-test-{os.getpid()}/stepd")
    if not groups.version:
        pytest.skip(groups.not_enforced()[0])
    handle = groups.create(7, 1, memory_mb=200, cpus=[max(os.sched_getaffinity(0))])
    assert handle.not_enforced == []
    joins = [("cgroup_procs", path) for path in handle.procs_files]
    kills = [("cgroup_kill", path) for path in handle.kill_dirs]
    step = start(
        "grep Cpus_allowed_list /proc/self/status; while [ ! -e go ]; do sleep 0.02; done; exit 6",
        *joins,
        *kills,
    )
    wait_for(step.out / "o")
    stranger = subprocess.Popen(["sleep", "300"])
    for path in handle.procs_files:
        Path(path).write_text(str(stranger.pid))
    (step.out / "go").touch()
    assert step.finish().wstatus == 6 << 8
    assert stranger.wait(10) == -signal.SIGTERM
    assert handle.pids() == [] and handle.usage().peak_bytes > 0
    assert handle.remove()
    groups.close()
    assert text(step).split() == ["Cpus_allowed_list:", str(max(os.sched_getaffinity(0)))]


@pytest.mark.root
def test_a_control_group_that_is_gone_is_a_failure_to_set_up(start: Start) -> None:
    step = start("true", ("cgroup_procs", "/sys/fs/cgroup/no-such/cgroup.procs"))
    status = step.finish()
    assert status.wstatus == 1 << 8 and status.failed is not None
    assert status.failed[1].startswith("setup: could not join cgroup /sys/fs/cgroup/no-such/")


def test_task_prolog_and_epilog_go_with_scripts(start: Start) -> None:
    """Measured with Slurm 22.05: the cluster's TaskProlog and TaskEpilog run for a batch script."""
    for name, body in [
        ("prolog", 'echo "export FOO=bar"; echo "print printed"'),
        ("epilog", "echo $FOO epilog $SLURM_TASK_PID > e; echo told >&2"),
    ]:
        (start.out / name).write_text(f"#!/bin/bash\n{body}\n")
        (start.out / name).chmod(0o755)
    step = start(
        "echo FOO=$FOO; exit 3",
        ("task_prolog", f"{start.out}/prolog"),
        ("task_epilog", f"{start.out}/epilog"),
        ("pid_env", "SLURM_TASK_PID"),
    )
    status = step.finish()
    assert status.wstatus == 3 << 8
    assert text(step) == "printed\nFOO=bar\ntold\n"
    assert text(step, "e") == f"epilog {status.pid}\n"
