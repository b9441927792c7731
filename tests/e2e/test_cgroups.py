"""Control groups with real processes: limits bite, kills are complete, nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmd_compat import cgroups
from slurmd_compat.cgroups import CgroupHandle, Cgroups, Want

ROOT = f"gsched-test-{os.getpid()}/c1/n1"


UNIFIED = Path("/sys/fs/cgroup/unified")


@pytest.fixture(params=["machine", "unified"])
def groups(request: pytest.FixtureRequest) -> Iterator[Cgroups]:
    """Groups of the version that the machine has, and of v2 where it is mounted beside v1."""
    if request.param == "unified":
        if not (UNIFIED / "cgroup.controllers").exists():
            pytest.skip("no cgroup v2 beside v1")
        made = unified()
    else:
        made = Cgroups(ROOT)
    if not made.version:
        pytest.skip(made.not_enforced()[0])
    yield made
    assert made.sweep(set()) == []
    made.close()


def unified(root: str = ROOT) -> Cgroups:
    """v2 as it is on a machine whose controllers belong to v1: groups, kill and devices."""
    return Cgroups(root, mount=str(UNIFIED), v2=True)


def again(groups: Cgroups, root: str = ROOT) -> Cgroups:
    return unified(root) if groups.version == 2 and UNIFIED.exists() else Cgroups(root)


def needs(groups: Cgroups, thing: str, controller: str) -> None:
    if thing and not groups.enforces(thing):
        pytest.skip(" ".join(groups.not_enforced()))
    if controller not in groups.homes and controller not in groups.controllers:
        pytest.skip(f"the cgroup controller {controller} is not available")


def run(handle: CgroupHandle, code: str) -> subprocess.CompletedProcess[str]:
    """Python code in the group."""
    join = "".join(f"open({path!r},'w').write('0')\n" for path in handle.procs_files)
    return subprocess.run(
        [sys.executable, "-S", "-c", join + code], capture_output=True, text=True, timeout=60
    )


def sleeper(handle: CgroupHandle) -> subprocess.Popen[bytes]:
    joins = "; ".join(f"echo 0 > {path}" for path in handle.procs_files)
    process = subprocess.Popen(["/bin/sh", "-c", f"{joins}; exec sleep 300"])
    end = time.monotonic() + 10
    while process.pid not in handle.pids() or not _is(process.pid, "sleep"):
        assert time.monotonic() < end
        time.sleep(0.005)
    return process


def _is(pid: int, name: str) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == name


@pytest.mark.root
def test_memory_limit_and_oom(groups: Cgroups) -> None:
    needs(groups, "ram", "memory")
    handle = groups.create(1, 1, memory_mb=64)
    assert handle.not_enforced == []
    done = run(handle, "x = b'x' * (200 << 20)")
    assert done.returncode == -9
    usage = handle.usage()
    assert usage.oom_kills == 1
    assert 60 << 20 <= usage.peak_bytes <= 64 << 20
    assert handle.remove()
    handle = groups.create(2, 1, memory_mb=64)
    assert run(handle, "x = b'x' * (10 << 20)").returncode == 0
    assert handle.usage().oom_kills == 0
    assert handle.remove()


@pytest.mark.root
def test_cpus(groups: Cgroups) -> None:
    needs(groups, "cores", "cpuset")
    cpu = max(os.sched_getaffinity(0))
    handle = groups.create(1, 1, cpus=[cpu])
    assert run(handle, "import os; print(os.sched_getaffinity(0))").stdout == f"{{{cpu}}}\n"
    handle.remove()
    handle = groups.create(1, 2, cpus=[4000])  # a simulated node's
    assert handle.not_enforced == ["CPUs 4000 are not on this machine: not confined to CPUs"]
    assert run(handle, "pass").returncode == 0
    handle.remove()


@pytest.mark.root
def test_a_step_without_cpus_of_its_own_has_its_jobs(groups: Cgroups) -> None:
    """The batch script's group was given all CPUs, which no group below the job's may have: it was
    taken away, and scripts ran on all CPUs of the node."""
    needs(groups, "cores", "cpuset")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    cpu = max(os.sched_getaffinity(0))
    job = groups.create(1, 1, cpus=[cpu])
    for cpus in ((), [cpu]):
        step = groups.create_step(job, f"s{len(cpus)}", cpus=cpus)
        assert step.not_enforced == []
        code = "import os; print(os.sched_getaffinity(0))"
        assert run(step, code).stdout == f"{{{cpu}}}\n"
    assert job.remove()


@pytest.mark.root
def test_devices_that_are_denied(groups: Cgroups, tmp_path: Path) -> None:
    if not groups.enforces("devices"):
        pytest.skip(" ".join(groups.not_enforced()))
    try:
        os.mknod(tmp_path / "zero", 0o666 | 0o020000, os.makedev(1, 5))
        os.mknod(tmp_path / "null", 0o666 | 0o020000, os.makedev(1, 3))
        os.close(os.open(tmp_path / "zero", os.O_RDONLY))
    except OSError as error:
        pytest.skip(f"no device nodes here: {error}")
    handle = groups.create(1, 1, devices_deny=["c 195:3", "c 1:5"])
    assert handle.not_enforced == []
    code = f"open('{tmp_path}/null').close()\nopen('{tmp_path}/zero').close()"
    done = run(handle, code)
    assert "PermissionError" in done.stderr and "zero" in done.stderr
    handle.remove()


@pytest.mark.root
def test_number_of_processes(groups: Cgroups) -> None:
    needs(groups, "", "pids")
    handle = groups.create(1, 1, pids=3)
    code = "import os,time\nfor _ in range(9):\n  if os.fork()==0: time.sleep(0.3); os._exit(0)"
    done = run(handle, code)
    assert "BlockingIOError" in done.stderr
    assert handle.kill() and handle.remove()


@pytest.mark.root
def test_kill_ends_all_and_remove_waits_for_it(groups: Cgroups) -> None:
    handle = groups.create(1, 1)
    process = sleeper(handle)
    os.kill(process.pid, 19)  # stopped
    assert not handle.remove()
    assert handle.kill()
    assert process.wait(10) == -9
    assert handle.pids() == []
    assert handle.remove() and handle.remove()


@pytest.mark.root
def test_cpu_time(groups: Cgroups) -> None:
    handle = groups.create(1, 1)
    if not {"cpuacct", ""} & set(groups.homes):
        pytest.skip("no cpuacct")
    run(handle, "import time\ne=time.process_time()+0.2\nwhile time.process_time()<e: pass")
    usage = handle.usage()
    assert 150_000 <= usage.user_us + usage.system_us <= 2_000_000
    handle.remove()


@pytest.mark.root
def test_adopted_and_swept_after_a_restart(groups: Cgroups) -> None:
    kept, stray = groups.create(7, 1), groups.create(8, 2)
    processes = [sleeper(kept), sleeper(stray)]
    later = again(groups)
    assert later.adopt(7, 1).pids() == [processes[0].pid]
    assert later.adopt(9, 1) == CgroupHandle()
    assert later.sweep({(7, 1)}) == []
    assert processes[1].wait(10) == -9
    assert later.adopt(8, 2).pids() == []
    assert processes[0].poll() is None
    assert later.adopt(7, 1).kill()
    processes[0].wait(10)


@pytest.mark.root
def test_clusters_side_by_side_do_not_touch_each_other(groups: Cgroups) -> None:
    other = again(groups, ROOT.replace("c1", "c2"))
    handle = other.create(1, 1)
    process = sleeper(handle)
    groups.create(1, 1)
    assert groups.sweep(set()) == []
    assert handle.pids() == [process.pid]
    handle.kill()
    process.wait(10)
    handle.remove()
    other.close()


@pytest.mark.root
def test_creating_again_after_a_crash_is_no_error(groups: Cgroups) -> None:
    assert groups.create(1, 1, memory_mb=100).dirs == groups.create(1, 1, memory_mb=50).dirs


@pytest.mark.root
def test_a_simulated_node_says_what_is_not_there() -> None:
    made = Cgroups(ROOT, Want(devices=False), node_cpus=100_000, node_memory_mb=1 << 40)
    if made.version:
        says = " ".join(made.not_enforced())
        assert "slurm.conf gives the node 100000 CPUs" in says
        assert not made.enforces("cores")
        handle = made.create(1, 1, cpus=[50_000], memory_mb=100)
        assert handle.not_enforced == [] and "cpuset" not in handle.dirs
        handle.remove()
        made.close()


@pytest.mark.root
def test_as_an_ordinary_user_nothing_is_made_and_it_is_said() -> None:
    code = (
        "import os,sys\nos.setgid(65534);os.setuid(65534)\n"
        "from slurmd_compat.cgroups import Cgroups\n"
        f"g=Cgroups('{ROOT}')\nh=g.create(1,1,memory_mb=10)\n"
        "assert (h.procs_files,h.kill_dirs,h.dirs)==([],[],{})\n"
        "assert h.kill() and h.remove() and h.usage().oom_kills==0\n"
        "print(*g.not_enforced(),sep='\\n')"
    )
    # Imported before the ids are dropped: the interpreter may lie in root's home.
    code = "import slurmd_compat.cgroups\n" + code
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "jobs are not confined to their CPUs: the daemon does not run as root",
        "jobs are not confined to their memory: the daemon does not run as root",
        "jobs can reach GPUs that are not theirs: the daemon does not run as root",
        "processes of a job are found by descent only, not by control group: "
        "the daemon does not run as root",
    ]


def test_a_root_that_leads_elsewhere_is_refused() -> None:
    for bad in ("", "/x", "a/../b"):
        with pytest.raises(ValueError, match="not a relative path"):
            Cgroups(bad)


def test_the_files_of_v2_are_read(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 9\nuser_usec 5\nsystem_usec 4\n")
    (tmp_path / "memory.peak").write_text("12345\n")
    (tmp_path / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    handle = CgroupHandle(dirs={"": str(tmp_path)})
    assert handle.usage() == cgroups.Usage(12345, 5, 4, 1)


def test_topology_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "online").write_text("0-1,4\n")
    for cpu, socket, core in ((0, 0, 0), (1, 1, 0)):
        where = tmp_path / f"cpu{cpu}" / "topology"
        where.mkdir(parents=True)
        (where / "physical_package_id").write_text(f"{socket}\n")
        (where / "core_id").write_text(f"{core}\n")
    assert cgroups.machine_cpus(str(tmp_path)) == [(0, 0, 0), (1, 1, 0), (4, 0, 4)]
