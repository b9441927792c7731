"""slurmd: sets the process up and runs the node's loop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gsched import gpushare
from gsched.config import Config, ConfigError, NodeConfig, load_config
from gsched.config.locate import find_slurm_conf
from gsched.wire.keys import KeyProblem
from gsched.wire.paths import keys_dir
from gsched.wire.process import (
    LEVELS,
    Log,
    PidFile,
    ProcessProblem,
    become,
    flags,
    into_background,
    leave,
    nice_value,
    own_directory,
    raise_file_limit,
)
from slurmd_compat import configless
from slurmd_compat.binding import device_files
from slurmd_compat.inventory import Inventory, machine_cpus, memory_mb, uptime_s
from slurmd_compat.journal import SpoolBusy
from slurmd_compat.removal import remove
from slurmd_compat.stepd import read_status

USAGE = """\
Usage: slurmd [OPTIONS]
   -b                         Report node rebooted now.
   -c                         Force cleanup of slurmd's spool directory.
   --conf-server HOST[:PORT]  Get configuration files from slurmctld.
   -C                         Print node configuration information and exit.
   -d PATH                    Pathname of the stepd program.
   -D                         Run daemon in foreground.
   -f FILE                    Use FILE as slurmd config file.
   -G                         Print node's GRES configuration and exit.
   -h, --help                 Print this help message.
   --keys DIR                 Where this node's key lies, with --conf-server.
   -L FILE                    Log messages to the file FILE.
   -M                         Use mlock() to lock slurmd pages into memory.
   -n VALUE                   Run the daemon at the specified nice value.
   -N NODENAME                Run the daemon for specified nodename.
   -s                         Change working directory to SlurmdLogFile or
                              SlurmdSpoolDir.
   -v, --verbose              Verbose mode. Multiple -v's increase verbosity.
   -V, --version              Print version information and exit."""


@dataclass
class Options:
    """The command line."""

    conf: str = ""
    node: str = ""
    log_file: str = ""
    stepd: str = ""
    conf_server: str = ""
    keys: str = ""
    foreground: bool = False
    clear: bool = False
    rebooted: bool = False
    chdir: bool = False
    show_hardware: bool = False
    show_gres: bool = False
    verbose: int = 0
    nice: int | None = None


def parse(argv: list[str]) -> Options:
    """Reads the command line; exits for -h, -V and mistakes (1)."""
    options = Options()
    long = ["verbose", "conf-server=", "keys=", "systemd"]
    for name, value in flags("slurmd", USAGE, argv, "bcCd:Df:GhL:Mn:N:svV", long):
        match name:
            case "-b":
                options.rebooted = True
            case "-c":
                options.clear = True
            case "-C":
                options.show_hardware = True
            case "-d":
                options.stepd = os.path.abspath(value)
            case "-D" | "--systemd":
                options.foreground = True
            case "--conf-server":
                options.conf_server = value
            case "--keys":
                options.keys = os.path.abspath(value)
            case "-f":
                options.conf = value
            case "-G":
                options.show_gres = True
            case "-L":
                options.log_file = value
            case "-N":
                options.node = value
            case "-s":
                options.chdir = True
            case "-v" | "--verbose":
                options.verbose += 1
            case "-n":
                options.nice = nice_value("slurmd", value)
    return options


def hardware() -> str:
    """This machine as a line for slurm.conf, and how long it has been up."""
    sockets, cores, threads = machine_cpus()
    up = uptime_s()
    name = socket.gethostname().partition(".")[0]
    return (
        f"NodeName={name} CPUs={sockets * cores * threads} Boards=1 SocketsPerBoard={sockets} "
        f"CoresPerSocket={cores} ThreadsPerCore={threads} RealMemory={memory_mb()[0]}\n"
        f"UpTime={up // 86400}-{up // 3600 % 24:02d}:{up // 60 % 60:02d}:{up % 60:02d}"
    )


def gres(config: Config, node: NodeConfig) -> str:
    """The GPUs that gres.conf and NVML give this node, one line each, and their parts."""
    inventory = Inventory(config, node)
    lines = [f"slurmd: {problem}" for problem in inventory.problems]
    for index, gpu in enumerate(inventory.gpus):
        links = ",".join("-1" if i == index else str(n) for i, n in enumerate(gpu.links))
        files = ",".join(device_files(inventory.gpus, 1 << index))
        file = f" File={files}" if files else ""
        cores = f" Cores={gpu.cores}" if gpu.cores else ""
        lines.append(
            f"slurmd: Gres Name=gpu Type={gpu.type or '(null)'} Count=1 Index={index}"
            f"{file}{cores} Links={links or '(null)'} UUID={gpu.uuid}"
            + (f" Fault={gpu.fault}" if gpu.fault else "")
        )
    for index, (name, count) in enumerate(gpushare.parts(config, node.name, inventory.gpus) or ()):
        if count:
            gpu = inventory.gpus[index]
            file = f" File=/dev/nvidia{gpu.minor}" if gpu.minor >= 0 else ""
            kind = gpu.type or "(null)"
            lines.append(f"slurmd: Gres Name={name} Type={kind} Count={count} Index={index}{file}")
    return "\n".join(lines) or "slurmd: No GRES"


def node_name(options: Options, config: Config) -> str:
    """Which node of the configuration this is: -N, else the one with this host's name."""
    if options.node:
        if options.node not in config.nodes:
            raise ProcessProblem(f"Unable to determine this slurmd's NodeName: no {options.node}")
        return options.node
    full = socket.gethostname()
    for wanted in (full, full.partition(".")[0]):
        for node in config.nodes.values():
            if wanted in (node.hostname, node.name):
                return node.name
    raise ProcessProblem(f"Unable to determine this slurmd's NodeName: no node has host {full}")


