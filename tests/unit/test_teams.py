"""The chart of teams in a replay: who held what of whose guarantee, by arithmetic."""

from __future__ import annotations

from xml.etree import ElementTree

from gsched.model.policy import ROOT, Account, Assoc
from gsched.policy import Book
from gsched.simulate import teams
from gsched.simulate.replay import Replay
from gsched.simulate.replay_cluster import Wish, build, parse_nodes
from gsched.simulate.replay_spec import Requests, specs
from gsched.simulate.traces import Trace
from gsched.simulate.traces.job import TraceJob

GUARANTEE = {"gres/gpu": 8}


def day() -> Replay:
    """Two teams with 8 GPUs each on two nodes. red's jobs of 8 run from 0 to 7,200 s, and from
    3,600 to 10,800 s on what blue leaves idle."""
    trace = Trace("day", "gang", [
        TraceJob("a", 0, 7200, gpus=8, account="red"),
        TraceJob("b", 3600, 7200, gpus=8, account="red"),
    ])  # fmt: skip
    built = build(Wish(None, tuple(parse_nodes("2x8")), ()), trace)
    records = [*Book().first, Account("red"), Account("blue")]
    records += [Assoc(3, "red", parent=ROOT, guarantee=GUARANTEE)]
    records += [Assoc(4, "blue", parent=ROOT, guarantee=GUARANTEE)]
    requests = Requests(built.config, "packed", "trace", True)
    replay = Replay(built.config, trace.jobs, specs(requests, trace.jobs), policy=records)
    replay.run()
    return replay


def test_what_was_guaranteed_and_what_was_borrowed() -> None:
    told = day().teams
    assert [one[:3] for one in told.stands["red"]] == [
        (0, 8, 8),
        (3600, 16, 8),
        (7200, 8, 8),
        (10800, 0, 0),
    ]
    assert told.hours("red") == (8 * 3.0, 8 * 1.0)
    assert told.hours("blue") == (0, 0)


def test_the_picture_has_a_panel_for_each_account() -> None:
    picture = teams.draw(day().teams, "a day <&>")
    root = ElementTree.fromstring(picture)
    words = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "red: GPUs" in words and "blue: GPUs" in words and "a day <&>" in words
    fills = [one.get("fill") for one in root.iter("{http://www.w3.org/2000/svg}path")]
    assert fills.count(teams.BORROWED) == 2


def test_panels_can_be_compared() -> None:
    """red's 16 and blue's nothing are drawn to one scale, the guarantee as one stroke each."""
    root = ElementTree.fromstring(teams.draw(day().teams, "a day"))
    space = "{http://www.w3.org/2000/svg}"
    words = [one.text or "" for one in root.iter(f"{space}text")]
    assert words.count("20") == 2
    dashed = [one for one in root.iter(f"{space}path") if one.get("stroke-dasharray")]
    # The legend's, red's, blue's.
    assert [(one.get("d") or "").count("M") for one in dashed] == [1, 1, 1]
