"""slurm.conf and the files beside it: values, defaults, errors with file and line."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched.config import Config, ConfigError, Host, load_config, parse_config
from gsched.config.show import config_rows

SITE = Path(__file__).parent / "data" / "site"

HEAD = "ClusterName=test\nSlurmctldHost=ctl\nGresTypes=gpu\n"


def parse(text: str, **others: str) -> Config:
    """HEAD and `text` as slurm.conf; other files as gres="...", cgroup="...", topology="..."."""
    return parse_config({"slurm.conf": HEAD + text, **{f"{k}.conf": v for k, v in others.items()}})


def sentence(text: str, **others: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, **others)
    return str(caught.value)


# ---- a whole site ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Config:
    return load_config(str(SITE / "slurm.conf"))


def test_site_globals(site: Config) -> None:
    assert site.path == str(SITE / "slurm.conf")
    assert site.cluster_name == "aurora"  # Slurm keeps cluster names in lower case
    assert site.slurmctld_host == (
        Host(name="mgmt1", addr="10.0.0.11"),
        Host(name="mgmt2", addr="10.0.0.12"),
    )
    assert site.run_dir == "/run/slurm"
    assert site.frontend_socket == "/run/slurm/frontend.sock"
    assert (site.slurmd_timeout, site.min_job_age, site.kill_wait) == (600, 600, 60)
    assert site.priority_max_age == 14 * 86400
    assert site.priority_weight_tres == "CPU=1000,Mem=2000,GRES/gpu=3000"
    assert site.scheduler_type == "sched/backfill"
    assert site.scheduler_options["bf_window"] == "10080"
    assert site.scheduler_options["nohold_on_prolog_fail"] == ""
    assert site.slurmd_debug == "info"  # level 3
    assert site.licenses == {"matlab": 20, "comsol": 4, "ansys": 1}
    assert site.prolog == ("/etc/slurm/prolog.d/*",)
    assert (site.enforce_part_limits, site.job_requeue) == ("ALL", False)
    assert site.def_mem_per_cpu == 3900
    assert site.task_plugin == ("task/affinity", "task/cgroup")


def test_site_names_what_has_no_effect(site: Config) -> None:
    path = str(SITE / "slurm.conf")
    assert site.ignored["CryptoType"] == f"{path}:{text_line('CryptoType')}"
    assert site.ignored["FastSchedule"] == f"{path}:{text_line('FastSchedule')}"
    assert {"UsePAM", "RebootProgram", "RequeueExitHold"} <= set(site.ignored)
    assert "KillWait" not in site.ignored


def text_line(key: str) -> int:
    lines = (SITE / "slurm.conf").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.startswith(key))


def test_site_nodes(site: Config) -> None:
    assert len(site.nodes) == 138
    node = site.nodes["c017"]
    assert (node.addr, node.hostname) == ("10.1.0.17", "c017")
    # CPUs = Sockets * CoresPerSocket * ThreadsPerCore where it is not given.
    assert (node.cpus, node.real_memory, node.tmp_disk) == (128, 257000, 800000)
    assert (node.weight, node.features) == (10, ("milan", "ib"))
    gpu = site.nodes["gpu01"]
    assert (gpu.cpus, gpu.cores_per_socket, gpu.gpus) == (112, 28, 4)
    assert gpu.gpu_types == {"a100": 4}
    assert gpu.gres_text == "gpu:a100:4,shard:16"
    assert gpu.mem_spec_limit == 8192
    assert site.nodes["dgx1"].gres_text == "gpu:h100:8(S:0-1)"
    assert site.nodes["dgx2"].sockets == 2
    assert (site.nodes["c099"].state, site.nodes["c099"].reason) == ("DOWN", "bad DIMM, RMA 4711")
    assert site.nodes["c101"].state == "UNKNOWN"
    assert site.port_of("c001") == 6818


def test_site_partitions(site: Config) -> None:
    assert list(site.partitions) == ["batch", "long", "bigmem", "gpu", "interactive", "maint"]
    assert site.default_partition == "batch"
    batch = site.partitions["batch"]
    assert (batch.max_time, batch.default_time) == (3 * 86400, 4 * 3600)
    assert (batch.deny_accounts, batch.allow_qos) == (("guest",), ("normal", "long"))
    assert (site.partitions["long"].max_time, site.partitions["long"].max_nodes) == (1209600, 4)
    assert site.partitions["bigmem"].nodes == tuple(f"c{n}" for n in range(121, 129))
    gpu = site.partitions["gpu"]
    assert gpu.nodes[0] == "gpu01" and gpu.nodes[-1] == "dgx2" and len(gpu.nodes) == 10
    assert (gpu.def_cpu_per_gpu, gpu.def_mem_per_gpu) == (14, 120000)
    assert gpu.tres_billing_weights == "CPU=1.0,Mem=0.25G,GRES/gpu=16.0"
    assert (gpu.max_cpus_per_node, gpu.allow_groups) == (112, ("gpuusers", "staff"))
    some = site.partitions["interactive"]
    assert (some.hidden, some.oversubscribe, some.oversubscribe_count) == (True, "FORCE", 4)
    maint = site.partitions["maint"]
    assert (maint.root_only, maint.max_time, maint.state) == (True, 0, "INACTIVE")
    assert len(maint.nodes) == 138
    assert site.partitions_of("c121") == ["batch", "bigmem", "maint"]


def test_site_default_memory(site: Config) -> None:
    assert site.def_mem("batch") == ("cpu", 3900)
    assert site.def_mem("bigmem") == ("cpu", 16000)
    assert site.def_mem_gpu("gpu") == 120000
    assert site.def_mem_gpu("batch") is None
    assert site.def_cpu_gpu("gpu") == 14


def test_site_other_files(site: Config) -> None:
    lines = site.gres_lines("gpu03")
    assert [line.files for line in lines] == [
        ("/dev/nvidia0",),
        ("/dev/nvidia1",),
        ("/dev/nvidia2", "/dev/nvidia3"),
    ]
    assert lines[0].links == (-1, 4, 4, 4)
    assert lines[0].cores == tuple(range(28))
    assert site.autodetect("dgx1") == "nvml"
    assert site.autodetect("gpu03") == "off"
    assert site.cgroup.constrain_devices and not site.cgroup.constrain_swap_space
    assert (site.cgroup.plugin, site.cgroup.allowed_ram_space) == ("cgroup/v2", 98.5)
    assert site.cgroup.max_ram_percent == 95.0
    assert [switch.name for switch in site.switches] == ["leaf1", "leaf2", "leaf3", "spine"]
    assert site.switches[3].switches == ("leaf1", "leaf2", "leaf3")
    assert "CgroupAutomount" in site.ignored


# ---- the reference cluster -------------------------------------------------------------------


def reference_texts(shared: Path) -> dict[str, str]:
    """The files that the reference cluster's script writes, its shell variables filled in."""
    script = (shared / "peer" / "slurm-up").read_text()
    heredocs = re.findall(r"^cat <<CONF\n(.*?)^CONF$", script, re.M | re.S)
    body = re.sub(r"^\$\{params:.*\n", "", "".join(heredocs[:2]), flags=re.M)
    names = {"host": "vm", "SUSER": "slurm", "run": "/PEER_DIR/run", "log": "/PEER_DIR/log"}
    ports = {"ctld_port": "23000", "dbd_port": "23001"}
    text = string.Template(body).substitute(PEER_DIR="/PEER_DIR", **names, **ports)
    per = "CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000 Gres=gpu:h100:8"
    gres = ""
    for i in range(1, 5):
        text += (
            f"NodeName=node{i} NodeHostname=node{i} NodeAddr=127.0.0.1 Port={23100 + i} {per} "
            f"Feature=h100,rack{'AB'[i > 2]} State=UNKNOWN\n"
        )
        gres += f"NodeName=node{i} Name=gpu Type=h100 File=/PEER_DIR/dev/nvidia[0-7]\n"
    text += (
        "PartitionName=gpu Nodes=node[1-4] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 "
        "State=UP PriorityJobFactor=1\n"
        "PartitionName=debug Nodes=node1 MaxTime=00:30:00 DefaultTime=00:10:00 State=UP "
        "PriorityJobFactor=10\n"
    )
    return {"slurm.conf": text, "gres.conf": gres}


