"""gsched.tres: counting, billing and text, with Slurm's numbers."""

from __future__ import annotations

import pytest

from gsched import tres
from gsched.config.parse import parse_config
from gsched.model import Job, JobSpec, NodeAlloc, Shape


def test_what_a_request_asks_for() -> None:
    shape = Shape(min_nodes=2, ntasks=4, cpus_per_task=2, mem_per_cpu=512, gpus_per_node=3)
    spec = JobSpec(shape=shape, licenses="matlab:2,ansys")
    assert tres.requested(spec) == {
        "cpu": 8,
        "mem": 4096,
        "node": 2,
        "gres/gpu": 6,
        "license/matlab": 2,
        "license/ansys": 1,
    }


def test_gpus_by_type_count_twice() -> None:
    spec = JobSpec(shape=Shape(gpus_total=2, gpu_type="h100", mem_per_gpu=1000))
    assert tres.requested(spec) == {
        "cpu": 1,
        "mem": 2000,
        "node": 1,
        "gres/gpu": 2,
        "gres/gpu:h100": 2,
    }


def test_of_alternative_licences_none_is_asked_for_yet() -> None:
    assert "license/a" not in tres.requested(JobSpec(licenses="a|b"))


def test_an_allocation_counts_what_it_holds() -> None:
    job = Job(1, 1, 1, "u", "g", JobSpec(shape=Shape(counted=(("dongle", "", 2),))))
    job.alloc = [NodeAlloc("a", 4, 1, 100, gpus=3), NodeAlloc("b", 2, 1, 50, gpus=4)]
    job.gpu_types = {"h100": 3}
    job.licenses_alloc = "matlab:1"
    assert tres.allocated(job) == {
        "cpu": 6,
        "mem": 150,
        "node": 2,
        "gres/gpu": 3,
        "gres/gpu:h100": 3,
        "gres/dongle": 4,
        "license/matlab": 1,
    }


def test_billing_as_the_manual_works_it_out() -> None:
    """slurm.conf(5): TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=2.0", a job with 1 CPU and
    64 GB on one node is billed (1*1.0) + (64*0.25) + (0*2.0) = 17 and with MAX_TRES 16."""
    weight = tres.weights("CPU=1.0,Mem=0.25G,GRES/gpu=2.0")
    asked = {"cpu": 1, "mem": 64 * 1024, "node": 1}
    assert tres.billing(asked, weight) == 17
    assert tres.billing(asked, weight, ["MAX_TRES"]) == 16


def test_billing_without_weights_is_cpus() -> None:
    assert tres.billing({"cpu": 7, "mem": 1 << 20, "gres/gpu": 8}, {}) == 7


def test_max_tres_adds_what_is_of_the_whole_cluster() -> None:
    weight = tres.weights("cpu=1,gres/gpu=4,license/matlab=10")
    used = {"cpu": 3, "gres/gpu": 2, "license/matlab": 1}
    assert tres.billing(used, weight) == 21
    assert tres.billing(used, weight, ["MAX_TRES"]) == 18


def test_fractions_do_not_lose_a_unit() -> None:
    assert tres.billing({"cpu": 30}, tres.weights("cpu=0.1")) == 3


@pytest.mark.parametrize("text", ["cpu", "cpu=x", "=1", "cpu=-1", "cpu=1Z"])
def test_weights_that_mean_nothing(text: str) -> None:
    with pytest.raises(tres.TresError):
        tres.weights(text)


def test_text_goes_in_and_out() -> None:
    counts = tres.parse("gres/gpu:h100=2,CPU=4,Mem=8G, node=-1")
    assert counts == {"cpu": 4, "mem": 8192, "node": -1, "gres/gpu:h100": 2}
    assert tres.text(counts) == "cpu=4,mem=8G,node=-1,gres/gpu:h100=2"
    assert tres.sorted_text({"gres/gpu": 2, "gres/gpu:h100": 2, "cpu": 1, "mem": 2048}) == (
        "cpu=1,gres/gpu:h100=2,gres/gpu=2,mem=2048M"
    )


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=-2", "cpu=4x", "mem=8Q", "cpu=1=2"])
def test_text_that_is_none(text: str) -> None:
    with pytest.raises(tres.TresError):
        tres.parse(text)


def test_what_is_tracked() -> None:
    text = (
        "ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu\nAccountingStorageTRES=GRES/gpu,license/m\n"
        "NodeName=n1 CPUs=4 Gres=gpu:2\nPartitionName=p Nodes=n1 Default=YES\n"
    )
    config = parse_config({"slurm.conf": text})
    assert tres.tracked(config) == (
        *("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"),
        *("gres/gpu", "license/m", "gres/gpumem", "gres/gpuutil"),
    )