def keys_of(options: Options, config: Config) -> str:
    """The directory of this node's key."""
    if options.conf_server:
        return options.keys or configless.KEYS
    return options.keys or keys_dir(config.path)


def read_config(options: Options) -> Config:
    """The files of this machine, or with --conf-server the controller's. Raises ConfigError,
    ProcessProblem, KeyProblem, OSError."""
    if not options.conf_server:
        path = os.path.abspath(options.conf or find_slurm_conf(os.environ))
        return load_config(path, needs=configless.NEEDS)
    node = options.node or socket.gethostname().partition(".")[0]
    options.node = node
    wanted = configless.servers(options.conf_server)
    keys = options.keys or configless.KEYS
    return configless.first(
        configless.fetch(
            wanted, keys, node, lambda text: print(f"slurmd: {text}", file=sys.stderr)
        ),
        node,
    )


def clear_spool(spool: Path) -> None:
    """-c: forgets what the node holds. Raises ProcessProblem while supervisors live."""
    for directory in sorted(spool.glob("job[0-9]*")):
        status = read_status(directory)
        if status is not None and not status.released and _lives(status.stepd_pid):
            raise ProcessProblem(
                f"-c refused: {directory.name} still runs under supervisor {status.stepd_pid}"
            )
    for directory in spool.glob("job[0-9]*"):
        remove(directory)
    with contextlib.suppress(FileNotFoundError):
        (spool / "journal").unlink()


def _lives(pid: int) -> bool:
    return pid > 0 and os.path.exists(f"/proc/{pid}")


@contextmanager
def signals(daemon: Any, log: Log) -> Iterator[None]:
    """SIGTERM and SIGINT end the daemon (jobs go on), SIGUSR2 opens the log anew."""
    came: list[int] = []
    wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, lambda n, _: came.append(n))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def act(fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 4096)
        while came:
            number = came.pop(0)
            if number == signal.SIGHUP:
                log.logger.info("SIGHUP: reading the configuration again")
                log.reopen()
                daemon.reread()
            elif number == signal.SIGUSR2:
                log.reopen()
            else:
                log.logger.info(f"ending on {signal.Signals(number).name}; jobs go on")
                daemon.stop()

    daemon.watch(wake, act)
    yield
    signal.set_wakeup_fd(-1)
    os.close(wake)
    os.close(wake_end)


def serve(options: Options, config: Config, node: str, spool: Path, log: Log) -> None:
    """Everything between the set-up of the process and its end."""
    # Late: -V, -C and mistakes need no sockets.
    from slurmd_compat.daemon import Daemon

    logger = log.logger
    for warning in config.warnings:
        logger.warning(warning)
    if config.ignored:
        names = ", ".join(sorted(config.ignored))
        logger.info(f"known keys of slurm.conf without effect here: {names}")
    if os.geteuid() != 0:
        logger.warning(
            f"not root: all jobs run as uid {os.geteuid()} whoever submitted them; "
            "prolog and epilog run as this user"
        )
    pid_file: PidFile | None = None
    children: list[int] = []
    following: Config | None = config
    while following is not None:
        config = following
        daemon = Daemon(
            config,
            node,
            spool,
            keys_of(options, config),
            logger,
            stepd_path=options.stepd,
            children=children,
            configless=bool(options.conf_server),
        )
        if pid_file is None:
            pid_file = PidFile(config.nodes[node].expand(config.slurmd_pid_file))
        with signals(daemon, log):
            logger.info(
                f"slurmd of node {node}, cluster {config.cluster_name}, started",
                gpus=len(daemon.inventory.gpus),
            )
            daemon.run()
        following = daemon.next_config
        children = daemon.orphaned()
    if pid_file is not None:
        pid_file.remove()
    logger.info("slurmd ended")


def main() -> NoReturn:
    """Entry point of slurmd."""
    options = parse(sys.argv[1:])
    if options.show_hardware:
        leave(hardware(), 0)
    try:
        config = read_config(options)
        name = node_name(options, config)
        node = config.nodes[name]
        if options.show_gres:
            leave(gres(config, node), 0)
        spool = Path(node.expand(config.slurmd_spool_dir))
        pid_dir = os.path.dirname(node.expand(config.slurmd_pid_file))
        log_file = options.log_file or node.expand(config.slurmd_log_file)
        for directory, mode in ((str(spool), 0o755), (pid_dir, 0o755)):
            own_directory(directory, config.slurmd_user, mode)
        if log_file:
            own_directory(os.path.dirname(log_file) or ".", config.slurmd_user, 0o755)
        raise_file_limit()
        if options.nice is not None:
            os.nice(options.nice)
        become(config.slurmd_user)
        if options.clear:
            clear_spool(spool)
        if not options.foreground:
            into_background()
        if options.chdir:
            os.chdir(os.path.dirname(log_file) if log_file else spool)
        base = LEVELS.index(config.slurmd_debug) if config.slurmd_debug in LEVELS else 3
        level = LEVELS[min(base + options.verbose, len(LEVELS) - 1)]
        log = Log(log_file, level, foreground=options.foreground)
    except (ConfigError, ProcessProblem, KeyProblem, OSError) as error:
        leave(f"slurmd: fatal: {error}", 1)
    try:
        serve(options, config, name, spool, log)
    except (ProcessProblem, KeyProblem, SpoolBusy, OSError) as error:
        log.logger.critical(str(error))
        sys.exit(1)
    except Exception as error:
        # A bug: the journal is good and supervisors go on, so ending here loses nothing.
        import traceback

        log.logger.critical(f"internal error: {error}; {traceback.format_exc()}")
        os._exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
