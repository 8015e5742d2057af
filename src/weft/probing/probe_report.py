"""A finding as people and programs read it: a topology file with remarks, or JSON."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from weft.probing.inference import readable
from weft.topology.toml_file import format_toml
from weft.units import format_bandwidth

if TYPE_CHECKING:
    from weft.probing.inference import ProbeFinding
    from weft.probing.measurements import Estimate
    from weft.probing.speed_check import SpeedVerdict


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


def finding_as_dict(finding: ProbeFinding, verdict: SpeedVerdict | None) -> dict[str, Any]:
    """Everything, for programs; rates in bytes per second, times in seconds."""
    topology, measurements = finding.topology, finding.measurements
    links = [
        {
            "link": topology.link_name(link),
            "bandwidth": int(topology.bandwidth[link]),
            "latency_s": int(topology.latency_ps[link]) / 1e12,
            "measured": estimate.value,
            "spread": estimate.spread,
            "samples": estimate.samples,
            "seen": estimate.seen,
        }
        for link, estimate in enumerate(finding.estimates)
    ]
    found: dict[str, Any] = {
        "topology": topology.name,
        "digest": topology.digest,
        "ranks": topology.ranks,
        "hosts": [list(host) for host in measurements.hosts],
        "groups": [[measurements.hosts[host][0] for host in group] for group in finding.groups],
        "explained": finding.explained,
        "notes": list(topology.notes),
        "links": links,
        "rounds": [
            {
                "kind": one.kind,
                "flows": [[flow.src, flow.dst, flow.cable, rate] for flow, rate in one.rates.items()],
            }
            for one in measurements.rounds
        ],
    }
    if verdict is not None:
        found |= {"slow": [one._asdict() for one in verdict.slow], "judged": verdict.judged}
    return found
