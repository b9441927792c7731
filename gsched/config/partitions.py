"""PartitionName lines of slurm.conf, and JobDefaults, which they share with the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gsched.config import values
from gsched.config.lexer import Line, Pair
from gsched.config.nodes import NodeTable
from gsched.config.types import NodeConfig, PartitionConfig
from gsched.gres import MOST_CAPS
from gsched.tres import TresError, weights


def job_defaults(pair: Pair) -> dict[str, int]:
    """JobDefaults=DefCpuPerGPU=n,DefMemPerGPU=m as fields of a Config or PartitionConfig."""
    fields = {"defcpupergpu": "def_cpu_per_gpu", "defmempergpu": "def_mem_per_gpu"}
    found = {}
    for word in values.words(pair):
        name, _, text = word.partition("=")
        if name.lower() not in fields or not re.fullmatch(r"[0-9]{1,12}", text):
            raise pair.bad(f'"{word}" is not DefCpuPerGPU=n or DefMemPerGPU=n')
        found[fields[name.lower()]] = int(text)
    return found


def _names(pair: Pair) -> tuple[str, ...]:
    """A list of groups, accounts, QOS or hosts; ALL is no restriction."""
    return () if pair.value.upper() == "ALL" else values.words(pair)


def _default_time(pair: Pair) -> int | None:
    return None if pair.value.upper() == "NONE" else values.time_limit(pair)


def _max_time(pair: Pair) -> int:
    return 0 if pair.value.upper() == "NONE" else values.time_limit(pair)


def _state(pair: Pair) -> str:
    return values.choice(pair, "UP", "DOWN", "DRAIN", "INACTIVE")


def _tier(pair: Pair) -> int:
    return values.number(pair, 0, 65533)


def _text(pair: Pair) -> str:
    return "" if pair.value.lower() in {"(null)", "none"} else pair.value


def _weights(pair: Pair) -> str:
    text = _text(pair)
    try:
        weights(text)
    except TresError as wrong:
        raise pair.bad(f"{wrong} is no weight: NAME=NUMBER is expected") from None
    return text


def _grace(pair: Pair) -> int:
    # Seconds where only a number is given, unlike the other times.
    return int(pair.value) if re.fullmatch(r"[0-9]{1,9}", pair.value) else _seconds(pair)


def _seconds(pair: Pair) -> int:
    return values.duration(pair) or 0


def _default_memory(pair: Pair) -> int:
    # 0 is kept: it says "no default" although the cluster has one.
    return values.memory_limit(pair) or 0


def _alloc_hosts(pair: Pair) -> tuple[str, ...]:
    return () if pair.value.upper() == "ALL" else tuple(values.hosts(pair))


#: lower-case key -> (field, parser)
_SIMPLE: dict[str, tuple[str, Callable[[Pair], Any]]] = {
    "allocnodes": ("allow_alloc_nodes", _alloc_hosts),
    "allowaccounts": ("allow_accounts", _names),
    "allowgroups": ("allow_groups", _names),
    "allowqos": ("allow_qos", _names),
    "alternate": ("alternate", _text),
    "default": ("default", values.yes_no),
    "defaulttime": ("default_time", _default_time),
    "defcpupergpu": ("def_cpu_per_gpu", values.number),
    "defmempercpu": ("def_mem_per_cpu", _default_memory),
    "defmempergpu": ("def_mem_per_gpu", _default_memory),
    "defmempernode": ("def_mem_per_node", _default_memory),
    "denyaccounts": ("deny_accounts", values.words),
    "denyqos": ("deny_qos", values.words),
    "disablerootjobs": ("disable_root_jobs", values.yes_no),
    "exclusiveuser": ("exclusive_user", values.yes_no),
    "gracetime": ("grace_time", _grace),
    "hidden": ("hidden", values.yes_no),
    "lln": ("lln", values.yes_no),
    "maxcpuspernode": ("max_cpus_per_node", values.limit),
    "maxcpuspersocket": ("max_cpus_per_socket", values.limit),
    "maxmempercpu": ("max_mem_per_cpu", values.memory_limit),
    "maxmempernode": ("max_mem_per_node", values.memory_limit),
    "maxnodes": ("max_nodes", values.limit),
    "maxtime": ("max_time", _max_time),
    "minnodes": ("min_nodes", values.number),
    "overtimelimit": ("over_time_limit", values.limit),
    "preemptmode": ("preempt_mode", lambda pair: pair.value.upper()),
    "priorityjobfactor": ("priority_job_factor", _tier),
    "prioritytier": ("priority_tier", _tier),
    "qos": ("qos", _text),
    "reqresv": ("req_resv", values.yes_no),
    "rootonly": ("root_only", values.yes_no),
    "selecttypeparameters": ("select_type_parameters", _text),
    "state": ("state", _state),
    "tresbillingweights": ("tres_billing_weights", _weights),
}


def parsers() -> dict[str, tuple[str, Callable[[Pair], Any]]]:
    """Lower-case key -> (field of a PartitionConfig, parser), for keys that need no more."""
    return _SIMPLE


#: keys that take more than a parser
_OTHERS = {"nodes", "oversubscribe", "jobdefaults", "priority"}

_WITHOUT_EFFECT = {
    *("cpubind", "powerdownonidle", "resumetimeout", "suspendtime", "suspendtimeout"),
    *("exclusivetopo", "topology", "maxstartdelay", "priorityflags"),
}


class PartitionTable:
    """Collects the lines; `finish` gives the partitions."""

    def __init__(self) -> None:
        self._defaults: dict[str, Pair] = {}
        self._lines: list[tuple[Line, dict[str, Pair]]] = []
        self.partitions: dict[str, PartitionConfig] = {}
        self.ignored: dict[str, str] = {}
        self.warnings: list[str] = []

    def add(self, line: Line) -> None:
        """A PartitionName line; DEFAULT lines count for those after them."""
        settings = dict(self._defaults)
        for pair in line.pairs[1:]:
            if pair.name in _WITHOUT_EFFECT:
                self.ignored[pair.key] = f"{pair.file}:{pair.line}"
            elif pair.name == "shared":
                settings["oversubscribe"] = pair
            elif pair.name == "allowqosgroups":
                settings["allowqos"] = pair
            elif pair.name in _SIMPLE or pair.name in _OTHERS:
                settings[pair.name] = self._joined(settings.get(pair.name), pair)
            else:
                raise pair.error(f'"{pair.key}" is not a key of a PartitionName line')
        if line.first.value.upper() == "DEFAULT":
            self._defaults = settings
        else:
            self._lines.append((line, settings))

    @staticmethod
    def _joined(before: Pair | None, pair: Pair) -> Pair:
        if not pair.append or before is None or not before.value:
            return pair
        return Pair(pair.key, f"{before.value},{pair.value}", pair.file, pair.line)

    def finish(self, nodes: NodeTable) -> None:
        """Resolves everything; raises ConfigError at the line that is wrong."""
        default = ""
        for line, settings in self._lines:
            first = line.first
            for name in values.hosts(first):
                if name in self.partitions:
                    raise first.error(f'Duplicate PartitionName "{name}"')
                made = self._make(name, settings, nodes)
                self.partitions[name] = made
                if made.default:
                    if default:
                        self.warnings.append(
                            f"{first.file}:{first.line}: the default partition changes from "
                            f"{default} to {name}"
                        )
                        self.partitions[default] = msgspec.structs.replace(
                            self.partitions[default], default=False
                        )
                    default = name
            if not values.hosts(first):
                raise first.bad("a partition name is expected")

        try:
            cap_numbers(self.partitions, nodes.nodes)
        except ValueError as err:
            raise self._lines[-1][0].first.error(str(err)) from None

    def _make(self, name: str, settings: dict[str, Pair], nodes: NodeTable) -> PartitionConfig:
        fields: dict[str, Any] = {"name": name}
        if pair := settings.get("priority"):
            fields["priority_tier"] = fields["priority_job_factor"] = _tier(pair)
        if pair := settings.get("jobdefaults"):
            fields.update(job_defaults(pair))
        for key, (field, parse) in _SIMPLE.items():
            if key in settings:
                fields[field] = parse(settings[key])
        if (pair := settings.get("nodes")) and pair.value.lower() not in {"", "(null)", "none"}:
            fields["nodes"] = tuple(nodes.resolve(pair))
            fields["nodes_text"] = pair.value
        if pair := settings.get("oversubscribe"):
            fields.update(oversubscribe(pair))
        if "defmempercpu" in settings and "defmempernode" in settings:
            raise settings["defmempernode"].error(
                f"PartitionName={name}: DefMemPerCPU and DefMemPerNode exclude each other"
            )
        if "maxmempercpu" in settings and "maxmempernode" in settings:
            raise settings["maxmempernode"].error(
                f"PartitionName={name}: MaxMemPerCPU and MaxMemPerNode exclude each other"
            )
        made = PartitionConfig(**fields)
        if made.default_time and made.max_time and made.default_time > made.max_time:
            pair = settings["defaulttime"]
            self.warnings.append(
                f"{pair.file}:{pair.line}: DefaultTime={pair.value} of partition {name} is more "
                f"than its MaxTime; MaxTime is used"
            )
            return msgspec.structs.replace(made, default_time=made.max_time)
        return made


def oversubscribe(pair: Pair) -> dict[str, Any]:
    """OverSubscribe= as fields of a PartitionConfig."""
    word, _, count = pair.value.partition(":")
    kind = word.upper()
    if kind not in {"NO", "YES", "FORCE", "EXCLUSIVE"}:
        raise pair.bad("one of NO, YES, FORCE, EXCLUSIVE is expected")
    if not count:
        return {"oversubscribe": kind}
    if not re.fullmatch(r"[0-9]{1,5}", count) or kind not in {"YES", "FORCE"}:
        raise pair.bad("a number of jobs is expected after YES: or FORCE:")
    return {"oversubscribe": kind, "oversubscribe_count": int(count)}


def restricts(nodes: Mapping[str, NodeConfig]) -> bool:
    """Whether some node keeps cores for jobs with GPUs (RestrictedCoresPerGPU)."""
    return any(conf.restricted_cores_per_gpu for conf in nodes.values())


def cap_numbers(
    partitions: Mapping[str, PartitionConfig], nodes: Mapping[str, NodeConfig]
) -> dict[str, int]:
    """The number of each partition with a bound on CPUs of a node or socket, from 0 on: others than
    those of partitions that have a node in common with it. ValueError where there are too many.
    Cost: the nodes of these partitions."""
    found: dict[str, int] = {}
    bounded = {
        name: set(part.nodes)
        for name, part in partitions.items()
        if part.max_cpus_per_node or part.max_cpus_per_socket
    }
    first = 1 if restricts(nodes) else 0
    for name, mine in bounded.items():
        taken = {number for other, number in found.items() if not mine.isdisjoint(bounded[other])}
        free = [number for number in range(first, MOST_CAPS) if number not in taken]
        if not free:
            raise ValueError(
                f"MaxCPUsPerNode of partition {name}: at most {MOST_CAPS - first} partitions with "
                "such a bound may have a node in common"
            )
        found[name] = free[0]
    return found
