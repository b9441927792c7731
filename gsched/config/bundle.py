"""The files of a configuration as one parcel: what a node without files of its own is sent."""

from __future__ import annotations

import os
import zlib

import msgspec

from gsched.config.errors import ConfigError
from gsched.config.lexer import INCLUDE, MAX_DEPTH, logical_lines
from gsched.config.parse import parse_config
from gsched.config.types import Config

#: files that may be in a parcel; others are refused
FILES = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf")
#: largest sum of their sizes, bytes: a line for each of 10,000 nodes fits ten times
MAX_BYTES = 16 << 20


def bundle(config: Config) -> dict[str, str]:
    """File name -> text of the files that `config` was read from, included files in their places
    and comments left out. Raises ConfigError: a file is gone, or is another by now.

    Cost: reads and parses all of it once more.
    """
    folder = os.path.dirname(config.path)
    texts: dict[str, str] = {}
    for name in FILES:
        path = os.path.join(folder, name) if texts else config.path
        try:
            texts[name] = _flat(path, folder, config.cluster_name, 0)
        except FileNotFoundError:
            if not texts:
                raise ConfigError(path, 0, "it is gone") from None
        except OSError as error:
            raise ConfigError(path, 0, f"cannot read it: {error.strerror}") from None
    if sum(map(len, texts.values())) > MAX_BYTES:
        raise ConfigError(config.path, 0, f"the files have more than {MAX_BYTES} bytes together")
    if parse_config(texts).checksum != config.checksum:
        raise ConfigError(config.path, 0, "it has changed since it was read")
    return texts


def _flat(path: str, folder: str, cluster: str, depth: int) -> str:
    with open(path, encoding="utf-8", errors="backslashreplace") as file:
        text = file.read(MAX_BYTES + 1)
    lines = []
    for _, content in logical_lines(text):
        found = INCLUDE.match(content)
        if found and depth < MAX_DEPTH:
            wanted = found[1].strip('"').replace("%c", cluster)
            lines.append(_flat(os.path.join(folder, wanted), folder, cluster, depth + 1))
        else:
            # What is left of "#" once comments are gone is no comment.
            lines.append(content.replace("#", "\\#") + "\n")
    return "".join(lines)


def pack(texts: dict[str, str]) -> bytes:
    """The parcel."""
    return zlib.compress(msgspec.msgpack.encode(texts), 6)


def unpack(data: bytes) -> dict[str, str]:
    """What `pack` was given. ValueError for anything else, and for what is too large."""
    expander = zlib.decompressobj()
    try:
        plain = expander.decompress(data, MAX_BYTES + (1 << 16))
        texts = msgspec.msgpack.decode(plain, type=dict[str, str])
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"a parcel of files that cannot be read: {error}") from None
    if not expander.eof or "slurm.conf" not in texts or not set(texts) <= set(FILES):
        raise ValueError("a parcel without slurm.conf, with other files, or too large")
    return texts
