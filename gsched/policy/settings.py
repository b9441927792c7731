"""What may be set of associations and QOS: names, grammar and bounds of each value. Pure.

One table serves the command (which finds a wrong value before it asks anybody) and the ledger
(which takes nobody's word for it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gsched import tres, units
from gsched.model.policy import SHARES_PARENT, Assoc, Qos, Tres

if TYPE_CHECKING:
    from gsched.config import Config

#: largest count that Slurm can tell apart from "no limit"
MOST = (1 << 31) - 1
#: minutes
MOST_WALL = MOST // 60
MAX_TEXT = 4096
OPERATORS = ("=", "+=", "-=")

QOS_FLAGS = (
    "DenyOnLimit",
    "EnforceUsageThreshold",
    "NoReserve",
    "PartitionMaxNodes",
    "PartitionMinNodes",
    "OverPartQOS",
    "PartitionTimeLimit",
    "RequiresReservation",
    "NoDecay",
    "UsageFactorSafe",
    "Relative",
)
ACCOUNT_FLAGS = ("NoUsersAreCoords", "UsersAreCoords")
ASSOC_FLAGS = ("UsersAreCoords", "NoUsersAreCoords")
PREEMPT_MODES = ("cluster", "off", "cancel", "requeue", "suspend", "gang", "within")
ADMIN_LEVELS = ("None", "Operator", "Administrator")
UNITS = ("", "node", "island")


class SettingError(ValueError):
    """A value that cannot be set; the text says why, with Slurm's words, as Slurm's command would
    write it to standard error (`out`: to standard output)."""

    def __init__(self, text: str, *, out: bool = False, alone: bool = False) -> None:
        super().__init__(text)
        self.out = out
        #: nothing is said of the option after it
        self.alone = alone


class Known(NamedTuple):
    """What values may name."""

    #: QOS by name, in the order of their numbers
    qos: Sequence[str] = ()
    #: TRES of the cluster (gsched.tres.tracked)
    tres: Collection[str] = tres.BASE


#: (value before, operator, text, what is known, label) -> value
Parse = Callable[[Any, str, str, Known, str], Any]


class Setting(NamedTuple):
    """One thing that can be set."""

    #: as it is shown, and other names
    names: tuple[str, ...]
    field: str
    parse: Parse
    #: fewest letters that mean it
    least: int = 4


def limitable(config: Config) -> frozenset[str]:
    """All TRES that a limit may name: what is tracked, the generic resources of the nodes by type,
    and licences."""
    found = set(tres.tracked(config))
    for conf in config.nodes.values():
        for item in conf.gres:
            found.add(f"gres/{item.name}")
            if item.type:
                found.add(f"gres/{item.name}:{item.type}")
    found.update(f"license/{name}" for name in config.licenses)
    return frozenset(found)


def find(word: str, settings: Sequence[Setting]) -> Setting | None:
    """The setting that a word means: its name in any case, or a beginning of it that is long
    enough; the first in the table that fits."""
    low = word.lower()
    for setting in settings:
        if any(low == name.lower() for name in setting.names):
            return setting
    for setting in settings:
        if len(low) >= setting.least and any(
            name.lower().startswith(low) for name in setting.names
        ):
            return setting
    return None


# ---- values -------------------------------------------------------------------------------------


def _plain(op: str, label: str) -> None:
    if op != "=":
        raise SettingError(f"{label} takes = alone")


def _count(old: Any, op: str, text: str, known: Known, label: str) -> int | None:
    _plain(op, label)
    if text.strip() == "-1":
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text.strip()) or int(text) > MOST:
        raise SettingError(f"Invalid value for {label} ({text})")
    return int(text)


def _priority(old: Any, op: str, text: str, known: Known, label: str) -> int:
    return _count(old, op, text, known, label) or 0


def _shares(old: Any, op: str, text: str, known: Known, label: str) -> int:
    _plain(op, label)
    if text.strip().lower() == "parent":
        return SHARES_PARENT
    found = _count(old, op, text, known, label)
    return 1 if found is None else found


def _tres(old: Any, op: str, text: str, known: Known, label: str) -> Tres:
    """What is named is set, or with -1 taken away; the rest stays."""
    _plain(op, label)
    if not text.strip():
        return {}
    before: Tres = dict(old or {})
    for item in text.split(","):
        name = tres.plain(item.partition("=")[0].strip())
        if "=" not in item:
            raise SettingError(f"slurmdb_format_tres_str: no TRES id found for {item.strip()}")
        if name not in known.tres:
            raise SettingError(f"slurmdb_format_tres_str: no TRES known by type {name}")
    try:
        found = tres.parse(text)
    except tres.TresError as error:
        raise SettingError(f"Invalid value for {label} ({error})") from None
    for name, count in found.items():
        if count == tres.NONE:
            before.pop(name, None)
        else:
            before[name] = count
    return before


def _one_tres(name: str) -> Parse:
    """GrpCPUs= and their like: older names of one TRES."""

    def parse(old: Any, op: str, text: str, known: Known, label: str) -> Tres:
        count = _count(None, op, text, known, label)
        before: Tres = dict(old or {})
        before.pop(name, None)
        return before if count is None else before | {name: count}

    return parse


def _wall(old: Any, op: str, text: str, known: Known, label: str) -> int | None:
    """Minutes, rounded up."""
    _plain(op, label)
    if text.strip().lower() in ("-1", "unlimited", "infinite"):
        return None
    try:
        seconds = units.parse_time_limit(text.strip())
    except units.UnitError:
        seconds = -1
    if not 0 <= -(-seconds // 60) <= MOST_WALL or seconds < 0:
        raise SettingError(f" Bad {label} time format: {{option}}", out=True)
    return -(-seconds // 60)


def _seconds(old: Any, op: str, text: str, known: Known, label: str) -> int | None:
    """Slurm's time format (minutes where only a number is given)."""
    _plain(op, label)
    if text.strip() == "-1":
        return None
    try:
        return units.parse_time_limit(text.strip())
    except units.UnitError:
        raise SettingError(f" Bad {label} time format: {{option}}", out=True) from None