@pytest.mark.shared
def test_reference_cluster(shared: Path) -> None:
    config = parse_config(reference_texts(shared))
    assert config.warnings == ()
    assert [node.port for node in config.nodes.values()] == [23101, 23102, 23103, 23104]
    assert config.nodes["node3"].features == ("h100", "rackB")
    assert (config.max_array_size, config.kill_wait, config.return_to_service) == (20001, 5, 2)
    assert config.nodes["node2"].expand(config.slurmd_spool_dir) == "/PEER_DIR/spool/node2"
    assert config.gres_lines("node4")[0].files[7] == "/PEER_DIR/dev/nvidia7"
    assert config.def_mem("gpu") == ("cpu", 2000)


@pytest.mark.shared
def test_show_config_as_the_reference_prints_it(shared: Path) -> None:
    """Row by row as in the target release's transcript, but for what differs by machine."""
    config = parse_config(reference_texts(shared))
    transcript = (shared / "golden/26.05/032-scontrol-show.txt").read_text()
    start = transcript.index("$ scontrol show config")
    wanted = dict(
        re.findall(
            r"^(\S+)\s+= (.*)$", transcript[start : transcript.index("--- exit", start)], re.M
        )
    )
    dynamic = {"BOOT_TIME", "HASH_VAL", "NEXT_JOB_ID", "SLURM_CONF", "SLURM_VERSION"}
    rows = config_rows(config, {name: wanted[name] for name in dynamic})
    shown = {name: value.replace("/PEER_DIR", "PEER_DIR") for name, value in rows}
    own = {
        *("ContainerLauncher", "FrontendPort", "Frontends", "MaxJobProcesses"),
        *("NvmlLibrary", "NvmlTopology", "RequeueFence"),
    }
    assert [name for name in shown if name not in own] == list(wanted)
    by_machine = {"SlurmUser", "PluginDir"}  # the uid of slurm; there are no plugins here
    differing = {
        name: (shown[name], wanted[name])
        for name in wanted
        if shown[name] != wanted[name] and name not in by_machine
    }
    assert differing == {}


