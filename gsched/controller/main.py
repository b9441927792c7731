"""slurmctld: sets the process up, loads the state, runs the loop."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from gsched.config import Config, ConfigError, load_config
from gsched.config.locate import find_slurm_conf
from gsched.controller import memory
from gsched.controller.clock import Clock
from gsched.controller.hooks import Hooks
from gsched.controller.load import load_ledger
from gsched.controller.loop import Controller
from gsched.controller.mailer import Mailer
from gsched.controller.sharing import Sharing
from gsched.controller.verbs.reconfigure import Reload
from gsched.scheduling import run_pass
from gsched.store import CommitFailed, Store, StoreError, ViewStore
from gsched.wire.identity import Admission, proxy_uids
from gsched.wire.keys import CONTROLLER, KeyProblem, key_table, load_pair
from gsched.wire.paths import control_socket, keys_dir
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
    user_id,
)
from gsched.wire.sockets import BindFailed, ControllerSockets

USAGE = """\
Usage: slurmctld [OPTIONS]
  -c          Do not recover state: start with an empty state directory.
  -D          Run daemon in foreground, logging copied to stderr.
  -f FILE     Use specified file for slurmctld configuration.
  -h          Print this help message.
  -i          Ignore errors found while reading in state files.
  -L FILE     Log messages to the file.
  -n VALUE    Run the daemon at the specified nice value.
  -r          Recover state (the default).
  -R          Recover state in full (the default).
  -s          Change working directory to SlurmctldLogFile's directory.
  -v          Verbose mode. Multiple -v's increase verbosity.
  -V          Print version information and exit."""


@dataclass
class Options:
    """The command line."""

    conf: str = ""
    log_file: str = ""
    foreground: bool = False
    clear: bool = False
    ignore_errors: bool = False
    chdir: bool = False
    verbose: int = 0
    nice: int | None = None


def parse(argv: list[str]) -> Options:
    """Reads the command line; exits for -h, -V and mistakes (1)."""
    options = Options()
    for name, value in flags("slurmctld", USAGE, argv, "cDf:hiL:n:rRsvV"):
        match name:
            case "-D":
                options.foreground = True
            case "-c":
                options.clear = True
            case "-i":
                options.ignore_errors = True
            case "-s":
                options.chdir = True
            case "-v":
                options.verbose += 1
            case "-f":
                options.conf = value
            case "-L":
                options.log_file = value
            case "-n":
                options.nice = nice_value("slurmctld", value)
    return options


def log_level(configured: str, verbose: int) -> str:
    """SlurmctldDebug, or louder by each -v."""
    base = LEVELS.index(configured) if configured in LEVELS else LEVELS.index("info")
    return LEVELS[min(base + verbose, len(LEVELS) - 1)]


def listen(config: Config, admins: frozenset[int], log: Any) -> ControllerSockets:
    """The bound sockets. Raises BindFailed, KeyProblem."""
    keys = keys_dir(config.path)
    pair = load_pair(keys, CONTROLLER)
    table, problems = key_table(keys)
    for problem in problems:
        log.error(problem)
    known = {holder.name for holder in table.values() if holder.role == "node"}
    without = [name for name in config.nodes if name not in known]
    if without:
        log.warning(f"no key for {len(without)} nodes, first {without[0]} (gsched keys makes them)")
    sockets = ControllerSockets(Admission(admins, table))
    host = config.slurmctld_host[0]
    # Bound to the address of its line; a plain host name means every interface.
    address = host.addr if host.addr != host.name else "0.0.0.0"
    try:
        sockets.bind_local(control_socket(config.run_dir))
        sockets.bind_nodes(address, config.slurmctld_port, pair)
    except BindFailed:
        sockets.close()
        raise
    return sockets


@contextmanager
def signals(controller: Controller, log: Log) -> Iterator[None]:
    """SIGTERM and SIGINT end the loop, SIGHUP asks for a new configuration, SIGUSR2 for a new log
    file. Handlers only note what came: the loop acts."""
    came: list[int] = []
    wake, wake_end = os.pipe()
    for fd in (wake, wake_end):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, lambda n, _: came.append(n))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def act() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        while came:
            number = came.pop(0)
            if number == signal.SIGHUP:
                log.logger.info("SIGHUP: reading the configuration again")
                controller.reconfigure()
            elif number == signal.SIGUSR2:
                log.reopen()
            else:
                log.logger.info(f"ending on {signal.Signals(number).name}")
                controller.stop()

    controller.watch(wake, act)
    yield
    signal.set_wakeup_fd(-1)


def serve(options: Options, config: Config, log: Log) -> None:
    """Everything between the set-up of the process and its end."""
    logger = log.logger
    for warning in config.warnings:
        logger.warning(warning)
    if config.ignored:
        names = ", ".join(sorted(config.ignored))
        logger.info(f"known keys of slurm.conf without effect here: {names}")
    admins = proxy_uids(os.geteuid(), user_id(config.slurm_user)[0])
    # The lock of the state directory comes before anything that a living controller would mind.
    store = Store.open(config.state_save_location, clear=options.clear)
    try:
        pid_file = PidFile(config.slurmctld_pid_file)
        view = ViewStore(config.state_save_location)
        sharing = Sharing()
        # Nothing of what is loaded becomes garbage, but it would be looked at again and again.
        gc.disable()
        ledger = load_ledger(
            store,
            config,
            admins,
            ignore_errors=options.ignore_errors,
            complain=logger.error,
            sharing=sharing,
        )
        clock = Clock(ledger.meta.last_now)
        if clock.behind > 1:
            logger.warning(f"the clock is {clock.behind:.0f} s behind the recorded time")
        sockets = listen(config, admins, logger)
        mailer = Mailer(config.mail_prog, logger.warning)
        controller = Controller(
            config,
            store,
            view,
            sockets,
            ledger,
            run_pass,
            clock,
            logger,
            sharing,
            Reload(config, sockets.admission),
            mailer,
            Hooks(config),
        )
        memory.begin()
        with signals(controller, log):
            controller.take_over()
            logger.info(
                f"slurmctld of cluster {config.cluster_name} started",
                epoch=ledger.meta.epoch,
                jobs=len(ledger.jobs),
                nodes=len(ledger.nodes),
            )
            controller.run()
        mailer.finish()
        sockets.close()
        view.close()
        pid_file.remove()
        logger.info("slurmctld ended", **{"commits": controller.counts.commits})
    finally:
        store.close()


def main() -> NoReturn:
    """Entry point of slurmctld."""
    options = parse(sys.argv[1:])
    conf = os.path.abspath(options.conf or find_slurm_conf(os.environ))
    # A scheduling pass that lets go of the interpreter must not wait 5 ms to get it back.
    sys.setswitchinterval(0.0005)
    try:
        config = load_config(conf)
        for path, mode in ((config.run_dir, 0o755), (config.state_save_location, 0o700)):
            own_directory(path, config.slurm_user, mode)
        log_file = options.log_file or config.slurmctld_log_file
        if log_file:
            own_directory(os.path.dirname(log_file) or ".", config.slurm_user, 0o755)
        raise_file_limit()
        if options.nice is not None:
            os.nice(options.nice)
        become(config.slurm_user)
        if not options.foreground:
            into_background()
        if options.chdir and log_file:
            os.chdir(os.path.dirname(log_file))
        level = log_level(config.slurmctld_debug, options.verbose)
        log = Log(log_file, level, foreground=options.foreground)
    except (ConfigError, ProcessProblem, OSError) as error:
        leave(f"slurmctld: fatal: {error}", 1)
    try:
        serve(options, config, log)
    except CommitFailed as error:
        log.logger.critical(f"{error}; nothing was answered that is not on the disk")
        os._exit(1)
    except (StoreError, ProcessProblem, KeyProblem, BindFailed, OSError) as error:
        log.logger.critical(str(error))
        sys.exit(1)
    except Exception as error:
        # A bug: the last commit is good, so ending here loses nothing that was answered.
        import traceback

        log.logger.critical(f"internal error: {error}; {traceback.format_exc()}")
        os._exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
