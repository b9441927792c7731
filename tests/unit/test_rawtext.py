"""Text that is no UTF-8 comes out of messages and records as it went in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch_support import srun
from sbatch_support import sbatch

from gsched import rawtext
from gsched.model import Job, JobSpec
from gsched.model.step import StepSpec
from gsched.wire.changes import JobDelta
from gsched.wire.codec import decode as decode_in_daemon
from gsched.wire.messages import Call, JobRows, Refused, SubmitJob, ToFrontend
from gsched.wire.usertext import decode, encode, kept, shown

#: bytes as users have them: also what is almost UTF-8, and the range that stands for bytes
ODD = [b"\xff", b"gr\xf6", b"\xf4\x8f\xba\x85", b"\xf4\x8f\xbb", b"\xed\xa0\x80", b"\xf4\x8f", b""]
WORDS = st.one_of(
    st.binary(max_size=30),
    st.lists(st.one_of(st.sampled_from(ODD), st.binary(max_size=4)), max_size=6).map(b"".join),
)


@given(WORDS)
def test_every_word_comes_out_as_it_went_in(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    kept = rawtext.keep(text)
    # True characters alone: messages, databases and JSON take it.
    assert kept.encode().decode() == kept
    assert rawtext.to_bytes(kept) == raw
    assert rawtext.show(kept).encode("utf-8", "surrogateescape") == raw


@given(st.lists(WORDS, max_size=4))
def test_a_step_comes_to_the_node_as_it_was_asked_for(words: list[bytes]) -> None:
    argv = [word.decode("utf-8", "surrogateescape") for word in words]
    packed = encode(StepSpec(7, argv=argv, rlimits={"CORE": 1}, parts=[StepSpec(7, argv=argv)]))
    there = decode_in_daemon(StepSpec, packed)
    assert [rawtext.to_bytes(word) for word in there.argv] == words
    assert [rawtext.to_bytes(word) for word in there.parts[0].argv] == words
    back = decode(StepSpec, packed)
    assert [word.encode("utf-8", "surrogateescape") for word in back.argv] == words


def test_words_of_utf8_are_packed_as_ever() -> None:
    spec = StepSpec(7, argv=["größe", "\U0001f600"])
    assert encode(spec) == msgspec.msgpack.encode(spec)


@pytest.mark.parametrize("raw", [b"gr\xf6", b"\xf4\x8f\xba\x85"])
def test_whole_messages(raw: bytes) -> None:
    """Unions, numbers as keys, bytes and nested records survive the long way."""
    text = raw.decode("utf-8", "surrogateescape")
    spec = JobSpec(name=text, work_dir=f"/{text}", args=(text, "plain"))
    submit = SubmitJob(spec, b"\xf4\x8f\xba\x85\xff", b"A=\xff", "alice", "users")
    there = decode_in_daemon(ToFrontend, encode(Call(b"\xff" * 16, submit)))
    assert isinstance(there, Call) and isinstance(there.write, SubmitJob)
    assert (there.write.script, there.write.environment) == (submit.script, submit.environment)
    assert rawtext.to_bytes(there.write.spec.work_dir) == b"/" + raw
    job = Job(7, 1000, 1000, "alice", "users", there.write.spec)
    rows = JobRows(1, [job], {}, priorities={7: 5})
    back = decode(JobRows, msgspec.msgpack.encode(rows))
    assert back.jobs[0].spec.name.encode("utf-8", "surrogateescape") == raw
    assert back.jobs[0].spec.args[1] == "plain"


@given(WORDS)
def test_structs_of_whoever_packs_them_himself(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    submit = SubmitJob(JobSpec(name=text, rlimits={"CORE": 1}), b"\xff", b"A=\xff", "u", "g")
    there = kept(submit)
    assert type(there) is SubmitJob
    assert rawtext.to_bytes(there.spec.name) == raw
    assert (there.script, there.spec.rlimits) == (b"\xff", {"CORE": 1})
    back = shown(Refused(b"\xff", there.spec.name))
    assert back.message.encode("utf-8", "surrogateescape") == raw
    plain = SubmitJob(JobSpec(name="größe"), b"", b"", "u", "g")
    assert kept(plain) is plain


def test_packed_records_are_left_to_who_unpacks_them() -> None:
    job = Job(7, 1000, 1000, "alice", "users", JobSpec(name=rawtext.keep("gr\udcf6")))
    record = msgspec.Raw(msgspec.msgpack.encode(job))
    delta = JobDelta(1, b"", True, -1, [record], {})
    from gsched.client import _unpacked

    found = _unpacked(msgspec.msgpack.encode(delta))
    assert isinstance(found, JobDelta)
    decoder = msgspec.msgpack.Decoder(Job)
    assert rawtext.unpack(found.jobs[0], decoder).spec.name == "gr\udcf6"


def test_srun_and_sbatch_send_it() -> None:
    done = srun("-J", "gr\udcf6", "-o", "out\udcff", "prog", "a\udcfe", cwd="/w\udcf6rk")
    assert (done.code, done.err) == (0, "")
    step = done.interactive.step
    assert step is not None
    assert [rawtext.to_bytes(word) for word in step.argv] == [b"prog", b"a\xfe"]
    assert rawtext.to_bytes(step.cwd) == b"/w\xf6rk"
    # The client opens it itself.
    assert done.plan["stdout"] == "/w\udcf6rk/out\udcff"
    ran = sbatch("--wrap", "echo a\udcfe", "-o", "out\udcff", cwd="/w\udcf6rk")
    assert b"echo a\xfe" in ran.sent.script
    assert ran.sent.spec.std_out == "out\udcff"
