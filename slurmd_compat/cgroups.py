"""One control group per attempt and below it one per step: memory, CPUs, devices, number of
processes, and a way to find and kill all of it. cgroup v1 and v2 as root; for everybody else, and
where nothing is mounted, nothing is made and `not_enforced` says so.

Devices are confined by the controller of v1, and by a BPF program under v2 (bpf.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurmd_compat import bpf

MOUNT = "/sys/fs/cgroup"
_MIB = 1 << 20
_V1 = ("memory", "cpuset", "devices", "freezer", "cpuacct", "pids")
_THINGS = ("cores", "ram", "devices", "processes", "kill")
_PREFIX = "job_"
#: Slurm's names of the groups of steps: step_batch, step_extern, step_0
_STEP = "step_"


@dataclass(frozen=True, slots=True)
class Want:
    """What the configuration asks to have enforced (cgroup.conf: ConstrainCores=yes ...)."""

    cores: bool = True
    ram: bool = True
    swap: bool = False
    devices: bool = True
    #: a limit on the number of processes
    processes: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group has used so far."""

    #: highest memory use in bytes, page cache included; 0 unknown
    peak_bytes: int = 0
    user_us: int = 0
    system_us: int = 0
    #: processes that the kernel killed for lack of memory
    oom_kills: int = 0


@dataclass(slots=True)
class CgroupHandle:
    """The group of one attempt. Empty lists: there is none, and every method is a no-op."""

    #: files into which a process writes "0" to join
    procs_files: list[str] = field(default_factory=list)
    #: directories whose group holds everything of the attempt (v1: one with the freezer)
    kill_dirs: list[str] = field(default_factory=list)
    #: sentences: what was asked for this attempt and is not enforced
    not_enforced: list[str] = field(default_factory=list)
    #: controller -> directory ("" is v2's only one)
    dirs: dict[str, str] = field(default_factory=dict)

    def pids(self) -> list[int]:
        """The processes in it, groups below included."""
        found: set[int] = set()
        for directory in self.kill_dirs:
            for path, _, _ in os.walk(directory):
                found.update(int(pid) for pid in _read(f"{path}/cgroup.procs").split())
        return sorted(found)

    def kill(self) -> bool:
        """SIGKILL to everything in it (for attempts whose supervisor is gone); True once empty.

        Under v1 the group stands still meanwhile, so that nothing forks away. Waits up to 50 ms.
        """
        for _ in range(10):
            for directory in self.kill_dirs:
                if _write(f"{directory}/cgroup.kill", "1"):
                    continue
                _write(f"{directory}/freezer.state", "FROZEN")
                for pid in self.pids():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                _write(f"{directory}/freezer.state", "THAWED")
            if not self.pids():
                return True
            time.sleep(0.005)
        return False

    def usage(self) -> Usage:
        """What it has used. Cost: 0.05 ms."""
        if "" in self.dirs:
            return _usage_v2(self.dirs[""])
        return _usage_v1(self.dirs)

    def step(self, name: str) -> CgroupHandle:
        """The group of a step as it was made before; an empty handle if there is none."""
        below = {c: f"{d}/{_STEP}{name}" for c, d in self.dirs.items()}
        return _handle({c: d for c, d in below.items() if os.path.isdir(d)})

    def remove(self) -> bool:
        """Takes the group away; False while processes are in it (try again later)."""
        gone = [_remove_tree(directory) for directory in self.dirs.values()]
        return all(gone)


def _handle(dirs: dict[str, str]) -> CgroupHandle:
    kill = next((dirs[c] for c in ("", "freezer", *_V1) if c in dirs), None)
    return CgroupHandle(
        procs_files=[f"{directory}/cgroup.procs" for directory in dirs.values()],
        kill_dirs=[kill] if kill else [],
        dirs=dirs,
    )


