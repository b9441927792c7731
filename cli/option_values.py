"""Grammars of single option values: each turns one text into fields of `Options`.

A setter is `(options, text, context) -> None`; it raises Refusal with Slurm's sentence and exit
code (255 where the value alone is wrong, 1 where Slurm's number parser complains).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gsched import units
from gsched.model.mailtype import MAIL_WORDS
from gsched.request import NICE_OFFSET_LIMIT, Options, Refusal


class Context(NamedTuple):
    """What some values need to be understood."""

    #: epoch seconds, for "now+1hour"
    now: int
    #: name -> uid / gid, None where unknown; looked up by the command
    uid_of: Callable[[str], int | None]
    gid_of: Callable[[str], int | None]
    #: reads a file of node names (--nodefile); raises OSError
    read_file: Callable[[str], str]


Setter = Callable[[Options, str, Context], None]


def invalid(name: str) -> Refusal:
    return Refusal(f"Invalid --{name} specification", code=255)


def ignore(options: Options, text: str, context: Context) -> None:
    """The option is known and its value is of no consequence."""


def flag(field: str, value: object = True) -> Setter:
    def set_flag(options: Options, text: str, context: Context) -> None:
        setattr(options, field, value)

    return set_flag


#: what Slurm calls a name that was given and is empty
NOBODY = "(null)"


def word(field: str) -> Setter:
    def set_word(options: Options, text: str, context: Context) -> None:
        setattr(options, field, text)

    return set_word


def node_names(field: str) -> Setter:
    """Names of nodes; that none are named is kept apart from that nothing is said."""

    def set_nodes(options: Options, text: str, context: Context) -> None:
        setattr(options, field, text or ",")

    return set_nodes


def name(field: str) -> Setter:
    """A name; one that is empty is nobody's, and so refused as Slurm refuses it."""

    def set_name(options: Options, text: str, context: Context) -> None:
        setattr(options, field, text or NOBODY)

    return set_name


def container_image(options: Options, text: str, context: Context) -> None:
    # It is a word of the launcher's command line, and must not be taken for an option there.
    if not text or text.startswith("-"):
        raise Refusal(f"Invalid --container-image specification: {text}")
    options.container_image = text


def container_mounts(options: Options, text: str, context: Context) -> None:
    """SRC:DST[:FLAGS][,...]; given again, it adds to what there is."""
    for mount in text.split(","):
        parts = mount.split(":")
        if len(parts) not in (2, 3) or not all(parts):
            raise Refusal(
                f"Invalid --container-mounts specification: {mount or text}: "
                "SRC:DST[:FLAGS] is expected"
            )
        if mount not in options.container_mounts:
            options.container_mounts = [*options.container_mounts, mount]


def container_workdir(options: Options, text: str, context: Context) -> None:
    if not text.startswith("/"):
        raise Refusal(
            f"Invalid --container-workdir specification: {text}: an absolute path is expected"
        )
    options.container_workdir = text


def positive(field: str, name: str) -> Setter:
    """A whole number from 1 on; no units, as in Slurm."""

    def set_number(options: Options, text: str, context: Context) -> None:
        setattr(options, field, number(text, f"--{name}"))

    return set_number


def number(text: str, what: str, least: int = 1) -> int:
    if re.fullmatch(r"\+?[0-9]{1,10}", text) and least <= int(text) < 1 << 31:
        return int(text)
    raise Refusal(f'Invalid numeric value "{text}" for {what}.')


def memory(field: str, name: str) -> Setter:
    def set_memory(options: Options, text: str, context: Context) -> None:
        try:
            setattr(options, field, units.parse_memory(text))
        except units.UnitError:
            raise invalid(name) from None

    return set_memory


def time_limit(options: Options, text: str, context: Context) -> None:
    try:
        options.time_limit = units.parse_time_limit(text)
    except units.UnitError:
        raise invalid("time") from None


def time_min(options: Options, text: str, context: Context) -> None:
    try:
        options.time_min = units.parse_time_limit(text)
    except units.UnitError:
        raise invalid("time-min") from None


def delay_boot(options: Options, text: str, context: Context) -> None:
    try:
        options.delay_boot = units.parse_time_limit(text)
    except units.UnitError:
        raise invalid("delay-boot") from None


