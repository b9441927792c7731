"""`--json` and `--yaml` against the transcripts of Slurm 26.05."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from views_support import (
    PEER_CONF,
    FakeReader,
    invoke,
    make_job,
    mixed_queue,
    peer_cluster,
    transcript,
)
from views_support import cpu_shape as shape

from gsched.config import parse_config
from gsched.model import Hold, JobState, Step
from gsched.model.reservation import Reservation, ReservedNode
from gsched.model.step import StepNode
from gsched.wire.messages import NodeQuery, NodeRows
from gsched_cli.scontrol import run as scontrol
from gsched_cli.sinfo import run as sinfo
from gsched_cli.squeue import run as squeue

#: what the records of mixed_queue() do not hold: Slurm's own flags, when it was submitted and how,
#: who else there is; and which cores were taken
NOT_TOLD = (
    *("flags", "association_id", "accrue_time", "submit_line", "allocating_node", "eligible_time"),
    *("last_sched_evaluation", "current_working_directory", "allocation", "submit_time"),
)


def queue() -> FakeReader:
    reader = mixed_queue()
    reader.job_list.sort(key=lambda job: job.id)
    reader.conf = parse_config({"slurm.conf": PEER_CONF})
    return reader


def loaded(run: Any, *argv: str, reader: FakeReader | None = None) -> dict[str, Any]:
    out, err, code = invoke(run, argv, reader or queue())
    assert (err, code) == ("", 0)
    found: dict[str, Any] = json.loads(out)
    return found


def leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value that is no mapping, with its path."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    else:
        yield path, value


@pytest.mark.shared
@pytest.mark.parametrize(
    "argv", [["squeue", "--json"], ["scontrol", "--json", "show", "job", "190"]]
)
def test_jobs_are_slurms(shared: Path, argv: list[str]) -> None:
    """All fields, in order, and the values of those that the records tell."""
    wanted = json.loads(transcript(shared, "026-squeue-json")[" ".join(argv)].stdout)
    found = loaded(squeue if argv[0] == "squeue" else scontrol, *argv[1:])
    assert list(found) == list(wanted)
    assert len(found["jobs"]) == len(wanted["jobs"])
    for mine, slurms in zip(found["jobs"], wanted["jobs"], strict=True):
        ours, theirs = dict(leaves(mine)), dict(leaves(slurms))
        assert list(ours) == list(theirs)
        differ = [path for path in ours if ours[path] != theirs[path]]
        assert [path for path in differ if not set(path) & set(NOT_TOLD)] == []
    command = found["meta"]["command"], wanted["meta"]["command"]
    assert command[0] == command[1]
    assert found["meta"]["plugin"] == wanted["meta"]["plugin"] | {
        "accounting_storage": found["meta"]["plugin"]["accounting_storage"]
    }


@pytest.mark.shared
def test_cores_are_slurms(shared: Path) -> None:
    wanted = json.loads(transcript(shared, "026-squeue-json")["squeue --json"].stdout)
    found = loaded(squeue, "--json")
    # Of job 190, whose cores the records tell.
    assert found["jobs"][0]["job_resources"] == wanted["jobs"][0]["job_resources"]


@pytest.mark.shared
def test_nodes_and_partitions_are_slurms(shared: Path) -> None:
    wanted = json.loads(transcript(shared, "026-squeue-json")["sinfo --json"].stdout)
    reader = peer_cluster()
    for node in reader.node_list:
        node.flags, node.reason = type(node.flags).NONE, ""
    found = loaded(sinfo, "--json", reader=reader)
    assert list(found) == list(wanted)
    for mine in found["sinfo"]:
        assert [path for path, _ in leaves(mine)] == [p for p, _ in leaves(wanted["sinfo"][0])]
    by_name = {row["partition"]["name"]: row["partition"] for row in found["sinfo"]}
    for row in wanted["sinfo"]:
        assert by_name[row["partition"]["name"]] == row["partition"]


@pytest.mark.shared
def test_yaml_is_slurms(shared: Path) -> None:
    """The first lines, up to the flags, which are not told."""
    wanted = transcript(shared, "026-squeue-json")["squeue --yaml | head -50"].stdout
    out, _, code = invoke(squeue, ["--yaml"], queue())
    until = wanted.index("  !!str accrue_time")
    assert (out[:until], code) == (wanted[:until], 0)
    mine, slurms = out.splitlines(), wanted.splitlines()
    begin = mine.index("  !!str burst_buffer: !!str"), slurms.index("  !!str burst_buffer: !!str")
    rest = slurms[begin[1] :]
    assert len(rest) > 10
    assert mine[begin[0] :][: len(rest)] == rest


def test_yaml_and_json_say_the_same() -> None:
    """As a reader of YAML's core types reads it: only the tags that are written here."""
    out, _, _ = invoke(squeue, ["--yaml", "-j", "190"], queue())
    ours = [line.strip(" -") for line in out.splitlines()[2:]]
    texts = [line.partition(": !!str ")[2] for line in ours if ": !!str " in line]
    job = loaded(squeue, "--json", "-j", "190")["jobs"][0]
    assert "runner" in texts and "node[1-2]" in texts
    assert f"!!str job_id: !!int {job['job_id']}" in ours
    assert "!!str batch_flag: !!bool true" in ours
    assert "!!str job_size_str: !!seq []" in ours


