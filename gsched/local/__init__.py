"""`gsched`: an all-in-one cluster on this machine: up, down, status, env, keys."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """The command `gsched`."""
    # Imported late: whoever needs one module of this package does not pay for click.
    from gsched.local.command import run

    run()