def point(field: str, name: str) -> Setter:
    """A point in time; Slurm prints the parser's remark bare, then its own sentence."""

    def set_point(options: Options, text: str, context: Context) -> None:
        try:
            setattr(options, field, units.parse_time_point(text, context.now))
        except units.UnitError as error:
            raise Refusal(f"Invalid --{name} specification", code=255, remark=str(error)) from None

    return set_point


def nodes(options: Options, text: str, context: Context) -> None:
    try:
        if "," in text:
            # A size string: any of these counts; the range between them is tried.
            pairs = [
                units.parse_node_count(item.partition(":")[0]) for item in text.split(",") if item
            ]
            if not pairs:
                raise units.UnitError(f'"{text}" is not a valid node count')
            options.nodes = min(low for low, _ in pairs), max(high for _, high in pairs)
        else:
            options.nodes = units.parse_node_count(text)
    except units.UnitError as error:
        raise Refusal(str(error), code=255) from None


#: patterns are compiled when first used: most runs need none of them
_LEADING_NUMBER = r"\s*([+-]?[0-9]+)"


def _atoi(text: str) -> int:
    """A number as C reads it: what follows is not looked at, no digits are 0."""
    found = re.match(_LEADING_NUMBER, text, re.ASCII)
    # Python refuses to convert thousands of digits; twenty are more than any range here.
    return int(found[1][:20]) if found else 0


def nice(options: Options, text: str, context: Context) -> None:
    value = _atoi(text) if text else 100
    if abs(value) > NICE_OFFSET_LIMIT:
        raise Refusal(f"Invalid --nice value, out of range (+/- {NICE_OFFSET_LIMIT})", code=255)
    options.nice = value


def priority(options: Options, text: str, context: Context) -> None:
    if text.lower() == "top":
        options.priority = None
        options.ignored.append("--priority=TOP")
        return
    value = _atoi(text)
    if value < 0:
        raise Refusal("Priority must be >= 0", code=255)
    if value >= 4294967294:
        raise Refusal("Priority must be < 4294967294", code=255)
    options.priority = value


_SIGNALS = {
    name: value
    for value, name in (
        *((1, "HUP"), (2, "INT"), (3, "QUIT"), (6, "ABRT"), (9, "KILL"), (10, "USR1")),
        *((12, "USR2"), (13, "PIPE"), (14, "ALRM"), (15, "TERM"), (17, "CHLD"), (18, "CONT")),
        *((19, "STOP"), (20, "TSTP"), (21, "TTIN"), (22, "TTOU"), (23, "URG"), (24, "XCPU")),
    )
}


def signal_number(text: str) -> int:
    """Number of "USR1", "SIGUSR1" or "10" (any case); 0: no such signal. As Linux numbers them."""
    if re.fullmatch(r"[0-9]{1,3}", text):
        return int(text) if 0 < int(text) <= 64 else 0
    return _SIGNALS.get(text.upper().removeprefix("SIG"), 0)


def signal(options: Options, text: str, context: Context) -> None:
    """[[R][B]:]signal[@seconds]"""
    before, colon, rest = text.rpartition(":")
    flags = before.upper()
    name, at, seconds = rest.partition("@")
    num = signal_number(name)
    if (colon and (not flags or set(flags) - {"R", "B"})) or not num:
        raise invalid("signal")
    if at and not (re.fullmatch(r"[0-9]{1,5}", seconds) and int(seconds) <= 65535):
        raise invalid("signal")
    options.signal_num = num
    options.signal_before = int(seconds) if at else 60
    options.signal_batch = "B" in flags


def mail_type(options: Options, text: str, context: Context) -> None:
    words = [item.strip().upper() for item in text.split(",")]
    bits = 0
    for item in words:
        bits |= MAIL_WORDS.get(item, 0)
    if "NONE" in words:
        bits = 0
    elif not bits:
        raise invalid("mail-type")
    options.mail_type = bits


def exclusive(options: Options, text: str, context: Context) -> None:
    kinds = {"": 1, "user": 2, "mcs": 1, "topo": 1}
    if text.lower() not in kinds:
        raise invalid("exclusive")
    options.shared = kinds[text.lower()]
    if text.lower() in {"mcs", "topo"}:
        options.ignored.append(f"--exclusive={text.lower()}")


