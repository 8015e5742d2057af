"""Schedules and runs in the forms other programs read: Perfetto traces, Graphviz drawings."""

from weft.exchange.dot import to_dot
from weft.exchange.perfetto import trace_events, write_trace

__all__ = ["to_dot", "trace_events", "write_trace"]
