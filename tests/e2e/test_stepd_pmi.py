"""PMI-1 and PMI-2 as tasks speak them: by hand, by MPICH's library and by Slurm's libpmi2."""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster
from stepd_support import Client, Records, Start, assert_small, mover_of, tasks

MAPPING = "(vector,(0,2,1))"
PMI: Records = [("pmi", 2), ("pmi_jobid", "7.0")]

#: What a task does to speak for itself: say() and hear() of PMI-1, ask() of PMI-2.
SPEAK = r"""
import os, socket, sys
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
sock = socket.socket(fileno=int(os.environ["PMI_FD"]))
lines = sock.makefile("rb")
def say(text): sock.sendall(text.encode() + b"\n"); return lines.readline().decode().rstrip("\n")
def ask(cmd, **more):
    body = "".join(f"{k}={str(v).replace(';', ';;')};" for k, v in {"cmd": cmd, **more}.items())
    length = str(len(body))  # Slurm's library puts the blanks behind it, others before
    sock.sendall(((length.ljust(6) if rank % 2 else length.rjust(6)) + body).encode())
    return hear()
def hear():
    answer = lines.read(int(lines.read(6))).decode()
    parts = answer.replace(";;", "\0").split(";")
    return dict(part.replace("\0", ";").split("=", 1) for part in parts if part)
def init2():
    assert say("cmd=init pmi_version=2 pmi_subversion=0") == \
        "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0"
    return ask("fullinit", pmijobid=os.environ["PMI_JOBID"], pmirank=rank, threaded="FALSE")
"""


@pytest.fixture
def pair() -> Iterator[Client]:
    """A client of two nodes."""
    made = Client(nodes=2)
    yield made
    made.close()


#: one that other users may run, too
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable


def python(script: str) -> Records:
    return [("arg", PYTHON), ("arg", "-c"), ("arg", SPEAK + script)]


def step_of(script: str, n: int, first: int = 0, total: int = 0) -> Records:
    """n tasks of a Python script that speaks PMI."""
    records = [record for record in tasks(n, "", first=first, total=total) if record[0] != "arg"]
    return [*python(script), *PMI, ("pmi_mapping", MAPPING), *records]


def run(start: Start, client: Client, records: Records) -> None:
    step = start("", *records, *client.records(), out="")
    status = step.finish()
    client.finish()
    assert status.wstatus == 0, bytes(b"".join(client.err.values())).decode()


def test_what_a_task_finds_in_its_environment(start: Start, client: Client) -> None:
    """Golden 037."""
    step = start(
        "", *tasks(2, "env | grep PMI_ | sort; ls /proc/$$/fd | sort -n | tail -1"), *PMI,
        *client.records(), out="",
    )  # fmt: skip
    assert step.finish().wstatus == 0
    client.finish()
    for i in range(2):
        fd, *rest, _ = client.out[i].decode().splitlines()
        assert rest == ["PMI_JOBID=7.0", f"PMI_RANK={i}", "PMI_SIZE=2"]
        number = int(fd.removeprefix("PMI_FD="))
        assert number >= 17  # out of the way of scripts that number theirs from 3


def test_pmi1_on_one_node(start: Start, client: Client) -> None:
    run(
        start,
        client,
        step_of(
            """
assert say("cmd=init pmi_version=1 pmi_subversion=1") == \
    "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
maxes = dict(part.split("=") for part in say("cmd=get_maxes").split())
assert maxes["cmd"] == "maxes" and int(maxes["keylen_max"]) >= 64
assert int(maxes["vallen_max"]) >= 1024 and int(maxes["kvsname_max"]) >= 64
assert say("cmd=get_appnum") == "cmd=appnum rc=0 appnum=0"
assert say("cmd=get_universe_size") == f"cmd=universe_size rc=0 size={size}"
assert say("cmd=get_my_kvsname") == "cmd=my_kvsname rc=0 kvsname=7.0"
get = "cmd=get kvsname=7.0 key="
assert say(get + "PMI_process_mapping") == \
    "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))"
assert say(get + "nothing").startswith("cmd=get_result rc=-1 msg=key_not_found")
assert say(f"cmd=put kvsname=7.0 key=card{rank} value=a=b c{rank}") == \
    "cmd=put_result rc=0 msg=success"
assert say("cmd=barrier_in") == "cmd=barrier_out rc=0"
for other in range(size):
    assert say(f"{get}card{other}") == f"cmd=get_result rc=0 msg=success value=a=b c{other}"
assert say("cmd=put kvsname=7.0 key=" + "k" * 64 + " value=1").startswith("cmd=put_result rc=-1")
assert say("cmd=put kvsname=7.0 key=k value=" + "v" * 1023).startswith("cmd=put_result rc=0")
assert say("cmd=publish_name service=x port=y").startswith("cmd=publish_result rc=-1")
sock.sendall(b"mcmd=spawn\\nnprocs=1\\nexecname=true\\ntotspawns=2\\nspawnssofar=1\\nendcmd\\n")
assert say("mcmd=spawn\\nnprocs=1\\nexecname=true\\ntotspawns=2\\nspawnssofar=2\\nendcmd") \
    .startswith("cmd=spawn_result rc=-1")
assert say("cmd=barrier_in") == "cmd=barrier_out rc=0"
assert say("cmd=finalize") == "cmd=finalize_ack rc=0"
""",
            3,
        ),
    )
    assert not client.exchanges  # one node needs nobody


