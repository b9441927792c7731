"""What the commands show of a node: its configuration, its record and its use put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gsched import gpushare
from gsched.config import Config, NodeConfig
from gsched.hostlist import expand
from gsched.model.node import Node, NodeUse
from gsched.model.reservation import Reservation
from gsched.model.states import NodeFlag
from gsched_cli.jobview import cpu_id_text
from gsched_cli.text import megabytes

_BUSY = frozenset({"ALLOCATED", "MIXED"})
#: with room left that a plan can keep
_PLANNABLE = frozenset({"IDLE", "MIXED"})
_COMPACT = {
    "UNKNOWN": "unk",
    "DOWN": "down",
    "IDLE": "idle",
    "ALLOCATED": "alloc",
    "MIXED": "mix",
    "FUTURE": "futr",
    "COMPLETING": "comp",
    "DRAINED": "drain",
    "DRAINING": "drng",
    "FAIL": "fail",
    "FAILING": "failg",
    "ALLOCATED+": "alloc+",
    "MAINT": "maint",
    "RESERVED": "resv",
    "PLANNED": "plnd",
}
#: Slurm's numbers, which decide the order of states in `sinfo`
_BASE_RANK = {"UNKNOWN": 0, "DOWN": 1, "IDLE": 2, "ALLOCATED": 3, "MIXED": 5, "FUTURE": 6}
_FLAG_RANK = {
    "RESERVED": 0x20,
    "DRAIN": 0x200,
    "COMPLETING": 0x400,
    "NOT_RESPONDING": 0x800,
    "FAIL": 0x2000,
    "MAINTENANCE": 0x8000,
    "PLANNED": 0x400000,
}


def _as_changed(conf: NodeConfig, node: Node) -> NodeConfig:
    if node.weight < 0 and not node.features:
        return conf
    return msgspec.structs.replace(
        conf,
        weight=node.weight if node.weight >= 0 else conf.weight,
        features=tuple(node.features.split(",")) if node.features else conf.features,
    )


class NodeView:
    """A node as users see it."""

    __slots__ = ("base", "conf", "flags", "node", "parts", "planned", "reservation", "use")

    def __init__(
        self,
        conf: NodeConfig,
        node: Node | None,
        use: NodeUse | None,
        parts: list[gpushare.Parts] | None = None,
        kept: Reservation | None = None,
        *,
        planned: bool = False,
    ) -> None:
        self.node = node if node is not None else Node(conf.name)
        #: its line, and what an administrator said since
        self.conf = _as_changed(conf, self.node)
        self.use = use if use is not None else NodeUse(conf.name)
        #: the parts of each GPU, None where they have none
        self.parts = parts
        #: the advance reservation that has all of it now
        self.reservation = kept
        #: something of it is kept for a waiting job
        self.planned = planned
        #: base state in Slurm's capitals
        self.base = self._base()
        #: what is said beside it, in the order Slurm lists it
        self.flags = self._flags()

    def _base(self) -> str:
        flags, use = self.node.flags, self.use
        if flags & NodeFlag.FUTURE:
            return "FUTURE"
        if flags & NodeFlag.DOWN:
            return "DOWN"
        if flags & NodeFlag.UNKNOWN:
            return "UNKNOWN"
        # Of jobs that have ended only COMPLETING is left, though they still hold their share.
        if use.jobs <= use.completing or not use.cpus_alloc:
            return "IDLE"
        return "ALLOCATED" if use.cpus_alloc >= self.cpus else "MIXED"

    def _flags(self) -> tuple[str, ...]:
        flags = self.node.flags
        found = []
        if self.use.completing:
            found.append("COMPLETING")
        if flags & NodeFlag.DRAIN:
            found.append("DRAIN")
        if flags & NodeFlag.FAIL:
            found.append("FAIL")
        if self.reservation is not None:
            if self.reservation.maintenance:
                found.append("MAINTENANCE")
            found.append("RESERVED")
        if flags & (NodeFlag.NOT_RESPONDING | NodeFlag.UNKNOWN) and self.base != "FUTURE":
            found.append("NOT_RESPONDING")
        if self.planned and self.base in _PLANNABLE:
            found.append("PLANNED")
        return tuple(found)

    @property
    def name(self) -> str:
        return self.conf.name

    @property
    def full_state(self) -> str:
        """As `scontrol show node`: "MIXED+DRAIN"."""
        return "+".join((self.base, *self.flags))

    @property
    def _word(self) -> str:
        busy = self.base in _BUSY or "COMPLETING" in self.flags
        if "FAIL" in self.flags:
            return "FAILING" if busy else "FAIL"
        if "DRAIN" in self.flags:
            return "DRAINING" if busy else "DRAINED"
        if "COMPLETING" in self.flags:
            if self.base == "IDLE":
                return "COMPLETING"
            if self.base == "ALLOCATED":
                return "ALLOCATED+"
        if self.base == "IDLE" and self.reservation is not None:
            return "MAINT" if self.reservation.maintenance else "RESERVED"
        return "PLANNED" if self.base == "IDLE" and "PLANNED" in self.flags else self.base

    @property
    def _suffix(self) -> str:
        if not self.responding:
            return "*"
        if "MAINTENANCE" in self.flags and self._word != "MAINT":
            return "$"
        return "-" if "PLANNED" in self.flags and self._word in _BUSY else ""

    @property
    def responding(self) -> bool:
        return "NOT_RESPONDING" not in self.flags

    @property
    def state_compact(self) -> str:
        """As `sinfo`: "mix", "drng", "down*"."""
        return _COMPACT[self._word] + self._suffix

    @property
    def state_long(self) -> str:
        """As `sinfo -l`: "mixed", "draining", "down*"."""
        return self._word.lower() + self._suffix

    @property
    def state_complete(self) -> str:
        """As `sinfo -O statecomplete`: "mixed+drain"."""
        return self.full_state.lower()

    @property
    def rank(self) -> int:
        """The place of its state in Slurm's order of states."""
        return _BASE_RANK[self.base] + sum(_FLAG_RANK[flag] for flag in self.flags)

    def in_state(self, word: str) -> bool:
        """Whether a word of `sinfo -t` (upper case) is true of it."""
        base, flags = self.base, self.flags
        busy = base in _BUSY or "COMPLETING" in flags
        answers = {
            # As in Slurm: whatever has jobs.
            "ALLOC": base in _BUSY,
            "MIX": base == "MIXED",
            "IDLE": base == "IDLE",
            "DOWN": base == "DOWN",
            "UNK": base == "UNKNOWN",
            "FUTR": base == "FUTURE",
            "COMP": "COMPLETING" in flags,
            "DRAIN": "DRAIN" in flags,
            "DRAINED": "DRAIN" in flags and not busy,
            "DRAINING": "DRAIN" in flags and busy,
            "FAIL": "FAIL" in flags,
            "FAILING": "FAIL" in flags and busy,
            "NO_RESPOND": not self.responding,
            "RESV": "RESERVED" in flags,
            "MAINT": "MAINTENANCE" in flags,
            "PLND": "PLANNED" in flags,
        }
        return answers.get(word, False)

    # ---- what it has, what is used -----------------------------------------------------

    @property
    def cpus(self) -> int:
        return self.conf.cpus

    @property
    def available(self) -> bool:
        """Whether what is not allocated could be."""
        return self.base in ("IDLE", "ALLOCATED", "MIXED") and not {"DRAIN", "FAIL"} & set(
            self.flags
        )

    @property
    def cpu_counts(self) -> tuple[int, int, int]:
        """CPUs (allocated, idle, other)."""
        used = min(self.use.cpus_alloc, self.cpus)
        rest = self.cpus - used
        return (used, rest, 0) if self.available else (used, 0, rest)

    @property
    def gres(self) -> str:
        """ "gpu:h100:8"; "(null)" for none."""
        return "gpu:0" if self.node.no_gpus else self.conf.gres_text or "(null)"

    @property
    def gres_used(self) -> str:
        """ "gpu:h100:2(IDX:0-1)": how many of each type, and which bits."""
        used = self._whole
        counted = [
            f"{name}:{self.use.counted.get(name, 0)}"
            for name in dict.fromkeys(item.name for item in self.conf.gres)
            if name != "gpu" and name not in gpushare.KINDS
        ]
        if not self.conf.gpu_types:
            return ",".join(counted) or "gpu:0"
        parts = []
        for kind, bits in self._bits_by_type().items():
            here = used & bits
            index = cpu_id_text(here) or "N/A"
            name = f"gpu:{kind}" if kind else "gpu"
            parts.append(f"{name}:{here.bit_count()}(IDX:{index})")
        parts += gpushare.gres_texts(self.conf, self.parts, self.use.parts)
        return ",".join([*parts, *counted])

    @property
    def _whole(self) -> int:
        """GPUs that are given whole; one in parts is no longer a GPU to Slurm."""
        return self.use.gpus_alloc & ~sum(1 << bit for bit in self.use.parts)

    @property
    def gpu_counts(self) -> dict[str, int]:
        """Allocated GPUs by type, without those in parts."""
        used = self._whole
        counts = {kind: (used & bits).bit_count() for kind, bits in self._bits_by_type().items()}
        return {kind: n for kind, n in counts.items() if n}

    def _bits_by_type(self) -> dict[str, int]:
        """Type -> its bits. Where the node has not told its GPUs, as the configuration counts
        them."""
        bits = dict.fromkeys(self.conf.gpu_types, 0)
        if self.node.gpus:
            for place, gpu in enumerate(self.node.gpus):
                kind = gpu.type if gpu.type in bits else next(iter(bits), gpu.type)
                bits[kind] = bits.get(kind, 0) | 1 << place
            return bits
        place = 0
        for kind, count in self.conf.gpu_types.items():
            bits[kind] = ((1 << count) - 1) << place
            place += count
        return bits

    @property
    def features(self) -> str:
        return ",".join(self.conf.features) or "(null)"

    @property
    def active_features(self) -> str:
        return self.node.active_features or self.features

    @property
    def load(self) -> str:
        load = self.use.cpu_load
        return "N/A" if load < 0 else f"{load / 100:.2f}"

    @property
    def free_memory(self) -> str:
        return "N/A" if self.use.free_mem_mb < 0 else str(self.use.free_mem_mb)

    @property
    def reason(self) -> str:
        return self.node.reason or self.conf.reason

    @property
    def configured_tres(self) -> str:
        types = {kind: n for kind, n in self.conf.gpu_types.items() if kind}
        text = tres_text(self.cpus, self.conf.real_memory, None, self.conf.gpus, types)
        return ",".join([text, *share_texts(gpushare.configured([self.conf]))])

    @property
    def allocated_tres(self) -> str:
        use = self.use
        if not use.cpus_alloc:
            return ""
        counts = self.gpu_counts
        parts = [f"cpu={use.cpus_alloc}"]
        if use.mem_alloc_mb:
            parts.append(f"mem={megabytes(use.mem_alloc_mb)}")
        parts += _gpu_parts(sum(counts.values()), counts)
        parts += share_texts(gpushare.counts(self.parts, use.parts))
        return ",".join(parts)


