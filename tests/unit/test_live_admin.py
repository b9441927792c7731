"""Partitions, nodes and the configuration changed while jobs wait and run. Texts are Slurm's:
transcripts 027, 028 and 033, and what a Slurm 22.05 said to the same commands."""

from __future__ import annotations

import msgspec
import pytest
from unit.ledger_support import CONF, Bench, at

from gsched.config import parse_config
from gsched.config.overrides import with_partitions
from gsched.ledger import Configure, Ledger, NodeMessage, TakeOver, Tick
from gsched.ledger.invariants import check
from gsched.model import Gpu, Job, JobState, Node, NodeFlag, PartitionChange, Phase, Shape
from gsched.wire.codec import PROTOCOL
from gsched.wire.messages import CancelJobs, Done, Refused, UpdateJob, UpdateNode, UpdatePartition
from gsched.wire.nodes import Register, Report, Reread, Reregister


def part(b: Bench, verb: str, name: str, uid: int = 0, **fields: str) -> str:
    reply = b.write(UpdatePartition(name, verb, fields), uid)
    return reply.message if isinstance(reply, Refused) else ""


def node(b: Bench, name: str, state: str = "", reason: str = "", **fields: str) -> str:
    reply = b.write(UpdateNode([name], state, reason, fields), 0)
    return reply.message if isinstance(reply, Refused) else ""


def running(b: Bench, **kw: object) -> Job:
    job = b.job(**kw)
    b.schedule()
    for share in job.alloc:
        b.report(share.node, *(at(j, Phase.RUNNING) for j in held(b, share.node)))
    return job


def held(b: Bench, name: str) -> list[Job]:
    return [b.led.jobs[i] for i in b.led.parts[name]]


def configure(b: Bench, text: str) -> None:
    b.apply(Configure(parse_config({"slurm.conf": text})))


def reloaded(b: Bench) -> Ledger:
    """The ledger of a controller that starts now."""

    def copied(value: object) -> object:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))

    led = Ledger.load(
        b.led.files,
        b.led.meta,
        [copied(job) for job in b.led.jobs.values()],  # type: ignore[misc]
        [copied(node) for node in b.led.nodes.values()],  # type: ignore[misc]
        partition_records=list(b.led.partition_changes.values()),
    )
    check(led)
    return led


# ---- partitions ----------------------------------------------------------------------------------


def test_states_of_a_partition() -> None:
    """Transcript 027."""
    b = Bench()
    assert part(b, "update", "gpu", state="down") == ""
    waiting = b.job()
    assert b.verdict(waiting) == "PartitionDown"
    for state in ("drain", "inactive"):
        assert part(b, "update", "gpu", state=state) == ""
        refused = b.submit()
        assert isinstance(refused, Refused)
        assert refused.message == "Required partition not available (inactive or drain)"
    assert b.verdict(waiting) == "PartitionInactive"
    assert part(b, "update", "gpu", state="up") == ""
    b.schedule()
    assert waiting.state == JobState.RUNNING


def test_create_change_and_delete() -> None:
    b = Bench()
    assert part(b, "create", "p1", nodes="node[1-2]", maxtime="1:00:00") == ""
    assert part(b, "create", "p1") == "Invalid partition name specified"
    assert part(b, "create", "p2", nodes="nosuch") == "Invalid node name specified"
    assert part(b, "update", "nosuch", state="up") == "Invalid partition name specified"
    assert part(b, "update", "p1", nodes="node9") == "Invalid node name specified"
    assert part(b, "update", "gpu", maxtime="nosuch") == "Invalid input maxtime=nosuch"
    assert part(b, "update", "p1", uid=1000, state="down") == "Invalid user id"
    assert part(b, "create", "p9", uid=1000) == "Invalid user id"
    made = b.led.config.partitions["p1"]
    assert (made.nodes, made.max_time) == (("node1", "node2"), 3600)
    job = running(b, partitions=("p1",), shape=Shape(min_nodes=2, max_nodes=2), time_limit=600)
    assert [share.node for share in job.alloc] == ["node1", "node2"]
    assert part(b, "delete", "p1") == "Partition is in use"
    for name in ("node1", "node2"):
        b.report(name, at(job, Phase.RELEASED, wstatus=0))
    assert part(b, "delete", "p1") == "" and "p1" not in b.led.config.partitions
    assert part(b, "delete", "nosuch") == "Invalid partition name specified"
    assert part(b, "delete", "debug") == "" and "debug" not in reloaded(b).config.partitions