def test_strings_that_need_quotes() -> None:
    reader = queue()
    name = "50%: \"a\" # 'b'\n\tÄ /x"
    reader.job_list = [make_job(5, name, shape(), comment="no: yes", wckey="- x")]
    assert loaded(squeue, "--json", reader=reader)["jobs"][0]["name"] == name
    out, _, _ = invoke(squeue, ["--yaml"], reader)
    (line,) = (line for line in out.splitlines() if line.startswith("  !!str name:"))
    # A double-quoted string of YAML is one of JSON.
    assert json.loads(line.partition(": !!str ")[2]) == name
    assert '  !!str comment: !!str "no: yes"' in out
    assert '  !!str wckey: !!str "- x"' in out


def test_states_and_reasons() -> None:
    reader = queue()
    reader.job_list = [
        make_job(5, "c", shape(), state=JobState.COMPLETED, completing=True, wstatus=3 << 8),
        make_job(6, "k", shape(), state=JobState.FAILED, wstatus=9, completing=True),
        make_job(7, "h", shape(), held=Hold.ADMIN, time_limit=0),
    ]
    done, killed, held = loaded(squeue, "--json", reader=reader)["jobs"]
    assert done["job_state"] == ["COMPLETED", "COMPLETING"]
    assert (done["exit_code"]["status"], done["exit_code"]["return_code"]["number"]) == (
        ["ERROR"],
        3,
    )
    assert killed["exit_code"]["status"] == ["SIGNALED"]
    assert killed["exit_code"]["signal"] == {
        "id": {"set": True, "infinite": False, "number": 9},
        "name": "KILL",
    }
    assert (held["hold"], held["state_reason"]) == (True, "JobHeldAdmin")
    assert held["time_limit"] == {"set": False, "infinite": True, "number": 0}


def test_filters_still_choose() -> None:
    ids = [job["job_id"] for job in loaded(squeue, "--json", "-t", "R", "-u", "root")["jobs"]]
    assert ids == [190, 191, 195]
    tasks = [
        job["array_task_id"]["number"]
        for job in loaded(squeue, "--json", "-r", "-n", "arr")["jobs"]
    ]
    assert tasks == [1, 2, 3, 4, 5]
    out, err, code = invoke(squeue, ["--json", "-j", "999"], queue())
    assert (out, err, code) == ("", "slurm_load_jobs error: Invalid job id specified\n", 1)


@pytest.mark.parametrize("run", [squeue, sinfo, scontrol])
def test_layouts(run: Any) -> None:
    out, err, code = invoke(run, ["--json=list"], queue())
    assert (out, err, code) == (
        "",
        "Possible data_parser plugins:\ndata_parser/v0.0.45\n",
        0,
    )
    out, err, code = invoke(run, ["--yaml=v0.0.39"], queue())
    assert (out, code) == ("", 1)
    assert err.endswith("error: application/x-yaml output not supported by v0.0.39\n")


