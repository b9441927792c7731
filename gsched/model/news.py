"""What accounting is told besides ended attempts: changes of policy, nodes that are out of service,
the size of the cluster, reservations. msgspec arrays: new fields only at the end."""

from __future__ import annotations

import msgspec

from gsched.model.policy import PolicyRecord, Tres
from gsched.model.reservation import Reservation


class _News(msgspec.Struct, array_like=True, tag=True, gc=False):
    pass


class Transaction(msgspec.Struct, array_like=True, gc=False):
    """Who did what, as `sacctmgr show transactions` has it."""

    #: login name
    actor: str
    #: "Add Accounts", "Modify Users", ...
    action: str
    where: str = ""
    info: str = ""


class PolicyChange(_News):
    """Records that a command made, changed or took away, as they are now, and who did it."""

    put: list[PolicyRecord] = []
    gone: list[PolicyRecord] = []
    done: list[Transaction] = []


class NodeState(_News):
    """A node is from now on out of service, or back in it."""

    node: str
    #: as Slurm writes it ("DOWN", "DOWN*", "DRAINED", "FAIL"); "" it is in service
    state: str = ""
    reason: str = ""
    uid: int = 0
    #: since when (epoch seconds): a lost node since its last report; 0: since the fact
    since: int = 0
    tres: Tres = {}


class ClusterSize(_News):
    """The cluster has these nodes and resources from now on. `down`: every node that is out of
    service, where `whole`; others are in service."""

    #: host list
    nodes: str = ""
    tres: Tres = {}
    down: list[NodeState] = []
    whole: bool = False


class Reserved(_News):
    """A reservation is from now on as it is here, or gone."""

    resv: Reservation
    gone: bool = False
    tres: Tres = {}


News = PolicyChange | NodeState | ClusterSize | Reserved
