"""sinfo against the transcripts of Slurm 26.05."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views_support import PEER_CONF, Case, FakeReader, invoke, peer_cluster, transcript

from gsched.config import parse_config
from gsched.model import NodeFlag, NodeUse
from gsched.wire.messages import NodeRows
from gsched_cli.sinfo import run

#: the transcript's order of equal keys is by chance, what is compared is the lines themselves
UNORDERED = {"sinfo -N", "sinfo -S +N -N", "sinfo -S -D"}
#: what Slurm tells of its own inner state
NOT_COMPARED = {"sinfo -v", "sinfo -V", "sinfo"}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def check(case: Case, reader: FakeReader) -> None:
    out, err, code = invoke(run, case.argv, reader, case.env)
    if case.command in UNORDERED:
        assert sorted(out.split("\n")) == sorted(case.stdout.split("\n")), case.command
    else:
        assert out == case.stdout, case.command
    assert (err, code) == (case.stderr, case.code), case.command


@pytest.mark.shared
def test_views(shared: Path) -> None:
    cases = [
        case
        for command, case in transcript(shared, "034").items()
        if command.startswith("sinfo") and command not in NOT_COMPARED
    ]
    assert len(cases) == 37
    for case in cases:
        check(case, peer_cluster())


# ---- beyond the transcripts --------------------------------------------------------------------


def ask(*argv: str, reader: FakeReader | None = None, **env: str) -> tuple[str, str, int]:
    return invoke(run, argv, reader or peer_cluster(), env)


@pytest.mark.parametrize("words", [["-l", "-o%N"], ["-ONodeList", "--long"]])
def test_one_format_at_a_time(words: list[str]) -> None:
    text = (
        "sinfo: fatal: Options -o(--format) and -l(--long) are mutually exclusive. "
        "Please remove one and retry.\n"
    )
    assert ask(*words) == ("", text, 1)
    # A variable is no choice of this command line.
    assert ask("-l", SINFO_FORMAT="%N") == ask("-l")


def state_of(flags: NodeFlag, cpus: int = 0, jobs: int = 0, completing: int = 0) -> list[str]:
    """How a node is shown: compact, long and complete."""
    reader = peer_cluster()
    reader.node_list[0].flags = flags
    reader.use[0] = NodeUse("node1", cpus, 0, 0, jobs, completing)
    out, err, code = ask("-h", "-N", "-p", "debug", "-o", "%t %T", reader=reader)
    full, _, _ = ask("-h", "-p", "debug", "-O", "statecomplete:", reader=reader)
    assert (err, code) == ("", 0)
    return [*out.split(), full.strip()]


def test_states_as_the_manual_lists_them() -> None:
    none, silent = NodeFlag.NONE, NodeFlag.NOT_RESPONDING
    assert state_of(none) == ["idle", "idle", "idle"]
    assert state_of(none, 16, 1) == ["alloc", "allocated", "allocated"]
    assert state_of(none, 3, 2) == ["mix", "mixed", "mixed"]
    assert state_of(none, 3, 1, 1) == ["comp", "completing", "idle+completing"]
    assert state_of(none, 16, 2, 1) == ["alloc+", "allocated+", "allocated+completing"]
    assert state_of(NodeFlag.DRAIN) == ["drain", "drained", "idle+drain"]
    assert state_of(NodeFlag.DRAIN, 3, 1) == ["drng", "draining", "mixed+drain"]
    assert state_of(NodeFlag.DOWN | silent) == ["down*", "down*", "down+not_responding"]
    assert state_of(NodeFlag.DOWN | NodeFlag.DRAIN)[:2] == ["drain", "drained"]
    assert state_of(NodeFlag.FAIL, 3, 1)[:2] == ["failg", "failing"]
    assert state_of(silent)[:2] == ["idle*", "idle*"]
    assert state_of(NodeFlag.UNKNOWN)[:2] == ["unk*", "unknown*"]


def test_nodes_that_differ_share_a_line_with_a_plus() -> None:
    """The manual of --exact: "250+", unless identical configurations are asked for."""
    reader = peer_cluster()
    for node in reader.node_list:
        node.flags = NodeFlag.NONE
    reader.use = []
    text = PEER_CONF.replace("NodeName=node4", "NodeName=node4 RealMemory=128000 Weight=5")
    reader.conf = parse_config({"slurm.conf": text})
    out, _, _ = ask("-h", "-p", "gpu", "-o", "%D %m %w %N", reader=reader)
    assert out == "4 64000+ 1+ node[1-4]\n"
    out, _, _ = ask("-h", "-e", "-p", "gpu", "-o", "%D %m %w %N", reader=reader)
    assert out == "3 64000 1 node[1-3]\n1 128000 5 node4\n"


def test_gpus_in_use_by_type() -> None:
    reader = peer_cluster()
    reader.use[0] = NodeUse("node1", 2, 0, 0b10010011, 1)
    out, _, _ = ask("-h", "-p", "debug", "-O", "gres:,gresused:|", reader=reader)
    assert out == "gpu:h100:8gpu:h100:4(IDX:0-1,4,7)|\n"


def test_states_can_be_demanded_together() -> None:
    reader = peer_cluster()
    assert ask("-h", "-N", "-t", "idle&drain", "-o", "%N", reader=reader)[0] == "node3\n"
    assert ask("-h", "-N", "-t", "down&drain", "-o", "%N", reader=reader)[0] == ""


def test_nodes_that_a_plan_keeps_something_of() -> None:
    """As in the transcript 027: a node in part in use, an idle one; drained and full ones are shown
    as what they are. That -t idle and -t alloc go by the state below is 22.05's answer."""
    reader = peer_cluster()
    reader.use = [NodeUse("node1", 2, 0, 0b1, 1)]
    reader.planned = "node[1-4]"

    def shown(*argv: str) -> str:
        return ask("-h", "-N", "-p", "gpu", *argv, reader=reader)[0].replace("\n", ";")

    states = "node1 mix- mixed-;node2 plnd planned;node3 drain drained;node4 down down;"
    assert shown("-o", "%N %t %T") == states
    assert shown("-t", "planned", "-o", "%N") == shown("-t", "plnd", "-o", "%N")
    assert shown("-t", "planned", "-o", "%N") == "node1;node2;node3;"
    assert shown("-t", "idle", "-o", "%N") == "node2;node3;"
    assert shown("-t", "alloc", "-o", "%N") == shown("-t", "mixed", "-o", "%N") == "node1;"
    complete = "mixed+planned;idle+planned;idle+drain+planned;down;"
    assert shown("-O", "statecomplete:.0").replace(" ", "") == complete
    reader.use = [NodeUse("node1", 16, 0, 0b1, 1)]
    assert shown("-n", "node1", "-o", "%t %T") == "alloc allocated;"


