"""Advance reservations: create, update and delete; and what time does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gsched import features, hostlist, licenses, reserve
from gsched.ledger import jobs, offered, reserve_keep, reserve_nodes, suspend, tell
from gsched.ledger.outcome import Outcome
from gsched.ledger.reserve_nodes import NotChosen
from gsched.model import Hold, Job, JobState, Reservation, ReservedNode
from gsched.wire.messages import Call, Done, Refused, UpdateReservation

if TYPE_CHECKING:
    from gsched.ledger.ledger import Ledger

INVALID = "Requested reservation is invalid"
IN_USE = "Requested reservation is in use"
STARTED = "Reservation already started"
NOT_SKIPABLE = "Reservation given is not skipable, try deleting instead"
BAD_NODE = "Invalid node name specified"
BAD_TIME = "Invalid time specified"
BAD_PARTITION = "Invalid partition name specified"
BAD_USER = "Invalid user id"
BAD_LICENSE = "Invalid license specification"
NOT_SUPPORTED = "Requested operation not supported on this system"
#: seconds between two looks at reservations that end once they are idle
IDLE_LOOK = 30.0

#: seconds by which one that floats is ahead of its time, so that it never lags behind
AHEAD = 2.0

#: what says of which nodes, or of how many, a reservation is
_PLACES = {"nodes", "nodecnt", "corecnt", "gpus"}


class _Wrong(Exception):
    """Why a reservation cannot be so; the text is Slurm's sentence."""


def change(
    led: Ledger, call: Call, write: UpdateReservation, now: float, out: Outcome
) -> Done | Refused:
    """For administrators; USER_DELETE lets who may use one delete it. Nothing is changed by a
    refusal."""
    if not led.is_admin(call.uid) and not _may_delete(led, call, write):
        return Refused(call.request_id, BAD_USER, "ESLURM_USER_ID_MISSING")
    try:
        if write.verb == "create":
            name = _create(led, call, write, now, out)
        elif write.verb == "update":
            name = _update(led, write, now, out)
        elif write.verb == "delete":
            name = _delete(led, write.name, now, out)
        else:
            raise _Wrong(f"Requested operation {write.verb} is not supported here")
    except (_Wrong, NotChosen) as wrong:
        code = "ESLURM_RESERVATION_BUSY" if isinstance(wrong, NotChosen) else ""
        return Refused(call.request_id, str(wrong), code)
    out.schedule = True
    return Done(call.request_id, 0, data=name)


def _may_delete(led: Ledger, call: Call, write: UpdateReservation) -> bool:
    resv = led.reservations.get(write.name)
    if write.verb != "delete" or resv is None or "USER_DELETE" not in resv.flags:
        return False
    accounts = led.book.lineage(led.book.default_account(call.user))
    return reserve.may_use(resv, call.user, call.groups, accounts)


# ---- create, update, delete -------------------------------------------------------------------


def _create(led: Ledger, call: Call, write: UpdateReservation, now: float, out: Outcome) -> str:
    name = write.name
    if name and name in led.reservations:
        raise _Wrong("Requested reservation name is duplicate")
    resv = Reservation(name, 0, 0, created_by=call.uid, created=int(now))
    _set(led, resv, write.fields, now)
    number = led.meta.next_reservation
    if not resv.name:
        resv.name, number = _new_name(led, resv)
    if not reserve.good_name(resv.name):
        raise _Wrong(INVALID)
    resv.nodes = _nodes(led, resv, write.fields)
    _licensed(led, resv, resv)
    # Every reservation uses up a number, as in Slurm; one that is refused does not.
    led.meta.next_reservation = number + 1
    _put(led, resv, out)
    _told(led, resv, out)
    return resv.name


def _new_name(led: Ledger, resv: Reservation) -> tuple[str, int]:
    """The first user or account and a number, as Slurm names them; the number."""
    first = [*resv.accounts, *resv.users, *resv.groups][0].lstrip("-")
    number = led.meta.next_reservation
    while f"{first}_{number}" in led.reservations:
        number += 1
    return f"{first}_{number}", number