def test_limits_of_a_partition_judge_waiting_jobs_anew() -> None:
    b = Bench()
    part(b, "update", "gpu", maxnodes="1")
    job = b.job(shape=Shape(min_nodes=2, max_nodes=2), time_limit=7200)
    assert b.verdict(job) == "PartitionConfig"
    part(b, "update", "gpu", maxnodes="2", maxtime="1:00:00")
    assert b.verdict(job) == "PartitionTimeLimit"
    part(b, "update", "gpu", maxtime="2:00:00")
    b.schedule()
    assert job.state == JobState.RUNNING


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (Shape(min_nodes=3, max_nodes=3, nodes_set=True), "Node count specification invalid"),
        (Shape(min_nodes=9, max_nodes=9, nodes_set=True), "Node count specification invalid"),
        (Shape(min_nodes=1, max_nodes=1, nodes_set=True), "Node count specification invalid"),
        (Shape(ntasks=65), "More processors requested than permitted"),
        (Shape(), ""),
    ],
)
def test_enforced_limits_of_partitions(shape: Shape, says: str) -> None:
    b = Bench(CONF + "EnforcePartLimits=ALL\n")
    part(b, "update", "gpu", maxnodes="2", minnodes="2")
    reply = b.submit(shape=shape)
    assert (reply.message if isinstance(reply, Refused) else "") == says
    job = b.job(hold=True)
    both = b.submit(shape=shape, partitions=("debug", "gpu"))
    assert isinstance(both, Refused) == bool(says)
    update = UpdateJob([str(job.id)], "update", {"numnodes": "3"})
    reply = b.write(update, 0)
    assert reply.errors == [(str(job.id), "Node count specification invalid")]  # type: ignore[union-attr]
    again = b.write(UpdateJob([str(job.id)], "update", {"numnodes": "2"}), 0)
    assert isinstance(again, Done) and not again.errors


def test_nodes_are_added_to_and_taken_from_a_partition() -> None:
    b = Bench()
    job = running(b, partitions=("debug",), shape=Shape(gpus_per_node=8), time_limit=600)
    waiting = b.job(partitions=("debug",), shape=Shape(gpus_per_node=8), time_limit=600)
    b.schedule()
    assert waiting.state == JobState.PENDING
    part(b, "update", "debug", nodes="+node4")
    b.schedule()
    assert waiting.alloc[0].node == "node4"
    part(b, "update", "debug", nodes="node4")
    assert job.state == JobState.RUNNING
    assert b.led.config.partitions["debug"].nodes == ("node4",)


def test_there_is_one_default_partition() -> None:
    b = Bench()
    part(b, "update", "debug", default="yes")
    part(b, "update", "gpu", maxtime="5-0")
    assert b.led.config.default_partition == "debug"
    assert reloaded(b).config.default_partition == "debug"
    part(b, "update", "gpu", default="yes")
    defaults = [p.name for p in b.led.config.partitions.values() if p.default]
    assert defaults == ["gpu"]


def test_what_commands_show_is_what_is_in_force() -> None:
    b = Bench()
    part(b, "create", "p1", nodes="node[3-4]", prioritytier="7")
    part(b, "update", "debug", state="down", maxnodes="1")
    shown = with_partitions(b.config, list(b.led.partition_changes.values()))
    assert shown.partitions == b.led.config.partitions
    assert with_partitions(b.config, [PartitionChange("x", {"nodes": "gone"})]) == b.config


def test_changes_last_until_the_files_are_read_again() -> None:
    b = Bench()
    part(b, "update", "gpu", state="down")
    part(b, "create", "p1", nodes="node1")
    assert reloaded(b).config.partitions["gpu"].state == "DOWN"
    configure(b, CONF)
    assert b.led.config.partitions["gpu"].state == "UP" and "p1" not in b.led.config.partitions
    part(b, "update", "gpu", state="down", maxnodes="1")
    configure(b, CONF + "ReconfigFlags=KeepPartState\n")
    assert b.led.config.partitions["gpu"].state == "DOWN"
    assert b.led.config.partitions["gpu"].max_nodes is None


# ---- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["down", "drain", "fail"])
def test_a_bad_state_needs_a_reason(state: str) -> None:
    b = Bench()
    says = "You must specify a reason when DOWNING or DRAINING a node. Request denied"
    assert node(b, "node4", state) == says
    assert node(b, "node4", state, "bad fan") == ""
    assert (b.led.nodes["node4"].reason, b.led.nodes["node4"].reason_uid) == ("bad fan", 0)
    assert b.led.nodes["node4"].reason_time == int(b.now)
    assert node(b, "node4", "resume") == "" and b.led.nodes["node4"].flags == NodeFlag.NONE