# ---- single rules ----------------------------------------------------------------------------


def test_defaults_are_those_of_slurm() -> None:
    config = parse_config({"slurm.conf": "ClusterName=c\nSlurmctldHost=h\nNodeName=n"})
    assert (config.slurmctld_port, config.slurmd_port) == (6817, 6818)
    assert (config.slurmd_timeout, config.kill_wait, config.min_job_age) == (300, 30, 300)
    assert (config.max_job_count, config.max_array_size) == (10000, 1001)
    assert (config.first_job_id, config.max_job_id) == (1, 67043328)
    assert config.job_requeue is True
    node = config.nodes["n"]
    assert (node.cpus, node.real_memory, node.tmp_disk, node.weight) == (1, 1, 0, 1)
    assert (config.requeue_fence, config.def_mem()) == ("timeout", None)


def test_keys_are_case_insensitive_and_names_are_not() -> None:
    config = parse("KILLWAIT=7\nnodename=A cpus=2\nNodeName=a\npartitionname=P nodes=A,a")
    assert config.kill_wait == 7
    assert config.partitions["P"].nodes == ("A", "a")


def test_comments_continuations_and_quotes() -> None:
    config = parse(
        '# KillWait=1\nKillWait=9 # seconds\nNodeName=n1 \\\n  CPUs=4 \\\n  Reason="a # b" \r\n'
        'NodeName = n2  CPUs = "2"\nMailProg=/bin/a\\#b\n'
    )
    assert config.kill_wait == 9
    assert (config.nodes["n1"].cpus, config.nodes["n1"].reason) == (4, "a # b")
    assert config.nodes["n2"].cpus == 2
    assert config.mail_prog == "/bin/a#b"


def test_default_lines_count_for_those_after_them() -> None:
    config = parse(
        "NodeName=n1\nNodeName=DEFAULT CPUs=8 Feature=x\nNodeName=n2\nNodeName=DEFAULT Weight=5\n"
        "NodeName=n3 Feature=y\n"
        "PartitionName=a\nPartitionName=DEFAULT MaxTime=60 Nodes=n1\nPartitionName=b\n"
        "PartitionName=c MaxTime=1-0"
    )
    assert [config.nodes[n].cpus for n in ("n1", "n2", "n3")] == [1, 8, 8]
    assert config.nodes["n3"].features == ("y",)
    assert [config.nodes[n].weight for n in ("n1", "n2", "n3")] == [1, 1, 5]
    assert config.partitions["a"].nodes == ()
    assert [config.partitions[p].max_time for p in "abc"] == [0, 3600, 86400]


