"""Measuring the cluster that a job runs on, and writing it down as a topology."""

from weft.probing.adaptation import Adaptation, Watch, adapt
from weft.probing.inference import Finding, infer
from weft.probing.measurements import Cable, Flow, Measurements, Round
from weft.probing.probe_report import format_finding
from weft.probing.session import Effort, probe
from weft.probing.speed_check import compare_with_claim

__all__ = [
    "Adaptation",
    "Cable",
    "Effort",
    "Finding",
    "Flow",
    "Measurements",
    "Round",
    "Watch",
    "adapt",
    "compare_with_claim",
    "format_finding",
    "infer",
    "probe",
]
