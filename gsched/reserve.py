"""The rules of advance reservations: flags, repeats, who may use one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from gsched.model.reservation import Reservation

#: flags in the order in which Slurm shows them
FLAGS = (
    *("MAINT", "FLEX", "OVERLAP", "IGNORE_JOBS", "HOURLY", "DAILY", "WEEKDAY", "WEEKEND"),
    *("WEEKLY", "SPEC_NODES", "ALL_NODES", "ANY_NODES", "STATIC", "FIRST_CORES", "PART_NODES"),
    *("TIME_FLOAT", "REPLACE", "REPLACE_DOWN", "PURGE_COMP", "NO_HOLD_JOBS_AFTER_END"),
    *("MAGNETIC", "USER_DELETE"),
)
#: other words for flags
_ALSO = {
    "STATIC_ALLOC": "STATIC",
    "NO_HOLD_JOBS_AFTER": "NO_HOLD_JOBS_AFTER_END",
    "LICENSE_ONLY": "ANY_NODES",
}
#: what Slurm has and is not done here
UNSUPPORTED = frozenset({"FORCE_START"})
#: flags that cannot be taken away again; of TIME_FLOAT neither can it be given later
LASTING = frozenset(
    {"FIRST_CORES", "NO_HOLD_JOBS_AFTER_END", "OVERLAP", "REPLACE", "REPLACE_DOWN", "TIME_FLOAT"}
)
REPEATS = ("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY")
#: PURGE_COMP without a time, seconds
PURGE_DEFAULT = 300
#: times to come of one that repeats that are planned around
AHEAD = 14
#: end of one without: a year, as Slurm has it
YEAR = 365 * 86400
#: no reservation is longer, or begins or ends later: far within the calendar, repeats and all
LATEST = 1 << 34
#: bytes of a name, which is a key of the store
NAME_BYTES = 200


def flag(word: str) -> str | None:
    """The flag that a word means; None: there is no such. The unsupported are known."""
    low = word.upper()
    low = _ALSO.get(low, low)
    if low in UNSUPPORTED:
        return low
    # What says only how the nodes were chosen is not for users to set.
    return low if low in FLAGS and low not in ("SPEC_NODES", "ALL_NODES") else None


def good_name(name: str) -> bool:
    """Whether a reservation may be called so: a job can ask for it, and the store can keep it."""
    return name.isprintable() and not set(name) & set(", ") and len(name.encode()) <= NAME_BYTES


def ordered(flags: Iterable[str]) -> tuple[str, ...]:
    """Flags in Slurm's order, each once."""
    found = set(flags)
    return tuple(word for word in FLAGS if word in found)


def repeat(flags: Collection[str]) -> str:
    """How it repeats; "" it does not."""
    return next((word for word in REPEATS if word in flags), "")


def next_start(how: str, start: int) -> int:
    """When one that repeats begins after this time: at the same time of day, whatever clocks do."""
    if how == "HOURLY":
        return start + 3600
    moment = datetime.fromtimestamp(start)
    while True:
        moment += timedelta(days=7 if how == "WEEKLY" else 1)
        day = moment.weekday()
        if how in ("DAILY", "WEEKLY") or (day < 5) == (how == "WEEKDAY"):
            return int(moment.timestamp())


def at(resv: Reservation, now: float) -> Reservation:
    """The reservation as it stands now: one that floats keeps ahead of the time."""
    if not resv.floats:
        return resv
    start = int(now) + resv.floats
    return msgspec.structs.replace(resv, start=start, end=start + resv.duration)


def advanced(resv: Reservation, now: float) -> Reservation | None:
    """The same at its next time, once this one is over; None: there is none."""
    how = repeat(resv.flags)
    if not how:
        return None
    start = resv.start
    while start + resv.duration <= now:
        start = next_start(how, start)
    return msgspec.structs.replace(resv, start=start, end=start + resv.duration, idle_since=0)


def spans(resv: Reservation) -> list[tuple[int, int]]:
    """Times at which it is in force: this one, and some that follow."""
    found = [(resv.start, resv.end)]
    how, start = repeat(resv.flags), resv.start
    for _ in range(AHEAD if how else 0):
        start = next_start(how, start)
        # One that is longer than its period is always in force.
        if start < found[-1][1]:
            found[-1] = (found[-1][0], start + resv.duration)
        else:
            found.append((start, start + resv.duration))
    return found


def overlap(one: Reservation, other: Reservation) -> bool:
    """Whether both are in force at some time."""
    mine, others = spans(one), spans(other)
    return any(a < d and c < b for a, b in mine for c, d in others)


def names(text: str) -> tuple[str, ...]:
    """Reservations that a job names."""
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def takes(resv: Reservation, qos: str, partitions: Collection[str]) -> bool:
    """Whether jobs of a QOS in one of these partitions may use it."""
    return (not resv.qos or (qos or "normal") in resv.qos) and (
        not resv.partitions or not set(resv.partitions).isdisjoint(partitions)
    )


def may_use(
    resv: Reservation, user: str, groups: Collection[str], accounts: Collection[str]
) -> bool:
    """Whether a user's jobs under an account, given with those above it, may use it."""
    people = True
    if resv.users:
        people = _listed(resv.users, (user,))
    elif resv.groups:
        people = _listed(resv.groups, groups)
    return people and (not resv.accounts or _listed(resv.accounts, accounts))


def _listed(allowed: tuple[str, ...], mine: Collection[str]) -> bool:
    if allowed[0].startswith("-"):
        return not any("-" + one in allowed for one in mine)
    return any(one in allowed for one in mine)


def deleted(name: str) -> str:
    """The reason of a job that is held because its reservation is gone."""
    return f"Reservation {name} was deleted"


def is_deleted(reason: str) -> bool:
    """Whether a job's reason is that."""
    return reason.startswith("Reservation ") and reason.endswith(" was deleted")
