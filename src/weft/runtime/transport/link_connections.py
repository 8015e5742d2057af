"""Which connections a topology prescribes between two ranks, and which of them a transfer takes.

A topology may say which addresses use a cable. A connection between two of these goes over that cable and no
other, so that the runtime, and not the network, decides which links carry what. Where nothing is said, there
are a few connections between any two ranks, and messages take them in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from weft.runtime.engines import group_by_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.runtime.bootstrap.members import Member
    from weft.schedule import Schedule
    from weft.topology import Topology

IN_TURN: Final = -1
"""Instead of the number of a connection: the next one in turn."""

_Value = TypeVar("_Value")


class ConnectionEnds(NamedTuple):
    """Addresses of a connection."""

    here: str
    there: str


@dataclass(frozen=True, slots=True)
class LinkConnections:
    """Connections of one rank that a topology prescribes.

    Parameters
    ----------
    ends
        For each rank that is reached by addresses of cables: both ends of each connection to it.
    out, into
        For these ranks, which of them a message to and from it takes that goes the network's own way.
    digest
        Digest of the topology; empty if it prescribes nothing.
    """

    ends: dict[int, tuple[ConnectionEnds, ...]] = field(default_factory=dict)
    out: dict[int, int] = field(default_factory=dict)
    into: dict[int, int] = field(default_factory=dict)
    digest: str = ""

    def among(self, members: Sequence[int]) -> LinkConnections:
        """The connections to some of the ranks, which are numbered anew."""

        def renumber(table: dict[int, _Value]) -> dict[int, _Value]:
            return {new: table[rank] for new, rank in enumerate(members) if rank in table}

        return LinkConnections(renumber(self.ends), renumber(self.out), renumber(self.into), self.digest)

    def of_routes(self, schedule: Schedule) -> NDArray[np.int32]:
        """Number of the connection that each route of a schedule takes, as far as this rank is part of it."""
        routes = len(schedule.route_offsets) - 1
        found = np.full(routes, IN_TURN, np.int32)
        if not self.ends:
            return found
        addresses = {link: (src, dst) for link, src, dst in schedule.topology.addresses}
        known = {
            tuple(sorted(ends)): number for some in self.ends.values() for number, ends in enumerate(some)
        }
        offsets, links = schedule.route_offsets.tolist(), schedule.route_links.tolist()
        for route in range(routes):
            if offsets[route] == offsets[route + 1]:
                continue  # from a rank to itself
            first, last = links[offsets[route]], links[offsets[route + 1] - 1]
            if first in addresses and last in addresses:
                ends = addresses[first][0], addresses[last][1]
                found[route] = known.get(tuple(sorted(ends)), IN_TURN)
        return found


def find_nodes(topology: Topology | None, members: Sequence[Member]) -> list[int]:
    """Node of the topology that each rank stands for: itself, or its host where the topology is of hosts."""
    hosts = group_by_host(members)
    if topology is not None and topology.ranks == len(hosts) < len(members):
        host_of = {rank: number for number, host in enumerate(hosts) for rank in host}
        return [host_of[rank] for rank in range(len(members))]
    return list(range(len(members)))


def find_link_connections(topology: Topology | None, nodes: Sequence[int], rank: int) -> LinkConnections:
    """Find the connections between a rank and the others that a topology prescribes.

    Parameters
    ----------
    topology
        None prescribes nothing.
    nodes
        The rank or host of the topology that each rank of the job stands for.
    rank
        Of the job.
    """
    if topology is None or not topology.addresses:
        return LinkConnections()
    addresses = {link: (src, dst) for link, src, dst in topology.addresses}
    found = LinkConnections(digest=topology.digest)
    me = nodes[rank]
    for other, node in enumerate(nodes):
        if node == me:
            continue
        low, high = min(me, node), max(me, node)
        ways = _ways(topology, addresses, low, high)
        if not ways:
            continue
        found.ends[other] = tuple(
            ConnectionEnds(*way) if me == low else ConnectionEnds(*way[::-1]) for way in ways
        )
        found.out[other] = _own_way(topology, addresses, me, node, found.ends[other])
        back = tuple(ConnectionEnds(*ends[::-1]) for ends in found.ends[other])
        found.into[other] = _own_way(topology, addresses, node, me, back)
    return found


def _ways(
    topology: Topology, addresses: dict[int, tuple[str, str]], low: int, high: int
) -> list[tuple[str, str]]:
    """Address at the lower and at the higher node of every connection that the addresses allow for.

    Over each cable between the two that goes both ways; else through each switch that both have one at.
    """
    back = {addresses.get(link, ("", ""))[::-1] for link in topology.links_between(high, low)}
    found = [addresses[link] for link in topology.links_between(low, high) if link in addresses]
    ways = [way for way in found if way in back]
    if not ways:
        for switch in (node for node in topology.neighbours[low] if node >= topology.ranks):
            leaving = [addresses[up][0] for up in topology.links_between(low, switch) if up in addresses]
            reaching = [
                addresses[down][1] for down in topology.links_between(switch, high) if down in addresses
            ]
            ways.extend(zip(leaving, reaching, strict=False))
    return list(dict.fromkeys(ways))


def _own_way(
    topology: Topology,
    addresses: dict[int, tuple[str, str]],
    src: int,
    dst: int,
    ends: Sequence[ConnectionEnds],
) -> int:
    route = topology.route(src, dst)
    if route[0] in addresses and route[-1] in addresses:
        way = ConnectionEnds(addresses[route[0]][0], addresses[route[-1]][1])
        if way in ends:
            return ends.index(way)
    return IN_TURN
