"""Recognising EFLOPS's BiGraph: two halves of switches, every two of different halves wired, ranks on all.

What counts is the wiring and not the name, so that a network from a file is as good as ``bigraph:4,8``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology


class BiGraph(NamedTuple):
    """A topology seen as a BiGraph; half 0 is the one with the first switch.

    Parameters
    ----------
    ranks
        Rank at each (half, switch, port).
    up, down
        Link from each rank to its switch, and back.
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
    """

    def refuse(problem: str) -> UnsupportedError:
        return UnsupportedError(algorithm, f"{topology.name} is not a BiGraph: {problem}", instead)

    if topology.direct:
        raise refuse("it has no switches")
    on_switch: dict[int, list[int]] = {switch: [] for switch in range(topology.ranks, topology.nodes)}
    for rank in range(topology.ranks):
        home = topology.neighbours[rank]
        if len(home) != 1 or home[0] < topology.ranks or not topology.links_between(home[0], rank):
            raise refuse(f"rank {rank} does not hang on one switch alone")
        on_switch[home[0]].append(rank)
    try:
        halves = _find_halves(topology, on_switch)
        across = _links_across(topology, halves)
    except ValueError as error:
        raise refuse(str(error)) from error
    home_of = {rank: switch for switch, ranks in on_switch.items() for rank in ranks}
    everyone = range(topology.ranks)
    return BiGraph(
        np.array([[on_switch[switch] for switch in half] for half in halves]),
        np.array([topology.links_between(rank, home_of[rank])[0] for rank in everyone], np.int32),
        np.array([topology.links_between(home_of[rank], rank)[0] for rank in everyone], np.int32),
        across,
    )


def _find_halves(topology: Topology, on_switch: dict[int, list[int]]) -> tuple[list[int], list[int]]:
    """Switches of either half; a ValueError says why there are none."""
    name = topology.node_name
    first = topology.ranks
    for switch, ranks in on_switch.items():
        if len(ranks) != len(on_switch[first]):
            msg = f"{name(first)} has {len(on_switch[first])} ranks and {name(switch)} has {len(ranks)}"
            raise ValueError(msg)
    half = {first: 0}
    queue = [first]
    for switch in queue:
        for other in topology.neighbours[switch]:
            if other < topology.ranks:
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
