"""The device program of cgroup v2, run by a few lines of interpreter: who is let through."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmd_compat import bpf


def run(program: bytes, kind: int, major: int, minor: int) -> int:
    """What the kernel's machine would answer (the seven instructions that are used)."""
    context = struct.pack("=III", kind | 0x30000, major, minor)
    registers = [0] * 11
    at = 0
    while True:
        op, regs, offset, value = struct.unpack_from("=BBhi", program, at * 8)
        dst, at = regs & 15, at + 1
        match op:
            case 0x61:  # load a word of the context
                assert regs >> 4 == 1
                registers[dst] = struct.unpack_from("=I", context, offset)[0]
            case 0x57:
                registers[dst] &= value
            case 0x55:
                at += offset if registers[dst] != value else 0
            case 0xB7:
                registers[dst] = value
            case 0x95:
                return registers[0]
            case _:
                raise AssertionError(f"opcode {op:#x}")


RULE = st.tuples(st.sampled_from([1, 2]), st.integers(0, 4095), st.integers(0, 1 << 20))


@given(st.lists(RULE, max_size=20), RULE)
def test_exactly_the_named_devices_are_refused(
    deny: list[tuple[int, int, int]], asked: tuple[int, int, int]
) -> None:
    program = bpf.program(deny)
    assert run(program, *asked) == (asked not in deny)
    for rule in deny:
        assert run(program, *rule) == 0


def test_rules_are_read() -> None:
    assert bpf.parse_rule("c 195:3") == (2, 195, 3)
    assert bpf.parse_rule("b 8:0") == (1, 8, 0)
    for bad in ("", "c", "c 195", "c 195:*", "x 1:2", "c -1:2", "c 1:2 rwm"):
        with pytest.raises(ValueError, match="not a device rule"):
            bpf.parse_rule(bad)
