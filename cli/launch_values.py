"""Options of srun and salloc beyond those of every submission: what they hold, and how each is
read. The grammars that sbatch has, too, are in `option_values`."""

from __future__ import annotations

import re

from gsched.request import Options, Refusal
from gsched_cli import option_values as v
from gsched_cli.option_values import Context, Setter

#: seconds of -I without a number
IMMEDIATELY = 1
#: components that a heterogeneous job may have
MOST_COMPONENTS = 128


class LaunchOptions(Options):
    """Values of the options of srun and salloc. None, -1 and "" mean "not said"."""

    # what a step is
    jobid: int = 0
    relative: int = -1
    exact: bool = False
    overlap: bool = False
    whole: bool = False
    het_group: list[int] = []
    multi_prog: bool = False
    preserve_env: bool = False
    no_allocate: bool = False
    interactive: bool = False
    # when, and when it ends
    immediate: int = -1
    kill_on_bad_exit: bool | None = None
    wait_time: int | None = None
    quit_on_interrupt: bool = False
    disable_status: bool = False
    # its words and programs
    label: bool = False
    unbuffered: bool = False
    pty: bool = False
    prolog: str = ""
    epilog: str = ""
    task_prolog: str = ""
    task_epilog: str = ""
    mpi: str | None = None
    cpu_bind: str = ""
    #: --bcast; "": where the file goes is left to the configuration
    bcast: str | None = None
    asynchronous: bool = False
    # salloc
    #: 0 never, 1 after ten seconds of waiting, 2 always
    bell: int = 1
    no_shell: bool = False
    #: signal for the command when the allocation is gone; 0 the default one
    kill_command: int | None = None


def launched(options: Options) -> LaunchOptions:
    """The options of srun and salloc; the setters' parameter is what all commands have."""
    assert isinstance(options, LaunchOptions)
    return options


def counted(field: str, what: str, least: int = 0) -> Setter:
    """A whole number from `least` on; Slurm names some options otherwise than they are called."""

    def set_number(options: Options, text: str, context: Context) -> None:
        setattr(options, field, v.number(text, what, least))

    return set_number


def checked(what: str, least: int = 0) -> Setter:
    """A number that must be one, and is of no consequence."""

    def check(options: Options, text: str, context: Context) -> None:
        if text:
            v.number(text, what, least)

    return check


def immediate(options: Options, text: str, context: Context) -> None:
    launched(options).immediate = v.number(text, "immediate", 0) if text else IMMEDIATELY


def kill_on_bad_exit(options: Options, text: str, context: Context) -> None:
    launched(options).kill_on_bad_exit = (
        v.number(text, "--kill-on-bad-exit", 0) > 0 if text else True
    )


def wait(options: Options, text: str, context: Context) -> None:
    """-W; Slurm takes a missing number for 0."""
    launched(options).wait_time = v.number(text, "--wait", 0) if text else 0


def kill_command(options: Options, text: str, context: Context) -> None:
    number = v.signal_number(text) if text else 0
    if text and not number:
        raise v.invalid("kill-command")
    launched(options).kill_command = number


def exclusive(options: Options, text: str, context: Context) -> None:
    """For a job whole nodes; a step alone has its CPUs anyway, and only those it asks for."""
    v.exclusive(options, text, context)
    launched(options).exact = True


def cpu_bind(options: Options, text: str, context: Context) -> None:
    if not re.fullmatch(_CPU_BIND, text, re.IGNORECASE):
        raise Refusal(
            "Failed to parse --cpu-bind= values.",
            kind="fatal",
            remark=f'srun: error: unrecognized --cpu-bind argument "{text}"',
        )
    launched(options).cpu_bind = text


_VERBOSITY = r"(?:q|quiet|v|verbose)"
_CPU_BIND = (
    rf"{_VERBOSITY}|(?:{_VERBOSITY},)?"
    r"(?:no|none|off|rank|rank_ldom|ldoms?|sockets?|cores?|threads?|boards?|one_thread"
    r"|map_cpu:[0-9a-fx,*]+|mask_cpu:[0-9a-fx,*]+|map_ldom:[0-9a-fx,*]+|mask_ldom:[0-9a-fx,*]+)"
    rf"(?:,(?:{_VERBOSITY}|one_thread))*"
)
CPU_BIND_HELP = """CPU bind options:
    --cpu-bind=         bind each task to CPUs
        q[uiet]         say nothing of it (default)
        v[erbose]       say how each task is bound
        no[ne]          do not bind
        rank            by the task's number on the node
        map_cpu:<list>  one CPU for each task of a node
        mask_cpu:<list> a mask of CPUs for each task of a node
        sockets         whole sockets
        cores           whole cores
        threads         single threads
        ldoms           whole NUMA domains
        help            this text
"""
MEM_BIND_HELP = """Memory bind options:
    --mem-bind=         bind each task to memory of NUMA domains (ldom)
        q[uiet]         say nothing of it (default)
        v[erbose]       say how each task is bound
        no[ne]          do not bind (default)
        rank            by the task's number on the node
        local           memory near the CPUs in use
        map_mem:<list>  one domain for each task of a node
        mask_mem:<list> a mask of domains for each task of a node
        help            this text
"""


def send_libs(options: Options, text: str, context: Context) -> None:
    if text.lower() not in {"", "yes", "no", "y", "n"}:
        raise v.invalid("send-libs")


def compress(options: Options, text: str, context: Context) -> None:
    """The file goes as it is: nothing is compressed."""


def het_group(options: Options, text: str, context: Context) -> None:
    """Numbers and ranges of components, "0,2-3"; brackets around them mean nothing."""
    found: set[int] = set()
    body = text.removeprefix("[").removesuffix("]")
    for item in body.split(","):
        low, dash, high = item.partition("-")
        if not re.fullmatch(r"[0-9]{1,6}(?:-[0-9]{1,6})?", item):
            raise Refusal(f"Invalid --het-group value: {text}", remark=_bad_range(item))
        last = int(high) if dash else int(low)
        if not int(low) <= last < MOST_COMPONENTS:
            raise Refusal(f"Invalid --het-group value: {text}")
        found.update(range(int(low), last + 1))
    launched(options).het_group = sorted(found)


def _bad_range(item: str) -> str:
    return f"srun: error: _parse_single_range: Invalid range: `{item}'"


def pty(options: Options, text: str, context: Context) -> None:
    """The descriptor that newer releases take belongs to whoever starts srun; it is the terminal
    of srun that is used."""
    if text:
        v.number(text, "--pty", 0)
    launched(options).pty = True


def accel_bind(options: Options, text: str, context: Context) -> None:
    if not re.fullmatch(r"[gnvGNV]+", text):
        raise v.invalid("accel-bind")


def x11(options: Options, text: str, context: Context) -> None:
    options.ignored.append("--x11")


def bcast(options: Options, text: str, context: Context) -> None:
    launched(options).bcast = text


def slurmd_debug(options: Options, text: str, context: Context) -> None:
    """Daemons do not write into the output of tasks."""