def tres_text(cpus: int, mb: int, nodes: int | None, gpus: int, types: dict[str, int]) -> str:
    """What a node or partition has, as TRES text; billing counts the CPUs."""
    parts = [f"cpu={cpus}", f"mem={megabytes(mb)}"]
    if nodes is not None:
        parts.append(f"node={nodes}")
    parts.append(f"billing={cpus}")
    return ",".join(parts + _gpu_parts(gpus, types))


def share_texts(counts: dict[str, int]) -> list[str]:
    """Parts of GPUs as TRES texts: "gres/shard=3"."""
    return [f"gres/{name}={n}" for name, n in sorted(counts.items()) if n]


def _gpu_parts(total: int, types: dict[str, int]) -> list[str]:
    if not total:
        return []
    return [f"gres/gpu={total}"] + [f"gres/gpu:{k}={n}" for k, n in sorted(types.items()) if k]


def held_nodes(reservations: Iterable[Reservation], now: float) -> dict[str, Reservation]:
    """Nodes that advance reservations have whole now; a maintenance before others."""
    found: dict[str, Reservation] = {}
    for resv in reservations:
        for share in resv.nodes if resv.active(now) and not resv.floats else ():
            if share.cpus < 0 and (share.node not in found or resv.maintenance):
                found[share.node] = resv
    return found


def node_views(
    config: Config,
    nodes: list[Node],
    use: list[NodeUse],
    future: bool = False,
    kept: Mapping[str, Reservation] | None = None,
    planned: str = "",
) -> list[NodeView]:
    """The configured nodes in the order of the file; nodes for later only with `future`. kept: see
    held_nodes(); planned: as in NodeRows."""
    keeps = set(expand(planned)) if planned else ()
    records = {node.name: node for node in nodes}
    used = {item.name: item for item in use}
    views = []
    for name, conf in config.nodes.items():
        node = records.get(name)
        parts = gpushare.parts(config, name, node.gpus if node is not None else ())
        held = (kept or {}).get(name)
        views.append(NodeView(conf, node, used.get(name), parts, held, planned=name in keeps))
    return [view for view in views if future or view.base != "FUTURE"]


def user_name(uid: int) -> str:
    """The user's name, or the number where there is none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