@pytest.mark.parametrize(
    ("settings_", "layout"),
    [
        ("CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1", (16, 2, 8, 1)),
        ("Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", (32, 2, 8, 2)),
        ("CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", (16, 2, 8, 2)),
        ("CPUs=4", (4, 4, 1, 1)),
        ("CPUs=16 CoresPerSocket=4 ThreadsPerCore=2", (16, 2, 4, 2)),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=4", (16, 4, 4, 1)),
        ("Procs=8 Sockets=2", (8, 2, 4, 1)),
    ],
)
def test_cpus_follow_the_layout(settings_: str, layout: tuple[int, int, int, int]) -> None:
    config = parse(f"NodeName=n {settings_}")
    node = config.nodes["n"]
    assert (node.cpus, node.sockets, node.cores_per_socket, node.threads_per_core) == layout
    assert config.warnings == ()


def test_cpus_that_fit_no_layout_are_reset() -> None:
    config = parse("NodeName=n CPUs=5 Sockets=2 CoresPerSocket=8")
    assert config.nodes["n"].cpus == 16
    assert config.warnings[0].startswith("slurm.conf:4: NodeName=n: CPUs=5 match no Sockets")


def test_addresses_and_ports_spread_over_a_list() -> None:
    config = parse("NodeName=n[1-3] NodeAddr=127.0.0.1 Port=[17001-17003] NodeHostName=h[4-6]")
    assert [(n.hostname, n.addr, n.port) for n in config.nodes.values()] == [
        ("h4", "127.0.0.1", 17001),
        ("h5", "127.0.0.1", 17002),
        ("h6", "127.0.0.1", 17003),
    ]


def test_includes_are_read_in_place() -> None:
    texts = {
        "slurm.conf": "ClusterName=c\nSlurmctldHost=h\nInclude more-%c.conf\nKillWait=3\n",
        "more-c.conf": "KillWait=1\nInclude /etc/slurm/last.conf\n",
        "last.conf": "NodeName=n\n",
    }
    config = parse_config(texts)
    assert config.kill_wait == 3
    assert list(config.nodes) == ["n"]
    assert config.warnings == (
        'slurm.conf:4: KillWait is given more than once; the latest value "3" is used',
    )


def test_errors_in_included_files_name_them() -> None:
    texts = {
        "slurm.conf": "ClusterName=c\nSlurmctldHost=h\nInclude more.conf\n",
        "more.conf": "\n\nKillWait=soon\n",
    }
    with pytest.raises(ConfigError) as caught:
        parse_config(texts)
    assert str(caught.value).startswith('more.conf:3: "soon" is not a valid value for KillWait')


def test_a_file_that_includes_itself_ends() -> None:
    texts = {"slurm.conf": "ClusterName=c\nSlurmctldHost=h\nInclude slurm.conf\n"}
    with pytest.raises(ConfigError, match="more than 10 deep"):
        parse_config(texts)


def test_gsched_keys() -> None:
    config = parse(
        "NvmlLibrary=/opt/fake/libnvidia-ml.so.1\nNvmlTopology=/opt/fake/%n.json\n"
        "RequeueFence=PROOF\nFrontends=3\nContainerLauncher=/usr/local/sbin/enter-image\nNodeName=n"
    )
    assert config.nvml_library == "/opt/fake/libnvidia-ml.so.1"
    assert config.nodes["n"].expand(config.nvml_topology) == "/opt/fake/n.json"
    assert (config.requeue_fence, config.frontends) == ("proof", 3)
    assert config.container_launcher == "/usr/local/sbin/enter-image"


def test_percent_marks_of_paths() -> None:
    node = parse("NodeName=n NodeHostname=h").nodes["n"]
    assert node.expand("/a/%n.%h/%%n%") == "/a/n.h/%n%"


def test_partition_memory_goes_before_the_cluster() -> None:
    config = parse(
        "DefMemPerNode=1000\nDefMemPerGPU=7\nNodeName=n\nPartitionName=a Nodes=n DefMemPerCPU=10\n"
        "PartitionName=b Nodes=n DefMemPerNode=0\nPartitionName=c Nodes=n DefMemPerGPU=9"
    )
    assert config.def_mem("a") == ("cpu", 10)
    assert config.def_mem("b") is None
    assert config.def_mem("c") == ("node", 1000)
    assert [config.def_mem_gpu(name) for name in "abc"] == [7, 7, 9]


def test_job_defaults() -> None:
    config = parse(
        "JobDefaults=DefCpuPerGPU=2,DefMemPerGPU=5\nNodeName=n\nPartitionName=a Nodes=n\n"
        "PartitionName=b Nodes=n JobDefaults=DefCpuPerGPU=4"
    )
    assert [config.def_cpu_gpu(name) for name in "ab"] == [2, 4]
    assert [config.def_mem_gpu(name) for name in "ab"] == [5, 5]


