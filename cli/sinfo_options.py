"""The options of sinfo: what is asked for, from the command line and the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, error, version_line
from gsched_cli.getopt_long import Arg
from gsched_cli.stop import Stop, cluster_config

NAME = "sinfo"

_NO, _YES, _MAYBE = Arg.NO, Arg.YES, Arg.MAYBE
_SHORT = "adeFhi:lM:n:No:O:p:rRsS:t:TvV"
_LONG: dict[str, tuple[Arg, str]] = {
    "all": (_NO, "a"),
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    "dead": (_NO, "d"),
    "exact": (_NO, "e"),
    "federation": (_NO, "ignored"),
    "format": (_YES, "o"),
    "Format": (_YES, "O"),
    "future": (_NO, "F"),
    "help": (_NO, "help"),
    "helpformat": (_NO, "helpformat"),
    "helpFormat": (_NO, "helpFormat"),
    "helpstate": (_NO, "helpstate"),
    "hide": (_NO, "hide"),
    "iterate": (_YES, "i"),
    "json": (_MAYBE, "json"),
    "list-reasons": (_NO, "R"),
    "local": (_NO, "ignored"),
    "long": (_NO, "l"),
    "Node": (_NO, "N"),
    "noconvert": (_NO, "ignored"),
    "nodes": (_YES, "n"),
    "noheader": (_NO, "h"),
    "partition": (_YES, "p"),
    "reservation": (_NO, "T"),
    "responding": (_NO, "r"),
    "sort": (_YES, "S"),
    "states": (_YES, "t"),
    "summarize": (_NO, "s"),
    "usage": (_NO, "usage"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
    "yaml": (_MAYBE, "yaml"),
}
_ENV = {
    "SINFO_ALL": "a",
    "SINFO_FORMAT": "o",
    "SINFO_PARTITION": "p",
    "SINFO_SORT": "S",
    "SLURM_CLUSTERS": "M",
}
#: words of -t: what each stands for (NodeView.in_state), "" for what no node here is ever in
_STATES = {
    "UNKNOWN": "UNK",
    "DOWN": "DOWN",
    "IDLE": "IDLE",
    "ALLOCATED": "ALLOC",
    "MIXED": "MIX",
    "FUTURE": "FUTR",
    "DRAIN": "DRAIN",
    "DRAINED": "DRAINED",
    "DRAINING": "DRAINING",
    "NO_RESPOND": "NO_RESPOND",
    "RESERVED": "RESV",
    "PLANNED": "PLND",
    "BLOCKED": "",
    "CLOUD": "",
    "COMPLETING": "COMP",
    "POWERING_DOWN": "",
    "POWERED_DOWN": "",
    "POWER_DOWN": "",
    "POWERING_UP": "",
    "POWER_UP": "",
    "INVAL": "",
    "FAIL": "FAIL",
    "MAINT": "MAINT",
    "REBOOT": "",
    "REBOOT^": "",
    "EXTERNAL": "",
    "DYNAMIC_FUTURE": "",
    "DYNAMIC_NORM": "",
}
_SHORT_STATES = {
    "ALLOC": "ALLOC",
    "MIX": "MIX",
    "COMP": "COMP",
    "UNK": "UNK",
    "FUTR": "FUTR",
    "FAILING": "FAILING",
    "FAILG": "FAILING",
    "DRNG": "DRAINING",
    "NOT_RESPONDING": "NO_RESPOND",
    "RESV": "RESV",
    "PLND": "PLND",
    "NPC": "",
    "PERFCTRS": "",
    "REBOOT_ISSUED": "",
    "REBOOT_REQUESTED": "",
}

USAGE = """\
Usage: sinfo [-abdelNRrsTv] [-i seconds] [-t states] [-p partition] [-n nodes]
             [-S fields] [-o format] [-O Format] [--federation] [--local]
"""

HELP = """\
Usage: sinfo [OPTIONS]
Which nodes and partitions (lists are separated by commas):
  -a, --all                 hidden partitions too (--hide: not)
  -d, --dead                only nodes that do not respond
  -F, --future              nodes configured for later too
  -M, --clusters=LIST       clusters to ask
  -n, --nodes=HOSTS         only these nodes
  -p, --partition=LIST      only these partitions
  -r, --responding          only nodes that respond
  -t, --states=LIST         only nodes in these states ("a&b": in both)
What to show:
  -e, --exact               alike means alike in every figure shown
  -h, --noheader            no header
  -i, --iterate=SECONDS     again and again
  -l, --long                more columns
  -N, --Node                one line for each node and partition
      --json[=LAYOUT]  --yaml[=LAYOUT]
                            everything, for programs ("list": which layouts there are)
      --noconvert           sizes in megabytes
  -o, --format=FORMAT       columns by letter: %[[.]size]type[suffix]
  -O, --Format=FORMAT       columns by name: type[:[.][size][suffix]],...
  -R, --list-reasons        why nodes are out of service
  -s, --summarize           one line for each partition
  -S, --sort=LIST           order, by letters of -o with + or - before them
  -T, --reservation         reservations
      --federation  --local taken, without effect
  -v, --verbose             more messages
  -V, --version             the version
