"""When PriorityUsageResetPeriod sets usage to zero: midnights of this machine's zone."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

#: PriorityUsageResetPeriod
PERIODS = ("NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY")


def last_reset(period: str, now: float) -> float:
    """When PriorityUsageResetPeriod last set all to zero, in the zone of this machine; 0 never."""
    name = period.upper()
    return _midnight(name, int(now)) if name in PERIODS[2:] else 0.0


@lru_cache(maxsize=64)
def _midnight(name: str, now: int) -> float:
    day = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "WEEKLY":
        day -= timedelta(days=day.isoweekday() % 7)
    elif name == "MONTHLY":
        day = day.replace(day=1)
    elif name == "QUARTERLY":
        day = day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)
    elif name == "YEARLY":
        day = day.replace(day=1, month=1)
    return day.timestamp()