def test_the_last_default_partition_counts() -> None:
    config = parse("NodeName=n\nPartitionName=a Default=YES\nPartitionName=b Default=YES")
    assert config.default_partition == "b"
    assert not config.partitions["a"].default


@pytest.mark.parametrize(
    ("text", "wanted"),
    {
        "KillWayt=3": 'slurm.conf:4: "KillWayt" is not a key of slurm.conf',
        "KillWait=abc": 'slurm.conf:4: "abc" is not a valid value for KillWait',
        "\n\nSlurmctldPort=70000": 'slurm.conf:6: "70000" is not a valid value for SlurmctldPort',
        "NodeName=n[1-": 'slurm.conf:4: "n[1-" is not a valid value for NodeName',
        "NodeName=n CPUz=3": 'slurm.conf:4: "CPUz" is not a key of a NodeName line',
        "NodeName=n CPUs=-1": 'slurm.conf:4: "-1" is not a valid value for CPUs',
        "NodeName=n RealMemory=lots": 'slurm.conf:4: "lots" is not a valid value for RealMemory',
        "NodeName=n State=ASLEEP": 'slurm.conf:4: "ASLEEP" is not a valid value for State',
        "NodeName=n Gres=gpu:": 'slurm.conf:4: "gpu:" is not a valid value for Gres',
        "NodeName=n Gres=fpga:1": 'slurm.conf:4: "fpga:1" is not a valid value for Gres: "fpga"',
        "NodeName=n Gres=gpu:65": 'slurm.conf:4: "gpu:65" is not a valid value for Gres: a node',
        "NodeName=n\nNodeName=n": 'slurm.conf:5: Duplicate NodeName "n"',
        "NodeName=n[1-2] NodeAddr=a[1-3]": 'slurm.conf:4: "a[1-3]" is not a valid value for NodeA',
        "NodeName=../x": 'slurm.conf:4: "../x" cannot be the name of a node',
        "KillWait=3\x00": "slurm.conf:4: control character '\\x00' in the line",
        "NodeName=n Port=0": 'slurm.conf:4: "0" is not a valid value for Port',
        "PartitionName=p Nodes=x": 'slurm.conf:4: "x" is not a valid value for Nodes: node "x" is',
        "PartitionName=p State=HALF": 'slurm.conf:4: "HALF" is not a valid value for State',
        "PartitionName=p MaxTime=1x": 'slurm.conf:4: "1x" is not a valid value for MaxTime',
        "PartitionName=p Colour=red": 'slurm.conf:4: "Colour" is not a key of a PartitionName line',
        "PartitionName=p\nPartitionName=p": 'slurm.conf:5: Duplicate PartitionName "p"',
        "DownNodes=n State=DOWN": 'slurm.conf:4: "n" is not a valid value for DownNodes: node "n"',
        "Include gone.conf": 'slurm.conf:4: cannot read included file "gone.conf": No such file',
        "what is this": 'slurm.conf:4: cannot understand "what is this": Key=value is expected',
        'Reason="open': 'slurm.conf:4: cannot understand "Reason="open"',
        "StateSaveLocation=state": 'slurm.conf:4: "state" is not a valid value for StateSaveLoc',
        "DefMemPerCPU=1\nDefMemPerNode=2": "slurm.conf:5: DefMemPerCPU and DefMemPerNode exclude",
        "ContainerLauncher=enter": 'slurm.conf:4: "enter" is not a valid value for ContainerLau',
        "RequeueFence=hope": 'slurm.conf:4: "hope" is not a valid value for RequeueFence',
        "KillWait-=3": 'slurm.conf:4: "KillWait-=3": -= is not supported',
    }.items(),
)
def test_errors_name_file_line_and_value(text: str, wanted: str) -> None:
    assert sentence(text).startswith(wanted)


def test_what_must_be_there() -> None:
    for text, wanted in {
        "SlurmctldHost=h": "slurm.conf: ClusterName is not set",
        "ClusterName=c": "slurm.conf: SlurmctldHost is not set",
    }.items():
        with pytest.raises(ConfigError) as caught:
            parse_config({"slurm.conf": text})
        assert str(caught.value) == wanted
    with pytest.raises(ConfigError, match="it is missing"):
        parse_config({})


