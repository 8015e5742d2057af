"""RCCL's rings on boxes of 8 GPUs each of which has a cable to every other, such as 8 MI300X.

RCCL, AMD's library, does not search there: it looks the machine up and takes rings from a list. On one box
these are 14 rings, 7 and the same the other way round, which use every cable twice in either direction. For
several boxes with an interface for each GPU there are 8 paths, which use every cable once: path c begins at
GPU c and its interface, ends at another GPU and leaves by the interface of that one. Every second box is
crossed the other way round, so that each ring stays on one rail between two boxes. An odd number of boxes
ends with two more lists.

The lists are used as often as RCCL needs channels, with the same orders on the same cables. One of each
counts here, because a link does not get faster by them. RCCL's trees, and what MSCCL and MSCCL++ do for
smaller messages on one box, are not modelled.

All three collectives raise `UnsupportedError` on other boxes, and `LimitError` where the table of transfers
would be too long. The first note of a schedule says how many channels there are.

References
----------
.. [1] ROCm/rccl, src/graph/rome_models.cc at commit 0cbce2a, October 2024: rome_model_79 (no interfaces),
   rome_model_81 (8 interfaces), parseA2a8P (which list is for which box), parseGraph (reversed paths).
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from weft.algorithms.common.nccl_channels import NcclChannels, check_boxes
from weft.algorithms.common.parallel_rings import build_rings
from weft.algorithms.common.rccl_paths import GPUS, visiting_orders
from weft.errors import UnsupportedError

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "rccl_ring"


def all_reduce(topology: Topology) -> Schedule:
    """Sum every rank's buffer at every rank, once round each ring and once more.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("mi300x:1"))
    >>> schedule, schedule.notes[0]
    (<Schedule rccl_ring all_reduce on mi300x:1: 112 chunks, 14 steps, 1568 transfers>, '14 channels')

    Notes
    -----
    Cost: 2(N-1) steps. On one box every cable carries a seventh of 2(N-1)/N of the buffer in each direction.
    """
    return _rings(topology, "all_reduce")


def reduce_scatter(topology: Topology) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("mi300x:2")).notes[0]
    '8 channels'

    Notes
    -----
    Cost: N-1 steps, and half of what `all_reduce` sends.
    """
    return _rings(topology, "reduce_scatter")


def all_gather(topology: Topology) -> Schedule:
    """Hand every rank's shard to every rank; the cost is that of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("mi300x:3")).steps
    23
    """
    return _rings(topology, "all_gather")


def _rings(topology: Topology, collective: str) -> Schedule:
    _check_meshes(topology)
    hosts = topology.hosts
    channels = NcclChannels(topology, _NAME, meshed=True)
    if len(hosts) > 1 and len(channels.rails) != GPUS:
        reason = (
            f"RCCL's list is for an interface for each GPU, and {topology.name} has {len(channels.rails)}"
        )
        raise UnsupportedError(_NAME, f"{reason} ways out of a box")
    rings, crossings = [], []
    for places in visiting_orders(len(hosts)):
        rings.append([hosts[box][place] for box, path in enumerate(places) for place in path])
        # A path ends at the place where the next one begins: both GPUs are on one rail.
        last = [(box, path[-1]) for box, path in enumerate(places)] if len(hosts) > 1 else []
        crossings.append(
            {hosts[box][place]: channels.way(place, box, (box + 1) % len(hosts)) for box, place in last}
        )
    return build_rings(topology, collective, _NAME, rings, crossings)


def _check_meshes(topology: Topology) -> None:
    """Hold that every box has 8 GPUs, and that every two of them have a cable, all of them equally fast."""
    check_boxes(topology, _NAME, meshed=True)
    if any(len(members) != GPUS for members in topology.hosts):
        raise UnsupportedError(
            _NAME, f"RCCL's list is for boxes of {GPUS} GPUs, and {topology.name} has others"
        )
    ends = zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)
    speeds = dict(zip(ends, topology.bandwidth.tolist(), strict=True))
    for members in topology.hosts:
        found = {speeds.get(pair) for pair in permutations(members, 2)}
        if None in found:
            reason = "RCCL's list is for boxes whose GPUs are all joined one by one"
            raise UnsupportedError(_NAME, f"{reason}, unlike {topology.name}")
        if len(found) > 1:
            raise UnsupportedError(_NAME, f"GPUs of a box of {topology.name} are not joined equally fast")
