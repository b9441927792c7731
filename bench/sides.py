"""The two sides of a measurement: a cluster of gsched and a real Slurm of the same shape.

Both have 4 nodes of 16 CPUs, 64000 MB and 8 GPUs on this machine, are driven through the same
commands where possible, and run inside a cpuacct control group of their own: the CPU time of every
process of a side is counted, whatever its parent, and nothing of the submitting clients.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("GSCHED_SHARED") or ROOT.parent / "shared")
NODES = 4
NAME = "bench"
TICK = os.sysconf("SC_CLK_TCK")


# ---- CPU time -----------------------------------------------------------------------------------


class Meter:
    """CPU time of all processes started through it, living or dead, seconds."""

    def __init__(self, name: str) -> None:
        self.path: Path | None = None
        self._read: Callable[[], float] = lambda: 0.0
        #: pids of daemons, counted with their dead children where there is no control group
        self.pids: list[int] = []
        v1, v2 = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")
        if (v1 / "cpuacct.usage").exists():
            self._make(v1, name, lambda p: int((p / "cpuacct.usage").read_text()) / 1e9)
        elif (v2 / "cgroup.procs").exists():
            self._make(v2, name, _usage_v2)

    def _make(self, top: Path, name: str, read: Callable[[Path], float]) -> None:
        path = top / f"{name}-{os.getpid()}"
        with contextlib.suppress(OSError):
            path.mkdir(exist_ok=True)
            (path / "cgroup.procs").open("w").close()
            self.path = path
            self._read = lambda: read(path)

    @property
    def how(self) -> str:
        return "cpuacct control group" if self.path else "/proc: daemons and what they waited for"

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` and all it starts within the meter."""
        if self.path is None:
            return list(argv)
        join = 'echo $$ > "$0"/cgroup.procs && exec "$@"'
        return ["/bin/sh", "-c", join, str(self.path), *argv]

    def cpu_s(self) -> float:
        return self._read() if self.path else sum(map(process_tree_s, self.pids))

    def processes(self) -> list[int]:
        if self.path is None:
            return list(self.pids)
        return [int(word) for word in (self.path / "cgroup.procs").read_text().split()]

    def close(self) -> None:
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.rmdir()


def _usage_v2(path: Path) -> float:
    found = re.search(r"^usage_usec (\d+)", (path / "cpu.stat").read_text(), re.M)
    return int(found[1]) / 1e6 if found else 0.0


