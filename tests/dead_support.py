"""A file system whose server has stopped answering: whoever looks into it waits, and no signal ends
that, as on a dead file server. A FUSE mount (root, /dev/fuse) that answers nothing but the kernel's
first question."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from pathlib import Path

import pytest

_MNT_FORCE, _MNT_DETACH = 1, 2
_INIT = 26
_libc = ctypes.CDLL(None, use_errno=True)


class DeadMount:
    """Dead while it is held; `close` lets all who wait go on with an error."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        try:
            self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            pytest.skip(f"no /dev/fuse here: {error.strerror}")
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        done = _libc.mount(b"dead", os.fsencode(path), b"fuse.dead", 0, options.encode())
        if done != 0:
            os.close(self._fd)
            pytest.skip(f"no FUSE here: {os.strerror(ctypes.get_errno())}")
        #: kinds of request (FUSE's numbers) that wait for ever
        self.asked: list[int] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                request = os.read(self._fd, 1 << 20)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return
            _, opcode, unique = struct.unpack_from("=IIQ", request)
            if opcode != _INIT:
                self.asked.append(opcode)
                continue
            # struct fuse_init_out of protocol 7.31
            answer = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, 0)
            os.write(self._fd, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)

    def close(self) -> None:
        """Ends it; may be called again."""
        if self._fd >= 0:
            _libc.umount2(os.fsencode(self.path), _MNT_FORCE)
            _libc.umount2(os.fsencode(self.path), _MNT_DETACH)
            self._thread.join(5)
            os.close(self._fd)
            self._fd = -1
