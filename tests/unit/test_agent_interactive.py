"""Jobs of srun and salloc in the agent, in the words of golden transcripts and of real commands."""

from __future__ import annotations

import pytest
from agent_world import Client, World

from gsched.model import Phase
from gsched.model.step import Callback, StepSpec
from gsched.wire.nodes import Kill, Notify
from gsched.wire.steps import Interactive

INT, QUIT, KILL, USR1, TERM, CONT = 2, 3, 9, 10, 15, 18
STATUS = "srun: StepId=7.0 tasks 0-1: running"
ABORTED = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish."


def salloc(extra: str = "", **options: object) -> tuple[World, object]:
    callback = Callback("h", 50, bytes(32))
    wire = Interactive(callback, **options)  # type: ignore[arg-type]
    world = World(2, interactive=wire, name="interactive", extra=extra)
    world.run()
    return world, world.clients[50]


def test_salloc_and_its_shell() -> None:
    world, client = salloc()
    assert client.errors == [  # type: ignore[attr-defined]
        "salloc: Granted job allocation 7",
        "salloc: Nodes n[1-2] are ready for job",
    ]
    given = dict(
        item.split(b"=", 1)
        for letter, data in client.heard  # type: ignore[attr-defined]
        if letter == "A"
        for item in data.split(b"\0")
    )
    assert given[b"SLURM_JOB_ID"] == b"7" and given[b"SLURM_JOB_NODELIST"] == b"n[1-2]"
    assert given[b"SLURM_JOB_CPUS_PER_NODE"] == b"4(x2)"
    assert b"SLURM_PROCID" not in given and b"SLURM_STEP_ID" not in given
    world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    world.say(client, "Z", (5 << 8).to_bytes(4, "big"))  # type: ignore[arg-type]
    assert client.errors[2:] == ["salloc: Relinquishing job allocation 7"]  # type: ignore[attr-defined]
    assert client.codes == [5]  # type: ignore[attr-defined]
    # What it left running ends first; how the shell ended is known meanwhile, whatever happens.
    world.crash("n1")
    world.deliver()
    world.obey()
    world.advance(3000)
    assert world.reports["n1"].wstatus == 5 << 8
    assert world.phase("n1") == Phase.RELEASED


def test_the_interactive_step() -> None:
    """LaunchParameters=use_interactive_step: JOB.interactive, beside which all room is free."""
    world, _ = salloc()
    shell = world.create(1, ntasks=1, min_nodes=1, origin="salloc", pty=True)
    assert world.answer.step == -6
    world.create(2, ntasks=8, min_nodes=2)
    assert world.answer.step == 0
    world.deliver()
    world.all_end(0, 0)
    world.create(3, ntasks=1, origin="salloc")
    assert world.answer.step == 1
    world.all_end(0, -6)
    assert shell.codes == [0]


@pytest.mark.parametrize(("signum", "code"), [(1, 0), (2, 0), (3, 0), (9, 0), (15, 1), (11, 1)])
def test_the_shell_of_salloc_ends_by_a_signal(signum: int, code: int) -> None:
    """Exit codes of real salloc."""
    world, client = salloc()
    world.say(client, "Z", signum.to_bytes(4, "big"))  # type: ignore[arg-type]
    assert client.codes == [code]  # type: ignore[attr-defined]


