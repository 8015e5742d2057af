"""Whether a cluster is as fast as somebody says.

A link is judged by what it carried in the rounds that, if the claim were true, would have filled it. One that
was never full is slower than claimed. Others on the same path are not blamed for it: in some round they were
full, because every host met every other.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import InputError
from weft.probing.fair_sharing import share_fairly
from weft.probing.measurements import FABRIC, plateau

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.probing.measurements import Flow, Measurements
    from weft.topology import Topology

TOLERANCE: Final = 0.15
_SATURATED: Final = 0.9
"""Part of its speed that is as good as full."""


class Slow(NamedTuple):
    """A link that carried less than its topology says, in bytes per second."""

    link: str
    claimed: int
    carried: float

    @property
    def missing(self) -> float:
        """Part of the claim that is not there."""
        return 1 - self.carried / self.claimed


class SpeedVerdict(NamedTuple):
    """Slow links, the slowest first, and how many of how many links could be judged."""

    slow: list[Slow]
    judged: int
    links: int

    def to_dict(self) -> dict[str, Any]:
        """Fields as ``weft probe --verify --json`` prints them."""
        return {"slow": [one._asdict() for one in self.slow], "judged": self.judged}


def compare_with_claim(
    measurements: Measurements, claimed: Topology, tolerance: float = TOLERANCE
) -> SpeedVerdict:
    """Links that are slower than claimed by more than a tolerance.

    Raises
    ------
    InputError
        If the claim is about another number of ranks.
    """
    if claimed.ranks != measurements.ranks:
        msg = (
            f"{claimed.name} has {claimed.ranks} ranks, this job {measurements.ranks}; "
            f"start as many as the topology has"
        )
        raise InputError(msg)
    speeds: list[int] = claimed.bandwidth.tolist()
    carried: dict[int, list[float]] = defaultdict(list)
    for flows in _rounds(measurements, claimed):
        routes = {number: route for number, (route, _) in enumerate(flows)}
        expected = share_fairly(routes, speeds)
        for link in {link for route in routes.values() for link in route}:
            sharing = [number for number, route in routes.items() if link in route]
            if sum(expected[number] for number in sharing) >= _SATURATED * speeds[link]:
                carried[link].append(sum(flows[number][1] for number in sharing))
    slow = []
    for link, samples in sorted(carried.items()):
        reached = plateau(samples).value
        if reached < (1 - tolerance) * speeds[link]:
            slow.append(Slow(claimed.link_name(link), speeds[link], reached))
    return SpeedVerdict(sorted(slow, key=lambda one: one.carried / one.claimed), len(carried), claimed.links)


def _rounds(measurements: Measurements, claimed: Topology) -> Iterator[list[tuple[tuple[int, ...], float]]]:
    """Way in the claimed topology and rate of each flow, round by round; inside hosts too."""
    for one in measurements.rounds:
        yield [(_route(measurements, claimed, flow), rate) for flow, rate in one.rates.items()]
    for number, rates in measurements.memory.items():
        host = measurements.hosts[number]
        following = (*host[1:], host[0])
        yield [(claimed.route(a, b), median(rates)) for a, b in zip(host, following, strict=True)]


def _route(measurements: Measurements, claimed: Topology, flow: Flow) -> tuple[int, ...]:
    """Links that a flow takes in the claimed topology: its cable's, or the network's own way."""
    src, dst = measurements.hosts[flow.src][0], measurements.hosts[flow.dst][0]
    if flow.cable == FABRIC:
        return claimed.route(src, dst)
    links = claimed.links_between(src, dst)
    if not links:
        return claimed.route(src, dst)
    cable = measurements.cables[flow.cable]
    ends = cable.address_of(flow.src), cable.address_of(flow.dst)
    by_address = {(here, there): link for link, here, there in claimed.addresses}
    if by_address.get(ends) in links:
        return (by_address[ends],)
    parallel = [number for number, other in enumerate(measurements.cables) if other.hosts == cable.hosts]
    return (links[min(parallel.index(flow.cable), len(links) - 1)],)
