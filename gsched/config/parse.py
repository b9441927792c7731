"""The whole configuration, from texts or from files."""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from gsched.config import files, gres, keys, topology
from gsched.config.errors import ConfigError
from gsched.config.lexer import Lexer, Line, Pair, ReadFile
from gsched.config.locate import find_slurm_conf
from gsched.config.nodes import NodeTable
from gsched.config.partitions import PartitionTable, job_defaults
from gsched.config.types import Cgroup, Config, GresLine, Host
from gsched.gpushare import KINDS
from gsched.gres import MOST_COUNTED, counted_kinds

#: larger files are refused: a configuration is not that long, something else was named
MAX_FILE = 64 << 20


#: the files beside slurm.conf
BESIDE = ("gres.conf", "cgroup.conf", "topology.conf")


def load_config(
    path: str | None = None, extra: str = "", needs: Collection[str] = BESIDE
) -> Config:
    """Reads slurm.conf and, beside it, gres.conf, cgroup.conf and topology.conf.

    `path` None: the one that `find_slurm_conf` gives for this process. `extra`: lines that are
    read as if they stood at the end of slurm.conf. Raises ConfigError, also where slurm.conf
    cannot be read; the other files may be absent. `needs`: those of the other files whose mistakes
    are the caller's; a mistake in one that it can do without is told in `Config.broken`.
    """
    main = os.path.abspath(path if path is not None else find_slurm_conf(os.environ))
    folder = os.path.dirname(main)

    def read(name: str, _by: str) -> tuple[str, str]:
        found = os.path.join(folder, name)
        with open(found, "rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise OSError(None, f"it is larger than {MAX_FILE} bytes")
        return found, data.decode("utf-8", "backslashreplace")

    try:
        name, text = read(main, "")
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(main, 0, f"cannot read it: {why}") from None
    except ValueError:
        raise ConfigError(repr(main), 0, "this is not a file name") from None
    others: dict[str, tuple[str, str]] = {}
    broken = _Broken(needs)
    for other in BESIDE:
        with broken.of(other):
            try:
                others[other] = read(other, "")
            except FileNotFoundError:
                continue
            except OSError as error:
                why = error.strerror or str(error)
                place = os.path.join(folder, other)
                raise ConfigError(place, 0, f"cannot read it: {why}") from None
    if extra:
        text = f"{text}\n{extra}\n"
    return _assemble((name, text), others, read, main, broken)


def parse_config(texts: Mapping[str, str]) -> Config:
    """The same from texts by file name ("slurm.conf", "gres.conf", ... and included files)."""

    def read(name: str, _by: str) -> tuple[str, str]:
        for known in (name, os.path.basename(name)):
            if known in texts:
                return known, texts[known]
        raise FileNotFoundError(2, "No such file")

    if "slurm.conf" not in texts:
        raise ConfigError("slurm.conf", 0, "it is missing")
    others = {name: (name, texts[name]) for name in BESIDE if name in texts}
    return _assemble(("slurm.conf", texts["slurm.conf"]), others, read, "", _Broken(BESIDE))


class _Broken:
    """The mistakes in files that the reader can do without."""

    def __init__(self, needs: Collection[str]) -> None:
        self.found: dict[str, str] = {}
        self._needs = needs

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """A mistake in file `name` goes no further, unless the file is needed."""
        try:
            yield
        except ConfigError as problem:
            if name in self._needs:
                raise
            self.found.setdefault(name, str(problem))


class _Globals:
    """The global keys of slurm.conf as they are met."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.raw: dict[str, str] = {}
        self.ignored: dict[str, str] = {}
        self.warnings: list[str] = []
        self.hosts: list[Host] = []
        self.machine: Pair | None = None
        self.machine_addr: Pair | None = None
        self._seen: dict[str, Pair] = {}

    def add(self, pair: Pair) -> None:
        name = pair.name
        if name.startswith("slurmctldhost["):
            # As `scontrol show config` prints it.
            name = "slurmctldhost"
        if name in keys.SCRIPTS:
            self._script(pair)
        elif name in keys.SPECIAL:
            self._special(name, pair)
        elif name in keys.FIELDS:
            pair = self._once(pair)
            field, parse = keys.FIELDS[name]
            self.fields[field] = parse(pair)
        elif name in keys.AS_WRITTEN:
            pair = self._once(pair)
        elif name in keys.WITHOUT_EFFECT:
            pair = self._once(pair)
            self.ignored[keys.WITHOUT_EFFECT[name]] = f"{pair.file}:{pair.line}"
        else:
            raise pair.error(f'"{pair.key}" is not a key of slurm.conf')
        self.raw[name] = pair.value
        self._seen[name] = pair

    def _once(self, pair: Pair) -> Pair:
        before = self._seen.get(pair.name)
        if before is None:
            return pair
        if pair.append and before.value:
            return Pair(pair.key, f"{before.value},{pair.value}", pair.file, pair.line)
        self.warnings.append(
            f"{pair.file}:{pair.line}: {pair.key} is given more than once; the latest value "
            f'"{pair.value}" is used'
        )
        return pair

    def _script(self, pair: Pair) -> None:
        if pair.value and not pair.value.startswith("/"):
            raise pair.bad("an absolute path is expected")
        field = keys.SCRIPTS[pair.name]
        if pair.value and pair.value != "(null)":
            self.fields[field] = (*self.fields.get(field, ()), pair.value)

    def _special(self, name: str, pair: Pair) -> None:
        if name == "slurmctldhost":
            self.hosts.append(keys.host(pair))
        elif name == "controlmachine":
            self.machine = pair
        elif name == "controladdr":
            self.machine_addr = pair
        elif name == "jobdefaults":
            self.fields.update(job_defaults(pair))

    def finish(self, file: str) -> None:
        if not self.hosts and self.machine is not None:
            host = keys.host(self.machine)
            if self.machine_addr is not None:
                host = Host(name=host.name, addr=keys.host(self.machine_addr).addr)
            self.hosts.append(host)
        if "cluster_name" not in self.fields:
            raise ConfigError(file, 0, "ClusterName is not set")
        if not self.hosts:
            raise ConfigError(file, 0, "SlurmctldHost is not set")
        for one, other in (
            ("defmempercpu", "defmempernode"),
            ("maxmempercpu", "maxmempernode"),
        ):
            if one in self._seen and other in self._seen:
                pair = self._seen[other]
                raise pair.error(f"{self._seen[one].key} and {pair.key} exclude each other")
        self.fields["slurmctld_host"] = tuple(self.hosts)


def _assemble(
    main: tuple[str, str],
    others: Mapping[str, tuple[str, str]],
    read: ReadFile,
    path: str,
    broken: _Broken,
) -> Config:
    known = _Globals()
    nodes = NodeTable(lambda: known.fields.get("gres_types", ()))
    partitions = PartitionTable()
    lexer = Lexer(read, lambda: str(known.fields.get("cluster_name", "")))
    checksum = 0
    for line in lexer.lines(main[0], main[1]):
        checksum = zlib.crc32(line.plain.encode(errors="replace"), checksum)
        _slurm_conf_line(line, known, nodes, partitions)
    known.finish(main[0])
    nodes.finish()
    partitions.finish(nodes)

    ignored = {**known.ignored, **nodes.ignored, **partitions.ignored}
    gres_types = known.fields.get("gres_types", ())

    def lines(name: str) -> list[Line]:
        if name not in others:
            return []
        file, text = others[name]
        return list(lexer.lines(file, text))

    gres_lines: tuple[GresLine, ...] = ()
    cgroup, network = Cgroup(), topology.TopologyFile()
    with broken.of("gres.conf"):
        gres_lines, more = gres.parse_lines(lines("gres.conf"), nodes.nodes, gres_types)
        ignored.update(more)
    with broken.of("cgroup.conf"):
        cgroup, more = files.parse_cgroup(lines("cgroup.conf"))
        ignored.update(more)
    with broken.of("topology.conf"):
        plugin = known.fields.get("topology_plugin", "")
        network = topology.parse_topology(lines("topology.conf"), nodes.nodes, plugin)
    config = Config(
        path=path,
        broken=broken.found,
        checksum=f"{checksum:08x}",
        nodes=nodes.nodes,
        partitions=partitions.partitions,
        gres=gres_lines,
        cgroup=cgroup,
        switches=network.switches,
        block_sizes=network.block_sizes,
        ignored=ignored,
        warnings=(
            *known.warnings,
            *nodes.warnings,
            *partitions.warnings,
            *network.warnings,
        ),
        raw=known.raw,
        **known.fields,
    )
    with broken.of("gres.conf"):
        _check_gres(config)
    doubtful = _doubtful(config)
    if doubtful:
        config = msgspec.structs.replace(config, warnings=config.warnings + doubtful)
    return config


def _check_gres(config: Config) -> None:
    """gres.conf may not describe fewer devices than slurm.conf promises.

    Judged only for nodes whose devices are all listed: AutoDetect finds out on the node.
    """
    listed: dict[tuple[str, str], int] = {}
    place = {}
    for line in config.gres:
        for node in line.nodes if line.nodes is not None else config.nodes:
            if line.files or line.multiple_files:
                key = (node, line.name)
                listed[key] = listed.get(key, 0) + line.count
                place[key] = line
    for (node, name), count in listed.items():
        wanted = sum(item.count for item in config.nodes[node].gres if item.name == name)
        judged = name in KINDS or (name == "gpu" and config.autodetect(node) == "off")
        if wanted > count and judged:
            at = place[node, name]
            raise ConfigError(
                at.file,
                at.line,
                f"gres.conf lists {count} devices of {name} on node {node}, "
                f"slurm.conf promises {wanted}",
            )


def _doubtful(config: Config) -> tuple[str, ...]:
    """Sentences on nodes whose GPUs are said to be in parts of two kinds at once, and on resources
    beyond those that can be counted."""
    found: list[str] = []
    kinds_known = counted_kinds(config)
    for name in sorted({item.name for node in config.nodes.values() for item in node.gres}):
        if name != "gpu" and name not in KINDS and (name, "") not in kinds_known:
            found.append(
                f"no job gets {name}: more than {MOST_COUNTED} kinds and types of resources are "
                "not counted"
            )
    for name, node in config.nodes.items():
        kinds = {item.name for item in node.gres if item.name in KINDS and item.count}
        listed = any(line.files for kind in kinds for line in config.gres_lines(name, kind))
        if len(kinds) > 1 and not listed:
            found.append(
                f"node {name} has {' and '.join(sorted(kinds))}, and no File= in gres.conf says of "
                "which GPUs: all are in shards"
            )
    return tuple(found)


def _slurm_conf_line(
    line: Line, known: _Globals, nodes: NodeTable, partitions: PartitionTable
) -> None:
    first = line.first
    if first.name == "nodename":
        nodes.add(line)
    elif first.name == "downnodes":
        nodes.add_down(line)
    elif first.name == "nodeset":
        nodes.add_set(line)
    elif first.name == "partitionname":
        partitions.add(line)
    elif first.name in {"frontendname", "switchname"}:
        known.ignored[first.key] = f"{first.file}:{first.line}"
    else:
        for pair in line.pairs:
            known.add(pair)