def test_salloc_is_cancelled() -> None:
    world, client = salloc()
    world.kill()
    assert client.errors[2:] == ["salloc: Job allocation 7 has been revoked."]  # type: ignore[attr-defined]
    assert client.letters.endswith("R")  # type: ignore[attr-defined]
    assert world.phase("n1") == Phase.RELEASED
    world.say(client, "Z", (1).to_bytes(4, "big"))  # type: ignore[arg-type]
    assert client.codes == [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("signum", [2, 3, 15, 10, 12])
def test_a_signal_to_salloc_itself_revokes_the_allocation(signum: int) -> None:
    """As `kill` of a real salloc: the job is CANCELLED, the shell goes on and has its own code."""
    world, client = salloc()
    world.say(client, "G", bytes([signum]))  # type: ignore[arg-type]
    assert client.errors[2:] == ["salloc: Job allocation 7 has been revoked."]  # type: ignore[attr-defined]
    assert world.phase("n1") == Phase.RELEASED
    assert world.reports["n1"].cause == "cancelled"
    assert client.codes == []  # type: ignore[attr-defined]
    world.say(client, "Z", (3 << 8).to_bytes(4, "big"))  # type: ignore[arg-type]
    assert client.codes == [3]  # type: ignore[attr-defined]


def test_a_hangup_of_salloc_gives_the_allocation_back() -> None:
    """Real salloc: "Relinquishing", the job is COMPLETED, exit code 1."""
    world, client = salloc()
    world.say(client, "G", b"\x01")  # type: ignore[arg-type]
    assert client.errors[2:] == ["salloc: Relinquishing job allocation 7"]  # type: ignore[attr-defined]
    assert client.codes == [1]  # type: ignore[attr-defined]
    assert world.phase("n1") == Phase.RELEASED
    assert world.reports["n1"].cause == ""


def test_the_job_of_a_salloc_that_was_killed_stays() -> None:
    """Slurm 22.05 with InactiveLimit=0, its default: the job runs on."""
    world, client = salloc()
    world.leave(client)  # type: ignore[arg-type]
    world.advance(24 * 3600_000)
    assert world.phase("n1") == Phase.RUNNING
    # Whoever is in the allocation goes on with it.
    world.create(1, ntasks=2, min_nodes=2)
    assert world.answer.step == 0
    # Nor does a restart of the daemon end it, though nobody answers the call.
    world.crash("n1")
    world.advance(60_000)
    assert world.phase("n1") == Phase.RUNNING


@pytest.mark.parametrize("restarted", [False, True])
def test_inactive_limit(restarted: bool) -> None:
    """Slurm 22.05: TIMEOUT, Reason=InactiveLimit, ExitCode=0:0; its steps end with it."""
    world, client = salloc(extra="InactiveLimit=10")
    world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    world.leave(client)  # type: ignore[arg-type]
    if restarted:
        world.crash("n1")
    world.advance(9_900)
    assert world.phase("n1") == Phase.RUNNING
    world.advance(200)
    assert [word for s in world.supervisors.values() for word, _ in s.killed] == ["timeout"] * 2
    world.all_end(15, 0)
    world.advance(1000)
    assert world.phase("n1") == Phase.RELEASED
    assert (world.reports["n1"].cause, world.reports["n1"].wstatus) == ("inactive", 0)


def test_no_inactive_limit_where_root_schedules() -> None:
    """man slurm.conf: "ignored for jobs running in partitions with the RootOnly flag"."""
    callback = Callback("h", 50, bytes(32))
    extra = "InactiveLimit=10\nPartitionName=r Nodes=ALL RootOnly=YES"
    world = World(2, interactive=Interactive(callback), extra=extra)
    world.job.partition = "r"
    world.run()
    world.leave(world.clients[50])
    world.advance(60_000)
    assert world.phase("n1") == Phase.RUNNING


def test_a_job_whose_salloc_has_never_been_there() -> None:
    callback = Callback("h", 50, bytes(32))
    world = World(2, interactive=Interactive(callback))
    world.clients[50] = Client(callback, gone=True)
    world.run()
    assert world.phase("n1") == Phase.RELEASED
    assert world.reports["n1"].cause == "cancelled"


def test_salloc_without_a_shell() -> None:
    world, client = salloc(no_shell=True)
    assert client.codes == [0]  # type: ignore[attr-defined]
    assert world.phase("n1") == Phase.RUNNING
    world.crash("n1")
    assert world.phase("n1") == Phase.RUNNING


def test_salloc_over_a_restart() -> None:
    world, client = salloc()
    world.crash("n1")
    assert len(client.calls) == 1  # type: ignore[attr-defined]
    world.say(client, "Z", bytes(4))  # type: ignore[arg-type]
    assert client.codes == [0]  # type: ignore[attr-defined]
    assert world.phase("n1") == Phase.RELEASED


def srun(**fields: object) -> World:
    callback = Callback("h", 50, bytes(32))
    spec = StepSpec(0, argv=["a.out"], **fields)  # type: ignore[arg-type]
    world = World(1, interactive=Interactive(callback, spec))
    world.run()
    return world


def test_srun_outside_a_job() -> None:
    world = srun(ntasks=2)
    client = world.clients[50]
    world.crash("n1")
    world.task_ends(0)
    world.task_ends(1, 17 << 8)
    world.advance(25)
    assert client.errors == ["srun: error: n1: task 1: Exited with exit code 17"]
    assert client.codes == [17]
    assert world.phase("n1") == Phase.RELEASED
    assert world.reports["n1"].wstatus == 17 << 8
    assert world.kept[0].wstatus == 17 << 8


def test_a_client_that_stays_longer_than_its_job() -> None:
    """The daemon ended when such a client went at last."""
    world = srun(ntasks=1)
    client = world.clients[50]
    client.slow = True
    world.task_ends(0)
    world.deliver()
    world.forget()
    world.leave(client)
    assert client.codes == [0]
    assert world.leader.report_message(world.now).attempts == []


def test_srun_outside_a_job_is_cancelled() -> None:
    world = srun(ntasks=1)
    client = world.clients[50]
    world.kill()
    world.obey()
    # Golden 039.
    assert client.errors == [ABORTED, "srun: error: n1: task 0: Terminated"]
    assert client.codes == [143]
    assert world.reports["n1"].cause == "cancelled"


def test_srun_outside_a_job_is_killed() -> None:
    world = srun(ntasks=1)
    world.leave(world.clients[50])
    assert world.phase("n1") == Phase.RUNNING
    world.obey()
    assert world.phase("n1") == Phase.RELEASED
    assert (world.reports["n1"].wstatus, world.reports["n1"].cause) == (9, "")


def test_srun_that_cannot_have_its_step() -> None:
    world = srun(ntasks=3, min_nodes=3)
    assert world.clients[50].errors == ["srun: error: Only allocated 1 nodes asked for 3"]
    assert world.clients[50].codes == [1]
    assert world.phase("n1") == Phase.RELEASED


def test_an_interactive_job_that_never_ran() -> None:
    callback = Callback("h", 50, bytes(32))
    world = World(1, interactive=Interactive(callback))
    world.run = lambda: None  # type: ignore[method-assign]
    from gsched.wire.nodes import LaunchSpec, Prepare

    launch = LaunchSpec(world.job, 0, ["Gn10", "Gn11"], 0, world.script)
    world.order("n1", Prepare(0, launch, go=False))
    world.order("n1", Kill(0, 7, 1, "cancelled"))
    assert world.clients[50].errors == ["salloc: Job allocation 7 has been revoked."]
    assert world.clients[50].codes == [1]


def test_what_srun_v_says() -> None:
    """Golden 037."""
    world = srun(ntasks=1, verbose=1)
    world.task_ends(0)
    world.advance(25)
    assert world.clients[50].errors == [
        "srun: Nodes n1 are ready for job",
        "srun: jobid 7: nodes(1):`n1', cpu counts: 4(x1)",
        "srun: CpuBindType=(null type)",
        "srun: launching StepId=7.0 on host n1, 1 tasks: 0",
        "srun: Node n1, 1 tasks started",
        "srun: Received task exit notification for 1 task of StepId=7.0 (status=0x0000).",
        "srun: n1: task 0: Completed",
    ]


def test_a_line_for_an_interactive_job() -> None:
    """As Slurm 22.05: scontrol notify of a job of salloc is said by salloc."""
    world, client = salloc()
    world.order("n1", Notify(0, 7, 1, "hello there"))
    assert client.errors[2:] == ["salloc: hello there"]  # type: ignore[attr-defined]
