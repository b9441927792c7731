"""Bringing a cluster up, waiting for it, taking it down: what `gsched up` and `down` do."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gsched.client import Client, ControllerDown
from gsched.config.locate import SYSTEM_CLUSTER, user_data_dir
from gsched.local import daemons, files
from gsched.local.conf import MADE_BY, Layout
from gsched.local.daemons import Daemon, Process
from gsched.model import NodeFlag
from gsched.wire.messages import CancelJobs, JobQuery, NodeQuery

#: seconds that a daemon gets to end by itself
STOP_S = 10.0
#: what a node must not be called for the cluster to take jobs on it
NOT_READY = NodeFlag.UNKNOWN | NodeFlag.NOT_RESPONDING | NodeFlag.DOWN


class LocalError(Exception):
    """Something that keeps a cluster from coming up; the text is one sentence or a few lines."""


def default_dir() -> Path:
    """Where the cluster of this user lies unless --dir says otherwise: where commands look."""
    if os.geteuid() == 0:
        return Path(SYSTEM_CLUSTER).parent.parent
    data = user_data_dir(os.environ)
    if not data:
        raise LocalError("there is no home directory to put the cluster in: say --dir DIR")
    return Path(data)


@dataclass(frozen=True)
class Cluster:
    """An all-in-one cluster on disk: its directories and the daemons that its slurm.conf names."""

    layout: Layout
    node_names: tuple[str, ...]
    #: it has a slurmdbd
    accounts: bool = False

    @classmethod
    def load(cls, directory: Path) -> Cluster:
        """Reads what is in `directory`; LocalError if no cluster was made there."""
        layout = Layout(directory)
        if not layout.slurm_conf.is_file():
            raise LocalError(f"there is no cluster in {directory} (gsched up makes one)")
        conf = layout.slurm_conf
        return cls(layout, tuple(files.node_names(conf)), files.accounts(conf))

    @classmethod
    def load_for_down(cls, directory: Path) -> Cluster:
        """As `load`, but with every daemon that was started here, and however broken slurm.conf
        is by now."""
        layout = Layout(directory)
        names: list[str] = []
        accounts = (layout.run / "slurmdbd.up").exists()
        with suppress(files.FilesError):
            named = cls.load(directory)
            names += named.node_names
            accounts |= named.accounts
        for path in sorted(layout.run.glob("slurmd.*.up")):
            name = path.name.removeprefix("slurmd.").removesuffix(".up")
            names += [name] if name not in names else []
        return cls(layout, tuple(names), accounts)

    @property
    def conf(self) -> Path:
        return self.layout.slurm_conf

    @property
    def frontend_socket(self) -> Path:
        return self.layout.run / "frontend.sock"

    def controller(self) -> Daemon:
        return self._daemon("slurmctld", "gsched.controller.main", "slurmctld.pid")

    def frontend(self) -> Daemon:
        return self._daemon("frontend", "gsched.frontend.main", "frontend.pid")

    def accounting(self) -> list[Daemon]:
        if not self.accounts:
            return []
        return [self._daemon("slurmdbd", "gsched.accounting.main", "slurmdbd.pid")]

    def node(self, name: str) -> Daemon:
        return self._daemon(f"slurmd.{name}", "slurmd_compat.main", f"slurmd.{name}.pid", name)

    def nodes(self) -> list[Daemon]:
        return [self.node(name) for name in self.node_names]

    def all(self) -> list[Daemon]:
        return [self.controller(), self.frontend(), *self.nodes(), *self.accounting()]

    def _daemon(self, name: str, module: str, pid_file: str, node: str = "") -> Daemon:
        # -P: the current directory must not decide which gsched is imported.
        argv = [sys.executable, "-P", "-m", module, "-D", "-f", str(self.conf)]
        if node:
            argv += ["-N", node]
        return Daemon(
            name,
            tuple(argv),
            self.layout.run / pid_file,
            self.layout.log / f"{name}.out",
            tuple(word for word in (module, str(self.conf), node) if word),
        )

    def find(self, daemon: Daemon) -> Process | None:
        return daemons.find(self.layout.run, daemon)

    def client(self) -> Client:
        return Client(str(self.frontend_socket))


def up(cluster: Cluster, timeout_s: float, say: Callable[[str], None]) -> list[str]:
    """Starts what is dead and waits until every node has registered. Returns what it started.

    LocalError if a daemon ends or the cluster does not take jobs within `timeout_s` seconds.
    """
    run = cluster.layout.run
    env = daemons.environment(daemons.bin_dir())
    started: dict[str, tuple[Daemon, Process]] = {}

    def start(daemon: Daemon) -> None:
        say(f"starting {daemon.name}")
        started[daemon.name] = (daemon, daemons.start(run, daemon, env))

    until = time.monotonic() + timeout_s
    if cluster.find(cluster.controller()) is None:
        # What a killed controller left behind must not be taken for a living one.
        (run / "ctl.sock").unlink(missing_ok=True)
        start(cluster.controller())
    for daemon in cluster.nodes():
        if cluster.find(daemon) is None:
            start(daemon)
    for daemon in (cluster.frontend(), *cluster.accounting()):
        if cluster.find(daemon) is None:
            start(daemon)
    problem = "no frontend answered"
    while True:
        problem = not_ready(cluster)
        if not problem:
            return list(started)
        for daemon, process in started.values():
            if not daemons.alive(process):
                raise LocalError(f"{daemon.name} ended at once:\n{last_words(cluster, daemon)}")
        if time.monotonic() > until:
            raise LocalError(
                f"the cluster in {cluster.layout.dir} did not come up within {timeout_s:g} s: "
                f"{problem}; see {cluster.layout.log}"
            )
        time.sleep(0.02)


def not_ready(cluster: Cluster) -> str:
    """Why the cluster does not take jobs yet; "" when it does."""
    try:
        with cluster.client() as client:
            if not client.status().controller_up:
                return "the controller does not answer"
            rows = client.nodes(NodeQuery())
    except (ControllerDown, OSError):
        return "no frontend answers"
    known = {node.name: node for node in rows.nodes}
    waiting = [
        name
        for name in cluster.node_names
        if name not in known or _not_up(known[name].flags, known[name].reason)
    ]
    return f"not registered: {', '.join(waiting)}" if waiting else ""


def _not_up(flags: NodeFlag, reason: str) -> bool:
    # A node that an administrator set down stays down: that is no failure to come up.
    if flags & (NodeFlag.UNKNOWN | NodeFlag.NOT_RESPONDING):
        return not flags & NodeFlag.FUTURE
    return bool(flags & NodeFlag.DOWN) and reason in {"", "Not responding"}


def last_words(cluster: Cluster, daemon: Daemon, lines: int = 8) -> str:
    """The end of what a daemon wrote, indented."""
    for path in (daemon.out, daemon.out.with_suffix(".log")):
        with suppress(OSError):
            found = path.read_text(errors="replace").splitlines()[-lines:]
            if found:
                return "\n".join(f"  {line}" for line in found)
    return "  (it wrote nothing)"


def cancel_all(cluster: Cluster, timeout_s: float) -> int:
    """Cancels every job of the caller (root: of everybody) and waits until nothing runs.

    Returns how many are still there after `timeout_s` seconds.
    """
    try:
        with cluster.client() as client:
            client.call(CancelJobs(ids=[]))
            until = time.monotonic() + timeout_s
            while True:
                left = len(client.jobs(JobQuery(active_only=True)).jobs)
                if not left or time.monotonic() > until:
                    return left
                time.sleep(0.1)
    except (ControllerDown, OSError):
        return 0


def down(cluster: Cluster) -> tuple[int, list[str]]:
    """Stops the daemons: (how many were alive, names of those that had to be killed)."""
    found = [(daemon, cluster.find(daemon)) for daemon in cluster.all()]
    alive = {process: daemon for daemon, process in found if process is not None}
    killed = daemons.stop(alive, STOP_S)
    for daemon, _ in found:
        (cluster.layout.run / f"{daemon.name}.up").unlink(missing_ok=True)
    return len(alive), [alive[process].name for process in killed]


def purge(layout: Layout) -> None:
    """Removes a cluster's directories, and its own directory if nothing else is in it.

    LocalError if the slurm.conf there was not written by gsched.
    """
    try:
        head = layout.slurm_conf.read_text(errors="replace")
    except OSError as error:
        raise LocalError(f"there is no cluster in {layout.dir}: {error.strerror}") from None
    if not head.startswith(MADE_BY):
        raise LocalError(f"{layout.slurm_conf} was not written by gsched: remove it by hand")
    for path in (layout.state, layout.spool, layout.log, layout.run, layout.etc):
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        layout.dir.rmdir()


def supervisors(layout: Layout) -> list[Process]:
    """Living step supervisors of this cluster: their command line names its spool directory."""
    found = []
    inside = re.compile(re.escape(f"{layout.spool}/"))
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        words = daemons.command_line(int(entry.name))
        if words and words[0].endswith("stepd") and any(inside.match(word) for word in words[1:]):
            start = daemons.start_of(int(entry.name))
            if start is not None:
                found.append(Process(int(entry.name), start))
    return found
