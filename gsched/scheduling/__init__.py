"""Pure decisions over the queue."""

from gsched.scheduling.options import Options, options_of
from gsched.scheduling.passes import run_pass
from gsched.scheduling.planning import Draft, Planner

__all__ = ["Draft", "Options", "Planner", "options_of", "run_pass"]
