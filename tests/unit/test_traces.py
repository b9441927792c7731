"""Traces: every format read, values by hand; what is wrong with a line is said with its number."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gsched.simulate.traces import Trace, TraceError, TraceJob, read_nodes, read_trace


def read(path: Path, text: str, form: str = "", gpus: bool = False) -> Trace:
    file = path / "trace"
    file.write_text(text)
    return read_trace(file, form, gpus)


GANG = """job_id,submit_s,runtime_s,gpus,estimate_s,user
b,10.5,7,2,9,bob
a,3,100,4,,-
"""


def test_gang_table(tmp_path: Path) -> None:
    trace = read(tmp_path, GANG)
    assert trace.format == "gang"
    assert trace.jobs == [
        TraceJob("a", 3, 100, None, gpus=4),
        TraceJob("b", 10.5, 7, 9, gpus=2, user="bob"),
    ]


def test_columns_in_any_order_and_others_beside_them(tmp_path: Path) -> None:
    text = "gpus,x,runtime_s,submit_s,job_id,account,partition\n8,?,60,0,j,phys,long\n"
    assert read(tmp_path, text).jobs == [
        TraceJob("j", 0, 60, gpus=8, account="phys", partition="long")
    ]


def test_gzip_is_seen_by_content(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(gzip.compress(GANG.encode()))
    assert [job.name for job in read_trace(file).jobs] == ["a", "b"]
    file.write_bytes(gzip.compress(GANG.encode())[:40])
    with pytest.raises(TraceError, match=r"trace.csv: the file is damaged"):
        read_trace(file)


SWF = """; Version: 2.2
; UnixStartTime: 1000000000
; MaxNodes: 16
; MaxProcs: 64
; Note: none
  1    0  5  100  4 -1 -1    8   600 -1 1 3 2 -1 1 -1 -1 -1
  2   50 -1   -1 -1 -1 -1    4   600 -1 5 3 2 -1 1 -1 -1 -1
  3   60  0   30  2 -1 -1   -1    -1 -1 0 4 2 -1 2 -1 -1 -1
"""


def test_swf(tmp_path: Path) -> None:
    """Fields 4 (run), 5 (used), 8 (asked for), 9 (limit), 11 (status), 12, 13, 15 by hand."""
    trace = read(tmp_path, SWF)
    assert (trace.format, trace.epoch, trace.nodes, trace.cpus) == ("swf", 1_000_000_000, 16, 64)
    assert trace.jobs == [
        TraceJob("1", 0, 100, 600, cpus=8, user="u3", account="g2", partition="q1"),
        TraceJob("3", 60, 30, None, cpus=2, user="u4", account="g2", partition="q2", good=False),
    ]
    assert trace.remarks == ["1 jobs of the log never ran: left out"]


def test_swf_processors_may_be_gpus(tmp_path: Path) -> None:
    trace = read(tmp_path, SWF, gpus=True)
    assert [(job.gpus, job.cpus) for job in trace.jobs] == [(8, 0), (2, 0)]
    assert (trace.gpus, trace.cpus) == (64, 0)


OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,\
deletion_time,scheduled_time
p1,12500,16384,1,1000,,LS,Running,10,100,20
p2,6000,12288,1,460,V100M16|V100M32,LS,Running,5,105,5
p3,1000,1024,0,0,,BE,Pending,7,,
p4,32000,49152,8,1000,,BE,Succeeded,30,50,30
"""


def test_openb_tasks(tmp_path: Path) -> None:
    trace = read(tmp_path, OPENB)
    assert trace.format == "openb"
    assert trace.jobs == [
        TraceJob(
            "p2",
            5,
            100,
            nodes=1,
            cpus=6,
            mem_mb=12288,
            gpus=1,
            gpu_milli=460,
            features="V100M16|V100M32",
            qos="LS",
        ),
        TraceJob("p1", 10, 80, nodes=1, cpus=13, mem_mb=16384, gpus=1, qos="LS"),
        TraceJob("p4", 30, 20, nodes=1, cpus=32, mem_mb=49152, gpus=8, qos="BE"),
    ]
    assert trace.remarks == ["1 tasks were never started or have no end: left out"]