def _update(led: Ledger, write: UpdateReservation, now: float, out: Outcome) -> str:
    old = led.reservations.get(write.name)
    if old is None:
        raise _Wrong(INVALID)
    fields = dict(write.fields)
    resv = msgspec.structs.replace(old)
    if fields.pop("skip", None) is not None:
        later = reserve.advanced(resv, resv.end)
        if later is None:
            raise _Wrong(NOT_SKIPABLE)
        resv = later
    elif fields.get("starttime") and (old.active(now) or old.floats):
        raise _Wrong(STARTED)
    if fields.get("nodes") == "":
        # It keeps its nodes, which were not named by anybody from here on.
        del fields["nodes"]
        resv.flags = reserve.ordered({*resv.flags} - {"SPEC_NODES", "ALL_NODES"})
    _set(led, resv, fields, now)
    placed = bool(_PLACES & fields.keys())
    if old.any_nodes and (placed or not resv.any_nodes or not resv.licenses):
        raise _Wrong(INVALID)
    if "licenses" in fields:
        _licensed(led, resv, old)
    if fields.get("features") and not placed:
        raise _Wrong(NOT_SUPPORTED)
    timed = {"starttime", "endtime", "duration"}
    if placed:
        resv.nodes = _nodes(led, resv, fields)
    elif timed & fields.keys() or {"flags+", "flags-", "flags"} & fields.keys():
        # The same nodes at another time: others may have them then.
        for share in old.nodes:
            left = reserve_nodes.rest(led, resv, share.node)
            if left.reserved:
                raise NotChosen(reserve_nodes.OVERLAPS)
    _put(led, resv, out)
    _told(led, resv, out)
    for job in _running(led, resv.name):
        _limit(led, job, now, out)
    return resv.name


def _delete(led: Ledger, name: str, now: float, out: Outcome) -> str:
    if name not in led.reservations:
        raise _Wrong(INVALID)
    if any(_concerns(job, name) for job in led.jobs.values()):
        raise _Wrong(IN_USE)
    _drop(led, name, now, out)
    return name


def _concerns(job: Job, name: str) -> bool:
    if job.finished and not job.completing:
        return False
    if job.state == JobState.PENDING:
        return name in reserve.names(job.spec.reservation)
    return job.reservation == name


def _put(led: Ledger, resv: Reservation, out: Outcome) -> None:
    out.puts["reservation", resv.name.encode()] = resv
    led.put_meta(out)
    led.reservations[resv.name] = resv
    tell.reservation(led, resv, False, led.meta.last_now, out)


def _told(led: Ledger, resv: Reservation, out: Outcome) -> None:
    """The cluster plans around it as it is now, and its jobs are looked at anew."""
    led.cluster.reserve(reserve.at(resv, led.meta.last_now))
    _requeue(led, resv.name, "MAGNETIC" in resv.flags)
    if not resv.floats:
        out.wake(resv.start)
        out.wake(resv.end)


def _requeue(led: Ledger, name: str, magnetic: bool) -> None:
    for job in led.jobs.values():
        if job.state != JobState.PENDING:
            continue
        if name in reserve.names(job.spec.reservation) or (magnetic and not job.spec.reservation):
            led.cluster.queue_job(job)


def _drop(led: Ledger, name: str, now: float, out: Outcome) -> None:
    """It is gone: jobs that wait for nothing else are held, as in Slurm, or run outside."""
    resv = led.reservations.pop(name)
    tell.reservation(led, resv, True, now, out)
    out.puts["reservation", name.encode()] = None
    led.cluster.unreserve(name)
    for job in led.jobs.values():
        if job.state != JobState.PENDING:
            continue
        named = reserve.names(job.spec.reservation)
        if name in named:
            rest = ",".join(one for one in named if one != name)
            job.spec = msgspec.structs.replace(job.spec, reservation=rest)
            if not rest and "NO_HOLD_JOBS_AFTER_END" not in resv.flags and not job.held:
                job.held = Hold.USER
                job.priority = 0
                job.reason = reserve.deleted(name)
            led.put_job(job, out)
        elif named or "MAGNETIC" not in resv.flags:
            continue
        led.cluster.queue_job(job)
    out.schedule = True


# ---- fields -------------------------------------------------------------------------------------


def _set(led: Ledger, resv: Reservation, fields: dict[str, str], now: float) -> None:
    """Everything but the nodes."""
    _flags(resv, fields)
    _times(resv, fields, now)
    if "TIME_FLOAT" in resv.flags:
        if reserve.repeat(resv.flags):
            raise _Wrong(NOT_SUPPORTED)
        resv.floats = resv.floats or resv.start - int(now)
    for key, value in fields.items():
        base = key.rstrip("+-")
        if base in ("users", "groups", "accounts"):
            setattr(resv, base, _people(getattr(resv, base), key, value))
        elif base == "partitionname":
            if value and value not in led.config.partitions:
                raise _Wrong(BAD_PARTITION)
            resv.partition = value
        elif base == "qos":
            resv.qos = _names(value)
            if any(name not in led.book.qos for name in resv.qos):
                raise _Wrong("Invalid qos specification")
        elif base == "allowedpartitions":
            resv.partitions = _names(value)
            if any(name not in led.config.partitions for name in resv.partitions):
                raise _Wrong(BAD_PARTITION)
        elif base == "licenses":
            if not value and resv.licenses:
                raise _Wrong(BAD_LICENSE)
            resv.licenses = value
        elif base == "features":
            if value:
                try:
                    features.parse(value)
                except features.FeatureError:
                    raise _Wrong("Invalid feature specification") from None
            resv.features = value
        elif base == "maxstartdelay":
            resv.max_start_delay = _int(value)
        elif base == "nodecnt":
            resv.node_count = _some(value)
        elif base == "corecnt":
            resv.core_counts = tuple(_int(one) for one in value.split(","))
        elif base == "gpus":
            kind, _, number = value.rpartition(":")
            resv.gpu_type, resv.gpu_count = kind, _some(number)
    if resv.users and resv.groups:
        raise _Wrong("Users and Groups are mutually exclusive")
    if not (resv.users or resv.groups or resv.accounts or resv.qos or resv.partitions):
        raise _Wrong("Reservation request lacks users, groups or accounts")


