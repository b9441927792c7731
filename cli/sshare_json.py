"""`sshare --json` and `--yaml`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gsched.model.policy import SHARES_PARENT
from gsched_cli.dump import Asked

if TYPE_CHECKING:
    from gsched_cli.sshare import Share


def document(asked: Asked, shares: Sequence[Share]) -> str:
    """The whole answer as text."""
    return asked.document(
        shares={
            "shares": [_share(one) for one in shares],
            "total_shares": sum(max(0, one.standing.assoc.shares) for one in shares),
        }
    )


def _share(share: Share) -> dict[str, object]:
    one = share.standing
    assoc = one.assoc
    return {
        "id": assoc.id,
        "cluster": share.cluster,
        "name": assoc.user or assoc.account,
        "parent": assoc.account if assoc.user else assoc.parent,
        "partition": assoc.partition,
        "shares_normalized": _number(one.norm_shares),
        "shares": _number(None if assoc.shares == SHARES_PARENT else assoc.shares),
        "tres": {
            "run_seconds": _tres(share.run_mins, 60),
            "group_minutes": _tres(share.limits, 1),
            "usage": _tres(share.raw, 60),
        },
        "effective_usage": _number(one.effective),
        "usage_normalized": _number(one.norm_usage),
        "usage": int(one.raw_usage),
        "fairshare": {"factor": _number(one.factor), "level": _number(one.level)},
        "type": ["USER" if assoc.user else "ASSOCIATION"],
    }


def _number(value: float | None) -> dict[str, object]:
    infinite = value is not None and math.isinf(value)
    known = value is not None and not infinite
    return {"set": known, "infinite": infinite, "number": value if known else 0}


def _tres(text: str, times: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for item in filter(None, text.split(",")):
        name, _, count = item.rpartition("=")
        digits = count.rstrip("KMGTPE")
        found.append({"name": name, "value": _number(int(float(digits)) * times)})
    return found
