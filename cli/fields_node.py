"""The fields of a line of `sinfo`: a partition and nodes that are alike in what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gsched.config import Config, PartitionConfig
from gsched.hostlist import compress, compress_sorted, sort_key
from gsched_cli.fields import Field, Table
from gsched_cli.nodeview import NodeView, user_name
from gsched_cli.text import elapsed, timestamp

#: fields that sum up over the nodes of a line; all others keep nodes apart
SUMMED = frozenset({"Nodes", "NodeAI", "NodeAIOT", "CPUsState", "NodeList"})
#: fields that show a range ("16+"), and keep nodes apart only with --exact
RANGED = frozenset(
    {
        "CPUs",
        "CPUsLoad",
        "Cores",
        "Disk",
        "FreeMem",
        "Memory",
        "SocketCoreThread",
        "Sockets",
        "Threads",
        "Weight",
    }
)
#: fields of the partition
OF_PARTITION = frozenset({"Partition", "PartitionName"})


class Row:
    """One line: nodes of one partition (of all, where no partition is shown)."""

    __slots__ = ("nodes", "order", "part")

    def __init__(self, part: PartitionConfig, order: int, nodes: list[NodeView]) -> None:
        self.part = part
        #: place of the partition in slurm.conf
        self.order = order
        self.nodes = nodes


def node_counts(nodes: Iterable[NodeView]) -> tuple[int, int, int]:
    """Nodes (allocated, idle, other)."""
    alloc = idle = other = 0
    for node in nodes:
        if node.base in ("ALLOCATED", "MIXED") or (
            "COMPLETING" in node.flags and node.base != "DOWN"
        ):
            alloc += 1
        elif node.available:
            idle += 1
        else:
            other += 1
    return alloc, idle, other


def _first(read: Callable[[NodeView], str], none: str = "") -> Callable[[Row], str]:
    return lambda row: read(row.nodes[0]) if row.nodes else none


def _reservation(node: NodeView) -> str:
    return node.reservation.name if node.reservation is not None else ""


def _least(read: Callable[[NodeView], int]) -> Callable[[Row], str]:
    """The smallest value, with "+" where some node has more."""

    def text(row: Row) -> str:
        values = [read(node) for node in row.nodes] or [0]
        low = min(values)
        return f"{low}+" if max(values) > low else str(low)

    return text


def _low(read: Callable[[NodeView], int]) -> Callable[[Row], object]:
    return lambda row: min((read(node) for node in row.nodes), default=0)


def _load(row: Row) -> str:
    loads = [node.use.cpu_load for node in row.nodes if node.use.cpu_load >= 0]
    if not loads:
        return "N/A"
    low, high = min(loads) / 100, max(loads) / 100
    return f"{low:.2f}" if low == high else f"{low:.2f}-{high:.2f}"


def _free(row: Row) -> str:
    sizes = [node.use.free_mem_mb for node in row.nodes if node.use.free_mem_mb >= 0]
    if not sizes:
        return "N/A"
    low, high = min(sizes), max(sizes)
    return str(low) if low == high else f"{low}-{high}"


def _sct(row: Row) -> str:
    return ":".join(
        _least(read)(row)
        for read in (
            lambda n: n.conf.sockets,
            lambda n: n.conf.cores_per_socket,
            lambda n: n.conf.threads_per_core,
        )
    )


def _cpus_state(row: Row) -> str:
    counts = [node.cpu_counts for node in row.nodes]
    alloc, idle, other = (sum(count[at] for count in counts) for at in range(3))
    return f"{alloc}/{idle}/{other}/{alloc + idle + other}"


def _aiot(row: Row) -> str:
    alloc, idle, other = node_counts(row.nodes)
    return f"{alloc}/{idle}/{other}/{alloc + idle + other}"


def _ai(row: Row) -> str:
    alloc, idle, _ = node_counts(row.nodes)
    return f"{alloc}/{idle}"


def _job_size(row: Row) -> str:
    low, high = max(row.part.min_nodes, 1), row.part.max_nodes
    if high is None:
        return f"{low}-infinite"
    return str(low) if low == high else f"{low}-{high}"


def _limit(seconds: int | None, none: str) -> str:
    if seconds is None:
        return none
    return elapsed(seconds) if seconds else "infinite"


def _oversubscribe(row: Row) -> str:
    word = row.part.oversubscribe
    if word in ("YES", "FORCE"):
        return f"{word}:{row.part.oversubscribe_count}"
    return word


def partition_text(part: PartitionConfig) -> str:
    """The name, with a star for the default partition."""
    return f"{part.name}*" if part.default else part.name


def _reason(node: NodeView) -> str:
    return node.reason or "none"


def _by(node: NodeView) -> str:
    return user_name(node.node.reason_uid) if node.node.reason_time else "Unknown"


def _by_long(node: NodeView) -> str:
    uid = node.node.reason_uid
    return f"{user_name(uid)}({uid})" if node.node.reason_time else "Unknown"


def node_table(env: Mapping[str, str], now: float, config: Config) -> Table[Row]:
    """The table of node fields."""

    def since(node: NodeView) -> str:
        return timestamp(node.node.reason_time, env, now, "Unknown")

    def many(row: Row) -> str:
        return compress_sorted(node.name for node in row.nodes)

    F = Field[Row]
    return Table(
        [
            F("", ("AllocMem",), "ALLOCMEM", _first(lambda n: str(n.use.mem_alloc_mb), "0")),
            F("S", ("AllocNodes",), "ALLOCNODES", lambda r: _all(r.part.allow_alloc_nodes)),
            F("a", ("Available",), "AVAIL", lambda r: _avail(r.part)),
            F("V", ("Cluster",), "CLUSTER", lambda r: "N/A"),
            F("", ("Comment",), "COMMENT", _first(lambda n: n.node.comment or "(null)")),
            F(
                "Y",
                ("Cores",),
                "CORES",
                _least(lambda n: n.conf.cores_per_socket),
                _low(lambda n: n.conf.cores_per_socket),
            ),
            F("c", ("CPUs",), "CPUS", _least(lambda n: n.cpus), _low(lambda n: n.cpus)),
            F("O", ("CPUsLoad",), "CPU_LOAD", _load, _low(lambda n: n.use.cpu_load)),
            F("C", ("CPUsState",), "CPUS(A/I/O/T)", _cpus_state),
            F("L", ("DefaultTime",), "DEFAULTTIME", lambda r: _limit(r.part.default_time, "n/a")),
            F(
                "d",
                ("Disk",),
                "TMP_DISK",
                _least(lambda n: n.conf.tmp_disk),
                _low(lambda n: n.conf.tmp_disk),
            ),
            F("", ("Extra",), "EXTRA", _first(lambda n: n.node.extra or "(null)")),
            F("f", ("Features",), "AVAIL_FEATURES", _first(lambda n: n.features)),
            F("b", ("features_act",), "ACTIVE_FEATURES", _first(lambda n: n.active_features)),
            F("e", ("FreeMem",), "FREE_MEM", _free, _low(lambda n: n.use.free_mem_mb)),
            F("G", ("Gres",), "GRES", _first(lambda n: n.gres)),
            F("", ("GresUsed",), "GRES_USED", _first(lambda n: n.gres_used)),
            F("g", ("Groups",), "GROUPS", lambda r: _all(r.part.allow_groups)),
            F(
                "B",
                ("MaxCPUsPerNode",),
                "MAX_CPUS_PER_NODE",
                lambda r: _or(r.part.max_cpus_per_node, "UNLIMITED"),
            ),
            F(
                "m",
                ("Memory",),
                "MEMORY",
                _least(lambda n: n.conf.real_memory),
                _low(lambda n: n.conf.real_memory),
            ),
            F(
                "o",
                ("NodeAddr",),
                "NODE_ADDR",
                lambda r: compress(n.conf.addr for n in r.nodes),
            ),
            F("A", ("NodeAI",), "NODES(A/I)", _ai, lambda r: node_counts(r.nodes)),
            F("F", ("NodeAIOT",), "NODES(A/I/O/T)", _aiot, lambda r: node_counts(r.nodes)),
            F(
                "n",
                ("NodeHost",),
                "HOSTNAMES",
                lambda r: compress(n.conf.hostname for n in r.nodes),
            ),
            F("N", ("NodeList",), "NODELIST", many, _name_key),
            F("D", ("Nodes",), "NODES", lambda r: str(len(r.nodes)), lambda r: len(r.nodes)),
            F("h", ("OverSubscribe",), "OVERSUBSCRIBE", _oversubscribe),
            F(
                "P",
                ("Partition",),
                "PARTITION",
                lambda r: partition_text(r.part),
                lambda r: r.part.name,
            ),
            F("R", ("PartitionName",), "PARTITION", lambda r: r.part.name),
            F("", ("Port",), "PORT", _first(lambda n: str(config.port_of(n.name)))),
            F(
                "M",
                ("PreemptMode",),
                "PREEMPT_MODE",
                lambda r: r.part.preempt_mode or config.preempt_mode,
            ),
            F(
                "I",
                ("PriorityJobFactor",),
                "PRIO_JOB_FACTOR",
                lambda r: str(r.part.priority_job_factor),
                lambda r: r.part.priority_job_factor,
            ),
            F(
                "p",
                ("PriorityTier", "Priority"),
                "PRIO_TIER",
                lambda r: str(r.part.priority_tier),
                lambda r: r.part.priority_tier,
            ),
            F("E", ("Reason",), "REASON", _first(_reason, "none")),
            F("i", ("Reservation",), "RESERVATION", _first(_reservation)),
            F("r", ("Root",), "ROOT", lambda r: "yes" if r.part.root_only else "no"),
            F("s", ("Size",), "JOB_SIZE", _job_size, lambda r: r.part.max_nodes or 1 << 32),
            F(
                "X",
                ("Sockets",),
                "SOCKETS",
                _least(lambda n: n.conf.sockets),
                _low(lambda n: n.conf.sockets),
            ),
            F("z", ("SocketCoreThread",), "S:C:T", _sct),
            F("t", ("StateCompact",), "STATE", _first(lambda n: n.state_compact, "n/a"), _rank),
            F("", ("StateComplete",), "STATECOMPLETE", _first(lambda n: n.state_complete, "n/a")),
            F("T", ("StateLong",), "STATE", _first(lambda n: n.state_long, "n/a"), _rank),
            F(
                "Z",
                ("Threads",),
                "THREADS",
                _least(lambda n: n.conf.threads_per_core),
                _low(lambda n: n.conf.threads_per_core),
            ),
            F(
                "l",
                ("Time",),
                "TIMELIMIT",
                lambda r: _limit(r.part.max_time, "infinite"),
                lambda r: r.part.max_time or 1 << 40,
            ),
            F("H", ("TimeStamp",), "TIMESTAMP", _first(since, "Unknown")),
            F("u", ("User",), "USER", _first(_by, "Unknown")),
            F("U", ("UserLong",), "USER", _first(_by_long, "Unknown")),
            F("v", ("Version",), "VERSION", _first(lambda n: n.node.version or "N/A")),
            F(
                "w",
                ("Weight",),
                "WEIGHT",
                _least(lambda n: n.conf.weight),
                _low(lambda n: n.conf.weight),
            ),
        ]
    )


def _rank(row: Row) -> object:
    return row.nodes[0].rank if row.nodes else -1


def _name_key(row: Row) -> object:
    return sort_key(row.nodes[0].name) if row.nodes else ([], 0, -1)


def _all(names: tuple[str, ...]) -> str:
    return ",".join(names) or "all"


def _or(number: int | None, none: str) -> str:
    return none if number is None else str(number)


def _avail(part: PartitionConfig) -> str:
    return {"INACTIVE": "inact"}.get(part.state, part.state.lower())
