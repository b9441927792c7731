"""Where the database is: an SQLAlchemy URL from slurm.conf and slurmdbd.conf."""

from __future__ import annotations

import os
import stat
from urllib.parse import quote

import msgspec

from gsched.config import Config

#: StorageType -> what SQLAlchemy calls it
_DRIVERS = {
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg",
    "pgsql": "postgresql+psycopg",
}
_PORTS = {"mysql+pymysql": 3306, "postgresql+psycopg": 5432}
#: name of the SQLite file in StateSaveLocation, and of the database of a server
FILE = "accounting.sqlite"
DATABASE = "slurm_acct_db"


class PlaceError(Exception):
    """The configuration names no usable database; the text is one sentence."""


class Settings(msgspec.Struct):
    """What slurmdbd needs to know beside slurm.conf."""

    #: SQLAlchemy URL, with the password
    url: str
    #: "" none
    log_file: str = ""
    pid_file: str = ""
    debug: str = "info"
    #: all keys of slurmdbd.conf, in lower case
    keys: dict[str, str] = {}

    @property
    def shown(self) -> str:
        """The URL without its password, for the log."""
        scheme, mark, rest = self.url.partition("://")
        login, at, place = rest.rpartition("@")
        user = login.partition(":")[0]
        return f"{scheme}{mark}{user}{at}{place}"

    @property
    def sqlite_file(self) -> str:
        """Path of the SQLite file; "" for a server."""
        return self.url.removeprefix("sqlite:///") if self.url.startswith("sqlite:") else ""


def enabled(config: Config) -> bool:
    """Whether the cluster keeps accounts at all."""
    return config.accounting_storage_type not in ("", "accounting_storage/none")


def settings(config: Config) -> Settings:
    """Reads slurmdbd.conf beside slurm.conf (it may be missing). Raises PlaceError.

    Its StorageURL goes before StorageType, StorageHost, StoragePort, StorageUser, StoragePass and
    StorageLoc; without either, slurm.conf's AccountingStorageLoc (a URL without a password, or the
    path of an SQLite file); without that, an SQLite file in StateSaveLocation. The password of any
    server may stand in a file of its own, StoragePassFile. Whatever holds a password must be out of
    reach of others.
    """
    path = os.path.join(os.path.dirname(config.path), "slurmdbd.conf")
    found = _read(path)
    if found.get("storagepass") or _password(found.get("storageurl", "")):
        _private(path)
    result = Settings(
        "",
        found.get("logfile", ""),
        found.get("pidfile", ""),
        found.get("debuglevel", config.slurmctld_debug),
        found,
    )
    result.url = _with_password(_url(found, config), found)
    return result


def _url(found: dict[str, str], config: Config) -> str:
    url = found.get("storageurl", "")
    if url:
        return _checked(url)
    kind = found.get("storagetype", "").lower().removeprefix("accounting_storage/")
    if kind and kind != "sqlite":
        return _server(kind, found)
    place = found.get("storageloc", "") or config.accounting_storage_loc
    if "://" in place:
        if _password(place):
            raise PlaceError(
                "slurm.conf is read by everybody: the password of AccountingStorageLoc belongs "
                "into slurmdbd.conf or its StoragePassFile"
            )
        return _checked(place)
    if place.startswith("/"):
        return f"sqlite:///{place}"
    return f"sqlite:///{os.path.join(config.state_save_location, FILE)}"


def _password(url: str) -> str:
    login, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    return login.partition(":")[2] if at else ""


def _with_password(url: str, found: dict[str, str]) -> str:
    path = found.get("storagepassfile", "")
    if not path or url.startswith("sqlite:"):
        return url
    _private(path)
    try:
        with open(path, encoding="utf-8") as file:
            password = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PlaceError(f"cannot read {path}: {_why(error)}") from None
    if not password:
        raise PlaceError(f"{path} holds no password in its first line")
    scheme, _, rest = url.partition("://")
    host, slash, name = rest.partition("/")
    login, at, address = host.rpartition("@")
    user = (login.partition(":")[0] if at else "") or "slurm"
    return f"{scheme}://{user}:{quote(password, safe='')}@{address if at else host}{slash}{name}"