def test_a_layout_may_be_named() -> None:
    reader = queue()
    plain = invoke(squeue, ["--json"], reader)[0]
    for name in ("v0.0.45", "data_parser/v0.0.45", "v0.0.45+complex"):
        named = invoke(squeue, [f"--json={name}"], reader)[0]
        assert json.loads(named)["jobs"] == json.loads(plain)["jobs"]


def test_compact() -> None:
    pretty, _, _ = invoke(squeue, ["--json"], queue())
    compact, _, _ = invoke(squeue, ["--json"], queue(), {"SLURM_JSON": "compact"})
    assert json.loads(compact) == json.loads(pretty)
    assert compact.count("\n") == 1


class Reserving(FakeReader):
    """One reservation, of the whole of node2."""

    def nodes(self, query: NodeQuery) -> NodeRows:
        resv = Reservation(
            "course",
            1000,
            4600,
            flags=("MAINT", "PURGE_COMP"),
            nodes=(ReservedNode("node2"),),
            users=("root", "alice"),
            purge_comp=300,
            partition="gpu",
        )
        return NodeRows(1, self.node_list, self.use, [resv])


def test_what_scontrol_shows() -> None:
    base = peer_cluster()
    text = PEER_CONF + "\nLicenses=matlab:5\n"
    reader = Reserving(
        node_list=base.node_list,
        use=base.use,
        clock=2000,
        conf=parse_config({"slurm.conf": text}),
    )
    (resv,) = loaded(scontrol, "show", "res", "--json", reader=reader)["reservations"]
    assert (resv["name"], resv["node_list"], resv["users"]) == ("course", "node2", "root,alice")
    assert (resv["core_count"], resv["tres"]) == (16, "cpu=16")
    assert resv["purge_completed"] == {"time": {"set": True, "infinite": False, "number": 300}}
    assert loaded(sinfo, "-T", "--json", reader=reader)["reservations"] == [resv]
    (node,) = loaded(scontrol, "--json", "show", "node", "node2", reader=reader)["nodes"]
    assert (node["name"], node["cpus"], node["sockets"], node["cores"]) == ("node2", 16, 2, 8)
    assert node["reservation"] == "course"
    assert {"MAINTENANCE", "RESERVED"} <= set(node["state"])
    assert node["features"] == ["h100", "rackA"]
    parts = loaded(scontrol, "show", "partition", "--json", reader=reader)["partitions"]
    assert [part["name"] for part in parts] == ["gpu", "debug"]
    (licence,) = loaded(scontrol, "show", "lic", "--json", reader=reader)["licenses"]
    assert (licence["LicenseName"], licence["Total"], licence["Free"]) == ("matlab", 5, 5)
    (ping,) = loaded(scontrol, "ping", "--json", reader=reader)["pings"]
    assert (ping["pinged"], ping["responding"], ping["mode"]) == ("UP", True, "primary")


def test_names_that_mean_nothing() -> None:
    for what in ("node", "partition", "reservation"):
        out, err, code = invoke(scontrol, ["show", what, "nosuch", "--json"], queue())
        assert (err, code) == (f"{what.title()} nosuch not found\n", 1)
        assert json.loads(out)[f"{what}s"] == []
    _, err, code = invoke(scontrol, ["show", "config", "--json"], queue())
    assert (err, code) == ("scontrol: error: show config has no JSON or YAML output\n", 1)


def test_steps() -> None:
    reader = queue()
    alloc = reader.job_list[0].alloc[0]
    reader.step_list = [Step(190, 0, 0, "train", nodes=[StepNode(alloc, [0])])]
    found = loaded(scontrol, "show", "step", "190", "--json", reader=reader)["steps"]
    assert [(step["step"]["id"], step["name"]) for step in found] == [
        ("190.batch", "batch"),
        ("190.0", "train"),
    ]
    assert found[1]["nodes"] == {"count": 1, "range": "node1", "list": ["node1"]}
    listed = loaded(squeue, "-s", "--json", "-j", "190", reader=reader)["steps"]
    assert sorted(step["step"]["id"] for step in listed) == ["190.0", "190.batch"]
