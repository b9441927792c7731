"""Turns an attempt into a job directory and a supervisor, and finds living supervisors again.

SPOOL/job00017/slurm_script     what the user submitted; the user may read and run it
SPOOL/job00017/environment      what was submitted with it
SPOOL/job00017/status ctl       stepd's own (see stepd.c)
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gsched import environment, patterns
from gsched.config import Config
from gsched.wire.nodes import LaunchSpec
from gsched.wire.paths import reachable
from slurmd_compat import containers, notices, stepd
from slurmd_compat.agent import Key, Record
from slurmd_compat.failure import LaunchError
from slurmd_compat.hooks import LOGIN_FILE
from slurmd_compat.links import Link
from slurmd_compat.removal import remove_later
from slurmd_compat.stepd import Status, encode_spec, read_status

SCRIPT = "slurm_script"
ENVIRONMENT = "environment"

#: what a job's rlimits may be called -> stepd's word for it
_RLIMITS = {
    "as": resource.RLIMIT_AS,
    "core": resource.RLIMIT_CORE,
    "cpu": resource.RLIMIT_CPU,
    "data": resource.RLIMIT_DATA,
    "fsize": resource.RLIMIT_FSIZE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "rss": resource.RLIMIT_RSS,
    "stack": resource.RLIMIT_STACK,
}
_INFINITE = 0xFFFFFFFFFFFFFFFF

#: stepd's word for the line in the job's error file, by the cause of the kill
_CAUSES = {
    "timeout": "timeout",
    "inactive": "timeout",
    "requeue": "requeue",
    "preempted": "preempted",
    "preempt": "preempted",
    "node": "node_fail",
    "cancelled": "cancelled",
    "oom": "oom",
}


@dataclass
class Grant:
    """What a share of an attempt was given on this node."""

    #: CUDA_VISIBLE_DEVICES, SLURM_JOB_GPUS ...
    variables: dict[str, str] = field(default_factory=dict)
    #: files that take the first process's pid
    cgroup_procs: list[str] = field(default_factory=list)
    #: cgroups that hold the whole step
    cgroup_kill: list[str] = field(default_factory=list)
    #: of a step: the variables of a task that has only these of its GPUs (bits of the allocation)
    of_gpus: Callable[[int], dict[str, str]] = lambda _: {}
    #: the machine's CPUs for abstract ones; None: it has not all of them
    machine_cpus: Callable[[int], list[int] | None] = lambda _: None


class Launcher:
    """Starts and finds supervisors below one spool directory. `grant` gives an attempt its GPUs,
    CPUs and cgroups on this node and raises LaunchError; it is undone by whoever cleans up."""

    def __init__(
        self,
        config: Config,
        node: str,
        spool: Path,
        grant: Callable[[Key, LaunchSpec], Grant],
        stepd_path: str = "",
    ) -> None:
        self.config = config
        self.node = node
        self.spool = spool
        self.grant = grant
        self.stepd = stepd_path or str(stepd.program())
        self.root = os.geteuid() == 0
        self._groups: dict[tuple[int, int], tuple[float, str]] = {}
        self._hard = {name: resource.getrlimit(which)[1] for name, which in _RLIMITS.items()}

    # -- the directory

    def directory(self, key: Key) -> Path:
        """The job's directory; later attempts have one of their own."""
        return notices.directory(self.spool, key)

    def write_job(self, key: Key, launch: LaunchSpec) -> None:
        """Makes the directory with script and environment. OSError leaves nothing behind."""
        directory = self.directory(key)
        job = launch.job
        try:
            # 0711: the user may reach the script but not look around.
            os.mkdir(directory, 0o711)
        except FileExistsError:
            # Of an attempt that never came into the journal.
            remove_later(directory, self.spool)
            os.mkdir(directory, 0o711)
        try:
            script = directory / SCRIPT
            _write(script, launch.script, 0o500)
            if self.root:
                os.chown(script, job.uid, job.gid)
            _write(directory / ENVIRONMENT, launch.environment, 0o600)
            notices.make_marks(directory, job.uid, job.gid, root=self.root)
        except OSError:
            remove_later(directory, self.spool)
            raise

    def remove(self, key: Key) -> None:
        """Removes the directory; what cannot be removed now is removed at the next start."""
        remove_later(self.directory(key), self.spool)

    def orphans(self, known: Iterable[Key]) -> list[Path]:
        """Job directories that no attempt in the journal owns."""
        mine = {self.directory(key) for key in known}
        return [path for path in self.spool.glob("job[0-9]*") if path not in mine]

    def login_file(self, key: Key) -> Path:
        return self.directory(key) / LOGIN_FILE

    # -- starting

    def spawn(self, record: Record) -> Link:
        """Starts the attempt's supervisor; raises LaunchError. About 1 ms."""
        key, launch = record.key, record.launch
        if not self.root and launch.job.uid not in (0, os.geteuid()):
            # All here runs as this daemon's user: another's job would get that user's rights.
            raise LaunchError(
                f"{self.node} runs jobs only for uid {os.geteuid()}, not for uid {launch.job.uid}"
            )
        directory = self.directory(key)
        grant = self.grant(key, launch)
        try:
            submitted = (directory / ENVIRONMENT).read_bytes()
            spec = encode_spec(self._spec(record, directory, submitted, grant))
        except (OSError, ValueError) as error:
            raise LaunchError(f"could not prepare the job's start: {error}") from None
        return start(self.stepd, key, directory, spec)

    def adopt(self, key: Key) -> Link | None:
        """A link to the attempt's living supervisor, which tells it all again; None if there is
        none (then `read_status` says what it left)."""
        return join(key, self.directory(key))

    def left(self, key: Key) -> Status | None:
        """What a dead supervisor recorded; None if none ever began."""
        return read_status(self.directory(key))

    def _spec(
        self, record: Record, directory: Path, submitted: bytes, grant: Grant
    ) -> list[tuple[str, str | bytes | int]]:
        launch = record.launch
        job = launch.job
        spec = job.spec
        login = None
        if spec.get_user_env or environment.wants_login(spec.export):
            login = self._login(record.key, job.uid)
        variables = environment.batch_environment(
            job,
            launch.node_index,
            self.config,
            submitted,
            now=int(time.time()),
            gpus=grant.variables,
            login=login,
            components=launch.components,
        )
        part = job.alloc[launch.node_index]
        stdin, stdout, stderr = patterns.batch_files(job, self.node)
        append = spec.open_mode == "append" or (
            not spec.open_mode and self.config.raw.get("jobfileappend", "0") == "1"
        )
        script = str(directory / SCRIPT)
        image = containers.of_script(spec, script)
        containers.say(image, variables)
        items: list[tuple[str, str | bytes | int]] = [
            *(("arg", arg) for arg in containers.entered(image, self.config, [script, *spec.args])),
            ("uid", job.uid if self.root else os.geteuid()),
            ("gid", job.gid if self.root else os.getegid()),
            ("umask", f"{spec.umask:o}"),
            ("cwd", spec.work_dir),
            ("stdin", stdin),
            ("stdout", stdout),
            ("stderr", stderr),
            ("openmode", "append" if append else "truncate"),
            ("limit", launch.limit_s),
            ("killwait", self.config.kill_wait),
            ("label", f"JOB {job.id} ON {self.node}"),
            ("pid_env", "SLURM_TASK_PID"),
        ]
        if self.root:
            items.append(("groups", self.group_list(job.uid, job.gid)))
        if spec.signal_num and spec.signal_batch:
            # Without "B:" the warning is for the steps, and the batch shell does not get it.
            items.append(("warn_signal", spec.signal_num))
            items.append(("warn_before", spec.signal_before))
        items += [("cgroup_procs", path) for path in grant.cgroup_procs]
        items += [("cgroup_kill", path) for path in grant.cgroup_kill]
        items += self.rlimits(spec.rlimits, part.mem_mb)
        items += site_hooks(self.config)
        items += [("env", name + b"=" + value) for name, value in variables.items()]
        return items

    def rlimits(self, wanted: dict[str, int], mem_mb: int) -> list[tuple[str, str]]:
        limits = {name.lower().removeprefix("rlimit_"): value for name, value in wanted.items()}
        if mem_mb and "rss" not in limits:
            limits["rss"] = mem_mb << 20
        items = []
        for name, value in limits.items():
            if name not in _RLIMITS:
                continue
            infinite = value < 0 or value >= _INFINITE
            hard = self._hard[name]
            top = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
            items.append((f"rlimit_{name}", f"{'unlimited' if infinite else value}:{top}"))
        return items

    def _login(self, key: Key, uid: int) -> dict[bytes, bytes]:
        """The login environment fetched before the start, or the little that is known of a user."""
        with contextlib.suppress(OSError):
            found = environment.parse(self.login_file(key).read_bytes())
            if found:
                found.pop(b"_", None)
                return with_commands(found)
        entry = user_entry(uid)
        if entry is None:
            number = str(uid).encode()
            return {b"USER": number, b"LOGNAME": number}
        name = entry.pw_name.encode()
        known = {
            b"HOME": os.fsencode(entry.pw_dir),
            b"LOGNAME": name,
            b"PATH": b"/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
            b"SHELL": os.fsencode(entry.pw_shell),
            b"USER": name,
        }
        return with_commands(known)

    def group_list(self, uid: int, gid: int) -> str:
        """The user's groups as stepd takes them; asked of the system once a minute at most. Not by
        the name in the job's record: that would be a way to another's groups."""
        known = self._groups.get((uid, gid))
        if known is not None and time.monotonic() - known[0] < 60:
            return known[1]
        entry = user_entry(uid)
        groups = [gid]
        if entry is not None:
            with contextlib.suppress(KeyError, OSError):
                groups = os.getgrouplist(entry.pw_name, gid)
        text = ",".join(str(group) for group in groups if group >= 0)
        self._groups[uid, gid] = (time.monotonic(), text)
        return text


