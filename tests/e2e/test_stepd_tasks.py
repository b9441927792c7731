"""Steps of many tasks: starting them, their identity, signals, ends, what runs around them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from stepd_support import STAMP, Client, Records, Start, alive, tasks, text

from slurmd_compat.cgroups import Cgroups
from slurmd_compat.stepd import Status

LABEL = "STEP 7.0 ON gpu01"


def run(start: Start, client: Client, records: Records, **keys: str | int) -> Status:
    """One step to its end."""
    step = start("", *records, *client.records(), label=LABEL, out="", **keys)
    status = step.finish()
    client.finish()
    return status


def test_tasks_run_and_end_each_for_itself(start: Start, client: Client) -> None:
    step = start(
        "",
        *tasks(3, 'echo out $SLURM_PROCID; echo err >&2; exit "$SLURM_PROCID"'),
        *client.records(),
        out="",
    )
    status = step.finish()
    client.finish()
    assert client.out == {i: f"out {i}\n".encode() for i in range(3)}
    assert client.err == dict.fromkeys(range(3), b"err\n")
    assert client.closed == {(letter, i) for letter in "OE" for i in range(3)}
    assert {i: task.wstatus for i, task in status.tasks.items()} == {0: 0, 1: 1 << 8, 2: 2 << 8}
    assert status.wstatus == 2 << 8 and status.cause == "none" and status.failed is None
    words = [line.split() for line in step.lines]
    assert [word[:3] for word in words[:3]] == [["task", str(i), "started"] for i in range(3)]
    assert sorted(word[1] for word in words[3:6]) == ["0", "1", "2"]
    assert [word[0] for word in words[6:]] == ["ended", "released"]


def test_identity_of_a_task(start: Start, client: Client) -> None:
    script = (
        "id -u; id -g; pwd; umask; echo $SHARED $OWN $BOTH $SLURM_TASK_PID $$; ulimit -Sn; "
        "cat /proc/self/oom_score_adj; grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2; "
        "ls /proc/self/fd; ps -o pgid=,sid= -p $$"
    )
    status = run(
        start,
        client,
        [
            *tasks(2, script, own=lambda i: [("tenv", f"OWN=own{i}"), ("tenv", f"BOTH=t{i}")]),
            ("env", "SHARED=s"),
            ("env", "BOTH=step"),
            ("pid_env", "SLURM_TASK_PID"),
            ("umask", "0027"),
            ("rlimit_nofile", "200:200"),
        ],
    )
    leader = status.tasks[0].pid
    for i in range(2):
        lines = client.out[i].decode().split("\n")
        uid = os.stat(start.out).st_uid
        assert lines[0] == str(uid) and lines[2] == str(start.out) and lines[3] == "0027"
        pid = status.tasks[i].pid
        assert lines[4] == f"s own{i} t{i} {pid} {pid}"
        assert lines[5] == "200"
        assert lines[7:9] == ["0" * 16] * 2
        assert lines[9:13] == ["0", "1", "2", "3"]  # 3: ls reads the folder
        # as with Slurm: the tasks of a node share a process group
        pgid, sid = lines[13].split()
        assert pgid == str(leader) and sid not in (pgid, str(pid))


@pytest.mark.parametrize("number", [1, 64])
def test_a_task_is_bound_to_its_cpus(start: Start, client: Client, number: int) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    last = allowed[-1]
    script = "grep Cpus_allowed_list /proc/self/status | cut -f2"
    run(start, client, tasks(number, script, own=lambda i: [("tcpus", str(last))]))
    assert client.out == {i: f"{last}\n".encode() for i in range(number)}


def test_cpus_that_are_not_there_are_said(start: Start, client: Client) -> None:
    status = run(start, client, tasks(1, "echo ran", own=lambda i: [("tcpus", "4000-4001,5000")]))
    assert client.out[0] == b"ran\n" and status.wstatus == 0
    assert re.fullmatch(
        STAMP + r"sched_setaffinity\(4000-4001,5000\) failed: Invalid argument\n",
        client.err[0].decode(),
    )


def test_arguments_of_its_own(start: Start, client: Client) -> None:
    records: Records = [("arg", "echo"), ("arg", "shared"), ("ntasks", 5)]
    records += [("task", 1), ("targ", "echo"), ("targ", "mine"), ("targ", ""), ("targ", "x y")]
    records += [("task", 4)]
    run(start, client, records)
    assert client.out == {1: b"mine  x y\n", 4: b"shared\n"}


def test_a_program_is_found_as_slurm_finds_it(start: Start, client: Client) -> None:
    """Measured with Slurm 22.05 and golden 037: the first file of that name in PATH counts,
    executable or not; folders do not; else the working directory."""
    out = start.out
    for folder, body, mode in [("p1", "x\n", 0o644), ("p2", "#!/bin/sh\necho p2\n", 0o755)]:
        (out / folder).mkdir()
        (out / folder / "prog").write_text(body)
        (out / folder / "prog").chmod(mode)
    (out / "d" / "prog").mkdir(parents=True)
    (out / "here").write_text("#!/bin/sh\necho in cwd\n")
    (out / "here").chmod(0o755)
    (out / "bad").write_text("#!/nonexistent/interp\n")
    (out / "bad").chmod(0o755)
    plain = "/usr/bin:/bin"
    cases: list[tuple[str, str, int, str, str]] = [
        ("prog", f"{out}/d:{out}/p2:{plain}", 0, "p2\n", ""),
        ("prog", f"{out}/p1:{out}/p2", 13, "", rf"execve\(\): {out}/p1/prog: Permission denied"),
        ("here", plain, 0, "in cwd\n", ""),
        ("p2/prog", plain, 0, "p2\n", ""),
        ("nosuch", plain, 2, "", r"execve\(\): nosuch: No such file or directory"),
        ("bad", plain, 2, "", r"execve\(\): bad interpreter\(/nonexistent/interp\): No such .*"),
        ("/etc/passwd", plain, 13, "", r"execve\(\): /etc/passwd: Permission denied"),
    ]
    records: Records = [("ntasks", len(cases))]
    for i, (name, path, _, _, _) in enumerate(cases):
        records += [("task", i), ("targ", name), ("tenv", f"PATH={path}")]
    status = run(start, client, [("arg", "x"), *records])
    for i, (_, _, code, stdout, stderr) in enumerate(cases):
        assert status.tasks[i].wstatus == code << 8
        assert client.out[i].decode() == stdout
        assert re.fullmatch(STAMP + stderr + "\n" if stderr else "", client.err[i].decode())
    assert status.failed is None  # srun tells of such tasks as of any other


def test_without_path_a_name_is_of_the_working_directory(start: Start, client: Client) -> None:
    out = start.out
    (out / "env").write_text("#!/bin/sh\necho mine\n")
    (out / "env").chmod(0o755)
    records = [(key, value) for key, value in tasks(1, "") if key != "arg"]
    step = start("", ("arg", "env"), *records, *client.records(), out="", path="")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out[0] == b"mine\n"


def test_missing_working_directory_is_told_by_every_task(start: Start, client: Client) -> None:
    run(start, client, tasks(2, "pwd"), cwd="/nonexistent")
    message = r"couldn't chdir to `/nonexistent': No such file or directory: going to /tmp instead"
    for i in range(2):
        assert client.out[i] == b"/tmp\n"
        assert re.fullmatch(STAMP + message + "\n", client.err[i].decode())


def test_signals_reach_all_or_one(start: Start, client: Client) -> None:
    script = (
        "trap 'echo usr1; exit 8' USR1; trap 'echo usr2; exit 9' USR2; echo up; "
        "while :; do sleep 0.05; done"
    )
    step = start("", *tasks(3, script, first=4, total=7), *client.records(), out="")
    client.until(lambda: all(client.out[i] == b"up\n" for i in (4, 5, 6)))
    step.tell(f"signal {int(signal.SIGUSR2)} 5")
    step.until("task 5 ended")
    step.tell(f"signal {int(signal.SIGUSR1)} all")
    status = step.finish()
    client.finish()
    assert {i: task.wstatus for i, task in status.tasks.items()} == {
        4: 8 << 8,
        5: 9 << 8,
        6: 8 << 8,
    }
    assert all(b"usr1" in client.out[i] for i in (4, 6))


def test_bad_words_for_signals(start: Start, client: Client) -> None:
    step = start("", *tasks(1, "echo up; read x"), *client.records(), out="")
    client.until(lambda: client.out[0])
    with step.connect() as ctl:
        for bad in (b"signal 10 batch", b"signal 10 1", b"signal 10 -1", b"signal 0 0"):
            ctl.sendall(bad + b"\n")
            assert ctl.recv(200).startswith(b"error "), bad
    client.feed(0, b"\n")
    assert step.finish().wstatus == 0


@pytest.mark.parametrize(
    ("word", "words", "wstatus"),
    [
        ("kill cancelled", " DUE to SIGNAL Terminated", 15),  # golden 039
        ("kill9 cancelled", " DUE to SIGNAL Killed", 9),
        ("kill task_failure", " DUE TO TASK FAILURE", 15),  # golden 037
        ("kill9 silent", None, 9),
    ],
)
def test_a_kill_is_told_on_the_error_output(
    start: Start, client: Client, word: str, words: str | None, wstatus: int
) -> None:
    step = start(
        "", *tasks(2, "echo up; exec sleep 300", first=3, total=5), *client.records(), label=LABEL
    )
    client.until(lambda: client.out[3] and client.out[4])
    step.tell(word)
    status = step.finish()
    client.finish()
    assert [task.wstatus for task in status.tasks.values()] == [wstatus] * 2
    assert [task.cause for task in status.tasks.values()] == ["killed"] * 2
    line = rf"\*\*\* STEP 7\.0 ON gpu01 CANCELLED AT \S+{re.escape(words or '')} \*\*\*\n"
    assert re.fullmatch(STAMP + line if words else "", client.err[3].decode())
    assert client.err[4] == b""


def test_only_the_first_node_of_a_step_tells_of_its_kill(start: Start) -> None:
    """Measured with Slurm 22.05: scancel of a step on two nodes."""
    with contextlib.closing(Client(nodes=2)) as pair:
        steps = [
            start(
                "",
                *tasks(1, "echo up; exec sleep 300", first=i, total=2),
                *pair.records(i),
                label=f"STEP 7.0 ON gpu0{i + 1}",
                out="",
            )
            for i in range(2)
        ]
        pair.until(lambda: len(pair.out) == 2)
        for step in steps:
            step.tell("kill cancelled")
            assert step.finish().wstatus == 15
        pair.finish()
        assert b"STEP 7.0 ON gpu01 CANCELLED" in pair.err[0] and not pair.err[1]


def test_time_limit_of_a_step(start: Start, client: Client) -> None:
    status = run(start, client, tasks(2, "exec sleep 300"), limit=1)
    assert [(task.wstatus, task.cause) for task in status.tasks.values()] == [(15, "timeout")] * 2
    assert re.search(r"DUE TO TIME LIMIT \*\*\*\n$", client.err[0].decode())  # golden 031


def test_what_tasks_leave_behind_is_killed_at_once(start: Start, client: Client) -> None:
    """As Slurm: no SIGTERM, no KillWait for what outlives the last task."""
    begun = time.monotonic()
    script = "(trap '' TERM; echo > up; while :; do sleep 0.1; done) & echo $! > stray; "
    step = start(
        "",
        *tasks(1, script + "while [ ! -e up ]; do sleep 0.01; done; exit 4"),
        *client.records(),
        killwait=60,
        out="",
    )
    assert step.finish().wstatus == 4 << 8
    client.finish()
    assert not alive(int(text(step, "stray"))) and time.monotonic() - begun < 20


def test_files_that_cannot_be_opened_end_the_whole_step(start: Start, client: Client) -> None:
    def own(i: int) -> Records:
        return [("tstdout", "/proc/no-such/x")] if i == 1 else []

    status = run(start, client, tasks(2, "exec sleep 300", own=own))
    assert status.failed is not None and status.failed[0] == 2
    assert status.failed[1].startswith("open: Could not open stdout file /proc/no-such/x: ")
    assert status.tasks[1].wstatus == 53 and status.tasks[0].wstatus == 9
    assert status.wstatus == 53


def test_a_client_that_cannot_be_called_ends_the_step(start: Start) -> None:
    with_nobody: Records = [("io", "127.0.0.1:1"), ("io_secret", "00" * 32)]
    step = start("", *tasks(2, "exec sleep 300"), *with_nobody, out="")
    status = step.finish()
    assert status.failed == (111, "io: could not connect to the client: Connection refused")
    assert [task.wstatus for task in status.tasks.values()] == [9, 9]


def test_without_a_client_streams_are_of_null(start: Start) -> None:
    script = "ls -l /proc/$$/fd > found$SLURM_PROCID"
    step = start("", *tasks(2, script))
    assert step.finish().wstatus == 0
    for i in range(2):
        assert text(step, f"found{i}").count("-> /dev/null") == 3
    assert {path.name for path in step.dir.iterdir()} == {"spec", "status"}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (b"task=0\0", "nothing to run"),
        (b"arg=x\0task=1\0", "out of order"),
        (b"arg=x\0ntasks=3\0task=2\0task=1\0", "out of order"),
        (b"arg=x\0task=0\0tstdin=rel\0", "tstdin=rel"),
        (b"arg=x\0task=0\0tcpus=a\0", "tcpus=a"),
        (b"arg=x\0targ=x\0task=0\0", "targ=x"),
        (b"arg=x\0io=host\0task=0\0", "io=host"),
        (b"arg=x\0io_secret=12\0task=0\0", "io_secret=12"),
        (b"arg=x\0io_index=1\0task=0\0", "no place"),
        (b"arg=x\0stdin_task=-3\0task=0\0", "stdin_task=-3"),
        (b"arg=x\0pmi_jobid=a;b\0task=0\0", "pmi_jobid"),
    ],
)
def test_a_bad_order_is_a_recorded_failure(
    binary: Path, tmp_path: Path, spec: bytes, says: str
) -> None:
    (tmp_path / "spec").write_bytes(spec)
    done = subprocess.run([binary, "--check", tmp_path / "spec"], capture_output=True, text=True)
    assert done.returncode == 1 and says in done.stderr


def test_a_follower_gets_it_all_told_again(start: Start, client: Client) -> None:
    script = '[ "$SLURM_PROCID" = 1 ] && exit 1; read x; exit "$SLURM_PROCID"'
    step = start("", *tasks(3, script), *client.records(), out="")
    client.until(lambda: 0 in client.connections)
    step.until("task 1 ended")  # its process is told of all the same
    with step.connect() as ctl:
        ctl.sendall(b"watch\n")
        got = ctl.recv(4096)
        client.feed(0xFFFFFFFF, b"go\n" * 3)
        while b"released" not in got:
            data = ctl.recv(4096)
            assert data
            got += data
    again = Status()
    for line in got.decode().splitlines():
        assert again.feed(line)
    final = step.finish()
    final.stepd_pid, final.state = again.stepd_pid, again.state
    assert again == final


def test_five_hundred_tasks(start: Start, client: Client) -> None:
    status = run(start, client, tasks(500, "exit 0"))
    assert len(status.tasks) == 500
    assert all(task.wstatus == 0 and task.pid for task in status.tasks.values())
    assert len(client.closed) == 1000


def test_many_short_children_do_no_harm(start: Start, client: Client) -> None:
    """Orphans of tasks become the supervisor's children, by the thousand."""
    script = "for i in $(seq 300); do (/bin/true &) ; done; exit 6"
    status = run(start, client, tasks(4, script))
    assert [task.wstatus for task in status.tasks.values()] == [6 << 8] * 4