def test_openb_nodes(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,1024,0,\n")
    found = [(n.name, n.cpus, n.mem_mb, n.gpus, n.model) for n in read_nodes(file)]
    assert found == [("n0", 64, 262144, 2, "P100"), ("n1", 96, 1024, 0, "")]


SACCT = """JobID|User|Account|Partition|QOS|Submit|Start|End|Elapsed|Timelimit|State|NNodes|NCPUS|\
AllocTRES|ReqMem|Priority
100|ann|phys|gpu|normal|2025-03-01T10:00:00|2025-03-01T10:05:00|2025-03-01T12:05:00|02:00:00|\
1-00:00:00|COMPLETED|2|32|billing=32,cpu=32,gres/gpu:a100=8,gres/gpu=8,mem=256G,node=2|128G|4294
100.batch||phys||||2025-03-01T10:05:00|2025-03-01T12:05:00|02:00:00||COMPLETED|1|16|cpu=16||
100.0||phys||||2025-03-01T10:05:00|2025-03-01T12:05:00|02:00:00||COMPLETED|2|32|cpu=32||
101_3|bob|chem|cpu|long|2025-03-01T09:59:50|2025-03-01T10:00:00|2025-03-01T10:00:30|00:00:30|\
UNLIMITED|FAILED|1|4|cpu=4,mem=8000M,node=1|8000M|17
102|bob|chem|cpu|long|2025-03-01T10:00:00|None|2025-03-01T11:00:00|00:00:00|01:00:00|\
CANCELLED by 1001|1|4||8000M|17
103_[4-9]|bob|chem|cpu|long|2025-03-01T10:00:00|Unknown|Unknown|00:00:00|01:00:00|PENDING|1|4|||1
104|ann|phys|gpu|normal|2025-03-01T10:00:00|2025-03-01T10:05:00|Unknown|02:00:00|01:00:00|RUNNING|\
1|1|cpu=1||1
105+1|cy|phys|gpu,cpu|normal|2025-03-01T10:00:10|2025-03-01T10:00:10|2025-03-02T11:00:10|\
1-01:00:00|Partition_Limit|TIMEOUT|3|6||2000Mc|
"""


def test_sacct(tmp_path: Path) -> None:
    trace = read(tmp_path, SACCT)
    assert trace.format == "sacct"
    # 2025-03-01T09:59:50 as if it were UTC
    assert trace.epoch == 1_740_823_190
    assert trace.jobs == [
        TraceJob(
            "101_3",
            0,
            30,
            0,
            nodes=1,
            cpus=4,
            mem_mb=8000,
            user="bob",
            account="chem",
            partition="cpu",
            qos="long",
            priority=17,
            good=False,
        ),
        TraceJob(
            "100",
            10,
            7200,
            86400,
            nodes=2,
            cpus=32,
            gpus=8,
            mem_mb=131072,
            gpu_type="a100",
            user="ann",
            account="phys",
            partition="gpu",
            qos="normal",
            priority=4294,
        ),
        TraceJob(
            "105+1",
            20,
            90000,
            None,
            nodes=3,
            cpus=6,
            mem_mb=4000,
            user="cy",
            account="phys",
            partition="gpu",
            qos="normal",
        ),
    ]
    assert sorted(trace.remarks) == [
        "1 jobs had not ended: left out",
        "1 jobs had not started: left out",
        "1 jobs never ran: left out",
    ]


def test_sacct_with_p_and_few_columns(tmp_path: Path) -> None:
    """-p ends each line with a bar; without Elapsed the start and the end tell."""
    text = (
        "Submit|JobID|End|Start|ReqTRES|\n"
        "2025-01-01T00:00:00|7|2025-01-01T00:01:00|2025-01-01T00:00:30|cpu=2,node=1|\n"
    )
    assert read(tmp_path, text).jobs == [TraceJob("7", 0, 30, nodes=1, cpus=2)]


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        (GANG + "c,1,2\n", 4, "3 values, where the head names 6 columns"),
        (GANG + "c,soon,2,1,,u\n", 4, 'submit_s "soon" is not a number'),
        (GANG + "c,1,-2,1,,u\n", 4, 'runtime_s "-2" is out of range'),
        (GANG + "c,1,nan,1,,u\n", 4, 'runtime_s "nan" is out of range'),
        (GANG + "c,1,2,0,,u\n", 4, 'gpus "0" is out of range'),
        (GANG + "c,1,2,1.5,,u\n", 4, 'gpus "1.5" is not a whole number'),
        (SWF + "4 1 2\n", 9, "a job has 18 fields, here are 3"),
        (SWF + "4 x" + " 1" * 16 + "\n", 9, 'field 2 "x" is not a number'),
        (OPENB + "p5,1,1,2,500,,LS,R,1,2,1\n", 6, "gpu_milli 500 of 2 GPUs is no share"),
        (OPENB + "p5,1,1,1,1000,,LS,R,1,2,9\n", 6, "deletion_time 2 is before 9"),
        (
            "JobID|Submit|Elapsed\n1|yesterday|00:01:00\n",
            2,
            'submit "yesterday" is not a time',
        ),
        (
            "JobID|Submit|Elapsed\n1|2025-01-01T00:00:00|long\n",
            2,
            'elapsed "long" is not a time',
        ),
        (
            "JobID|Submit|Elapsed|AllocTRES\n1|2025-01-01T00:00:00|00:01:00|cpu=x\n",
            2,
            'alloctres "cpu=x" has "x" where a number is expected',
        ),
        (
            "JobID|Submit|Elapsed\n;rm|2025-01-01T00:00:00|00:01:00\n",
            2,
            'jobid ";rm" is not a job id',
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, line: int, sentence: str) -> None:
    with pytest.raises(TraceError) as error:
        read(tmp_path, text)
    assert str(error.value) == f"{tmp_path / 'trace'}:{line}: {sentence}"


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="neither SWF, nor a table"):
        read(tmp_path, "hello\n")
    with pytest.raises(TraceError, match="neither SWF, nor a table"):
        read(tmp_path, "")
    with pytest.raises(TraceError, match="there is no job in it that ran"):
        read(tmp_path, "; MaxNodes: 3\n")
    with pytest.raises(TraceError, match="cannot be read: No such file or directory"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="trace:1: there is no column gpus"):
        read(tmp_path, "job_id,submit_s,runtime_s\n", "gang")
    with pytest.raises(TraceError, match="it does not tell when they came"):
        read(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,1000\n")
