"""Pure decisions over the queue."""

from gsched.scheduling.passes import run_pass

__all__ = ["run_pass"]