Help:
      --help  --usage       this, or less
      --helpformat          the letters for -o
      --helpFormat          the names for -O
      --helpstate           the states for -t
"""


class Wanted:
    """What the options ask for; None means no restriction."""

    def __init__(self) -> None:
        self.short: str | None = None
        self.long: str | None = None
        self.wide = False
        self.header = True
        self.each_node = False
        self.summary = False
        self.reasons = False
        self.reservations = False
        self.exact = False
        self.all = False
        self.future = False
        self.dead = False
        self.responding = False
        self.iterate = 0
        self.cluster = ""
        self.sort: str | None = None
        self.nodes: set[str] | None = None
        self.partitions: set[str] | None = None
        #: alternatives of words that must all be true
        self.states: list[list[str]] | None = None
        #: "json", "yaml" or "": columns
        self.dump = ""


_SWITCHES = {
    "l": "wide",
    "N": "each_node",
    "s": "summary",
    "R": "reasons",
    "T": "reservations",
    "e": "exact",
    "a": "all",
    "F": "future",
    "d": "dead",
    "r": "responding",
}


def read_options(
    argv: Sequence[str], env: Mapping[str, str], streams: Streams, reader: Reader
) -> Wanted:
    """Reads all options. Raises Stop (also for those that only print) and OptionError."""
    # Words that are no options are passed over, as sinfo does.
    given, _operands = getopt_long.parse(argv, _SHORT, _LONG)
    wanted = Wanted()
    keys = {key for key, _ in given}
    if "l" in keys and keys & {"o", "O"}:
        raise Stop(
            1,
            f"{NAME}: fatal: Options -o(--format) and -l(--long) are mutually exclusive. "
            "Please remove one and retry.\n",
        )
    for variable, key in _ENV.items():
        replaced = keys & {"o", "O", "l", "N", "s", "R"} if key == "o" else key in keys
        if env.get(variable) and not replaced:
            _apply(wanted, key, env[variable], env, streams, reader)
    for key, value in given:
        _apply(wanted, key, value or "", env, streams, reader)
    return wanted


def _apply(
    wanted: Wanted,
    key: str,
    text: str,
    env: Mapping[str, str],
    streams: Streams,
    reader: Reader,
) -> None:
    if key in _SWITCHES:
        setattr(wanted, _SWITCHES[key], True)
    elif key == "hide":
        wanted.all = False
    elif key == "h":
        wanted.header = False
    elif key == "o":
        wanted.short, wanted.long = text, None
    elif key == "O":
        wanted.short, wanted.long = None, text
    elif key == "S":
        wanted.sort = text
    elif key == "M":
        wanted.cluster = text
    elif key == "i":
        if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]):
            raise Stop(1, f"{NAME}: error: Error: invalid entry for --iterate={text}\n")
        wanted.iterate = int(text[:9])
    elif key == "p":
        wanted.partitions = {name for name in text.split(",") if name}
    elif key == "n":
        wanted.nodes = _nodes(text)
    elif key == "t":
        wanted.states = _states(text, streams)
    elif key in ("json", "yaml"):
        from gsched_cli.dump import asked

        wanted.dump = asked(key, text, NAME)
    else:
        _information(key, env, streams, reader)


def _nodes(text: str) -> set[str]:
    from gsched.hostlist import HostlistError, expand

    try:
        return set(expand(text))
    except HostlistError as problem:
        raise Stop(1, f"{NAME}: error: {problem}\n") from None


def _states(text: str, streams: Streams) -> list[list[str]] | None:
    found: list[list[str]] = []
    for item in text.split(","):
        words = []
        for part in item.split("&"):
            word = part.strip().upper()
            if word == "ALL":
                return None
            known = _STATES.get(word, _SHORT_STATES.get(word))
            if known is None:
                error(streams, NAME, f'Bad state string: "{part}"')
                valid = ",".join(name.lower() for name in _STATES)
                raise Stop(1, f"{NAME}: error: valid states: {valid}\n")
            words.append(known)
        found.append(words)
    return found


def _information(key: str, env: Mapping[str, str], streams: Streams, reader: Reader) -> None:
    """Options that only print something; others have no effect here."""
    out = streams.stdout
    if key == "V":
        out.write(version_line())
    elif key == "help":
        out.write(HELP)
    elif key == "usage":
        out.write(USAGE)
    elif key == "helpstate":
        out.write("\n".join(name.lower() for name in _STATES) + "\n")
    elif key in ("helpformat", "helpFormat"):
        from gsched_cli.fields_node import node_table

        table = node_table(env, 0, cluster_config(reader, NAME))
        if key == "helpFormat":
            out.write(table.help_names())
        else:
            out.write(" ".join(f"%{letter}" for letter in sorted(table.letters)) + "\n")
    else:
        return
    raise Stop(0)
