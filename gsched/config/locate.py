"""Which slurm.conf is meant. Cheap imports only: every command starts here."""

from __future__ import annotations

import os
from collections.abc import Mapping

SYSTEM_CLUSTER = "/var/lib/gsched/etc/slurm.conf"
SYSTEM_CONF = "/etc/slurm/slurm.conf"


def user_data_dir(env: Mapping[str, str]) -> str:
    """Where an ordinary user's default cluster lies; "" if nothing says where home is."""
    base = env.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        home = env.get("HOME") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return ""
        base = os.path.join(home, ".local", "share")
    return os.path.join(base, "gsched")


def find_slurm_conf(env: Mapping[str, str]) -> str:
    """The path of the slurm.conf to use.

    SLURM_CONF where it is set (a missing file is then the caller's error to report), else the
    first that exists of: the user's default cluster, the machine's, /etc/slurm/slurm.conf; the
    last of them where none does.
    """
    named = env.get("SLURM_CONF", "")
    if named:
        return named
    data = user_data_dir(env)
    candidates = [os.path.join(data, "etc", "slurm.conf")] if data else []
    for path in [*candidates, SYSTEM_CLUSTER]:
        if os.path.exists(path):
            return path
    return SYSTEM_CONF
