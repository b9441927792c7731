"""Steps in the agent: single stories in Slurm's words (golden transcripts and real srun)."""

from __future__ import annotations

import msgspec
import pytest
from agent_world import CLUSTER, Client, World

from gsched.model import Phase
from gsched.model.step import Callback, StepState
from gsched.wire.nodes import Kill, Signal, StepsKept
from gsched.wire.steps import AttachStep, FollowStep, NotTaken, Taken, TellSteps
from slurmd_compat.agent import Linked, Tick, step_text, steps
from slurmd_compat.agent.step_words import (
    Ask,
    LeadRecord,
    ShareFailed,
    ShareRecord,
    Source,
    StepKey,
)

INT, QUIT, KILL, USR1, USR2, TERM, CONT = 2, 3, 9, 10, 12, 15, 18
STATUS = "srun: StepId=7.0 tasks 0-1: running"
ABORTED = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish."


def running(nodes: int = 1, **options: object) -> World:
    world = World(nodes, **options)  # type: ignore[arg-type]
    world.run()
    return world


def test_a_step_over_two_nodes() -> None:
    world = running(2)
    client = world.create(1, ntasks=4, min_nodes=2)
    assert world.answer == Taken(bytes([0, 0, 0, 1]), 0)
    world.deliver()
    assert client.heard[0] == ("N", bytes([0, 0, 0, 2, 0, 0, 0, 4]))
    assert [len(s.tasks) for s in world.supervisors.values()] == [2, 2]
    for task in range(4):
        world.task_ends(task)
    assert client.codes == []
    world.advance(50)
    assert client.codes == [0]
    world.advance(600)
    step = world.kept[0]
    assert (step.state, step.wstatus, step.ntasks) == (StepState.COMPLETED, 0, 4)
    assert (step.max_rss_node, step.max_rss_task) == ("n2", 3)
    # Nothing of it is kept anywhere but its number.
    assert not world.supervisors
    second = world.create(2, ntasks=1)
    assert world.answer == Taken(bytes([0, 0, 0, 2]), 1)
    world.leave(second)


def test_exit_codes_by_node_and_code() -> None:
    world = running(2)
    client = world.create(1, ntasks=4, min_nodes=2)
    world.deliver()
    for task, code in ((0, 0), (1, 1), (2, 2), (3, 3)):
        world.task_ends(task, code << 8)
    world.advance(100)
    # Golden 038: srun -n4 -N2 bash -c 'exit $SLURM_PROCID', but for which task is where.
    assert sorted(client.errors) == [
        "srun: error: n1: task 1: Exited with exit code 1",
        "srun: error: n2: task 2: Exited with exit code 2",
        "srun: error: n2: task 3: Exited with exit code 3",
    ]
    assert client.codes == [3]
    world.advance(600)
    assert world.kept[0].state == StepState.FAILED


@pytest.mark.parametrize(
    ("wstatus", "words", "code", "forced"),
    [
        (9, "Killed", 137, True),
        (15, "Terminated", 143, True),
        (11, "Segmentation fault", 139, False),
        (10, "User defined signal 1", 138, False),
        (0x86, "Aborted (core dumped)", 134, False),
    ],
)
def test_ends_by_signal(wstatus: int, words: str, code: int, forced: bool) -> None:
    """As real srun says it: "Force Terminated" only after KILL and TERM."""
    world = running()
    client = world.create(1, ntasks=2)
    world.task_ends(0, wstatus)
    world.task_ends(1, wstatus)
    world.advance(25)
    expected = [f"srun: error: n1: tasks 0-1: {words}"]
    if forced:
        expected.append("srun: Force Terminated StepId=7.0")
    assert client.errors == expected
    assert client.codes == [code]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("signum", "code"), [(9, 137), (11, 139)])
