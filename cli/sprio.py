"""sprio: what the priorities of waiting jobs are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gsched.model.states import Hold, JobState
from gsched.policy import Book, multifactor
from gsched.policy.multifactor import Factors, Multifactor, Weights
from gsched.wire.policy import PolicyQuery
from gsched_cli import getopt_long
from gsched_cli.common import Reader, Streams, command_main, error, version_line
from gsched_cli.fields import Field, Table, parse_short
from gsched_cli.getopt_long import Arg
from gsched_cli.jobquery import load_jobs
from gsched_cli.process import uid_of
from gsched_cli.sprio_help import HELP, LETTERS, USAGE
from gsched_cli.stop import Stop, asking, own_cluster

if TYPE_CHECKING:
    from gsched.model.job import Job

NAME = "sprio"
ASKING = "slurm_load_jobs error:"
_NO, _YES = Arg.NO, Arg.YES
_SHORT = "hj:lM:no:p:S:u:vVw"
_LONG: dict[str, tuple[Arg, str]] = {
    "cluster": (_YES, "M"),
    "clusters": (_YES, "M"),
    "federation": (_NO, "federation"),
    "format": (_YES, "o"),
    "help": (_NO, "help"),
    "helpformat": (_NO, "helpformat"),
    "jobs": (_YES, "j"),
    "local": (_NO, "local"),
    "long": (_NO, "l"),
    "noheader": (_NO, "h"),
    "norm": (_NO, "n"),
    "partition": (_YES, "p"),
    "sibling": (_NO, "local"),
    "sort": (_YES, "S"),
    "usage": (_NO, "usage"),
    "user": (_YES, "u"),
    "users": (_YES, "u"),
    "verbose": (_NO, "v"),
    "version": (_NO, "V"),
    "weights": (_NO, "w"),
}


class Wanted:
    """What the options ask for."""

    def __init__(self) -> None:
        self.header = True
        self.long = False
        self.norm = False
        self.weights = False
        self.format: str | None = None
        self.sort = ""
        self.cluster = ""
        self.jobs: set[int] = set()
        self.users: list[str] = []
        self.partitions: list[str] = []


class Rank(NamedTuple):
    """A waiting job in one of its partitions; without one, the weights."""

    job: Job | None
    factors: Factors
    weights: Weights
    cluster: str

    @property
    def fixed(self) -> bool:
        return self.factors.fixed >= 0

    def weighed(self, name: str) -> float:
        """A factor times its weight."""
        if self.fixed:
            return 0.0
        return float(getattr(self.weights, name) * getattr(self.factors, name))

    @property
    def value(self) -> float:
        """The priority, before it is made a whole number."""
        if self.fixed:
            return float(self.factors.fixed)
        return max(1.0, multifactor.total(self.factors, self.weights))


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: Streams, reader: Reader
) -> int:
    """The command; returns its exit code."""
    try:
        wanted = _options(argv, env, streams)
        _report(wanted, streams, reader)
        return 0
    except getopt_long.OptionError as problem:
        streams.stderr.write(f'{NAME}: {problem}\nTry "{NAME} --help" for more information\n')
        return 1
    except Stop as stop:
        streams.stderr.write(stop.text)
        return stop.code


def main() -> NoReturn:
    command_main(NAME, run)


def _options(argv: Sequence[str], env: Mapping[str, str], streams: Streams) -> Wanted:
    given, operands = getopt_long.parse(argv, _SHORT, _LONG)
    wanted = Wanted()
    wanted.cluster = env.get("SLURM_CLUSTERS", "")
    for key, value in given:
        text = value or ""
        if key == "h":
            wanted.header = False
        elif key == "l":
            wanted.long = True
        elif key == "n":
            wanted.norm = True
        elif key == "w":
            wanted.weights = True
        elif key == "o":
            wanted.format = text
        elif key == "S":
            wanted.sort = text
        elif key == "M":
            wanted.cluster = text
        elif key == "j":
            wanted.jobs |= {_job_id(one) for one in text.split(",") if one.strip()}
        elif key == "u":
            wanted.users += [one.strip() for one in text.split(",") if one.strip()]
        elif key == "p":
            wanted.partitions += [one.strip() for one in text.split(",") if one.strip()]
        elif key in ("V", "help", "usage", "helpformat"):
            said = {"V": version_line(), "help": HELP, "usage": USAGE, "helpformat": LETTERS}
            streams.stdout.write(said[key])
            raise Stop(0)
    for text in operands:
        wanted.jobs |= {_job_id(one) for one in text.split(",") if one.strip()}
    return wanted


def _job_id(text: str) -> int:
    text = text.strip()
    if not text.isdigit() or not int(text):
        raise Stop(1, f"{NAME}: error: Invalid job id: {text}\n")
    return int(text)


def _report(wanted: Wanted, streams: Streams, reader: Reader) -> None:
    cluster = wanted.cluster and own_cluster(wanted.cluster, reader, NAME, ASKING, streams)
    config = asking(reader.config, ASKING)
    if config.priority_type != multifactor.MULTIFACTOR:
        raise Stop(
            1,
            f"{NAME}: error: You are not running a supported priority plugin\n"
            f"({config.priority_type}).\n"
            "Only 'priority/multifactor' is supported.\n",
        )
    ranks = _ranks(wanted, reader, cluster)
    for name in wanted.users:
        # Users of other hosts are known by their jobs.
        if uid_of(name) is None and all(rank.job.user != name for rank in ranks):
            error(streams, NAME, f"Invalid user: {name}")
            streams.stderr.write("\n")
    weights = Weights.of(config)
    table = _table()
    layout = parse_short(wanted.format or _default(wanted, weights), table)
    for name in layout.bad:
        error(streams, NAME, f"Invalid job format specification: {name}")
    if not ranks and not wanted.weights and wanted.jobs:
        streams.stdout.write("Unable to find jobs matching user/id(s) specified\n")
        return
    if wanted.header:
        streams.stdout.write(layout.header())
    if wanted.weights:
        streams.stdout.write(layout.row(Rank(None, Factors(""), weights, cluster)))
        return
    _sort(ranks, wanted.sort, table, streams)
    for rank in ranks:
        streams.stdout.write(layout.row(rank))


def _default(wanted: Wanted, weights: Weights) -> str:
    """The columns of the options: of the factors, in the short report, those that have a weight."""
    if wanted.norm:
        columns = ["%.15i %9r", "%10y", "%10a", "%10b", "%10f", "%10j", "%10p", "%10q"]
    else:
        columns = ["%.15i %9r", "%.10Y", "%.10S", "%.10A", "%.10B", "%.10F", "%.10J", "%.10P"]
        columns.append("%.10n %.10Q" if wanted.long else "%.10Q")
    if wanted.long or wanted.users:
        columns.insert(1, "%.8u")
    if wanted.long:
        columns.insert(2, "%.8o")
    if not wanted.long:
        shown = {
            "a": weights.age,
            "b": weights.assoc,
            "f": weights.fair_share,
            "j": weights.job_size,
            "p": weights.part,
            "q": weights.qos,
        }
        columns = [one for one in columns if shown.get(one[-1].lower(), 1)]
    if wanted.long and not wanted.norm:
        columns.append("%.11N")
    if weights.tres or wanted.long:
        columns.append("%20t" if wanted.norm else "%.20T")
    return " ".join(columns)


def _ranks(wanted: Wanted, reader: Reader, cluster: str) -> list[Rank]:
    if wanted.weights:
        return []
    rows = asking(lambda: reader.policy(PolicyQuery(used=True)), ASKING)
    config = reader.settings()
    fair = rows.fair.factors if rows.fair is not None else {}
    factors = Multifactor(config, Book(rows.records), multifactor.lineup(config))
    at = rows.fair.at if rows.fair is not None else reader.now()
    found = []
    for job in load_jobs(reader, ids=wanted.jobs, active_only=True).jobs:
        waits = job.state is JobState.PENDING and job.held is Hold.NONE and not job.deps
        if not waits or job.eligible_time > reader.now() or job.priority == 0:
            continue
        if wanted.users and not {job.user, str(job.uid)} & set(wanted.users):
            continue
        for partition in job.spec.partitions or (job.partition,):
            if not wanted.partitions or partition in wanted.partitions:
                found.append(
                    Rank(job, factors.factors(job, partition, at, fair), factors.weights, cluster)
                )
    return found


def _sort(ranks: list[Rank], spec: str, table: Table[Rank], streams: Streams) -> None:
    ranks.sort(key=lambda rank: rank.job.id if rank.job is not None else 0)
    for item in reversed([one for one in spec.split(",") if one]):
        letter = item.lstrip("+-")
        field = table.letters.get(letter)
        if field is None:
            raise Stop(1, f"{NAME}: error: Invalid sort specification: {item}\n")
        ranks.sort(key=field.order, reverse=item.startswith("-"))  # type: ignore[arg-type]


# ---- columns -------------------------------------------------------------------------------------


def _table() -> Table[Rank]:
    fields: list[Field[Rank]] = []
    for big, small, header, name in (
        ("A", "a", "AGE", "age"),
        ("B", "b", "ASSOC", "assoc"),
        ("F", "f", "FAIRSHARE", "fair_share"),
        ("J", "j", "JOBSIZE", "job_size"),
        ("P", "p", "PARTITION", "part"),
        ("Q", "q", "QOS", "qos"),
    ):
        fields.append(Field(big, (), header, _whole(name), lambda r, n=name: r.weighed(n)))
        fields.append(
            Field(small, (), header, _part(name), lambda r, n=name: getattr(r.factors, n))
        )
    fields += [
        Field("c", (), "CLUSTER", lambda r: r.cluster or "(null)"),
        Field(
            "i",
            (),
            "JOBID",
            _job(lambda j: str(j.id), "Weights"),
            lambda r: r.job.id if r.job else 0,
        ),
        Field("n", (), "QOSNAME", _job(lambda j: j.spec.qos)),
        Field("N", (), "NICE", _job(lambda j: str(j.spec.nice)), lambda r: r.factors.nice),
        Field("o", (), "ACCOUNT", _job(lambda j: j.spec.account)),
        Field("r", (), "PARTITION", lambda r: r.factors.partition),
        Field(
            "s",
            (),
            "SITE",
            lambda r: str(r.factors.site) if r.job else "1",
            lambda r: r.factors.site,
        ),
        Field(
            "S",
            (),
            "SITE",
            lambda r: str(r.factors.site) if r.job else "1",
            lambda r: r.factors.site,
        ),
        Field("t", (), "TRES", _tres(weighed=False)),
        Field("T", (), "TRES", _tres(weighed=True)),
        Field("u", (), "USER", _job(lambda j: j.user)),
        Field(
            "y",
            (),
            "PRIORITY",
            lambda r: "" if r.job is None else f"{_share(r):.14f}",
            lambda r: r.value,
        ),
        Field(
            "Y",
            (),
            "PRIORITY",
            lambda r: "" if r.job is None else str(_priority(r)),
            lambda r: _priority(r),
        ),
    ]
    return Table(fields)


def _priority(rank: Rank) -> int:
    return rank.factors.fixed if rank.fixed else multifactor.whole(rank.value)


def _share(rank: Rank) -> float:
    """The priority as a fraction of the largest; one that was set is shown as it is."""
    return rank.value if rank.fixed else rank.value / multifactor.WHOLE


def _job(read: Callable[[Job], str], weights: str = "") -> Callable[[Rank], str]:
    return lambda rank: weights if rank.job is None else read(rank.job)


def _whole(name: str) -> Callable[[Rank], str]:
    def read(rank: Rank) -> str:
        if rank.job is None:
            return f"{getattr(rank.weights, name):.0f}"
        return f"{rank.weighed(name):.0f}"

    return read


def _part(name: str) -> Callable[[Rank], str]:
    def read(rank: Rank) -> str:
        if rank.job is None:
            return f"{getattr(rank.weights, name):.0f}"
        return "0.0000000" if rank.fixed else f"{getattr(rank.factors, name):.7f}"

    return read


def _tres(*, weighed: bool) -> Callable[[Rank], str]:
    def read(rank: Rank) -> str:
        weights = rank.weights.tres
        if rank.job is None:
            return (
                ",".join(f"{name}={value:g}" for name, value in weights.items()) if weighed else ""
            )
        if rank.fixed:
            return ""
        if weighed:
            parts = {name: weights[name] * value for name, value in rank.factors.tres.items()}
            return ",".join(f"{name}={value:.0f}" for name, value in parts.items())
        return ",".join(f"{name}={value:.2f}" for name, value in rank.factors.tres.items())

    return read