@pytest.mark.parametrize(
    "state", ["resume", "power_down", "power_up", "power_down_force", "cancel_reboot", "alloc"]
)
def test_states_that_an_idle_node_cannot_be_given(state: str) -> None:
    b = Bench()
    assert node(b, "node4", state) == "Invalid node state specified"


def test_future_undrain_and_noresp() -> None:
    b = Bench()
    assert node(b, "node4", "future") == ""
    assert node(b, "node4", "idle") == "Invalid node state specified"
    assert node(b, "node4", "resume") == ""
    node(b, "node4", "down", "test")
    assert node(b, "node4", "undrain") == "" and b.led.nodes["node4"].reason == "test"
    job = running(b, shape=Shape(nodelist=("node3",)))
    assert node(b, "node3", "future") == "Invalid node state specified"
    assert node(b, "node2", "noresp") == ""
    b.report("node2")
    assert b.led.nodes["node2"].flags == NodeFlag.NONE and job.state == JobState.RUNNING


def test_features_weight_and_gpus_of_a_node() -> None:
    b = Bench()
    no_subset = "Active features not subset of available features"
    assert node(b, "node4", activefeatures="zz") == no_subset
    assert node(b, "node4", gres="gpu:4") == "Invalid generic resource (gres) specification"
    assert isinstance(b.submit(shape=Shape(features="new")), Refused)
    assert node(b, "node4", availablefeatures="new,h100", weight="9") == ""
    job = running(b, shape=Shape(features="new"))
    assert job.alloc[0].node == "node4"
    assert node(b, "node1", gres="gpu:0") == ""
    job = running(b, shape=Shape(gpus_per_node=8))
    assert job.alloc[0].node == "node2"
    assert reloaded(b).config.nodes["node4"].weight == 9
    configure(b, CONF)
    assert b.led.config.nodes["node4"].features == ("h100", "rackB")


def test_a_node_that_loses_a_gpu_goes_on_with_the_others() -> None:
    b = Bench()
    gpus = [Gpu(f"node1-{i}", "h100", i) for i in range(8)]
    for left in (gpus[:7], gpus[1:]):
        b.register("node1", gpus=left)
        found = b.led.nodes["node1"]
        assert found.flags == NodeFlag.NONE and [g.uuid for g in found.gpus if g.fault]
        job = running(b, shape=Shape(nodelist=("node1",), gpus_per_node=7))
        assert job.alloc[0].node == "node1"
        waiting = b.job(shape=Shape(nodelist=("node1",), gpus_per_node=1))
        b.schedule()
        assert waiting.state == JobState.PENDING
        b.write(CancelJobs([str(waiting.id)]), 0)
        b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    # the configuration no longer promises the eighth
    configure(b, CONF.replace("Gres=gpu:h100:8", "Gres=gpu:h100:7"))
    b.register("node1", gpus=gpus[:7])
    assert len(b.led.nodes["node1"].gpus) == 7


# ---- reconfigure ---------------------------------------------------------------------------------

MORE = CONF.replace("node[3-4]", "node[3-6]")
LESS = CONF.replace("NodeName=node[3-4]", "NodeName=node4")


def test_nodes_are_added() -> None:
    b = Bench()
    job = running(b, shape=Shape(gpus_per_node=8))
    waiting = b.job(shape=Shape(min_nodes=5, max_nodes=5))
    assert b.verdict(waiting) == "PartitionConfig"
    out = b.apply(Configure(parse_config({"slurm.conf": MORE})))
    # those that were refused so far are told to come again, the others to read their files
    assert out.messages[:2] == [("node5", Reregister(1)), ("node6", Reregister(1))]
    assert [m for _, m in out.messages[2:]] == [Reread(1)] * 4
    b.register("node5")
    b.register("node6")
    b.schedule()
    assert len(waiting.alloc) == 5 and job.state == JobState.RUNNING


def test_a_node_that_is_removed_keeps_its_jobs_until_they_end() -> None:
    b = Bench()
    job = running(b, shape=Shape(nodelist=("node3",), gpus_per_node=2))
    configure(b, LESS)
    assert b.led.nodes["node3"].flags & NodeFlag.DRAIN
    assert b.led.nodes["node3"].reason == "removed from the configuration while jobs run"
    assert b.led.cluster.used("node3")[2] == 0b11
    led = reloaded(b)
    assert led.cluster.used("node3")[2] == 0b11 and led.carried == {"node3"}
    b.register("node3", [at(job, Phase.RUNNING)])
    b.report("node3", at(job, Phase.RELEASED, wstatus=0))
    assert job.state == JobState.COMPLETED
    b.apply(Tick())
    assert "node3" not in b.led.nodes and set(b.led.nodes) == {"node1", "node2", "node4"}
    # Should it still call, it is told so.
    out = b.apply(NodeMessage("node3", Report("x", 1, 0, [])))
    assert out.messages[0][1].refused == "node3 is not configured"  # type: ignore[union-attr]