def test_a_fork_bomb_in_a_step_ends(start: Start, client: Client) -> None:
    bomb = (
        "trap '' TERM; while :; do (trap '' TERM; sleep 0.05; (sleep 0.01) & ) & sleep 0.005; done"
    )
    step = start("", *tasks(2, f"ulimit -u 4000; echo up; {bomb}"), *client.records(), killwait=1)
    client.until(lambda: len(client.out) == 2)
    time.sleep(0.3)
    step.tell("kill cancelled")
    assert [task.wstatus for task in step.finish().tasks.values()] == [9, 9]
    client.finish()


def test_a_task_that_closes_everything(start: Start, client: Client) -> None:
    """Its outputs end, PMI too; the step goes on as long as it does."""
    script = 'for fd in $(ls /proc/$$/fd); do eval "exec $fd>&-"; done; : > closed; '
    script += "while [ ! -e go ]; do sleep 0.02; done; exit 7"
    step = start("", *tasks(1, script), ("pmi", 2), *client.records(), out="")
    client.until(lambda: ("O", 0) in client.closed)
    step.until("task 0 started")
    (step.out / "go").touch()
    assert step.finish().wstatus == 7 << 8
    client.finish()


# -- the programs around a task


def program(start: Start, name: str, body: str) -> str:
    path = start.out / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_task_prologs_change_environment_and_output(start: Start, client: Client) -> None:
    """Measured with Slurm 22.05: printed lines go to the task's output, other output and the
    error output nowhere; the cluster's program comes first."""
    first = program(
        start,
        "first",
        'echo "export FOO=from $SLURM_TASK_PID $SLURM_PROCID"; echo "print hello  printed"\n'
        'echo "unset BAR"; echo junk; echo "export SP = x"; echo "export BOTH=1"; echo err >&2\n'
        'echo "print $SLURM_SCRIPT_CONTEXT $(readlink /proc/self/fd/0) $(id -u)"',
    )
    second = program(start, "second", 'echo "print second $FOO"; echo "export BOTH=${BOTH}2"')
    script = 'echo "FOO=$FOO BAR=$BAR SP=$SP BOTH=$BOTH CONTEXT=$SLURM_SCRIPT_CONTEXT"'
    status = run(
        start,
        client,
        [
            *tasks(2, script),
            ("env", "BAR=1"),
            ("pid_env", "SLURM_TASK_PID"),
            ("task_prolog", first),
            ("user_task_prolog", second),
        ],
    )
    uid = os.stat(start.out).st_uid
    for i in range(2):
        foo = f"from {status.tasks[i].pid} {i}"
        assert client.out[i].decode().splitlines() == [
            "hello  printed",
            f"prolog_task /dev/null {uid}",
            f"second {foo}",
            f"FOO={foo} BAR= SP= x BOTH=12 CONTEXT=",
        ]
        assert client.err[i] == b""


