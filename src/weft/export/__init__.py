"""Schedules and runs in the forms other programs read: traces, Graphviz drawings, pictures of trees."""

from weft.export.graphviz import to_dot
from weft.export.simulation_trace import trace_events, write_trace
from weft.export.tree_drawing import draw_trees

__all__ = ["draw_trees", "to_dot", "trace_events", "write_trace"]
