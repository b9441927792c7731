"""The command line of `gsched sim`."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gsched.local.command import group
from gsched.simulate.replay_cluster import ClusterError, Nodes, measured, parse_nodes
from gsched.simulate.traces import Trace, TraceJob

TRACE = """job_id,submit_s,runtime_s,gpus,estimate_s,user
A,0,10,3,20,ann
B,1,5,4,5,bob
C,2,30,1,30,ann
D,3,4.5,1,17,bob
"""


def sim(path: Path, *words: str, trace: str = TRACE) -> Result:
    file = path / "trace.csv"
    file.write_text(trace)
    easy = [] if "--scheduler" in words else ["--scheduler", "easy"]
    return CliRunner().invoke(group, ["sim", str(file), *easy, *words])


def starts(file: Path) -> dict[str, float]:
    with open(file, newline="", encoding="utf-8") as table:
        return {row["job_id"]: float(row["start"]) for row in csv.DictReader(table)}


def test_all_files_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = sim(tmp_path, "--nodes", "1x4", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert starts(out / "schedule.csv") == {"A": 0, "B": 10, "C": 15, "D": 3}
    lines = (out / "schedule.csv").read_text().splitlines()
    assert lines[0] == (
        "job_id,submit,start,end,wait,user,account,partition,nodes,gpus,state,backfilled"
    )
    assert lines[2] == "B,1,10,15,9,bob,,all,n1,n1:0-3,COMPLETED,0"
    found = json.loads((out / "summary.json").read_text())
    assert (found["wait_s"]["mean"], found["backfilled"]) == (5.5, 1)
    assert [(line["name"], line["jobs"]) for line in found["users"]] == [("ann", 2), ("bob", 2)]
    assert "backfilled starts" in (out / "summary.txt").read_text()
    rows = list(csv.DictReader((out / "timeline.csv").open(newline="", encoding="utf-8")))
    use = [(row["time"], row["gpus_in_use"], row["waiting"]) for row in rows]
    assert use[:5] == [("0", "3", "0"), ("1", "3", "1"), ("2", "3", "2"), ("3", "4", "2")] + [
        ("7.5", "3", "2")
    ]
    picture = ET.fromstring((out / "chart.svg").read_text())
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(picture.findall("{http://www.w3.org/2000/svg}path")) == 3


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert sim(tmp_path, "--nodes", "1x4", "--out", str(tmp_path / name)).exit_code == 0
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 5
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


CONF = """ClusterName=c
SlurmctldHost=h
GresTypes=gpu
DefMemPerCPU=1
NodeName=g[1-2] CPUs=8 RealMemory=1000 Gres=gpu:a100:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE
"""


def test_the_cluster_of_a_slurm_conf(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(CONF)
    result = sim(tmp_path, "--conf", str(conf), "--schedule", str(tmp_path / "s.csv"), "--json")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "s.csv").read_text()
    # 3 GPUs are two nodes of two; so are 4.
    assert re.search(r"^B,1,10,15,9,bob,,main,g\[1-2\],g1:0-1\|g2:0-1,COMPLETED,0$", text, re.M)
    assert json.loads(result.stdout)["gpus"] == 4


def test_set_is_laid_over_slurm_conf(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(CONF)
    trace = TRACE.replace("A,0,10,3,20,ann", "A,0,100,3,20,ann")
    words = ["--conf", str(conf), "--json", "-q"]
    killed = json.loads(sim(tmp_path, *words, trace=trace).stdout)
    assert killed["states"] == {"COMPLETED": 3, "TIMEOUT": 1}
    over = sim(tmp_path, *words, "--set", "OverTimeLimit=10", trace=trace)
    assert json.loads(over.stdout)["states"] == {"COMPLETED": 4}


def test_compare_side_by_side(tmp_path: Path) -> None:
    """Twice the GPUs: nobody waits but B, for A. By hand: 4 of 8 are free."""
    conf = tmp_path / "big.conf"
    conf.write_text(CONF.replace("g[1-2]", "g[1-8]"))
    out = tmp_path / "out"
    words = ["--nodes", "1x4", "--compare", str(conf), "--compare", "OverTimeLimit=5 best-fit"]
    result = sim(tmp_path, *words, "--out", str(out))
    assert result.exit_code == 0, result.output
    rows = {line[:24].strip(): line.split() for line in result.stdout.splitlines()}
    assert "-100.0" in rows["wait, mean"]
    assert starts(out / "given" / "schedule.csv")["B"] == 10
    assert starts(out / "variant-1" / "schedule.csv") == {"A": 0, "B": 1, "C": 2, "D": 3}
    assert starts(out / "variant-2" / "schedule.csv")["B"] == 10
    picture = ET.fromstring((out / "chart.svg").read_text())
    assert len(picture.findall("{http://www.w3.org/2000/svg}path")) == 9


def test_a_window_and_a_heavier_load(tmp_path: Path) -> None:
    """From 1 to 3 there are B and C; at twice the speed C comes half a second after B."""
    words = [
        "--nodes",
        "1x8",
        "--schedule",
        str(tmp_path / "s.csv"),
        "--from",
        "1",
        "--until",
        "3s",
    ]
    assert sim(tmp_path, *words).exit_code == 0
    assert starts(tmp_path / "s.csv") == {"B": 1, "C": 2}
    assert sim(tmp_path, *words, "--scale-load", "2").exit_code == 0
    assert starts(tmp_path / "s.csv") == {"B": 1, "C": 1.5}


def test_limits_may_be_the_run_times(tmp_path: Path) -> None:
    """With A's true end known B is promised 10: D, over at 7.5, does not delay it; with limits of
    five times the run time (A 50, D 22.5) it does not either."""
    words = ["--nodes", "1x4", "--schedule", str(tmp_path / "s.csv"), "--limits"]
    for limits in ("exact", "5"):
        assert sim(tmp_path, *words, limits).exit_code == 0
        assert starts(tmp_path / "s.csv")["D"] == 3
    result = sim(tmp_path, *words, "none")
    assert result.exit_code == 2
    assert '"none" is neither trace, exact nor a factor above 0' in result.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nodes", "8y8"], '--nodes "8y8" is neither NODES x GPUS'),
        (["--nodes", "8x65"], '--nodes "8x65" is neither'),
        (["--nodes", "8x8:cpu=3"], '"cpu=3" is not type=, cpus=, mem= or features='),
        (["--nodes", "8x8:cpus=0"], '"0" is not a number of CPUs'),
        (["--nodes", "8x8:mem=lots"], '"lots" is not a valid memory size'),
        (["--conf", "/nowhere/slurm.conf"], "/nowhere/slurm.conf: cannot read it: No such file"),
        (["--nodes", "1x4", "--conf", "x"], "--conf and --nodes do not go together"),
        (["--set", "Fast"], '"Fast" is not KEY=VALUE of slurm.conf'),
        (["--set", "NodeName=n9"], "is no global setting of slurm.conf"),
        (["--set", "Speed=9"], '"Speed" is not a key of slurm.conf'),
        (["--compare", "quick"], '--compare "quick" is neither a file, nor KEY=VALUE'),
        (["--compare", ""], "there is nothing in it"),
        (["--from", "9d"], "no job was submitted in the time asked for"),
        (["--from", "soon"], '--from "soon" is neither a number'),
        (["--until", "2025-01-01"], '--until "2025-01-01": the trace has no dates'),
        (["--format", "swf"], "trace.csv:1: a job has 18 fields, here are 1"),
        (["--chart", "/nowhere/c.svg"], "/nowhere/c.svg cannot be written: No such file"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    result = sim(tmp_path, *words)
    assert result.exit_code in (1, 2)
    assert sentence in result.output
    assert isinstance(result.exception, SystemExit)


def test_png_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = sim(tmp_path, "--chart", str(tmp_path / "c.png"))
    assert result.exit_code == 1
    assert "c.png: pictures as PNG need CairoSVG" in result.output


@pytest.mark.parametrize("name", ["x.gif", "x.svg.gz", "x.PDF"])
def test_pictures_of_another_kind_are_refused(tmp_path: Path, name: str) -> None:
    result = sim(tmp_path, "--chart", str(tmp_path / name))
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path / name}: pictures are made as .svg or .png\n"
    assert not (tmp_path / name).exists()


def test_nodes_by_flag() -> None:
    assert parse_nodes("128x8:type=h100,cpus=64,mem=512G,features=a+b") == (
        Nodes(128, 8, 64, 524288, "h100", ("a", "b")),
    )
    assert parse_nodes("3") == (Nodes(3, 0),)
    with pytest.raises(ClusterError):
        parse_nodes("0x8")


def test_a_list_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1024,2,T4\nb,64000,1024,2,T4\n")
    assert parse_nodes(str(file)) == (Nodes(2, 2, 64, 1024, "T4", ("T4",)),)


def test_a_cluster_to_measure() -> None:
    """64 GPU hours in 10 hours, filled to 80 %: 8 GPUs, one node. But 20 GPUs at once: 3 nodes."""
    jobs = [TraceJob(str(n), n * 3600.0, 3600 * 6.4, gpus=1) for n in range(10)]
    jobs.append(TraceJob("last", 36000.0, 0, gpus=1))
    nodes, remark = measured(Trace("t", "gang", jobs))
    assert [(n.count, n.gpus) for n in nodes] == [(8, 1)]
    assert "80 %" in remark
    jobs[-1].gpus = 20
    nodes, remark = measured(Trace("t", "gang", jobs))
    assert [(n.count, n.gpus) for n in nodes] == [(3, 8)]
    assert "which its largest job needs" in remark


@pytest.mark.parametrize(
    ("nodes", "cpus", "expected"),
    [
        (16, 64, [(16, 4)]),
        (16, 60, [(15, 4)]),
        (0, 64, [(1, 64)]),
        (0, 40, [(1, 40)]),
        (430, 430, [(6, 64), (1, 46)]),
    ],
)
def test_a_cluster_as_the_header_says(
    nodes: int, cpus: int, expected: list[tuple[int, int]]
) -> None:
    trace = Trace("t", "swf", [TraceJob("1", 0, 1, cpus=4)], nodes=nodes, cpus=cpus)
    made, remark = measured(trace)
    assert [(n.count, n.cpus) for n in made] == expected
    assert remark.startswith(f"{cpus} CPUs as the trace's header says")


def test_a_log_in_the_standard_format_from_end_to_end(tmp_path: Path) -> None:
    """4 processors: job 2 wants all and waits for job 1; job 3 would delay it."""
    rest = "-1 1 1 1 -1 1 -1 -1 -1"
    log = (
        "; MaxProcs: 4\n"
        f"1 0 -1 10 3 -1 -1 3 20 {rest}\n2 1 -1 5 4 -1 -1 4 5 {rest}\n"
        f"3 2 -1 30 1 -1 -1 1 30 {rest}\n4 3 -1 4 1 -1 -1 1 17 {rest}\n"
    )
    result = sim(tmp_path, "--schedule", str(tmp_path / "s.csv"), trace=log)
    assert result.exit_code == 0, result.output
    assert starts(tmp_path / "s.csv") == {"1": 0, "2": 10, "3": 15, "4": 3}
    assert "GPUs in use" not in result.stdout


ACCOUNTS = """Cluster - 'replay'
Parent - 'root'
Account - 'red':Description='red':GrpTRESGuarantee=gres/gpu=8
Account - 'blue':Description='blue':GrpTRESGuarantee=gres/gpu=8:GrpTRESBorrow=gres/gpu=0
"""
TEAMS = """job_id,submit_s,runtime_s,gpus,estimate_s,user,account
A,0,7200,8,7200,ann,red
B,60,3600,8,3600,bob,red
C,120,3600,8,3600,cid,blue
D,180,3600,8,3600,cid,blue
"""


def test_accounts_share_the_cluster(tmp_path: Path) -> None:
    """red borrows what blue leaves idle; blue may not borrow."""
    book, out = tmp_path / "accounts.cfg", tmp_path / "out"
    book.write_text(ACCOUNTS)
    result = sim(
        tmp_path, "--nodes", "4x8", "--accounts", str(book), "--out", str(out), trace=TEAMS
    )
    assert result.exit_code == 0, result.output
    assert starts(out / "schedule.csv") == {"A": 0, "B": 60, "C": 120, "D": 3720}
    rows = list(csv.DictReader((out / "teams.csv").open(newline="", encoding="utf-8")))
    red = [
        (row["time"], row["guaranteed"], row["borrowed"]) for row in rows if row["account"] == "red"
    ]
    assert red[:3] == [("0.0", "8", "0"), ("60.0", "8", "8"), ("3660.0", "8", "0")]
    assert "own GPUh" in (out / "summary.txt").read_text()
    assert ET.fromstring((out / "teams.svg").read_text()).tag.endswith("svg")


def test_accounts_that_cannot_be_read(tmp_path: Path) -> None:
    book = tmp_path / "accounts.cfg"
    book.write_text("Account - 'red':nonsense\n")
    result = sim(tmp_path, "--nodes", "1x8", "--accounts", str(book), trace=TEAMS)
    assert result.exit_code == 1 and "Misformatted line(1)" in result.output