def _grace(old: Any, op: str, text: str, known: Known, label: str) -> int:
    """A number of seconds, or a time with colons."""
    if ":" in text:
        return _seconds(old, op, text, known, label) or 0
    return _count(old, op, text, known, label) or 0


def _factor(default: float | None) -> Parse:
    def parse(old: Any, op: str, text: str, known: Known, label: str) -> float | None:
        _plain(op, label)
        if text.strip() == "-1":
            return default
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", text.strip()):
            raise SettingError(f"Invalid value for {label} ({text})")
        return float(text)

    return parse


def _text(old: Any, op: str, text: str, known: Known, label: str) -> str:
    _plain(op, label)
    if len(text) > MAX_TEXT or any(not letter.isprintable() for letter in text):
        raise SettingError(f"Invalid value for {label}")
    # As Slurm keeps it.
    return text.replace("'", "`")


def names(text: str) -> list[str]:
    """A list of names as Slurm reads it: split at commas, each once, quotes taken away."""
    return list(dict.fromkeys(filter(None, (one.strip(" \"'") for one in text.split(",")))))


def _known_qos(name: str, known: Known) -> str:
    low = name.lower()
    for one in known.qos:
        if one.lower() == low:
            return one
    valid = ",".join(known.qos)
    raise SettingError(f"You gave a bad qos '{name}'. Valid QOS's are {valid}")


def _qos_list(old: Any, op: str, text: str, known: Known, label: str) -> tuple[str, ...] | None:
    """Plain names are the list itself; with + or - they are what differs from the parent's."""
    before: list[str] = list(old or ())
    wanted = names(text)
    if op == "=":
        signs = {one[0] for one in wanted if one[0] in "+-"}
        if not signs:
            found = tuple(_known_qos(one, known) for one in wanted) or None
            # The same in another order is no change.
            return old if found and old and set(found) == set(old) else found
        if any(one[0] not in "+-" for one in wanted):
            raise SettingError("You can not mix = with += or -= in a list of QOS")
        return tuple(one[0] + _known_qos(one[1:], known) for one in wanted)
    relative = all(one[0] in "+-" for one in before)
    for one in wanted:
        name = _known_qos(one.lstrip("+-"), known)
        before = [each for each in before if each.lstrip("+-") != name]
        if relative:
            before.append(op[0] + name)
        elif op == "+=":
            before.append(name)
    return tuple(before) or None


def _preempt(old: Any, op: str, text: str, known: Known, label: str) -> tuple[str, ...]:
    wanted = [_known_qos(one.lstrip("+-"), known) for one in names(text)]
    before = list(old or ())
    if op == "=":
        return tuple(wanted)
    kept = [one for one in before if one not in wanted]
    return tuple(kept + wanted if op == "+=" else kept)


def _default_qos(old: Any, op: str, text: str, known: Known, label: str) -> str | None:
    _plain(op, label)
    if text.strip() in ("-1", ""):
        return None
    for one in known.qos:
        if one.lower() == text.strip().lower():
            return one
    raise SettingError(
        f"You gave a bad default qos '{text}'.  Use 'list qos' to get complete list.",
        alone=True,
    )


