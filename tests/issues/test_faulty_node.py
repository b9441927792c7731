"""A node that reported nonsense ended the controller, and every one started after it, because it
reported the same again: numbers the core does not take or the records cannot hold, more GPUs than a
bitmap has bits (also by new GPUs while those gone were still in use).
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from ledger_support import Bench, at

from gsched.controller.load import encode_record
from gsched.ledger import NodeMessage
from gsched.ledger.nodes import bind_gpus
from gsched.ledger.outcome import Outcome
from gsched.model import Gpu, JobState, Phase
from gsched.wire.codec import PROTOCOL
from gsched.wire.nodes import Register, Report, Welcome


def recorded(out: Outcome) -> Outcome:
    for value in out.puts.values():
        encode_record(value)  # type: ignore[arg-type]
    return out


def registration(**facts: object) -> Register:
    base = Register(PROTOCOL, "node1", "c1", "b", "s1", 1, "t", 16, 64000, [], [])
    return msgspec.structs.replace(base, **facts)


@pytest.mark.parametrize(
    "facts",
    [
        {"uptime_s": -(2**63)},
        {"cpus": 2**64 - 1},
        {"mem_mb": -1},
        {"gpus": [Gpu("u", numa=2**31)]},
        {"gpus": [Gpu("u", links=[-1])]},
        {"gpus": [Gpu("u", cores="0-999999999")]},
        {"gpus": [Gpu("u", cores="x")]},
        {"gpus": [Gpu("u"), Gpu("u")]},
        {"gpus": [Gpu(f"u{number}") for number in range(65)]},
    ],
)
def test_a_nonsensical_registration_is_refused(facts: dict[str, object]) -> None:
    bench = Bench()
    before = msgspec.msgpack.encode(bench.led.nodes["node1"])
    out = recorded(bench.apply(NodeMessage("node1", registration(**facts))))
    ((name, answer),) = out.messages
    assert name == "node1" and isinstance(answer, Welcome) and answer.refused
    assert msgspec.msgpack.encode(bench.led.nodes["node1"]) == before


@pytest.mark.parametrize("field", ["age_ms", "elapsed_ms", "user_ms", "wstatus"])
def test_a_nonsensical_report_changes_nothing(field: str) -> None:
    bench = Bench()
    job = bench.job()
    bench.schedule()
    host = job.batch_host
    live = bench.led.live[host]
    odd = at(job, Phase.ENDED, **{field: 2**63})
    recorded(bench.apply(NodeMessage(host, Report(live.session, 1, live.last_order, [odd]))))
    assert job.state is JobState.RUNNING
    recorded(bench.report(host, at(job, Phase.RUNNING)))
    recorded(bench.report(host, at(job, Phase.RELEASED, wstatus=0)))
    assert job.state is JobState.COMPLETED


def test_new_gpus_wait_for_room_in_the_bitmap() -> None:
    old = [Gpu(f"old{number}") for number in range(56)]
    new = [Gpu(f"new{number}") for number in range(56)]
    bound = bind_gpus(old, new, in_use=(1 << 56) - 1)
    assert [gpu.uuid for gpu in bound[:56]] == [gpu.uuid for gpu in old]
    assert [gpu.uuid for gpu in bound[56:]] == [gpu.uuid for gpu in new[:8]]
    assert {gpu.uuid for gpu in bind_gpus(bound, new, in_use=0)} >= {gpu.uuid for gpu in new}
