"""What can be asked of the ledger. One struct per command; none carries a clock."""

from __future__ import annotations

import msgspec

from gsched.config import Config
from gsched.model import Plan
from gsched.wire.messages import Call
from gsched.wire.nodes import AgentAnswer, Register, Report, StepMail

#: what a node may say to the ledger
FromNode = Register | Report | StepMail | AgentAnswer


class TakeOver(msgspec.Struct):
    """The first command of every controller process: raises the epoch."""


class Write(msgspec.Struct):
    """A client's write. `call.uid` is the kernel's word by the time it comes here."""

    call: Call
    role: str = "proxy"


class NodeMessage(msgspec.Struct):
    """A message from the node whose key the wire has verified to be `node`'s."""

    node: str
    message: FromNode


class Tick(msgspec.Struct):
    """Time passed: timeouts, repeats, purges."""


class Start(msgspec.Struct):
    """Carries out what a scheduling pass decided."""

    plan: Plan


class Configure(msgspec.Struct):
    """The configuration files were read anew, and are good."""

    config: Config


class HookEnded(msgspec.Struct):
    """PrologSlurmctld, or with `epilog` EpilogSlurmctld, has ended for an attempt; `error` says
    what went wrong ("" nothing)."""

    job_id: int
    attempt: int
    epilog: bool = False
    error: str = ""


Command = TakeOver | Write | NodeMessage | Tick | Start | Configure | HookEnded
