"""Measuring the cluster that a job runs on, and writing it down as a topology."""

from weft.probing.adaptation import Adaptation, SpeedWatch, adapt
from weft.probing.inferred_topology import ProbeFinding, format_finding, infer
from weft.probing.measurements import (
    Flow,
    MeasuredCable,
    Measurements,
    Round,
)
from weft.probing.session import ProbeEffort, probe
from weft.probing.speed_check import compare_with_claim

__all__ = [
    "Adaptation",
    "Flow",
    "MeasuredCable",
    "Measurements",
    "ProbeEffort",
    "ProbeFinding",
    "Round",
    "SpeedWatch",
    "adapt",
    "compare_with_claim",
    "format_finding",
    "infer",
    "probe",
]
