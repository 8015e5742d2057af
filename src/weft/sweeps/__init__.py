"""Many points on many machines: tasks that are text, and the executors that run them.

`weft.training.sweep`, `weft.planning.comparison_points` and `weft.planning.planner` make the tasks, and any
executor of `concurrent.futures` runs them: `open_executor` makes those that the command line knows.
"""

from weft.sweeps.executors import open_executor
from weft.sweeps.task_runner import TaskOutcome, abandon, run_tasks, stream_tasks
from weft.sweeps.task_text import SweepTask

__all__ = ["SweepTask", "TaskOutcome", "abandon", "open_executor", "run_tasks", "stream_tasks"]
