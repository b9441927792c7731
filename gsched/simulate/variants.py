"""Words for policies, and what `--compare` takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gsched.simulate.replay_cluster import ClusterError, Wish, check_lines

#: word -> lines of slurm.conf
SCHEDULERS = {
    "fifo": ("SchedulerType=sched/builtin",),
    "easy": ("SchedulerType=sched/backfill", "SchedulerParameters+=bf_interval=-1"),
    "conservative": ("SchedulerType=sched/backfill", "SchedulerParameters+=bf_interval=30"),
}
POLICIES = {
    "pack": (),
    "first-fit": ("SelectTypeParameters+=FirstFit",),
    "best-fit": ("SelectTypeParameters+=BestFit",),
    "bin-pack": ("SelectTypeParameters+=BinPack",),
    "least-loaded": ("SelectTypeParameters+=LeastLoaded",),
    "fgd": ("SelectTypeParameters+=FGD",),
    "dense-fit": ("SelectTypeParameters+=DenseFit",),
}


def with_words(wish: Wish, words: Iterable[str]) -> Wish:
    """The same cluster under other rules. ClusterError for a word that is none."""
    for word in words:
        lines = SCHEDULERS.get(word, POLICIES.get(word))
        if lines is None:
            raise ClusterError(f'"{word}" is not a policy')
        wish = replace(wish, lines=(*wish.lines, *lines))
    return wish


def variant(wish: Wish, text: str) -> Wish:
    """What is compared with `wish`: a slurm.conf instead of its cluster, and words and settings
    laid over it. ClusterError for anything else."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if not words:
        raise ClusterError(f'--compare "{text}": there is nothing in it')
    for word in words:
        if word in SCHEDULERS or word in POLICIES:
            wish = with_words(wish, [word])
        elif "=" in word and not Path(word).is_file():
            wish = replace(wish, lines=(*wish.lines, *check_lines([word])))
        elif Path(word).is_file():
            wish = replace(wish, conf=Path(word), nodes=())
        else:
            raise ClusterError(
                f'--compare "{word}" is neither a file, nor KEY=VALUE, nor one of '
                f"{', '.join([*SCHEDULERS, *POLICIES])}"
            )
    return wish
