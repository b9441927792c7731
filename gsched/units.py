"""Small grammars of options and columns: time limits, points in time, sizes, counts.

All functions are pure; whoever needs a clock or a time zone passes it in. Errors are UnitError;
its text is Slurm's where Slurm prints one, else one sentence naming the value.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

MINUTE, HOUR, DAY, WEEK = 60, 3600, 86400, 7 * 86400

#: the largest limit in seconds that Slurm can tell from "no limit"
MAX_LIMIT = (1 << 32) - 2

_MEMORY_UNITS = {"": 1 << 20, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_COUNT_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


class UnitError(ValueError):
    """A value that does not follow its grammar; the text names it."""


# ---- durations -------------------------------------------------------------------------------

_CLOCK = re.compile(r"([0-9]+)(?::([0-9]+))?(?::([0-9]+))?\Z")
_DAYS = re.compile(r"([0-9]+)-(?:([0-9]+)(?::([0-9]+))?(?::([0-9]+))?)?\Z")


def parse_duration(text: str) -> int | None:
    """Seconds of "m", "m:s", "h:m:s", "d-", "d-h", "d-h:m" or "d-h:m:s"; None: without limit.

    UNLIMITED, INFINITE (any case) and negative minutes mean no limit, as do values beyond
    Slurm's 32 bits. Parts may exceed 59 (1:99 is 159 s), as in Slurm.
    """
    if len(text) > 80:
        raise UnitError(f'"{text[:80]}..." is not a valid time')
    if text.lower() in {"unlimited", "infinite"} or re.fullmatch(r"-[0-9]+", text):
        return None if text != "-0" else 0
    if found := _DAYS.match(text):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        total = days * DAY + hours * HOUR + minutes * MINUTE + seconds
    elif found := _CLOCK.match(text):
        first, second, third = found.groups()
        if third is not None:
            total = int(first) * HOUR + int(second) * MINUTE + int(third)
        else:
            total = int(first) * MINUTE + int(second or 0)
    else:
        raise UnitError(f'"{text}" is not a valid time')
    return total if total <= MAX_LIMIT else None


def parse_time_limit(text: str) -> int:
    """Seconds of a --time or MaxTime value, rounded up to whole minutes; 0: unlimited."""
    seconds = parse_duration(text)
    return 0 if seconds is None else -(-seconds // MINUTE) * MINUTE


def format_elapsed(seconds: int) -> str:
    """A duration as in squeue's %M and %l: "0:09", "12:03", "1:02:03", "1-02:03:04"."""
    if seconds < 0:
        return "INVALID"
    days, rest = divmod(seconds, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, seconds = divmod(rest, MINUTE)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"


def format_padded(seconds: int) -> str:
    """A duration as in scontrol and sacct: "00:12:03", "1-02:03:04"."""
    if seconds < 0:
        return "INVALID"
    days, rest = divmod(seconds, DAY)
    clock = f"{rest // HOUR:02}:{rest % HOUR // MINUTE:02}:{rest % MINUTE:02}"
    return f"{days}-{clock}" if days else clock


def format_limit(seconds: int) -> str:
    """A time limit as in squeue's %l: "30:00", "1-00:00:00"; 0 is "UNLIMITED"."""
    return format_elapsed(seconds) if seconds else "UNLIMITED"


def format_limit_padded(seconds: int) -> str:
    """A time limit as in scontrol: "00:30:00", "7-00:00:00"; 0 is "UNLIMITED"."""
    return format_padded(seconds) if seconds else "UNLIMITED"


# ---- sizes and counts ------------------------------------------------------------------------

_MEMORY = re.compile(r"\s*\+?([0-9]+)(?:([kmgt])b?)?\Z", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"\s*\+?([0-9]+)([km])?\s*\Z", re.IGNORECASE | re.ASCII)


def parse_memory(text: str) -> int:
    """Megabytes of "12", "12G", "12gb", "1500k": MB without a unit, K rounded up to whole MB.

    0 means all memory of a node where an option says so. Units are powers of 1024.
    """
    found = _MEMORY.match(text)
    # Beyond 18 digits no unit makes sense, and Python's own limit on digits is not met.
    if not found or len(found[1]) > 18:
        raise UnitError(f'"{text}" is not a valid memory size')
    size = int(found[1]) * _MEMORY_UNITS[(found[2] or "").lower()]
    megabytes = (size + (1 << 20) - 1) >> 20
    if megabytes >= 1 << 62:
        raise UnitError(f'"{text}" is not a valid memory size')
    return megabytes


def format_memory(megabytes: int) -> str:
    """A size without loss, as Slurm shows requests and allocations: "2000M", "4G", "1T"; "0"."""
    if megabytes == 0:
        return "0"
    for unit in "MGTP":
        if megabytes % 1024 or unit == "P":
            return f"{megabytes}{unit}"
        megabytes //= 1024
    raise AssertionError("the last unit ends the loop")


def format_memory_short(megabytes: int) -> str:
    """A size in its largest unit, as Slurm shows capacities: 64000 MB is "62.50G", "250G"."""
    if megabytes == 0:
        return "0"
    value, unit = float(megabytes), 0
    while value >= 1024 and unit < 3:
        value /= 1024
        unit += 1
    text = f"{value:.0f}" if value == int(value) else f"{value:.2f}"
    return text + "MGTP"[unit]


def parse_count(text: str) -> int:
    """A number, with k for 1024 and m for 1048576: "4", "2k"."""
    found = _COUNT.match(text)
    if not found or len(found[1]) > 18:
        raise UnitError(f'"{text}" is not a valid count')
    number = int(found[1]) * _COUNT_UNITS[(found[2] or "").lower()]
    if number >= 1 << 31:
        raise UnitError(f'"{text}" is not a valid count')
    return number


def parse_node_count(text: str) -> tuple[int, int]:
    """(fewest, most) of a --nodes value: "2" is (2, 2), "2-4" is (2, 4), "-3" is (1, 3)."""
    low, dash, high = text.partition("-")
    try:
        most = parse_count(high if dash else low)
    except UnitError:
        raise UnitError(f'"{high if dash else low}" is not a valid node count') from None
    if not dash:
        return most, most
    try:
        fewest = parse_count(low) if low else 1
    except UnitError:
        raise UnitError(f'"{low}" is not a valid node count') from None
    if most < fewest:
        raise UnitError(
            f"Maximum node count {most} is less than minimum node count {fewest}"
        ) from None
    return fewest, most


# ---- points in time --------------------------------------------------------------------------

_KEYWORDS = ("tomorrow", "midnight", "teatime", "today", "noon", "fika", "now", "uts")
_JOINT = rf"[\s-]+|t(?![a-z])|t(?={'|'.join(_KEYWORDS)})"
_DAY_TIMES = {"midnight": 0, "noon": 12 * HOUR, "fika": 15 * HOUR, "teatime": 16 * HOUR}
_DELTA_UNITS = {
    **dict.fromkeys(("second", "seconds"), 1),
    **dict.fromkeys(("minute", "minutes"), MINUTE),
    **dict.fromkeys(("hour", "hours"), HOUR),
    **dict.fromkeys(("day", "days"), DAY),
    **dict.fromkeys(("week", "weeks"), WEEK),
}


class _Wrong(Exception):
    """Where the text stops making sense."""

    def __init__(self, place: int) -> None:
        self.place = place


class _TimeParser:
    """One pass over a time specification; `place` is how far it got."""

    def __init__(self, text: str, now: int, today: datetime, past: bool) -> None:
        self.text = text
        self.low = text.lower()
        self.now = now
        self.today = today
        self.past = past
        self.place = 0
        #: seconds into the day, and the day, where said
        self.clock: int | None = None
        self.date: datetime | None = None
        #: a finished point in time (`now`, `uts`)
        self.point: int | None = None

    def match(self, pattern: str) -> re.Match[str] | None:
        return re.compile(pattern, re.ASCII).match(self.low, self.place)

    def run(self) -> None:
        while True:
            # A date and a time, in either order, are joined by a blank, "T" or "-".
            while (found := self.match(_JOINT)) and not self.keyword_here():
                self.place = found.end()
            if self.place >= len(self.low):
                return
            self.token()

    def token(self) -> None:
        start = self.place
        if word := self.keyword_here():
            self.place += len(word)
            return self.keyword(word, start)
        if self.match(r"[0-9]{1,2}:"):
            return self.time_of_day()
        if found := self.match(r"([0-9]{4})-([0-9]{2})-([0-9]{2})"):
            self.place = found.end()
            return self.set_date(int(found[1]), int(found[2]), int(found[3]), start + 5, start + 8)
        if self.match(r"[0-9]"):
            return self.month_first()
        raise _Wrong(start)

    def keyword_here(self) -> str:
        return next((word for word in _KEYWORDS if self.low.startswith(word, self.place)), "")

    def keyword(self, word: str, start: int) -> None:
        if word == "now":
            self.point = self.now + self.delta()
        elif word == "uts":
            found = self.match(r"[0-9]{6,11}")
            if not found:
                raise _Wrong(start)
            self.place = found.end()
            self.point = int(found[0])
        elif word == "today":
            self.date = self.today
        elif word == "tomorrow":
            self.date = self.today + timedelta(days=1)
        else:
            self.clock = _DAY_TIMES[word]

    def delta(self) -> int:
        """What follows `now`: a sign, a number and perhaps a unit."""
        sign = self.match(r"\s*([+-])")
        if not sign:
            return 0
        number = re.compile(r"\s*([0-9]{1,10})", re.ASCII).match(self.low, sign.end())
        if not number:
            raise _Wrong(sign.start(1))
        self.place = number.end()
        size = 1
        if unit := self.match(r"\s*([a-z]+)"):
            if unit[1] not in _DELTA_UNITS:
                raise _Wrong(number.end() - 1)
            size = _DELTA_UNITS[unit[1]]
            self.place = unit.end()
        elif self.place < len(self.low) and not self.match(r"\s"):
            raise _Wrong(number.end() - 1)
        seconds = int(number[1]) * size
        return seconds if sign[1] == "+" else -seconds

    def time_of_day(self) -> None:
        """HH:MM[:SS] with AM or PM behind it."""
        start = self.place
        hour = self.match(r"[0-9]{1,2}")
        if not hour or int(hour[0]) > 23:
            raise _Wrong(start)
        minute = self.match(r"[0-9]{1,2}:([0-9]{2})")
        if not minute:
            raise _Wrong(hour.end())
        if int(minute[1]) > 59:
            raise _Wrong(minute.start(1))
        self.place = minute.end()
        seconds = int(hour[0]) * HOUR + int(minute[1]) * MINUTE
        if second := self.match(r":([0-9]{2})"):
            if int(second[1]) > 59:
                raise _Wrong(second.start(1))
            self.place = second.end()
            seconds += int(second[1])
        if half := self.match(r"\s*([ap])m"):
            if int(hour[0]) > 12:
                raise _Wrong(half.start(1))
            self.place = half.end()
            seconds = seconds % (12 * HOUR) + (12 * HOUR if half[1] == "p" else 0)
        self.clock = seconds

    def month_first(self) -> None:
        """MMDD[YY], MM/DD[/YY], MM.DD[.YY].

        A date without a year is the next one to come; one in the past is this year's, and last
        year's where its month has not begun yet.
        """
        start = self.place
        found = self.match(r"([0-9]{1,2})([/.])([0-9]{1,2})(?:\2([0-9]{2}))?")
        packed = self.match(r"([0-9]{2})([0-9]{2})([0-9]{2})?")
        if found:
            month, day, year, day_at = found[1], found[3], found[4], found.start(3)
        elif packed:
            found = packed
            month, day, year, day_at = packed[1], packed[2], packed[3], packed.start(2)
        else:
            number = self.match(r"[0-9]{1,2}")
            assert number is not None
            if int(number[0]) == 0:
                raise _Wrong(start - 1)
            raise _Wrong(start if int(number[0]) > 12 else number.end())
        self.place = found.end()
        if year is not None:
            self.set_date(2000 + int(year), int(month), int(day), start, day_at)
            return
        if self.past:
            last = int(month) > self.today.month
            return self.set_date(self.today.year - last, int(month), int(day), start, day_at)
        self.set_date(self.today.year, int(month), int(day), start, day_at)
        if self.date is not None and self.date < self.today:
            self.set_date(self.today.year + 1, int(month), int(day), start, day_at)

    def set_date(self, year: int, month: int, day: int, month_at: int, day_at: int) -> None:
        if not 1 <= month <= 12 or not 1900 <= year:
            raise _Wrong(month_at)
        if not 1 <= day <= 31:
            raise _Wrong(day_at)
        # The 30th of February is the 2nd of March, as the C library has it.
        self.date = datetime(year, month, 1) + timedelta(days=day - 1)


def parse_time_point(text: str, now: int, tz: tzinfo | None = None, *, past: bool = False) -> int:
    """Epoch seconds of a --begin, --deadline or similar value.

    `now[+-N[unit]]`, HH:MM[:SS][AM|PM], today, tomorrow, midnight, noon, fika, teatime,
    YYYY-MM-DD[THH:MM[:SS]], MMDD[YY], MM/DD[/YY], MM.DD[.YY], uts<epoch seconds>; a date and a
    time may be combined, in either order, by a blank, "T" or "-". A time of day alone is the next
    one to come, and so is a date without a year; with `past` they are today's and this year's, or
    last year's where this year's month is still to come. `tz` None: the zone of the process.
    Raises UnitError with Slurm's sentence: the caller adds "Invalid --begin specification".
    """
    local = datetime.fromtimestamp(now, tz).replace(tzinfo=None)
    today = local.replace(hour=0, minute=0, second=0, microsecond=0)
    parser = _TimeParser(text, now, today, past)
    try:
        parser.run()
        if parser.point is not None:
            return parser.point
        if parser.date is None and parser.clock is None:
            raise _Wrong(0)
        clock = parser.clock or 0
        date = parser.date
        if date is None:
            date = today
            if not past and today + timedelta(seconds=clock) < local:
                date = today + timedelta(days=1)
        moment = date + timedelta(seconds=clock)
        return int(moment.replace(tzinfo=tz).timestamp())
    except _Wrong as wrong:
        raise UnitError(f"Invalid time specification (pos={wrong.place}): {text}") from None
    except (OverflowError, ValueError, OSError):
        raise UnitError(f"Invalid time specification (pos=0): {text}") from None


def format_time_point(epoch: int, tz: tzinfo | None = None) -> str:
    """A point in time as Slurm prints it: "2026-11-29T13:54:22"."""
    return datetime.fromtimestamp(epoch, tz).strftime("%Y-%m-%dT%H:%M:%S")


_AGE = re.compile(r"(\d{1,6})\s*(hours?|days?|months?|)", re.I | re.ASCII)


def parse_age(text: str) -> tuple[int, str] | None:
    """How old records may get, as in PurgeJobAfter: (number, "hour", "day" or "month") of
    "12months", "30days", "24hours", or of a number of months; None: it is none of these."""
    match = _AGE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        return None
    return int(match[1]), match[2].lower().rstrip("s") or "month"