def test_hidden_partitions_are_shown_on_request() -> None:
    reader = peer_cluster()
    text = PEER_CONF.replace("PartitionName=debug", "PartitionName=debug Hidden=YES")
    reader.conf = parse_config({"slurm.conf": text})
    assert ask("-h", "-s", "-o", "%R", reader=reader)[0] == "gpu\n"
    assert ask("-h", "-s", "-a", "-o", "%R", reader=reader)[0] == "gpu\ndebug\n"


def test_nobody_answers() -> None:
    from gsched.client import ControllerDown

    class Down(FakeReader):
        def nodes(self, query: object) -> NodeRows:
            raise ControllerDown("no socket")

    text = "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n"
    assert ask(reader=Down()) == ("", text, 1)


words = st.sampled_from(
    ["-o", "-O", "-n", "-t", "-p", "-S", "-N", "-h", "-l", "-r", "-R", "-s", "-e", "-a", "-d"]
    + ["%N", "%.10t %C", "node[1-2]", "node[", "all", "idle&drain,mix", "gpu", "#P,-t", "-T"]
    + ["--states=all", "--form", "--nos", "-M", "peer", "memory:", "--helpFormat", "--no"]
)


@settings(deadline=None)
@given(argv=st.lists(words | st.text(max_size=12), max_size=6))
def test_any_command_line_ends_with_a_sentence(argv: list[str]) -> None:
    if any(word.startswith(("-i", "--i")) for word in argv):
        return
    _out, err, code = ask(*argv)
    assert code in (0, 1)
    assert code == 0 or err


@settings(deadline=None)
@given(text=st.text(alphabet="%.0123456789NPtCDmGE|,:- ax#", max_size=30))
def test_any_format_prints(text: str) -> None:
    for option in ("-o", "-O"):
        assert ask("-h", option, text)[2] == 0
