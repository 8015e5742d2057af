"""Whether a cluster is as fast as somebody says.

A link is judged by what it carried. In each round, the claimed topology says how fast its flows should have
been, and so what each link should have carried; a link that never came near the most that it should have
carried is slower than claimed. Others on the same path are not blamed for it: in some round they carried what
they should, because every host met every other.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.errors import InputError
from weft.probing.measurements import FABRIC
from weft.simulation.reference_sharing import share_fairly

if TYPE_CHECKING:
    from weft.probing.measurements import Flow, Measurements
    from weft.topology import Topology

TOLERANCE: Final = 0.15
_SATURATED: Final = 0.9
"""Part of its speed that rounds must be able to put on a link before it can be judged by them."""


class Slow(NamedTuple):
    """A link that carried less than its topology says, in bytes per second."""

    link: str
    claimed: int
    carried: float

    @property
    def missing(self) -> float:
        """Part of the claim that is not there."""
        return 1 - self.carried / self.claimed


class Verdict(NamedTuple):
    """Slow links, the slowest first, and how many of how many links could be judged."""

    slow: list[Slow]
    judged: int
    links: int


def compare_with_claim(
    measurements: Measurements, claimed: Topology, tolerance: float = TOLERANCE
) -> Verdict:
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
    should: dict[int, float] = defaultdict(float)
    did: dict[int, float] = defaultdict(float)
    speeds: list[int] = claimed.bandwidth.tolist()
    for one in measurements.rounds:
        flows = list(one.rates)
        routes = {number: _route(measurements, claimed, flow) for number, flow in enumerate(flows)}
        expected = share_fairly(routes, speeds)
        planned: dict[int, float] = defaultdict(float)
        carried: dict[int, float] = defaultdict(float)
        for number, flow in enumerate(flows):
            for link in routes[number]:
                planned[link] += expected[number]
                carried[link] += one.rates[flow]
        for link, most in planned.items():
            should[link] = max(should[link], most)
            did[link] = max(did[link], carried[link])
    judged = [link for link in sorted(should) if should[link] >= _SATURATED * speeds[link]]
    slow = [
        Slow(claimed.link_name(link), speeds[link], did[link])
        for link in judged
        if did[link] < (1 - tolerance) * should[link]
    ]
    return Verdict(sorted(slow, key=lambda one: one.carried / one.claimed), len(judged), claimed.links)


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
