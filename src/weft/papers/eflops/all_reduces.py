"""The all-reduces that HDRM is compared with: rings and halving-doublings as libraries have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.algorithms import halving_doubling, hierarchical, ring
from weft.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.schedule import Schedule
    from weft.simulation.simulator import Sharing
    from weft.topology import Topology


def dealt_ring(topology: Topology) -> Schedule:
    """A ring over ranks that were dealt out to the servers one by one, so that every hop leaves a server.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = dealt_ring(load_topology("servers:2x2"))
    >>> sorted({(src, dst) for src, dst in zip(schedule.src.tolist(), schedule.dst.tolist())})
    [(0, 2), (1, 3), (2, 1), (3, 0)]
    """
    order = [host[place] for place in range(len(topology.hosts[0])) for host in topology.hosts]
    return ring.all_reduce(topology, order=order)


def farthest_first(topology: Topology) -> Schedule:
    """Halving-doubling that sends the large parts to far ranks, as recursive halving is often described."""
    return halving_doubling.all_reduce(topology, order="farthest")


def shared_runs(sizes: Sequence[int]) -> list[tuple[int, Sharing]]:
    """Sizes with how messages share a link: in turns at every size, and at equal rates at the last."""
    return [*((size, "queue") for size in sizes), (sizes[-1], "fluid")]


def seconds_of(schedule: Schedule, size_bytes: int, sharing: Sharing) -> float:
    """Simulated seconds, in whole messages."""
    return simulate(schedule, size_bytes, segment_bytes=None, sharing=sharing, max_work=None).seconds


NEAREST: Final = "HD, nearest first"
FARTHEST: Final = "HD, farthest first"
RING: Final = "ring"

ALGORITHMS: Final[dict[str, Callable[[Topology], Schedule]]] = {
    RING: ring.all_reduce,
    "ring, ranks dealt out": dealt_ring,
    NEAREST: halving_doubling.all_reduce,
    FARTHEST: farthest_first,
    "hierarchical": hierarchical.all_reduce,
}
"""Those of any network by the names they have here; HD is halving-doubling."""
