"""The first associations of a cluster that asks for them."""

from __future__ import annotations

import os
import pwd

from gsched.client import Client
from gsched.config import Config
from gsched.model.policy import ROOT
from gsched.policy.enforce import enforced
from gsched.wire.messages import ManagePolicy, PolicyOp, Refused
from gsched.wire.policy import PolicyQuery

#: account that the cluster's first users are in
ACCOUNT = "users"


def begin(config: Config, client: Client) -> str:
    """With AccountingStorageEnforce a cluster without accounts would take nobody's jobs: it gets an
    account with whoever made it. What was done, in a sentence; "" nothing."""
    if "associations" not in enforced(config.accounting_storage_enforce):
        return ""
    records = client.policy(PolicyQuery()).records
    if any(type(one).__name__ == "Account" and getattr(one, "name", "") != ROOT for one in records):
        return ""
    users = _users()
    ops = [
        PolicyOp("add", "account", {"name": [ACCOUNT]}, [("description", "=", "first users")]),
        PolicyOp("add", "user", {"name": users, "account": [ACCOUNT]}),
    ]
    reply = client.call(ManagePolicy(ops))
    if isinstance(reply, Refused):
        return f"No account was made: {reply.message.strip()}"
    return (
        f"AccountingStorageEnforce is on: account {ACCOUNT} was made, with {', '.join(users)}; "
        f"`sacctmgr add user NAME account={ACCOUNT}` lets others in"
    )


def _users() -> list[str]:
    """Whoever runs this, and for whom, where that was with sudo."""
    found = [pwd.getpwuid(os.getuid()).pw_name]
    behind = os.environ.get("SUDO_USER", "")
    if behind and behind not in found:
        found.append(behind)
    return found