def test_a_signal_counts_more_than_any_exit_code(
    order: tuple[int, int], signum: int, code: int
) -> None:
    """The peer: srun -n2 of tasks that end with 200 and by a signal, whichever is first."""
    world = running()
    client = world.create(1, ntasks=2)
    for task in order:
        world.task_ends(task, (200 << 8, signum)[task])
    world.advance(25)
    assert client.codes == [code]
    world.advance(600)
    assert world.kept[0].wstatus == signum


def test_busy_nodes_are_waited_for_in_order_of_asking() -> None:
    world = running()
    first = world.create(1, ntasks=4)
    second = world.create(2, ntasks=4)
    assert world.answer == Taken(bytes([0, 0, 0, 2]), -1)
    small = world.create(3, ntasks=1, exact=True)
    message = "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)"
    assert second.errors == small.errors == [message]
    world.all_end(0, 0)
    assert first.codes == [0]
    assert second.errors == [message, "srun: Step created for StepId=7.1"]
    assert small.errors == [message]
    world.all_end(0, 1)
    assert small.errors == [message, "srun: Step created for StepId=7.2"]


def test_what_is_wrong_and_no_reason_to_refuse() -> None:
    """As a 22.05: `srun -N1 -n1 -w node[1-2]`."""
    world = running(2)
    client = world.create(1, ntasks=1, min_nodes=1, nodelist=["n1", "n2"])
    assert client.errors == [
        "srun: error: Required nodelist includes more nodes than permitted by max-node count "
        "(2 > 1). Eliminating nodes from the nodelist."
    ]


def test_a_step_that_fits_goes_before_one_that_waits() -> None:
    """Real srun asks for itself alone: what fits now starts."""
    world = running()
    world.create(1, ntasks=2, exact=True, mem_per_node=1, no_gpus=True)
    waiting = world.create(2, ntasks=4, exact=True, mem_per_node=1, no_gpus=True)
    world.create(3, ntasks=1, exact=True, mem_per_node=1, no_gpus=True)
    assert world.answers[-1] == Taken(bytes([0, 0, 0, 3]), 1)
    assert len(waiting.errors) == 1


def test_immediate_does_not_wait() -> None:
    world = running()
    world.create(1, ntasks=4)
    world.create(2, ntasks=1, immediate=1)
    assert isinstance(world.answer, NotTaken)
    assert world.answer.message == (
        "error: Unable to create step for job 7: Requested nodes are busy"
    )


def test_steps_that_overlap_hold_nothing() -> None:
    world = running()
    world.create(1, ntasks=4)
    world.create(2, ntasks=4, overlap=True)
    assert world.answer.step == 1
    world.all_end(0, 0)
    world.create(3, ntasks=4)
    assert world.answer.step == 2


def test_a_request_may_be_repeated() -> None:
    world = running()
    world.create(1, ntasks=1)
    world.create(1, ntasks=1)
    assert [answer.step for answer in world.answers] == [0, 0]
    assert len(world.supervisors) == 1


def test_requests_that_weigh_too_much() -> None:
    world = running()
    argv = ["a.out", "x" * (1 << 20)]
    for port in range(1, 70):
        world.create(port, ntasks=4, argv=argv)
    refused = [answer for answer in world.answers if isinstance(answer, NotTaken)]
    assert len(refused) == 69 - 63
    assert refused[0].message == (
        "error: Unable to create step for job 7: Resource temporarily unavailable"
    )


def test_who_may_ask() -> None:
    world = running()
    world.create(1, uid=1001)
    assert world.answer.message == (
        "error: Unable to confirm allocation for job 7: Access/permission denied"
    )
    world.create(2, uid=0)
    assert isinstance(world.answer, Taken)


def test_another_node_passes_it_on() -> None:
    world = running(2)
    world.create(1, ntasks=1, node="n2")
    assert world.answers == []
    world.deliver()
    assert world.answer == Taken(bytes([0, 0, 0, 1]), 0)


