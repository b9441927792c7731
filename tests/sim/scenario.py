"""Random histories of a small cluster: jobs, cancels, bad weather, then calm, then the account."""

from __future__ import annotations

import random
from collections.abc import Callable

from gsched.config import parse_config
from gsched.ledger import hetero
from gsched.model import Job, JobSpec, JobState, Shape
from gsched.simulate.client import Submitted
from gsched.simulate.world import Faults, World
from gsched.taskset import TaskSet
from gsched.wire.messages import UpdateNode

CONF = """
ClusterName=sim
SlurmctldHost=ctl(127.0.0.1)
SlurmdTimeout={timeout}
BatchStartTimeout=10
MinJobAge=100000
ReturnToService=2
GresTypes=gpu,shard
DefMemPerCPU=1000
NodeName=n[1-4] CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=16000 Gres=gpu:h100:4,shard:12
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP
"""

CONFIG = parse_config({"slurm.conf": CONF.format(timeout=30)})
CONFIG_PROOF = parse_config({"slurm.conf": CONF.format(timeout=30) + "RequeueFence=proof\n"})

#: seconds of bad weather, then at most this many until everything has ended
STORM_S = 60.0
CALM_S = 1500.0


def random_faults(rnd: random.Random) -> Faults:
    """Some of the faults, some of the time: all at once would hide what each one does."""

    def maybe(value: float, often: float = 0.35) -> float:
        return rnd.uniform(0, value) if rnd.random() < often else 0.0

    return Faults(
        lose=maybe(0.3),
        double=maybe(0.3),
        late=maybe(0.3),
        late_s=rnd.uniform(0.1, 20),
        die_before_commit=maybe(0.03),
        die_after_commit=maybe(0.03),
        daemon_dies=maybe(0.02),
        node_reboots=maybe(0.03),
        partitions=maybe(0.05),
        supervisor_dies=maybe(0.05),
        second_controller=maybe(0.03),
        clock_jumps=maybe(0.1),
        disk_full=maybe(0.05),
        node_disk_full=maybe(0.05),
    )


def random_spec(rnd: random.Random) -> JobSpec:
    kind = rnd.random()
    if kind < 0.3:
        shape = Shape(gpus_per_node=rnd.randint(1, 4))
    elif kind < 0.5:
        nodes = rnd.choice([1, 1, 2])
        shape = Shape(
            min_nodes=nodes, max_nodes=nodes, share="shard", share_count=rnd.randint(1, 3)
        )
    elif kind < 0.75:
        nodes = rnd.randint(2, 4)
        shape = Shape(
            min_nodes=nodes, max_nodes=nodes, nodes_set=True, gpus_per_node=rnd.randint(1, 4)
        )
    else:
        shape = Shape(ntasks=rnd.randint(1, 6))
    limit = rnd.choice([None, 60, 120, 3])
    array = rnd.choice(["0-3", "1,5,7%1", "0-9:3%2"]) if rnd.random() < 0.2 else ""
    return JobSpec(name="j", shape=shape, time_limit=limit, requeue=rnd.random() < 0.8, array=array)


def random_components(rnd: random.Random, spec: JobSpec) -> list[JobSpec]:
    """Further components, small enough to fit beside each other on the empty cluster."""
    if spec.array or rnd.random() > 0.15:
        return []
    part = Shape(share="shard", share_count=2)
    shapes = [rnd.choice([Shape(gpus_per_node=1), Shape(ntasks=2), part]) for _ in range(3)]
    spec.shape = shapes[0]
    return [
        JobSpec(name="j", shape=shape, time_limit=spec.time_limit, requeue=spec.requeue)
        for shape in shapes[1 : rnd.randint(2, 3)]
    ]


def play(
    seed: int,
    *,
    proof: bool = False,
    storm_s: float = STORM_S,
    more: Callable[[World, random.Random], None] | None = None,
) -> World:
    """One history; raises AssertionError with the seed where something is lost or doubled. `more`
    adds events of its own before it begins."""
    rnd = random.Random(seed)
    world = World(CONFIG_PROOF if proof else CONFIG, seed, random_faults(rnd))
    world.weather(world.now + storm_s)
    for _ in range(rnd.randint(5, 25)):
        spec = random_spec(rnd)
        components = random_components(rnd, spec)
        duration, code = rnd.choice([0.05, 1.0, 5.0, 20.0]), rnd.choice([0, 0, 0, 1, 42])
        when = world.now + rnd.uniform(0, storm_s)
        wait = rnd.random() if rnd.random() < 0.2 else None

        def submit(
            spec: JobSpec = spec,
            components: list[JobSpec] = components,
            duration: float = duration,
            code: int = code,
            wait: float | None = wait,
        ) -> None:
            known = sorted(world.client.jobs)
            if wait is not None and known:
                target = known[int(wait * len(known))]
                kind = "afterany" if wait < 0.8 else "after"
                spec.dependency = f"{kind}:{target}"
            world.client.submit(spec, duration, code, components)

        world.at(when, submit)
    for _ in range(rnd.randint(0, 6)):
        pick = rnd.random()

        def cancel(pick: float = pick) -> None:
            ids = sorted(world.client.jobs)
            if ids:
                world.client.cancel(ids[int(pick * len(ids))])

        world.at(world.now + rnd.uniform(0, storm_s), cancel)
    if more is not None:
        more(world, rnd)
    try:
        start = world.now
        world.run_until(start + storm_s)
        world.calm = True
        for wait in (30.0, 300.0):
            world.at(world.now + wait, lambda: resume(world))
        world.run_until(start + storm_s + CALM_S, lambda: finished(world))
        account(world)
    except Exception as error:
        tail = "\n".join(world.history[-120:])
        raise AssertionError(f"seed {seed}: {error!r}\n{tail}") from error
    return world