def _usage_v1(dirs: dict[str, str]) -> Usage:
    peak = oom = user = system = 0
    if "memory" in dirs:
        peak = _number(_read(f"{dirs['memory']}/memory.max_usage_in_bytes"))
        oom = _pairs(_read(f"{dirs['memory']}/memory.oom_control")).get("oom_kill", 0)
    if "cpuacct" in dirs:
        user = _number(_read(f"{dirs['cpuacct']}/cpuacct.usage_user")) // 1000
        system = _number(_read(f"{dirs['cpuacct']}/cpuacct.usage_sys")) // 1000
        # The two count ticks, on which a short task may fall or not; their sum is measured.
        whole = _number(_read(f"{dirs['cpuacct']}/cpuacct.usage")) // 1000
        if whole and user + system:
            user = whole * user // (user + system)
            system = whole - user
        elif whole:
            user = whole
    return Usage(peak, user, system, oom)


def _usage_v2(directory: str) -> Usage:
    cpu = _pairs(_read(f"{directory}/cpu.stat"))
    return Usage(
        peak_bytes=_number(_read(f"{directory}/memory.peak")),
        user_us=cpu.get("user_usec", 0),
        system_us=cpu.get("system_usec", 0),
        oom_kills=_pairs(_read(f"{directory}/memory.events")).get("oom_kill", 0),
    )


