"""gsched-command NAME ARGS: a command as a Python process; what the thin client falls back to."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

#: the commands that there are
NAMES = (
    *("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct", "sstat", "sacctmgr"),
    *("srun", "salloc", "sattach", "sbcast", "sreport", "sprio", "sshare", "sdiag"),
)

#: those that get a Process: what only the calling process knows of itself
SUBMITTING = {"sbatch", "srun", "salloc", "sattach", "sbcast"}


def main() -> NoReturn:
    """Runs the command named first, as if it had been called itself."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        sys.stderr.write(f"usage: gsched-command {{{','.join(NAMES)}}} ...\n")
        sys.exit(1)
    name = sys.argv.pop(1)
    module = importlib.import_module(f"gsched_cli.{name}")
    module.main()
    raise AssertionError("a command exits by itself")
