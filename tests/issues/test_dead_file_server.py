"""A directory, a home or a file of a job lies on a server that answers no more: not even SIGKILL
ends who looks into it. The job waits, and nobody else; its node says so when it must end it."""

from __future__ import annotations

import contextlib
import select
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from dead_support import DeadMount
from node_support import NodeUnderTest
from step_support import Listener, a_job, create, finished, socket_of

from gsched.model import Phase
from gsched.wire.nodes import Forget, Kill
from slurmd_compat.agent import HookDone, Key
from slurmd_compat.hooks import Command, Hooks

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def node() -> Iterator[NodeUnderTest]:
    made = NodeUnderTest("UnkillableStepTimeout=1\nPrologFlags=Contain", cgroups=True)
    made.start()
    yield made
    made.close()


@pytest.fixture
def dead() -> Iterator[DeadMount]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    made = DeadMount(folder / "dead")
    with contextlib.closing(made):
        yield made
    shutil.rmtree(folder)


def others_go_on(node: NodeUnderTest, job_id: int) -> None:
    node.run(job_id, "#!/bin/sh\n")
    assert node.phase(job_id, Phase.RELEASED).wstatus == 0
    node.order(Forget(0, job_id, 1))


@pytest.mark.parametrize("what", ["work_dir", "std_out", "std_in", "program"])
def test_a_script(node: NodeUnderTest, dead: DeadMount, what: str) -> None:
    number = 10 * ["work_dir", "std_out", "std_in", "program"].index(what)
    job_id, place = 100 + number, str(dead.path)
    script, how = "#!/bin/sh\n", {what: f"{place}/file" if what != "work_dir" else place}
    if what == "program":
        script, how = f"#!/bin/sh\n{place}/program\n", {}
    node.run(job_id, script, **how)
    node.phase(job_id, Phase.RUNNING)
    node.until("somebody waits", lambda: dead.asked)
    others_go_on(node, job_id + 1)
    node.order(Kill(0, job_id, 1, "cancelled"))
    node.until("the fault", lambda: node.last[job_id, 1].fault)
    fault = node.last[job_id, 1].fault
    assert fault.startswith(f"Kill task failed: JobId={job_id} StepId=batch: ")
    assert ", D, " in fault
    assert node.last[job_id, 1].phase < Phase.RELEASED
    others_go_on(node, job_id + 2)
    if what == "work_dir":
        # The daemon after this one takes it up as it is.
        node.kill()
        node.start()
        assert node.last[job_id, 1].phase < Phase.RELEASED
        others_go_on(node, job_id + 3)
    dead.close()
    assert node.phase(job_id, Phase.RELEASED).cause == "cancelled"
    node.order(Forget(0, job_id, 1))


@pytest.mark.parametrize("what", ["cwd", "std_out"])
def test_a_step(node: NodeUnderTest, dead: DeadMount, what: str) -> None:
    job_id = 200 if what == "cwd" else 210
    a_job(node, job_id, cpus=4)
    stuck, free = Listener(), Listener()
    place = str(dead.path) if what == "cwd" else f"{dead.path}/file"
    create(socket_of(node), stuck, job_id, ["true"], **{what: place})
    node.until("somebody waits", lambda: dead.asked)
    create(socket_of(node), free, job_id, ["true"], overlap=True)
    assert finished(node, free) == 0
    node.order(Kill(0, job_id, 1, "cancelled"))
    node.until("the fault", lambda: node.last[job_id, 1].fault)
    assert f"JobId={job_id} StepId=0: " in node.last[job_id, 1].fault
    others_go_on(node, job_id + 1)
    dead.close()
    node.phase(job_id, Phase.RELEASED)
    node.order(Forget(0, job_id, 1))
    for listener in (stuck, free):
        listener.close()


@pytest.mark.parametrize("optional", [True, False])
def test_a_program_of_the_site(dead: DeadMount, optional: bool) -> None:
    """A prolog, or the login environment of a user whose home is there: whatever came after it
    waited for ever, although it had a time to end by."""
    poll, now = select.epoll(), 0
    hooks = Hooks(poll.register, poll.unregister)
    environment = {"PATH": "/usr/bin:/bin"}
    looks = Command(["/bin/ls", str(dead.path)], environment, 1, optional=optional)
    done: list[HookDone | None] = [
        hooks.start(Key(1, 1, "c"), "prolog", [looks, Command(["/bin/true"], environment)], now)
    ]
    while done == [None]:
        for fd, _ in poll.poll(0.2):
            done = [hooks.ended(fd, now)]
        now += 500
        done = hooks.on_time(now) or done
    assert done[0] is not None
    said = "" if optional else "prolog /bin/ls did not end within 1 s and cannot be ended"
    assert done[0].error == said
    dead.close()
    # It is reaped all the same.
    ((fd, _),) = poll.poll(10)
    assert hooks.owns(fd) and hooks.ended(fd, now) is None and not hooks.owns(fd)
    poll.close()