def _times(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return [0, 0, 0, 0]
    return [int(word) for word in text.rpartition(")")[2].split()[11:15]]


def process_s(pid: int) -> float:
    """User and system time of one process, seconds."""
    return sum(_times(pid)[:2]) / TICK


def process_tree_s(pid: int) -> float:
    """The same with the children that it waited for."""
    return sum(_times(pid)) / TICK


def rss_mb(pid: int, kind: str = "VmRSS") -> float:
    """Resident memory; kind "RssAnon": without the pages of mapped files (LMDB's database)."""
    found = re.search(rf"^{kind}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1]) / 1024 if found else 0.0


def comm(pid: int) -> str:
    """What a process is called in a table: a daemon by its role, else by the kernel's name."""
    try:
        words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"
    for module, role in (
        ("gsched.controller.main", "controller"),
        ("gsched.frontend.main", "frontend"),
        ("gsched.frontend.worker", "frontend"),
        ("slurmd_compat.main", "slurmd"),
        ("gsched.accounting.main", "accounting"),
    ):
        if module in words:
            return role
    return name


@dataclass
class Cpu:
    """CPU milliseconds between two looks: everything, and the part of each daemon."""

    total: float
    by_daemon: dict[str, float]

    def per(self, jobs: int) -> str:
        parts = sorted(self.by_daemon.items(), key=lambda item: -item[1])
        text = ", ".join(f"{name} {ms / jobs:.2f}" for name, ms in parts if ms / jobs >= 0.005)
        return f"{self.total / jobs:.2f} ms a job ({text})"


@dataclass
class Look:
    """What a meter shows at one moment."""

    total: float
    daemons: dict[int, tuple[str, float]] = field(default_factory=dict)

    @classmethod
    def at(cls, meter: Meter) -> Look:
        daemons = {pid: (comm(pid), process_s(pid)) for pid in meter.processes()}
        return cls(meter.cpu_s(), daemons)

    def until(self, later: Look) -> Cpu:
        found: dict[str, float] = {}
        for pid, (name, seconds) in later.daemons.items():
            if pid in self.daemons:
                spent = 1000 * (seconds - self.daemons[pid][1])
                found[name] = found.get(name, 0.0) + spent
        total = 1000 * (later.total - self.total)
        found["jobs and their supervisors"] = max(0.0, total - sum(found.values()))
        return Cpu(total, found)


# ---- the sides ----------------------------------------------------------------------------------


class SideProblem(Exception):
    """A side cannot be measured here; the text says why."""


class Side:
    """A running cluster with Slurm's commands. Use as a context."""

    name = ""

    def __init__(self) -> None:
        self.meter = Meter(f"bench-{self.name}")
        self.work = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self.work.chmod(0o1777)
        self.env: dict[str, str] = {}

    def __enter__(self) -> Side:
        try:
            self.up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.down()
        finally:
            self.meter.close()
            shutil.rmtree(self.work, ignore_errors=True)

    def up(self) -> None:
        raise NotImplementedError

    def down(self) -> None:
        raise NotImplementedError

    def run(self, *argv: str, check: bool = True) -> str:
        """Runs a command against this side, outside its meter; returns what it printed."""
        done = subprocess.run(
            argv, env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True
        )
        if check and done.returncode:
            raise SideProblem(f"{' '.join(argv)}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    def script(self, body: str, shell: str = "/bin/sh") -> str:
        """A script file that both sides can submit."""
        path = self.work / f"script{len(list(self.work.iterdir()))}.sh"
        path.write_text(f"#!{shell}\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def submit(self, *argv: str) -> int:
        """One job through sbatch."""
        return int(self.run("sbatch", "--parsable", "-J", NAME, *argv).split(";")[0])

    def submit_many(self, count: int, *argv: str) -> list[int]:
        """`count` equal jobs; ids in any order."""
        found: list[int] = []
        left = [count]
        lock = threading.Lock()

        def loop() -> None:
            while True:
                with lock:
                    if not left[0]:
                        return
                    left[0] -= 1
                for _ in range(20):
                    with contextlib.suppress(SideProblem):
                        found.append(self.submit(*argv))
                        break
                    time.sleep(0.2)

        threads = [threading.Thread(target=loop) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(found) != count:
            raise SideProblem(f"only {len(found)} of {count} jobs could be submitted")
        return found

    def drain(self) -> None:
        """No job starts from now on."""
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    def there(self, job: int) -> bool:
        """True while the job is pending, running or completing. Cheap for the cluster."""
        raise NotImplementedError

    def active(self) -> int:
        """How many such jobs there are."""
        raise NotImplementedError

    def wait_empty(self, last: int | None = None, timeout: float = 600, poll: float = 0.02) -> None:
        """Until no job is left; `last` is looked at first, as it is the cheaper question."""
        until = time.monotonic() + timeout
        while (last is not None and self.there(last)) or self.active():
            if time.monotonic() > until:
                raise SideProblem(f"{self.name}: {self.active()} jobs are left after {timeout} s")
            time.sleep(poll)


class Gsched(Side):
    """`gsched up --simulate peer`."""

    name = "gsched"

    def __init__(self, *options: str) -> None:
        super().__init__()
        self.options = options
        self.dir = self.work / "cluster"
        self.conf = self.dir / "etc" / "slurm.conf"
        self.env = {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "SLURM_CONF": str(self.conf),
            "HOME": os.environ.get("HOME", "/"),
            "USER": os.environ.get("USER", "root"),
        }

    def up(self) -> None:
        argv = ["gsched", "up", "--simulate", "peer", "--nodes", str(NODES), "--dir", str(self.dir)]
        self.run(*self.meter.inside([*argv, "-q", *self.options]))
        from gsched.client import Client

        self.client = Client(str(self.dir / "run" / "frontend.sock"), slurm_conf=str(self.conf))
        for path in (self.dir / "run").glob("*.pid"):
            self.meter.pids.append(int(path.read_text()))

    def down(self) -> None:
        if self.conf.exists():
            self.run("gsched", "down", "--purge", "--dir", str(self.dir), check=False)

    def pid(self, daemon: str) -> int:
        """Of "slurmctld", "frontend", "slurmd.node1" ..."""
        return int((self.dir / "run" / f"{daemon}.pid").read_text())

    def submit_many(self, count: int, *argv: str) -> list[int]:
        """What sbatch makes of `argv` once, repeated through the typed client."""
        from gsched.wire.messages import BlobQuery, Done, JobQuery, SubmitJob

        first = self.submit(*argv)
        job = self.client.jobs(JobQuery(ids=[first])).jobs[0]
        script = self.client.blob(BlobQuery(first, "script"))
        environment = self.client.blob(BlobQuery(first, "environment"))
        write = SubmitJob(job.spec, script, environment, job.user, job.group)
        replies = self.client.call_many([write] * (count - 1))
        bad = [reply for reply in replies if not isinstance(reply, Done)]
        if bad:
            raise SideProblem(f"a submission was refused: {bad[0]}")
        return [first, *(reply.value for reply in replies if isinstance(reply, Done))]

    def drain(self) -> None:
        self._state("drain")

    def resume(self) -> None:
        self._state("resume")

    def _state(self, state: str) -> None:
        from gsched.wire.messages import Done, UpdateNode

        names = [f"node{n}" for n in range(1, NODES + 1)]
        reply = self.client.call(UpdateNode(names, state, reason="bench"))
        if not isinstance(reply, Done) or reply.errors:
            raise SideProblem(f"{state} was refused: {reply}")

    def there(self, job: int) -> bool:
        from gsched.wire.messages import JobQuery

        return bool(self.client.jobs(JobQuery(ids=[job], active_only=True)).jobs)

    def active(self) -> int:
        from gsched.wire.messages import JobQuery

        return len(self.client.jobs(JobQuery(active_only=True)).jobs)


class Slurm(Side):
    """The real Slurm, through the shared folder's slurm-up; an instance of its own."""

    name = "slurm"

    def __init__(self, *options: str) -> None:
        self.program = SHARED / "peer" / "slurm-up"
        if not self.program.exists():
            raise SideProblem(f"no real Slurm to compare with: {self.program} does not exist")
        if os.geteuid() != 0:
            raise SideProblem("no real Slurm to compare with: it must be started by root")
        if shutil.which("slurmctld", path="/usr/sbin:/usr/bin") is None:
            raise SideProblem("no real Slurm to compare with: it is not installed")
        super().__init__()
        self.options = options
        self.peer = Path(os.environ.get("PEER_DIR", "/tmp/peer-bench"))
        self.env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PEER_DIR": str(self.peer),
            "PEER_PORT": os.environ.get("PEER_PORT", "20000"),
            "SLURM_CONF": str(self.peer / "etc" / "slurm.conf"),
            "HOME": os.environ.get("HOME", "/"),
            "USER": os.environ.get("USER", "root"),
        }

    def up(self) -> None:
        self.run(*self.meter.inside([str(self.program), "--fresh", *self.options]))

    def down(self) -> None:
        self.run(str(self.program), "stop", check=False)

    def drain(self) -> None:
        self.run("scontrol", "update", f"nodename=node[1-{NODES}]", "state=drain", "reason=bench")

    def resume(self) -> None:
        self.run("scontrol", "update", f"nodename=node[1-{NODES}]", "state=resume")

    def there(self, job: int) -> bool:
        return bool(self.run("squeue", "-h", "-j", str(job), "-o", "%i", check=False).strip())

    def active(self) -> int:
        return len(self.run("squeue", "-h", "-r", "-o", "%i").split())

    def wait_empty(self, last: int | None = None, timeout: float = 900, poll: float = 0.1) -> None:
        super().wait_empty(last, timeout, poll)


def sides(only: str = "") -> Iterable[Callable[[], Side]]:
    """gsched first, then Slurm; `only` names one of them."""
    return [side for side in (Gsched, Slurm) if only in ("", side.name)]


def open_sides(only: str, measure: Callable[[Side], object]) -> dict[str, object]:
    """Brings each side up, measures it and takes it down. A side that is not there is told."""
    found: dict[str, object] = {}
    for make in sides(only):
        try:
            with make() as side:
                print(f"--- {side.name} (CPU by {side.meter.how})", flush=True)
                found[side.name] = measure(side)
        except SideProblem as problem:
            print(f"--- {getattr(make, 'name', '')}: {problem}", flush=True)
    return found


# ---- what comes out -----------------------------------------------------------------------------


@dataclass
class Row:
    """One line of the README's table."""

    what: str
    gsched: str
    slurm: str
    ratio: str
    goal: str

    def __str__(self) -> str:
        return f"| {self.what} | {self.gsched} | {self.slurm} | {self.ratio} | {self.goal} |"


def show(values: Sequence[float], digits: int = 1) -> str:
    """Median (least to most)."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def machine() -> str:
    """One sentence about where this was measured."""
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    # The class of the machine, not its build of the kernel.
    release = ".".join(platform.release().split(".")[:2])
    return (
        f"{os.cpu_count()} CPUs ({found[1] if found else platform.machine()}), {memory:.0f} GiB, "
        f"Linux {release}, Python {platform.python_version()}"
    )


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def report(rows: Sequence[Row]) -> None:
    """Prints the rows, and appends them to the file named by BENCH_ROWS."""
    for row in rows:
        print(row, flush=True)
    path = os.environ.get("BENCH_ROWS")
    if path:
        with open(path, "a") as out:
            out.writelines(f"{row}\n" for row in rows)