def test_pmi2_on_one_node(start: Start, client: Client) -> None:
    run(
        start,
        client,
        step_of(
            """
full = init2()
assert (full["cmd"], full["rc"], full["rank"], full["size"], full["appnum"]) == \
    ("fullinit-response", "0", str(rank), str(size), "0")
assert ask("job-getid", thrid=5) == \
    {"cmd": "job-getid-response", "thrid": "5", "rc": "0", "jobid": "7.0"}
attribute = ask("info-getjobattr", key="PMI_process_mapping")
assert attribute["found"] == "TRUE" and attribute["value"] == "(vector,(0,2,1))"
assert ask("info-getjobattr", key="universeSize")["value"] == str(size)
assert ask("info-getjobattr", key="other")["found"] == "FALSE"
assert ask("kvs-put", key=f"k{rank}", value=f"semi;colon={rank};")["rc"] == "0"
assert ask("kvs-fence", thrid=1) == {"cmd": "kvs-fence-response", "thrid": "1", "rc": "0"}
for other in range(size):
    got = ask("kvs-get", jobid="7.0", srcid=other, key=f"k{other}")
    assert (got["found"], got["value"]) == ("TRUE", f"semi;colon={other};")
assert ask("kvs-get", jobid="7.0", srcid=-1, key="none")["found"] == "FALSE"
if rank == 0:
    assert ask("info-getnodeattr", key="shm", wait="TRUE")["value"] == "name"
else:
    assert ask("info-getnodeattr", key="other")["found"] == "FALSE"
    import time; time.sleep(0.1)
    assert ask("info-putnodeattr", key="shm", value="name")["rc"] == "0"
refused = ask("spawn", ncmds=1, subcmd="true", maxprocs=1)
assert refused["cmd"] == "spawn-response" and refused["rc"] == "-1" and refused["errmsg"]
assert ask("name-publish", name="a", port="b")["rc"] == "-1"
assert ask("finalize")["cmd"] == "finalize-response"
""",
            2,
        ),
    )


@pytest.mark.parametrize("version", [1, 2])
def test_an_exchange_of_two_nodes(start: Start, pair: Client, version: int) -> None:
    one = """
assert say("cmd=init pmi_version=1 pmi_subversion=1").startswith("cmd=response_to_init")
for round in range(3):
    assert " rc=0" in say(f"cmd=put kvsname=7.0 key=r{round}-{rank} value=v{round}-{rank}")
    assert say("cmd=barrier_in") == "cmd=barrier_out rc=0"
    for other in range(size):
        got = say(f"cmd=get kvsname=7.0 key=r{round}-{other}")
        assert got.endswith(f"value=v{round}-{other}"), got
"""
    two = """
init2()
for round in range(3):
    assert ask("kvs-put", key=f"r{round}-{rank}", value=f"v{round}-{rank}")["rc"] == "0"
    assert ask("kvs-fence")["rc"] == "0"
    for other in range(size):
        assert ask("kvs-get", key=f"r{round}-{other}")["value"] == f"v{round}-{other}"
"""
    script = one if version == 1 else two
    steps = [start("", *step_of(script, 2, 2 * i, 4), *pair.records(i), out="") for i in range(2)]
    for step in steps:
        assert step.finish().wstatus == 0, bytes(b"".join(pair.err.values())).decode()
    pair.finish()
    assert sorted(pair.exchanges) == [0, 1, 2]
    assert pair.exchanges[1] == {
        0: b"r1-0\0v1-0\0r1-1\0v1-1\0" if pair.exchanges[1][0].startswith(b"r1-0") else
        b"r1-1\0v1-1\0r1-0\0v1-0\0",
        1: b"r1-2\0v1-2\0r1-3\0v1-3\0" if pair.exchanges[1][1].startswith(b"r1-2") else
        b"r1-3\0v1-3\0r1-2\0v1-2\0",
    }  # fmt: skip


