"""Recognising EFLOPS's BiGraph: two halves of switches, every two of different halves wired, ranks on all.

What counts is the wiring and not the name, so that a network from a file is as good as ``bigraph:4,8``.

A rank need not hang on its switch itself. In a server of EFLOPS a GPU reaches it over a PCIe switch and a
NIC of its own, and such a chain of switches that no other rank needs counts as the cable of the rank. A root
complex, which joins PCIe switches of one host and leads nowhere else, is left out: another way between GPUs
of a host takes nothing from the BiGraph.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

NO_LINK: Final = -1


class BiGraph(NamedTuple):
    """A topology seen as a BiGraph; half 0 is the one with the first switch.

    Parameters
    ----------
    ranks
        Rank at each (half, switch, port).
    up, down
        Links from each rank to its switch, and back, one row for each rank; `NO_LINK` behind the last.
    across
        Parallel links from a switch of one half to one of the other, at (half, switch, other switch), as many
        as every two switches have in both directions.
    """

    ranks: NDArray[np.int64]
    up: NDArray[np.int32]
    down: NDArray[np.int32]
    across: NDArray[np.int32]

    @property
    def per_switch(self) -> int:
        """Ranks on each switch: m."""
        return int(self.ranks.shape[2])

    @property
    def per_half(self) -> int:
        """Switches in each half: n / 2."""
        return int(self.ranks.shape[1])

    @property
    def uplinks(self) -> int:
        """Parallel links between two switches."""
        return int(self.across.shape[3])


def read_bigraph(topology: Topology, algorithm: str, instead: str) -> BiGraph:
    """See a topology as a BiGraph.

    Raises
    ------
    UnsupportedError
        If it is none; names the rank or the switches that are in the way.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> network = read_bigraph(load_topology("bigraph:2,4@uplinks=3"), "hdrm", "use ring")
    >>> network.per_switch, network.per_half, network.uplinks
    (2, 2, 3)
    >>> behind_nics = load_topology("servers:4x2@nics=2,fabric=bigraph,leaves=4")
    >>> read_bigraph(behind_nics, "hdrm", "use ring").up.shape  # GPU, PCIe switch, NIC, switch of the BiGraph
    (8, 3)
    """

    def refuse(problem: str) -> UnsupportedError:
        return UnsupportedError(algorithm, f"{topology.name} is not a BiGraph: {problem}", instead)

    if topology.direct:
        raise refuse("it has no switches")
    try:
        chains, ignored = _follow_ports(topology)
        on_switch: dict[int, list[int]] = {
            switch: [] for switch in range(topology.ranks, topology.nodes) if switch not in ignored
        }
        for rank, chain in enumerate(chains):
            on_switch[chain[-1]].append(rank)
        halves = _find_halves(topology, on_switch)
        across = _links_across(topology, halves)
        up, down = (_links_along(topology, [chain[::way] for chain in chains]) for way in (1, -1))
    except ValueError as error:
        raise refuse(str(error)) from error
    return BiGraph(np.array([[on_switch[switch] for switch in half] for half in halves]), up, down, across)


def _follow_ports(topology: Topology) -> tuple[list[list[int]], set[int]]:
    """Nodes from each rank to its switch, and switches that are no part of the BiGraph.

    A ValueError names the rank that does not hang on one switch alone.
    """
    ranks_on: dict[int, list[int]] = {switch: [] for switch in range(topology.ranks, topology.nodes)}
    for rank in range(topology.ranks):
        home = topology.neighbours[rank]
        if len(home) != 1 or home[0] < topology.ranks or not topology.links_between(home[0], rank):
            raise ValueError(f"rank {rank} does not hang on one switch alone")
        ranks_on[home[0]].append(rank)
    ignored = _find_root_complexes(topology, ranks_on)
    around = {
        switch: [node for node in topology.neighbours[switch] if node not in ignored] for switch in ranks_on
    }
    taken: set[int] = set()
    chains = []
    for rank in range(topology.ranks):
        chain = [rank, topology.neighbours[rank][0]]
        while len(around[chain[-1]]) == 2:
            taken.add(chain[-1])
            onward = [node for node in around[chain[-1]] if node != chain[-2]]
            if len(onward) > 1 or onward[0] < topology.ranks or ranks_on[onward[0]] or onward[0] in taken:
                break
            chain.append(onward[0])
        ignored.update(chain[1:-1])
        chains.append(chain)
    return chains, ignored


def _find_root_complexes(topology: Topology, ranks_on: dict[int, list[int]]) -> set[int]:
    """Switches without ranks whose neighbours are switches with ranks, all of one host."""
    host_of = {rank: number for number, host in enumerate(topology.hosts) for rank in host}
    found = set()
    for switch, ranks in ranks_on.items():
        behind = [ranks_on[node] for node in topology.neighbours[switch] if node >= topology.ranks]
        hosts = {host_of.get(rank) for others in behind for rank in others}
        if not ranks and behind and all(behind) and len(hosts) == 1 and None not in hosts:
            found.add(switch)
    return found


def _links_along(topology: Topology, paths: list[list[int]]) -> NDArray[np.int32]:
    """Links of each path of nodes, one row for each; a ValueError names one that is missing."""
    longest = max(len(path) for path in paths) - 1
    links = np.full((len(paths), longest), NO_LINK, np.int32)
    for row, path in enumerate(paths):
        for column, (src, dst) in enumerate(pairwise(path)):
            between = topology.links_between(src, dst)
            if not between:
                raise ValueError(f"there is no link {topology.node_name(src)}->{topology.node_name(dst)}")
            links[row, column] = between[0]
    return links


def _find_halves(topology: Topology, on_switch: dict[int, list[int]]) -> tuple[list[int], list[int]]:
    """Switches of either half; a ValueError says why there are none."""
    name = topology.node_name
    first = min(on_switch)
    for switch, ranks in on_switch.items():
        if len(ranks) != len(on_switch[first]):
            msg = f"{name(first)} has {len(on_switch[first])} ranks and {name(switch)} has {len(ranks)}"
            raise ValueError(msg)
    half = {first: 0}
    queue = [first]
    for switch in queue:
        for other in topology.neighbours[switch]:
            if other not in on_switch:
                continue
            if half.setdefault(other, 1 - half[switch]) == half[switch]:
                raise ValueError(f"{name(switch)} and {name(other)} are wired but belong to the same half")
            if other not in queue:
                queue.append(other)
    upper, lower = (sorted(switch for switch, side in half.items() if side == want) for want in (0, 1))
    if len(upper) != len(lower):
        raise ValueError(f"its switches fall into {len(upper)} and {len(lower)}, not into two halves")
    return upper, lower


def _links_across(topology: Topology, halves: tuple[list[int], list[int]]) -> NDArray[np.int32]:
    pairs = [
        [[topology.links_between(a, b) for b in halves[1 - side]] for a in halves[side]] for side in (0, 1)
    ]
    for side in (0, 1):
        for a, row in zip(halves[side], pairs[side], strict=True):
            for b, links in zip(halves[1 - side], row, strict=True):
                if not links:
                    raise ValueError(f"there is no link {topology.node_name(a)}->{topology.node_name(b)}")
    fewest = min(len(links) for side in pairs for row in side for links in row)
    return np.array([[[links[:fewest] for links in row] for row in side] for side in pairs], np.int32)