def _flags(allowed: Sequence[str], kind: str) -> Parse:
    def parse(old: Any, op: str, text: str, known: Known, label: str) -> tuple[str, ...]:
        if text.strip() == "-1":
            return ()
        wanted = []
        for one in names(text):
            found = [flag for flag in allowed if flag.lower() == one.lower()]
            found = found or [flag for flag in allowed if flag.lower().startswith(one.lower())]
            if not found:
                raise SettingError(
                    f" Unknown {kind} flag used in:\n  '{text}'\n Valid {kind} flags are\n"
                    f"  '{','.join(allowed)}'",
                    out=True,
                    alone=True,
                )
            wanted.append(found[0])
        before = set(old or ()) if op != "=" else set()
        after = before - set(wanted) if op == "-=" else before | set(wanted)
        return tuple(flag for flag in allowed if flag in after)

    return parse


def _mode(old: Any, op: str, text: str, known: Known, label: str) -> str:
    """Preempt modes; "within" and one of the others may come together."""
    _plain(op, label)
    found = [one.strip().lower() for one in text.split(",") if one.strip()]
    if any(one not in PREEMPT_MODES for one in found) or not 1 <= len(found) <= 2:
        raise SettingError(" Bad Preempt Mode given: {option}", out=True, alone=True)
    return ",".join(found)


def _unit(old: Any, op: str, text: str, known: Known, label: str) -> str:
    _plain(op, label)
    word = "" if text.strip() == "-1" else text.strip().lower()
    word = "" if word == "gpu" else word
    if word not in UNITS:
        raise SettingError(f"Invalid value for {label} ({text}): gpu, node or island is expected")
    return word


# ---- tables -------------------------------------------------------------------------------------

#: of accounts, users and clusters: what their associations have; in the order in which it is shown
ASSOC: tuple[Setting, ...] = (
    Setting(("Fairshare", "FairShares", "Shares", "Share"), "shares", _shares, 3),
    Setting(("GrpJobs",), "grp_jobs", _count),
    Setting(("GrpJobsAccrue",), "grp_jobs_accrue", _count, 8),
    Setting(("GrpSubmitJobs", "GrpSubmit"), "grp_submit_jobs", _count),
    Setting(("GrpTRES",), "grp_tres", _tres, 7),
    Setting(("GrpTRESMins",), "grp_tres_mins", _tres, 8),
    Setting(("GrpTRESRunMins",), "grp_tres_run_mins", _tres, 8),
    Setting(("GrpWall",), "grp_wall", _wall),
    Setting(("MaxJobs",), "max_jobs", _count),
    Setting(("MaxJobsAccrue",), "max_jobs_accrue", _count, 8),
    Setting(("MaxSubmitJobs", "MaxSubmit"), "max_submit_jobs", _count),
    Setting(("MaxTRES", "MaxTRESPerJob"), "max_tres_per_job", _tres, 7),
    Setting(("MaxTRESPerNode",), "max_tres_per_node", _tres, 11),
    Setting(("MaxTRESMins", "MaxTRESMinsPerJob"), "max_tres_mins_per_job", _tres, 8),
    Setting(("MaxTRESRunMins",), "max_tres_run_mins", _tres, 8),
    Setting(("MaxWall", "MaxWallDurationPerJob"), "max_wall", _wall),
    Setting(("MinPrioThreshold",), "min_prio_thresh", _count),
    Setting(("Priority",), "priority", _count, 3),
    Setting(("QOS", "QosLevel"), "qos", _qos_list, 3),
    Setting(("DefaultQOS", "DefQOS"), "default_qos", _default_qos, 8),
    Setting(("Comment",), "comment", _text, 3),
    Setting(("GrpTRESGuarantee",), "guarantee", _tres, 8),
    Setting(("GrpTRESBorrow",), "borrow", _tres, 8),
    Setting(("GrpTRESLend",), "lend", _tres, 8),
    Setting(("GuaranteeUnit",), "guarantee_unit", _unit, 2),
    Setting(("GrpCPUs",), "grp_tres", _one_tres("cpu"), 7),
    Setting(("GrpMemory",), "grp_tres", _one_tres("mem"), 4),
    Setting(("GrpNodes",), "grp_tres", _one_tres("node"), 4),
    Setting(("GrpCPUMins",), "grp_tres_mins", _one_tres("cpu"), 7),
    Setting(("GrpCPURunMins",), "grp_tres_run_mins", _one_tres("cpu"), 7),
    Setting(("MaxCPUs", "MaxCPUsPerJob"), "max_tres_per_job", _one_tres("cpu"), 7),
    Setting(("MaxNodes", "MaxNodesPerJob"), "max_tres_per_job", _one_tres("node"), 4),
    Setting(("MaxCPUMins", "MaxCPUMinsPerJob"), "max_tres_mins_per_job", _one_tres("cpu"), 7),
)

