"""The ledger: the state machine that owns every job and node of a cluster."""

from gsched.ledger.commands import Configure, HookEnded, NodeMessage, Start, TakeOver, Tick, Write
from gsched.ledger.ledger import Ledger
from gsched.ledger.outcome import Outcome
from gsched.ledger.state import FORMAT, Meta, StoredAnswer, job_key

__all__ = [
    "FORMAT",
    "Configure",
    "HookEnded",
    "Ledger",
    "Meta",
    "NodeMessage",
    "Outcome",
    "Start",
    "StoredAnswer",
    "TakeOver",
    "Tick",
    "Write",
    "job_key",
]