def _names(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, value.split(","))))


def _licensed(led: Ledger, resv: Reservation, old: Reservation) -> None:
    """The licences it keeps exist, and no other reservation keeps them then."""
    if not resv.licenses:
        return
    try:
        choices = licenses.parse(resv.licenses)
    except licenses.LicenseError:
        raise _Wrong(BAD_LICENSE) from None
    moment = reserve.at(resv, led.meta.last_now)
    for name, count in choices[0].items():
        others = max(
            led.cluster.licenses_reserved(name, start, end, but=old.name)
            for start, end in reserve.spans(moment)
        )
        if len(choices) > 1 or others + count > offered.licenses(led).get(name, 0):
            raise _Wrong(BAD_LICENSE)


def _int(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > 12:
        raise _Wrong(f"Invalid number: {value}")
    return int(value)


def _some(value: str) -> int:
    """A number of things to be kept: of none there is no reservation."""
    number = _int(value)
    if not number:
        raise _Wrong(INVALID)
    return number


def _people(old: tuple[str, ...], key: str, value: str) -> tuple[str, ...]:
    names = [one for one in value.split(",") if one]
    if key.endswith("+"):
        return tuple(dict.fromkeys([*old, *names]))
    if key.endswith("-"):
        if not set(names) <= set(old):
            raise _Wrong(BAD_USER)
        return tuple(one for one in old if one not in names)
    denied = [one.startswith("-") for one in names]
    if any(denied) and not all(denied):
        raise _Wrong(BAD_USER)
    return tuple(dict.fromkeys(names))


def _flags(resv: Reservation, fields: dict[str, str]) -> None:
    for key in ("flags", "flags+", "flags-"):
        if key not in fields:
            continue
        words = set()
        for item in filter(None, fields[key].split(",")):
            word, _, value = item.partition("=")
            flag = reserve.flag(word)
            if flag is None:
                raise _Wrong(f"Invalid reservation flag {word}")
            if flag in reserve.UNSUPPORTED:
                raise _Wrong(f"Reservations with flag {flag} are not supported here")
            if flag == "PURGE_COMP":
                resv.purge_comp = _int(value) if value else reserve.PURGE_DEFAULT
            words.add(flag)
        shown = {"SPEC_NODES", "ALL_NODES"} & set(resv.flags)
        was = set(resv.flags)
        mine = was | words if key == "flags+" else was - words if key == "flags-" else words | shown
        resv.flags = reserve.ordered(mine)
        if key == "flags-" and words & reserve.LASTING:
            raise _Wrong(f"Reservation flag {min(words & reserve.LASTING)} cannot be removed")
        if "TIME_FLOAT" in resv.flags and not resv.floats and resv.nodes:
            raise _Wrong("Reservation flag TIME_FLOAT cannot be added")
        if "PURGE_COMP" not in resv.flags:
            resv.purge_comp = resv.idle_since = 0
        if sum(word in resv.flags for word in reserve.REPEATS) > 1:
            raise _Wrong("A reservation repeats in one way only")


def _times(resv: Reservation, fields: dict[str, str], now: float) -> None:
    """Epoch seconds and seconds; a duration counts more than an end that stays as it was."""
    start, end, long = (fields.get(key, "") for key in ("starttime", "endtime", "duration"))
    was = resv.duration
    if start:
        resv.start = _int(start)
        if resv.start < int(now) - 60:
            raise _Wrong(BAD_TIME)
        resv.end = resv.start + was
    change = fields.get("duration+", "") or fields.get("duration-", "")
    if end:
        resv.end = _int(end)
    elif long:
        resv.end = resv.start + _int(long)
    elif change:
        resv.end += _int(change) * (1 if fields.get("duration+") else -1)
    if resv.end <= resv.start or resv.end <= now or resv.end > reserve.LATEST:
        raise _Wrong(BAD_TIME)


def _nodes(led: Ledger, resv: Reservation, fields: dict[str, str]) -> tuple[ReservedNode, ...]:
    """The nodes it keeps, as asked for."""
    if resv.any_nodes:
        if not resv.licenses:
            raise _Wrong(INVALID)
        resv.partition, resv.node_count, resv.core_counts, resv.gpu_count = "", 0, (), 0
        return ()
    if not any(fields.get(key) for key in _PLACES):
        raise _Wrong(BAD_NODE if resv.licenses else INVALID)
    text = fields.get("nodes", "")
    if text and {"REPLACE", "REPLACE_DOWN"} & set(resv.flags):
        raise _Wrong(BAD_NODE)
    flags = set(resv.flags) - {"SPEC_NODES", "ALL_NODES"}
    named: list[str] = []
    if text.lower() == "all":
        flags.add("SPEC_NODES")
        if resv.partition:
            flags.add("PART_NODES")
            named = list(led.config.partitions[resv.partition].nodes)
        else:
            flags.add("ALL_NODES")
            named = list(led.config.nodes)
    elif text:
        try:
            named = list(dict.fromkeys(hostlist.expand(text)))
        except hostlist.HostlistError:
            raise _Wrong(BAD_NODE) from None
        flags.add("SPEC_NODES")
    if any(name not in led.config.nodes for name in named):
        raise _Wrong(BAD_NODE)
    resv.flags = reserve.ordered(flags)
    if not named and not resv.partition:
        if not led.config.default_partition:
            raise _Wrong(BAD_PARTITION)
        resv.partition = led.config.default_partition
    counts = resv.core_counts
    if named and len(counts) > 1 and len(counts) != len(named):
        raise _Wrong(f"CoreCnt has {len(counts)} numbers for {len(named)} nodes")
    return reserve_nodes.choose(led, resv, named)


# ---- jobs ---------------------------------------------------------------------------------------


def _running(led: Ledger, name: str) -> list[Job]:
    return [
        job
        for job in led.jobs.values()
        if job.reservation == name and job.state in (JobState.RUNNING, JobState.SUSPENDED)
    ]


def _limit(led: Ledger, job: Job, now: float, out: Outcome) -> None:
    """The reservation's end has moved: so has that of a job in it."""
    jobs.set_end(led, job)
    led.put_job(job, out)
    suspend.tell(led, job, now, out)


# ---- time ---------------------------------------------------------------------------------------


def tick(led: Ledger, now: float, out: Outcome) -> None:
    """Reservations begin and end, repeat, and go. Cost: reservations; where one ends, jobs."""
    looks = now >= led.keep_look
    for resv in list(led.reservations.values()):
        if resv.floats:
            # Its time has moved on, which is no fact to be stored. A pass before the next tick
            # finds it where it will be then: who may start at one time may at any.
            led.cluster.move(reserve.at(resv, now + AHEAD))
            continue
        other = reserve_keep.replaced(led, resv, now) if looks else None
        if other is not None:
            _put(led, other, out)
            led.cluster.reserve(other)
            out.schedule = True
            resv = other
        active = resv.active(now)
        if active != (resv.name in led.in_force):
            led.in_force ^= {resv.name}
            out.schedule = True
        if resv.end <= now:
            later = reserve.advanced(resv, now)
            if later is None:
                _drop(led, resv.name, now, out)
                continue
            _put(led, later, out)
            led.cluster.reserve(later)
            if later.any_nodes:
                # Its jobs may start at another time.
                _requeue(led, later.name, "MAGNETIC" in later.flags)
            out.schedule = True
            resv = later
        elif resv.purge_comp and active and now >= led.idle_look:
            if _idle(led, resv, now, out):
                continue
        out.wake(resv.end if resv.active(now) else resv.start)
    led.in_force &= led.reservations.keys()
    if looks:
        led.keep_look = now + reserve_keep.LOOK
    if now >= led.idle_look:
        led.idle_look = now + IDLE_LOOK


def _idle(led: Ledger, resv: Reservation, now: float, out: Outcome) -> bool:
    """PURGE_COMP: whether it has ended because nobody uses it."""
    if any(_concerns(job, resv.name) for job in led.jobs.values()):
        if resv.idle_since:
            resv.idle_since = 0
            _put(led, resv, out)
        return False
    if not resv.idle_since:
        resv.idle_since = int(now)
        _put(led, resv, out)
    if now - resv.idle_since < resv.purge_comp:
        return False
    later = reserve.advanced(resv, resv.end)
    out.log.append(("info", f"reservation {resv.name} was idle: ended"))
    if later is None:
        _drop(led, resv.name, now, out)
        return True
    _put(led, later, out)
    led.cluster.reserve(later)
    out.schedule = True
    return False
