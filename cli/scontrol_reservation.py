"""scontrol's create, update, delete and show of advance reservations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gsched.wire.messages import Done, Refused, UpdateReservation
from gsched_cli.common import Reader, Streams
from gsched_cli.stop import UNREACHABLE, Stop

if TYPE_CHECKING:
    from gsched.config import Config
    from gsched.model import Reservation

NAME = "scontrol"
_ENTITY = ("reservationname", "reservation")
#: keys, and how few letters of each are enough
_KEYS = {
    "starttime": 1,
    "endtime": 1,
    "duration": 1,
    "nodes": 5,
    "nodelist": 5,
    "nodecnt": 5,
    "nodecount": 5,
    "corecnt": 5,
    "corecount": 5,
    "partitionname": 1,
    "tres": 1,
    "users": 1,
    "groups": 1,
    "accounts": 1,
    "features": 2,
    "flags": 2,
    "maxstartdelay": 1,
    "licenses": 1,
    "burstbuffer": 1,
    "qos": 1,
    "allowedpartitions": 2,
    "skip": 1,
}
_WHO = ("users", "groups", "accounts", "qos", "allowedpartitions")
_PLACES = ("nodes", "nodecnt", "gpus")
_SAME = {"nodelist": "nodes", "nodecount": "nodecnt", "corecount": "corecnt"}
#: what would have to be kept beside nodes
_NOT_HERE = ("burstbuffer",)
_BUSY_NOTE = (
    "Note, unless nodes are directly requested a reservation must exist in a single partition.\n"
    "If no partition is requested the default partition is assumed.\n"
)
_YEAR = 365 * 86400
#: words for no end; other times below nought are mistakes
_NO_END = ("unlimited", "infinite", "-1")


class _Wrong(Exception):
    """What is wrong with the words given, without "No reservation created."."""


def create(words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """`create reservation [KEY=VALUE ...]`."""
    name, fields = _checked(words, reader, "created")
    if "starttime" not in fields:
        raise _stop("A start time must be given.  No reservation created.")
    if "duration" not in fields and "endtime" not in fields:
        raise _stop("An end time or duration must be given.  No reservation created.")
    if "endtime" in fields and int(fields["endtime"]) <= int(fields["starttime"]):
        raise _stop("Start time cannot be after end time.  No reservation created.")
    # Nodes by no name, and none of them, are not given.
    fields = {k: value for k, value in fields.items() if k not in _PLACES or value not in ("", "0")}
    placed = fields.keys() & {*_PLACES, "corecnt"}
    if "partitionname" in fields and not placed and "licenses" not in fields:
        fields["nodes"] = "ALL"
    if not fields.keys() & {*_PLACES, "corecnt", "licenses"}:
        raise _stop(
            "CoreCnt, Nodes, NodeCnt, BurstBuffer or Licenses must be specified.  "
            "No reservation created."
        )
    if not any(fields.get(key) for key in _WHO):
        raise _stop(
            "Either Users/Groups and/or Accounts must be specified.  No reservation created."
        )
    if fields.get("users") and fields.get("groups"):
        raise _stop(
            "Users and Groups are mutually exclusive.  You can have one or the other, but not "
            "both.  No reservation created."
        )
    prefix = "Error creating the reservation: "
    made = _send(reader, UpdateReservation(name, "create", fields), prefix, "")
    streams.stdout.write(f"Reservation created: {made}\n")
    return 0


def update(words: Sequence[str], streams: Streams, reader: Reader) -> int:
    """`update reservationname=NAME KEY=VALUE ...`."""
    name, fields = _checked(words, reader, "update")
    if not name:
        raise _stop("Reservation must be given.  No reservation update.")
    request = UpdateReservation(name, "update", fields)
    _send(reader, request, "Error updating the reservation: ", "slurm_update error: ")
    streams.stdout.write("Reservation updated.\n")
    return 0


def delete(name: str, word: str, reader: Reader) -> int:
    """`delete reservation=NAME`; `word` is the first one after `delete`, as it was typed."""
    _send(reader, UpdateReservation(name, "delete"), f"delete_reservation {word}: ", "")
    return 0


# ---- words ------------------------------------------------------------------------------------


def _stop(text: str, more: str = "") -> Stop:
    return Stop(1, f"{NAME}: error: {text}\n{more}")


def _checked(words: Sequence[str], reader: Reader, verb: str) -> tuple[str, dict[str, str]]:
    """The name, and the fields of the message."""
    end = "No reservation created." if verb == "created" else "No reservation update."
    more = "" if verb == "created" else "slurm_update error: No error\n"
    name = ""
    fields: dict[str, str] = {}
    named = False
    for word in words:
        key, equals, value = word.partition("=")
        low = key.lower()
        if low in _ENTITY and not named:
            # "create reservation reservationname=NAME" says it twice.
            name, named = value, bool(equals)
            continue
        sign = key[-1:] if key[-1:] in ("+", "-") else ""
        field = _key(low.rstrip("+-"))
        if field is None or (not equals and field != "skip"):
            raise _stop(f"Unknown parameter {word}.  {end}", more)
        try:
            _one(fields, _SAME.get(field, field), sign, value, word, reader, verb)
        except _Wrong as wrong:
            raise _stop(f"{wrong}  {end}", more) from None
    return name, fields


def _key(word: str) -> str | None:
    if word in _KEYS:
        return word
    return next(
        (key for key, least in _KEYS.items() if len(word) >= least and key.startswith(word)), None
    )


def _one(
    fields: dict[str, str],
    key: str,
    sign: str,
    value: str,
    word: str,
    reader: Reader,
    verb: str,
) -> None:
    from gsched import units

    if key in ("starttime", "endtime"):
        try:
            fields[key] = str(units.parse_time_point(value, int(reader.now())))
        except units.UnitError as error:
            which = "start" if key == "starttime" else "end"
            raise Stop(
                1,
                f"{error}\n{NAME}: error: Invalid {which} time {word}.  No reservation created.\n",
            ) from None
    elif key in ("duration", "maxstartdelay"):
        try:
            seconds = units.parse_duration(value)
        except units.UnitError:
            seconds = None
        endless = value.lower() in _NO_END and key == "duration"
        if seconds is None and not endless:
            raise _Wrong(f"Invalid duration {word}.")
        rounded = -(-(seconds or 0) // 60) * 60
        if key == "duration":
            key += sign
            # No time at all is no end, too, unless it is a change of what is.
            rounded = rounded if rounded or (sign and not endless) else _YEAR
        fields[key] = str(rounded)
    elif key == "flags":
        fields[key + sign] = _flags(value, sign)
    elif key in ("users", "groups", "accounts"):
        if sign == "-" and verb == "created":
            value = ",".join("-" + one.lstrip("-") for one in value.split(",") if one)
            sign = ""
        if value:
            _people(key, value, "creating" if verb == "created" else "updating")
        fields[key + sign] = value
    elif key == "nodecnt":
        fields[key] = _count(value, f"Invalid node count {value}", verb)
    elif key == "corecnt":
        fields[key] = ",".join(
            _count(one, f"Invalid core count {value}", verb) for one in value.split(",")
        )
    elif key == "tres":
        _tres(fields, value, verb)
    elif key == "licenses":
        from gsched.licenses import LicenseError, parse

        try:
            parse(value)
        except LicenseError:
            doing = "creating" if verb == "created" else "updating"
            raise Stop(
                1, f"Error {doing} the reservation: Invalid license specification\n"
            ) from None
        fields[key] = value
    elif key in _NOT_HERE:
        raise _Wrong(f"{key.capitalize()} in reservations are not supported here: {word}.")
    else:
        fields[key] = value


def _count(value: str, wrong: str, verb: str) -> str:
    """A number; Stop with a sentence where it is none."""
    thousand = 1024 if value[-1:] in ("k", "K") else 1
    digits = value[:-1] if thousand > 1 else value
    if not digits.isdecimal() or len(digits) > 9 or not digits.isascii():
        raise _stop(wrong, "" if verb == "created" else "slurm_update error: No error\n")
    return str(int(digits) * thousand)


def _tres(fields: dict[str, str], text: str, verb: str) -> None:
    for item in filter(None, text.split(",")):
        kind, equals, count = item.partition("=")
        low = kind.lower()
        if low == "cpu" and equals:
            fields["corecnt"] = _count(count, f"invalid TRES cpu value '{count}'", verb)
        elif low == "node" and equals:
            fields["nodecnt"] = _count(count, f"Invalid TRES node count {count}", verb)
        elif low.partition(":")[0] == "gres/gpu" and equals:
            name = kind.partition(":")[2]
            number = _count(count, f"invalid TRES {low} value '{count}'", verb)
            fields["gpus"] = (f"{name}:" if name and number != "0" else "") + number
        elif not equals and kind.isdecimal() and "corecnt" in fields:
            # cpu=2,4,2: cores of each node.
            fields["corecnt"] += f",{kind}"
        else:
            raise Stop(1, f"{NAME}: error: TRES type '{kind}' not supported with reservations\n")


def _flags(text: str, sign: str) -> str:
    """Flags with PURGE_COMP's time in seconds; `sign` says that they are added or taken away."""
    from gsched import reserve, units

    words = []
    for item in filter(None, text.split(",")):
        word, equals, value = item.partition("=")
        flag = reserve.flag(word)
        lasting = flag in reserve.LASTING if sign == "-" else flag == "TIME_FLOAT" and sign
        if flag is None or lasting:
            raise _Wrong(f"Error parsing flags {sign}{text}.")
        if equals:
            try:
                value = str(units.parse_time_limit(value))
            except units.UnitError:
                raise _Wrong(f"Error parsing flags {sign}{text}.") from None
        words.append(f"{word}={value}" if equals else word)
    return ",".join(words)


