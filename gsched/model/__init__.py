"""The nouns: jobs, nodes, requests and placements, as msgspec structs."""

from gsched.model.fact import Fact
from gsched.model.job import Alternative, Dep, Job, JobSpec, NodeAlloc, Shape, Usage
from gsched.model.news import ClusterSize, NodeState, PolicyChange, Reserved, Transaction
from gsched.model.node import (
    FairShares,
    Gpu,
    Node,
    NodeUse,
    PartitionChange,
    PlannedNodes,
    StartEstimates,
    Verdict,
)
from gsched.model.plan import Placement, Plan
from gsched.model.policy import Account, Assoc, PolicyRecord, Qos, Used, User, Wckey
from gsched.model.preempt import Claim, MakingWay, Preemption, Victim
from gsched.model.reservation import Reservation, ReservedNode
from gsched.model.states import Hold, JobState, NodeFlag, Phase
from gsched.model.step import Callback, Step, StepNode, StepSpec, StepState

__all__ = [
    "Account",
    "Alternative",
    "Assoc",
    "Callback",
    "Claim",
    "ClusterSize",
    "Dep",
    "Fact",
    "FairShares",
    "Gpu",
    "Hold",
    "Job",
    "JobSpec",
    "JobState",
    "MakingWay",
    "Node",
    "NodeAlloc",
    "NodeFlag",
    "NodeState",
    "NodeUse",
    "PartitionChange",
    "Phase",
    "Placement",
    "Plan",
    "PlannedNodes",
    "PolicyChange",
    "PolicyRecord",
    "Preemption",
    "Qos",
    "Reservation",
    "Reserved",
    "ReservedNode",
    "Shape",
    "StartEstimates",
    "Step",
    "StepNode",
    "StepSpec",
    "StepState",
    "Transaction",
    "Usage",
    "Used",
    "User",
    "Verdict",
    "Victim",
    "Wckey",
]