def test_another_client_follows() -> None:
    world = running(2)
    first = world.create(1, ntasks=4, min_nodes=2)
    world.deliver()
    for port, task in ((60, -1), (61, 3)):
        callback = Callback("h", port, bytes(32))
        ask = Ask(Source("local", port), 1000, 1000, AttachStep(b"r", 7, 0, callback, task, True))
        world.feed("n1", ask)
        assert world.answer == Taken(b"r", 0)
    world.deliver()
    assert world.attached == [("n1", 0, -1, True), ("n2", 1, -1, True), ("n2", 1, 3, True)]
    both, one = world.clients[60], world.clients[61]
    assert both.heard == [("N", bytes([0, 0, 0, 2, 0, 0, 0, 4]))]
    assert one.heard == [("N", bytes([0, 0, 0, 1, 0, 0, 0, 4]))]
    # It may go without harm, and hears of the end.
    world.leave(both)
    assert all(not s.killed for s in world.supervisors.values())
    world.all_end(3 << 8)
    world.advance(100)
    assert one.codes == first.codes == [3]


# -- signals of the client: real srun 22.05


def test_two_interrupts_within_a_second() -> None:
    world = running()
    client = world.create(1, ntasks=2)
    world.say(client, "G", bytes([INT]))
    world.now += 300
    world.say(client, "G", bytes([INT]))
    (supervisor,) = world.supervisors.values()
    assert supervisor.signals == [INT] and supervisor.killed == [("cancelled", True)]
    world.all_end(INT)
    assert client.errors == [
        "srun: interrupt (one more within 1 sec to abort)",
        STATUS,
        "srun: sending Ctrl-C to StepId=7.0",
        "srun: forcing job termination",
        ABORTED,
    ]
    assert client.codes == [130]


def test_two_interrupts_far_apart() -> None:
    world = running()
    client = world.create(1, ntasks=2)
    for _ in range(2):
        world.say(client, "G", bytes([INT]))
        world.now += 1600
    assert client.errors == ["srun: interrupt (one more within 1 sec to abort)", STATUS] * 2


def test_disable_status_and_quit_on_interrupt() -> None:
    world = running()
    client = world.create(1, ntasks=2, disable_status=True)
    world.say(client, "G", bytes([INT]))
    world.all_end(INT)
    assert client.errors == [
        "srun: sending Ctrl-C to StepId=7.0",
        "srun: error: n1: tasks 0-1: Interrupt",
    ]
    assert client.codes == [130]
    client = world.create(2, ntasks=2, quit_on_interrupt=True)
    world.say(client, "G", bytes([INT]))
    assert client.errors == [
        "srun: sending Ctrl-C to StepId=7.1",
        "srun: forcing job termination",
        ABORTED,
    ]


@pytest.mark.parametrize("signum", [TERM, 1, QUIT])
def test_a_signal_that_ends_srun(signum: int) -> None:
    world = running()
    client = world.create(1, ntasks=2)
    world.say(client, "G", bytes([signum]))
    world.obey()
    quit_words = ["srun: Quit"] if signum == QUIT else []
    assert client.errors == [
        *quit_words,
        "srun: forcing job termination",
        ABORTED,
        "srun: error: n1: tasks 0-1: Killed",
    ]
    assert client.codes == [137]


def test_signals_that_are_passed_on() -> None:
    world = running(2)
    client = world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    world.say(client, "G", bytes([USR1]))
    world.say(client, "G", bytes([CONT]))
    world.deliver()
    assert client.errors == ["srun: got SIGCONT"]
    assert [s.signals for s in world.supervisors.values()] == [[USR1], [USR1]]


# -- ends that something else decides


def test_kill_on_bad_exit() -> None:
    world = running()
    client = world.create(1, ntasks=2, kill_on_bad_exit=True)
    world.task_ends(0, 3 << 8)
    world.advance(100)
    (supervisor,) = world.supervisors.values()
    assert supervisor.killed == [("task_failure", False)]
    world.obey()
    # Golden 037.
    assert client.errors == [
        "srun: error: n1: task 0: Exited with exit code 3",
        "srun: Terminating StepId=7.0",
        "srun: error: n1: task 1: Terminated",
        "srun: Force Terminated StepId=7.0",
    ]
    assert client.codes == [143]


