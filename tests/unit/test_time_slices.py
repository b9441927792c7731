"""PreemptMode=GANG in the ledger: what becomes of turns when jobs end, are suspended, requeued or
lose a node, and when the configuration changes. A real Slurm 22.05 was seen to do what is said
of it here."""

from __future__ import annotations

from typing import Any

import msgspec
from unit.ledger_support import at
from unit.test_gang_examples import CONF, Page, on
from unit.test_hetero import submit
from unit.test_preempt import sent
from unit.test_suspend_for_others import pauses
from unit.test_update import change

from gsched.config import parse_config
from gsched.ledger import Configure, HookEnded, Ledger
from gsched.ledger.invariants import check
from gsched.model import Job, JobState, Phase, Shape
from gsched.scheduling.explain import Asked, explain
from gsched.wire.messages import CancelJobs
from gsched.wire.nodes import Pause, Prepare, SetLimit
from gsched_cli.jobview import JobView
from gsched_cli.why_words import sentences

TURNS = CONF.replace("=FORCE ", "=FORCE:2 ") + "SchedulerTimeSlice=6\n"


#: all CPUs of one node
WHOLE = Shape(min_nodes=1, max_nodes=1, ntasks=8, nodelist=("n12",))


def two(page: Page, shape: Shape | None = None) -> tuple[Job, Job]:
    """One that works, one that waits for its turn: on all nodes, or as `shape` has it."""
    kw: dict[str, Any] = {"shape": shape} if shape is not None else {}
    first, second = page.sbatch(5, **kw), page.sbatch(5, **kw)
    assert states(first, second) == ["R", "S"]
    return first, second


def states(*jobs: Job) -> list[str]:
    return [job.state.compact for job in jobs]


def reload(page: Page) -> Ledger:
    """The ledger that a controller would load now."""
    led = page.b.led
    loaded = Ledger.load(
        page.b.config,
        led.meta,
        msgspec.msgpack.decode(msgspec.msgpack.encode(list(led.jobs.values())), type=list[Job]),
        msgspec.msgpack.decode(
            msgspec.msgpack.encode(list(led.nodes.values())), type=list[type(led.nodes["n12"])]
        ),
    )
    assert loaded.sliced == led.sliced
    check(loaded)
    return loaded


def test_nodes_are_told_in_order() -> None:
    page = Page(TURNS)
    first, second = two(page, WHOLE)
    orders = page.b.sent["n12"]
    mine = [one for one in orders if isinstance(one, Prepare | Pause | SetLimit)]
    # The second is launched and stopped at once, without a warning: it has not begun.
    assert [type(one) for one in mine] == [Prepare, Prepare, SetLimit, Pause]
    assert (pauses(page.b, first), pauses(page.b, second)) == ([], [0])
    page.wait(6)
    assert (pauses(page.b, first), pauses(page.b, second)) == ([2], [0, -1])
    # First the one stops, then the other goes on.
    both = [one.job_id for one in page.b.sent["n12"] if isinstance(one, Pause)]
    assert both == [second.id, first.id, second.id]
    limits = [one.limit_s for one in sent(page.b, "n12", SetLimit) if one.job_id == second.id]
    # The node counts from when the script was launched.
    assert limits == [0, 606]


def test_a_job_on_several_nodes_stands_still_on_all() -> None:
    page = Page(TURNS)
    first, second = two(page)
    page.wait(6)
    assert pauses(page.b, first) == [2] * 5
    assert pauses(page.b, second) == [0, -1] * 5


def test_a_waiting_one_is_cancelled() -> None:
    page = Page(TURNS)
    first, second = two(page)
    page.wait(2)
    page.b.write(CancelJobs([str(second.id)]), uid=0)
    page.turn()
    assert page.squeue(first, second) == [("R", 2), ("CA", 0)]
    page.wait(10)
    assert page.squeue(first) == [("R", 12)]
    third = page.sbatch(5)
    assert states(third) == ["S"]
    page.b.write(CancelJobs([str(first.id)]), uid=0)
    page.turn()
    assert states(first, third) == ["CA", "R"]


def test_it_waits_until_nothing_of_the_other_is_left() -> None:
    """One that has been told to end may take its time: the next does not begin beside it."""
    page = Page(TURNS)
    first, second = two(page, WHOLE)
    page.b.write(CancelJobs([str(first.id)]), uid=0)
    page.b.report("n12", at(first, Phase.RUNNING), at(second, Phase.RUNNING))
    assert (first.completing, states(second)) == (True, ["S"])
    page.turn()
    assert (first.completing, states(second)) == (False, ["R"])


