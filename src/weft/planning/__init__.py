"""Choosing: what each algorithm would do on a topology, and which one to take.

It sits above the makers and the consumers of schedules, and is the first place that knows both.
"""

from weft.planning.comparison import Comparison, ComparisonRow, SkippedAlgorithm, compare

__all__ = ["Comparison", "ComparisonRow", "SkippedAlgorithm", "compare"]