def _people(key: str, text: str, doing: str) -> None:
    """Stop where the system does not know one of the users or groups."""
    import grp
    import pwd

    known = {"users": pwd.getpwnam, "groups": grp.getgrnam}.get(key)
    if known is None:
        return
    names = [one.lstrip("-") for one in text.split(",") if one]
    try:
        for name in names:
            known(name)
    except (KeyError, ValueError):
        names = []
    if not names:
        text = f"Invalid {key[:-1]} id"
        again = f"slurm_update error: {text}\n" if doing == "updating" else ""
        raise Stop(1, f"Error {doing} the reservation: {text}\n{again}")


def _send(reader: Reader, request: UpdateReservation, prefix: str, again: str) -> str:
    from gsched.client import ControllerDown

    try:
        reply = reader.call(request)
    except ControllerDown:
        raise Stop(1, f"{prefix}{UNREACHABLE}\n") from None
    if isinstance(reply, Refused):
        note = _BUSY_NOTE if reply.message == "Requested nodes are busy" and not again else ""
        second = f"{again}{reply.message}\n" if again else ""
        raise Stop(1, f"{prefix}{reply.message}\n{note}{second}")
    assert isinstance(reply, Done)
    return reply.data


# ---- show ----------------------------------------------------------------------------------------


def cores_and_tres(resv: Reservation, config: Config) -> tuple[int, str]:
    """The cores that it keeps, and all that it keeps of nodes as TRES text ("" nothing)."""
    cores = cpus = gpus = 0
    for share in resv.nodes:
        conf = config.nodes.get(share.node)
        threads = conf.threads_per_core if conf is not None else 1
        mine = share.cpus
        if mine < 0:
            mine = conf.cpus if conf is not None else 0
        cores, cpus = cores + mine // threads, cpus + mine
        gpus += share.gpus.bit_count()
    tres = f"cpu={cpus}" + (f",gres/gpu={gpus}" if gpus else "")
    return cores, tres if resv.nodes else ""


