"""What anybody wrote about reservations ended the controller: `sbatch --reservation=,` named none,
a name longer than a key of the store could not be stored, and one that repeats near the end of the
calendar had no next time.
"""

from __future__ import annotations

from datetime import datetime

import pytest
from unit.ledger_support import Bench

from gsched.model import JobState
from gsched.wire.messages import Done, Refused, UpdateJob, UpdateReservation

INVALID = "Requested reservation is invalid"


def create(b: Bench, name: str, **fields: str) -> str:
    start = str(int(b.now) + 3600)
    given = {"starttime": start, "duration": "600", "nodes": "node1", "users": "user", **fields}
    reply = b.write(UpdateReservation(name, "create", given), 0)
    if isinstance(reply, Refused):
        return reply.message
    assert isinstance(reply, Done)
    b.schedule()
    return reply.data


@pytest.mark.parametrize("text", [",", ",,,"])
def test_a_list_of_no_reservations_is_refused(text: str) -> None:
    b = Bench()
    reply = b.submit(reservation=text)
    assert isinstance(reply, Refused) and reply.message == INVALID
    job = b.job()
    reply = b.write(UpdateJob([str(job.id)], "update", {"reservationname": text}), 0)
    assert isinstance(reply, Done) and reply.errors == [(str(job.id), INVALID)]
    assert job.spec.reservation == ""


def test_a_stored_job_with_such_a_list_starts_outside_of_all() -> None:
    b = Bench()
    job = b.job()
    job.spec.reservation = ","
    b.led.cluster.queue_job(job)
    b.schedule()
    assert job.state == JobState.RUNNING


@pytest.mark.parametrize("name", ["x" * 600, "é" * 150, "a,b", "a b", "a\nb", "a\0b", " "])
def test_names_that_cannot_be_stored_or_asked_for_are_refused(name: str) -> None:
    assert create(Bench(), name) == INVALID


def test_a_name_that_would_be_made_of_a_long_account_is_refused() -> None:
    b = Bench()
    assert create(b, "", users="", accounts="a" * 600) == INVALID
    assert not b.led.reservations
    assert create(b, "", users="", accounts="physics").startswith("physics_")


def test_times_beyond_the_calendar_are_refused() -> None:
    b = Bench()
    late = str(int(datetime(9999, 12, 30).timestamp()))
    for how in ("DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "HOURLY", ""):
        assert create(b, "r", starttime=late, flags=how) == "Invalid time specified"
        assert create(b, "r", endtime="999999999999", flags=how) == "Invalid time specified"
        assert create(b, "r", duration="999999999999", flags=how) == "Invalid time specified"


def test_an_update_leaves_somebody_who_may_use_it() -> None:
    """Without users, groups and accounts it would have been everybody's."""
    b = Bench()
    assert create(b, "r") == "r"
    for fields in ({"users": ""}, {"users-": "user"}, {"users": ","}):
        assert isinstance(b.write(UpdateReservation("r", "update", fields), 0), Refused)
        assert b.led.reservations["r"].users == ("user",)
    reply = b.write(UpdateReservation("r", "update", {"users": "", "accounts": "physics"}), 0)
    assert isinstance(reply, Done)
