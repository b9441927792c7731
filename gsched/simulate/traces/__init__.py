"""Traces: files that tell which jobs came when and how long they ran. Each format has its file."""

from gsched.simulate.traces.find import FORMATS, read_nodes, read_trace
from gsched.simulate.traces.job import Trace, TraceError, TraceJob

__all__ = ["FORMATS", "Trace", "TraceError", "TraceJob", "read_nodes", "read_trace"]
