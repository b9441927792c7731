"""Steps in control groups of their own: a step is held to its share, and its end is its own."""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_support import NodeUnderTest
from step_support import Listener, a_job, create, finished, socket_of
from waiting import until

from gsched.model import Phase
from gsched.model.step import StepState
from gsched.wire.nodes import Forget, Kill
from gsched.wire.steps import Taken
from slurmd_compat.binding import NVIDIA_MAJOR

pytestmark = pytest.mark.root

EAT = [sys.executable, "-S", "-c", "bytearray(400 << 20)"]


@pytest.fixture(scope="module")
def node() -> Iterator[NodeUnderTest]:
    made = NodeUnderTest("PrologFlags=Contain", cgroups=True)
    made.start()
    yield made
    made.close()


@pytest.fixture
def client() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def needs(node: NodeUnderTest, sentence: str) -> None:
    if sentence in node.log():
        pytest.skip(sentence)


def groups(node: NodeUnderTest, job_id: int) -> set[str]:
    """The groups of a job below its own, by their paths in it."""
    found = set()
    own = f"nodetest-{zlib.crc32(str(node.dir / 'spool' / 'node1').encode()):08x}"
    # What goes meanwhile is no error of a walk.
    for path, names, _ in os.walk("/sys/fs/cgroup"):
        above, mark, below = path.partition(f"/node1/job_{job_id}.1")
        if mark and above.endswith(own):
            found |= {f"{below}/{name}".lstrip("/") for name in names}
    return found


def over(node: NodeUnderTest, job_id: int) -> None:
    node.order(Kill(0, job_id, 1, "cancelled"))
    node.phase(job_id, Phase.RELEASED)
    # The kernel lets go of a group a moment after its last process: it is tried again then.
    node.until("no groups", lambda: not groups(node, job_id))
    node.order(Forget(0, job_id, 1))


def test_each_step_has_a_group_and_it_goes_with_it(node: NodeUnderTest, client: Listener) -> None:
    needs(node, "processes of a job are found by descent only")
    a_job(node, 1, cpus=2)
    assert {"step_batch", "step_extern"} <= groups(node, 1)
    create(socket_of(node), client, 1, ["cat", "/proc/self/cgroup"])
    assert finished(node, client) == 0
    (text,) = client.output().values()
    assert b"/node1/job_1.1/step_0\n" in text
    node.until("the group's end", lambda: "step_0" not in groups(node, 1))
    assert {"step_batch", "step_extern"} <= groups(node, 1)
    over(node, 1)


def test_a_step_over_its_own_limit_ends_alone(node: NodeUnderTest, client: Listener) -> None:
    needs(node, "not confined to their memory")
    a_job(node, 2, cpus=2, mem_mb=2000)
    create(socket_of(node), client, 2, EAT, mem_per_node=100)
    assert finished(node, client) != 0
    assert "srun: error: node1: task 0: Out Of Memory" in client.errors
    second = Listener()
    # The job has more, and so has a step that asks for no less.
    create(socket_of(node), second, 2, EAT)
    assert finished(node, second) == 0
    second.close()
    node.order(Kill(0, 2, 1, "cancelled"))
    report = node.phase(2, Phase.RELEASED)
    states = {step.id: step.state for step in report.steps}
    assert states == {0: StepState.OUT_OF_MEMORY, 1: StepState.COMPLETED}
    # The script has not lost anything.
    assert report.cause == "cancelled"


def test_a_step_over_the_jobs_limit_is_the_one_marked(
    node: NodeUnderTest, client: Listener
) -> None:
    needs(node, "not confined to their memory")
    a_job(node, 3, cpus=2, mem_mb=100)
    create(socket_of(node), client, 3, EAT)
    assert finished(node, client) != 0
    node.order(Kill(0, 3, 1, "cancelled"))
    report = node.phase(3, Phase.RELEASED)
    assert [step.state for step in report.steps] == [StepState.OUT_OF_MEMORY]
    assert report.cause == "cancelled"


