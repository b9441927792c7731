"""File name patterns of --output, --error and --input, as `man sbatch` describes them."""

from __future__ import annotations

import os
import re

from gsched.model import Job

#: what %a gives where there is no array task, as in Slurm
NO_TASK = 4294967294

_SYMBOL = re.compile(r"%([0-9]*)([%AabJjNnstux])")
#: letters whose value is a number: only these are padded
_NUMERIC = frozenset("AabJjnt")
#: more zeros than anyone means
_MAX_WIDTH = 10


def expand(
    pattern: str, job: Job, node: str, index: int, *, step: str = "batch", task: int = 0
) -> str:
    """A pattern with its symbols replaced; a backslash anywhere leaves them alone (and goes).

    `index` is the node's place in the allocation. A number between % and the letter pads numbers
    with zeros; unknown symbols stay as written.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    array_task = job.array_task_id if job.array_task_id >= 0 else NO_TASK
    values = {
        "%": "%",
        "A": str(job.array_job_id or job.id),
        "a": str(array_task),
        "b": str(array_task % 10),
        "J": str(job.id) if step == "batch" else f"{job.id}.{step}",
        "j": str(job.id),
        "N": node.partition(".")[0],
        "n": str(index),
        "s": step,
        "t": str(task),
        "u": job.user,
        "x": job.spec.name,
    }

    def symbol(found: re.Match[str]) -> str:
        width, letter = found.groups()
        value = values[letter]
        if width and letter in _NUMERIC:
            return value.zfill(min(int(width), _MAX_WIDTH))
        return value

    return _SYMBOL.sub(symbol, pattern)


def default_output(job: Job) -> str:
    """The pattern where none is given."""
    return "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"


def batch_files(job: Job, node: str) -> tuple[str, str, str]:
    """Absolute paths of the batch script's standard input, output and error. Relative names are
    below the job's working directory; error follows output where it is not named."""

    def place(pattern: str) -> str:
        return os.path.join(job.spec.work_dir, expand(pattern, job, node, 0))

    output = place(job.spec.std_out or default_output(job))
    error = place(job.spec.std_err) if job.spec.std_err else output
    return place(job.spec.std_in or "/dev/null"), output, error
