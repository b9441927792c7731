"""Why a job waits although nodes may be free: holds, dependencies, limits, licences, partitions."""

from __future__ import annotations

from unit.ledger_support import at
from unit.why_support import CONF, Waits, World

from gsched.model import Hold, JobState, Phase
from gsched.wire.messages import UpdateJob, UpdatePartition

HOURS = 3600


def test_begin_time() -> None:
    w = Waits(World, "--begin=now+1hour", "--gres=gpu:1")
    assert w.kinds == ["begin"] and w.word == "BeginTime"
    assert w.cause.until - w.now == HOURS and not w.cause.never
    assert w.start == ("begin", HOURS)
    assert w.options == {"--begin=now"}
    assert w.why.commands == [f"scontrol update jobid={w.job.id} StartTime=now"]


def test_begin_time_when_there_is_no_room_then() -> None:
    def build() -> World:
        world = World()
        world.started("--nodes=4", "--gres=gpu:8", "--time=3:00:00")
        return world

    w = Waits(build, "--begin=now+1hour", "--gres=gpu:1")
    assert w.kinds == ["begin", "resources"] and w.word == "BeginTime"
    assert w.start == ("not_before", HOURS)
    assert w.options == set()


def test_held_by_its_owner() -> None:
    w = Waits(World, "--hold")
    assert w.kinds == ["hold"] and w.word == "JobHeldUser"
    assert (w.cause.detail, w.cause.never) == ("user", True)
    assert w.start == ("unknown", -1) and w.options == set()
    assert w.why.commands == [f"scontrol release {w.job.id}"]


def test_held_by_an_administrator() -> None:
    w = Waits(World, "--begin=now+1hour")
    w.world.write(UpdateJob([str(w.job.id)], "hold"), uid=0)
    words = w.world.settle()
    why = w.world.why(w.job)
    assert why.reason == words[w.job.id] == "JobHeldAdmin"
    assert [(cause.kind, cause.detail) for cause in why.causes] == [
        ("hold", "admin"),
        ("begin", ""),
    ]
    assert why.start.basis == "unknown"


def _requeued(held: bool) -> tuple[World, int]:
    world = World()
    job = world.started("--requeue")
    node = job.alloc[0].node
    world.report(node, at(job, Phase.RUNNING))
    verb = "requeuehold" if held else "requeue"
    world.write(UpdateJob([str(job.id)], verb), uid=1000)
    world.report(node, at(job, Phase.RELEASED, wstatus=15))
    assert job.state == JobState.PENDING and job.restarts == 1
    return world, job.id


def test_held_by_requeuehold() -> None:
    world, number = _requeued(held=True)
    words = world.settle()
    job = world.led.jobs[number]
    assert job.held == Hold.ADMIN
    why = world.why(job)
    assert why.reason == words[number] == "job requeued in held state"
    assert why.causes[0].kind == "hold" and why.causes[0].detail == "job requeued in held state"


def test_requeue_delay() -> None:
    world, number = _requeued(held=False)
    words = world.settle()
    job = world.led.jobs[number]
    why = world.why(job)
    assert why.reason == words[number] == "BeginTime"
    assert [cause.kind for cause in why.causes] == ["requeue"]
    # Two minutes and a second, as in Slurm.
    assert why.causes[0].until == int(world.now) + 121 == why.start.time
    assert why.start.basis == "requeue"


def test_array_throttle() -> None:
    w = Waits(World, "--array=0-3%2", "--gres=gpu:1", "--time=2:00:00")
    assert w.why.job == f"{w.job.array_job_id}_[2-3]"
    assert w.kinds == ["array_limit"] and w.word == "JobArrayTaskLimit"
    assert (w.cause.limit, w.cause.have, w.cause.until - w.now) == (2, 2, 2 * HOURS)
    assert [one.id for one in w.cause.jobs] == [f"{w.job.array_job_id}_{n}" for n in (0, 1)]
    assert w.start == ("array_limit", 2 * HOURS)
    assert w.options == set()
    assert w.why.commands == [f"scontrol update jobid={w.job.array_job_id} ArrayTaskThrottle=3"]


