"""The IR: a schedule is one immutable table of transfers on one topology."""

from weft.schedule.builder import ScheduleBuilder
from weft.schedule.ir import COLLECTIVES, Op, Schedule

__all__ = ["COLLECTIVES", "Op", "Schedule", "ScheduleBuilder"]
