"""Dependencies: the text of --dependency, and how it is shown. Whether one is fulfilled is the
ledger's to say."""

from __future__ import annotations

import re

from gsched.model import Dep

KINDS = frozenset(
    {
        "after",
        "afterany",
        "afterok",
        "afternotok",
        "aftercorr",
        "afterburstbuffer",
        "singleton",
    }
)
_ID = re.compile(r"(\d{1,18})(?:_(\d{1,9}|\*))?(?:\+(\d{1,9}))?")

#: states of a Dep
WAITING, FULFILLED, FAILED = 0, 1, 2


class DependencyError(ValueError):
    """A text that is no dependency list."""


def parse(text: str) -> list[Dep]:
    """The items of a list, joined by "," (all) or "?" (any), never both. [] for ""."""
    if not text.strip():
        return []
    if "," in text and "?" in text:
        raise DependencyError(f"dependency {text!r} mixes , and ?")
    alternative = "?" in text
    once: dict[tuple[str, int, int], Dep] = {}
    for item in text.split("?" if alternative else ","):
        name, _, ids = item.strip().partition(":")
        kind = name.lower()
        if name[:1].isdigit() and not ids:
            # The oldest form: a job alone is waited for, however it ends. As Slurm reads it, also
            # in afterok:1,2 (the list of a kind is joined by colons).
            kind, ids = "afterany", name
        elif kind not in KINDS or (kind == "singleton" and ids):
            raise DependencyError(f"dependency {text!r} is wrong at {item!r}")
        if kind == "singleton":
            once.setdefault((kind, 0, -1), Dep(kind, alternative=alternative))
            continue
        for number in ids.split(":"):
            match = _ID.fullmatch(number.lstrip())
            if match is None or match[3] == "0":
                raise DependencyError(f"dependency {text!r} is wrong at {item!r}")
            task = int(match[2]) if match[2] and match[2] != "*" else -1
            dep = Dep(kind, int(match[1]), task, int(match[3] or 0), alternative=alternative)
            once.setdefault((kind, dep.job_id, task), dep)
    return list(once.values())


def shown(deps: list[Dep]) -> str:
    """What is left, as squeue's %E and scontrol show it; "" for nothing."""
    left = [dep for dep in deps if dep.state != FULFILLED]
    if not left:
        return ""
    return ("?" if left[0].alternative else ",").join(_one(dep) for dep in left)


def _one(dep: Dep) -> str:
    word = "failed" if dep.state == FAILED else "unfulfilled"
    if dep.kind == "singleton":
        return f"singleton({word})"
    job = str(dep.job_id)
    if dep.task >= 0:
        job += f"_{dep.task}"
    elif dep.array:
        job += "_*"
    later = f"+{dep.minutes}" if dep.minutes else ""
    return f"{dep.kind}:{job}{later}({word})"


def failed(deps: list[Dep]) -> bool:
    """Whether the list can never be fulfilled."""
    if not deps:
        return False
    if deps[0].alternative:
        return all(dep.state == FAILED for dep in deps)
    return any(dep.state == FAILED for dep in deps)


def fulfilled(deps: list[Dep]) -> bool:
    """Whether nothing is left to wait for."""
    if not deps:
        return True
    if deps[0].alternative:
        return any(dep.state == FULFILLED for dep in deps)
    return all(dep.state == FULFILLED for dep in deps)
