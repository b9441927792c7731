"""How commands write times, sizes and missing values: one function per form Slurm has."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gsched.tres import megabytes


def elapsed(seconds: int) -> str:
    """`squeue`'s duration: days and hours only as needed ("0:07", "1:00:00", "7-00:00:00").

    As `gsched.units.format_elapsed`, whose module costs a tenth of a command's start.
    """
    if seconds < 0:
        return "INVALID"
    minutes, secs = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{secs:02d}"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}:{minutes:02d}:{secs:02d}"
    return f"{hours // 24}-{hours % 24:02d}:{minutes:02d}:{secs:02d}"


def duration(seconds: int) -> str:
    """`scontrol`'s duration: hours always, in two digits ("00:20:00", "7-00:00:00")."""
    if seconds < 0:
        return "INVALID"
    hours, rest = divmod(seconds, 3600)
    clock = f"{hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours // 24}-{clock}" if hours >= 24 else clock


def timestamp(when: int, env: Mapping[str, str], now: float, none: str = "N/A") -> str:
    """A point in local time as SLURM_TIME_FORMAT wants it; `none` where there is none (0).

    "standard" (or nothing) is ISO 8601, "relative" depends on how far off the day is, anything
    else is a strftime format.
    """
    if when <= 0:
        return none
    try:
        local = time.localtime(when)
    except (OverflowError, OSError, ValueError):
        return none
    wanted = env.get("SLURM_TIME_FORMAT", "")
    if not wanted or wanted.lower() == "standard":
        return time.strftime("%Y-%m-%dT%H:%M:%S", local)
    if wanted.lower() == "relative":
        return _relative(local, time.localtime(now))
    try:
        return time.strftime(wanted, local)
    except ValueError:
        return time.strftime("%Y-%m-%dT%H:%M:%S", local)


def _relative(local: time.struct_time, today: time.struct_time) -> str:
    days = _day_number(local) - _day_number(today)
    if days == 0:
        return time.strftime("%H:%M:%S", local)
    clock = time.strftime("%H:%M", local)
    if days == 1:
        return f"Tomorr {clock}"
    if days == -1:
        return f"Ystday {clock}"
    if 1 < days < 7:
        return time.strftime("%a %H:%M", local)
    if local.tm_year == today.tm_year:
        return f"{local.tm_mday} {time.strftime('%b %H:%M', local)}"
    return f"{local.tm_mday} {time.strftime('%b %Y', local)}"


def _day_number(moment: time.struct_time) -> int:
    """Days since some day long ago, by the calendar (a day may have 23 or 25 hours)."""
    before = moment.tm_year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 + moment.tm_yday


def date_line(now: float) -> str:
    """The line above long reports: "Sun Nov 29 13:51:55 2026" with its line end."""
    return time.asctime(time.localtime(now)) + "\n"


def or_null(text: str) -> str:
    """The text, or Slurm's "(null)" where there is none."""
    return text or "(null)"


__all__ = ["date_line", "duration", "elapsed", "megabytes", "or_null", "timestamp"]