def test_a_step_sees_only_its_gpus_and_counts_them_from_zero(
    node: NodeUnderTest, client: Listener
) -> None:
    needs(node, "jobs can reach GPUs that are not theirs")
    nodes = node.work / "dev"
    nodes.mkdir()
    try:
        for minor in range(8):
            os.mknod(
                nodes / f"nvidia{minor}", 0o666 | stat.S_IFCHR, os.makedev(NVIDIA_MAJOR, minor)
            )
    except OSError as error:
        pytest.skip(f"no device nodes here: {error}")
    a_job(node, 4, cpus=4, gpus=4)
    look = (
        "import os\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('SLURM_STEP_GPUS'))\n"
        "for n in range(8):\n"
        f"  try: os.close(os.open('{nodes}/nvidia%d' % n, os.O_RDWR))\n"
        "  except OSError as e: print(n, e.errno)\n"
    )
    argv = [sys.executable, "-S", "-c", look]
    (EPERM, ENXIO) = (1, 6)  # refused; no such device (there is no driver here)

    def seen(listener: Listener) -> tuple[str, set[int]]:
        (text,) = listener.output().values()
        first, *rows = text.decode().splitlines()
        errors = dict(tuple(map(int, row.split())) for row in rows)
        assert set(errors.values()) <= {EPERM, ENXIO}
        return first, {n for n in range(8) if errors.get(n) != EPERM}

    keep = Listener()
    create(socket_of(node), keep, 4, ["sleep", "60"], gpus_total=1, gpus_set=True, exact=True)
    until("a step that holds a GPU", lambda: node.pump(1) or keep.control)
    answer = create(socket_of(node), client, 4, argv, gpus_total=2, gpus_set=True, exact=True)
    assert isinstance(answer, Taken)
    assert finished(node, client) == 0
    # The first is the other step's: the next two of the job's four, which count from 0.
    assert seen(client) == ("0,1 1,2", {1, 2})
    whole = Listener()
    create(socket_of(node), whole, 4, argv, overlap=True)
    assert finished(node, whole) == 0
    assert seen(whole) == ("0,1,2,3 0,1,2,3", {0, 1, 2, 3})
    whole.close()
    keep.close()
    over(node, 4)


def test_what_a_step_leaves_running_ends_with_it_and_not_the_job(
    node: NodeUnderTest, client: Listener
) -> None:
    needs(node, "processes of a job are found by descent only")
    a_job(node, 5, cpus=2)
    pids = node.work / "strays"
    pids.touch()
    # Twice forked, sessions of their own, deaf to TERM; one stopped.
    stray = f"(setsid sh -c 'trap \"\" TERM HUP; echo $$ >> {pids}; sleep 600' &) ; "
    stop = f"(setsid sh -c 'echo $$ >> {pids}; kill -STOP $$' &) ; "
    wait = f"while [ $(wc -l < {pids}) -lt 2 ]; do sleep 0.01; done"
    create(socket_of(node), client, 5, ["sh", "-c", stray + stop + wait])
    assert finished(node, client) == 0
    left = [int(pid) for pid in pids.read_text().split()]
    assert len(left) == 2
    node.until("their end", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left))
    node.until("the group's end", lambda: "step_0" not in groups(node, 5))
    assert node.last[5, 1].phase == Phase.RUNNING
    over(node, 5)


def test_a_job_and_its_steps_run_on_their_cpus_alone() -> None:
    have = sorted(os.sched_getaffinity(0))
    if not 2 <= len(have) < 16:
        pytest.skip("needs a machine of 2 to 15 CPUs")
    node, client = NodeUnderTest(cgroups=True, cpus=len(have)), Listener()
    try:
        node.start()
        needs(node, "jobs are not confined to their CPUs")
        seen = "grep Cpus_allowed_list /proc/self/status"
        node.run(6, f"#!/bin/sh\n{seen}\nsleep 60\n", cpus=1, std_out="cpus")
        node.until("the script's", lambda: "Cpus" in _text(node.work / "cpus"))
        create(socket_of(node), client, 6, seen.split())
        assert finished(node, client) == 0
        # The first abstract CPU is the first of the machine's.
        line = f"Cpus_allowed_list:\t{have[0]}\n"
        assert node.output("cpus") == line
        assert client.output() == {0: line.encode()}
        over(node, 6)
    finally:
        client.close()
        node.close()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
