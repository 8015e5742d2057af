"""Running a schedule on a simulated network: how long, which link, which rank, and why."""

from weft.simulation.network import simulate
from weft.simulation.result import PathStep, SimulationResult, Timeline

__all__ = ["PathStep", "SimulationResult", "Timeline", "simulate"]
