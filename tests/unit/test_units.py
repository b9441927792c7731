"""Times, sizes and counts against the answers of a real Slurm."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsched.units import (
    DAY,
    HOUR,
    MINUTE,
    UnitError,
    format_elapsed,
    format_limit,
    format_limit_padded,
    format_memory,
    format_memory_short,
    format_padded,
    format_time_point,
    parse_count,
    parse_duration,
    parse_memory,
    parse_node_count,
    parse_time_limit,
    parse_time_point,
)

# `sbatch -v --time=...` of a real Slurm.
LIMITS = {
    "5": "00:05:00",
    "-1": "UNLIMITED",
    "0": "UNLIMITED",
    "-0": "UNLIMITED",
    "0-0": "UNLIMITED",
    "00:00:00": "UNLIMITED",
    "unlimited": "UNLIMITED",
    "Infinite": "UNLIMITED",
    "4294967295": "UNLIMITED",
    "99999999999999999999": "UNLIMITED",
    "1-": "1-00:00:00",
    "1:60": "00:02:00",
    "1:99": "00:03:00",
    "0:01": "00:01:00",
    "1-25": "2-01:00:00",
    "1-1:70": "1-02:10:00",
    "2-12:30:61": "2-12:32:00",
    "4:00": "00:04:00",
    "30:00": "00:30:00",
    "1:00:00": "01:00:00",
    "14-0": "14-00:00:00",
    "25:00:00": "1-01:00:00",
}
BAD_LIMITS = (
    ["", " 5", "5 ", "+5", "5m", "1h", "1d", "1-1-1", "1:2:3:4", "1-1:1:1:1", "1:", ":1"]
    + ["1::", "-", "--", "1-:", "1-1:", "1-:5", "UNLIM", "infinit", "1.5", "1e3", "0x10"]
    + ["1-2:3:4-", "1:2-3", "abc", "\u0661", "1" * 5000]
)


@pytest.mark.parametrize(("text", "shown"), LIMITS.items())
def test_time_limits(text: str, shown: str) -> None:
    assert format_limit_padded(parse_time_limit(text)) == shown


@pytest.mark.parametrize("text", BAD_LIMITS, ids=lambda text: repr(text[:12]))
def test_bad_time_limits(text: str) -> None:
    with pytest.raises(UnitError):
        parse_time_limit(text)


@pytest.mark.shared
def test_time_formats_transcript(shared: Path) -> None:
    """`-t X` and what squeue %l and scontrol TimeLimit= then said, in the target release."""
    text = (shared / "golden/26.05/014-sbatch-time-formats.txt").read_text()
    pattern = (
        r"^\$ sbatch -H -t (\S+) -o /dev/null --wrap true\n--- stdout\nSubmitted.*?"
        r"^\$ squeue -h.*?--- stdout\n(\S+)\nTimeLimit=(\S+)"
    )
    found = re.findall(pattern, text, re.M | re.S)
    assert len(found) >= 15
    for given_limit, column, shown in found:
        seconds = parse_time_limit(given_limit)
        assert (given_limit, format_limit(seconds)) == (given_limit, column)
        assert (given_limit, format_limit_padded(seconds)) == (given_limit, shown)


def test_durations_are_not_rounded() -> None:
    assert parse_duration("0:30") == 30
    assert parse_duration("1-02:03:04") == DAY + 2 * HOUR + 3 * MINUTE + 4
    assert parse_duration("INFINITE") is None


@pytest.mark.parametrize(
    ("seconds", "short", "padded"),
    [
        (0, "0:00", "00:00:00"),
        (9, "0:09", "00:00:09"),
        (330, "5:30", "00:05:30"),
        (3723, "1:02:03", "01:02:03"),
        (93784, "1-02:03:04", "1-02:03:04"),
        (-1, "INVALID", "INVALID"),
    ],
)
def test_elapsed(seconds: int, short: str, padded: str) -> None:
    assert format_elapsed(seconds) == short
    assert format_padded(seconds) == padded


@given(st.integers(0, 10**9))
def test_a_padded_duration_reads_back(seconds: int) -> None:
    assert parse_duration(format_padded(seconds)) == seconds


# `sbatch -v --mem=...` of a real Slurm, in MB.
MEMORY = {
    **{"0": 0, "1": 1, "1500": 1500, "1500M": 1500, "2G": 2048, "2g": 2048, "2048m": 2048},
    **{"1k": 1, "1024K": 1, "1025k": 2, "0K": 0, "1537k": 2, "3000000K": 2930, "1T": 1 << 20},
    **{"1tb": 1 << 20, "2gb": 2048, "2GB": 2048, "2Gb": 2048, "2mb": 2, "2kb": 1, " 2G": 2048},
    **{"+5": 5, "99999999999": 99999999999, "4096T": 1 << 32},
}
BAD_MEMORY = ["2GiB", "1.5G", "1.5", "", "2G ", "2 G", "-1", "G", "2X", "1P", "1PB", "1b", "1E"] + [
    "9999999999999999999999",
    "0x10",
    "2Gx",
    "2GBx",
    "12Q",
    "-4",
    "\u0665G",
]


@pytest.mark.parametrize(("text", "megabytes"), MEMORY.items())
def test_memory(text: str, megabytes: int) -> None:
    assert parse_memory(text) == megabytes


@pytest.mark.parametrize("text", BAD_MEMORY)
def test_bad_memory(text: str) -> None:
    with pytest.raises(UnitError, match=re.escape(f'"{text}"')):
        parse_memory(text)


@pytest.mark.parametrize(
    ("megabytes", "exact", "short"),
    [
        (0, "0", "0"),
        (2000, "2000M", "1.95G"),
        (6144, "6G", "6G"),
        (8000, "8000M", "7.81G"),
        (64000, "64000M", "62.50G"),  # a node of 64000 MB shows mem=62.50G
        (256000, "250G", "250G"),  # four of them mem=250G
        (1 << 20, "1T", "1T"),
        (1 << 32, "4P", "4P"),
    ],
)
def test_memory_shown(megabytes: int, exact: str, short: str) -> None:
    assert format_memory(megabytes) == exact
    assert format_memory_short(megabytes) == short


@pytest.mark.parametrize(
    ("text", "counts"),
    {
        **{"1": (1, 1), "0": (0, 0), "2-4": (2, 4), "1k": (1024, 1024), "2K": (2048, 2048)},
        **{"1m": (1 << 20, 1 << 20), "1k-2k": (1024, 2048), "-1": (1, 1), "-3": (1, 3)},
        **{" 2": (2, 2), "2 ": (2, 2)},
    }.items(),
)
def test_node_counts(text: str, counts: tuple[int, int]) -> None:
    assert parse_node_count(text) == counts


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "abc": '"abc" is not a valid node count',
        "": '"" is not a valid node count',
        "4-2": "Maximum node count 2 is less than minimum node count 4",
        "2,4": '"2,4" is not a valid node count',
        "2-4-6": '"4-6" is not a valid node count',
        "1.5": '"1.5" is not a valid node count',
        "1g": '"1g" is not a valid node count',
        "2+": '"2+" is not a valid node count',
    }.items(),
)
def test_bad_node_counts(text: str, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_node_count(text)
    assert str(caught.value) == message


def test_counts() -> None:
    assert [parse_count(text) for text in ("4", "2k", "1M")] == [4, 2048, 1 << 20]
    with pytest.raises(UnitError):
        parse_count("99999999999")


# `sbatch -v --begin=...` of a real Slurm whose clock stood near the given time (UTC).
NOW = int(datetime(2026, 11, 29, 16, 1, 44, tzinfo=UTC).timestamp())
POINTS = {
    "now": "2026-11-29T16:01:44",
    "NOW": "2026-11-29T16:01:44",
    "now+60": "2026-11-29T16:02:44",
    "now+1hour": "2026-11-29T17:01:44",
    "Now+1HOUR": "2026-11-29T17:01:44",
    "now+1hours": "2026-11-29T17:01:44",
    "now + 1 hour": "2026-11-29T17:01:44",
    "now-1hour": "2026-11-29T15:01:44",
    "now+5minute": "2026-11-29T16:06:44",
    "now+5seconds": "2026-11-29T16:01:49",
    "now+2days": "2026-12-01T16:01:44",
    "now+3weeks": "2026-12-20T16:01:44",
    "today": "2026-11-29T00:00:00",
    "tomorrow": "2026-11-30T00:00:00",
    "midnight": "2026-11-30T00:00:00",
    "noon": "2026-11-30T12:00:00",
    "teatime": "2026-11-30T16:00:00",
    "fika": "2026-11-30T15:00:00",
    "16:00": "2026-11-30T16:00:00",
    "1:30": "2026-11-30T01:30:00",
    "01:30:15": "2026-11-30T01:30:15",
    "23:59": "2026-11-29T23:59:00",
    "10:30am": "2026-11-30T10:30:00",
    "10:30 pm": "2026-11-29T22:30:00",
    "4:00PM": "2026-11-30T16:00:00",
    "16:00 tomorrow": "2026-11-30T16:00:00",
    "tomorrow 16:00": "2026-11-30T16:00:00",
    "teatime tomorrow": "2026-11-30T16:00:00",
    "16:00 2030-01-20": "2030-01-20T16:00:00",
    "2030-01-20": "2030-01-20T00:00:00",
    "2030-01-20T12:34": "2030-01-20T12:34:00",
    "2030-01-20T12:34:56": "2030-01-20T12:34:56",
    "2030-01-20 12:34": "2030-01-20T12:34:00",
    "2030-02-30": "2030-03-02T00:00:00",
    "010130": "2030-01-01T00:00:00",
    "01/01/30": "2030-01-01T00:00:00",
    "1/2/30": "2030-01-02T00:00:00",
    "01.02.30": "2030-01-02T00:00:00",
    "01/02": "2027-01-02T00:00:00",
    "0101": "2027-01-01T00:00:00",
    "uts1577836800": "2020-01-01T00:00:00",
    "2001-01-01": "2001-01-01T00:00:00",
    **dict.fromkeys(("01/01/30T10:00", "10:00-2030-01-01"), "2030-01-01T10:00:00"),
    **dict.fromkeys(("2030-01-01-noon", "2030-01-01Tnoon"), "2030-01-01T12:00:00"),
    **dict.fromkeys(("2030-01-01T", "2030-01-01-", "010130T"), "2030-01-01T00:00:00"),
}
# What Slurm's sacct took these for on 2026-11-29 at 17:45.
PAST_POINTS = {
    "23:00": "2026-11-29T23:00:00",
    "16:00": "2026-11-29T16:00:00",
    "T10:00": "2026-11-29T10:00:00",
    "teatime": "2026-11-29T16:00:00",
    "0101T10:00": "2026-01-01T10:00:00",
    "0101--10:00": "2026-01-01T10:00:00",
    "10:00-0101": "2026-01-01T10:00:00",
    "11/29": "2026-11-29T00:00:00",
    "11/30": "2026-11-30T00:00:00",
    "12/31": "2025-12-31T00:00:00",
    "12/31-": "2025-12-31T00:00:00",
}
# Text and the place that Slurm's message named.
BAD_POINTS = {
    **{"now+5min": 4, "now+1h": 4, "now+": 3, "now+hour": 3, "now+10:00": 5, "now+1:30": 4},
    **{"now+1month": 4, "today+1hour": 5, "tomorrow+1hour": 8, "noon+1hour": 4, "elevenses": 0},
    **{"25:00": 0, "24:00": 0, "10:60": 3, "10am": 2, "12pm": 2, "13pm": 0, "0am": -1, "1": 1},
    **{"2030-1-2": 0, "2030-13-01": 5, "2030-01-20T25:00": 11, "2030-01-20T12": 13},
    **{"13/01/30": 0, "01012030": 6, "01/01/2030": 8, "+1hour": 0, "tomorow": 0, "uts1": 0},
    **{"Jan 20": 0, "yesterday": 0, "": 0, "2030-01-01-1": 12, "2030-01-01x10:00": 10},
}


@pytest.mark.parametrize(("text", "shown"), POINTS.items())
def test_time_points(text: str, shown: str) -> None:
    assert format_time_point(parse_time_point(text, NOW, UTC), UTC) == shown


@pytest.mark.parametrize(("text", "shown"), PAST_POINTS.items())
def test_time_points_of_the_past(text: str, shown: str) -> None:
    now = int(datetime(2026, 11, 29, 17, 45, tzinfo=UTC).timestamp())
    assert format_time_point(parse_time_point(text, now, UTC, past=True), UTC) == shown


@pytest.mark.parametrize(("text", "place"), BAD_POINTS.items())
def test_bad_time_points(text: str, place: int) -> None:
    with pytest.raises(UnitError) as caught:
        parse_time_point(text, NOW, UTC)
    assert str(caught.value) == f"Invalid time specification (pos={place}): {text}"


def test_time_points_follow_the_zone_and_its_daylight_time() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    # 2026-11-29 23:30 UTC is already the 30th in Berlin.
    late = int(datetime(2026, 11, 29, 23, 30, tzinfo=UTC).timestamp())
    assert parse_time_point("tomorrow", late, berlin) == int(
        datetime(2026, 11, 30, 23, 0, tzinfo=UTC).timestamp()
    )
    assert parse_time_point("2026-07-01T12:00", late, berlin) == int(
        datetime(2026, 7, 1, 10, 0, tzinfo=UTC).timestamp()
    )


@given(st.one_of(st.text(max_size=20), st.from_regex(r"\A[0-9:/.\-+nowamtT ]{0,16}\Z")))
def test_any_text_gives_a_value_or_one_error(text: str) -> None:
    for parse in (
        parse_duration,
        parse_time_limit,
        parse_memory,
        parse_count,
        parse_node_count,
        lambda value: parse_time_point(value, NOW, UTC),
    ):
        try:
            parse(text)
        except UnitError as error:
            assert str(error)
