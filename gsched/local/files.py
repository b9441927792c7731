"""Writing a cluster's files once, and reading back what they say."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gsched.config import Config, ConfigError, load_config
from gsched.config.parse import BESIDE
from gsched.local import conf, imported, machine, shapes
from gsched.local.conf import MADE_BY, Layout, NodeLine
from gsched.wire.keys import KeyProblem
from gsched.wire.keys import make_keys as make_key_files

#: nodes of a new cluster, unless there are fewer GPUs to divide
NODES = 4
SIMULATE_DEFAULT = "dgx-h100"
#: how slurm.conf remembers what is not enforced
REMARK = "# Not enforced: "


class FilesError(Exception):
    """A cluster that cannot be made as asked; the text is one sentence."""


@dataclass(frozen=True)
class Options:
    """What `gsched up` was told about a new cluster."""

    nodes: int | None = None
    simulate: str | None = None
    source: Path | None = None
    extra: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        return self != Options()

    def text(self) -> str:
        words = []
        if self.nodes is not None:
            words += ["--nodes", str(self.nodes)]
        if self.simulate is not None:
            words += ["--simulate", self.simulate]
        if self.source is not None:
            words += ["--conf", str(self.source.absolute())]
        for line in self.extra:
            words += ["--set", line]
        return conf.quote(words)


def make_run(layout: Layout) -> Path:
    """The run directory, which holds the lock that everything else is done under."""
    if not layout.dir.exists():
        layout.dir.mkdir(parents=True, mode=0o755)
        layout.dir.chmod(0o755)
    layout.run.mkdir(exist_ok=True)
    layout.run.chmod(0o755)
    return layout.run


def prepare(layout: Layout, wanted: Options) -> list[str]:
    """Makes the files of a cluster, or checks that the existing one is what is asked for.

    Returns what is not enforced, one sentence each. FilesError if the options cannot be met.
    """
    if layout.slurm_conf.exists():
        lines = layout.slurm_conf.read_text().splitlines()
        first = lines[0] if lines else ""
        made = first.removeprefix(MADE_BY).strip() if first.startswith(MADE_BY) else ""
        if wanted.given and wanted.text() != made:
            raise FilesError(
                f"the cluster in {layout.dir} was made with '{made or 'no options'}': change its "
                f"slurm.conf, remove it (gsched down --purge), or make another one (--dir)"
            )
        return [line.removeprefix(REMARK) for line in lines if line.startswith(REMARK)]
    for path, mode in (
        (layout.etc, 0o755),
        (layout.state, 0o700),
        (layout.spool, 0o755),
        (layout.log, 0o755),
    ):
        path.mkdir(exist_ok=True)
        path.chmod(mode)
    extra = checked(wanted.extra)
    written = _new(layout, wanted)
    names = written.names
    make_keys(layout.slurm_conf, names)
    _write(layout.etc / "gres.conf", written.gres)
    _write(layout.etc / "cgroup.conf", written.cgroup)
    if written.network:
        _write(layout.etc / "topology.conf", written.network)
    head, *rest = overridden(written.slurm.splitlines(), extra)
    remarks = [*written.remarks, *user_remarks()]
    # slurm.conf comes last: where it exists, the rest does too.
    _write(
        layout.slurm_conf,
        "\n".join([head, *(REMARK + remark for remark in remarks), *rest, ""]),
    )
    return remarks


@dataclass(frozen=True)
class Written:
    """The texts of a new cluster's files."""

    names: list[str]
    slurm: str
    gres: str
    cgroup: str
    remarks: list[str]
    #: topology.conf; "" none
    network: str = ""


def _new(layout: Layout, wanted: Options) -> Written:
    if wanted.source is not None:
        if wanted.nodes is not None or wanted.simulate is not None:
            raise FilesError("--conf brings its own nodes: give it without --nodes and --simulate")
        return _from_conf(layout, wanted)
    gpus = machine.devices() if wanted.simulate is None else []
    if gpus:
        count = wanted.nodes or min(NODES, len(gpus))
        plan = machine.real(gpus, count)
    else:
        plan = conf.simulated(
            shapes.find(wanted.simulate or SIMULATE_DEFAULT), wanted.nodes or NODES
        )
        plan.remarks.insert(0, "the GPUs are simulated: jobs see their numbers, not devices")
    for node in plan.nodes:
        if node.topology is not None:
            node_topology(layout, node.name, node.topology)
    if not gpus:
        plan.settings += nvml_lines(layout)
    gres = "".join(gres_line(node) for node in plan.nodes)
    text = conf.slurm_conf(plan, layout, wanted.text())
    names = [node.name for node in plan.nodes]
    return Written(names, text, gres, "".join(f"{line}\n" for line in plan.cgroup), plan.remarks)


def checked(lines: Sequence[str]) -> list[str]:
    """The values of --set; FilesError for one that is not KEY=VALUE."""
    for line in lines:
        key, equals, _ = line.partition("=")
        if not equals or not key.isalnum() or "\n" in line:
            raise FilesError(f"--set {line!r} is not KEY=VALUE")
    return list(lines)


def overridden(lines: Sequence[str], extra: Sequence[str]) -> list[str]:
    """slurm.conf with the lines of `extra` behind its first, and without others of their keys."""
    keys = {line.partition("=")[0].lower() for line in extra}
    kept = [line for line in lines if line.partition("=")[0].strip().lower() not in keys]
    return [*kept[:1], *extra, *kept[1:]]


