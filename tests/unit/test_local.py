"""What `gsched up` writes, without starting anything."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from gsched.config import load_config
from gsched.local import daemons, files, imported, machine, shapes
from gsched.local.cluster import purge
from gsched.local.command import environment_lines
from gsched.local.conf import Layout
from gsched.local.files import FilesError, Options


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    # Whatever GPUs this machine has, the tests are about simulated ones.
    monkeypatch.setattr(machine, "devices", list)
    made = Layout(tmp_path / "c")
    files.make_run(made)
    return made


def test_the_peer_shape_is_the_peer(layout: Layout) -> None:
    files.prepare(layout, Options(simulate="peer"))
    config = load_config(str(layout.slurm_conf))
    assert config.cluster_name == "peer"
    assert list(config.nodes) == ["node1", "node2", "node3", "node4"]
    for index, node in enumerate(config.nodes.values(), 1):
        assert (node.cpus, node.sockets, node.cores_per_socket) == (16, 2, 8)
        assert (node.real_memory, node.gres_text) == (64000, "gpu:h100:8")
        assert node.features == ("h100", "rackA" if index <= 2 else "rackB")
    gpu, debug = config.partitions["gpu"], config.partitions["debug"]
    assert (gpu.default, gpu.max_time, gpu.default_time) == (True, 7 * 86400, 3600)
    assert gpu.nodes == ("node1", "node2", "node3", "node4")
    assert (debug.nodes, debug.max_time, debug.default_time) == (("node1",), 1800, 600)
    assert (debug.priority_job_factor, config.kill_wait, config.def_mem_per_cpu) == (10, 5, 2000)
    assert config.ignored.keys() <= {
        *("mpidefault", "jobacctgathertype", "jobacctgatherfrequency", "switchtype", "authtype"),
        *config.ignored,
    }
    assert config.frontend_socket == f"{layout.run}/frontend.sock"
    assert config.nodes["node2"].expand(config.slurmd_spool_dir) == f"{layout.spool}/node2"


@pytest.mark.parametrize(
    ("name", "cpus", "gpu"),
    [
        ("dgx-h100", 224, "h100"),
        ("dgx-a100", 256, "a100"),
        ("dgx-1v", 80, "v100"),
        ("a100-pcie", 128, "a100"),
    ],
)
def test_every_named_shape_makes_a_cluster(layout: Layout, name: str, cpus: int, gpu: str) -> None:
    files.prepare(layout, Options(nodes=2, simulate=name))
    config = load_config(str(layout.slurm_conf))
    assert [node.cpus for node in config.nodes.values()] == [cpus, cpus]
    assert config.nodes["node1"].gpu_types == {gpu: 8}
    # A job that asks for no memory must not take all of the node's.
    assert config.def_mem() is not None
    uuids = []
    for node in config.nodes:
        topology = json.loads(Path(config.nodes[node].expand(config.nvml_topology)).read_text())
        uuids += [one["uuid"] for one in topology["gpus"]]
    assert len(set(uuids)) == 16


def test_two_clusters_share_no_port_and_no_gpu(tmp_path: Path) -> None:
    seen: list[set[str]] = []
    ports = []
    for name in ("a", "b"):
        layout = Layout(tmp_path / name)
        files.make_run(layout)
        files.prepare(layout, Options(nodes=1, simulate="peer"))
        config = load_config(str(layout.slurm_conf))
        ports += [config.slurmctld_port, config.port_of("node1")]
        topology = json.loads((layout.etc / "nvml/node1.json").read_text())
        seen.append({gpu["uuid"] for gpu in topology["gpus"]})
    assert len(set(ports)) == 4
    # Out of the range of outgoing connections: a node must not dial itself.
    assert max(ports) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert not seen[0] & seen[1]


def test_a_second_up_keeps_the_files_and_refuses_other_options(layout: Layout) -> None:
    first = files.prepare(layout, Options(nodes=2, simulate="peer"))
    text = layout.slurm_conf.read_text()
    assert files.prepare(layout, Options()) == first
    assert files.prepare(layout, Options(nodes=2, simulate="peer")) == first
    assert layout.slurm_conf.read_text() == text
    with pytest.raises(FilesError, match=r"was made with '--nodes 2 --simulate peer'"):
        files.prepare(layout, Options(nodes=3, simulate="peer"))


def test_secrets_are_for_their_owner_alone(layout: Layout) -> None:
    files.prepare(layout, Options(nodes=2, simulate="peer"))
    secrets = sorted(layout.keys.rglob("*.key_secret"))
    assert len(secrets) == 4
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
    assert layout.state.stat().st_mode & 0o777 == 0o700


def test_an_unknown_shape_is_named(layout: Layout) -> None:
    with pytest.raises(shapes.ShapeError, match="--simulate dgx-h1000: neither a shape"):
        files.prepare(layout, Options(simulate="dgx-h1000"))
    assert not layout.slurm_conf.exists()


def test_a_topology_file_is_a_shape(tmp_path: Path) -> None:
    path = tmp_path / "box.json"
    gpus = [{"numa": 0, "cpus": "0-7"}, {"numa": 1, "cpus": "8-15"}]
    path.write_text(json.dumps({"defaults": {"name": "NVIDIA L40S"}, "gpus": gpus}))
    shape = shapes.find(str(path))
    assert (shape.cpus, shape.sockets, shape.gpus, shape.gpu_type) == (16, 2, 2, "l40s")
    path.write_text("[]")
    with pytest.raises(shapes.ShapeError, match="not a topology file"):
        shapes.find(str(path))


def test_gpu_types() -> None:
    assert shapes.type_of("NVIDIA H100 80GB HBM3") == "h100"
    assert shapes.type_of("NVIDIA A100-SXM4-40GB") == "a100"
    assert shapes.type_of("Tesla V100-SXM2-16GB") == "v100"
    assert shapes.type_of("") == "gpu"


def test_gpus_are_divided_and_none_is_given_twice() -> None:
    gpus = [machine.Device(minor, "h100") for minor in range(8)]
    for nodes in range(1, 11):
        parts = machine.shares(gpus, nodes)
        assert [gpu for part in parts for gpu in part] == gpus
        assert len(parts) == nodes
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_real_gpus_stand_in_gres_conf(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [machine.Device(minor, "h100") for minor in (0, 1, 2, 3, 5)]
    monkeypatch.setattr(machine, "devices", lambda: found)
    files.prepare(layout, Options(nodes=2))
    config = load_config(str(layout.slurm_conf))
    assert config.nvml_library == ""
    named = {
        name: [file for line in config.gres_lines(name) for file in line.files]
        for name in config.nodes
    }
    assert named == {
        "node1": ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"],
        "node2": ["/dev/nvidia3", "/dev/nvidia5"],
    }
    assert [node.gpus for node in config.nodes.values()] == [3, 2]


SITE = """\
# A site's file.
ClusterName=site
SlurmctldHost=ctl1(10.0.0.1)
SlurmctldHost=ctl2
SlurmUser=slurm
StateSaveLocation=/var/spool/slurmctld
AuthType=auth/munge
GresTypes=gpu
Prolog=/no/such/prolog.sh
MaxJobCount=500 # a comment
SlurmdParameters=config_overrides
Include nodes.conf
PartitionName=batch Nodes=gpu[01-03] \\
  Default=YES MaxTime=2-0
