"""The state directory: whose it is, what it lies on, and how much room is left there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re

from gsched.store.errors import NotLocal, StateLocked, StoreError

#: File systems that are shared between hosts: a lock there does not keep another host out.
NETWORK_FILESYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda"),
        *("lustre", "ceph", "gpfs", "beegfs", "fhgfs", "wekafs", "panfs", "pvfs2", "orangefs"),
        *("gfs", "gfs2", "ocfs2", "glusterfs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.s3fs"),
        *("fuse.juicefs", "fuse.rclone", "fuse.mfs", "fuse.moosefs", "fuse.curlftpfs"),
    }
)

_MADV_DONTNEED = 4

#: Below this much free space new submissions are refused, bytes.
LOW_WATER = 64 << 20
#: The ballast file: given up when the disk is full, so that ends can still be recorded, bytes.
BALLAST = 32 << 20


def filesystem_type(path: str, mountinfo: str | None = None) -> str:
    """The type of the file system under `path` ("" unknown), as /proc/self/mountinfo names it.

    `mountinfo` gives the table's text instead of the running kernel's.
    """
    if mountinfo is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                mountinfo = file.read()
        except OSError:
            return ""
    real = os.path.realpath(path)
    best, found = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        # Spaces and the like stand in the table as octal escapes.
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), fields[4])
        inside = point == "/" or real == point or real.startswith(point + "/")
        # Of two mounts on one point the later one is seen.
        if inside and len(point) >= best:
            best, found = len(point), right.split(" ")[0]
    return found


def check_local(path: str, mountinfo: str | None = None) -> None:
    """Raises NotLocal when `path` lies on a network file system."""
    kind = filesystem_type(path, mountinfo)
    if kind in NETWORK_FILESYSTEMS:
        raise NotLocal(
            f"StateSaveLocation {path} lies on a network file system ({kind}): "
            "the state must be on a local disk"
        )


class StateLock:
    """Holds the state directory for this process until `release` or its death."""

    def __init__(self, state_dir: str) -> None:
        """Raises StateLocked when another process holds it; never waits."""
        path = os.path.join(state_dir, "lock")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._fd, 32).decode(errors="replace").strip()
            os.close(self._fd)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise StoreError(f"cannot lock {path}: {error.strerror}") from None
            by = f" by process {holder}" if holder else ""
            raise StateLocked(f"the state directory {state_dir} is in use{by}") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the directory back. Harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def free_bytes(path: str) -> int:
    """Bytes that this process may still write under `path`. One system call."""
    found = os.statvfs(path)
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    return blocks * found.f_frsize


def forget_pages(path: str) -> None:
    """Takes the pages of a mapped file out of this process's memory; they stay in the page cache.

    A database is mapped whole, and whatever was ever read of it would count as this process's.
    """
    real = os.path.realpath(path)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            found = [line for line in file if line.rstrip("\n").endswith(real)]
        libc = ctypes.CDLL(None, use_errno=True)
        for line in found:
            fields = line.split(None, 5)
            # Only what is shared and read: there the file itself holds all that is known.
            if fields[1] == "r--s" and fields[5].rstrip("\n") == real:
                start, end = (int(text, 16) for text in fields[0].split("-"))
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


class Ballast:
    """A file that takes up room until the disk is full, and is then given up."""

    def __init__(self, state_dir: str, size: int = BALLAST) -> None:
        self._dir = state_dir
        self._path = os.path.join(state_dir, "ballast")
        self._size = size

    @property
    def held(self) -> bool:
        return os.path.exists(self._path)

    def keep(self, low_water: int = LOW_WATER) -> bool:
        """Makes the file if it is missing and there is plenty of room; True when it is there."""
        if self.held:
            return True
        try:
            if free_bytes(self._dir) < 2 * low_water + self._size:
                return False
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(fd, 0, self._size)
            finally:
                os.close(fd)
        except OSError:
            # Better no ballast than a controller that does not start.
            self.give_up()
            return False
        return True

    def give_up(self) -> bool:
        """Frees its room; True when there was any."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
            return True
        return False
