"""`gsched sim`: a trace replayed against a cluster, or several, and what came of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from gsched.simulate import chart, replay_files, report, report_text, teams, variants
from gsched.simulate.replay import Replay
from gsched.simulate.replay_cluster import ClusterError, Wish, build, check_lines, parse_nodes
from gsched.simulate.replay_spec import GANGS, Requests, specs
from gsched.simulate.traces import FORMATS, Trace, TraceError, read_trace
from gsched.simulate.window import Window, WindowError
from gsched.wire.messages import PolicyOp

#: virtual jobs from which on a replay takes long enough for a bar
_BAR_FROM = 2000


@dataclass(frozen=True)
class Options:
    """How jobs become requests, the same for all that is compared."""

    gangs: str
    limits: str
    kill: bool
    priority: bool
    #: accounts, users and QOS, as changes of sacctmgr
    accounts: tuple[PolicyOp, ...] = ()


@dataclass
class Result:
    """One replay that is over."""

    name: str
    replay: Replay
    summary: dict[str, Any]


def _limits(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if value in ("trace", "exact"):
        return value
    try:
        if 0 < float(value) < 1e6:
            return value
    except ValueError:
        pass
    raise click.BadParameter(f'"{value}" is neither trace, exact nor a factor above 0')


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default=None, help="Default: found by content."
)
@click.option(
    "--conf",
    type=click.Path(path_type=Path),
    metavar="SLURM.CONF",
    help="The cluster, with gres.conf and topology.conf beside it.",
)
@click.option(
    "--nodes",
    multiple=True,
    metavar="NODESxGPUS[:type=,cpus=,mem=,features=a+b]",
    help="The cluster, e.g. 128x8; may be repeated. Or a FILE with a list of nodes.",
)
@click.option("--scheduler", type=click.Choice(list(variants.SCHEDULERS)), help="Who may overtake.")
@click.option(
    "--node-policy", type=click.Choice(list(variants.POLICIES)), help="How nodes are chosen."
)
@click.option(
    "--set",
    "lines",
    multiple=True,
    metavar="KEY=VALUE",
    help="A line laid over slurm.conf; may be repeated.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="VARIANT",
    help="Replay it so as well, and show both side by side; may be repeated. A slurm.conf, or "
    "words as in 'fifo', 'easy best-fit OverTimeLimit=5'.",
)
@click.option(
    "--gangs",
    type=click.Choice(GANGS),
    default="packed",
    show_default=True,
    help="Jobs that tell only a number of GPUs: on as few nodes as hold them, or on any GPUs.",
)
@click.option(
    "--processors",
    type=click.Choice(["cpu", "gpu"]),
    help="What one of the trace's processors is (SWF: cpu, tables of gangs: gpu).",
)
@click.option(
    "--limits",
    default="trace",
    show_default=True,
    callback=_limits,
    metavar="trace|exact|FACTOR",
    help="Time limits: the trace's, the run times, or the run times times FACTOR.",
)
@click.option(
    "--kill/--no-kill",
    default=True,
    show_default=True,
    help="End jobs at their limit, or raise limits that are below the run time.",
)
@click.option(
    "--accounts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Accounts and QOS with their limits and guarantees: a file of `sacctmgr dump`. Users of "
    "the trace are added to the accounts that they name.",
)
@click.option("--priority", is_flag=True, help="Give jobs the priority that the trace tells.")
@click.option(
    "--from", "since", metavar="TIME", help="Only jobs from then on: 3d, 12h, 3600, a date."
)
@click.option("--until", metavar="TIME", help="Only jobs that came before.")
@click.option(
    "--scale-load",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    help="Let jobs come so many times as fast.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write schedule.csv, timeline.csv, summary.json, summary.txt and chart.svg there; with "
    "--accounts also teams.csv and teams.svg.",
)
@click.option("--schedule", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.option("--timeline", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.option(
    "--chart", "picture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg|.png"
)
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON instead of tables.")
@click.option("-q", "--quiet", is_flag=True, help="No remarks and no bar.")
def sim(
    trace: Path,
    form: str | None,
    conf: Path | None,
    nodes: tuple[str, ...],
    scheduler: str | None,
    node_policy: str | None,
    lines: tuple[str, ...],
    compare: tuple[str, ...],
    gangs: str,
    processors: str | None,
    limits: str,
    kill: bool,
    accounts: Path | None,
    priority: bool,
    since: str | None,
    until: str | None,
    scale_load: float,
    out: Path | None,
    schedule: Path | None,
    timeline: Path | None,
    picture: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Replay TRACE with the code that schedules, under a virtual clock.

    TRACE is a log in the Standard Workload Format, a table of gang jobs
    (job_id,submit_s,runtime_s,gpus[,estimate_s,user]), a list of tasks of Alibaba's openb traces,
    or the output of `sacct -P`; gzipped or not.
    """
    if conf is not None and nodes:
        raise click.UsageError("--conf and --nodes do not go together")
    told_already: set[str] = set()

    def say(text: str) -> None:
        if not quiet and text not in told_already:
            told_already.add(text)
            click.echo(text, err=True)

    if picture is not None:
        chart.check(picture)
    _check_places(out, [schedule, timeline, picture])
    try:
        window = Window.parse(since, until, scale_load)
        told = window.cut(read_trace(trace, form or "", processors == "gpu"))
        if processors == "cpu":
            _as_cpus(told)
        for remark in told.remarks:
            say(f"{trace}: {remark}")
        groups = tuple(group for text in nodes for group in parse_nodes(text))
        wish = Wish(conf, groups, check_lines(lines))
        wish = variants.with_words(wish, [word for word in (scheduler, node_policy) if word])
        wanted = [("as given", wish)]
        wanted += [(text, variants.variant(wish, text)) for text in compare]
        changes: tuple[PolicyOp, ...] = ()
        if accounts is not None:
            known = click.get_current_context().find_object(dict) or {}
            changes = tuple(known["accounts"](accounts.read_text(encoding="utf-8")))
            enforce = "AccountingStorageEnforce=limits,qos"
            wanted = [(text, replace(each, lines=(enforce, *each.lines))) for text, each in wanted]
        options = Options(gangs, limits, kill, priority, changes)
        results = [_one(name, each, told, options, say, quiet) for name, each in wanted]
    except (TraceError, ClusterError, WindowError) as problem:
        raise click.ClickException(str(problem)) from None
    _tell(results, as_json)
    try:
        _write(results, told, out, schedule, timeline, picture)
    except OSError as problem:
        raise _not_written(problem) from None