def test_a_failing_task_prolog_ends_its_task(start: Start, client: Client) -> None:
    """Measured with Slurm 22.05: the task has the prolog's exit code and is not run."""
    path = program(start, "fails", '[ "$SLURM_PROCID" = 0 ] || exit 3')
    status = run(start, client, [*tasks(2, "echo ran"), ("user_task_prolog", path)])
    assert {i: task.wstatus for i, task in status.tasks.items()} == {0: 0, 1: 3 << 8}
    assert client.out == {0: b"ran\n"}
    line = STAMP + r"--task-prolog failed status=3\n"
    assert re.fullmatch(line, client.err[1].decode()) and client.err[0] == b""


@pytest.mark.parametrize(
    ("key", "what", "name"),
    [
        ("task_prolog", "slurm task_prolog", "TaskProlog"),
        ("user_task_prolog", "user task_prolog", "--task-prolog"),
    ],
)
def test_a_task_prolog_that_is_not_there(
    start: Start, client: Client, key: str, what: str, name: str
) -> None:
    status = run(start, client, [*tasks(1, "echo ran"), (key, "/nonexistent/x")])
    assert status.wstatus == 1 << 8 and not client.out
    assert re.fullmatch(
        STAMP + rf"run_command: {what} can not be executed \(/nonexistent/x\) No such file or "
        r"directory\n" + STAMP + rf"{what} did not exit normally\. reason: Run command failed - "
        r"configuration error\n" + STAMP + rf"{name} failed status=1\n",
        client.err[0].decode(),
    )