def test_kill_on_bad_exit_of_the_cluster() -> None:
    world = running(extra="KillOnBadExit=1")
    client = world.create(1, ntasks=2)
    world.task_ends(0, 3 << 8)
    world.advance(100)
    assert "srun: Terminating StepId=7.0" in client.errors
    other = running(extra="KillOnBadExit=1")
    client = other.create(1, ntasks=2, kill_on_bad_exit=False)
    other.task_ends(0, 3 << 8)
    other.advance(100)
    assert client.errors == ["srun: error: n1: task 0: Exited with exit code 3"]


def test_waiting_after_the_first_end() -> None:
    world = running()
    client = world.create(1, ntasks=2, wait=2)
    world.task_ends(0)
    world.advance(1900)
    assert client.errors == []
    world.advance(200)
    world.obey()
    # Golden 037.
    assert client.errors == [
        "srun: First task exited 2s ago",
        "srun: StepId=7.0 task 1: running",
        "srun: StepId=7.0 task 0: exited",
        "srun: Terminating StepId=7.0",
        ABORTED,
        "srun: error: n1: task 1: Killed",
    ]
    assert client.codes == [137]


def test_time_limit_of_a_step() -> None:
    world = running()
    client = world.create(1, ntasks=1, time_limit=60)
    world.advance(60_100)
    (supervisor,) = world.supervisors.values()
    assert supervisor.killed == [("timeout", False)]
    world.obey()
    assert client.errors == [ABORTED, "srun: error: n1: task 0: Terminated"]
    world.advance(600)
    assert world.kept[0].state == StepState.TIMEOUT


def test_the_jobs_time_limit_ends_its_steps() -> None:
    world = running(limit_s=60)
    client = world.create(1, ntasks=1)
    world.advance(60_100)
    world.obey()
    # Golden 031.
    assert client.errors == [ABORTED, "srun: error: n1: task 0: Terminated"]
    assert client.codes == [143]
    world.advance(600)
    # As measured with a 22.05, where a limit of the step's own makes it TIMEOUT.
    assert world.kept[0].state == StepState.CANCELLED


def test_a_later_limit_of_the_steps_own_changes_nothing() -> None:
    world = running(limit_s=60)
    world.create(1, ntasks=1, time_limit=61)
    world.advance(60_100)
    world.obey()
    world.advance(3000)
    assert world.kept[0].state == StepState.CANCELLED


def test_a_signal_to_all_of_a_job_reaches_a_task_once() -> None:
    """scancel --full: srun is a child of the script and has it as well, and passes on what it gets.
    A 22.05's task had it once."""
    world = running()
    client = world.create(1, ntasks=1)
    (supervisor,) = world.supervisors.values()
    world.order("n1", Signal(0, 7, 1, USR1, "all"))
    world.advance(5)
    world.say(client, "G", bytes([USR1]))
    assert supervisor.signals == [USR1]
    world.say(client, "G", bytes([USR2]))
    assert supervisor.signals == [USR1, USR2]
    # What srun gets later is another one.
    world.advance(1100)
    world.say(client, "G", bytes([USR1]))
    assert supervisor.signals == [USR1, USR2, USR1]
    # And what goes to the steps alone never comes from srun.
    world.order("n1", Signal(0, 7, 1, USR2, "steps"))
    world.say(client, "G", bytes([USR2]))
    assert supervisor.signals == [USR1, USR2, USR1, USR2, USR2]


def test_the_jobs_warning_goes_to_its_steps() -> None:
    world = running(limit_s=60, signal_num=USR1, signal_before=20)
    world.create(1, ntasks=1)
    world.advance(39_900)
    (supervisor,) = world.supervisors.values()
    assert supervisor.signals == []
    world.advance(200)
    assert supervisor.signals == [USR1]


