"""reconfigure: `scontrol reconfigure` and SIGHUP: the files are read anew, or nothing changes."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

from gsched.config import Config, ConfigError, load_config
from gsched.wire.identity import Admission
from gsched.wire.keys import KeyProblem, key_table
from gsched.wire.messages import Call, Refused
from gsched.wire.paths import keys_dir

#: keys that a running controller cannot follow: field of Config -> Slurm's name
FIXED = {
    "cluster_name": "ClusterName",
    "state_save_location": "StateSaveLocation",
    "slurmctld_port": "SlurmctldPort",
    "slurmctld_pid_file": "SlurmctldPidFile",
    "slurm_user": "SlurmUser",
}


class NotTaken(Exception):
    """The new configuration is not taken; the old one stays. One sentence."""


@dataclass
class Reload:
    """How a controller reads its configuration again."""

    config: Config
    admission: Admission

    def read(self) -> Config:
        """The files as they are now. Raises NotTaken with file and line.

        New keys of nodes are admitted from here on, the frontends start new workers.
        """
        try:
            config = load_config(self.config.path)
            table, _ = key_table(keys_dir(config.path))
        except (ConfigError, KeyProblem, OSError) as error:
            raise NotTaken(str(error)) from None
        for field, name in FIXED.items():
            old, new = getattr(self.config, field), getattr(config, field)
            if old != new:
                raise NotTaken(f"{name} changed from {old} to {new}: restart slurmctld")
        self.config = config
        self.admission.keys = table
        self._tell_frontends()
        return config

    def _tell_frontends(self) -> None:
        """Those of this host, if any: they start workers that know the new files."""
        path = os.path.join(self.config.run_dir, "frontend.pid")
        with contextlib.suppress(OSError, ValueError):
            with open(path, encoding="ascii") as file:
                pid = int(file.read().split()[0])
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                # A pid file may be older than its process.
                if b"frontend" in file.read():
                    os.kill(pid, signal.SIGHUP)


def check(call: Call, admins: frozenset[int]) -> Refused | None:
    """Who may ask for it."""
    if call.uid not in admins:
        return Refused(call.request_id, "Invalid user id", "ESLURM_USER_ID_MISSING")
    return None