def test_task_epilogs(start: Start, client: Client) -> None:
    """Measured with Slurm 22.05: the user's first, both as the user, with the task's environment,
    nothing of their output but what they write to the error output of the first task."""
    first = program(
        start,
        "first",
        "echo first $SLURM_PROCID $SLURM_TASK_PID $OWN $SLURM_SCRIPT_CONTEXT $(id -u) "
        "$(readlink /proc/self/fd/0) $PWD >> epilogs; echo lost; echo told >&2",
    )
    second = program(start, "second", "echo second >> epilogs")
    status = run(
        start,
        client,
        [
            *tasks(2, "exit 5", own=lambda i: [("tenv", f"OWN=o{i}")]),
            ("pid_env", "SLURM_TASK_PID"),
            ("user_task_epilog", first),
            ("task_epilog", second),
        ],
    )
    assert [task.wstatus for task in status.tasks.values()] == [5 << 8] * 2
    uid = os.stat(start.out).st_uid
    lines = (start.out / "epilogs").read_text().splitlines()
    wanted = [
        f"first {i} {status.tasks[i].pid} o{i} epilog_task {uid} /dev/null {start.out}"
        for i in range(2)
    ]
    assert sorted(lines) == [*wanted, "second", "second"]
    assert lines[0] != "second" and lines[-1] == "second"
    assert client.err == {0: b"told\ntold\n"} and not client.out