QOS: tuple[Setting, ...] = (
    Setting(("Description",), "description", _text, 1),
    Setting(("Flags",), "flags", _flags(QOS_FLAGS, "QOS"), 2),
    Setting(("GraceTime",), "grace_time", _grace, 3),
    Setting(("GrpJobs",), "grp_jobs", _count),
    Setting(("GrpJobsAccrue",), "grp_jobs_accrue", _count, 8),
    Setting(("GrpSubmitJobs", "GrpSubmit"), "grp_submit_jobs", _count),
    Setting(("GrpTRES",), "grp_tres", _tres, 7),
    Setting(("GrpTRESMins",), "grp_tres_mins", _tres, 8),
    Setting(("GrpTRESRunMins",), "grp_tres_run_mins", _tres, 8),
    Setting(("GrpWall",), "grp_wall", _wall),
    Setting(("LimitFactor",), "limit_factor", _factor(None), 1),
    Setting(("MaxJobsPerUser", "MaxJobsPU", "MaxJobs"), "max_jobs_pu", _count),
    Setting(("MaxJobsPerAccount", "MaxJobsPA"), "max_jobs_pa", _count, 9),
    Setting(("MaxJobsAccruePerUser", "MaxJobsAccruePU"), "max_jobs_accrue_pu", _count, 8),
    Setting(("MaxJobsAccruePerAccount", "MaxJobsAccruePA"), "max_jobs_accrue_pa", _count, 15),
    Setting(
        ("MaxSubmitJobsPerUser", "MaxSubmitJobsPU", "MaxSubmitPU", "MaxSubmit"),
        "max_submit_jobs_pu",
        _count,
    ),
    Setting(
        ("MaxSubmitJobsPerAccount", "MaxSubmitJobsPA", "MaxSubmitPA"),
        "max_submit_jobs_pa",
        _count,
        15,
    ),
    Setting(("MaxTRES", "MaxTRESPerJob"), "max_tres_per_job", _tres, 7),
    Setting(("MaxTRESPerNode",), "max_tres_per_node", _tres, 11),
    Setting(("MaxTRESPerUser", "MaxTRESPU"), "max_tres_pu", _tres, 8),
    Setting(("MaxTRESPerAccount", "MaxTRESPA"), "max_tres_pa", _tres, 8),
    Setting(("MaxTRESMins", "MaxTRESMinsPerJob"), "max_tres_mins_per_job", _tres, 8),
    Setting(("MaxTRESRunMinsPerUser", "MaxTRESRunMinsPU"), "max_tres_run_mins_pu", _tres, 8),
    Setting(("MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPA"), "max_tres_run_mins_pa", _tres, 8),
    Setting(("MaxWall", "MaxWallDurationPerJob"), "max_wall", _wall),
    Setting(("MinPrioThreshold", "MinPrioThresh"), "min_prio_thresh", _count),
    Setting(("MinTRES", "MinTRESPerJob"), "min_tres_per_job", _tres),
    Setting(("Preempt",), "preempt", _preempt, 7),
    Setting(("PreemptExemptTime",), "preempt_exempt_time", _seconds, 8),
    Setting(("PreemptMode",), "preempt_mode", _mode, 8),
    Setting(("Priority",), "priority", _priority, 3),
    Setting(("UsageFactor",), "usage_factor", _factor(1.0), 6),
    Setting(("UsageThreshold", "UsageThres"), "usage_thres", _factor(None), 6),
    Setting(("GrpCPUs",), "grp_tres", _one_tres("cpu"), 7),
    Setting(("GrpNodes",), "grp_tres", _one_tres("node"), 4),
    Setting(("GrpMemory",), "grp_tres", _one_tres("mem"), 4),
    Setting(("MaxCPUs", "MaxCPUsPerJob"), "max_tres_per_job", _one_tres("cpu"), 7),
    Setting(("MaxNodes", "MaxNodesPerJob"), "max_tres_per_job", _one_tres("node"), 4),
    Setting(("MaxCPUsPerUser", "MaxCPUsPU"), "max_tres_pu", _one_tres("cpu"), 8),
    Setting(("MaxNodesPerUser", "MaxNodesPU"), "max_tres_pu", _one_tres("node"), 9),
)

#: of the account itself
ACCOUNT: tuple[Setting, ...] = (
    Setting(("Description",), "description", _text, 3),
    Setting(("Organization",), "organization", _text, 1),
    Setting(("Flags",), "flags", _flags(ACCOUNT_FLAGS, "account"), 2),
)


def changed(
    record: Assoc | Qos, changes: Mapping[str, tuple[str, str]], known: Known
) -> dict[str, Any]:
    """The fields of a record that change when these settings (name -> operator, text) are made.
    Raises SettingError, also for a name that is none."""
    table = ASSOC if isinstance(record, Assoc) else QOS
    found: dict[str, Any] = {}
    for name, (op, text) in changes.items():
        setting = find(name, table)
        if setting is None:
            raise SettingError(f"Unknown option: {name}{op}{text}")
        before = found.get(setting.field, getattr(record, setting.field))
        found[setting.field] = setting.parse(before, op, text, known, setting.names[0])
    return found
