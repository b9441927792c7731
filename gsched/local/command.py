"""The command line of `gsched`."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gsched import SLURM_VERSION, __version__
from gsched.config import load_config
from gsched.local import accounts, conf, daemons, files, machine, shapes
from gsched.local import cluster as clusters
from gsched.local.cluster import Cluster, LocalError
from gsched.local.conf import Layout

#: nodes of a new cluster, unless there are fewer GPUs to divide
NODES = 4
SIMULATE_DEFAULT = "dgx-h100"

if TYPE_CHECKING:
    from gsched.wire.messages import PolicyOp

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the cluster lies (default: your data directory; root: /var/lib/gsched).",
)


def chosen(directory: Path | None) -> Path:
    """The cluster's directory as an absolute path; LocalError for one that no file can name."""
    path = clusters.default_dir() if directory is None else directory
    path = Path(os.path.abspath(path))
    bad = [mark for mark in "\"'%\\#, \t\n" if mark in str(path)]
    if bad:
        raise LocalError(
            f"the directory {str(path)!r} has a {bad[0]!r} in its name, which slurm.conf cannot say"
        )
    return path


class Commands(click.Group):
    """The commands here, and those that lie elsewhere and are imported when asked for."""

    ELSEWHERE = {
        "bill": "gsched_cli.bill:bill",
        "saved": "gsched_cli.saved:saved",
        "sim": "gsched.simulate.sim_command:sim",
        "why": "gsched_cli.why:why",
        "yardstick": "gsched.simulate.command:yardstick",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.ELSEWHERE.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = place.partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, message=f"gsched %(version)s (speaks Slurm {SLURM_VERSION})", prog_name="gsched"
)
@click.pass_context
def group(ctx: click.Context) -> None:
    """A GPU cluster on this machine, driven by Slurm's commands.

    \b
    gsched up                 make a cluster, or bring up what is down
    eval "$(gsched env)"      let sbatch, squeue, ... of this shell use it
    gsched down               stop it; running jobs go on and are found again by `up`
    """
    ctx.obj = {"accounts": _accounts}


def _accounts(text: str) -> list[PolicyOp]:
    """What a file of `sacctmgr dump` asks for, for commands that may not know that one. Raises
    ClickException."""
    from gsched_cli.sacctmgr_file import Loaded
    from gsched_cli.stop import Stop

    try:
        return Loaded(text).changes()
    except Stop as wrong:
        raise click.ClickException(wrong.text.strip()) from None


@group.command()
@directory_option
@click.option("--nodes", type=click.IntRange(1, 1000), help=f"Nodes (default {NODES}).")
@click.option(
    "--simulate",
    metavar="SHAPE",
    help=f"Simulated nodes: {', '.join(shapes.names())}, or a topology FILE. Default: this "
    f"machine's GPUs, or {SIMULATE_DEFAULT} if it has none.",
)
@click.option(
    "--conf",
    "source",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Start from the slurm.conf in DIR: its nodes, partitions and limits, on this machine.",
)
@click.option(
    "--set",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another line for slurm.conf; may be repeated.",
)
@click.option("--timeout", type=click.FloatRange(1), default=60.0, show_default=True, hidden=True)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing unless something fails.")
@click.option("-v", "--verbose", is_flag=True, help="Say which daemons are started.")
def up(
    directory: Path | None,
    nodes: int | None,
    simulate: str | None,
    source: Path | None,
    extra: tuple[str, ...],
    timeout: float,
    quiet: bool,
    verbose: bool,
) -> None:
    """Make a cluster in DIR, or bring up whatever of it is dead, and wait until it takes jobs."""
    layout = Layout(chosen(directory))
    wanted = files.Options(nodes, simulate, source, extra)
    with daemons.lock(files.make_run(layout)):
        remarks = files.prepare(layout, wanted)
        files.check(layout.slurm_conf)
        cluster = Cluster.load(layout.dir)
        started = clusters.up(
            cluster, timeout, lambda text: click.echo(text, err=True) if verbose else None
        )
        with cluster.client() as client:
            first = accounts.begin(load_config(str(cluster.conf), needs=()), client)
    if quiet:
        return
    state = "is up" if started else "was up already"
    click.echo(f"The cluster in {layout.dir} {state}: {files.summary(layout)}")
    if remarks:
        click.echo("Not enforced here:")
        for remark in remarks:
            click.echo(f"  - {remark}")
    if first:
        click.echo(first)
    where = "" if directory is None else f" --dir {shlex.quote(str(layout.dir))}"
    click.echo(f'Let this shell use it:  eval "$(gsched env{where})"')