def test_a_large_exchange(start: Start, pair: Client) -> None:
    """More than any buffer on the way holds, while outputs flow beside it."""
    script = """
import threading
def chatter():
    for _ in range(200): os.write(1, b"x" * 10000)
thread = threading.Thread(target=chatter); thread.start()
init2()
value = "v" * 1000
for i in range(3000):
    assert ask("kvs-put", key=f"{rank}-{i}", value=value)["rc"] == "0"
assert ask("kvs-fence")["rc"] == "0"
assert ask("kvs-get", key=f"{1 - rank}-2999")["value"] == value
thread.join()
"""
    steps = [start("", *step_of(script, 1, i, 2), *pair.records(i), out="") for i in range(2)]
    for step in steps:
        assert step.finish().wstatus == 0, bytes(b"".join(pair.err.values())).decode()
    pair.finish()
    assert all(pair.out[i] == b"x" * 2_000_000 for i in range(2))
    assert all(len(part) > 3_000_000 for part in pair.exchanges[0].values())


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ('say("cmd=init pmi_version=1 pmi_subversion=1")\nsay("cmd=abort exitcode=5")', 5, b""),
        ('init2()\nask("abort", isworld="TRUE", msg="it is over; yes")', 1, b"it is over; yes"),
    ],
)
def test_an_abort_is_passed_on(
    start: Start, client: Client, script: str, code: int, words: bytes
) -> None:
    step = start("", *step_of(script, 2), *client.records(), out="")
    client.until(lambda: client.aborts)
    assert client.aborts[0] == (code, words)
    step.tell("kill9 silent")
    step.finish()


@pytest.mark.parametrize(
    "garbage",
    [
        "os.urandom(100000)",
        "b'\\n' * 1000",
        "b'x' * 1000000",
        "b'cmd=init pmi_version=2 pmi_subversion=0\\n999999' + b'y' * 70000",
        "b'cmd=init pmi_version=2 pmi_subversion=0\\n    10cmd'",
        "b'cmd=init pmi_version=2 pmi_subversion=0\\n-00001x'",
        "b'\\0' * 100 + b'\\n'",
        "b'cmd=' + b'%n%s' * 100 + b'\\n'",
        "b'= = = =\\n'",
    ],
)
def test_garbage_ends_only_the_connection_of_its_task(
    start: Start, client: Client, garbage: str
) -> None:
    script = f"""
if rank == 1:
    try:
        sock.sendall({garbage})
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536): pass
    except OSError: pass
    print("rejected")
else:
    assert say("cmd=init pmi_version=1 pmi_subversion=1").startswith("cmd=response_to_init")
    sys.stdin.read()
    assert say("cmd=get_appnum") == "cmd=appnum rc=0 appnum=0"
    print("served")
"""
    step = start("", *step_of(script, 2), *client.records(), out="")
    client.until(lambda: client.out[1] == b"rejected\n")
    client.feed(0xFFFFFFFF, b"")
    assert step.finish().wstatus == 0
    client.finish()
    assert client.out[0] == b"served\n"


def test_who_does_not_read_answers_is_not_read(start: Start, client: Client) -> None:
    """Requests without end, and never an answer taken: nothing grows in the mover."""
    script = """
say("cmd=init pmi_version=1 pmi_subversion=1")
say("cmd=put kvsname=7.0 key=k value=" + "v" * 1000)
sock.setblocking(False)
sent = 0
try:
    for _ in range(100000): sent += sock.send(b"cmd=get kvsname=7.0 key=k\\n" * 100)
except BlockingIOError: print("stuck", flush=True)
sock.setblocking(True)
sys.stdin.read()
"""
    step = start("", *step_of(script, 1), *client.records(), out="")
    client.until(lambda: client.out[0] == b"stuck\n")
    assert_small(mover_of(step))
    client.feed(0, b"")
    client.feed(0xFFFFFFFF, b"")
    step.finish()


