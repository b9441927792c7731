"""A node that differs from what the controller knows of it: other files, or a smaller machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsched.ledger.outcome import Outcome
from gsched.model import Node, NodeFlag
from gsched.wire.nodes import Register

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

LOW_CPUS = "Low socket*core*thread count, Low CPUs"
LOW_MEMORY = "Low RealMemory"


def judge(led: Ledger, node: Node, msg: Register, now: float, out: Outcome) -> None:
    """Looks at a registration: other files are told once per change, a node with fewer CPUs or less
    memory than its line promises is drained until it registers with enough."""
    _files(led, node, msg, out)
    _size(led, node, now, out)


def _files(led: Ledger, node: Node, msg: Register, out: Outcome) -> None:
    files = led.files
    differs = []
    if msg.conf and files.checksum and msg.conf != files.checksum:
        differs.append("slurm.conf")
    # A site may keep gres.conf on the nodes alone.
    mine = files.gres_checksum(node.name)
    if msg.conf and mine and msg.gres_conf != mine:
        differs.append("gres.conf")
    text = ",".join(differs)
    if text == node.conf_differs:
        return
    node.conf_differs = text
    if not text:
        out.log.append(("info", f"Node {node.name} has the slurmctld's configuration again"))
    elif "NO_CONF_HASH" not in files.raw.get("debugflags", "").upper():
        which = " and ".join(differs)
        out.log.append(
            (
                "error",
                f"Node {node.name} appears to have a different {which} than the slurmctld.  "
                "This could cause issues with communication and functionality.  "
                "Please review both files and make sure they are the same.  If this is expected "
                "ignore, and set DebugFlags=NO_CONF_HASH in your slurm.conf.",
            )
        )


def _size(led: Ledger, node: Node, now: float, out: Outcome) -> None:
    conf = led.files.nodes.get(node.name)
    if conf is None:
        return
    why = ""
    if "config_overrides" not in led.files.slurmd_parameters:
        reasons = [LOW_CPUS] if node.cpus < conf.cpus else []
        if node.mem_mb < conf.real_memory:
            reasons.append(
                f"{LOW_MEMORY} (reported:{node.mem_mb} < 100.00% of configured:{conf.real_memory})"
            )
        why = ", ".join(reasons)
    ours = node.reason.startswith((LOW_CPUS, LOW_MEMORY))
    if why and (ours or not node.flags & NodeFlag.DRAIN):
        if why != node.reason:
            out.log.append(("error", f"node {node.name} drained: {why}"))
            node.reason, node.reason_uid, node.reason_time = why, 0, int(now)
        node.flags |= NodeFlag.DRAIN
    elif ours and not why:
        node.flags &= ~NodeFlag.DRAIN
        node.reason, node.reason_time = "", 0