def resume(world: World) -> None:
    """Somebody looks after the nodes that were drained because they could not start jobs."""
    for name in world.nodes:
        world.client.administer(UpdateNode([name], "resume"))


def finished(world: World) -> bool:
    """Whether nothing is left to do (checked after every event: kept cheap)."""
    controller = world.controller
    if world.now < world.busy_until:
        return False
    if not world.calm or controller is None or not controller.alive or not world.client.idle:
        return False
    ledger = controller.ledger
    if any(ledger.parts.values()):
        return False
    return all(job.finished and not job.completing for job in ledger.jobs.values()) or all(
        job.finished or job.held or job.deps for job in ledger.jobs.values()
    )


def account(world: World) -> None:
    """Compares what the ledger says with what was promised and with what really happened."""
    assert world.controller is not None and world.controller.alive, "no controller at the end"
    world.controller.check_reload()
    ledger = world.controller.ledger
    assert world.client.idle, "a request was never answered"
    assert not world.client.refused, world.client.refused
    for job_id, told in world.client.jobs.items():
        assert job_id in ledger.jobs, f"acknowledged job {job_id} is lost"
        tasks = sorted(ledger.array_members.get(job_id, {job_id}))
        if ledger.jobs[job_id].array_job_id:
            wanted = list(TaskSet.parse(ledger.jobs[job_id].spec.array.partition("%")[0]))
            found = [t for j in tasks for t in _tasks(ledger.jobs[j])]
            assert sorted(found) == wanted, f"array {job_id} has tasks {sorted(found)}"
        for each in tasks:
            account_job(world, ledger.jobs[each], told)
        for part in hetero.unit(ledger, ledger.jobs[job_id])[1:]:
            account_component(world, ledger.jobs[job_id], part)
    assert not any(run.end is None for run in world.runs), "something still runs"


def _tasks(job: Job) -> list[int]:
    return list(TaskSet.parse(job.array_pending)) if job.array_pending else [job.array_task_id]


def account_component(world: World, leader: Job, job: Job) -> None:
    """A further component went the way of the first, and no script ran in it."""
    same = ("state", "attempt", "restarts", "wstatus", "cancelled_by", "completing")
    for name in same:
        mine, its = getattr(job, name), getattr(leader, name)
        assert mine == its, f"component {job.id} has {name} {mine}, its leader {its}"
    assert not any(run.job_id == job.id for run in world.runs), f"component {job.id} ran a script"


def account_job(world: World, job: Job, told: Submitted) -> None:
    """One record against what was promised and what really ran."""
    job_id = job.id
    runs = [run for run in world.runs if run.job_id == job_id]
    if job.held and not job.finished:
        assert "launch failed" in job.reason, f"job {job_id} is held: {job.reason}"
        return
    if job.state == JobState.PENDING and job.deps:
        # It waits for one that is held.
        ledger = world.controller.ledger  # type: ignore[union-attr]
        targets = {j for d in job.deps for j in ledger.array_members.get(d.job_id, {d.job_id})}
        assert any(not ledger.jobs[t].finished for t in targets), f"job {job_id} waits for nobody"
        return
    assert job.finished, f"job {job_id} never ended: {job.state.name} {job.alloc}"
    if job.state == JobState.COMPLETED:
        assert told.exit_code == 0 and job.wstatus == 0, f"job {job_id} {job.wstatus}"
    elif job.state == JobState.FAILED:
        assert job.wstatus == told.exit_code << 8 and told.exit_code, f"job {job_id}"
    elif job.state == JobState.TIMEOUT:
        late = job.time_limit and told.duration > job.time_limit
        # Or with its reservation.
        assert late or told.relimited or job.reservation, f"job {job_id} timed out"
    elif job.state == JobState.CANCELLED:
        # Or a node could not start what nobody may queue again, or another component of it.
        unit = hetero.unit(world.controller.ledger, job)  # type: ignore[union-attr]
        # (The node says so; of a controller that dies then nobody hears it.)
        words = [
            f"error: job {part.id} {said}" in line
            for part in unit
            for said in ("could not be launched on ", f"attempt {job.attempt}: ")
            for line in world.history
        ]
        refused = job.spec.requeue is False and any(words)
        assert told.cancelled or refused, f"job {job_id} was cancelled by nobody"
    elif job.state == JobState.NODE_FAIL:
        assert job.spec.requeue is False, f"job {job_id} was not queued again"
    else:
        raise AssertionError(f"job {job_id} ended as {job.state.name}")
    if told.cancelled and not told.requeued and not job.array_job_id:
        assert job.state == JobState.CANCELLED, f"job {job_id}: cancel acknowledged, {job.state}"
    if job.state in (JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT):
        assert runs, f"job {job_id} ended and never ran"
        assert runs[-1].attempt == job.attempt, f"job {job_id}: another attempt was counted"
        whole = [r for r in runs if r.end is not None and r.attempt == job.attempt]
        assert len(whole) == 1
    assert len({r.attempt for r in runs}) == len(runs)