RING = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, size, token = 0, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        token = 1;
        MPI_Send(&token, 1, MPI_INT, 1 % size, 0, MPI_COMM_WORLD);
        MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token *= 2;
        MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    }
    printf("rank %d of %d sum %d token %d\n", rank, size, sum, token);
    if (argc > 1 && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 17);
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture(scope="session")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of MPICH's."""
    compiler = shutil.which("mpicc.mpich")
    if compiler is None:
        pytest.skip("there is no mpicc.mpich (Debian: apt-get install libmpich-dev)")
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "ring.c").write_text(RING)
    subprocess.run([compiler, "-o", folder / "ring", folder / "ring.c"], check=True)
    return folder / "ring"


def lines_of_ring(size: int) -> dict[int, bytes]:
    """By arithmetic: the token doubles at each rank but the first, where it is complete."""
    tokens = {rank: 2**rank for rank in range(1, size)} | {0: 2 ** (size - 1)}
    return {
        rank: f"rank {rank} of {size} sum {size * (size - 1) // 2} token {tokens[rank]}\n".encode()
        for rank in range(size)
    }


def mpi(
    start: Start, ring: Path, n: int, first: int, total: int, mapping: str, *more: str
) -> Records:
    if not (start.out / "ring").exists():
        shutil.copy(ring, start.out / "ring")  # where also other users reach it
    records = [record for record in tasks(n, "", first=first, total=total) if record[0] != "arg"]
    args: Records = [("arg", str(start.out / "ring")), *(("arg", arg) for arg in more)]
    return [*args, *PMI, ("pmi_mapping", mapping), ("env", "HOME=/tmp"), *records]


def test_mpich_on_one_node(start: Start, client: Client, ring: Path) -> None:
    step = start("", *mpi(start, ring, 4, 0, 4, "(vector,(0,1,4))"), *client.records(), out="")
    assert step.finish(60).wstatus == 0, bytes(b"".join(client.err.values())).decode()
    client.finish()
    assert client.out == lines_of_ring(4)


def test_mpich_on_two_nodes(start: Start, pair: Client, ring: Path) -> None:
    mapping = "(vector,(0,2,2))"
    steps = [
        start("", *mpi(start, ring, 2, 2 * i, 4, mapping), *pair.records(i), out="")
        for i in range(2)
    ]
    for step in steps:
        assert step.finish(60).wstatus == 0, bytes(b"".join(pair.err.values())).decode()
    pair.finish()
    assert pair.out == lines_of_ring(4)


def test_mpich_aborts(start: Start, client: Client, ring: Path) -> None:
    step = start("", *mpi(start, ring, 2, 0, 2, "(vector,(0,1,2))", "x"), *client.records(), out="")
    client.until(lambda: client.aborts, 60)
    assert client.aborts[0][0] == 17
    step.tell("kill9 silent")
    step.finish()


def test_slurms_own_library_speaks_it(start: Start, client: Client) -> None:
    """libpmi2 of Slurm, as programs linked with it use it."""
    library = ctypes.util.find_library("pmi2")
    if library is None:
        pytest.skip("there is no libpmi2 (Debian: apt-get install libpmi2-0)")
    script = f"""
from ctypes import *
sock.detach()
pmi = CDLL("{library}")
spawned, nproc, me, app = c_int(), c_int(), c_int(), c_int()
assert pmi.PMI2_Init(byref(spawned), byref(nproc), byref(me), byref(app)) == 0
assert (nproc.value, me.value) == (size, rank)
job = create_string_buffer(256)
assert pmi.PMI2_Job_GetId(job, 256) == 0 and job.value == b"7.0"
value, length, found = create_string_buffer(1024), c_int(), c_int()
assert pmi.PMI2_Info_GetJobAttr(b"PMI_process_mapping", value, 1024, byref(found)) == 0
assert found.value == 1 and value.value == b"(vector,(0,2,1))"
assert pmi.PMI2_KVS_Put(f"k{{rank}}".encode(), f"v;{{rank}}".encode()) == 0
assert pmi.PMI2_KVS_Fence() == 0
for other in range(size):
    assert pmi.PMI2_KVS_Get(job, other, f"k{{other}}".encode(), value, 1024, byref(length)) == 0
    assert value.value == f"v;{{other}}".encode()
if rank == 0:
    assert pmi.PMI2_Info_PutNodeAttr(b"a", b"b") == 0
else:
    assert pmi.PMI2_Info_GetNodeAttr(b"a", value, 1024, byref(found), 1) == 0
    assert value.value == b"b"
assert pmi.PMI2_Finalize() == 0
"""
    run(start, client, step_of(script, 2))


