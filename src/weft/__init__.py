"""Weft: collectives for the network you actually have.

The public names are loaded on first use, so that ``import weft`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import (
    DesyncError,
    DisconnectedError,
    FormatError,
    InputError,
    LimitError,
    LinkCorrupted,
    LinkLost,
    PeerLost,
    RuntimeFailure,
    ScheduleError,
    SimulationError,
    TimedOut,
    TopologyError,
    UnitError,
    UnsupportedError,
    VerificationError,
    WeftError,
)

if TYPE_CHECKING:
    from weft import (
        algorithms,
        bounds,
        export,
        lab,
        packets,
        planning,
        probing,
        runtime,
        schedule,
        simulation,
        topology,
        torch,
        training,
        verification,
    )
    from weft.planning import Comparison, Plan, compare, load_plan, plan, plan_steps
    from weft.runtime import Communicator, init
    from weft.schedule import Op, Schedule, ScheduleBuilder
    from weft.schedule.codec import load_schedule, save_schedule
    from weft.simulation import SimulationResult, simulate
    from weft.topology import Topology, load_topology, save_topology
    from weft.training import train
    from weft.verification import VerificationReport, verify

_LAZY = {
    "Op": "weft.schedule",
    "Schedule": "weft.schedule",
    "ScheduleBuilder": "weft.schedule",
    "SimulationResult": "weft.simulation",
    "Topology": "weft.topology",
    "VerificationReport": "weft.verification",
    "Communicator": "weft.runtime",
    "Comparison": "weft.planning",
    "Plan": "weft.planning",
    "compare": "weft.planning",
    "init": "weft.runtime",
    "load_plan": "weft.planning",
    "load_schedule": "weft.schedule.codec",
    "load_topology": "weft.topology",
    "plan": "weft.planning",
    "plan_steps": "weft.planning",
    "save_schedule": "weft.schedule.codec",
    "save_topology": "weft.topology",
    "simulate": "weft.simulation",
    "train": "weft.training",
    "verify": "weft.verification",
}
_PACKAGES = (
    "algorithms",
    "bounds",
    "export",
    "lab",
    "packets",
    "planning",
    "probing",
    "runtime",
    "schedule",
    "simulation",
    "topology",
    "torch",
    "training",
    "verification",
)

__all__ = [
    "Communicator",
    "Comparison",
    "DesyncError",
    "DisconnectedError",
    "FormatError",
    "InputError",
    "LimitError",
    "LinkCorrupted",
    "LinkLost",
    "Op",
    "PeerLost",
    "Plan",
    "RuntimeFailure",
    "Schedule",
    "ScheduleBuilder",
    "ScheduleError",
    "SimulationError",
    "SimulationResult",
    "TimedOut",
    "Topology",
    "TopologyError",
    "UnitError",
    "UnsupportedError",
    "VerificationError",
    "VerificationReport",
    "WeftError",
    "algorithms",
    "bounds",
    "compare",
    "export",
    "init",
    "lab",
    "load_plan",
    "load_schedule",
    "load_topology",
    "packets",
    "plan",
    "plan_steps",
    "planning",
    "probing",
    "runtime",
    "save_schedule",
    "save_topology",
    "schedule",
    "simulate",
    "simulation",
    "topology",
    "torch",
    "train",
    "training",
    "verification",
    "verify",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"weft.{name}")
    if name == "__version__":
        from weft import _core

        return _core.version()
    msg = f"module 'weft' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