def test_dependency_on_a_running_job() -> None:
    def build() -> World:
        world = World()
        world.started("--time=2:00:00", "-J", "first")
        return world

    w = Waits(build, "--dependency=afterok:1", "--gres=gpu:1")
    assert w.kinds == ["dependency"] and w.word == "Dependency"
    assert w.cause.detail == "afterok:1(unfulfilled)" and not w.cause.never
    assert [(one.id, one.state) for one in w.cause.jobs] == [("1", "RUNNING")]
    assert w.start == ("dependency", 2 * HOURS)
    assert w.options == set()


def test_dependency_on_a_job_that_waits_too() -> None:
    def build() -> World:
        world = World()
        world.sbatch("--hold")
        return world

    w = Waits(build, "--dependency=afterany:1")
    assert [(one.id, one.state) for one in w.cause.jobs] == [("1", "PENDING")]
    assert w.start == ("unknown", -1)


def test_dependency_that_will_never_be() -> None:
    def build() -> World:
        world = World()
        job = world.started()
        node = job.alloc[0].node
        world.report(node, at(job, Phase.RUNNING))
        world.report(node, at(job, Phase.RELEASED, wstatus=1 << 8))
        assert job.state == JobState.FAILED
        return world

    w = Waits(build, "--dependency=afterok:1")
    assert w.kinds == ["dependency"] and w.word == "DependencyNeverSatisfied"
    assert w.cause.never and w.why.never
    assert [(one.id, one.state) for one in w.cause.jobs] == [("1", "FAILED")]
    assert w.start == ("unknown", -1)


def test_singleton() -> None:
    def build() -> World:
        world = World()
        world.started("-J", "nightly", "--time=2:00:00")
        return world

    w = Waits(build, "-J", "nightly", "--dependency=singleton")
    assert [(one.id, one.state) for one in w.cause.jobs] == [("1", "RUNNING")]
    assert w.start == ("dependency", 2 * HOURS)


def test_licences() -> None:
    def build() -> World:
        world = World()
        world.started("--licenses=matlab:2", "--time=1:00:00")
        world.started("--licenses=matlab:1", "--time=2:00:00")
        return world

    w = Waits(build, "--licenses=matlab:3")
    assert w.kinds == ["licenses"] and w.word == "Licenses"
    assert (w.cause.detail, w.cause.want, w.cause.limit, w.cause.have) == ("matlab", 3, 4, 1)
    assert [(one.id, one.detail) for one in w.cause.jobs] == [("1", "2"), ("2", "1")]
    # One is free, two come back in an hour.
    assert w.start == ("licenses", HOURS)
    assert w.options == {"--licenses=matlab:1", "without --licenses"}


def test_licences_that_a_job_ahead_waits_for() -> None:
    def build() -> World:
        world = World()
        world.started("--nodes=4", "--gres=gpu:8", "--time=2:00:00")
        world.sbatch("--licenses=matlab:3", "--gres=gpu:1")
        world.settle()
        return world

    w = Waits(build, "--licenses=matlab:2", "--time=1:00:00")
    assert w.kinds == ["licenses"] and w.word == "Licenses"
    assert (w.cause.want, w.cause.have, w.cause.jobs) == (2, 1, [])
    assert w.options == {"--licenses=matlab:1", "without --licenses"}


DEBUG = CONF + "PartitionName=debug Nodes=node1 MaxTime=30:00 DefaultTime=10:00\n"


def test_partition_down() -> None:
    def build() -> World:
        world = World(DEBUG)
        world.write(UpdatePartition("debug", "update", {"state": "DOWN"}), uid=0)
        return world

    w = Waits(build, "--partition=debug")
    assert w.kinds == ["partition_state"] and w.word == "PartitionDown"
    assert (w.cause.partition, w.cause.detail) == ("debug", "DOWN")
    assert w.start == ("unknown", -1) and not w.why.never
    assert w.options == {"--partition=gpu"}


def test_time_limit_beyond_the_partitions() -> None:
    w = Waits(lambda: World(DEBUG), "--partition=debug", "--time=1:00:00")
    assert w.kinds == ["time_limit"] and w.word == "PartitionTimeLimit"
    assert (w.cause.want, w.cause.limit, w.cause.never) == (HOURS, 1800, True)
    assert w.why.never and w.start == ("unknown", -1)
    assert w.options == {"--time=30:00", "--partition=gpu"}


