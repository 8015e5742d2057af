"""Running schedules on a simulated network: how long, which link, which rank, and why."""

from weft.simulation.result import CriticalPath, PathStep, SimulationResult, Timeline
from weft.simulation.simulator import simulate
from weft.simulation.tasks import LocalWork, Part, Passage, Resource
from weft.simulation.workflow import Workflow, WorkflowResult

__all__ = [
    "CriticalPath",
    "LocalWork",
    "Part",
    "Passage",
    "PathStep",
    "Resource",
    "SimulationResult",
    "Timeline",
    "Workflow",
    "WorkflowResult",
    "simulate",
]
