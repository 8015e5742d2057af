"""The public surface: exactly these names, each of them there."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

import weft

PUBLIC = [
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

PACKAGES = {
    "weft.export": ["draw_trees", "to_dot", "trace_events", "write_trace"],
    "weft.schedule": [
        "COLLECTIVES",
        "Op",
        "Schedule",
        "ScheduleBuilder",
        "compose",
        "halves",
        "parallel",
        "reverse",
        "split",
    ],
    "weft.torch": [
        "DeAR",
        "GradScaler",
        "Options",
        "WeftProcessGroup",
        "communicator",
        "connect",
        "ddp_hook",
        "init_process_group",
        "overlap_fsdp",
        "profile",
    ],
    "weft.topology": ["Grid", "Routing", "Topology", "load_topology", "save_topology"],
}


def test_the_public_names_are_these() -> None:
    assert list(weft.__all__) == PUBLIC
    assert dir(weft) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(weft, name)
    assert value.__doc__
    defined = value.__name__ if isinstance(value, ModuleType) else value.__module__
    assert defined.split(".")[0] == "weft"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_of_a_package_are_these(package: str) -> None:
    module = importlib.import_module(package)
    assert list(module.__all__) == PACKAGES[package]
    assert all(hasattr(module, name) for name in PACKAGES[package])


def test_the_version_is_that_of_the_extension() -> None:
    assert weft.__version__ == weft._core.version()


def test_any_other_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'synthesize'"):
        _ = weft.synthesize
