"""What sacct's command line asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gsched.model.states import JobState
from gsched.wire.messages import AcctQuery
from gsched_cli import getopt_long
from gsched_cli.columns import help_names
from gsched_cli.common import Reader, Streams, error, version_line
from gsched_cli.fields_sacct import BRIEF, COLUMNS, DEFAULT, LONG
from gsched_cli.getopt_long import Arg
from gsched_cli.sacct_help import HELP, USAGE
from gsched_cli.stop import Stop, asking
from gsched_cli.text import timestamp

NAME = "sacct"
_NO, _YES, _MAYBE = Arg.NO, Arg.YES, Arg.MAYBE
_SHORT = "aA:bBcC:DeE:f:F:g:hi:I:j:k:K:lLM:nN:o:pPq:r:R:s:S:Tu:vVW:x:X"
_LONG: dict[str, tuple[Arg, str]] = {
    "accounts": (_YES, "A"),
    "allclusters": (_NO, "L"),
    "allocations": (_NO, "X"),
    "allusers": (_NO, "a"),
    "array": (_NO, "array"),
    "associations": (_YES, "x"),
    "batch-script": (_NO, "B"),
    "brief": (_NO, "b"),
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    "completion": (_NO, "c"),
    "constraints": (_YES, "C"),
    "delimiter": (_YES, "delimiter"),
    "duplicates": (_NO, "D"),
    "endtime": (_YES, "E"),
    "env-vars": (_NO, "env"),
    "expand-pattern": (_NO, "expand"),
    "expand-patterns": (_NO, "expand"),
    "federation": (_NO, "ignored"),
    "file": (_YES, "f"),
    "flags": (_YES, "F"),
    "format": (_YES, "o"),
    "gid": (_YES, "g"),
    "group": (_YES, "g"),
    "help": (_NO, "h"),
    "helpformat": (_NO, "e"),
    "helpreason": (_NO, "helpreason"),
    "helpstate": (_NO, "helpstate"),
    "jobs": (_YES, "j"),
    "json": (_MAYBE, "json"),
    "local": (_NO, "ignored"),
    "long": (_NO, "l"),
    "name": (_YES, "name"),
    "ncpus": (_YES, "I"),
    "nnodes": (_YES, "i"),
    "noconvert": (_NO, "noconvert"),
    "nodelist": (_YES, "N"),
    "noheader": (_NO, "n"),
    "parsable": (_NO, "p"),
    "parsable2": (_NO, "P"),
    "partition": (_YES, "r"),
    "qos": (_YES, "q"),
    "reason": (_YES, "R"),
    "starttime": (_YES, "S"),
    "state": (_YES, "s"),
    "timelimit-max": (_YES, "K"),
    "timelimit-min": (_YES, "k"),
    "truncate": (_NO, "T"),
    "uid": (_YES, "u"),
    "units": (_YES, "units"),
    "usage": (_NO, "usage"),
    "use-local-uid": (_NO, "ignored"),
    "user": (_YES, "u"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
    "wckeys": (_YES, "W"),
    "whole-hetjob": (_MAYBE, "hetjob"),
    "yaml": (_MAYBE, "yaml"),
}
#: states beside the base ones: a job is never seen in most of them here
_OTHER = {
    "REQUEUED": "RQ",
    "RESIZING": "RS",
    "REVOKED": "RV",
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
}
#: those of them that accounting has no record of
_NOT_KEPT = _OTHER.keys() - {"REQUEUED", "RESIZING", "REVOKED"}
STATES = {state.name: state.compact for state in JobState} | _OTHER
REASONS = (
    *("None", "Priority", "Dependency", "Resources", "PartitionNodeLimit", "PartitionTimeLimit"),
    *("PartitionDown", "PartitionInactive", "JobHeldAdmin", "JobHeldUser", "BeginTime"),
    *("Licenses", "ReqNodeNotAvail", "Reservation", "NodeDown", "BadConstraints"),
    *("DependencyNeverSatisfied", "JobArrayTaskLimit", "QOSMaxJobsPerUserLimit"),
)
#: what lasts a moment is in no record
_NOT_KEPT = frozenset(_OTHER) - {"REQUEUED", "RESIZING", "REVOKED"}
#: what a list option fills
_LISTS = {"A": "accounts", "q": "qos", "r": "partitions", "R": "reasons", "W": "wckeys"} | {
    "name": "names"
}


class Wanted:
    """The report that is asked for."""

    def __init__(self) -> None:
        self.query = AcctQuery()
        self.format = ""
        self.header = True
        #: "" a table, "p" with the delimiter at the end too, "P" without
        self.parsable = ""
        self.delimiter = "|"
        self.allocations = False
        self.duplicates = False
        self.each_task = False
        self.convert = True
        self.unit = ""
        self.truncate = False
        #: end of the window, epoch seconds, to which -T cuts
        self.until = 0
        self.expand = False
        #: "json", "yaml" or "": columns
        self.dump = ""
        self.clusters = ""
        #: "script" or "environment": print that instead
        self.blob = ""
        #: (job, task) -> the steps to show; "" the job and all of them
        self.steps: dict[tuple[int, int], set[str]] = {}
        self.all_users = False
        #: what is missing, as the answer had it
        self.warning = ""


def read_options(
    argv: Sequence[str], env: Mapping[str, str], streams: Streams, reader: Reader
) -> Wanted:
    """Reads all options. Raises Stop (also for those that only print) and OptionError."""
    given, operands = getopt_long.parse(argv, _SHORT, _LONG)
    wanted = Wanted()
    times: dict[str, str] = {}
    for key, value in given:
        if key in ("S", "E"):
            times[key] = value or ""
        else:
            _apply(wanted, key, value or "", streams)
    if operands:
        error(streams, NAME, "Unknown arguments:")
        for word in operands:
            error(streams, NAME, f" {word}")
        raise Stop(1)
    if wanted.blob and not wanted.query.ids:
        what = "job scripts" if wanted.blob == "script" else "job environment"
        raise Stop(
            1,
            f"{NAME}: fatal: When requesting {what} you must also request specific jobs with the "
            f"'-j' option.\n",
        )
    if not wanted.format:
        wanted.format = env.get("SACCT_FORMAT") or DEFAULT
    _window(wanted, times, reader, env)
    query = wanted.query
    if query.qos:
        _known_qos(query.qos, reader)
    if query.limit_s and query.limit_s[0] < 0:
        # A maximum alone says nothing.
        query.limit_s = []
    if not wanted.all_users and not query.uids and not query.ids and reader.uid != 0:
        query.uids = [reader.uid]
    return wanted


def _apply(wanted: Wanted, key: str, text: str, streams: Streams) -> None:
    query = wanted.query
    flags = {"X": "allocations", "D": "duplicates", "array": "each_task", "T": "truncate"} | {
        "expand": "expand",
    }
    if key in flags:
        setattr(wanted, flags[key], True)
    elif key in _LISTS:
        getattr(query, _LISTS[key]).extend(_words(text))
    elif key == "C":
        query.constraints += _words(text)
    elif key == "a":
        wanted.all_users = True
        query.uids = []
    elif key == "o":
        wanted.format = f"{wanted.format},{text}" if wanted.format else text or ","
    elif key == "l":
        wanted.format = LONG
    elif key == "b":
        wanted.format = BRIEF
    elif key == "n":
        wanted.header = False
    elif key in ("p", "P"):
        wanted.parsable = key
    elif key == "delimiter":
        wanted.delimiter = text
    elif key == "noconvert":
        wanted.convert = False
    elif key == "units":
        wanted.unit = _unit(text, streams)
    elif key in ("B", "env"):
        wanted.blob = "script" if key == "B" else "environment"
    elif key in ("M", "L"):
        wanted.clusters = text if key == "M" else "all"
    elif key == "j":
        jobs_named(wanted, text)
    elif key == "s":
        query.states += [_state(word) for word in _words(text)]
    elif key == "u":
        users_named(wanted, text)
    elif key == "g":
        query.gids += [_group(word) for word in _words(text)]
    elif key == "hetjob":
        if text.lower() not in ("", "yes", "no"):
            raise Stop(
                1,
                f'{NAME}: error: Invalid --whole-hetjob value "{text}". Valid values: [yes|no].\n',
            )
        query.whole_het = text.lower() != "no"
    elif key == "x":
        # A word that is no number is one that no association has.
        query.assocs += [int(x) if x.isdecimal() and len(x) < 10 else -1 for x in _words(text)]
    elif key == "N":
        query.nodes += _nodes(text)
    elif key == "F":
        _no_flags(text)
    elif key == "f":
        raise Stop(1, f"{text} is not a valid file\n")
    elif key in ("i", "I"):
        what = "node" if key == "i" else "cpu"
        setattr(query, "nnodes" if key == "i" else "ncpus", _range(text, what))
    elif key in ("k", "K"):
        _limits(query, key, text)
    elif key in ("json", "yaml"):
        from gsched_cli.dump import asked

        wanted.dump = asked(key, text, NAME)
    else:
        _information(key, streams)


def _information(key: str, streams: Streams) -> None:
    """Options that only print something; others have no effect here."""
    out = streams.stdout
    if key == "V":
        out.write(version_line())
    elif key == "h":
        out.write(HELP)
    elif key == "usage":
        out.write(USAGE)
    elif key == "e":
        out.write(help_names(COLUMNS))
    elif key == "helpstate":
        out.write("\n".join(STATES) + "\n")
    elif key == "helpreason":
        out.write("\n".join(REASONS) + "\n")
    elif key == "c":
        raise Stop(1, "Slurm job completion is disabled\n")
    else:
        return
    raise Stop(0)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _unit(text: str, streams: Streams) -> str:
    if len(text) != 1 or text.upper() not in "KMGTP":
        error(streams, NAME, f"Invalid unit type '{text}'. Possible options are 'KMGTP'")
        raise Stop(1, f"{NAME}: fatal: Invalid unit type\n")
    return text.upper()


# ---- jobs ------------------------------------------------------------------------------------

_JOB = re.compile(
    r"(?P<job>[0-9]{1,10})(?:_(?P<task>[0-9]{1,7})|_\[(?P<tasks>[^\]]*)\]|\+(?P<het>[0-9]{1,4}))?"
    r"(?:\.(?P<step>.*))?\Z",
    re.ASCII,
)


def jobs_named(wanted: Wanted, text: str, command: str = NAME) -> None:
    """-j: ids with tasks, components and steps."""
    from gsched.taskset import TaskSet, TaskSetError

    for item in _split_ids(text):
        found = _JOB.match(item)
        if found is None or not int(found["job"]):
            raise Stop(1, f"{command}: fatal: Bad job/step specified: {item}\n")
        job = int(found["job"])
        step = found["step"] or ""
        if found["step"] is not None and not re.fullmatch(r"[0-9]+|batch|extern|interactive", step):
            raise Stop(1, f"{command}: fatal: Bad step specified: {item.partition('.')[0]}\n")
        tasks = [-1]
        if found["task"] is not None:
            tasks = [int(found["task"])]
        elif found["het"] is not None:
            tasks = [-2 - int(found["het"])]
        elif found["tasks"] is not None:
            try:
                tasks = list(TaskSet.parse(found["tasks"].partition("%")[0]))
            except (TaskSetError, ValueError):
                tasks = []
            if not tasks or len(tasks) > 100_000:
                raise Stop(1, f"{command}: fatal: Bad job/step specified: {item}\n")
        for task in tasks:
            wanted.query.ids.append((job, task))
            wanted.steps.setdefault((job, task), set()).add(step)


def _split_ids(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    items, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _known_qos(names: Sequence[str], reader: Reader) -> None:
    from gsched.model.policy import Qos
    from gsched.wire.policy import PolicyQuery

    records = asking(lambda: reader.policy(PolicyQuery()), f"{NAME}: error:").records
    known = sorted((one.id, one.name) for one in records if isinstance(one, Qos))
    names_known = [name for _, name in known]
    for name in names:
        if known and name.lower() not in names_known:
            raise Stop(
                1,
                f"{NAME}: error: You gave a bad qos '{name}'. Valid QOS's are "
                f"{','.join(names_known)}\n{NAME}: fatal: problem processing qos list\n",
            )


# ---- people, states, nodes, numbers ----------------------------------------------------------


def users_named(wanted: Wanted, text: str, command: str = NAME) -> None:
    """-u: names and numbers."""
    import pwd

    for name in _words(text):
        if name.isascii() and name.isdigit() and len(name) <= 10:
            wanted.query.uids.append(int(name))
            continue
        try:
            wanted.query.uids.append(pwd.getpwnam(name).pw_uid)
        except (KeyError, ValueError, UnicodeEncodeError):
            raise Stop(1, f"{command}: error: Invalid user id: {name}\n") from None


def _group(name: str) -> int:
    import grp

    if name.isascii() and name.isdigit() and len(name) <= 10:
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError, UnicodeEncodeError):
        raise Stop(1, f"{NAME}: error: Invalid group id: {name}\n") from None


def _state(word: str) -> str:
    upper = word.upper()
    for name, compact in STATES.items():
        if upper in (name, compact):
            if name in _NOT_KEPT:
                raise Stop(1, f"{NAME}: fatal: job state {word} is not supported / accounted\n")
            return name
    raise Stop(1, f"{NAME}: fatal: unrecognized job state value '{word}'\n")


def _nodes(text: str) -> list[str]:
    from gsched.hostlist import HostlistError, expand

    try:
        return expand(text)
    except HostlistError as problem:
        raise Stop(1, f"{NAME}: error: {problem}\n") from None


def _range(text: str, what: str) -> list[int]:
    found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text, re.ASCII)
    if found is None:
        raise Stop(
            1, f'{NAME}: error: Invalid numeric value "{text}" for requested {what} range.\n'
        )
    low = int(found[1])
    return [low, int(found[2])] if found[2] is not None else [low, low]


def _limits(query: AcctQuery, key: str, text: str) -> None:
    from gsched.units import UnitError, parse_duration

    try:
        seconds = parse_duration(text)
    except UnitError:
        seconds = 0
    if seconds == 0:
        raise Stop(1, f"{NAME}: fatal: Invalid time limit specification\n")
    low, high = query.limit_s or [-1, -1]
    # Limits are of whole minutes.
    value = 1 << 40 if seconds is None else -(-seconds // 60) * 60
    if key == "k":
        low = value
        high = value if high < 0 else high
    else:
        high = value
    query.limit_s = [low, high]


# ---- the window ------------------------------------------------------------------------------


def _window(
    wanted: Wanted, times: Mapping[str, str], reader: Reader, env: Mapping[str, str]
) -> None:
    """-S and -E, whose defaults depend on -j and -s as the manual says."""
    import time

    now = int(reader.now())
    query = wanted.query
    start = _point(times["S"], now) if "S" in times else None
    end = _point(times["E"], now) if "E" in times else None
    if start is not None:
        query.start = start
    elif query.ids:
        query.start = 0
    elif query.states:
        query.start = now
    else:
        day = time.localtime(now)
        query.start = int(time.mktime((*day[:3], 0, 0, 0, 0, 0, -1)))
    if end is not None:
        query.end = end
    elif query.states and start is not None:
        query.end = start
    else:
        # What came in this very second is there, too.
        query.end = now + 1
    wanted.until = min(query.end, now) if end is None else query.end
    if end is None and query.ids and not query.states:
        # A named job is there wherever clocks stand: programs take what is missing as over.
        query.end = 1 << 40
    # A named job is shown though it never could run, and though it is only to run later.
    query.ineligible = bool(query.ids) and not query.states
    last = query.end if end is not None or query.states else now
    if query.start > last:
        raise Stop(
            1,
            f"{NAME}: error: Start time ({timestamp(query.start, env, now)}) requested is after "
            f"end time ({timestamp(last, env, now)}).\n",
        )
    if query.states and query.start == query.end:
        # A moment is a second long.
        query.end += 1


def _point(text: str, now: int) -> int:
    """A point in the past: a time of day is today's, a date without a year the last one."""
    from gsched.units import UnitError, parse_time_point

    try:
        return max(parse_time_point(text.strip(), now, past=True), 0)
    except UnitError as problem:
        raise Stop(1, f"{problem}\n") from None


#: flags of jobs as Slurm names them
_JOB_FLAGS = frozenset({"none", "schedsubmit", "schedmain", "schedbackfill", "startreceived"})


def _no_flags(text: str) -> None:
    """Which part of the scheduler has started a job is not kept: jobs cannot be chosen by it."""
    for one in filter(None, text.split(",")):
        if one.lower() not in _JOB_FLAGS:
            raise Stop(1, f"sacct: error: str_2_job_flags: Invalid job flag {one}\n")
    raise Stop(1, "sacct: error: flags of jobs are not kept here: -F cannot choose by them\n")