class Cgroups:
    """The groups of one node daemon, below a root of its own such as gsched/CLUSTER/NODE.

    `node_cpus` and `node_memory_mb` are what slurm.conf says of the node: a node that is larger
    than the machine it runs on is simulated, and its shares cannot be enforced. `v2` says which
    version `mount` is (cgroup.conf: CgroupPlugin); None: look.
    """

    def __init__(
        self,
        root: str,
        want: Want | None = None,
        *,
        mount: str = MOUNT,
        node_cpus: int = 0,
        node_memory_mb: int = 0,
        v2: bool | None = None,
    ) -> None:
        if not root or root.startswith("/") or ".." in root.split("/"):
            raise ValueError(f"not a relative path for control groups: {root!r}")
        self.root = root
        self.want = want or Want()
        #: 0: none, else 1 or 2
        self.version = 0
        #: controller -> directory of this daemon ("" is v2's only one)
        self.homes: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._mount = mount
        self._cpus: set[int] = set()
        self._others: list[tuple[str, str]] | None = None
        #: what v2 offers below the home; () under v1, where each has a home of its own
        self.controllers: frozenset[str] = frozenset()
        self._detect(v2)
        self._shrink(node_cpus, node_memory_mb)

    # -- what there is

    def _detect(self, v2: bool | None) -> None:
        if os.geteuid() != 0:
            for thing in _THINGS:
                self._missing[thing] = "the daemon does not run as root"
            return
        controllers = _read(f"{self._mount}/cgroup.controllers").split()
        if bool(controllers) if v2 is None else v2:
            self._detect_v2(controllers)
        else:
            self._detect_v1()
        if not self.homes:
            why = f"no control groups can be made below {self._mount}"
            self._missing = dict.fromkeys(_THINGS, why)

    def _detect_v2(self, controllers: Collection[str]) -> None:
        usable = [c for c in ("memory", "cpuset", "cpu", "pids") if c in controllers]
        path = self._mount
        for part in self.root.split("/"):
            # One by one: a controller that cannot be had must not cost us the others.
            for controller in usable:
                _write(f"{path}/cgroup.subtree_control", f"+{controller}")
            path = f"{path}/{part}"
            if not _mkdir(path):
                return
        for controller in usable:
            _write(f"{path}/cgroup.subtree_control", f"+{controller}")
        self.version = 2
        self.homes[""] = path
        self.controllers = frozenset(_read(f"{path}/cgroup.subtree_control").split())
        needs = {"cores": "cpuset", "ram": "memory", "processes": "pids"}
        for thing, controller in needs.items():
            if controller not in self.controllers:
                self._missing[thing] = f"the cgroup controller {controller} is not available"
        if problem := bpf.available(path):
            self._missing["devices"] = problem
        self._cpus = _cpus(_read(f"{path}/cpuset.cpus.effective"))

    def _detect_v1(self) -> None:
        own = _own_groups()
        for controller in _V1:
            top = f"{self._mount}/{controller}"
            if controller not in own or not os.path.isdir(top):
                continue
            # Below the daemon's own group: whatever confines the daemon confines its jobs.
            path = top + own[controller].rstrip("/")
            if self._make_home(controller, path):
                self.homes[controller] = f"{path}/{self.root}"
        needs = {"cores": "cpuset", "ram": "memory", "devices": "devices", "kill": "freezer"}
        needs["processes"] = "pids"
        for thing, controller in needs.items():
            if controller not in self.homes:
                self._missing[thing] = f"the cgroup controller {controller} is not available"
        self.version = 1 if self.homes else 0
        if "cpuset" in self.homes:
            self._cpus = _cpus(_read(f"{self.homes['cpuset']}/cpuset.cpus"))

    def _make_home(self, controller: str, path: str) -> bool:
        for part in self.root.split("/"):
            above, path = path, f"{path}/{part}"
            if not _mkdir(path):
                return False
            if controller == "cpuset" and not _inherit_cpuset(above, path):
                return False
        return True

    def _shrink(self, node_cpus: int, node_memory_mb: int) -> None:
        """A simulated node: what slurm.conf promises is not there to be divided."""
        cpus = len(self._cpus) or os.cpu_count() or 1
        if node_cpus > cpus and "cores" not in self._missing:
            self._missing["cores"] = f"slurm.conf gives the node {node_cpus} CPUs, here are {cpus}"
        have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
        if node_memory_mb > have and "ram" not in self._missing:
            # Each job's limit is still enforced; only their sum is not there.
            self._promise = f"slurm.conf gives the node {node_memory_mb} MB, here are {have}"

    _promise = ""

    def not_enforced(self) -> list[str]:
        """One sentence for each thing that is asked for and not enforced on this node."""
        sentences = {
            "cores": (self.want.cores, "jobs are not confined to their CPUs"),
            "ram": (self.want.ram, "jobs are not confined to their memory"),
            "devices": (self.want.devices, "jobs can reach GPUs that are not theirs"),
            "processes": (self.want.processes, "jobs can have any number of processes"),
            "kill": (True, "processes of a job are found by descent only, not by control group"),
        }
        out = [
            f"{sentence}: {self._missing[thing]}"
            for thing, (wanted, sentence) in sentences.items()
            if wanted and thing in self._missing
        ]
        if self._promise and self.want.ram:
            out.append(f"memory is promised that is not there: {self._promise}")
        return out

    def enforces(self, thing: str) -> bool:
        """Whether "cores", "ram" or "devices" is both asked for and enforced."""
        return bool(getattr(self.want, thing)) and thing not in self._missing

    # -- groups

    def _dirs(self, job: int, attempt: int) -> dict[str, str]:
        return {c: f"{home}/{_PREFIX}{job}.{attempt}" for c, home in self.homes.items()}

    def create(
        self,
        job: int,
        attempt: int,
        *,
        cpus: Iterable[int] = (),
        memory_mb: int = 0,
        devices_deny: Sequence[str] = (),
        pids: int = 0,
    ) -> CgroupHandle:
        """Makes the group of an attempt (again: after a crash it may be there already).

        cpus: CPU numbers of this machine, () all; memory_mb 0 and pids 0: no limit;
        devices_deny: device rules like "c 195:3" that are taken away (see binding.device_rules).
        Never raises: what does not work is in the handle's `not_enforced`. Cost: 0.3 ms.
        """
        if "memory" in self.homes:
            # Of old kernels, whose groups below another are not held by its limit otherwise.
            _write(f"{self.homes['memory']}/memory.use_hierarchy", "1")
        return self._make(self._dirs(job, attempt), cpus, memory_mb, devices_deny, pids)

    def create_step(
        self,
        above: CgroupHandle,
        name: str,
        *,
        cpus: Iterable[int] = (),
        memory_mb: int = 0,
        devices_deny: Sequence[str] = (),
        pids: int = 0,
    ) -> CgroupHandle:
        """Makes the group of a step ("batch", "0") below its attempt's; what that has is the most
        that the step can get. Parameters and cost as of `create`. Under v2 nothing may run in a
        group that divides: processes of the attempt belong into the groups of its steps."""
        if "" in above.dirs:
            for controller in self.controllers:
                _write(f"{above.dirs['']}/cgroup.subtree_control", f"+{controller}")
        dirs = {c: f"{d}/{_STEP}{name}" for c, d in above.dirs.items()}
        return self._make(dirs, cpus, memory_mb, devices_deny, pids)

    def _make(
        self,
        wanted: dict[str, str],
        cpus: Iterable[int],
        memory_mb: int,
        devices_deny: Sequence[str],
        pids: int,
    ) -> CgroupHandle:
        dirs = {
            controller: directory
            for controller, directory in wanted.items()
            if self._needed(controller, pids) and _mkdir(directory)
        }
        handle = _handle(dirs)
        say = handle.not_enforced.append
        if "cpuset" in dirs and not self._set_cpus_v1(dirs["cpuset"], set(cpus), say):
            _remove_tree(dirs["cpuset"])
            del dirs["cpuset"]  # a cpuset without CPUs takes no process
            handle = CgroupHandle(
                [f"{d}/cgroup.procs" for d in dirs.values()],
                handle.kill_dirs,
                handle.not_enforced,
                dirs,
            )
        if self.version == 2 and "" in dirs:
            self._limit_v2(dirs[""], set(cpus), memory_mb, pids, say)
            if devices_deny and self.enforces("devices"):
                try:
                    bpf.deny_devices(dirs[""], devices_deny)
                except (OSError, ValueError) as error:
                    say(f"devices could not be denied: {error}")
            return handle
        if "memory" in dirs and memory_mb and self.want.ram:
            self._set_memory_v1(dirs["memory"], memory_mb, say)
        if "devices" in dirs:
            for rule in devices_deny:
                if not _write(f"{dirs['devices']}/devices.deny", f"{rule} rwm"):
                    say(f"device {rule} could not be denied")
        if pids and "pids" in dirs and not _write(f"{dirs['pids']}/pids.max", str(pids)):
            say(f"the limit of {pids} processes could not be set")
        return handle

    def _needed(self, controller: str, pids: int) -> bool:
        match controller:
            case "cpuset":
                return self.enforces("cores")
            case "devices":
                return self.enforces("devices")
            case "pids":
                return pids > 0
            case _:
                return True

    def _set_cpus_v1(self, directory: str, cpus: set[int], say: Callable[[str], None]) -> bool:
        if not cpus <= self._cpus:
            say(f"CPUs {_text(cpus - self._cpus)} are not on this machine: not confined to CPUs")
            cpus = set()
        above = os.path.dirname(directory)
        most, mems = _read(f"{above}/cpuset.cpus").strip(), _read(f"{above}/cpuset.mems").strip()
        # Without CPUs of its own a step has its job's, which are all that the kernel lets it have.
        for text in dict.fromkeys((_text(cpus) or most, most)):
            if _write(f"{directory}/cpuset.cpus", text) and _write(
                f"{directory}/cpuset.mems", mems
            ):
                return True
            say(f"CPUs {text} could not be set: not confined to CPUs")
        return False

    def _set_memory_v1(self, directory: str, mb: int, say: Callable[[str], None]) -> None:
        if not _write(f"{directory}/memory.limit_in_bytes", str(mb * _MIB)):
            say(f"the memory limit of {mb} MB could not be set")
        elif self.want.swap and not _write(
            f"{directory}/memory.memsw.limit_in_bytes", str(mb * _MIB)
        ):
            say("swap is not confined: the kernel does not account for it")

    def _limit_v2(
        self, directory: str, cpus: set[int], mb: int, pids: int, say: Callable[[str], None]
    ) -> None:
        if cpus and self.enforces("cores"):
            if not cpus <= self._cpus:
                strange = _text(cpus - self._cpus)
                say(f"CPUs {strange} are not on this machine: not confined to CPUs")
            elif not _write(f"{directory}/cpuset.cpus", _text(cpus)):
                say(f"CPUs {_text(cpus)} could not be set: not confined to CPUs")
        if mb and self.enforces("ram"):
            if not _write(f"{directory}/memory.max", str(mb * _MIB)):
                say(f"the memory limit of {mb} MB could not be set")
            if self.want.swap and not _write(f"{directory}/memory.swap.max", "0"):
                say("swap is not confined: the kernel does not account for it")
        if pids and not _write(f"{directory}/pids.max", str(pids)):
            say(f"the limit of {pids} processes could not be set")

    def adopt(self, job: int, attempt: int) -> CgroupHandle:
        """The group of an attempt that an earlier daemon made; an empty handle if there is none."""
        name = f"{_PREFIX}{job}.{attempt}"
        dirs = {c: d for c, d in self._dirs(job, attempt).items() if os.path.isdir(d)}
        for controller, home in self._elsewhere():
            if controller not in dirs and os.path.isdir(f"{home}/{name}"):
                dirs[controller] = f"{home}/{name}"
        return _handle(dirs)

    def _elsewhere(self) -> list[tuple[str, str]]:
        """Homes that an earlier daemon of this node had in another place (v1: it ran in another
        session or service). Cost: one walk over all groups, the first time."""
        if self._others is None:
            self._others = []
            first = self.root.split("/")[0]
            for controller in self.homes:
                for path, names, _ in os.walk(f"{self._mount}/{controller}".rstrip("/")):
                    home = f"{path}/{self.root}"
                    if first in names and home != self.homes[controller] and os.path.isdir(home):
                        self._others.append((controller, home))
        return self._others

    def sweep(self, known: Collection[tuple[int, int]]) -> list[str]:
        """At the start of a daemon: kills and removes groups of attempts (job, attempt) that nobody
        knows of. Returns a sentence for each that could not be removed."""
        homes = [*self.homes.items(), *self._elsewhere()]
        strays: dict[str, dict[str, list[str]]] = {}
        for controller, home in homes:
            for name in _listdir(home):
                job, _, attempt = name.removeprefix(_PREFIX).partition(".")
                if not name.startswith(_PREFIX) or not (job.isdigit() and attempt.isdigit()):
                    continue
                if (int(job), int(attempt)) not in known:
                    strays.setdefault(name, {}).setdefault(controller, []).append(f"{home}/{name}")
        problems = []
        for name, places in strays.items():
            paths = [path for found in places.values() for path in found]
            handle = CgroupHandle(kill_dirs=paths, dirs={path: path for path in paths})
            if not (handle.kill() and handle.remove()):
                problems.append(f"control group {name} still holds processes {handle.pids()}")
        return problems

    def close(self) -> None:
        """Removes the daemon's own home where nothing is left in it (gsched down)."""
        for home in self.homes.values():
            path = home
            for _ in self.root.split("/"):
                try:
                    os.rmdir(path)
                except OSError:
                    break
                path = os.path.dirname(path)