def lines(resv: Reservation, config: Config, env: Mapping[str, str], now: float) -> list[str]:
    """The lines of one reservation, without indentation and line ends."""
    from gsched import reserve
    from gsched.hostlist import compress
    from gsched.units import format_padded
    from gsched_cli.text import or_null, timestamp

    resv = reserve.at(resv, now)
    cores, tres = cores_and_tres(resv, config)
    flags = ",".join(
        f"{flag}={format_padded(resv.purge_comp)}" if flag == "PURGE_COMP" else flag
        for flag in resv.flags
    )
    delay = format_padded(resv.max_start_delay) if resv.max_start_delay else "(null)"
    return [
        f"ReservationName={resv.name} StartTime={timestamp(resv.start, env, now)} "
        f"EndTime={timestamp(resv.end, env, now)} Duration={format_padded(resv.duration)}",
        f"Nodes={or_null(compress([share.node for share in resv.nodes]))} "
        f"NodeCnt={len(resv.nodes)} CoreCnt={cores} Features={or_null(resv.features)} "
        f"PartitionName={or_null(resv.partition)} Flags={flags}",
        f"TRES={or_null(tres)}",
        f"AllowedPartitions={or_null(','.join(resv.partitions))} QOS={or_null(','.join(resv.qos))}",
        f"Users={or_null(','.join(resv.users))} Groups={or_null(','.join(resv.groups))} "
        f"Accounts={or_null(','.join(resv.accounts))} Licenses={or_null(resv.licenses)} "
        f"State={'ACTIVE' if resv.active(now) else 'INACTIVE'} BurstBuffer=(null)",
        f"MaxStartDelay={delay}",
    ]


def table(found: Sequence[Reservation], env: Mapping[str, str], now: float, header: bool) -> str:
    """`sinfo -T`."""
    from gsched import reserve
    from gsched.hostlist import compress
    from gsched.units import format_padded
    from gsched_cli.text import timestamp

    found = [reserve.at(resv, now) for resv in found]
    rows = [("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")]
    rows = rows if header else []
    for resv in found:
        state = "ACTIVE" if resv.active(now) else "INACTIVE"
        times = timestamp(resv.start, env, now), timestamp(resv.end, env, now)
        nodes = compress([share.node for share in resv.nodes]) or "(null)"
        rows.append((resv.name, state, *times, format_padded(resv.duration), nodes))
    return "".join(
        f"{name:<10} {state:>8}  {start:>19}  {end:>19}  {length:>11}  {nodes}\n"
        for name, state, start, end, length, nodes in rows
    )
