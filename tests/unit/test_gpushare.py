"""gres/shard and gres/mps: from the configuration over the request to what users and jobs see.

The rules are those of gres.conf(5) and of Slurm's page on generic resources: a GPU is given whole
or in parts, the parts of a job on one node lie on one GPU, counts without File= are spread evenly.
"""

from __future__ import annotations

import msgspec
import pytest
from sbatch_support import FakeCluster, Ran, sbatch
from unit.ledger_support import Bench, at
from views_support import FakeReader, invoke

from gsched import gpushare
from gsched.config import ConfigError, parse_config
from gsched.ledger import Ledger
from gsched.ledger.invariants import check
from gsched.model import Gpu, Job, JobState, NodeAlloc, NodeUse, Phase, Shape
from gsched.wire.messages import Done, Refused, UpdateJob
from gsched_cli import scontrol, sinfo
from gsched_cli.jobview import JobView
from slurmd_compat.binding import share_variables
from slurmd_compat.main import gres

CONF = """
ClusterName=c
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu,shard,mps
DefMemPerCPU=100
MinJobAge=300
NodeName=a1 CPUs=16 RealMemory=64000 Gres={gres}
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def conf(gres: str, gres_conf: str = "") -> dict[str, str]:
    files = {"slurm.conf": CONF.format(gres=gres)}
    return files | ({"gres.conf": gres_conf} if gres_conf else {})


def parts(gres: str, gres_conf: str = "", gpus: list[Gpu] | None = None) -> object:
    return gpushare.parts(parse_config(conf(gres, gres_conf)), "a1", gpus or [])


# ---- configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gres", "lines", "expected"),
    [
        ("gpu:4,shard:16", "", [("shard", 4)] * 4),
        ("gpu:4,shard:16", "Name=shard Count=16", [("shard", 4)] * 4),
        ("gpu:3,shard:7", "", [("shard", 3), ("shard", 2), ("shard", 2)]),
        ("gpu:2,mps:400", "", [("mps", 200)] * 2),
        (
            "gpu:2,shard:10",
            "Name=shard Count=8 File=/dev/nvidia0\nName=shard Count=2 File=/dev/nvidia1",
            [("shard", 8), ("shard", 2)],
        ),
        ("gpu:2,shard:8", "Name=shard Count=8 File=/dev/nvidia1", [("", 0), ("shard", 8)]),
        (
            "gpu:2,shard:4,mps:100",
            "Name=mps Count=100 File=/dev/nvidia0\nName=shard Count=4 File=/dev/nvidia1",
            [("mps", 100), ("shard", 4)],
        ),
        ("gpu:a:1,gpu:b:2,shard:b:6", "", [("", 0), ("shard", 3), ("shard", 3)]),
        ("gpu:2", "", None),
    ],
)
def test_how_many_parts_each_gpu_has(gres: str, lines: str, expected: object) -> None:
    assert parts(gres, lines) == expected


def test_gpus_are_known_by_their_files_and_a_new_one_takes_the_place_of_another() -> None:
    lines = "Name=shard Count=8 File=/dev/nvidia1"
    found = [Gpu("u1", minor=1), Gpu("u0", minor=0)]
    assert parts("gpu:2,shard:8", lines, found) == [("shard", 8), ("", 0)]
    # The first is gone, its successor has the next bit.
    found = [Gpu("u0", minor=-1), Gpu("u1", minor=1), Gpu("u2", minor=0)]
    assert parts("gpu:2,shard:8", "", found) == [("shard", 4)] * 3


@pytest.mark.parametrize(
    ("gres", "lines", "sentence"),
    [
        ("shard:4", "", '"shard:4" is parts of GPUs, and the node has none'),
        ("gpu:1,mps:20000", "", "a GPU has at most 16383 parts"),
        (
            "gpu:2,shard:9",
            "Name=shard Count=4 File=/dev/nvidia[0-1]",
            "gres.conf lists 4 devices of shard on node a1, slurm.conf promises 9",
        ),
    ],
)
def test_impossible_configurations(gres: str, lines: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_config(conf(gres, lines))


def test_two_kinds_on_one_gpu_are_warned_of() -> None:
    warned = parse_config(conf("gpu:2,shard:4,mps:200")).warnings
    assert any("node a1 has mps and shard" in text for text in warned)
    assert parts("gpu:2,shard:4,mps:200") == [("shard", 2), ("shard", 2)]


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [
        ("mps", "", True),
        ("shard", "", False),
        ("mps", "Name=mps Count=200 Flags=all_sharing", False),
        ("shard", "Name=shard Count=4 Flags=one_sharing", True),
    ],
)
def test_one_sharing_is_the_default_of_mps(name: str, lines: str, expected: bool) -> None:
    config = parse_config(conf("gpu:2,shard:4" if name == "shard" else "gpu:2,mps:200", lines))
    assert gpushare.one_shared(config, name) is expected


# ---- requests -----------------------------------------------------------------------------------


def ask(*argv: str) -> Ran:
    config = parse_config(conf("gpu:4,shard:16"))
    return sbatch(*argv, "--wrap", "true", cluster=FakeCluster(configured=config))


def test_requests_for_parts() -> None:
    spec = ask("--gres=shard:2").sent.spec
    assert (spec.shape.share, spec.shape.share_count, spec.shape.gpu_type) == ("shard", 2, "")
    assert spec.shape.gpus_per_node == 0
    assert spec.tres["per_node"] == "gres/shard:2"
    shape = ask("--gres=mps:h100:50").sent.spec.shape
    assert (shape.share, shape.share_count, shape.gpu_type) == ("mps", 50, "h100")
    assert ask("--gres=shard").sent.spec.shape.share_count == 1
    assert ask("--gres=shard:0").sent.spec.shape.share == ""


@pytest.mark.parametrize(
    "argv",
    [
        ["--gres=gpu:1,shard:1"],
        ["--gres=shard:1,mps:1"],
        ["--gres=shard:1", "--gpus=1"],
        ["--gres=shard:1", "-n1", "--gpus-per-task=1"],
        ["--gres=mps:50", "--gpu-freq=high"],
        ["--gres=shard:1,shard:h100:1"],
    ],
)
def test_whole_gpus_and_parts_do_not_go_together(argv: list[str]) -> None:
    done = ask(*argv)
    assert done.code == 1
    invalid = "sbatch: error: Invalid generic resource (gres) specification\n"
    mixed = "sbatch: error: Invalid GRES specification (with and without type identification)\n"
    assert done.err == (mixed if "h100" in argv[0] else invalid)


# ---- the ledger ---------------------------------------------------------------------------------

PEER = """
ClusterName=peer
SlurmctldHost=ctl(127.0.0.1)
GresTypes=gpu,shard
DefMemPerCPU=2000
MinJobAge=300
ReturnToService=2
NodeName=n1 CPUs=16 RealMemory=64000 Gres=gpu:h100:2,shard:6
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
"""


def bench(conf: str = PEER) -> Bench:
    made = Bench(conf, register=False)
    gpus = [Gpu(f"n1-{i}", "h100", i, links=[0, 0]) for i in range(2)]
    made.register("n1", gpus=gpus)
    return made


def shard(count: int, **more: object) -> Shape:
    return Shape(share="shard", share_count=count, **more)  # type: ignore[arg-type]


def held(job: Job) -> tuple[int, int]:
    return job.alloc[0].gpus, job.alloc[0].shares


def test_jobs_share_a_gpu_and_a_whole_one_waits_for_them() -> None:
    b = bench()
    first, second = b.job(shape=shard(2)), b.job(shape=shard(1))
    b.schedule()
    assert (held(first), held(second)) == ((1, 2), (1, 1))
    whole, both = b.job(shape=Shape(gpus_per_node=1)), b.job(shape=Shape(gpus_per_node=2))
    b.schedule()
    assert held(whole) == (2, 0)
    assert (whole.gpu_types, first.gpu_types) == ({"h100": 1}, {})
    assert b.verdict(both) == "Resources"
    third = b.job(shape=shard(1))
    b.schedule()
    assert third.state == JobState.PENDING
    for job in (first, second, whole):
        b.report("n1", at(job, Phase.RELEASED, wstatus=0))
    b.schedule()
    assert held(both) == (3, 0)
    assert third.state == JobState.PENDING


def test_what_jobs_hold_outlives_the_controller() -> None:
    b = bench()
    jobs = [b.job(shape=shard(2)), b.job(shape=shard(1)), b.job(shape=shard(3))]
    b.schedule()
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(jobs), type=list[Job])
    led = Ledger.load(b.config, b.led.meta, again, b.led.nodes.values())
    check(led)
    assert led.cluster.used("n1") == b.led.cluster.used("n1")
    assert led.cluster.parts_held(jobs[2].id) == 3
    assert [held(job) for job in again] == [(1, 2), (1, 1), (2, 3)]
    # A record of an older release has no word of parts.
    old = msgspec.to_builtins(jobs[0].alloc[0])[:7]
    assert msgspec.convert(old, NodeAlloc).shares == 0


def test_impossible_parts_are_refused_as_slurm_does() -> None:
    b = bench()
    for shape, sentence in (
        (shard(4), "Requested node configuration is not available"),
        (shard(1, min_nodes=2), None),
        (
            Shape(share="mps", share_count=50),
            "Invalid generic resource (gres) specification",
        ),
        (shard(1, gpus_total=1), "Invalid generic resource (gres) specification"),
        (shard(0), "Invalid generic resource (gres) specification"),
    ):
        reply = b.submit(shape=shape)
        if sentence is None:
            assert isinstance(reply, Done)
        else:
            assert isinstance(reply, Refused)
            assert reply.message == sentence
    typed = b.submit(shape=shard(1, gpu_type="a100"))
    assert isinstance(typed, Refused)


def test_a_faulty_gpu_gets_no_parts() -> None:
    b = bench()
    gpus = [Gpu(f"n1-{i}", "h100", i, links=[0, 0]) for i in range(2)]
    gpus[0].fault = "ill"
    b.register("n1", gpus=gpus)
    job = b.job(shape=shard(1))
    b.schedule()
    assert held(job) == (2, 1)


def test_a_whole_node_is_given_with_its_gpus_and_without_parts() -> None:
    b = bench()
    job = b.job(shape=shard(1, exclusive=1))
    b.schedule()
    assert held(job) == (3, 0)


def test_a_waiting_job_can_be_changed_to_parts_and_back() -> None:
    b = bench()
    job = b.job(shape=Shape(gpus_per_node=2), hold=True)
    b.write(UpdateJob([str(job.id)], "update", {"gres": "shard:2"}), 0)
    shape = b.led.jobs[job.id].spec.shape
    assert (shape.share, shape.share_count, shape.gpus_per_node) == ("shard", 2, 0)
    b.write(UpdateJob([str(job.id)], "update", {"gres": "gpu:1"}), 0)
    shape = b.led.jobs[job.id].spec.shape
    assert (shape.share, shape.share_count, shape.gpus_per_node) == ("", 0, 1)


def test_what_the_commands_show() -> None:
    b = bench()
    first, second = b.job(shape=shard(2)), b.job(shape=shard(1))
    third = b.job(shape=shard(1))
    whole = b.job(shape=Shape(gpus_per_node=1), hold=True)
    b.schedule()
    assert [held(job)[0] for job in (first, second, third)] == [1, 1, 2]
    b.led.touch_use("n1")
    out = b.tick()
    use = out.view["use", b"n1"]
    assert isinstance(use, NodeUse)
    assert use.parts == {0: 3, 1: 1}
    reader = FakeReader(
        job_list=list(b.led.jobs.values()),
        node_list=list(b.led.nodes.values()),
        use=[use],
        clock=b.now,
        conf=b.config,
    )
    shown = invoke(sinfo.run, ["-N", "-h", "-O", "Gres:40,GresUsed:60"], reader)[0].split()
    assert shown == ["gpu:h100:2,shard:6", "gpu:h100:0(IDX:N/A),shard:4(3/3,1/3)"]
    node = invoke(scontrol.run, ["show", "node", "n1", "-d"], reader)[0]
    assert "Gres=gpu:h100:2,shard:6" in node
    assert "CfgTRES=cpu=16,mem=62.50G,billing=16,gres/gpu=2,gres/gpu:h100=2,gres/shard=6" in node
    assert "AllocTRES=cpu=3,mem=6000M,gres/shard=4" in node
    job = invoke(scontrol.run, ["show", "job", str(first.id), "-d"], reader)[0]
    assert "ReqTRES=cpu=1,mem=2000M,node=1,billing=1,gres/shard=2" in job
    assert "AllocTRES=cpu=1,mem=2000M,node=1,billing=1,gres/shard=2" in job
    assert "JOB_GRES=shard:2" in job
    assert JobView(whole, None, b.now).requested_tres.endswith("gres/gpu=1")


# ---- the job's environment -----------------------------------------------------------------------


def test_what_a_job_is_told_of_its_parts() -> None:
    assert share_variables("shard", 2, 4) == {"SLURM_SHARDS_ON_NODE": "2"}
    assert share_variables("mps", 50, 200) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
    assert share_variables("mps", 1, 3) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33.33"}


def test_the_node_prints_what_it_has() -> None:
    lines = "Name=gpu Type=h100 File=/dev/nvidia[0-1]\nName=shard Count=3 File=/dev/nvidia1\n"
    config = parse_config(conf("gpu:h100:2,shard:3", lines))
    shown = gres(config, config.nodes["a1"]).splitlines()
    assert [line.partition(" Links")[0] for line in shown] == [
        "slurmd: Gres Name=gpu Type=h100 Count=1 Index=0 File=/dev/nvidia0",
        "slurmd: Gres Name=gpu Type=h100 Count=1 Index=1 File=/dev/nvidia1",
        "slurmd: Gres Name=shard Type=h100 Count=3 Index=1 File=/dev/nvidia1",
    ]