def test_scontrol_suspend_and_resume() -> None:
    """As on a real Slurm: whoever is suspended by hand has no turn until he is resumed, and the
    other works on; but here nobody then works beside another."""
    page = Page(TURNS)
    first, second = two(page)
    assert change(page.b, second, verb="resume") == "Requested operation is presently disabled"
    page.wait(2)
    assert change(page.b, first, verb="suspend") == ""
    assert states(first, second) == ["S", "R"]
    page.wait(15)
    assert page.squeue(first, second) == [("S", 2), ("R", 15)]
    assert change(page.b, first, verb="resume") == ""
    page.turn()
    assert states(first, second) == ["S", "R"]
    page.wait(6)
    assert page.squeue(first, second) == [("R", 2), ("S", 21)]
    # The waiting one is taken out of the row.
    assert change(page.b, second, verb="suspend") == ""
    page.wait(20)
    assert page.squeue(first, second) == [("R", 22), ("S", 21)]
    assert change(page.b, second, verb="resume") == ""
    page.wait(6)
    assert states(first, second) == ["S", "R"]


def test_a_waiting_one_is_queued_again() -> None:
    page = Page(TURNS)
    first, second = two(page)
    assert change(page.b, second, verb="requeue") == ""
    page.turn()
    # It is not held, as one is that was suspended by hand (both seen on a real Slurm).
    assert (second.restarts, second.sliced, second.held) == (1, 0, 0)
    page.wait(1)
    assert states(first) == ["R"]
    assert not page.b.led.sliced
    reload(page)


def test_a_lost_node_gives_the_others_their_turn() -> None:
    page = Page(TURNS)
    first, second = page.sbatch(2), page.sbatch(3)
    wide = page.sbatch(5)
    assert states(first, second, wide) == ["R", "R", "S"]
    page.b.register("n12", [], boot_id="b2")
    page.turn()
    # Those who had something there have begun anew; who had not works on.
    assert (first.restarts, wide.restarts, second.restarts) == (1, 1, 0)
    assert second.state == JobState.RUNNING
    assert page.b.led.sliced <= {first.id, wide.id}


def test_a_restart_of_the_controller() -> None:
    page = Page(TURNS)
    first, second = two(page)
    third = page.sbatch(2)
    page.wait(4)
    page.b.led = reload(page)
    page.b.config = page.b.led.config
    page.b.led.awaited.clear()
    led = page.b.led
    first, second, third = (led.jobs[job.id] for job in (first, second, third))
    for name in page.names:
        there = [led.jobs[one] for one in led.parts[name]]
        page.b.register(name, [at(job, Phase.RUNNING) for job in there], session=f"{name}.again")
    assert states(first, second) == ["R", "S"]
    # A turn begins anew, and lasts as long as any.
    page.wait(7)
    assert states(first, second) == ["S", "R"]


def test_without_gang_they_work_beside_each_other() -> None:
    """Switched off by reconfigure, all go on at once; switched on, the one that came later stops
    (seen on a real Slurm)."""
    page = Page(TURNS)
    first, second = two(page)
    off = parse_config({"slurm.conf": TURNS.replace("PreemptMode=GANG", "PreemptMode=OFF")})
    page.b.apply(Configure(off))
    assert states(first, second) == ["R", "R"]
    page.wait(20)
    assert states(first, second) == ["R", "R"]
    page.b.apply(Configure(parse_config({"slurm.conf": TURNS})))
    assert states(first, second) == ["R", "S"]
    page.wait(6)
    assert states(first, second) == ["S", "R"]


def test_another_partition_has_turns_of_its_own() -> None:
    """ "Time-slicing won't happen between jobs on different partitions"."""
    conf = TURNS + "PartitionName=other Nodes=n[12-16] OverSubscribe=FORCE:2\n"
    page = Page(conf)
    first = page.sbatch(5, tasks=4)
    second = page.sbatch(5, tasks=4, partitions=("other",))
    third = page.sbatch(5, tasks=4, partitions=("other",))
    assert states(first, second, third) == ["R", "R", "S"]
    page.wait(6)
    assert states(first, second, third) == ["R", "S", "R"]


def test_those_who_ask_take_turns() -> None:
    """OverSubscribe=YES: those with -s."""
    page = Page(TURNS.replace("=FORCE:2", "=YES:2"))
    shape = Shape(min_nodes=5, max_nodes=5, ntasks=40, ntasks_per_node=8, oversubscribe=True)
    first, second = page.sbatch(5, shape=shape), page.sbatch(5, shape=shape)
    assert states(first, second) == ["R", "S"]
    page.wait(6)
    assert states(first, second) == ["S", "R"]


def test_memory_is_not_shared() -> None:
    """ "All jobs must be able to fit into memory at the same time"."""
    page = Page(TURNS)
    shape = Shape(min_nodes=1, max_nodes=1, ntasks=8, mem_per_node=40000, nodelist=("n12",))
    first, second = page.sbatch(1, shape=shape), page.sbatch(1, shape=shape)
    assert states(first, second) == ["R", "PD"]


