"""sacctmgr about accounting itself: its configuration, and what the controller, which does what
slurmdbd does in Slurm, has served."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gsched.model.statistics import Statistics
from gsched.wire.messages import Diagnose, Refused
from gsched.wire.report import ReportQuery, TransactionRow
from gsched_cli.stop import Stop, asking, cluster_config
from gsched_cli.text import timestamp

if TYPE_CHECKING:
    from gsched_cli.common import Reader

NAME = "sacctmgr"
_ERROR = f"{NAME}: error:"
_STARS = "*" * 67
#: keys of slurm.conf, in Slurm's order; what scontrol calls otherwise
_CLIENT = (
    *("AccountingStorageBackupHost", "AccountingStorageHost", "AccountingStorageParameters"),
    *("AccountingStoragePass", "AccountingStoragePort", "AccountingStorageType"),
    *("AccountingStorageUser", "AuthType", "MessageTimeout", "PluginDir", "PrivateData"),
    *("SlurmUserId", "SLURM_CONF", "SLURM_VERSION", "TCPTimeout", "TrackWCKey"),
)
_OTHERWISE = {"SlurmUserId": "SlurmUser"}
_WITHOUT = {"AccountingStorageUser": "N/A"}


def configuration(reader: Reader, env: Mapping[str, str]) -> str:
    """`show configuration`."""
    from gsched_cli.scontrol_config import config_items

    config = cluster_config(reader, NAME)
    status = asking(reader.status, _ERROR)
    now = reader.now()
    known = dict(config_items(config, status, env, now))
    text = f"Configuration data as of {timestamp(int(now), env, now)}\n"
    for key in _CLIENT:
        value = known.get(_OTHERWISE.get(key, key), _WITHOUT.get(key, "(null)"))
        text += f"{key:<22} = {value}\n"
    text += "\nSlurmDBD configuration:\n"
    rows = asking(lambda: reader.report(ReportQuery("settings")), _ERROR)
    for row in rows.rows:
        if isinstance(row, TransactionRow):
            text += f"{row.action:<22} = {row.info}\n"
    return text


def _asked(reader: Reader, question: Diagnose) -> str:
    reply = asking(lambda: reader.call(question), _ERROR)
    if isinstance(reply, Refused):
        raise Stop(1, f"{_ERROR} {reply.message}\n")
    return reply.data


def _when(seconds: int) -> str:
    return f"{time.ctime(seconds)} ({seconds})"


def stats(reader: Reader) -> str:
    """`show stats`: what has been asked since the start, or since `clear stats`."""
    from gsched_cli.sdiag import by_message, by_user

    found = msgspec.json.decode(_asked(reader, Diagnose()), type=Statistics)
    lines = [
        _STARS,
        f"sacctmgr show stats output at {_when(found.now)}",
        f"Data since                    {_when(found.since)}",
        "All statistics are in microseconds",
        _STARS,
        "",
        f"Facts that are not stored yet: {found.facts}",
        "",
        "Remote Procedure Call statistics by message type",
        *by_message(found),
        "",
        "Remote Procedure Call statistics by user",
        *by_user(found),
    ]
    return "".join(f"{line}\n" for line in lines)


def clear(reader: Reader, words: Sequence[str]) -> int:
    """`clear stats`: counting begins anew, for sdiag too."""
    if [word.lower() for word in words] != ["stats"]:
        raise Stop(1, 'No valid entity in list command\nInput line must include "Stats"\n')
    _asked(reader, Diagnose(reset=True))
    return 0