def test_keys_do_not_fill_the_memory_of_the_node(start: Start, client: Client) -> None:
    """The mover is in none of the step's groups: what tasks may leave with it is bounded."""
    script = """
init2()
value = "v" * 1000
for i in range(100000):
    if ask("kvs-put", key=str(i), value=value)["rc"] != "0": break
print(i // 1000, flush=True)
assert ask("kvs-put", key="more", value=value)["rc"] == "-1"
assert ask("kvs-get", key="1")["value"] == value
"""
    run(start, client, step_of(script, 1))
    assert 14 <= int(client.out[0]) <= 18  # 16 MB


def test_mpich_with_srun(cluster: LocalCluster, ring: Path, tmp_path: Path) -> None:
    """Through all of it: two nodes, exchanges carried out by the thin client."""
    argv = ["srun", "--mpi=pmi2", "-N2", "-n4", "./ring"]
    shutil.copy(ring, tmp_path / "ring")
    done = cluster.run(argv, cwd=tmp_path)
    assert sorted(done.stdout.splitlines()) == [
        line.decode().rstrip() for line in lines_of_ring(4).values()
    ]
    done = cluster.run([*argv, "x"], cwd=tmp_path, check=False)
    assert done.returncode == 137  # as Slurm 22.05 with MPICH 4.0
    assert "application called MPI_Abort(MPI_COMM_WORLD, 17) - process 1" in done.stderr
    # Slurm 22.05 counts the step as cancelled; its line says once what has killed it (golden 039).
    assert done.stderr.count(" DUE to SIGNAL Killed ***") == 1, done.stderr
    assert "TASK FAILURE" not in done.stderr


#: Stands for the PMIx server: tells each local rank what it needs, and what befalls itself.
SERVER = """\
#!{python}
import os, signal, struct, sys
def got(n):
    data = b""
    while len(data) < n:
        part = os.read(0, n - len(data))
        if not part: os._exit(0)
        data += part
    return data
def heard(number, frame):
    with open("{out}/heard", "a") as file: file.write(f"{{number}}\\n")
for number in (10, 12, 15): signal.signal(number, heard)
length = struct.unpack(">I", got(4))[0]
order = got(length)
for rank in range(2):
    body = b"E" + struct.pack(">I", rank) + f"PMIX_FAKE={{rank}}".encode() + bytes(1)
    os.write(0, struct.pack(">I", len(body)) + body)
while True: got(1)
"""


def test_signals_and_kills_of_a_step_are_not_for_its_pmix_server(
    start: Start, client: Client
) -> None:
    """It serves the tasks until they have ended, and is no reason to hold their resources."""
    out = start.out
    (out / "server").write_text(SERVER.format(python=PYTHON, out=out))
    (out / "server").chmod(0o755)
    pmix: Records = [("pmix", f"{out}/server"), ("pmix_dir", str(out))]
    pmix += [("pmix_nodes", "gpu01 0,1\n"), ("pmi_jobid", "7.0")]
    script = "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo $PMIX_FAKE; "
    step = start(
        "", *tasks(2, script + "while :; do sleep 0.02; done"), *pmix, *client.records(), out=""
    )
    client.until(lambda: client.out == {0: b"0\n", 1: b"1\n"})
    step.tell("signal 10 all")
    client.until(lambda: all(b"usr1" in client.out[i] for i in (0, 1)))
    client.reading.clear()  # the mover stays until all is read
    step.tell("kill cancelled")
    assert step.finish().wstatus == 3 << 8
    client.reading.set()
    client.finish()
    assert all(client.out[i].endswith(b"term\n") for i in (0, 1))
    assert not (out / "heard").exists()
