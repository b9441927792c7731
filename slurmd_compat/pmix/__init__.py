"""The PMIx server of a step on one node: a program of its own, built where libpmix is there.

It is a child of the step's mover (stepd/pmix.c) and runs with the user's ids; server.c says how the
two speak. Without the library srun says that there is no such MPI type.
"""

from __future__ import annotations

from pathlib import Path


def program() -> Path | None:
    """Where the compiled program lies; None where it was not built."""
    path = Path(__file__).with_name("pmix-server")
    return path if path.exists() else None