"""
SITE_NODES = """\
NodeName=DEFAULT Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000
NodeName=gpu[01-02] NodeAddr=10.0.1.[1-2] Gres=gpu:a100:4 Feature=big State=CLOUD
NodeName=gpu03
"""


def test_a_sites_slurm_conf_becomes_a_cluster_here(layout: Layout, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "slurm.conf").write_text(SITE)
    (site / "nodes.conf").write_text(SITE_NODES)
    remarks = files.prepare(layout, Options(source=site))
    config = load_config(str(layout.slurm_conf))
    assert config.cluster_name == "site"
    assert config.max_job_count == 500
    assert [host.addr for host in config.slurmctld_host] == ["127.0.0.1"]
    assert config.state_save_location == str(layout.state)
    assert {name: node.gpus for name, node in config.nodes.items()} == {
        "gpu01": 4,
        "gpu02": 4,
        "gpu03": 0,
    }
    assert {node.cpus for node in config.nodes.values()} == {8}
    assert {node.state for node in config.nodes.values()} == {"UNKNOWN"}
    assert config.partitions["batch"].max_time == 2 * 86400
    assert config.autodetect("gpu01") == "nvml"
    assert any("Prolog=/no/such/prolog.sh" in remark for remark in remarks)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:h100:8(S:0-1)", ("h100", 8)),
        ("gpu:4,nic:2", ("", 4)),
        ("gpu", ("", 1)),
        ("gpu:a100:2,gpu:v100:2", ("a100", 4)),
        ("nic:2", ("", 0)),
        ("", ("", 0)),
    ],
)
def test_gpus_of_a_gres_value(gres: str, expected: tuple[str, int]) -> None:
    assert imported.gpu_request(gres) == expected


def test_env_sets_path_and_slurm_conf_once(tmp_path: Path) -> None:
    ours = str(daemons.bin_dir())
    conf = tmp_path / "it's here" / "slurm.conf"
    lines = environment_lines(f"/usr/bin:{ours}:/bin", conf)
    assert len(lines) == 2
    assert [shlex.split(line) for line in lines] == [
        ["export", f"PATH={ours}:/usr/bin:/bin"],
        ["export", f"SLURM_CONF={conf}"],
    ]


def test_a_strangers_process_is_not_found(tmp_path: Path) -> None:
    daemon = daemons.Daemon("x", ("x",), tmp_path / "x.pid", tmp_path / "x.out", ("x", "conf"))
    me = os.getpid()
    start = daemons.start_of(me)
    assert start is not None
    # Same pid, another start time: a recycled pid. Same pid in the pid file: another program.
    record = {"pid": me, "start": start + 1, "boot": daemons.boot_id()}
    (tmp_path / "x.up").write_text(json.dumps(record))
    (tmp_path / "x.pid").write_text(f"{me}\n")
    assert daemons.find(tmp_path, daemon) is None
    (tmp_path / "x.up").write_text(json.dumps({**record, "start": start}))
    assert daemons.find(tmp_path, daemon) == daemons.Process(me, start)
    (tmp_path / "x.up").write_text(json.dumps({**record, "start": start, "boot": "before"}))
    assert daemons.find(tmp_path, daemon) is None


def test_purge_removes_only_what_gsched_wrote(layout: Layout) -> None:
    files.prepare(layout, Options(nodes=1, simulate="peer"))
    (layout.dir / "mine").write_text("x")
    purge(layout)
    assert [path.name for path in layout.dir.iterdir()] == ["mine"]
    layout.etc.mkdir()
    layout.slurm_conf.write_text("ClusterName=x\n")
    with pytest.raises(Exception, match="was not written by gsched"):
        purge(layout)
    assert layout.slurm_conf.exists()