def test_scancel_of_a_job() -> None:
    world = running(2)
    client = world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    world.kill()
    world.deliver()
    assert world.phase("n1") == Phase.RUNNING
    world.obey()
    world.deliver()
    world.script_ends(15)
    world.advance(50)
    assert client.errors[0] == ABORTED
    assert sorted(client.errors[1:]) == [
        "srun: error: n1: task 0: Terminated",
        "srun: error: n2: task 1: Terminated",
    ]
    assert client.codes == [143]
    assert world.phase("n1") == world.phase("n2") == Phase.RELEASED
    assert world.kept[0].state == StepState.CANCELLED


def test_scancel_of_a_step() -> None:
    """Real scancel JOB.0: SIGKILL, "CANCELLED by", 0:9."""
    world = running()
    client = world.create(1, ntasks=2)
    world.order("n1", Signal(0, 7, 1, 0, "all", 0))
    world.obey()
    assert client.errors == [ABORTED, "srun: error: n1: tasks 0-1: Killed"]
    world.advance(600)
    assert (world.kept[0].state, world.kept[0].wstatus) == (StepState.CANCELLED, 9)
    world.create(2, ntasks=1)
    world.order("n1", Signal(0, 7, 1, USR1, "all", 1))
    (supervisor,) = world.supervisors.values()
    assert supervisor.signals == [USR1]


def test_the_script_ends_before_its_step() -> None:
    world = running()
    client = world.create(1, ntasks=2)
    waiting = world.create(2, ntasks=4)
    world.script_ends(3 << 8)
    assert waiting.errors[-1] == (
        "srun: error: Unable to create step for job 7: Job/step already completing or completed"
    )
    assert waiting.codes == [1]
    # The end is told with the step's.
    assert world.phase("n1") == Phase.RUNNING
    world.obey()
    assert client.codes == [143]
    assert world.phase("n1") == Phase.RELEASED
    assert world.reports["n1"].wstatus == 3 << 8
    assert world.kept[0].state == StepState.CANCELLED
    world.create(3)
    assert world.answer.message == (
        "error: Unable to create step for job 7: Job/step already completing or completed"
    )


def test_a_client_that_goes_ends_its_step() -> None:
    world = running()
    client = world.create(1, ntasks=1)
    world.leave(client)
    (supervisor,) = world.supervisors.values()
    assert supervisor.killed == [("cancelled", True)]
    world.obey()
    world.advance(600)
    assert world.kept[0].state == StepState.CANCELLED


def test_copies_of_files_are_no_steps_of_the_job() -> None:
    """Slurm makes no step for sbcast: it has no number, and nothing but the copy itself speaks."""
    world = running(2)
    world.create(1, ntasks=1)
    copy = world.create(
        2, ntasks_per_node=1, min_nodes=2, overlap=True, origin="sbcast", program="sbcast"
    )
    assert isinstance(world.answer, Taken)
    (number,) = {key.step for _, key in world.supervisors} - {0}
    assert number < 0
    world.deliver()
    world.all_end(17 << 8, number)
    world.deliver()
    world.advance(1000)
    assert (copy.codes, copy.errors) == ([17], [])
    assert set(world.kept) == {0}
    world.crash("n1")
    world.create(3, ntasks=1, overlap=True)
    assert world.answer.step == 1


def test_layout() -> None:
    """As sattach --layout of 22.05 has it."""
    world = running(2)
    world.create(1, ntasks=3, min_nodes=2)
    (lead,) = next(iter(world.leader.steps.jobs.values())).leads.values()
    assert steps.layout(lead.step) == [
        "Job step layout:",
        "\t3 tasks, 2 nodes (n[1-2])",
        "",
        "\tNode 0 (n1), 2 task(s): 0 1 ",
        "\tNode 1 (n2), 1 task(s): 2 ",
    ]


