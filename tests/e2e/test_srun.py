"""Steps on a whole cluster: what a user's srun does inside and outside a job, and who may die."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import BIN, PATIENCE, LocalCluster, until

from slurmd_compat import pmix


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster("--simulate", "peer", "--nodes", "4") as made:
        yield made


def batch(
    cluster: LocalCluster, name: str, body: str, *options: str, patience: float = PATIENCE
) -> str:
    """Runs a script as a job; what it wrote."""
    out = cluster.work / f"{name}.out"
    script = f"#!/bin/bash\nexec 2>&1\n{body}\n"
    job = cluster.sbatch("-o", str(out), "-J", name, "-t", "15", *options, script=script)
    cluster.ended(job, patience)
    return out.read_text()


def srun(
    cluster: LocalCluster, *words: str, stdin: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    return cluster.run(["srun", *words], check=False, stdin=stdin, timeout=timeout)


# ---- what comes out -------------------------------------------------------------------------


def test_inside_a_job_over_two_nodes(cluster: LocalCluster) -> None:
    text = batch(
        cluster,
        "two",
        "srun -l sh -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURMD_NODENAME' | sort",
        "-N2",
        "-n4",
        "--ntasks-per-node=2",
    )
    rows = [line.split() for line in text.splitlines()]
    assert [row[0] for row in rows] == ["0:", "1:", "2:", "3:"]
    assert [row[1:4] for row in rows] == [
        ["0", "0", "0"],
        ["1", "0", "1"],
        ["2", "1", "0"],
        ["3", "1", "1"],
    ]
    assert rows[0][4] == rows[1][4] != rows[2][4] == rows[3][4]


def test_outside_a_job(cluster: LocalCluster) -> None:
    done = srun(cluster, "-N2", "-n2", "-l", "printenv", "SLURM_PROCID")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0: 0", "1: 1"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("code", "rc", "said"),
    [
        ("exit 3", 3, "task 0: Exited with exit code 3"),
        ("kill -9 $$", 137, "task 0: Killed"),
        ("kill -SEGV $$", 139, "task 0: Segmentation fault"),
    ],
)
def test_exit_codes(cluster: LocalCluster, code: str, rc: int, said: str) -> None:
    done = srun(cluster, "sh", "-c", code)
    assert done.returncode == rc
    assert re.search(rf"^srun: error: node\d: {said}( \(core dumped\))?$", done.stderr, re.M), (
        done.stderr
    )


def test_command_that_does_not_exist(cluster: LocalCluster) -> None:
    done = srun(cluster, "nosuchcommand")
    assert done.returncode == 2
    assert "execve(): nosuchcommand: No such file or directory" in done.stderr
    assert "task 0: Exited with exit code 2" in done.stderr


def test_binary_and_large_output_comes_through_whole(cluster: LocalCluster) -> None:
    big = cluster.work / "big"
    big.write_bytes(os.urandom(1 << 20) * 48)
    argv = [str(BIN / "srun"), "-n1", "cat", str(big)]
    with open(cluster.work / "copy", "wb") as out:
        done = subprocess.run(argv, env=cluster.env(), cwd=cluster.work, stdout=out, timeout=120)
    assert done.returncode == 0
    assert subprocess.run(["cmp", str(big), str(cluster.work / "copy")]).returncode == 0


def test_input_reaches_all_tasks_or_one(cluster: LocalCluster) -> None:
    done = srun(cluster, "-n3", "-l", "cat", stdin="a\nb\n")
    assert sorted(done.stdout.splitlines()) == sorted(f"{n}: {c}" for n in range(3) for c in "ab")
    done = srun(cluster, "-n3", "-l", "-i1", "cat", stdin="only\n")
    assert done.stdout == "1: only\n"


def test_large_input_comes_through(cluster: LocalCluster) -> None:
    argv = [str(BIN / "srun"), "-n2", "md5sum"]
    data = os.urandom(1 << 20) * 8
    done = subprocess.run(
        argv, env=cluster.env(), cwd=cluster.work, input=data, capture_output=True, timeout=120
    )
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 2
    assert len(set(lines)) == 1
    expected = subprocess.run(["md5sum"], input=data, capture_output=True, check=True).stdout
    assert lines[0] == expected.decode().strip()


def test_files_for_each_task(cluster: LocalCluster) -> None:
    text = batch(
        cluster, "files", "srun -o part.%j.%t.%N sh -c 'echo $SLURM_PROCID'; echo $SLURM_JOB_ID",
        "-N2", "-n2",
    )  # fmt: skip
    job = text.split()[-1]
    found = sorted(path.name for path in cluster.work.glob(f"part.{job}.*"))
    assert len(found) == 2
    for number, name in enumerate(found):
        assert name.startswith(f"part.{job}.{number}.node")
        assert (cluster.work / name).read_text() == f"{number}\n"


def test_steps_split_an_allocation(cluster: LocalCluster) -> None:
    """Two steps that want one GPU each do not get the same, and a third waits."""
    text = batch(
        cluster,
        "split",
        "for i in 1 2 3; do srun -n1 --exact --gpus=1 --mem=100 sh -c "
        "'echo start $CUDA_VISIBLE_DEVICES $SLURM_STEP_GPUS; sleep 1' & done; wait",
        "-n3",
        "-c1",
        "--gpus=2",
        "--mem=1000",
    )
    starts = [line.split()[-1] for line in text.splitlines() if line.startswith("start")]
    assert len(starts) == 3
    assert starts[0] != starts[1]
    assert "step creation temporarily disabled, retrying (Requested nodes are busy)" in text


def test_multi_prog(cluster: LocalCluster) -> None:
    config = cluster.work / "multi.conf"
    config.write_text("# ranks\n0 echo first %t\n1-2 echo other %t %o\n")
    done = srun(cluster, "-n3", "-l", "--multi-prog", str(config))
    assert sorted(done.stdout.splitlines()) == ["0: first 0", "1: other 1 0", "2: other 2 1"]


def test_kill_on_bad_exit(cluster: LocalCluster) -> None:
    code = "if [ $SLURM_PROCID = 0 ]; then exit 3; else sleep 60; fi"
    begun = time.monotonic()
    done = srun(cluster, "-n2", "-K", "sh", "-c", code)
    assert time.monotonic() - begun < 40
    # The highest of 3 and 143 (SIGTERM) or 137.
    assert done.returncode in (143, 137), done.stderr


# ---- terminal and signals -------------------------------------------------------------------


def test_pty(cluster: LocalCluster) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cluster.work)
        os.execve(BIN / "srun", ["srun", "--pty", "sh"], {**cluster.env(), "PS1": "$ "})
    said = b""

    def expect(what: bytes) -> None:
        nonlocal said
        end = time.monotonic() + 30
        while what not in said:
            assert time.monotonic() < end, said
            if select.select([fd], [], [], 0.2)[0]:
                try:
                    said += os.read(fd, 4096)
                except OSError:
                    break
        assert what in said, said

    os.write(fd, b"test -t 0 && echo ter''minal; stty size\n")
    expect(b"terminal")
    os.write(fd, b"exit 7\n")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_interrupt_twice_kills(cluster: LocalCluster) -> None:
    mark = cluster.work / "sleeping"
    process = subprocess.Popen(
        [str(BIN / "srun"), "-n2", "sh", "-c", f"touch {mark}.$SLURM_PROCID; exec sleep 60"],
        env=cluster.env(), cwd=cluster.work, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until("both tasks", lambda: all(Path(f"{mark}.{task}").exists() for task in (0, 1)))
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert "srun: interrupt (one more within 1 sec to abort)" in said
    assert "tasks 0-1: running" in said
    assert "srun: forcing job termination" in said
    assert "srun: sending Ctrl-C to StepId=" in said
    assert "srun: forcing job termination" in said
    # 128 + SIGINT
    assert process.returncode == 130


def test_client_that_dies_ends_its_job(cluster: LocalCluster) -> None:
    process = subprocess.Popen(
        [str(BIN / "srun"), "-J", "orphan", "sleep", "300"], env=cluster.env(), cwd=cluster.work
    )
    squeue = ["squeue", "-h", "-n", "orphan", "-t", "R", "-o", "%i"]
    until("running", lambda: cluster.run(squeue).stdout)
    process.kill()
    process.wait()
    until("its end", lambda: not cluster.run(["squeue", "-h", "-n", "orphan"]).stdout)


# ---- who may die ----------------------------------------------------------------------------


def _kill(cluster: LocalCluster, daemon: str) -> None:
    pid = int((cluster.dir / "run" / f"{daemon}.pid").read_text())
    os.kill(pid, signal.SIGKILL)


def test_daemons_may_die_during_a_step(cluster: LocalCluster) -> None:
    mark = cluster.work / "go"
    code = "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo ended $SLURM_PROCID"
    process = subprocess.Popen(
        [str(BIN / "srun"), "-N2", "-n2", "sh", "-c", code],
        env=cluster.env(), cwd=cluster.work, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    # Both: what has been read into a buffer is lost to communicate().
    assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
    for path in sorted((cluster.dir / "run").glob("slurmd.*.pid")):
        _kill(cluster, path.stem)
    _kill(cluster, "slurmctld")
    cluster.gsched("up", "-q")
    mark.touch()
    rest, _ = process.communicate(timeout=60)
    assert sorted(rest.split("\n")) == ["", "ended 0", "ended 1"]
    assert process.returncode == 0


# ---- programs over many nodes ---------------------------------------------------------------

LAUNCH = r"""
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
set -- $nodes
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
echo "head $1 of $#"
srun --ntasks-per-node=1 python3 worker.py
echo rc $?
"""

WORKER = r"""
# What torchrun does: one launcher on each node, eight workers below it, a rendezvous at the head.
import os, socket, struct, subprocess, sys, time
rank0 = 8 * int(os.environ["SLURM_NODEID"])
if len(sys.argv) == 1:
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    assert len(gpus) == 8, gpus
    world = str(8 * int(os.environ["SLURM_NNODES"]))
    many = [subprocess.Popen([sys.executable, __file__, str(rank0 + i), world]) for i in range(8)]
    sys.exit(max(one.wait() for one in many))