_HINTS = ("compute_bound", "memory_bound", "multithread", "nomultithread")
HINT_HELP = """Hints for the placement of tasks:
    --hint=compute_bound    use every core of a socket
    --hint=memory_bound     use one core of each socket
    --hint=multithread      use the extra threads of a core
    --hint=nomultithread    use one thread of a core
    --hint=help             this text
"""


def hint(options: Options, text: str, context: Context) -> None:
    if text not in _HINTS:
        raise Refusal(f'unrecognized --hint argument "{text}", see --hint=help')
    options.hint = text
    if text in ("nomultithread", "compute_bound", "memory_bound") and not options.threads_per_core:
        options.threads_per_core = 1
    if text == "memory_bound" and not options.cores_per_socket:
        options.cores_per_socket = 1


_FIRST = r"(?:\*|block|cyclic|arbitrary|plane(?:=[0-9]{1,9})?)"
_LEVEL = r"(?:\*|block|cyclic|fcyclic)"
_DISTRIBUTION = rf"{_FIRST}(?::{_LEVEL}){{0,2}}(?:,(?:no)?pack)?|(?:no)?pack"


def distribution(options: Options, text: str, context: Context) -> None:
    if re.fullmatch(r"plane=?(?:[:,].*)?", text, re.IGNORECASE):
        raise Refusal(
            "Invalid plane size or size not specified",
            "Invalid --distribution specification",
            code=255,
        )
    if not re.fullmatch(_DISTRIBUTION, text, re.IGNORECASE):
        raise invalid("distribution")
    options.distribution = text.lower()


def open_mode(options: Options, text: str, context: Context) -> None:
    if text[:1].lower() == "a" and "append".startswith(text.lower()):
        options.open_mode = "append"
    elif text[:1].lower() == "t" and "truncate".startswith(text.lower()):
        options.open_mode = "truncate"
    else:
        raise invalid("open-mode")


def no_kill(options: Options, text: str, context: Context) -> None:
    if text.lower() in {"", "set", "yes", "1"}:
        options.no_kill = True
    elif text.lower() in {"off", "no"}:
        options.no_kill = False
    else:
        raise invalid("no-kill")


def kill_on_invalid_dep(options: Options, text: str, context: Context) -> None:
    if text.lower() not in {"yes", "no"}:
        raise invalid("kill-on-invalid-dep")
    options.kill_on_invalid_dep = text.lower() == "yes"


def requeue(options: Options, text: str, context: Context) -> None:
    if text and text.lower() != "expedite":
        raise invalid("requeue")
    options.requeue = True
    if text:
        options.ignored.append("--requeue=expedite")


def wait_all_nodes(options: Options, text: str, context: Context) -> None:
    if text not in {"0", "1"}:
        raise invalid("wait-all-nodes")
    options.wait_all_nodes = int(text)


_GPU_BIND = (
    r"(?:verbose,)?(?:closest|none|single:[0-9]+|per_task:[0-9]+"
    r"|map_gpu:[0-9]+(?:\*[0-9]+)?(?:,[0-9]+(?:\*[0-9]+)?)*"
    r"|mask_gpu:(?:0x)?[0-9a-f]+(?:\*[0-9]+)?(?:,(?:0x)?[0-9a-f]+(?:\*[0-9]+)?)*)"
)


def gpu_bind(options: Options, text: str, context: Context) -> None:
    if not re.fullmatch(_GPU_BIND, text, re.IGNORECASE):
        raise Refusal(f"Invalid --gpu-bind argument: {text}", code=255)
    options.gpu_bind = text


_FREQUENCY = r"(?:low|medium|high|highm1|[0-9]+)"


def gpu_freq(options: Options, text: str, context: Context) -> None:
    for item in text.split(","):
        if not re.fullmatch(rf"(?:(?:gpu|memory)=)?{_FREQUENCY}|verbose", item, re.IGNORECASE):
            shown = item if "=" in item else f"gpu:{item}"
            raise Refusal(f"Invalid --gpu-freq argument: {shown}", code=255)
    options.gpu_freq = text


_GOVERNORS = r"(?:conservative|ondemand|performance|powersave|userspace|schedutil)"
_CPU_FREQ = rf"{_FREQUENCY}(?:-{_FREQUENCY}(?::{_GOVERNORS})?)?(?::{_GOVERNORS})?|{_GOVERNORS}"


