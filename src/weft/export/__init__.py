"""Schedules and runs in the forms other programs read: Perfetto traces, Graphviz drawings."""

from weft.export.graphviz import to_dot
from weft.export.simulation_trace import trace_events, write_trace

__all__ = ["to_dot", "trace_events", "write_trace"]
