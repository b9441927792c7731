"""Names of sockets: where they lie, and how a long path is still reached. Cheap to import."""

from __future__ import annotations

import os

#: sun_path holds this many bytes with the final NUL
_LONGEST = 107

#: directory -> descriptor, kept open for the life of the process
_held: dict[str, int] = {}


def reachable(path: str) -> str:
    """A name for the socket `path` that fits into a socket address.

    A path of over 107 bytes is reached through its directory's descriptor, which stays open.
    OSError when that directory is absent.
    """
    if len(os.fsencode(path)) <= _LONGEST:
        return path
    folder, name = os.path.split(path)
    fd = _held.get(folder)
    if fd is None:
        fd = _held[folder] = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{fd}/{name}"


def control_socket(run_dir: str) -> str:
    """The controller's socket for the frontends of its host."""
    return os.path.join(run_dir, "ctl.sock")


def step_socket(run_dir: str, node: str) -> str:
    """Where the agent of a node of this host takes its users' requests about steps; `run_dir` is
    the directory of SlurmdPidFile."""
    return os.path.join(run_dir, f"slurmd.{node}.sock")


def keys_dir(slurm_conf: str) -> str:
    """Where the keys for links between hosts lie: beside slurm.conf."""
    return os.path.join(os.path.dirname(os.path.abspath(slurm_conf)), "keys")