def cpu_freq(options: Options, text: str, context: Context) -> None:
    if not re.fullmatch(_CPU_FREQ, text, re.IGNORECASE):
        raise Refusal(
            f'unrecognized --cpu-freq argument "{text}"', "Invalid --cpu-freq argument", code=255
        )
    options.cpu_freq = text


_MEM_BIND = (
    r"(?:(?:q|quiet|v|verbose),)?(?:(?:no|none|rank|local|sort|nosort|prefer|p|quiet|verbose)"
    r"|map_mem:[0-9a-fx,*]+|mask_mem:[0-9a-fx,*]+)(?:,(?:prefer|p|sort|nosort))*"
)


def mem_bind(options: Options, text: str, context: Context) -> None:
    if not re.fullmatch(_MEM_BIND, text, re.IGNORECASE):
        raise Refusal(f'unrecognized --mem-bind argument "{text}"', code=255)
    options.mem_bind = text


_GRES_FLAGS = {
    *("disable-binding", "enforce-binding", "allow-task-sharing", "one-island"),
    *("multiple-tasks-per-sharing", "one-task-per-sharing"),
}


def gres_flags(options: Options, text: str, context: Context) -> None:
    if set(text.lower().split(",")) - _GRES_FLAGS:
        raise invalid("gres-flags")
    options.gres_flags = text.lower()


def profile(options: Options, text: str, context: Context) -> None:
    known = {"all", "none", "energy", "task", "lustre", "filesystem", "network"}
    if set(text.lower().split(",")) - known:
        raise Refusal(f"invalid --profile={text} option", code=255)


def acctg_freq(options: Options, text: str, context: Context) -> None:
    kind = r"(?:(?:task|energy|network|filesystem)=)?[0-9]+"
    if not re.fullmatch(rf"{kind}(?:,{kind})*", text, re.IGNORECASE):
        raise Refusal(f"Invalid --acctg-freq specification: {text}", code=255)


def switches(options: Options, text: str, context: Context) -> None:
    count, at, wait = text.partition("@")
    options.switches = number(count, "--switches")
    if at:
        wait_for_switches(options, wait, context)


def wait_for_switches(options: Options, text: str, context: Context) -> None:
    """To the second. A time that cannot be read is the cluster's longest, as in Slurm."""
    try:
        options.switch_wait = units.parse_duration(text) or 0
    except units.UnitError:
        options.switch_wait = 0


def extra_node_info(options: Options, text: str, context: Context) -> None:
    """-B sockets[:cores[:threads]], "*" for any, ranges by their lower end."""
    parts = text.split(":")
    if len(parts) > 3:
        raise Refusal(f'Invalid numeric value "{text}" for first arg of -B.')
    values = []
    for part, place in zip(parts, ("first", "second", "third"), strict=False):
        low = part.partition("-")[0]
        values.append(0 if part == "*" else number(low, f"{place} arg of -B"))
    values += [0] * (3 - len(values))
    options.sockets_per_node, options.cores_per_socket, options.threads_per_core = values
    if all(values):
        options.implied_ntasks = values[0] * values[1] * values[2]


def user(options: Options, text: str, context: Context) -> None:
    found = context.uid_of(text)
    if found is None:
        raise invalid("uid")
    options.uid = found


def group(options: Options, text: str, context: Context) -> None:
    found = context.gid_of(text)
    if found is None:
        raise invalid("gid")
    options.gid = found


def nodefile(options: Options, text: str, context: Context) -> None:
    try:
        names = context.read_file(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        # The first sentence names a library call of Slurm's; programs search for it.
        raise Refusal(
            f"slurm_allocate_resources error opening file {text}, {why}",
            "Invalid --nodefile node file",
            code=255,
        ) from None
    options.nodelist = ",".join(names.split())


def get_user_env(options: Options, text: str, context: Context) -> None:
    if not re.fullmatch(r"[0-9]*[SsLl]?", text):
        raise invalid("get-user-env")
    options.get_user_env = True


def verbose(options: Options, text: str, context: Context) -> None:
    options.verbose += 1


def verbosity(options: Options, text: str, context: Context) -> None:
    options.verbose = min(max(_atoi(text), 0), 9)


def oom_kill_step(options: Options, text: str, context: Context) -> None:
    if text not in {"", "0", "1"}:
        raise invalid("oom-kill-step")


def export(options: Options, text: str, context: Context) -> None:
    # Nothing is exported by an empty list, as in Slurm.
    options.export = text or "NONE"
