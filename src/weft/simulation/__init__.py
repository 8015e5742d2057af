"""Running schedules on a simulated network: how long, which link, which rank, and why."""

from weft.simulation.result import CriticalPath, PathStep, SimulationResult, Timeline
from weft.simulation.simulator import simulate
from weft.simulation.tasks import Part, Passage, Resource, Work
from weft.simulation.workflow import Workflow, WorkflowResult

__all__ = [
    "CriticalPath",
    "Part",
    "Passage",
    "PathStep",
    "Resource",
    "SimulationResult",
    "Timeline",
    "Work",
    "Workflow",
    "WorkflowResult",
    "simulate",
]