def _from_conf(layout: Layout, wanted: Options) -> Written:
    assert wanted.source is not None
    try:
        taken = imported.take(wanted.source)
    except imported.ImportProblem as problem:
        raise FilesError(str(problem)) from None
    me = conf.user_name(os.getuid())
    lines = [
        f"{MADE_BY} {wanted.text()}",
        f"SlurmctldHost={conf.short_host()}(127.0.0.1)",
        f"SlurmUser={me}",
        f"SlurmdUser={me}",
        f"SlurmctldPort={conf.free_ports(1)[0]}",
        *conf.directories(layout),
        *nvml_lines(layout),
        *taken.lines,
    ]
    gres = ""
    for name, (kind, count) in taken.gpus.items():
        node_topology(layout, name, imported.topology_for(kind), count)
        gres += gres_line(NodeLine(name, 1, 1, 1, 1, 1, kind, count))
    gres += taken.resources
    cgroup, remarks = conf.cgroup_lines(taken.cpus, taken.mem_mb)
    remarks = ["the GPUs are simulated: jobs see their numbers, not devices", *remarks]
    return Written(
        taken.node_names,
        "\n".join(lines) + "\n",
        gres,
        "".join(f"{line}\n" for line in cgroup),
        [*remarks, *taken.remarks],
        taken.network,
    )


def node_topology(layout: Layout, node: str, source: Path, count: int | None = None) -> None:
    """A node's own topology file: the source's, with UUIDs that no other node has.

    `count` GPUs are kept, or made by repeating the source's; FilesError for a bad source.
    """
    try:
        described = json.loads(source.read_text())
        gpus = described["gpus"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FilesError(f"{source}: not a topology file: {error}") from None
    if count is not None:
        if count > len(gpus):
            raise FilesError(f"node {node}: {count} GPUs, but {source.stem} describes {len(gpus)}")
        described["gpus"] = gpus = gpus[:count]
        pairs = described.get("nvlink", {}).get("pairs")
        if pairs:
            described["nvlink"]["pairs"] = [p for p in pairs if p[0] < count and p[1] < count]
    for index, gpu in enumerate(gpus):
        gpu["uuid"] = "GPU-" + str(uuid.uuid5(uuid.NAMESPACE_URL, f"{layout.dir}/{node}/{index}"))
    folder = layout.etc / "nvml"
    folder.mkdir(exist_ok=True)
    path = folder / f"{node}.json"
    _write(path, json.dumps(described, indent=1) + "\n")


def gres_line(node: NodeLine) -> str:
    """A node's line of gres.conf; "" for a node without GPUs."""
    if not node.gpus:
        return ""
    flags = f" Flags={node.gres_flags}" if node.gres_flags else ""
    if not node.minors:
        return f"NodeName={node.name} AutoDetect=nvml{flags}\n"
    files = "[" + ",".join(str(minor) for minor in node.minors) + "]"
    kind = f" Type={node.gpu_type}" if node.gpu_type else ""
    return f"NodeName={node.name} AutoDetect=nvml Name=gpu{kind} File=/dev/nvidia{files}{flags}\n"


def nvml_lines(layout: Layout) -> list[str]:
    """The lines of slurm.conf that make the node daemons see simulated GPUs."""
    return [
        f"NvmlLibrary={shapes.fake_nvml_dir() / 'libnvidia-ml.so.1'}",
        f"NvmlTopology={layout.etc}/nvml/%n.json",
    ]


def user_remarks() -> list[str]:
    """What an ordinary user's cluster cannot do."""
    if os.geteuid() == 0:
        return []
    me = conf.user_name(os.getuid())
    return [
        f"all jobs run as {me}: only root's daemons can start jobs as other users",
        "CPU, memory and device limits hold only where the system lets this user make cgroups "
        "(the node daemon's log says what it could do)",
    ]


def make_keys(slurm_conf: Path, names: Iterable[str] = ()) -> int:
    """Makes the missing keys beside slurm.conf; [] means all nodes that it names."""
    wanted = list(names) or node_names(slurm_conf)
    try:
        return len(make_key_files(str(slurm_conf.parent / "keys"), wanted))
    except KeyProblem as problem:
        raise FilesError(str(problem)) from None


def read(slurm_conf: Path, needs: Collection[str] = ()) -> Config:
    """The typed configuration; FilesError with file and line if slurm.conf, or one of the other
    files that are needed, cannot be understood."""
    try:
        return load_config(str(slurm_conf), needs=needs)
    except ConfigError as problem:
        raise FilesError(str(problem)) from None


def check(slurm_conf: Path) -> None:
    """FilesError with file and line if the daemons could not understand one of the files."""
    read(slurm_conf, BESIDE)


def node_names(slurm_conf: Path) -> list[str]:
    return list(read(slurm_conf).nodes)


def accounts(slurm_conf: Path) -> bool:
    """Whether the cluster keeps accounts (and so has a slurmdbd)."""
    return read(slurm_conf).accounting_storage_type not in ("", "accounting_storage/none")


def kill_wait(layout: Layout) -> float:
    """Seconds between SIGTERM and SIGKILL; Slurm's default where slurm.conf cannot be read."""
    try:
        return float(read(layout.slurm_conf).kill_wait)
    except FilesError:
        return 30.0


def summary(layout: Layout) -> str:
    """`4 nodes, 32 GPUs (h100), partitions gpu* debug`."""
    config = read(layout.slurm_conf)
    types = sorted({kind for node in config.nodes.values() for kind in node.gpu_types if kind})
    gpus = sum(node.gpus for node in config.nodes.values())
    names = [f"{name}*" if part.default else name for name, part in config.partitions.items()]
    kinds = f" ({', '.join(types)})" if types else ""
    return (
        f"{_many(len(config.nodes), 'node')}, {_many(gpus, 'GPU')}{kinds}, "
        f"{'partition' if len(names) == 1 else 'partitions'} {' '.join(names)}"
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, errors="surrogateescape")
    temporary.replace(path)
