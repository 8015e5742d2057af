"""Weft: collectives for the network you actually have.

The public names are loaded on first use, so that ``import weft`` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing typing would be most of what this module takes

if TYPE_CHECKING:
    from typing import Any

    from weft import (
        algorithms,
        bounds,
        export,
        lab,
        packets,
        planning,
        probing,
        reporting,
        runtime,
        schedule,
        simulation,
        topology,
        torch,
        training,
        verification,
    )
    from weft.checked_simulation import simulate
    from weft.errors import (
        DesyncError,
        DisconnectedError,
        FormatError,
        InputError,
        LimitError,
        LinkCorrupted,
        LinkLost,
        MissingPackageError,
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
    from weft.planning import Comparison, Plan, compare, load_plan, plan, plan_steps
    from weft.reporting import report
    from weft.runtime import Communicator, init
    from weft.schedule import Op, Schedule, ScheduleBuilder
    from weft.schedule.codec import load_schedule, save_schedule
    from weft.simulation import SimulationResult
    from weft.topology import Topology, load_topology, save_topology
    from weft.training import train
    from weft.verification import VerificationReport, verify

_HOMES = {
    "weft.errors": (
        "DesyncError",
        "DisconnectedError",
        "FormatError",
        "InputError",
        "LimitError",
        "LinkCorrupted",
        "LinkLost",
        "MissingPackageError",
        "PeerLost",
        "RuntimeFailure",
        "ScheduleError",
        "SimulationError",
        "TimedOut",
        "TopologyError",
        "UnitError",
        "UnsupportedError",
        "VerificationError",
        "WeftError",
    ),
    "weft.planning": ("Comparison", "Plan", "compare", "load_plan", "plan", "plan_steps"),
    "weft.reporting": ("report",),
    "weft.runtime": ("Communicator", "init"),
    "weft.schedule": ("Op", "Schedule", "ScheduleBuilder"),
    "weft.schedule.codec": ("load_schedule", "save_schedule"),
    "weft.checked_simulation": ("simulate",),
    "weft.simulation": ("SimulationResult",),
    "weft.topology": ("Topology", "load_topology", "save_topology"),
    "weft.training": ("train",),
    "weft.verification": ("VerificationReport", "verify"),
}
"""The module that each name comes from; the public names that are not here are packages."""

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
    "MissingPackageError",
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
    "report",
    "reporting",
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

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    if name in __all__:
        return importlib.import_module(f"weft.{name}")
    if name == "__version__":
        from weft import _core

        return _core.version()
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
