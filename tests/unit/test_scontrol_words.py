"""The forms of scontrol's commands, as Slurm 22.05 takes and refuses them."""

from __future__ import annotations

import pytest

from gsched_cli import scontrol_words
from gsched_cli.stop import Stop


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("job=17 timelimit=6", "job", "job=17 timelimit=6"),
        ("job 17 timelimit=6", "job", "job=17 timelimit=6"),
        ("JobId 17 TimeLimit 6", "job", "JobId=17 TimeLimit=6"),
        ("timelimit=6 jobid=17", "job", "timelimit=6 jobid=17"),
        ("job=17 timeli 6", "job", "job=17 timeli=6"),
        ("job=17 nice name=foo", "job", "job=17 nice name=foo"),
        ("job=17 resetaccruetime", "job", "job=17 resetaccruetime"),
        ("job=17 partition=big", "job", "job=17 partition=big"),
        ("jobname=train timelimit=6", "jobname", "jobname=train timelimit=6"),
        ("node=n1 weight=2", "node", "node=n1 weight=2"),
        ("nod=n1 weight=2", "node", "node=n1 weight=2"),
        ("nodename=n1 weight=2", "node", "node=n1 weight=2"),
        ("part=big maxtime=5", "partition", "partition=big maxtime=5"),
        ("res=maint duration=5", "reservation", "reservation=maint duration=5"),
        ("reservationname=maint duration=5", "reservation", "reservation=maint duration=5"),
        ("stepid=1.0 timelimit=5", "step", "stepid=1.0 timelimit=5"),
    ],
)
def test_updates(line: str, kind: str, words: str) -> None:
    assert scontrol_words.updated(line.split()) == (kind, words.split())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("jo=17 timelimit=6", "No valid entity in update command"),
        ("id=17 timelimit=6", "No valid entity in update command"),
        ("nodes=n1 weight=2", "No valid entity in update command"),
        ("n=n1 weight=2", "No valid entity in update command"),
        ("p=big maxtime=5", "No valid entity in update command"),
        ("re=maint duration=5", "No valid entity in update command"),
        ("timelimit=6", "No valid entity in update command"),
        ("job", "Invalid input: job"),
        ("job=17 timelimit", "Invalid input: timelimit"),
        ("job=17 name foo nice=1 7", "Invalid input: 7"),
        ("node n1 weight=2", "scontrol: error: Invalid input: node  Request aborted"),
        ("part big maxtime=5", "scontrol: error: Invalid input: part  Request aborted"),
    ],
)
def test_what_is_no_update(line: str, sentence: str) -> None:
    with pytest.raises(Stop) as stop:
        scontrol_words.updated(line.split())
    assert (stop.value.code, stop.value.text.split("\n")[0]) == (1, sentence)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("partition=big", ("partition", "big")),
        ("part big", ("partition", "big")),
        ("res maint", ("reservation", "maint")),
        ("reservationname=maint", ("reservation", "maint")),
        ("node=n1", ("node", "n1")),
    ],
)
def test_deletions(line: str, found: tuple[str, str]) -> None:
    assert scontrol_words.deleted(line.split()) == found


_FORMAT = "scontrol: error: Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("foo", _FORMAT),
        ("res", _FORMAT),
        ("res one more", _FORMAT),
        ("foo bar", "Invalid deletion entity: foo"),
        ("foo=bar", "Invalid deletion entity: foo=bar"),
        ("p=big", "Invalid deletion entity: p=big"),
    ],
)
def test_what_is_no_deletion(line: str, sentence: str) -> None:
    with pytest.raises(Stop) as stop:
        scontrol_words.deleted(line.split())
    assert (stop.value.code, stop.value.text) == (1, sentence + "\n")


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("reservation starttime=now", "reservation", "reservation starttime=now"),
        ("reservation reservationname=r1 duration=5", "reservation", ""),
        ("res r1 duration=5", "reservation", "reservation=r1 duration=5"),
        ("partitionname=big nodes=n1", "partition", "partition=big nodes=n1"),
    ],
)
def test_creations(line: str, kind: str, words: str) -> None:
    expected = words or "reservation reservation=r1 duration=5"
    assert scontrol_words.created(line.split()) == (kind, expected.split())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("foo bar=1", "scontrol: error: Invalid creation entity: foo"),
        ("foo=bar", "scontrol: error: Invalid creation entity: foo=bar"),
        ("p=big", "scontrol: error: Invalid creation entity: p=big"),
        ("part nodes=n1", "scontrol: error: Invalid input: part  Request aborted"),
        ("partition big nodes=n1", "scontrol: error: Invalid input: partition  Request aborted"),
    ],
)
def test_what_is_no_creation(line: str, sentence: str) -> None:
    with pytest.raises(Stop) as stop:
        scontrol_words.created(line.split())
    assert (stop.value.code, stop.value.text) == (1, sentence + "\n")


def test_all_that_the_ledger_can_change_can_be_asked_for() -> None:
    from gsched.ledger.fields import FIELDS
    from gsched_cli.scontrol_update import JOB_FIELDS

    sent = {name for _, name in JOB_FIELDS.values()}
    assert sent <= FIELDS.keys()
    # What is called otherwise on the way stands for the same.
    same = {name for name in FIELDS if any(FIELDS[name] is FIELDS[other] for other in sent)}
    assert FIELDS.keys() <= sent | same