@pytest.mark.parametrize("word", ["kill", "kill9"])
def test_epilogs_run_after_a_kill_too(start: Start, client: Client, word: str) -> None:
    """Measured with Slurm 22.05: scancel -s KILL and -s TERM of a step."""
    path = program(start, "epilog", "sleep 0.2; echo $SLURM_PROCID >> epilogs")
    records = [*tasks(2, "trap '' TERM; echo up; sleep 300"), ("user_task_epilog", path)]
    step = start("", *records, *client.records(), out="", killwait=1)
    client.until(lambda: len(client.out) == 2)
    step.tell(f"{word} cancelled")
    status = step.finish()
    assert [task.wstatus for task in status.tasks.values()] == [9, 9]
    assert sorted((start.out / "epilogs").read_text().split()) == ["0", "1"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exit 3", ["TaskEpilog failed status=768"]),
        (None, [r"Could not run user task_epilog \[\S+/epilog\]: access denied",
                "TaskEpilog failed status=-1"]),
    ],
)  # fmt: skip
def test_an_epilog_that_fails_is_told_and_changes_nothing(
    start: Start, client: Client, body: str | None, words: list[str]
) -> None:
    path = program(start, "epilog", body) if body else f"{start.out}/epilog"
    status = run(start, client, [*tasks(1, "exit 0"), ("user_task_epilog", path)])
    assert status.wstatus == 0 and status.failed is None
    pattern = "".join(STAMP + word + r"\n" for word in words)
    assert re.fullmatch(pattern, client.err[0].decode())