def test_gpus_stay_with_a_job_that_waits() -> None:
    """As on a real Slurm: CPUs are shared, GPUs are not, one that stands still keeps its own."""
    conf = TURNS.replace("CPUs=8", "Gres=gpu:h100:8 CPUs=8").replace("builtin", "backfill")
    page = Page(conf + "GresTypes=gpu\n")
    shape = Shape(min_nodes=1, max_nodes=1, ntasks=8, nodelist=("n12",), gpus_per_node=5)
    rest = msgspec.structs.replace(shape, gpus_per_node=3)
    first, second = page.sbatch(1, shape=shape), page.sbatch(1, shape=shape)
    third = page.sbatch(1, shape=rest, time_limit=60)
    assert states(first, second, third) == ["R", "PD", "S"]
    page.wait(6)
    assert states(first, second, third) == ["S", "PD", "R"]
    assert page.b.led.cluster.used("n12")[2] == 255


def test_heterogeneous_jobs_take_no_part() -> None:
    """Excluded, as in Slurm: they work beside whoever has the CPUs (seen on a real one)."""
    page = Page(TURNS)
    first = page.sbatch(1, shape=WHOLE)
    members = submit(page.b, WHOLE, Shape(ntasks=8), partitions=("active",), time_limit=600)
    page.length |= dict.fromkeys((job.id for job in members), 99)
    page.turn()
    assert on(members[0]) == on(first)
    page.wait(12)
    assert states(first, *members) == ["R", "R", "R"]
    assert not page.b.led.sliced


def test_time_at_rest_is_no_usage() -> None:
    page = Page(TURNS)
    first, second = two(page)
    assert set(page.b.led.meter.lasting) == {first.id}
    page.wait(6)
    assert set(page.b.led.meter.lasting) == {second.id}


def test_prolog_of_the_controller_in_a_turn_of_another() -> None:
    """Nobody is told of an attempt before PrologSlurmctld has ended; then it is stopped as well."""
    page = Page(TURNS + "PrologSlurmctld=/bin/true\n")
    first, second = two(page, WHOLE)
    assert (second.prolog_due, page.b.sent.get("n12", [])) == (True, [])
    page.b.apply(HookEnded(second.id, second.attempt))
    assert [type(one) for one in page.b.sent["n12"]] == [Prepare, SetLimit, Pause]
    page.b.apply(HookEnded(first.id, first.attempt))
    page.wait(6)
    assert states(first, second) == ["S", "R"]


def test_an_order_that_was_lost_is_followed_by_its_stop() -> None:
    """The node has not heard of the job that waits: it is told of it again, and to stop it."""
    page = Page(TURNS)
    first = page.sbatch(1, shape=WHOLE)
    second = page.b.job(shape=WHOLE, time_limit=600)
    page.length[second.id] = 99
    page.b.schedule()
    page.b.register("n12", [at(first, Phase.RUNNING)], session="n12.again")
    mine = [
        type(one)
        for one in page.b.sent["n12"]
        if getattr(one, "job_id", 0) == second.id or isinstance(one, Prepare)
    ]
    assert mine[-3:] == [Prepare, SetLimit, Pause]
    assert mine.count(Prepare) == 3


def test_whose_turn_came_before_he_began_is_told_so_again() -> None:
    """A node has prepared a job of two and been told that it waits; that it goes on is lost with
    the node's session, as when the controller dies."""
    page = Page(TURNS)
    shape = Shape(min_nodes=2, max_nodes=2, ntasks=16, nodelist=("n12", "n13"))
    first, second = page.sbatch(2, shape=shape), page.b.job(shape=shape, time_limit=600)
    page.b.schedule()
    page.b.report("n12", at(first, Phase.RUNNING), at(second, Phase.PREPARED))
    assert (states(first, second), pauses(page.b, second)) == (["R", "S"], [0, 0])
    page.b.led.live["n12"].session = ""
    page.b.now += 6
    page.b.tick()
    assert (states(second), second.configuring) == (["R"], True)
    assert [sent(page.b, node, Pause)[-1].grace_s for node in ("n12", "n13")] == [0, -1]
    page.b.register(
        "n12", [at(first, Phase.RUNNING), at(second, Phase.PREPARED)], session="n12.again"
    )
    assert sent(page.b, "n12", Pause)[-1].grace_s == -1


def why(page: Page, job: Job) -> list[str]:
    """What `gsched why` says of it, times as seconds from now."""
    now = int(page.b.now)
    told = explain(page.b.led, job, Asked(now, now))
    return sentences(told, lambda at: f"+{at - now}")


def test_why_tells_whose_turn_it_is() -> None:
    page = Page(TURNS)
    first, second = two(page)
    page.wait(2)
    assert why(page, second) == [
        "It waits for its time slice on CPUs that it shares: it is the turn of job 1; "
        "turns change at +4."
    ]
    assert JobView(second, None, page.b.now).reason == "TimeSlice"
    assert JobView(first, None, page.b.now).reason == "None"
    assert why(page, first) == []
    change(page.b, second, verb="suspend")
    assert why(page, second) == ["Somebody has suspended it: it goes on with scontrol resume 2."]
    assert JobView(second, None, page.b.now).reason == "None"