def _private(path: str) -> None:
    """Refuses a file that others may read: it holds a password."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise PlaceError(f"cannot read {path}: {_why(error)}") from None
    if found.st_uid not in (0, os.geteuid()):
        raise PlaceError(f"{path} holds a password and belongs to another user")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise PlaceError(f"{path} holds a password and is open to others: chmod 600 {path}")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or "no text"


def _server(kind: str, found: dict[str, str]) -> str:
    driver = _DRIVERS.get(kind)
    if driver is None:
        raise PlaceError(f"StorageType={kind} is not known: mysql, postgresql or sqlite")
    host = found.get("storagehost", "") or "localhost"
    port = found.get("storageport", "") or str(_PORTS[driver])
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise PlaceError(f"StoragePort={port} is not a port")
    user = quote(found.get("storageuser", "") or "slurm", safe="")
    password = found.get("storagepass", "")
    login = f"{user}:{quote(password, safe='')}" if password else user
    name = quote(found.get("storageloc", "") or DATABASE, safe="")
    address = f"[{host}]" if ":" in host else host
    return f"{driver}://{login}@{address}:{port}/{name}"


def _checked(url: str) -> str:
    scheme = url.partition("://")[0].partition("+")[0]
    rest = url.partition("://")[2]
    if scheme == "sqlite":
        if not rest.startswith("//"):
            raise PlaceError("an SQLite database needs an absolute path: sqlite:////PATH")
        return url
    if scheme not in _DRIVERS:
        raise PlaceError(f"databases of kind {scheme!r} are not supported")
    return f"{_DRIVERS[scheme]}://{rest}"


def _read(path: str) -> dict[str, str]:
    """KEY=value lines, keys in lower case; {} where there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PlaceError(f"cannot read {path}: {_why(error)}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise PlaceError(f"{path}:{number}: {text!r} is not KEY=value")
        # A password may hold a #, but not after a space.
        found[key.strip().lower()] = value.split(" #")[0].strip().strip('"')
    return found


# ---- what sacctmgr shows of it ------------------------------------------------------------------

#: keys as Slurm shows them, in its order; what it shows where nothing is set. {} is slurm.conf's
_SHOWN: tuple[tuple[str, str], ...] = (
    ("AllowNoDefAcct", "No"),
    ("ArchiveDir", "/tmp"),
    *((f"Archive{kind}", "No") for kind in ("Events", "Jobs", "Resvs")),
    ("ArchiveScript", "(null)"),
    *((f"Archive{kind}", "No") for kind in ("Steps", "Suspend", "TXN", "Usage")),
    *(("AuthAltTypes", "(null)"), ("AuthAltParameters", "(null)"), ("AuthInfo", "(null)")),
    *(("AuthType", "(null)"), ("CommitDelay", "No"), ("CommunicationParameters", "(null)")),
    *(("DbdAddr", "(null)"), ("DbdBackupHost", "(null)"), ("DbdHost", "(null)")),
    *(("DbdPort", "0"), ("DebugFlags", "(null)"), ("DebugLevel", "info")),
    *(("DebugLevelSyslog", "(null)"), ("DefaultQOS", "(null)"), ("LogFile", "(null)")),
    *(("MaxQueryTimeRange", "UNLIMITED"), ("MessageTimeout", "10 secs"), ("Parameters", "(null)")),
    *(("PidFile", "(null)"), ("PluginDir", "(null)"), ("PrivateData", "none")),
    *(
        (f"Purge{kind}After", "NONE")
        for kind in ("Event", "Job", "Resv", "Step", "Suspend", "TXN", "Usage")
    ),
    *(("SlurmUser", "(null)"), ("StorageBackupHost", "(null)"), ("StorageHost", "localhost")),
    *(("StorageLoc", "(null)"), ("StorageParameters", "(null)"), ("StoragePort", "0")),
    *(("StorageType", "accounting_storage/sqlite"), ("StorageUser", "(null)")),
    *(("TCPTimeout", "2 secs"), ("TrackWCKey", "No"), ("TrackSlurmctldDown", "No")),
)


def shown(config: Config) -> list[tuple[str, str]]:
    """What `sacctmgr show configuration` says of the database: no password. Raises PlaceError."""
    found = settings(config)
    keys = dict(found.keys)
    kind = found.url.partition(":")[0]
    if kind == "sqlite":
        keys["storageloc"] = found.sqlite_file
    else:
        keys.setdefault("storagetype", f"accounting_storage/{kind.partition('+')[0]}")
        keys.setdefault("storageloc", found.url.rpartition("/")[2].partition("?")[0])
    if "storageurl" in keys:
        keys["storagehost"] = found.shown
    rows = [(key, keys.get(key.lower()) or empty) for key, empty in _SHOWN]
    path = os.path.join(os.path.dirname(config.path), "slurmdbd.conf")
    place = next(n for n, (key, _) in enumerate(rows) if key == "SlurmUser")
    return [*rows[:place], ("SLURMDBD_CONF", path), *rows[place:]]
