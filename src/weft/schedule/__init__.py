"""The IR: a schedule is one immutable table of transfers on one topology.

`compose`, `halves`, `parallel`, `reverse` and `split` make schedules from schedules.
"""

from weft.collective_names import COLLECTIVES
from weft.schedule.builder import ScheduleBuilder
from weft.schedule.ir import Op, Schedule
from weft.schedule.passes import compose, halves, parallel, reverse, split

__all__ = [
    "COLLECTIVES",
    "Op",
    "Schedule",
    "ScheduleBuilder",
    "compose",
    "halves",
    "parallel",
    "reverse",
    "split",
]