@group.command()
@directory_option
@click.option("--jobs", is_flag=True, help="Cancel all jobs first (otherwise they run on).")
@click.option("--purge", is_flag=True, help="Cancel all jobs and remove the cluster's files.")
def down(directory: Path | None, jobs: bool, purge: bool) -> None:
    """Stop the daemons of the cluster in DIR.

    Running jobs go on and are found again by the next `gsched up`, unless --jobs or --purge.
    """
    layout = Layout(chosen(directory))
    cluster = Cluster.load_for_down(layout.dir)
    with daemons.lock(layout.run):
        if jobs or purge:
            left = clusters.cancel_all(cluster, files.kill_wait(layout) + 10.0)
            if left:
                click.echo(f"gsched: {left} jobs did not end in time", err=True)
        count, killed = clusters.down(cluster)
        if purge:
            daemons.stop(clusters.supervisors(layout), clusters.STOP_S)
            clusters.purge(layout)
    for name in killed:
        click.echo(f"gsched: {name} did not end by itself and was killed", err=True)
    gone = " and its files are removed" if purge else ""
    click.echo(f"The cluster in {layout.dir} {'is down' if count else 'was down already'}{gone}.")


@group.command()
@directory_option
def status(directory: Path | None) -> None:
    """Show the daemons, the nodes and the queue; exit code 1 if a daemon is dead."""
    cluster = Cluster.load(chosen(directory))
    dead = 0
    for daemon in cluster.all():
        process = cluster.find(daemon)
        dead += process is None
        click.echo(f"{daemon.name:<20} {'DEAD' if process is None else f'pid {process.pid}'}")
    env = {**os.environ, "SLURM_CONF": str(cluster.conf)}
    for command in ("sinfo", "squeue"):
        click.echo()
        sys.stdout.flush()
        subprocess.run([daemons.bin_dir() / command], env=env, check=False)
    if dead:
        raise SystemExit(1)


@group.command()
@directory_option
def env(directory: Path | None) -> None:
    """Print the shell lines that point Slurm's commands at the cluster in DIR."""
    cluster = Cluster.load(chosen(directory))
    for line in environment_lines(os.environ.get("PATH", ""), cluster.conf):
        click.echo(line)


def environment_lines(path: str, slurm_conf: Path) -> list[str]:
    """`export` lines for sh: PATH with our commands first (once), and SLURM_CONF."""
    ours = str(daemons.bin_dir())
    words = [ours, *(word for word in path.split(os.pathsep) if word and word != ours)]
    return [
        f"export PATH={shlex.quote(os.pathsep.join(words))}",
        f"export SLURM_CONF={shlex.quote(str(slurm_conf))}",
    ]


@group.command()
@directory_option
@click.option(
    "--conf",
    "slurm_conf",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The slurm.conf that names the nodes (default: the one of the cluster in DIR).",
)
@click.argument("names", nargs=-1, metavar="[NODE...]")
def keys(directory: Path | None, slurm_conf: Path | None, names: tuple[str, ...]) -> None:
    """Make the keys of the controller and of every node (or of NODE...); existing ones stay.

    They lie in `keys/` beside slurm.conf. A node needs its own secret key and the controller's
    public key, the controller its own and all public ones.
    """
    path = slurm_conf or Cluster.load(chosen(directory)).conf
    made = files.make_keys(path.absolute(), names)
    folder = path.absolute().parent / "keys"
    click.echo(f"{made} new keys in {folder}" if made else f"all keys were in {folder} already")


def run() -> NoReturn:
    """Runs the command line of this process. No traceback: one sentence and exit code 1."""
    # Messages may name files whose names are not UTF-8.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="surrogateescape")
    try:
        group(prog_name="gsched")
    except (LocalError, shapes.ShapeError, files.FilesError) as problem:
        click.echo(f"gsched: error: {problem}", err=True)
    except OSError as problem:
        name = f"{problem.filename}: " if problem.filename else ""
        click.echo(f"gsched: error: {name}{problem.strerror or problem}", err=True)
    except Exception as problem:
        if os.environ.get("GSCHED_TRACEBACK"):
            raise
        click.echo(f"gsched: error: {type(problem).__name__}: {problem}", err=True)
    raise SystemExit(1)


__all__ = ["conf", "environment_lines", "group", "machine", "run"]