def with_commands(
    login: dict[bytes, bytes], folder: Path = Path(sys.executable).parent
) -> dict[bytes, bytes]:
    """A login environment whose PATH finds the commands of this cluster: they may lie in `folder`
    that no login names (an environment of Python's), or behind those of another cluster."""
    own, path = folder / "srun", login.get(b"PATH", b"")
    if not own.exists():
        return login
    found = shutil.which("srun", path=os.fsdecode(path))
    with contextlib.suppress(OSError):
        if found is not None and os.path.samefile(found, own):
            return login
    return {**login, b"PATH": b":".join(filter(None, (os.fsencode(folder), path)))}


def start(program: str, key: Any, directory: Path, spec: bytes) -> Link:
    """Starts a supervisor for what `spec` says; raises LaunchError. About 1 ms."""
    try:
        # In memory: only the supervisor reads it, once, and a file is dear to make.
        spec_fd = os.memfd_create("spec", os.MFD_CLOEXEC)
    except OSError as error:
        raise LaunchError(f"could not prepare the job's start: {error.strerror}") from None
    try:
        _write_all(spec_fd, spec)
        os.lseek(spec_fd, 0, os.SEEK_SET)
        return _spawn(program, key, directory, spec_fd)
    except OSError as error:
        raise LaunchError(f"could not prepare the job's start: {error.strerror}") from None
    finally:
        os.close(spec_fd)