def test_too_many_nodes_for_the_partition() -> None:
    conf = CONF + "PartitionName=small Nodes=ALL MaxNodes=2\n"
    w = Waits(lambda: World(conf), "--partition=small", "--nodes=3")
    assert w.kinds == ["size"] and w.word == "PartitionConfig"
    assert (w.cause.want, w.cause.limit, w.cause.detail) == (3, 2, "nodes")
    assert w.why.never
    assert w.options == {"--nodes=2", "--partition=gpu"}


def test_an_account_that_the_partition_does_not_take() -> None:
    conf = CONF + "PartitionName=lab Nodes=ALL AllowAccounts=physics\n"
    w = Waits(lambda: World(conf), "--partition=lab", "--account=chemistry")
    assert w.kinds == ["account"] and w.word == "AccountNotAllowed"
    assert (w.cause.partition, w.cause.detail) == ("lab", "chemistry")
    assert w.options == {"--partition=gpu"}


def test_a_partition_that_is_down_beside_one_that_is_full() -> None:
    def build() -> World:
        world = World(DEBUG)
        world.write(UpdatePartition("debug", "update", {"state": "DOWN"}), uid=0)
        world.started("--nodes=4", "--gres=gpu:8", "--time=1:00:00")
        return world

    w = Waits(build, "--partition=debug,gpu", "--gres=gpu:1", "--time=20:00")
    assert w.kinds == ["resources", "partition_state"] and w.word == "Resources"
    assert w.start == ("planned", HOURS)


def test_one_component_of_a_heterogeneous_job_has_no_room() -> None:
    def build() -> World:
        world = World()
        world.started("--gres=gpu:8", "--nodelist=node1", "--time=2:00:00")
        return world

    w = Waits(build, "--gres=gpu:1", ":", "--nodes=4", "--gres=gpu:7")
    first, second = w.why.components
    assert [cause.kind for cause in first.causes] == ["component"]
    assert [one.id for one in first.causes[0].jobs] == ["2+1"]
    assert [cause.kind for cause in second.causes] == ["resources"]
    assert [(one.what, one.nodes) for one in second.places[0].lacks] == [("gpus", 1)]
    assert [cause.kind for cause in w.why.causes] == ["resources"]
    assert not w.why.starts


def test_components_have_room_one_by_one_but_not_together() -> None:
    def build() -> World:
        world = World()
        world.started("--nodes=3", "--gres=gpu:8", "--time=2:00:00")
        return world

    w = Waits(build, "--gres=gpu:8", ":", "--gres=gpu:8")
    assert [[c.kind for c in part.causes] for part in w.why.components] == [["together"]] * 2
    assert not w.why.starts


# ---- jobs that do not wait --------------------------------------------------------------------


def test_a_job_that_nobody_has_looked_at() -> None:
    world = World()
    job = world.sbatch()
    why = world.why(job)
    assert [cause.kind for cause in why.causes] == ["new"] and why.reason == "None"
    assert why.starts and why.start.basis == "now"


def test_passes_that_end_before_they_come_to_a_job() -> None:
    conf = CONF.replace("GresTypes", "SchedulerParameters=bf_max_job_test=2\nGresTypes")
    world = World(conf)
    world.started("--nodes=4", "--gres=gpu:8", "--time=1:00:00")
    for _ in range(2):
        world.sbatch("--gres=gpu:1")
    job = world.sbatch("--time=10:00")
    words = world.settle()
    why = world.why(job)
    assert [cause.kind for cause in why.causes] == ["not_tested"]
    assert (why.causes[0].limit, why.causes[0].have) == (2, 2)
    assert why.reason == "None" and words.get(job.id, "None") == "None"


def test_a_running_and_a_finished_job() -> None:
    world = World()
    job = world.started()
    why = world.why(job)
    assert (why.state, why.began, why.nodes, why.causes) == (
        "RUNNING",
        int(world.now),
        "node1",
        [],
    )
    world.report("node1", at(job, Phase.RUNNING))
    world.now += 100
    world.report("node1", at(job, Phase.RELEASED, wstatus=0))
    why = world.why(job)
    assert (why.state, why.ended - why.began, why.nodes) == ("COMPLETED", 100, "node1")
