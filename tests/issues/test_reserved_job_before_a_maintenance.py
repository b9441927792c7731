"""A job that its reservation has room for, but that would run into a maintenance of the same nodes,
was said to wait for its priority.
"""

from __future__ import annotations

import pytest
from unit.ledger_support import CONF, Bench

from gsched.wire.messages import Done, UpdateReservation


def make(b: Bench, name: str, after: int, **fields: str) -> None:
    given = {"starttime": str(int(b.now) + after), "duration": "1800", "users": "user", **fields}
    assert isinstance(b.write(UpdateReservation(name, "create", given), 0), Done)


@pytest.mark.parametrize("limit", [3600, 1500])
def test_the_reason_is_the_maintenance(limit: int) -> None:
    b = Bench(CONF.replace("SlurmdTimeout=60", "SlurmdTimeout=0"))
    make(b, "mine", 0, nodes="node1")
    make(b, "mnt", 600, nodes="ALL", flags="MAINT,OVERLAP")
    job = b.job(reservation="mine", time_limit=limit)
    assert b.verdict(job) == "ReqNodeNotAvail, Reserved for maintenance"
    short = b.job(reservation="mine", time_limit=300)
    b.schedule()
    assert short.alloc[0].node == "node1"
