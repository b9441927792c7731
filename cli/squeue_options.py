"""The options of squeue: what is asked for, from the command line and the environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gsched.model.states import JobState
from gsched.model.step import step_number
from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, error, version_line
from gsched_cli.fields_job import job_table
from gsched_cli.getopt_long import Arg
from gsched_cli.squeue_help import HELP, USAGE
from gsched_cli.stop import Stop, asking

NAME = "squeue"
#: as many tasks as an array may have at all
MAX_TASKS = 4_000_001

_NO, _YES, _MAYBE = Arg.NO, Arg.YES, Arg.MAYBE
_SHORT = "A:ahi:j::lL:M:n:O:o:Pp:q:R:rs::S:t:u:U:vVw:"
_LONG: dict[str, tuple[Arg, str]] = {
    "account": (_YES, "A"),
    "accounts": (_YES, "A"),
    "all": (_NO, "a"),
    "array": (_NO, "r"),
    "array-unique": (_NO, "ignored"),
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    # Patterns in file names are always filled in.
    "expand-patterns": (_NO, "ignored"),
    "federation": (_NO, "ignored"),
    "format": (_YES, "o"),
    "Format": (_YES, "O"),
    "helpformat": (_NO, "helpformat"),
    "helpFormat": (_NO, "helpFormat"),
    "helpstate": (_NO, "helpstate"),
    "help": (_NO, "help"),
    "hide": (_NO, "ignored"),
    "iterate": (_YES, "i"),
    "jobs": (_MAYBE, "j"),
    "json": (_MAYBE, "json"),
    "licenses": (_YES, "L"),
    "local": (_NO, "ignored"),
    "long": (_NO, "l"),
    "me": (_NO, "me"),
    "name": (_YES, "n"),
    "noconvert": (_NO, "noconvert"),
    "node": (_YES, "w"),
    "nodes": (_YES, "w"),
    "nodelist": (_YES, "w"),
    "noheader": (_NO, "h"),
    "only-job-state": (_NO, "ignored"),
    "partitions": (_YES, "p"),
    "priority": (_NO, "P"),
    "qos": (_YES, "q"),
    "reservation": (_YES, "R"),
    "running-over": (_YES, "over"),
    "running-under": (_YES, "under"),
    "sibling": (_NO, "ignored"),
    "sort": (_YES, "S"),
    "start": (_NO, "start"),
    "states": (_YES, "t"),
    "steps": (_MAYBE, "s"),
    "usage": (_NO, "usage"),
    "user": (_YES, "u"),
    "users": (_YES, "u"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
    "yaml": (_MAYBE, "yaml"),
}
_ENV = {
    "SQUEUE_ACCOUNT": "A",
    "SQUEUE_ARRAY": "r",
    "SQUEUE_FORMAT": "o",
    "SQUEUE_FORMAT2": "O",
    "SQUEUE_LICENSES": "L",
    "SQUEUE_NAMES": "n",
    "SQUEUE_PARTITION": "p",
    "SQUEUE_PRIORITY": "P",
    "SQUEUE_QOS": "q",
    "SQUEUE_SORT": "S",
    "SQUEUE_STATES": "t",
    "SQUEUE_USERS": "u",
    "SLURM_CLUSTERS": "M",
}
#: names for -t that are no base states: what each selects
_FLAGS = {"COMPLETING": "CG", "CONFIGURING": "CF"}
#: other states of Slurm that no job here is ever in
_UNUSED = {
    "EXPEDITING": "EX",
    "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD",
    "REQUEUED": "RQ",
    "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH",
    "REVOKED": "RV",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
}
STATE_NAMES = [state.name.lower() for state in JobState] + [
    name.lower() for name in (*_FLAGS, *_UNUSED)
]


class Wanted:
    """What the options ask for; None and empty mean no restriction."""

    def __init__(self) -> None:
        self.short: str | None = None
        self.long: str | None = None
        self.wide = False
        self.header = True
        self.each_task = False
        self.convert = True
        self.start = False
        #: (job, task of its array or -1, step or None); [] all; None: jobs, not steps
        self.steps: list[tuple[int, int, int | None]] | None = None
        self.cluster = ""
        self.iterate = 0
        self.sort: str | None = None
        self.jobs: list[tuple[int, int]] | None = None
        self.states: set[str] | None = None
        self.uids: set[int] | None = None
        self.nodes: set[str] | None = None
        self.over: int | None = None
        self.under: int | None = None
        #: letter of the option -> names that pass
        self.names: dict[str, set[str]] = {}
        #: "json", "yaml" or "": columns
        self.dump = ""


def read_options(
    argv: Sequence[str], env: Mapping[str, str], streams: Streams, reader: Reader
) -> Wanted:
    """Reads all options. Raises Stop (also for those that only print) and OptionError."""
    given, operands = getopt_long.parse(argv, _SHORT, _LONG)
    wanted = Wanted()
    keys = {key for key, _ in given}
    _one_format([key for key, _ in given if key in ("l", "o", "O")])
    for variable, key in _ENV.items():
        # The command line goes before the environment, and -l before its formats.
        replaced = keys & {"o", "O", "l"} if key in "oO" else key in keys
        if env.get(variable) and not replaced:
            _apply(wanted, key, env[variable], env, streams, reader)
    for key, value in given:
        if key == "j" and value is None and operands:
            value = operands.pop(0)
        if key == "s" and value is None and operands:
            value = operands.pop(0)
        _apply(wanted, key, value, env, streams, reader)
    if operands:
        raise Stop(1, f"{NAME}: error: Unrecognized option: {operands[0]}\n{USAGE}")
    return wanted


def _one_format(keys: list[str]) -> None:
    """Stop where the command line names formats of two kinds."""
    if "l" in keys and len(set(keys)) > 1:
        raise Stop(
            1,
            f"{NAME}: fatal: Options -o(--format) and -l(--long) are mutually exclusive. "
            "Please remove one and retry.\n",
        )
    kinds = list(dict.fromkeys(keys))
    if len(kinds) > 1:
        first, second = ("-o (--format)", "-O (--Format)")[:: 1 if kinds[0] == "o" else -1]
        raise Stop(1, f"{NAME}: error: {second} is incompatible with {first}\n")


def _apply(
    wanted: Wanted,
    key: str,
    value: str | None,
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
) -> None:
    text = value or ""
    if key == "o":
        wanted.short, wanted.long = text, None
    elif key == "O":
        wanted.short, wanted.long = None, text
    elif key == "l":
        wanted.wide = True
    elif key == "h":
        wanted.header = False
    elif key == "r":
        wanted.each_task = True
    elif key == "noconvert":
        wanted.convert = False
    elif key == "start":
        wanted.start = True
    elif key == "s":
        wanted.steps = _step_ids(text)
    elif key == "S":
        wanted.sort = text
    elif key == "M":
        wanted.cluster = text
    elif key == "i":
        wanted.iterate = _seconds(text)
    elif key == "j":
        wanted.jobs = _job_ids(text) if text else None
    elif key == "t":
        wanted.states = _states(text, streams)
    elif key == "u":
        wanted.uids = _uids(text, streams)
    elif key == "me":
        wanted.uids = {reader.uid}
    elif key == "w":
        wanted.nodes = _nodes(text, reader)
    elif key in ("over", "under"):
        setattr(wanted, key, _limit(key, text))
    elif key in ("json", "yaml"):
        from gsched_cli.dump import asked

        wanted.dump = asked(key, value, NAME)
    elif len(key) == 1 and key in "ALnpqR":
        wanted.names[key] = {name for name in text.split(",") if name}
    else:
        _information(key, env, streams)


def _information(key: str, env: Mapping[str, str], streams: Streams) -> None:
    """Options that only print something; others have no effect here."""
    out = streams.stdout
    if key == "V":
        out.write(version_line())
    elif key == "help":
        out.write(HELP)
    elif key == "usage":
        out.write(USAGE)
    elif key == "helpFormat":
        out.write(job_table(env).help_names())
    elif key == "helpformat":
        letters = [f"%{letter}" for letter in sorted(job_table(env).letters)]
        out.write(" ".join(letters) + "\n")
    elif key == "helpstate":
        out.write("\n".join(STATE_NAMES) + "\n")
    else:
        return
    raise Stop(0)


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]):
        raise Stop(1, f"{NAME}: error: --iterate={text}\n\n")
    return int(text[:9])


def _limit(key: str, text: str) -> int:
    from gsched.units import UnitError, parse_duration

    try:
        seconds = parse_duration(text)
    except UnitError:
        raise Stop(1, f"{NAME}: error: Invalid value for --running-{key}: {text}\n") from None
    return 1 << 40 if seconds is None else seconds


def number(text: str) -> int | None:
    """A non-negative number of at most ten digits; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _job_ids(text: str) -> list[tuple[int, int]]:
    """-j: (job, task) pairs; task -1 means all of it."""
    found: list[tuple[int, int]] = []
    for item in _split_ids(text):
        head, underscore, tail = item.partition("_")
        job = number(head.partition("+")[0])
        if not job:
            raise Stop(1, f"{NAME}: error: Invalid job id: {item}\n")
        if not underscore:
            found.append((job, -1))
            continue
        tasks = list(array_tasks(tail.removeprefix("[").removesuffix("]")))
        if not tasks:
            raise Stop(1, f"{NAME}: error: Invalid job id: {item}\n")
        found += [(job, task) for task in tasks]
    return found


