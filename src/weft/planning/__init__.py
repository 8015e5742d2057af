"""Choosing: what each algorithm would do on a topology, and which one to take.

It sits above the makers and the consumers of schedules, and is the first place that knows both.
"""

from weft.algorithms.registry import Refusal
from weft.planning.comparison import Comparison, ComparisonRow, compare
from weft.planning.comparison_points import compare_points
from weft.planning.plan_file import load_plan, save_plan
from weft.planning.planner import plan, plan_steps
from weft.planning.plans import Choice, Plan

__all__ = [
    "Choice",
    "Comparison",
    "ComparisonRow",
    "Plan",
    "Refusal",
    "compare",
    "compare_points",
    "load_plan",
    "plan",
    "plan_steps",
    "save_plan",
]
