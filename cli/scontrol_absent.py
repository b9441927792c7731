"""Keywords of scontrol for what a controller of gsched has nothing of: their words are looked at as
Slurm does, and what then cannot be done is said in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gsched_cli.stop import Stop

NAME = "scontrol"
#: as slurm.conf has them
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", *("debug" + n for n in ("", *"2345")))


def _count(keyword: str, rest: Sequence[str], most: int = 1) -> None:
    if not rest:
        raise Stop(1, f"too few arguments for keyword:{keyword}\n")
    if len(rest) > most:
        raise Stop(1, f"too many arguments for keyword:{keyword}\n")


def _configured(key: str) -> Stop:
    return Stop(
        1,
        f"{NAME}: error: it cannot be changed while the controller runs: set {key} in slurm.conf "
        "and restart slurmctld\n",
    )


def _setdebug(keyword: str, rest: Sequence[str]) -> Stop:
    _count(keyword, rest)
    level = rest[0].lower()
    if level not in _LEVELS and not re.fullmatch("[0-9]", level, re.ASCII):
        return Stop(1, f"invalid debug level: {rest[0]}\n")
    return _configured("SlurmctldDebug")


def _setdebugflags(keyword: str, rest: Sequence[str]) -> Stop:
    if not rest:
        raise Stop(1, f"too few arguments for keyword:{keyword}\n")
    if any(one[0] not in "+-" for one in rest if one):
        return Stop(1, f"invalid debug flag: {rest[0]}\nUsage: setdebugflags [+|-]NAME\n")
    return Stop(1, f"{NAME}: error: the controller has no debug flags\n")


def _schedloglevel(keyword: str, rest: Sequence[str]) -> Stop:
    _count(keyword, rest)
    if rest[0].lower() not in ("0", "1", "disable", "enable"):
        return Stop(1, f"invalid schedlog level: {rest[0]}\n")
    # As where SlurmSchedLogFile is not set.
    return Stop(1, "slurm_set_schedlog_level error: Requested operation is presently disabled\n")


def _dampening(keyword: str, rest: Sequence[str]) -> Stop:
    _count(keyword, rest)
    if not re.fullmatch("[0-9]{1,5}", rest[0], re.ASCII) or not int(rest[0]):
        return Stop(1, f"invalid dampening factor: {rest[0]}\n")
    return _configured("FairShareDampeningFactor")


def _cancel_reboot(keyword: str, rest: Sequence[str]) -> Stop:
    if not rest:
        return Stop(1, f"missing argument for keyword:{keyword}\n")
    # No node waits for one.
    return Stop(1, "slurm_update error: Invalid node state specified\n")


def _reboot(keyword: str, rest: Sequence[str]) -> Stop:
    return Stop(
        1,
        f"{NAME}: error: RebootProgram isn't defined\n"
        "scontrol_reboot_nodes error: Unspecified error\n",
    )


_DOES: dict[str, Callable[[str, Sequence[str]], Stop]] = {
    "cancel_reboot": _cancel_reboot,
    "fsdampeningfactor": _dampening,
    "reboot": _reboot,
    "schedloglevel": _schedloglevel,
    "setdebug": _setdebug,
    "setdebugflags": _setdebugflags,
}
KEYWORDS = frozenset(
    {
        *_DOES,
        *("abort", "cluster", "errnumstr", "listjobs", "liststeps", "power", "takeover", "token"),
    }
)


def refuse(word: str, rest: Sequence[str]) -> Stop:
    """Why a keyword (in lower case, whole) does nothing."""
    does = _DOES.get(word)
    return does(word, rest) if does else Stop(1, f"{NAME}: error: {word} is not available\n")