def _not_written(problem: OSError) -> click.ClickException:
    return click.ClickException(f"{problem.filename} cannot be written: {problem.strerror}")


def _check_places(out: Path | None, files: list[Path | None]) -> None:
    """Before a replay that may take long."""
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        for file in files:
            if file is not None:
                file.touch()
    except OSError as problem:
        raise _not_written(problem) from None


def _as_cpus(trace: Trace) -> None:
    for job in trace.jobs:
        job.cpus, job.gpus = max(job.cpus, job.gpus), 0


def _one(
    name: str,
    wish: Wish,
    trace: Trace,
    options: Options,
    say: Callable[[str], None],
    quiet: bool,
) -> Result:
    built = build(wish, trace)
    for remark in built.remarks:
        say(remark)
    requests = Requests(
        built.config, options.gangs, options.limits, options.kill, strict=wish.conf is not None
    )
    replay = Replay(
        built.config,
        trace.jobs,
        specs(requests, trace.jobs),
        trace.epoch,
        options.priority,
        changes=options.accounts,
    )
    for remark in requests.remarks():
        say(remark)
    began, used = time.perf_counter(), time.process_time()
    with _bar(name, len(trace.jobs), quiet) as progress:
        replay.run(progress)
    took, used = time.perf_counter() - began, time.process_time() - used
    mean = 1e6 * replay.pass_s / max(1, replay.passes)
    say(
        f"{name}: {len(trace.jobs):,} jobs in {took:.1f} s ({used:.1f} s of CPU); "
        f"{replay.passes:,} passes of {mean:.0f} us on average, "
        f"{1000 * replay.longest_s:.1f} ms at most"
        + (f"; {replay.plans:,} plans in {replay.plan_s:.1f} s" if replay.plans else "")
    )
    found = report.summary(replay.record, replay.passes, replay.refused)
    return Result(name, replay, found)


@contextmanager
def _bar(name: str, jobs: int, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """On a terminal, for long replays: half of the way is that a job came, half that it ended."""
    if quiet or jobs < _BAR_FROM or not sys.stderr.isatty():
        yield None
        return
    done = 0
    with click.progressbar(length=2 * jobs, label=name[:30], file=sys.stderr) as bar:

        def progress(came: int, ended: int) -> None:
            nonlocal done
            bar.update(came + ended - done)
            done = came + ended

        yield progress
        bar.update(2 * jobs - done)


def _tell(results: list[Result], as_json: bool) -> None:
    if as_json:
        found: Any = results[0].summary
        if len(results) > 1:
            found = [{"name": result.name, **result.summary} for result in results]
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(_text(results))


def _text(results: list[Result]) -> str:
    if len(results) == 1:
        found = report_text.summary_text(results[0].summary)
        told = results[0].replay.teams
        return f"{found}\n\n{teams.text(told)}" if told.stands else found
    return report_text.compare_text(
        [result.name for result in results], [result.summary for result in results]
    )


def _write(
    results: list[Result],
    trace: Trace,
    out: Path | None,
    schedule: Path | None,
    timeline: Path | None,
    picture: Path | None,
) -> None:
    title = f"{Path(trace.name).name}: {len(trace.jobs):,} jobs"
    if out is not None:
        for number, result in enumerate(results):
            folder = (
                out if len(results) == 1 else out / (f"variant-{number}" if number else "given")
            )
            folder.mkdir(exist_ok=True)
            replay_files.write_schedule(folder / "schedule.csv", result.replay.record)
            replay_files.write_timeline(folder / "timeline.csv", result.replay.record)
            text = json.dumps(result.summary, indent=2)
            (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
            if result.replay.teams.stands:
                teams.write(folder / "teams.csv", result.replay.teams)
                chart.write(folder / "teams.svg", teams.draw(result.replay.teams, title))
        (out / "summary.txt").write_text(_text(results) + "\n", encoding="utf-8")
        chart.write(out / "chart.svg", _picture(results, title))
    if schedule is not None:
        replay_files.write_schedule(schedule, results[0].replay.record)
    if timeline is not None:
        replay_files.write_timeline(timeline, results[0].replay.record)
    if picture is not None:
        chart.write(picture, _picture(results, title))


def _picture(results: list[Result], title: str) -> str:
    lines = [chart.Line(result.name, result.replay.record) for result in results]
    return chart.draw(lines, title)


__all__ = ["sim"]
