"""scancel, scontrol and srun passed -M over, so that what was meant for another cluster was done
here; sbatch did not know that "all" and other letters mean this one. What Slurm 22.05.8 says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from views_support import FakeReader, invoke, mixed_queue

from gsched_cli import scancel, scontrol, sinfo, sprio, squeue, sshare

QUERIES: dict[str, tuple[Callable[..., int], list[str]]] = {
    "scancel": (scancel.run, ["190"]),
    "scontrol": (scontrol.run, ["hold", "190"]),
    "squeue": (squeue.run, []),
    "sinfo": (sinfo.run, []),
    "sprio": (sprio.run, []),
    "sshare": (sshare.run, []),
}


def said(command: str, cluster: str) -> str:
    return (
        f"{command}: error: No cluster '{cluster}' known by database.\n"
        f"{command}: error: '{cluster}' can't be reached now, or it is an invalid entry for "
        "--cluster.  Use 'sacctmgr list clusters' to see available clusters.\n"
    )


@pytest.mark.parametrize("option", ["-Mnope", "--clusters=nope", "--cluster=nope"])
@pytest.mark.parametrize("command", QUERIES)
def test_nothing_is_done_for_another(command: str, option: str) -> None:
    run, words = QUERIES[command]
    reader = mixed_queue()
    assert invoke(run, [option, *words], reader, {}, "") == ("", said(command, "nope"), 1)
    assert reader.sent == []


@pytest.mark.parametrize("name", ["peer", "PEER", "all"])
def test_this_one_is_named(name: str) -> None:
    reader = mixed_queue()
    assert invoke(scancel.run, ["-M", name, "190"], reader, {}, "") == ("", "", 0)
    assert len(reader.sent) == 1


def test_a_name_that_is_empty() -> None:
    reader: FakeReader = mixed_queue()
    assert invoke(scancel.run, ["-M", "", "190"], reader, {}, "") == ("", said("scancel", ""), 1)
    assert reader.sent == []


@pytest.mark.parametrize("command", ["squeue", "scancel"])
def test_this_one_among_others(command: str) -> None:
    """As 22.05: the other one is named, and this one is asked."""
    run, words = QUERIES[command]
    reader = mixed_queue()
    out, err, code = invoke(run, ["-M", "peer,nope", *words], reader, {}, "")
    assert err == f"{command}: error: No cluster 'nope' known by database.\n"
    assert code == 0
    alone = invoke(run, ["-M", "peer", *words], mixed_queue(), {}, "")
    assert (out, "", code) == alone


@pytest.mark.parametrize("command", ["squeue"])
def test_without_headings_there_is_none_of_the_cluster(command: str) -> None:
    run, words = QUERIES[command]
    for options, there in (([], True), (["-h"], False)):
        out, _, _ = invoke(run, ["-M", "peer", *options, *words], mixed_queue(), {}, "")
        assert out.startswith("CLUSTER: peer\n") == there