def _step_ids(text: str) -> list[tuple[int, int, int | None]]:
    """Reads -s: "17.0,17_3.1,18"; an id without a step means all its steps."""
    found: list[tuple[int, int, int | None]] = []
    for item in _split_ids(text):
        head, dot, tail = item.partition(".")
        step = step_number(tail)
        if (dot and step is None) or not number(head.partition("_")[0].partition("+")[0]):
            raise Stop(1, f"{NAME}: error: Invalid job_step id: {head}.{tail or '??'}\n")
        found += [(job, task, step) for job, task in _job_ids(head)]
    return found


def _split_ids(text: str) -> list[str]:
    """Splits at commas outside brackets; empty items are dropped."""
    items, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def array_tasks(text: str) -> Iterable[int]:
    """Task numbers of an array expression ("1-5%2", "0-8:2,10"); none where it cannot be read or
    stands for more tasks than an array may have."""
    from gsched.taskset import TaskSet, TaskSetError

    try:
        tasks = TaskSet.parse(text.partition("%")[0])
    except (TaskSetError, ValueError):
        return []
    return tasks if len(tasks) <= MAX_TASKS else []


def _states(text: str, streams: Streams) -> set[str] | None:
    """-t: the states that pass, by long name; an empty set passes all."""
    found: set[str] = set()
    for item in text.split(","):
        word = item.strip().upper()
        if not word:
            continue
        if word == "ALL":
            return set()
        name = _state_name(word)
        if name is None:
            valid = ",".join(STATE_NAMES)
            error(streams, NAME, f"Invalid job state specified: {item}")
            raise Stop(1, f"{NAME}: error: Valid job states include: {valid}\n\n")
        found.add(name)
    return found or None


