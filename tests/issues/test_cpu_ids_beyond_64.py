"""A job on CPU 64 or above of a node ended the controller: its record could not be packed."""

from __future__ import annotations

import msgspec

from gsched.model import NodeAlloc


def test_a_share_with_high_cpu_numbers_survives_packing() -> None:
    share = NodeAlloc("node1", cpus=3, tasks=1, mem_mb=1)
    share.cpu_ids = 1 | 1 << 64 | 1 << 223
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(share), type=NodeAlloc)
    assert again.cpu_ids == 1 | 1 << 64 | 1 << 223
    assert again == share
    again.cpu_ids = 0
    assert again.cpu_ids == 0
