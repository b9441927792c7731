"""NodeName, DownNodes and NodeSet lines of slurm.conf."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gsched.config import gres, values
from gsched.config.lexer import Line, Pair
from gsched.config.types import NodeConfig

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\Z", re.ASCII)

#: accepted State= words -> what they mean here
_STATES = {
    **dict.fromkeys(("UNKNOWN", "IDLE", "RESUME", "UNDRAIN", "ALLOCATED"), "UNKNOWN"),
    **dict.fromkeys(("DOWN", "ERROR"), "DOWN"),
    **dict.fromkeys(("DRAIN", "DRAINED", "DRAINING"), "DRAIN"),
    **dict.fromkeys(("FAIL", "FAILING"), "FAIL"),
    **{"FUTURE": "FUTURE", "CLOUD": "CLOUD"},
}


def node_state(pair: Pair) -> str:
    """The State= of a NodeName or DownNodes line."""
    state = _STATES.get(pair.value.upper())
    if state is None:
        raise pair.bad(f"one of {', '.join(dict.fromkeys(_STATES.values()))} is expected")
    return state


def _small(pair: Pair) -> int:
    return values.number(pair, 1, 65534)


def _weight(pair: Pair) -> int:
    return values.number(pair, 1, (1 << 32) - 2)


#: simple keys: lower case -> (field, parser)
_SIMPLE: dict[str, tuple[str, Callable[[Pair], Any]]] = {
    "corespeccount": ("core_spec_count", values.number),
    "cpuspeclist": ("cpu_spec_list", lambda pair: pair.value),
    "memspeclimit": ("mem_spec_limit", values.memory),
    "realmemory": ("real_memory", values.memory),
    "restrictedcorespergpu": ("restricted_cores_per_gpu", values.number),
    "reason": ("reason", lambda pair: pair.value),
    "state": ("state", node_state),
    "tmpdisk": ("tmp_disk", values.memory),
    "weight": ("weight", _weight),
}

_LAYOUT = {
    "boards": "boards",
    "corespersocket": "cores",
    "cpus": "cpus",
    "procs": "cpus",
    "sockets": "sockets",
    "socketsperboard": "sockets_per_board",
    "threadspercore": "threads",
}

_WITHOUT_EFFECT = {
    *("bcastaddr", "cpubind", "topology", "parameters"),
    *("instanceid", "instancetype", "certtoken"),
}

_PLACES = {"nodename", "nodeaddr", "nodehostname", "port"}


class NodeTable:
    """Collects the lines; `finish` gives the nodes."""

    def __init__(self, gres_types: Callable[[], tuple[str, ...]]) -> None:
        self._gres_types = gres_types
        self._defaults: dict[str, Pair] = {}
        self._lines: list[tuple[Line, dict[str, Pair]]] = []
        self._down: list[Line] = []
        self._sets: list[Line] = []
        self.nodes: dict[str, NodeConfig] = {}
        #: name of a NodeSet -> its nodes
        self.sets: dict[str, list[str]] = {}
        self.ignored: dict[str, str] = {}
        self.warnings: list[str] = []

    def add(self, line: Line) -> None:
        """A NodeName line; DEFAULT lines count for those after them."""
        settings = dict(self._defaults)
        for pair in line.pairs[1:]:
            known = pair.name in _SIMPLE or pair.name in _LAYOUT or pair.name in _PLACES
            if pair.name in _WITHOUT_EFFECT:
                self.ignored[pair.key] = f"{pair.file}:{pair.line}"
            elif known or pair.name in {"gres", "feature", "features"}:
                settings[pair.name.removesuffix("s") if "feature" in pair.name else pair.name] = (
                    pair
                )
            else:
                raise pair.error(f'"{pair.key}" is not a key of a NodeName line')
        if line.first.value.upper() == "DEFAULT":
            self._defaults = settings
        else:
            self._lines.append((line, settings))

    def add_down(self, line: Line) -> None:
        """A DownNodes line."""
        self._down.append(line)

    def add_set(self, line: Line) -> None:
        """A NodeSet line."""
        self._sets.append(line)

    def finish(self) -> None:
        """Resolves everything; raises ConfigError at the line that is wrong."""
        for line, settings in self._lines:
            self._make(line.first, settings)
        for line in self._down:
            self._mark_down(line)
        for line in self._sets:
            self._make_set(line)

    def _make(self, first: Pair, settings: dict[str, Pair]) -> None:
        names = values.hosts(first)
        if not names:
            raise first.bad("a node name is expected")
        common: dict[str, Any] = {}
        for key, (field, parse) in _SIMPLE.items():
            if key in settings:
                common[field] = parse(settings[key])
        common.update(self._layout(first, settings))
        if "gres" in settings:
            common["gres"] = gres.node_gres(settings["gres"], self._gres_types())
        if "feature" in settings:
            common["features"] = values.words(settings["feature"])
        hostnames = self._spread(settings.get("nodehostname"), names) or names
        addrs = self._spread(settings.get("nodeaddr"), names) or hostnames
        ports = self._ports(settings.get("port"), names)
        for name, hostname, addr, port in zip(names, hostnames, addrs, ports, strict=True):
            if name in self.nodes:
                raise first.error(f'Duplicate NodeName "{name}"')
            # Names become parts of paths, and end up in shell words.
            if name.upper() in {"ALL", "DEFAULT"} or not _NAME.match(name):
                raise first.error(f'"{name}" cannot be the name of a node')
            self.nodes[name] = NodeConfig(
                name=name, hostname=hostname, addr=addr, port=port, **common
            )

    @staticmethod
    def _spread(pair: Pair | None, names: list[str]) -> list[str]:
        """One value for each node: a list of as many, or one for all."""
        if pair is None:
            return []
        found = values.hosts(pair)
        if len(found) == 1:
            return found * len(names)
        if len(found) != len(names):
            raise pair.bad(f"it names {len(found)} hosts for {len(names)} nodes")
        return found

    def _ports(self, pair: Pair | None, names: list[str]) -> list[int]:
        if pair is None:
            return [0] * len(names)
        found = self._spread(pair, names)
        for text in found:
            if not text.isascii() or not text.isdigit() or not 0 < int(text[:6]) < 65536:
                raise pair.bad(f'"{text}" is not a port number')
        if not found:
            raise pair.bad("a port number is expected")
        return [int(text) for text in found]

    def _layout(self, first: Pair, settings: dict[str, Pair]) -> dict[str, int]:
        """CPUs, sockets, cores and threads, filled in and made consistent as Slurm does."""
        given = {field: _small(settings[key]) for key, field in _LAYOUT.items() if key in settings}
        boards = given.get("boards", 1)
        cores = given.get("cores")
        threads = given.get("threads", 1)
        cpus = given.get("cpus")
        sockets = given.get("sockets")
        if "sockets_per_board" in given:
            sockets = boards * given["sockets_per_board"]
        if sockets is None:
            # What is left of the CPUs: one core to a socket if nothing is said.
            sockets = max(1, (cpus or 1) // ((cores or 1) * threads))
        elif cores is None and cpus is not None:
            cores = max(1, cpus // (sockets * threads))
        cores = cores or 1
        total = sockets * cores * threads
        # Configured CPUs may count threads, cores or sockets.
        if cpus is None or cpus not in {total, sockets * cores, sockets}:
            if cpus is not None:
                self.warnings.append(
                    f"{first.file}:{first.line}: NodeName={first.value}: CPUs={cpus} match no "
                    f"Sockets, Sockets*CoresPerSocket or Sockets*CoresPerSocket*ThreadsPerCore; "
                    f"CPUs={total} is used"
                )
            cpus = total
        return {
            "cpus": cpus,
            "boards": boards,
            "sockets": sockets,
            "cores_per_socket": cores,
            "threads_per_core": threads,
        }

    def _mark_down(self, line: Line) -> None:
        state, reason = "DOWN", ""
        for pair in line.pairs[1:]:
            if pair.name == "state":
                state = node_state(pair)
            elif pair.name == "reason":
                reason = pair.value
            else:
                raise pair.error(f'"{pair.key}" is not a key of a DownNodes line')
        for name in self.resolve(line.first):
            fields = {"state": state, "reason": reason or self.nodes[name].reason}
            self.nodes[name] = msgspec.structs.replace(self.nodes[name], **fields)

    def _make_set(self, line: Line) -> None:
        first = line.first
        if first.value in self.nodes or first.value in self.sets or not first.value:
            raise first.error(f'NodeSet "{first.value}" is the name of something else already')
        chosen: list[str] = []
        for pair in line.pairs[1:]:
            if pair.name == "nodes":
                chosen += self.resolve(pair)
            elif pair.name in {"feature", "features"}:
                wanted = set(values.words(pair))
                chosen += [n.name for n in self.nodes.values() if wanted & set(n.features)]
            else:
                raise pair.error(f'"{pair.key}" is not a key of a NodeSet line')
        self.sets[first.value] = list(dict.fromkeys(chosen))

    def resolve(self, pair: Pair) -> list[str]:
        """The nodes a value names: ALL, node names and node sets, each once, in order."""
        if pair.value.upper() == "ALL":
            return list(self.nodes)
        found: dict[str, None] = {}
        for name in values.hosts(pair):
            if name in self.nodes:
                found[name] = None
            elif name in self.sets:
                found.update(dict.fromkeys(self.sets[name]))
            else:
                raise pair.bad(f'node "{name}" is not defined')
        return list(found)