def _state_name(word: str) -> str | None:
    for state in JobState:
        if word in (state.name, state.compact):
            return state.name
    for name, compact in (*_FLAGS.items(), *_UNUSED.items()):
        if word in (name, compact):
            return name
    return None


def _uids(text: str, streams: Streams) -> set[int]:
    import pwd

    found: set[int] = set()
    for item in text.split(","):
        name = item.strip()
        if not name:
            continue
        uid = number(name)
        if uid is not None:
            found.add(uid)
            continue
        try:
            found.add(pwd.getpwnam(name).pw_uid)
        except (KeyError, ValueError, UnicodeEncodeError):
            # Slurm says so and goes on with the others.
            error(streams, NAME, f"Invalid user: {name}")
            streams.stderr.write("\n")
    return found


def _nodes(text: str, reader: Reader) -> set[str]:
    from gsched.hostlist import HostlistError, expand
    from gsched.wire.messages import NodeQuery

    try:
        names = expand(text)
    except HostlistError as problem:
        raise Stop(1, f"{NAME}: error: {problem}\n") from None
    known = {
        node.name
        for node in asking(lambda: reader.nodes(NodeQuery()), "slurm_load_node error:").nodes
    }
    for name in names:
        if name not in known:
            raise Stop(1, f"{NAME}: error: Invalid node name {name}\n")
    return set(names)
