"""From measurements to a topology: pure, so that any cluster can be tried without having it.

Where cables join all hosts, they are the topology. Otherwise there is a fabric: every host hangs on a switch
with what it can send and receive, and hosts that slow each other on their way out hang on a leaf whose link
to the core is what all of them get through together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, log10
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from weft import limits
from weft.errors import name_ranks
from weft.probing.fabric import ObservedFabric, understand_fabric
from weft.probing.grid_recognition import find_grid
from weft.probing.measurements import (
    Estimate,
    Flow,
    join_all,
    plateau,
)
from weft.topology.cable_notes import CableNotes
from weft.topology.graph import Routing
from weft.topology.toml_file import format_toml
from weft.units import PS_PER_S, human_bandwidth

if TYPE_CHECKING:
    from weft.probing.measurements import Measurements
    from weft.topology import Topology

_DIGITS: Final = 3
_HELD_UP: Final = 0.8
_LATENCY_STEP_PS: Final = 100_000


@dataclass(frozen=True)
class ProbeFinding:
    """What a probe comes to.

    Parameters
    ----------
    topology
        With what had to be assumed in its notes.
    estimates
        Of each link: the speed as measured, its spread, and from how many samples.
    groups
        Hosts that share an uplink, where some do.
    explained
        Which part of the rounds over the fabric the topology predicts, to a fifth; None if there were none.
    measurements
        All of it.
    """

    topology: Topology
    estimates: tuple[Estimate, ...]
    groups: tuple[tuple[int, ...], ...]
    explained: float | None
    measurements: Measurements

    def to_dict(self) -> dict[str, Any]:
        """Everything, for programs; rates in bytes per second, times in seconds."""
        topology, hosts = self.topology, self.measurements.hosts
        return {
            "topology": topology.name,
            "digest": topology.digest,
            "ranks": topology.ranks,
            "hosts": [list(host) for host in hosts],
            "groups": [[hosts[host][0] for host in group] for group in self.groups],
            "explained": self.explained,
            "notes": list(topology.notes),
            "links": [self._link_dict(link) for link in range(topology.links)],
            "rounds": [
                {
                    "kind": one.kind,
                    "flows": [[flow.src, flow.dst, flow.cable, rate] for flow, rate in one.rates.items()],
                }
                for one in self.measurements.rounds
            ],
        }

    def _link_dict(self, link: int) -> dict[str, Any]:
        topology, estimate = self.topology, self.estimates[link]
        return {
            "link": topology.link_name(link),
            "bandwidth": int(topology.bandwidth[link]),
            "latency_s": int(topology.latency_ps[link]) / 1e12,
            "measured": estimate.value,
            "spread": estimate.spread,
            "samples": estimate.samples,
            "seen": estimate.seen,
        }


@dataclass
class _Drawing:
    """A topology as it comes about, with the estimate of each link."""

    wiring: CableNotes
    estimates: list[Estimate] = field(default_factory=list)

    def cable(
        self,
        a: int,
        b: int,
        there: Estimate,
        back: Estimate,
        latency_s: float,
        addresses: tuple[str, str] | None = None,
    ) -> None:
        """Two links, there and back."""
        latency = round(latency_s * PS_PER_S / _LATENCY_STEP_PS) * _LATENCY_STEP_PS
        latency = min(max(latency, 0), limits.MAX_LATENCY_PS)
        self.wiring.link(a, b, readable(there.value), latency, addresses)
        self.wiring.link(b, a, readable(back.value), latency, addresses and addresses[::-1])
        self.estimates += [there, back]


def readable(bytes_per_s: float) -> int:
    """A speed to three digits: more were not measured.

    Examples
    --------
    >>> readable(2_391_234.5)
    2390000
    """
    value = max(bytes_per_s, limits.MIN_BANDWIDTH)
    step: int = 10 ** max(0, floor(log10(value)) - _DIGITS + 1)
    return min(round(value / step) * step, limits.MAX_BANDWIDTH)


def infer(measurements: Measurements, name: str = "probed") -> ProbeFinding:
    """Topology that explains the measurements.

    Parameters
    ----------
    measurements
        Every host has sent and received at least once.
    name
        Of the topology.
    """
    several = [number for number, host in enumerate(measurements.hosts) if len(host) > 1]
    ranks = measurements.ranks
    joined = join_all(len(measurements.hosts), measurements.cables)
    fabric = None if joined else understand_fabric(measurements)
    switches = len(several) + (fabric.switches if fabric else 0)
    drawing = _Drawing(CableNotes(ranks, switches))
    nodes = [host[0] for host in measurements.hosts]
    for index, number in enumerate(several):
        nodes[number] = ranks + index
    notes = list(measurements.notes)
    _draw_memory(drawing, measurements, nodes, notes)
    _draw_cables(drawing, measurements, nodes, notes)
    if fabric is not None:
        _draw_fabric(drawing, fabric, nodes, ranks + len(several))
        notes += fabric.notes
    elif measurements.cables:
        notes.append("cables join all hosts; whatever else joins them was not measured")
    hosts = measurements.hosts if several else ()
    topology = drawing.wiring.build(name, hosts=hosts, notes=tuple(notes))
    grid = None if several or fabric else find_grid(topology)
    if grid is not None:
        topology = drawing.wiring.build(
            name, notes=tuple(notes), grid=grid, routing=Routing("dimension-order")
        )
    groups = fabric.groups if fabric else ()
    explained = fabric.explained if fabric else None
    return ProbeFinding(topology, tuple(drawing.estimates), groups, explained, measurements)


def _draw_memory(drawing: _Drawing, measurements: Measurements, nodes: list[int], notes: list[str]) -> None:
    for number, host in enumerate(measurements.hosts):
        if len(host) == 1:
            continue
        rates = measurements.memory[number]
        value = median(rates)
        spread = median(abs(rate - value) for rate in rates) / value
        speed = Estimate(value, round(spread, 4), len(rates), len(rates))
        for rank in host:
            drawing.cable(rank, nodes[number], speed, speed, measurements.memory_latency_s / 2)
    if any(len(host) > 1 for host in measurements.hosts):
        notes.append("inside a host: what each rank gets while all of them send")


def _draw_cables(drawing: _Drawing, measurements: Measurements, nodes: list[int], notes: list[str]) -> None:
    together = {
        flow: rate
        for one in measurements.rounds
        if one.kind == "all cables"
        for flow, rate in one.rates.items()
    }
    slowed: set[int] = set()
    for number, cable in enumerate(measurements.cables):
        a, b = cable.hosts
        ways = Flow(a, b, number), Flow(b, a, number)
        alone = [
            plateau(
                [one.rates[flow] for one in measurements.rounds if one.kind == "cables" and flow in one.rates]
            )
            for flow in ways
        ]
        latency = measurements.latency_s.get(ways[0], 0.0)
        drawing.cable(nodes[a], nodes[b], alone[0], alone[1], latency, cable.addresses)
        for flow, speed in zip(ways, alone, strict=True):
            if together.get(flow, speed.value) < _HELD_UP * speed.value:
                slowed |= {flow.src, flow.dst}
    if slowed:
        ranks = name_ranks(measurements.hosts[host][0] for host in slowed)
        notes.append(f"all cables at once are slower than each alone at the hosts of {ranks}")


def _draw_fabric(drawing: _Drawing, fabric: ObservedFabric, nodes: list[int], first: int) -> None:
    """Leaves first, then the core."""
    core = first + len(fabric.leaves)
    above = dict.fromkeys(range(len(nodes)), core)
    for index, leaf in enumerate(fabric.leaves):
        above.update(dict.fromkeys(leaf.hosts, first + index))
    for host, node in enumerate(nodes):
        drawing.cable(node, above[host], fabric.out[host], fabric.into[host], fabric.latency_s[host])
    for index, leaf in enumerate(fabric.leaves):
        drawing.cable(first + index, core, leaf.out, leaf.into, leaf.latency_s)


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
    speed = human_bandwidth(readable(estimate.value))
    spread = "spread unknown" if estimate.spread is None else f"spread {estimate.spread:.1%}"
    return f"measured {speed}, {spread}, {estimate.samples} of {estimate.seen} samples"
