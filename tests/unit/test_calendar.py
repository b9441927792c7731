"""Hours, days and months: they nest and cover time without gaps, also where clocks are changed."""

from __future__ import annotations

import itertools
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.accounting.calendar import HOUR, Calendar
from gsched.accounting.usage import What, hourly, of_job
from gsched.model.acct import AcctJob

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]


def at(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def test_the_day_on_which_clocks_go_on_has_23_hours() -> None:
    calendar = Calendar(ZoneInfo("Europe/Berlin"))
    noon = at("2026-03-29T12:00:00", "Europe/Berlin")
    begin, end = calendar.day(noon)
    assert begin == at("2026-03-29T00:00:00", "Europe/Berlin")
    assert end - begin == 23 * HOUR
    assert len(list(calendar.hours(begin, end))) == 23
    begin, end = calendar.day(at("2026-10-25T12:00:00", "Europe/Berlin"))
    assert end - begin == 25 * HOUR


def test_half_an_hour_from_utc() -> None:
    calendar = Calendar(ZoneInfo("Asia/Kolkata"))
    begin, end = calendar.hour(at("2026-05-01T10:59:59", "Asia/Kolkata"))
    assert begin == at("2026-05-01T10:00:00", "Asia/Kolkata")
    assert end == at("2026-05-01T11:00:00", "Asia/Kolkata")
    assert begin % HOUR == 1800


def test_months() -> None:
    calendar = Calendar(ZoneInfo("Europe/Berlin"))
    assert calendar.month(at("2026-12-31T23:59:59", "Europe/Berlin")) == (
        at("2026-12-01T00:00:00", "Europe/Berlin"),
        at("2027-01-01T00:00:00", "Europe/Berlin"),
    )


@pytest.mark.parametrize("zone", ZONES)
@given(begin=st.integers(1_700_000_000, 1_900_000_000), length=st.integers(1, 100 * 86400))
def test_spans_make_up_the_time_as_few_as_can_be(zone: str, begin: int, length: int) -> None:
    calendar = Calendar(ZoneInfo(zone))
    end = begin + length
    hours, days, months = calendar.split(begin, end)
    spans = sorted([*hours, *days, *months])
    assert spans[0][0] == calendar.hour(begin)[0]
    assert spans[-1][1] == calendar.hour(end - 1)[1]
    for one, after in itertools.pairwise(spans):
        assert one[1] == after[0]
    # No day lies in hours, no month in days: at most those at both ends.
    assert len(hours) <= 2 * 24 and len(days) <= 2 * 30
    for span in days:
        assert next(iter(calendar.hours(*span)))[0] == span[0]
        assert list(calendar.hours(*span))[-1][1] == span[1]


@given(
    begin=st.integers(1_700_000_000, 1_900_000_000),
    length=st.integers(1, 10 * 86400),
    share=st.floats(0, 1),
)
def test_nothing_is_lost_between_hours(begin: int, length: int, share: float) -> None:
    total = int(length * share)
    calendar = Calendar(ZoneInfo("Europe/Berlin"))
    found = dict(hourly(calendar, begin, begin + length, total))
    assert sum(found.values()) == total
    for hour, seconds in found.items():
        inside = min(calendar.hour(hour)[1], begin + length) - max(hour, begin)
        assert 0 < seconds <= inside


def attempt(**fields: object) -> AcctJob:
    fields = {"job_id": 1, "restarts": 0, "begun": 0, "group_id": 1, "sub_id": 0} | fields
    return AcctJob(**fields)  # type: ignore[arg-type]


def test_a_job_over_two_hours_that_had_waited() -> None:
    calendar = Calendar(ZoneInfo("UTC"))
    day = at("2026-05-01T00:00:00", "UTC")
    row = attempt(
        eligible=day + 3000,
        start=day + 3500,
        end_time=day + 3700,
        elapsed_s=200,
        req_tres="cpu=4",
        alloc_tres="cpu=8,gres/gpu:h100=2",
    )
    assert of_job(calendar, row) == {
        (What.ALLOC, "cpu", day): 800,
        (What.ALLOC, "cpu", day + HOUR): 800,
        (What.ALLOC, "gres/gpu:h100", day): 200,
        (What.ALLOC, "gres/gpu:h100", day + HOUR): 200,
        (What.WAIT, "cpu", day): 2000,
    }


def test_after_its_nodes_last_report_nothing_is_counted() -> None:
    calendar = Calendar(ZoneInfo("UTC"))
    day = at("2026-05-01T00:00:00", "UTC")
    row = attempt(
        start=day + 100,
        end_time=day + 400,
        elapsed_s=300,
        last_report=day + 150,
        uncertain=1,
        alloc_tres="cpu=2",
    )
    assert of_job(calendar, row) == {(What.ALLOC, "cpu", day): 100}
