"""NCCL's rings: one per channel, each through all boxes on a rail of its own.

`weft.algorithms.common.nccl_channels` says how many channels there are and in which order each visits the
GPUs. The buffer is divided evenly over them (`weft.algorithms.common.parallel_rings`).

All three collectives take a cluster of boxes; `pxn` says whether the last GPU of a box sends through the one
next to the rail's interface, which is NCCL's default. All raise `UnsupportedError` where ranks are not in
boxes, and `LimitError` where the table of transfers would be too long. The first note of a schedule says how
many channels there are.

References
----------
.. [1] NVIDIA/nccl 2.30.7: src/device/all_reduce.h (runRing), src/graph/connect.cc (connectRings).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.algorithms.common.nccl_channels import NcclChannels
from weft.algorithms.common.parallel_rings import build_rings

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "nccl_ring"


def all_reduce(topology: Topology, *, pxn: bool = True) -> Schedule:
    """Sum every rank's buffer at every rank, once round each ring and once more.

    Parameters
    ----------
    topology, pxn
        As the module says.

    Returns
    -------
    Schedule
        One chunk per rank and channel, each summed at its owner halfway: `weft.schedule.passes.halves`
        applies.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("dgx-h100:2"))
    >>> schedule, schedule.notes[0]
    (<Schedule nccl_ring all_reduce on dgx-h100:2: 128 chunks, 30 steps, 3840 transfers>, '8 channels')

    Notes
    -----
    Cost: 2(N-1) steps. With C channels, each of C network interfaces of a box sends 2(N-1)/N of the buffer
    divided by C, and NVLink of a GPU carries 2(N-1)/N of the buffer.
    """
    return _rings(topology, "all_reduce", pxn=pxn)


def reduce_scatter(topology: Topology, *, pxn: bool = True) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Parameters and errors are those of the module.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("dgx-h100:2")).steps
    15

    Notes
    -----
    Cost: N-1 steps, and half of what `all_reduce` sends.
    """
    return _rings(topology, "reduce_scatter", pxn=pxn)


def all_gather(topology: Topology, *, pxn: bool = True) -> Schedule:
    """Hand every rank's shard to every rank.

    Parameters and errors are those of the module, the cost is that of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("dgx-h100:1")).notes[0]
    '1 channel'
    """
    return _rings(topology, "all_gather", pxn=pxn)


def _rings(topology: Topology, collective: str, *, pxn: bool) -> Schedule:
    channels = NcclChannels(topology, _NAME, pxn=pxn)
    boxes = range(len(channels.boxes)) if len(channels.boxes) > 1 else ()
    crossings = [
        {channels.inside(rail, box)[-1]: channels.crossing(rail, box) for box in boxes}
        for rail in channels.rails
    ]
    return build_rings(topology, collective, _NAME, list(map(channels.order, channels.rails)), crossings)