def test_an_idle_node_is_removed_at_once_and_those_who_want_it_wait() -> None:
    b = Bench()
    waiting = b.job(shape=Shape(nodelist=("node3",)), begin=int(b.now) + 60)
    configure(b, LESS)
    assert "node3" not in b.led.nodes
    assert b.verdict(waiting) == "BadConstraints"
    configure(b, CONF)
    b.register("node3")
    b.now += 61
    b.schedule()
    assert waiting.alloc[0].node == "node3"


def test_a_node_that_becomes_too_small_is_drained_until_its_jobs_end() -> None:
    b = Bench()
    job = running(b, shape=Shape(nodelist=("node1",), cpus_per_task=16))
    small = CONF.replace("CPUs=16 Sockets=2 CoresPerSocket=8", "CPUs=8 Sockets=2 CoresPerSocket=4")
    configure(b, small)
    assert b.led.config.nodes["node1"].cpus == 16 and b.led.config.nodes["node2"].cpus == 8
    assert b.led.nodes["node1"].reason == "configured with fewer CPUs than its jobs use"
    b.report("node1", at(job, Phase.RELEASED, wstatus=0))
    b.apply(Tick())
    assert b.led.config.nodes["node1"].cpus == 8
    assert b.led.nodes["node1"].flags == NodeFlag.NONE and b.led.nodes["node1"].reason == ""
    assert isinstance(b.submit(shape=Shape(cpus_per_task=9)), Refused)