def machine_cpus(base: str = "/sys/devices/system/cpu") -> list[tuple[int, int, int]]:
    """(CPU, socket, core) of each CPU of this machine; a CPU that does not say counts as a core."""
    rows = []
    for cpu in sorted(_cpus(_read(f"{base}/online"))):
        where = f"{base}/cpu{cpu}/topology"
        socket = _read(f"{where}/physical_package_id").strip()
        core = _read(f"{where}/core_id").strip()
        rows.append((cpu, int(socket or 0), int(core) if core.isdigit() else cpu))
    return rows


# -- files of the kernel


def _read(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = b""
        while more := os.read(fd, 65536):
            data += more
        return data.decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _write(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _mkdir(path: str) -> bool:
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _remove_tree(directory: str) -> bool:
    """rmdir of a group and of those below it; True when it is gone."""
    for _ in range(2):
        try:
            os.rmdir(directory)
            return True
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                return False
        below = [path for path, _, _ in os.walk(directory, topdown=False) if path != directory]
        if not below:
            return False
        for path in below:
            with contextlib.suppress(OSError):
                os.rmdir(path)
    return False


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _inherit_cpuset(above: str, path: str) -> bool:
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not _read(f"{path}/{name}").strip():
            if not _write(f"{path}/{name}", _read(f"{above}/{name}").strip()):
                return False
    return True


def _own_groups() -> dict[str, str]:
    """Where this process is, by v1 controller."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name:
                found[name] = path
    return found


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isdigit() else 0


def _pairs(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: _number(pair[1]) for pair in pairs if len(pair) == 2}


def _cpus(text: str) -> set[int]:
    out: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            out.update(range(int(first), int(last or first) + 1))
    return out


def _text(cpus: Iterable[int]) -> str:
    return ",".join(str(cpu) for cpu in sorted(cpus))
