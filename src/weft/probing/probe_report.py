"""A finding as people read it: a topology file with remarks."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from weft.probing.inference import readable
from weft.topology.toml_file import format_toml
from weft.units import format_bandwidth

if TYPE_CHECKING:
    from weft.probing.inference import ProbeFinding
    from weft.probing.measurements import Estimate


def format_finding(finding: ProbeFinding) -> str:
    """The topology file; what each link was measured at stands above it."""
    topology = finding.topology
    remarks = {
        link: f"{topology.link_name(link)}: {_remark(estimate)}"
        for link, estimate in enumerate(finding.estimates)
    }
    return f"# {_summary(finding)}\n{format_toml(topology, remarks)}"


def _summary(finding: ProbeFinding) -> str:
    rounds = len(finding.measurements.rounds)
    spreads = [estimate.spread for estimate in finding.estimates if estimate.spread is not None]
    text = f"weft probe: {rounds} rounds" if rounds else "weft probe: memory of one host"
    if spreads:
        text += f", spread of a link {median(spreads):.1%} in the middle"
    if finding.explained is not None:
        text += f", {finding.explained:.0%} of the rounds as this topology predicts"
    return text


def _remark(estimate: Estimate) -> str:
    speed = format_bandwidth(readable(estimate.value))
    spread = "spread unknown" if estimate.spread is None else f"spread {estimate.spread:.1%}"
    return f"measured {speed}, {spread}, {estimate.samples} of {estimate.seen} samples"