def test_a_node_that_fails_under_a_step() -> None:
    world = running(2)
    client = world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    world.dead.add("n2")
    world.order("n1", Kill(0, 7, 1, "node"))
    world.obey()
    world.script_ends(15)
    world.advance(10_000)
    assert "srun: error: Node failure on n2" in client.errors
    assert client.codes == [143]
    assert world.phase("n1") == Phase.RELEASED
    assert world.kept[0].state == StepState.NODE_FAIL


def test_an_oom_kill() -> None:
    world = running()
    client = world.create(1, ntasks=1)
    world.task_ends(0, 9, cause="oom")
    world.advance(25)
    assert client.errors[0] == "srun: error: n1: task 0: Out Of Memory"
    world.advance(600)
    assert world.kept[0].state == StepState.OUT_OF_MEMORY


# -- restarts


def test_a_node_forgets_its_share_after_its_end_is_in_the_journal() -> None:
    """Else a restart of the leading daemon had it launched again. Many ends are one record."""
    world = running(4)
    world.create(1, ntasks=4, min_nodes=4)
    world.deliver()
    for task in (1, 2, 3):
        world.task_ends(task)
    world.advance(20)
    led = LeadRecord, StepKey(7, 1, CLUSTER, 0)
    share = ShareRecord, StepKey(7, 1, CLUSTER, 0)
    assert msgspec.msgpack.decode(world.journals["n1"][led], type=LeadRecord).over == []
    assert all(share in world.journals[name] for name in ("n2", "n3", "n4"))
    world.advance(120)
    assert msgspec.msgpack.decode(world.journals["n1"][led], type=LeadRecord).over == [1, 2, 3]
    assert not any(share in world.journals[name] for name in ("n2", "n3", "n4"))
    world.crash("n1")
    for name in ("n2", "n3", "n4"):
        world.crash(name)
    world.advance(3000)
    assert [where for where, key in world.supervisors] == ["n1"]


def test_a_restart_keeps_steps_and_clients() -> None:
    world = running(2)
    client = world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    world.task_ends(0, 1 << 8)
    world.crash("n1")
    assert client.calls
    world.crash("n2")
    world.task_ends(1)
    world.advance(3000)
    assert client.errors == ["srun: error: n1: task 0: Exited with exit code 1"]
    assert client.codes == [1]


def test_numbers_are_not_used_again_after_a_restart() -> None:
    world = running()
    for port in (1, 2):
        world.create(port, ntasks=1)
        world.all_end(0, port - 1)
        world.advance(1000)
    world.crash("n1")
    world.create(3, ntasks=1)
    assert world.answer.step == 2


def test_the_end_of_a_job_is_told_after_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MOST_TOLD", 3)
    world = running()
    world.keeping = False
    for port in range(8):
        world.create(port + 1, ntasks=1)
        world.all_end(0, port)
    world.script_ends()
    assert world.phase("n1") == Phase.RELEASED
    world.advance(1000)
    assert world.reports["n1"].phase == Phase.RUNNING and sorted(world.kept) == [0, 1, 2]
    world.keeping = True
    for _ in range(3):
        world.leader.apply(Tick(), world.now)
        world.feed("n1", Linked())
        world.advance(1000)
    assert world.reports["n1"].phase == Phase.RELEASED and sorted(world.kept) == list(range(8))


def test_lists_of_tasks() -> None:
    assert step_text.ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert step_text.tasks([3]) == "task 3"
    assert step_text.tasks([1, 0]) == "tasks 0-1"


def test_an_end_is_told_at_once_but_not_each_of_many() -> None:
    """After srun, squeue -s does not show its step; a script with thousands of them is told of in
    batches."""
    world = running()
    world.advance(5000)

    def one(number: int) -> None:
        world.create(number + 1, ntasks=1)
        world.task_ends(0, step=number)
        world.advance(60)

    one(0)
    assert [world.kept[n].running for n in world.kept] == [False]
    # The next ones come within the time of that report.
    one(1)
    one(2)
    assert list(world.kept) == [0]
    world.advance(steps.REPORT_MS)
    assert list(world.kept) == [0, 1, 2]