def test_an_epilog_that_does_not_end_is_killed(start: Start, client: Client) -> None:
    """After 5 s, with its descendants, as with Slurm 22.05."""
    path = program(start, "epilog", "sleep 300 & echo $! > child; wait")
    begun = time.monotonic()
    step = start(
        "", *tasks(1, "exit 4"), ("user_task_epilog", path), *client.records(), label=LABEL, out=""
    )
    assert step.finish().wstatus == 4 << 8
    client.finish()
    assert 4.5 < time.monotonic() - begun < 12
    assert re.fullmatch(STAMP + r"TaskEpilog failed status=9\n", client.err[0].decode())
    assert not alive(int(text(step, "child")))


@pytest.mark.root
def test_a_task_out_of_memory(start: Start, client: Client) -> None:
    groups = Cgroups(f"gsched-test-{os.getpid()}/steps")
    if not groups.version:
        pytest.skip(groups.not_enforced()[0])
    handle = groups.create(7, 1, memory_mb=60, cpus=[max(os.sched_getaffinity(0))])
    if handle.not_enforced:
        pytest.skip(handle.not_enforced[0])
    joins: Records = [("cgroup_procs", path) for path in handle.procs_files]
    kills: Records = [("cgroup_kill", path) for path in handle.kill_dirs]
    script = '[ "$SLURM_PROCID" = 0 ] || x=$(head -c 200000000 /dev/zero | tr "\\0" x); sleep 2'
    status = run(start, client, [*tasks(2, script), *joins, *kills])
    assert (status.tasks[1].wstatus, status.tasks[1].cause) == (9, "oom")
    assert status.tasks[0].wstatus == 0 and status.cause == "oom"
    assert re.fullmatch(
        STAMP + r"Detected 1 oom_kill event in StepId=7\.0\. Some of the step tasks have been OOM "
        r"Killed\.\n",
        client.err[0].decode(),
    )
    assert handle.pids() == [] and handle.remove()
    groups.close()


def test_tasks_that_write_one_file(start: Start, client: Client) -> None:
    """As with srun -o out-%N: each step makes the file empty once, before any task has written."""
    path = start.out / "one"
    for _ in range(5):
        records: Records = [("arg", "sh"), ("arg", "-c"), ("arg", "echo line"), ("ntasks", 12)]
        for task in range(12):
            records += [("task", task), ("tstdout", str(path)), ("tstderr", str(path))]
        run(start, client, records)
        assert path.read_text() == "line\n" * 12
