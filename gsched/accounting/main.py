"""slurmdbd: keeps the accounting database up to date with the controller's outbox."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gsched.accounting.place import PlaceError, Settings, enabled, settings
from gsched.config import Config, ConfigError, load_config
from gsched.config.locate import find_slurm_conf
from gsched.wire.process import (
    LEVELS,
    Log,
    PidFile,
    ProcessProblem,
    become,
    flags,
    into_background,
    leave,
    own_directory,
)

USAGE = """\
Usage: slurmdbd [OPTIONS]
  -D        stay in the foreground; log to standard error too
  -f FILE   use this slurm.conf (slurmdbd.conf is looked for beside it)
  -h        this text
  -v        log more; may be repeated
  -V        print the version
slurmdbd [-f FILE] archive dump       take out what is too old (PurgeJobAfter ...) now
slurmdbd [-f FILE] archive load FILE  bring an archived file's rows back"""


@dataclass
class Options:
    """The command line."""

    conf: str = ""
    foreground: bool = False
    verbose: int = 0
    #: words after the options
    words: tuple[str, ...] = ()


def parse(argv: list[str]) -> Options:
    """Reads the command line; exits for -h, -V and mistakes (1)."""
    options = Options()
    if "archive" in argv:
        place = argv.index("archive")
        argv, options.words = argv[:place], tuple(argv[place:])
    for name, value in flags("slurmdbd", USAGE, argv, "Df:hn:Rsu:vV"):
        if name == "-D":
            options.foreground = True
        elif name == "-v":
            options.verbose += 1
        elif name == "-f":
            options.conf = value
    return options


def _only_one(config: Config) -> int:
    """A lock for as long as the process lives: two would only get into each other's way."""
    path = os.path.join(config.run_dir, "slurmdbd.lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ProcessProblem(f"another slurmdbd holds {path}") from None
    except OSError as error:
        raise ProcessProblem(f"cannot lock {path}: {error.strerror}") from None
    return fd


def serve(config: Config, found: Settings, logger: Any) -> None:
    """Everything between the set-up of the process and its end."""
    # Imported here: SQLAlchemy takes its time, and wrong options must be answered without it.
    from gsched.accounting.database import Database
    from gsched.accounting.project import Projector, sleeper
    from gsched.client import Client
    from gsched.store import StoreReader

    ending = False

    def end(*_: object) -> None:
        nonlocal ending
        ending = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    database = Database(found.url)
    reader = StoreReader(config.state_save_location)
    client = Client(config.frontend_socket, slurm_conf=config.path)
    projector = Projector(
        config, database, reader, client, logger, sleeper(lambda: ending), found.keys
    )
    logger.info(f"slurmdbd of cluster {config.cluster_name} started: {found.shown}")
    projector.run()
    client.close()
    reader.close()
    database.close()
    logger.info("slurmdbd ended", stored=projector.stored)


def archive(words: tuple[str, ...], found: Settings) -> str:
    """`archive dump` and `archive load FILE`; what came of it. Raises ArchiveError, DatabaseDown,
    DatabaseRefuses."""
    from gsched.accounting.archive import load, purge
    from gsched.accounting.database import Database

    database = Database(found.url)
    try:
        database.migrate()
        if words[1:] == ("dump",):
            gone = purge(database, found.keys, int(time.time()))
            return ", ".join(f"{n} {kind}" for kind, n in gone.items()) or "nothing is too old"
        if len(words) == 3 and words[1] == "load":
            return f"{load(database, Path(words[2]))} rows were missing and are back"
    finally:
        database.close()
    leave(USAGE, 1)


def _archive(words: tuple[str, ...], found: Settings) -> NoReturn:
    from gsched.accounting.archive import ArchiveError
    from gsched.accounting.database import DatabaseDown, DatabaseRefuses

    try:
        print(f"slurmdbd: {archive(words, found)}")
    except (ArchiveError, DatabaseDown, DatabaseRefuses) as error:
        leave(f"slurmdbd: error: {error}", 1)
    sys.exit(0)


def main() -> NoReturn:
    """Entry point of slurmdbd."""
    options = parse(sys.argv[1:])
    conf = os.path.abspath(options.conf or find_slurm_conf(os.environ))
    try:
        config = load_config(conf, needs=())
        if not enabled(config):
            leave("slurmdbd: fatal: slurm.conf has no AccountingStorageType", 1)
        own_directory(config.run_dir, config.slurm_user, 0o755)
        become(config.slurm_user)
        os.umask(0o077)
        found = settings(config)
        if options.words:
            _archive(options.words, found)
        if not options.foreground:
            into_background()
        base = LEVELS.index(found.debug) if found.debug in LEVELS else LEVELS.index("info")
        folder = os.path.dirname(config.slurmctld_log_file)
        path = found.log_file or (os.path.join(folder, "slurmdbd.log") if folder else "")
        level = LEVELS[min(base + options.verbose, len(LEVELS) - 1)]
        log = Log(path, level, foreground=options.foreground)
        lock = _only_one(config)
        pid_file = PidFile(found.pid_file or os.path.join(config.run_dir, "slurmdbd.pid"))
    except (ConfigError, PlaceError, ProcessProblem, OSError) as error:
        leave(f"slurmdbd: fatal: {error}", 1)
    try:
        serve(config, found, log.logger)
    except Exception as error:
        if os.environ.get("GSCHED_TRACEBACK"):
            raise
        log.logger.critical(f"{type(error).__name__}: {error}")
        sys.exit(1)
    finally:
        pid_file.remove()
        os.close(lock)
    sys.exit(0)


if __name__ == "__main__":
    main()
