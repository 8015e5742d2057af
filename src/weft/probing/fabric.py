"""What a network of switches looks like from its hosts: what each sends and receives, and who shares a leaf.

A leaf is believed only if all of its hosts, sending or receiving together, get less than their own cables
allow: a group that is not held up needs no switch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.probing.bottlenecks import SLOWED, own_rates
from weft.probing.fair_sharing import share_fairly
from weft.probing.flow_rounds import entering, leaving
from weft.probing.measurements import (
    FABRIC,
    Estimate,
    Flow,
    plateau,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.probing.measurements import Measurements

_ENOUGH: Final = 0.9
_NEAR: Final = 0.2
_TRUSTED: Final = 0.6


@dataclass(frozen=True, slots=True)
class Leaf:
    """Hosts behind one uplink, and what goes up and down it."""

    hosts: tuple[int, ...]
    out: Estimate
    into: Estimate
    latency_s: float = 0.0


@dataclass(frozen=True)
class ObservedFabric:
    """What there is between hosts.

    Parameters
    ----------
    out, into
        Of each host.
    latency_s
        From each host to the switch that it hangs on.
    leaves
        Shared uplinks; hosts in none of them hang on the core.
    explained
        Part of the flows whose rate it predicts.
    notes
        What could not be decided.
    """

    out: list[Estimate]
    into: list[Estimate]
    latency_s: list[float]
    leaves: tuple[Leaf, ...]
    explained: float
    notes: tuple[str, ...]

    @property
    def switches(self) -> int:
        """The core and the leaves."""
        return 1 + len(self.leaves)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Hosts of each leaf."""
        return tuple(leaf.hosts for leaf in self.leaves)


def understand_fabric(measurements: Measurements) -> ObservedFabric:
    """The fabric that explains what was measured over it."""
    out, into = own_rates(measurements)
    leaves = tuple(_find_leaves(measurements, out, into))
    latencies = _fit_latencies(measurements, leaves)
    hosts = len(measurements.hosts)
    leaves = tuple(
        Leaf(leaf.hosts, leaf.out, leaf.into, latencies[hosts + index]) for index, leaf in enumerate(leaves)
    )
    explained = _explained(measurements, out, into, leaves)
    notes = _notes(measurements, out, into, leaves)
    if explained < _TRUSTED:
        doubt = f"only {explained:.0%} of the rounds are as this topology predicts"
        notes += (f"{doubt}: processors or other traffic may be the limit",)
    return ObservedFabric(out, into, latencies[:hosts], leaves, explained, notes)


def _find_leaves(
    measurements: Measurements, out: Sequence[Estimate], into: Sequence[Estimate]
) -> Iterator[Leaf]:
    groups = measurements.groups
    for group in groups if len(groups) > 1 else ():
        outside = [host for other in groups if other != group for host in other]
        up = [one.total(sources=group, targets=outside) for one in measurements.rounds]
        down = [one.total(sources=outside, targets=group) for one in measurements.rounds]
        if len(group) == 1 or not any(up) or not any(down):
            continue
        leaf = Leaf(group, plateau([rate for rate in up if rate]), plateau([rate for rate in down if rate]))
        sends, receives = (
            sum(_expect(flows, out, into, ()).values())
            for flows in (leaving(group, groups), entering(group, groups))
        )
        if leaf.out.value < SLOWED * sends or leaf.into.value < SLOWED * receives:
            yield leaf


def _expect(
    flows: Sequence[Flow], out: Sequence[Estimate], into: Sequence[Estimate], leaves: Sequence[Leaf]
) -> dict[Flow, float]:
    """Rates of flows that share the fabric fairly."""
    hosts = len(out)
    leaf_of = {host: index for index, leaf in enumerate(leaves) for host in leaf.hosts}
    speeds = [e.value for e in (*out, *into, *(leaf.out for leaf in leaves), *(leaf.into for leaf in leaves))]
    routes = {}
    for number, flow in enumerate(flows):
        up, down = leaf_of.get(flow.src), leaf_of.get(flow.dst)
        middle: tuple[int, ...] = ()
        if up != down:
            middle += () if up is None else (2 * hosts + up,)
            middle += () if down is None else (2 * hosts + len(leaves) + down,)
        routes[number] = (flow.src, *middle, hosts + flow.dst)
    rates = share_fairly(routes, speeds)
    return {flow: rates[number] for number, flow in enumerate(flows)}


def _explained(
    measurements: Measurements, out: Sequence[Estimate], into: Sequence[Estimate], leaves: Sequence[Leaf]
) -> float:
    """Part of the rounds over the fabric whose bytes it predicts, all flows together: TCP shares unfairly."""
    rounds = [one for one in measurements.rounds if all(flow.cable == FABRIC for flow in one.rates)]
    good = 0
    for one in rounds:
        expected = sum(_expect(tuple(one.rates), out, into, leaves).values())
        good += abs(sum(one.rates.values()) - expected) <= _NEAR * expected
    return round(good / len(rounds), 3) if rounds else 1.0


def _fit_latencies(measurements: Measurements, leaves: Sequence[Leaf]) -> list[float]:
    """Of each host's cable, then of each leaf's, so that sums along paths come near what was measured."""
    hosts = len(measurements.hosts)
    leaf_of = {host: index for index, leaf in enumerate(leaves) for host in leaf.hosts}
    rows, seconds = [], []
    for flow, one_way in measurements.latency_s.items():
        if flow.cable != FABRIC:
            continue
        row = np.zeros(hosts + len(leaves))
        row[[flow.src, flow.dst]] = 1
        ends = {leaf_of.get(flow.src), leaf_of.get(flow.dst)}
        if len(ends) > 1:
            row[[hosts + leaf for leaf in ends if leaf is not None]] = 1
        rows.append(row)
        seconds.append(one_way)
    if not rows:
        return [0.0] * (hosts + len(leaves))
    found, *_ = np.linalg.lstsq(np.array(rows), np.array(seconds), rcond=None)
    least = min(seconds) / 4
    return [max(float(value), least if number < hosts else 0.0) for number, value in enumerate(found)]


def _notes(
    measurements: Measurements, out: Sequence[Estimate], into: Sequence[Estimate], leaves: Sequence[Leaf]
) -> tuple[str, ...]:
    """Speeds that nobody could exhaust: the others together take or give no more."""
    notes = []
    everyone = range(len(out))
    for host in everyone:
        others = [other for other in everyone if other != host]
        takes, gives = sum(into[other].value for other in others), sum(out[other].value for other in others)
        rank = measurements.hosts[host][0]
        if out[host].value >= _ENOUGH * takes:
            notes.append(f"the host of rank {rank} sends at least this: the others take no more")
        if into[host].value >= _ENOUGH * gives:
            notes.append(f"the host of rank {rank} receives at least this: the others send no more")
    if len(leaves) == 2 and sum(len(leaf.hosts) for leaf in leaves) == len(out):
        notes.append(
            "which of the two leaves is the narrower one cannot be told: both have the speed between them"
        )
    return tuple(notes)