def test_a_step_that_has_just_begun_is_not_told_of_yet() -> None:
    """Else the end of another one would have it shown as running when it is over itself."""
    world = running()
    world.advance(5000)
    world.create(1, ntasks=1)
    world.advance(50)
    world.create(2, ntasks=1)
    world.task_ends(0, step=0)
    world.advance(60)
    assert {number: step.running for number, step in world.kept.items()} == {0: False}
    world.advance(steps.REPORT_MS)
    assert {number: step.running for number, step in world.kept.items()} == {0: False, 1: True}


def test_a_release_waits_until_all_steps_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its release an attempt may be forgotten, and what was not told of with it."""
    monkeypatch.setattr(steps, "MOST_TOLD", 2)
    world = running()
    world.keeping = False
    for number in range(5):
        world.create(number + 1, ntasks=1)
        world.task_ends(0, step=number)
        world.advance(60)
    world.kept.clear()
    agent = world.agents["n1"]
    assert agent is not None
    [record] = agent.held()
    record.phase = Phase.RELEASED
    [told] = agent.report_message(world.now).attempts
    assert (told.phase, [step.id for step in told.steps]) == (Phase.RUNNING, [0, 1])
    agent.apply(StepsKept(7, record.attempt, [(0, True), (1, True)]), world.now)
    [told] = agent.report_message(world.now).attempts
    assert (told.phase, [step.id for step in told.steps]) == (Phase.RUNNING, [2, 3])
    agent.apply(StepsKept(7, record.attempt, [(2, True), (3, True)]), world.now)
    [told] = agent.report_message(world.now).attempts
    assert (told.phase, [step.id for step in told.steps]) == (Phase.RELEASED, [4])


def test_a_report_is_kept_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MOST_TOLD_BYTES", 5000)
    world = running()
    world.keeping = False
    for number in range(4):
        world.create(number + 1, ntasks=1, submit_line="x" * 2000)
        world.task_ends(0, step=number)
    agent = world.agents["n1"]
    assert agent is not None
    [told] = agent.report_message(world.now).attempts
    assert [step.id for step in told.steps] == [0, 1]


def test_files_that_cannot_be_opened() -> None:
    """The words of real srun; that ends with 0 all the same."""
    world = running()
    client = world.create(1, ntasks=2)
    ((_, key),) = world.supervisors
    world.supervisors["n1", key].released = True
    world.supervisors["n1", key].started.clear()
    world.feed("n1", ShareFailed(key, "Slurmd could not connect IO"))
    assert client.errors == [
        "srun: error: task 0 launch failed: Slurmd could not connect IO",
        "srun: error: task 1 launch failed: Slurmd could not connect IO",
    ]
    assert client.codes == [1]
    world.advance(600)
    assert world.kept[0].state == StepState.FAILED


def test_ends_shortly_after_each_other_are_one_line() -> None:
    world = running()
    client = world.create(1, ntasks=3)
    world.task_ends(0, 2 << 8)
    world.advance(90)
    world.task_ends(1, 2 << 8)
    world.advance(20)
    world.task_ends(2, 2 << 8)
    world.advance(20)
    assert client.errors == [
        "srun: error: n1: tasks 0-1: Exited with exit code 2",
        "srun: error: n1: task 2: Exited with exit code 2",
    ]


def test_whoever_asks_for_steps_hears_when_the_controller_has_them() -> None:
    """squeue -s, scancel JOB.STEP: a step is known as soon as srun has been told of it."""
    world = running(2)
    world.create(1, ntasks=1)
    assert world.answer == Taken(bytes([0, 0, 0, 1]), 0)
    assert 0 not in world.kept
    world.feed("n1", Ask(Source("call", 9), 1000, 1000, TellSteps(7)))
    world.advance(1)
    assert world.answer == Taken(b"")
    assert world.kept[0].state == StepState.RUNNING
    # Nothing is new: he hears at once; strangers hear nothing of it.
    answers = len(world.answers)
    world.feed("n1", Ask(Source("call", 10), 1000, 1000, TellSteps(7)))
    assert world.answers[answers:] == [Taken(b"")]
    world.feed("n1", Ask(Source("call", 11), 1001, 1001, TellSteps(7)))
    assert isinstance(world.answer, NotTaken)
    # A job that is forgotten meanwhile keeps nobody waiting.
    world.keeping = False
    world.create(2, ntasks=1)
    answers = len(world.answers)
    world.feed("n1", Ask(Source("call", 12), 1000, 1000, TellSteps(7)))
    assert len(world.answers) == answers
    world.leader.steps.forget(next(iter(world.leader.steps.jobs)))
    assert world.leader.steps._hearers._held == []


@pytest.mark.parametrize("how", ["term", "twice", "abort", "gone"])
def test_a_step_that_its_srun_ends_is_cancelled_by_its_user(how: str) -> None:
    """sacct of Slurm 22.05: CANCELLED by UID, ExitCode 0:9, also after MPI_Abort."""
    world = running(1)
    client = world.create(1, ntasks=2)
    if how == "gone":
        world.leave(client)
    elif how == "abort":
        world.say(client, "A", bytes(4))
    else:
        for _ in range(2 if how == "twice" else 1):
            world.say(client, "G", bytes([INT if how == "twice" else TERM]))
    world.all_end(KILL)
    world.advance(600)
    step = world.kept[0]
    assert (step.state, step.wstatus, step.cancelled_by) == (StepState.CANCELLED, 9, 1000)


def test_a_step_whose_time_is_over_is_cancelled_by_nobody() -> None:
    world = running(1)
    client = world.create(1, ntasks=1, time_limit=1)
    world.advance(1100)
    world.say(client, "G", bytes([TERM]))
    world.all_end(TERM)
    world.advance(600)
    assert (world.kept[0].state, world.kept[0].cancelled_by) == (StepState.TIMEOUT, -1)


def test_a_word_about_a_follower_that_was_lost_is_repeated() -> None:
    """sattach waited without end for the output of a node that had not heard of it."""
    world = running(2)
    world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    follower = Client(Callback("h", 2, bytes(32)))
    world.clients[2] = follower
    request = AttachStep(b"a", 7, 0, follower.callback, stdin=True)
    world.feed("n1", Ask(Source("local", 2), 1000, 1000, request))
    assert world.attached == [("n1", 0, -1, True)]
    lost = [item for _, to, item in world.post if to == "n2"]
    assert len(lost) == 1
    world.post.clear()
    world.advance(1_000)
    assert world.attached == [("n1", 0, -1, True), ("n2", 1, -1, True)]
    # Once is enough, be the answer lost or the word doubled.
    world.feed("n2", lost[0])
    world.post.clear()
    world.advance(30_000)
    assert len(world.attached) == 2
    assert (
        not world.leader.steps.jobs[next(iter(world.leader.steps.jobs))].leads[0]._followers._asked
    )


def test_a_node_that_never_answers_is_not_asked_about_a_follower_for_ever() -> None:
    world = running(2)
    world.create(1, ntasks=2, min_nodes=2)
    world.deliver()
    world.clients[2] = Client(Callback("h", 2, bytes(32)))
    request = AttachStep(b"a", 7, 0, world.clients[2].callback)
    world.feed("n1", Ask(Source("local", 2), 1000, 1000, request))
    sent = 0
    for _ in range(60):
        mails = [getattr(item, "mail", None) for _, _, item in world.post]
        sent += sum(isinstance(mail, FollowStep) for mail in mails)
        world.post.clear()
        world.advance(1_000, mail=False)
    assert sent == 10