@pytest.mark.parametrize(
    ("text", "wanted"),
    {
        "Name=gpu File=nvidia0": 'gres.conf:1: "nvidia0" is not a valid value for File',
        "Name=nic": 'gres.conf:1: "nic" is not a valid value for Name: it is not in GresTypes',
        "File=/dev/nvidia0": 'gres.conf:1: "File=/dev/nvidia0": the line has neither Name nor',
        "Name=gpu File=/dev/a MultipleFiles=/dev/b": "gres.conf:1: File and MultipleFiles exclude",
        "\nName=gpu File=/dev/nvidia[0-1] Count=3": 'gres.conf:2: "3" is not a valid value for Co',
        "Name=gpu Colour=red": 'gres.conf:1: "Colour" is not a key of gres.conf',
        "AutoDetect=magic": 'gres.conf:1: "magic" is not a valid value for AutoDetect',
        "Name=gpu File=/dev/a Links=x": 'gres.conf:1: "x" is not a valid value for Links',
        "NodeName=n Name=gpu File=/dev/nvidia0": "gres.conf:1: gres.conf lists 1 devices of gpu on",
    }.items(),
)
def test_gres_errors(text: str, wanted: str) -> None:
    assert sentence("NodeName=n Gres=gpu:2", gres=text).startswith(wanted)


def test_other_files_errors() -> None:
    assert sentence("", cgroup="ConstrainCores=maybe").startswith(
        'cgroup.conf:1: "maybe" is not a valid value for ConstrainCores'
    )
    assert sentence("", cgroup="Constrain=1").startswith('cgroup.conf:1: "Constrain" is not a key')


def test_autodetect_of_a_node_goes_before_the_global_one() -> None:
    config = parse(
        "NodeName=n[1-2] Gres=gpu:1",
        gres="AutoDetect=nvml\nNodeName=n2 AutoDetect=off Name=gpu File=/dev/nvidia0",
    )
    assert [config.autodetect(name) for name in ("n1", "n2")] == ["nvml", "off"]
    assert config.gres_lines("n1") == []


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "slurm.conf"
    with pytest.raises(ConfigError, match=f"{missing}: cannot read it: No such file"):
        load_config(str(missing))
    missing.write_bytes(b"ClusterName=c\nSlurmctldHost=h\n# \xff\xfe not text\n")
    assert load_config(str(missing)).cluster_name == "c"
    (tmp_path / "gres.conf").mkdir()
    with pytest.raises(ConfigError, match=r"gres\.conf: cannot read it"):
        load_config(str(missing))


# ---- any text --------------------------------------------------------------------------------

words = st.sampled_from(
    "ClusterName SlurmctldHost NodeName PartitionName Nodes CPUs Gres Port Include NodeSet Feature "
    "DownNodes State MaxTime Default DefMemPerCPU KillWait Licenses Name File AutoDetect Links "
    "SwitchName Switches JobDefaults NodeAddr OverSubscribe PreemptMode PriorityMaxAge".split()
)
any_values = st.one_of(
    st.sampled_from(
        "n[1-3] ALL YES gpu:h100:8 gpu 1-0 INFINITE 12G -1 DEFAULT DefMemPerGPU=3 x:y:z FORCE:2 "
        "/dev/nvidia[0-1] nvml slurm.conf 99999999999999999999 [17001-17003] (null) a(b)".split()
    ),
    st.text(max_size=8),
)
pairs = st.builds(
    lambda key, eq, value: key + eq + value, words, st.sampled_from("= +="), any_values
)
lines = st.lists(pairs, min_size=1, max_size=4).map(" ".join)
grammar = st.lists(lines, max_size=6).map("\n".join)


def check(texts: dict[str, str]) -> None:
    try:
        config = parse_config(texts)
    except ConfigError as error:
        assert str(error)
    else:
        config_rows(config, {})
        for name in config.nodes:
            config.gres_lines(name)
            config.autodetect(name)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=200), grammar), st.one_of(st.text(max_size=80), grammar))
def test_any_text_gives_a_config_or_one_error(text: str, other: str) -> None:
    check({"slurm.conf": text})
    check({"slurm.conf": HEAD + text})
    check({"slurm.conf": HEAD + "NodeName=n[1-3] Gres=gpu:h100:1", "gres.conf": other})
    check({"slurm.conf": HEAD + "NodeName=n[1-3]", "cgroup.conf": text})
    for plugin in ("tree", "block"):
        conf = HEAD + f"TopologyPlugin=topology/{plugin}\nNodeName=n[1-3]"
        check({"slurm.conf": conf, "topology.conf": other})