def test_settings_of_the_cluster_count_from_now_on() -> None:
    b = Bench()
    configure(b, CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=5"))
    b.now += 6
    b.apply(Tick())
    assert all(n.flags & NodeFlag.DOWN for n in b.led.nodes.values())


def test_arrays_throttles_and_dependencies_outlive_it() -> None:
    b = Bench()
    running(b, array="1-6%2", shape=Shape(gpus_per_node=1))
    first = b.led.jobs[1]
    after = b.job(dependency="afterany:1")
    configure(b, MORE)
    assert b.verdict(after) == "Dependency"
    states = [j.state for j in b.led.jobs.values() if j.array_job_id == 1]
    assert states.count(JobState.RUNNING) == 2 and first.array_throttle == 2
    b.write(UpdateJob(["1"], "update", {"arraytaskthrottle": "4"}), 0)
    b.schedule()
    states = [j.state for j in b.led.jobs.values() if j.array_job_id == 1]
    assert states.count(JobState.RUNNING) == 4


def test_states_in_the_file_count_for_new_nodes() -> None:
    text = CONF + (
        "NodeName=cloud[1-2] CPUs=16 RealMemory=64000 State=CLOUD\n"
        "NodeName=broken CPUs=16 RealMemory=64000 State=DOWN Reason=psu\n"
    )
    b = Bench()
    configure(b, text)
    assert b.led.nodes["cloud1"].flags & NodeFlag.FUTURE
    assert b.led.nodes["broken"].flags & NodeFlag.DOWN and b.led.nodes["broken"].reason == "psu"
    assert isinstance(b.write(UpdateNode(["broken"], "resume"), 0), Done)
    b.register("broken")
    assert b.led.nodes["broken"].flags == NodeFlag.NONE


def test_a_restart_without_the_node_of_a_running_job() -> None:
    """The file was changed while no controller ran."""
    b = Bench()
    job = running(b, shape=Shape(nodelist=("node3",), gpus_per_node=2))
    b.led.files = parse_config({"slurm.conf": LESS})
    led = reloaded(b)
    led.apply(TakeOver(), b.now)
    check(led)
    assert led.jobs[job.id].state == JobState.RUNNING
    assert led.nodes["node3"].flags & NodeFlag.DRAIN
    assert isinstance(led.nodes["node3"], Node)


def test_links_of_each_node_are_kept_apart_when_the_configuration_is_read_anew() -> None:
    b = Bench(register=False)
    flat = [
        Gpu(f"a{i}", "h100", i, links=[0 if i == j else 18 for j in range(8)]) for i in range(8)
    ]
    pairs = [
        Gpu(f"b{i}", "h100", i, links=[18 if i != j and i // 4 == j // 4 else 0 for j in range(8)])
        for i in range(8)
    ]
    b.register("node1", gpus=flat)
    b.register("node2", gpus=pairs)
    for _ in range(2):
        configure(b, CONF)
        one = b.job(shape=Shape(gpus_per_node=1, nodelist=("node2",)))
        four = b.job(shape=Shape(gpus_per_node=4, nodelist=("node2",)))
        for name in ("node1", "node2"):
            b.report(name)
        b.schedule()
        # One GPU is taken of the first island: four together are left on the second only.
        assert {one.alloc[0].gpus < 16, four.alloc[0].gpus < 16} == {True, False}
        b.write(CancelJobs([str(one.id), str(four.id)]), 0)
        b.report("node2", *(at(j, Phase.RELEASED, wstatus=15) for j in (one, four)))


# ---- nodes that are not what the files say -------------------------------------------------------


def registration(b: Bench, name: str, session: str, **facts: object) -> list[str]:
    """What is logged of a registration."""
    base = {"cpus": 16, "mem_mb": 64000} | facts
    gpus = [Gpu(f"{name}-{i}", "h100", i, links=[0] * 8) for i in range(8)]
    message = Register(PROTOCOL, name, "c1", "b1", session, 1, "t", gpus=gpus, attempts=[], **base)  # type: ignore[arg-type]
    return [text for _, text in b.apply(NodeMessage(name, message)).log]


def test_another_slurm_conf_of_a_node_is_told_once() -> None:
    b = Bench()
    mine = b.config.checksum
    assert registration(b, "node1", "s1", conf=mine) == []
    told = registration(b, "node1", "s2", conf="0")
    assert [text.partition(".  ")[0] for text in told] == [
        "Node node1 appears to have a different slurm.conf than the slurmctld"
    ]
    assert b.led.nodes["node1"].conf_differs == "slurm.conf"
    assert registration(b, "node1", "s3", conf="0") == []
    assert len(registration(b, "node1", "s4", conf=mine)) == 1
    assert b.led.nodes["node1"].conf_differs == ""
    # An older node says nothing of its files.
    assert registration(b, "node1", "s5") == []


def test_comments_and_places_make_no_other_configuration_but_values_do() -> None:
    def checksum(text: str, **more: str) -> str:
        return parse_config({"slurm.conf": text, **more}).checksum

    plain = checksum(CONF)
    assert checksum("# remark\n\n" + CONF.replace("KillWait=5", "killwait = 5 # five")) == plain
    assert checksum("Include rest\n", rest=CONF) == plain
    assert checksum(CONF.replace("KillWait=5", "KillWait=6")) != plain


def test_a_node_with_its_own_gres_conf_is_compared_where_the_controller_has_one() -> None:
    gres = "NodeName=node[1-4] Name=gpu Type=h100 File=/dev/nvidia[0-7]\n"
    both = parse_config({"slurm.conf": CONF, "gres.conf": gres})
    other = parse_config({"slurm.conf": CONF, "gres.conf": gres.replace("nvidia", "mygpu")})
    b = Bench()
    facts = {"conf": both.checksum, "gres_conf": both.gres_checksum("node1")}
    assert registration(b, "node1", "s1", **facts) == []
    b.apply(Configure(both))
    assert registration(b, "node1", "s2", **facts) == []
    registration(b, "node1", "s3", **facts | {"gres_conf": other.gres_checksum("node1")})
    assert b.led.nodes["node1"].conf_differs == "gres.conf"


def test_a_node_smaller_than_its_line_is_drained_until_it_registers_with_enough() -> None:
    b = Bench()
    record = b.led.nodes["node1"]
    registration(b, "node1", "s1", mem_mb=63999)
    low = "Low RealMemory (reported:63999 < 100.00% of configured:64000)"
    assert (record.flags, record.reason) == (NodeFlag.DRAIN, low)
    registration(b, "node1", "s2", cpus=8, mem_mb=63999)
    assert record.reason == f"Low socket*core*thread count, Low CPUs, {low}"
    registration(b, "node1", "s3")
    assert (record.flags, record.reason) == (NodeFlag(0), "")
    # An administrator's reason stays.
    node(b, "node1", "drain", "broken fan")
    registration(b, "node1", "s4", cpus=8)
    registration(b, "node1", "s5")
    assert (record.flags, record.reason) == (NodeFlag.DRAIN, "broken fan")


def test_config_overrides_takes_a_small_node_for_what_its_line_says() -> None:
    b = Bench("SlurmdParameters=config_overrides" + CONF)
    registration(b, "node1", "s1", cpus=2, mem_mb=4000)
    assert b.led.nodes["node1"].flags == NodeFlag(0)