def _spawn(program: str, key: Any, directory: Path, spec_fd: int) -> Link:
    ours, theirs = socket.socketpair()
    try:
        # A descriptor put in its own place would keep its close-on-exec flag.
        fd = 3 if theirs.fileno() != 3 else 4
        pid = os.posix_spawn(
            program,
            [program, str(directory), str(fd), "-"],
            {"PATH": "/usr/bin:/bin", "TZ": os.environ.get("TZ", "")}
            if "TZ" in os.environ
            else {"PATH": "/usr/bin:/bin"},
            file_actions=[
                # First: its number may be the one that the next takes.
                (os.POSIX_SPAWN_DUP2, spec_fd, 0),
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), fd),
            ],
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGCHLD),
        )
    except OSError as error:
        ours.close()
        raise LaunchError(f"could not start {program}: {error.strerror}") from None
    finally:
        theirs.close()
    ours.setblocking(False)
    return Link(key, ours, pid)


def join(key: Any, directory: Path) -> Link | None:
    """A link to the living supervisor of a directory, which tells all again; None without one."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(reachable(str(directory / "ctl")))
        sock.send(b"watch\n")
    except OSError:
        sock.close()
        return None
    sock.setblocking(False)
    return Link(key, sock)


def site_hooks(config: Config) -> list[tuple[str, str]]:
    """TaskProlog and TaskEpilog as the supervisor takes them; they go with scripts as well. A path
    that is none is not run."""
    found = [
        (f"task_{which}", config.raw.get(f"task{which}", "")) for which in ("prolog", "epilog")
    ]
    return [(key, path) for key, path in found if path.startswith("/")]


def user_entry(uid: int) -> pwd.struct_passwd | None:
    """What the system knows of a user; None if it knows none."""
    try:
        return pwd.getpwuid(uid)
    except (KeyError, OSError):
        return None


def kill_word(cause: str) -> str:
    """What stepd is told about the cause of a kill; "silent" leaves no line in the error file."""
    return _CAUSES.get(cause, "silent")


def kill_strays(job_id: int, node: str, conf: str, step: int | None = None) -> int:
    """Ends processes of a job, or of one of its steps, whose supervisor is gone, known by their
    environment; returns how many. Only a fallback: a cgroup knows better. Cost: a look at every
    process."""
    marks = [
        f"SLURM_JOB_ID={job_id}".encode(),
        f"SLURMD_NODENAME={node}".encode(),
        f"SLURM_CONF={conf}".encode(),
    ]
    if step is not None:
        marks.append(f"SLURM_STEP_ID={step}".encode())
    killed = 0
    for _ in range(3):
        found = 0
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    variables = set(file.read().split(b"\0"))
            except OSError:
                continue
            if all(mark in variables for mark in marks):
                with contextlib.suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
                    found += 1
        killed += found
        if not found:
            break
    return killed


def _write(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, mode)
    try:
        _write_all(fd, data)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
