"""What a command that submits knows of the process that called it, and on whose behalf it asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from gsched.request import Options, Refusal
from gsched_cli.common import Reader


class Mover(Protocol):
    """The side of a client that stays when srun, salloc, sattach or sbcast have said what they
    want: it moves standard input and output, the terminal and signals (docs/design.md, section 7).
    """

    #: whom the agents are asked for: (uid, gid, pid); None: for this process itself
    behalf: tuple[int, int, int] | None

    def listening(self, ports: str = "") -> tuple[int, bytes]:
        """The port where the client listens, within `ports` (SrunPortRange) if it does not yet, and
        its secret. Raises OwnProcess, OSError."""
        ...

    def follow(self, plan: bytes) -> int:
        """Hands the plan over; what the command returns afterwards. Does not come back where this
        process becomes the mover."""
        ...


def port_range(ports: str) -> range | None:
    """Of SrunPortRange; None: any port."""
    first, _, last = ports.partition("-")
    if not (first.isdigit() and last.isdigit()):
        return None
    return range(int(first), min(int(last), 65535) + 1)


def within(port: int, ports: str) -> bool:
    """Whether a client may be called at this port."""
    allowed = port_range(ports)
    return allowed is None or port in allowed


class Process(NamedTuple):
    """What only the submitting process knows of itself; a thin client sends it along."""

    umask: int
    sid: int
    host: str
    user: str
    group: str
    soft_limit: Callable[[str], int | None]
    sleep: Callable[[float], None]
    #: --uid and --gid of root: later requests are made as this user; None for any other caller
    become: Callable[[int, int], None] | None = None
    #: None for commands that only ask
    mover: Mover | None = None
    #: standard input is a terminal; None: not known
    terminal: bool | None = None
    #: its rows and columns; 0 not known
    window: tuple[int, int] = (0, 0)

    @classmethod
    def current(cls) -> Process:
        import time

        return cls(
            umask=_umask(),
            sid=os.getsid(0),
            host=os.uname().nodename.partition(".")[0],
            user=user_name(os.getuid()),
            group=group_name(os.getgid()),
            soft_limit=_soft_limit,
            sleep=time.sleep,
            become=_become if os.geteuid() == 0 else None,
            terminal=os.isatty(0),
            window=_window(),
        )


def _window() -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size(0)
    except OSError:
        return 0, 0
    return rows, columns


def _umask() -> int:
    """Read from /proc: the system call can only set it, and other threads would see that."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError, IndexError):
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _soft_limit(name: str) -> int | None:
    import resource

    number = getattr(resource, f"RLIMIT_{name}", None)
    if number is None:
        return None
    soft = resource.getrlimit(number)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def _become(uid: int, gid: int) -> None:
    # Loaded while their files can still be read for certain.
    import encodings.idna  # noqa: F401
    import hashlib  # noqa: F401
    import resource  # noqa: F401

    import gsched.client
    import gsched.wire.steps  # noqa: F401

    # The frontend asks the kernel who connects, and the kernel tells the effective ids.
    os.setegid(gid)
    os.seteuid(uid)


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def uid_of(text: str) -> int | None:
    import pwd

    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def gid_of(text: str) -> int | None:
    import grp

    try:
        return grp.getgrnam(text).gr_gid
    except (KeyError, ValueError):
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _primary_group(uid: int) -> int | None:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return None


def umask_of(env: Mapping[str, str], own: int) -> int:
    text = env.get("SLURM_UMASK", "")
    try:
        named = int(text, 8)
    except ValueError:
        return own
    return named if 0 <= named <= 0o777 else own


def identity(options: Options, process: Process, reader: Reader) -> tuple[str, str]:
    """Names of the user and group the job belongs to; --uid and --gid are root's."""
    if options.uid is None and options.gid is None:
        return process.user, process.group
    uid = reader.uid if options.uid is None else options.uid
    gid = options.gid if options.gid is not None else _primary_group(uid)
    if gid is None:
        gid = reader.gid
    if (uid, gid) == (reader.uid, reader.gid):
        return process.user, process.group
    if process.become is None:
        which = "uid" if options.uid is not None else "gid"
        raise Refusal(f"--{which} only permitted by root user", code=255)
    process.become(uid, gid)
    return user_name(uid), group_name(gid)