rank, world = int(sys.argv[1]), int(sys.argv[2])
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(at, backlog=world)
    links = [server.accept()[0] for _ in range(world - 1)]
    total = sum(struct.unpack("!i", link.recv(4))[0] for link in links)
    for link in links:
        link.sendall(struct.pack("!i", total))
    print("allreduce", total, flush=True)
else:
    for _ in range(300):
        try:
            link = socket.create_connection(at)
            break
        except OSError:
            time.sleep(0.1)
    link.sendall(struct.pack("!i", rank))
    assert struct.unpack("!i", link.recv(4))[0] == world * (world - 1) // 2
"""


#: the script of PyTorch's tutorial on several nodes, as it stands there but for the numbers
TORCHRUN = r"""
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)

echo head $head_node of ${#nodes[@]}
export LOGLEVEL=INFO

srun torchrun \
--nnodes 4 \
--nproc_per_node 8 \
--rdzv_id $RANDOM \
--rdzv_backend c10d \
--rdzv_endpoint $head_node_ip:29500 \
worker.py
echo rc $?
"""

TORCH_WORKER = r"""
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
total = torch.tensor([float(rank)])
dist.all_reduce(total)
mine = os.environ["SLURMD_NODENAME"], os.environ["CUDA_VISIBLE_DEVICES"].split(",")[local]
seen = [None] * dist.get_world_size()
dist.all_gather_object(seen, mine)
if rank == 0:
    print("allreduce", int(total), "gpus", len(set(seen)), flush=True)
dist.destroy_process_group()
"""


def torch_folder() -> Path | None:
    """Where the torchrun of a Python with PyTorch is: GSCHED_TORCH_PYTHON, or this one."""
    python = Path(os.environ.get("GSCHED_TORCH_PYTHON", sys.executable))
    if not (python.parent / "torchrun").exists():
        return None
    done = subprocess.run([python, "-c", "import torch"], capture_output=True)
    return python.parent if done.returncode == 0 else None


@pytest.mark.timeout(900)
def test_launch_as_torchrun_on_four_nodes_of_eight_gpus(cluster: LocalCluster) -> None:
    """With PyTorch its own torchrun and gloo, else a program that does as much."""
    folder = torch_folder()
    options = ("-N4", "--gpus-per-node=8", "--ntasks-per-node=1", "-c8")
    (cluster.work / "worker.py").write_text(TORCH_WORKER if folder else WORKER)
    if folder is None:
        text = batch(cluster, "torch", LAUNCH, *options)
    else:
        path = f"export PATH={folder}:$PATH GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1"
        text = batch(cluster, "torch", path + TORCHRUN, *options, patience=600)
        assert "gpus 32\n" in text
    assert "head node1 of 4" in text
    # 0 + 1 + ... + 31
    assert "allreduce 496" in text
    assert "rc 0" in text


RING = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, size, total = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d total %d\n", rank, size, total);
    MPI_Finalize();
    return 0;
}
"""


def _compiled(cluster: LocalCluster, compiler: str) -> Path:
    source, program = cluster.work / "ring.c", cluster.work / f"ring.{compiler}"
    source.write_text(RING)
    try:
        subprocess.run([compiler, "-o", str(program), str(source)], check=True)
    except FileNotFoundError:
        pytest.skip(f"{compiler} is not installed")
    return program


@pytest.mark.parametrize(
    ("compiler", "mpi"),
    [("mpicc.mpich", "pmi2"), ("mpicc.openmpi", "pmix")],
)
def test_mpi_program_on_four_nodes(cluster: LocalCluster, compiler: str, mpi: str) -> None:
    program = _compiled(cluster, compiler)
    if mpi == "pmix" and pmix.program() is None:
        pytest.skip("built without libpmix")
    text = batch(cluster, "mpi", f"srun --mpi={mpi} {program}", "-N4", "-n8")
    lines = sorted(line for line in text.splitlines() if line.startswith("rank"))
    assert lines == [f"rank {n} of 8 total 28" for n in range(8)], text


def test_mpi_needs_no_option_on_a_cluster_of_ones_own() -> None:
    with LocalCluster("--simulate", "dgx-h100", "--nodes", "2") as own:
        program = _compiled(own, "mpicc.mpich")
        text = batch(own, "mpi", f"srun {program}", "-N2", "-n4", "--mem-per-cpu=100")
        lines = sorted(line for line in text.splitlines() if line.startswith("rank"))
        assert lines == [f"rank {n} of 4 total 6" for n in range(4)], text


def test_nothing_is_left_of_a_job_when_its_srun_returns(cluster: LocalCluster) -> None:
    """Neither in the queue nor of its GPUs: the next one gets the same (golden 037, 040)."""
    for _ in range(5):
        done = srun(cluster, "-J", "brief", "--gpus=2", "printenv", "CUDA_VISIBLE_DEVICES")
        assert done.stdout == "0,1\n"
        assert cluster.run(["squeue", "-h", "-n", "brief"]).stdout == ""
    cluster.run(["salloc", "-Q", "-J", "brief", "-n1", "true"])
    assert cluster.run(["squeue", "-h", "-n", "brief"]).stdout == ""


def test_a_job_that_has_begun_is_running(cluster: LocalCluster) -> None:
    """Golden 040: R, not CF, right after `salloc --no-shell`."""
    cluster.run(["salloc", "--no-shell", "-J", "held", "-n1", "-t", "5"])
    try:
        assert cluster.run(["squeue", "-h", "-n", "held", "-o", "%t"]).stdout == "R\n"
    finally:
        cluster.run(["scancel", "-n", "held"])
