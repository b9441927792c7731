"""What a command of scontrol is about, and its words in one form: KEY=VALUE.

Names may be cut short to three letters, and `update job 17 timelimit 5` and `delete partition big`
are other ways to write the same, as in Slurm.
"""

from __future__ import annotations

from collections.abc import Sequence

from gsched_cli.stop import Stop

#: name of an entity -> what it is
_ENTITIES = {
    "nodename": "node",
    "partitionname": "partition",
    "reservationname": "reservation",
    "jobid": "job",
    "jobname": "jobname",
    "stepid": "step",
    "slurmctlddebug": "debug",
}
_LEAST = 3
#: keys of a job that say enough alone
ALONE = ("nice", "resetaccruetime")

NO_ENTITY = (
    "No valid entity in update command\n"
    'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", '
    'or "SlurmctldDebug"\n'
)
_FORMAT = "scontrol: error: Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'\n"


def kind_of(word: str) -> str:
    """What a word names: "node", "partition", "reservation", "job", "jobname", "step", "debug"; ""
    for none of them."""
    key = word.partition("=")[0].lower()
    if len(key) < _LEAST:
        return ""
    return next((kind for name, kind in _ENTITIES.items() if name.startswith(key)), "")


def updated(words: Sequence[str]) -> tuple[str, list[str]]:
    """(what is to be changed, its words). Raises Stop."""
    kinds = [kind_of(word) for n, word in enumerate(words) if "=" in word or not n]
    # A partition, node or reservation may be named to have the job there.
    jobs = [kind for kind in kinds if kind in ("job", "jobname", "step")]
    kind = next((kind for kind in jobs or kinds if kind), "")
    if not kind:
        raise Stop(1, NO_ENTITY)
    if kind in ("job", "jobname", "step"):
        return kind, _paired(words)
    if "=" not in words[0] and kind in ("node", "partition"):
        raise Stop(
            1,
            f"scontrol: error: Invalid input: {words[0]}  Request aborted\n"
            "slurm_update error: No error\n",
        )
    return kind, _named(words, kind)


def created(words: Sequence[str]) -> tuple[str, list[str]]:
    """(what is to be made, its words). Raises Stop."""
    kind = next((kind for kind in map(kind_of, words) if kind in ("partition", "reservation")), "")
    if not kind:
        raise Stop(1, f"scontrol: error: Invalid creation entity: {words[0]}\n")
    if kind == "partition" and "=" not in words[0]:
        raise Stop(1, f"scontrol: error: Invalid input: {words[0]}  Request aborted\n")
    if "=" not in words[0] and len(words) > 1 and "=" not in words[1]:
        words = [f"{words[0]}={words[1]}", *words[2:]]
    return kind, _named(words, kind)


def deleted(words: Sequence[str]) -> tuple[str, str]:
    """(what is to be deleted, its name). Raises Stop."""
    key, equals, name = words[0].partition("=")
    if equals and len(words) == 1:
        kind = kind_of(key)
    elif not equals and len(words) == 2:
        kind, name = kind_of(key), words[1]
    else:
        raise Stop(1, _FORMAT)
    if kind not in ("node", "partition", "reservation"):
        raise Stop(1, f"Invalid deletion entity: {words[0]}\n")
    return kind, name


def bare(word: str) -> str:
    """The ids of "job=17" and "jobid=17", any other word as it is."""
    key, equals, ids = word.partition("=")
    return ids if equals and key.lower() in ("job", "jobid") else word


def _named(words: Sequence[str], kind: str) -> list[str]:
    """The same with the entity's name written out where it was cut short."""
    found = []
    done = False
    for word in words:
        key, equals, value = word.partition("=")
        if not done and kind_of(key) == kind:
            # "create reservation reservationname=NAME" names it in its second word.
            word, done = f"{kind}{equals}{value}", bool(equals)
        found.append(word)
    return found


def _paired(words: Sequence[str]) -> list[str]:
    """A key without a value has the next word as its value."""
    found = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if "=" not in word:
            if at < len(words) and "=" not in words[at]:
                word = f"{word}={words[at]}"
                at += 1
            elif word.lower() not in ALONE:
                raise Stop(1, f"Invalid input: {word}\nRequest aborted\n")
        found.append(word)
    return found
