"""Host lists against Slurm's answers, ClusterShell and their own inverse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from gsched.hostlist import (
    HostlistError,
    compress,
    compress_sorted,
    count,
    expand,
    sort_key,
)

# Answers of `scontrol show hostnames` of a real Slurm.
EXPAND = {
    "": "",
    "single": "single",
    "n1,,n2": "n1 n2",
    " n1 , n2": "n1 n2",
    "[1-3]": "1 2 3",
    "a[01-03]b[1-2]": "a01b1 a01b2 a02b1 a02b2 a03b1 a03b2",
    "node[1-3,7-8]": "node1 node2 node3 node7 node8",
    "n[001-003,020]": "n001 n002 n003 n020",
    "nodeA,nodeB[001,003],nodeC": "nodeA nodeB001 nodeB003 nodeC",
    "c427-032,c429-002": "c427-032 c429-002",
    "c[1-2],d-[08-11]": "c1 c2 d-08 d-09 d-10 d-11",
    "rack[0-1]_blade[0-1]": "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1",
    "g[9-11]": "g9 g10 g11",
    "g[098-101]": "g098 g099 g100 g101",
    "n[9-011]": "n9 n10 n11",
    "n[01-3]": "n01 n02 n03",
    "z9,a1,z9": "z9 a1 z9",
}

# Answers of `scontrol show hostlist`.
COMPRESS = {
    "": "",
    "node1,node2,node4,x01,x02": "node[1-2,4],x[01-02]",
    "n1,n2,n1,n3": "n[1-2,1,3]",
    "n3,n2,n1": "n[3,2,1]",
    "n9,n10,n11": "n[9-11]",
    "n09,n10": "n[09-10]",
    "n009,n10": "n[009,10]",
    "a1b1,a1b2,a2b1,a2b2": "a1b[1-2],a2b[1-2]",
    "a1b1,a2b1,a3b1": "a1b1,a2b1,a3b1",
    "n1x,n2x,n3x": "n1x,n2x,n3x",
    "foo,bar,foo": "foo,bar,foo",
    "n1,m1,n2,m2": "n1,m1,n2,m2",
    "n[1-3],n4": "n[1-4]",
    "n1-2,n1-3": "n1-[2-3]",
    "n1,n01,n001,n2": "n[1,01,001,2]",
}

# Answers of `scontrol show hostlistsorted`.
SORTED = {
    "node4,node1,node2": "node[1-2,4]",
    "n1,n2,n1,n3": "n[1,1-3]",
    "foo,bar,foo,b2,b10,b1": "b[1-2,10],bar,foo,foo",
    "n1,m1,n2,m2,n02": "m[1-2],n[1-2,02]",
    "a2b2,a1b1,a1b2,a2b1": "a1b[1-2],a2b[1-2]",
    "n2,n1,n01,n3,n3": "n[1-3,3,01]",
    "n10,n2,n01,n9": "n[2,9,01,10]",
    "r10n1,r9n1": "r9n1,r10n1",
    "n2,n010,n3": "n[2-3,010]",
    "B1,a1,c1": "B1,a1,c1",
    "a,B,a-1,a_1,a1": "B,a,a1,a-1,a_1",
}

# Lists that `scontrol show hostnames` refuses, and what it logs first.
REFUSED = {
    "node[3-1]": "_parse_single_range: Invalid range: `3-1'",
    "n[a-b]": "_parse_single_range: Invalid range: `a-b'",
    "n[]": "_parse_single_range: Invalid range: `'",
    "n[1,]": "_parse_single_range: Invalid range: `'",
    "n[1-3-5]": "_parse_single_range: Invalid range: `1-3-5'",
    "n[1-70000]": "_parse_single_range: Too many hosts in range `1-70000'",
}


@pytest.mark.parametrize(("text", "names"), EXPAND.items())
def test_expand_as_slurm(text: str, names: str) -> None:
    assert expand(text) == names.split()


@pytest.mark.parametrize(("names", "text"), COMPRESS.items())
def test_compress_as_slurm(names: str, text: str) -> None:
    assert compress(expand(names)) == text


@pytest.mark.parametrize(("names", "text"), SORTED.items())
def test_compress_sorted_as_slurm(names: str, text: str) -> None:
    assert compress_sorted(expand(names)) == text


@pytest.mark.parametrize(("text", "detail"), REFUSED.items())
def test_refused_as_slurm(text: str, detail: str) -> None:
    with pytest.raises(HostlistError) as caught:
        expand(text)
    assert str(caught.value) == f"Invalid hostlist: {text}"
    assert caught.value.detail == detail


@pytest.mark.parametrize("text", ["n[1-", "n[1-3", "n1]", "n[[1]]", "n[1]]", "][", "n[1-2],m["])
def test_brackets_must_pair(text: str) -> None:
    with pytest.raises(HostlistError, match=re.escape(f"Invalid hostlist: {text}")):
        expand(text)


def test_suffixes_are_taken() -> None:
    assert expand("gpu[1-2]-ib,x[08-09]y[3]z") == ["gpu1-ib", "gpu2-ib", "x08y3z", "x09y3z"]


def test_a_list_too_long_is_refused_before_it_is_made() -> None:
    with pytest.raises(HostlistError):
        expand("n[1-60000]m[1-60000]k[1-60000]")
    assert count("n[1-65536]") == 65536


@pytest.mark.shared
def test_the_transcript_of_the_target_release(shared: Path) -> None:
    """Every `scontrol show hostnames|hostlist...` of the recorded session."""
    text = (shared / "golden/26.05/032-scontrol-show.txt").read_text()
    pattern = r"^\$ scontrol show (hostnames|hostlist|hostlistsorted) (\S+)\n--- stdout\n(.*?)^--- "
    seen = 0
    for verb, argument, out in re.findall(pattern, text, re.M | re.S):
        argument = argument.strip("'")
        seen += 1
        if argument == "node[3-1]":
            with pytest.raises(HostlistError):
                expand(argument)
        elif verb == "hostnames":
            assert expand(argument) == out.split()
        elif verb == "hostlist":
            assert compress(expand(argument)) == out.strip()
        else:
            assert compress_sorted(expand(argument)) == out.strip()
    assert seen >= 5


name = st.from_regex(r"[a-z]{1,3}(-[a-z])?[0-9]{0,4}", fullmatch=True)


@given(st.lists(name, max_size=30))
def test_compress_then_expand_is_identity(names: list[str]) -> None:
    assert expand(compress(names)) == names


@given(st.lists(name, max_size=30))
def test_sorting_only_reorders(names: list[str]) -> None:
    again = expand(compress_sorted(names))
    assert sorted(again) == sorted(names)
    assert again == sorted(names, key=sort_key)


# One width per prefix: ClusterShell 1.9 pads by its own rules where widths are mixed.
numbered = st.tuples(st.sampled_from(["n", "gpu-", "a1b"]), st.integers(100, 999))


@settings(max_examples=60)
@given(st.lists(numbered, min_size=1, max_size=25))
def test_clustershell_reads_what_we_write(pairs: list[tuple[str, int]]) -> None:
    names = [f"{prefix}{number}" for prefix, number in pairs]
    assert set(NodeSet(compress(names))) == set(names)


@settings(max_examples=60)
@given(st.lists(numbered, min_size=1, max_size=25))
def test_we_read_what_clustershell_writes(pairs: list[tuple[str, int]]) -> None:
    names = {f"{prefix}{number}" for prefix, number in pairs}
    assert set(expand(str(NodeSet.fromlist(sorted(names))))) == names


low_high = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)


@given(st.lists(low_high, min_size=1, max_size=3), st.integers(1, 4))
def test_brackets_as_clustershell(ranges: list[list[int]], width: int) -> None:
    text = "".join(f"r{at}x[{a:0{width}d}-{b:0{width}d}]" for at, (a, b) in enumerate(ranges))
    if width == 1:
        text = "".join(f"r{at}x[{a}-{b}]" for at, (a, b) in enumerate(ranges))
    assert set(expand(text)) == set(NodeSet(text))


@given(st.text(alphabet="n1,[]-0 3x", max_size=20))
def test_any_text_gives_names_or_one_error(text: str) -> None:
    try:
        names = expand(text)
    except HostlistError as error:
        assert text in str(error)
    else:
        assert all(names)
