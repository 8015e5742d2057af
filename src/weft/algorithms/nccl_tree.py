"""NCCL's trees: a double binary tree over the boxes, a chain through the GPUs of each, on every rail.

`weft.algorithms.common.nccl_channels` says how many rails there are. Each has two channels, one for either
tree of `weft.algorithms.common.mirrored_trees`, whose numbers are boxes. In a box, a chain of GPUs begins at
the one next to the rail's interface, which is also the one that talks to the other boxes. That is NCCL's
pattern TREE, which it uses from Hopper on; BALANCED_TREE, which older GPUs may get, has one of the two boxes
below talk to the second GPU of the chain, and sends as much over every interface.

References
----------
.. [1] NVIDIA/nccl 2.30.7: src/graph/trees.cc (ncclGetDtree), src/graph/connect.cc (connectTrees),
   src/device/all_reduce.h (runTreeSplit).
.. [2] S. Jeaugey, "Massively scale your deep learning training with NCCL 2.4", NVIDIA, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common.host_groups import check_count, check_rows
from weft.algorithms.common.mirrored_trees import NO_PARENT, mirrored_trees, tree_depths
from weft.algorithms.common.nccl_channels import NcclChannels
from weft.schedule import Op, ScheduleBuilder
from weft.schedule.ir import DEFAULT_ROUTE
from weft.units import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "nccl_tree"


def all_reduce(topology: Topology, *, chunks: int = 1) -> Schedule:
    """Sum up the trees of every channel and spread the sums down again.

    Parameters
    ----------
    topology
        A cluster of boxes.
    chunks
        Chunks per channel. One is enough where messages are cut into segments, which follow one another up
        and down a tree as NCCL's chunks do.

    Returns
    -------
    Schedule
        ``chunks`` chunks for each channel. The first note says how many channels there are.

    Raises
    ------
    UnsupportedError
        If ranks are not in boxes.
    InputError
        If `chunks` is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("dgx-h100:4"))
    >>> schedule, schedule.notes[0]
    (<Schedule nccl_tree all_reduce on dgx-h100:4: 16 chunks, 18 steps, 992 transfers>, '16 channels')

    Notes
    -----
    Steps: 2(g - 1) + 2 log2 G and a few, for G boxes of g GPUs. Each interface of a box sends, with C rails,
    about two buffers divided by C; with two boxes only one.
    """
    check_count(_NAME, "chunks", chunks)
    channels = NcclChannels(topology, _NAME)
    boxes = len(channels.boxes)
    trees = mirrored_trees(boxes) if boxes > 1 else (np.array([NO_PARENT]),)
    total = len(trees) * len(channels.rails)
    check_rows(_NAME, 2 * topology.ranks * chunks * total)
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=chunks * total)
    builder.note(count(total, "channel"))
    for number, tree in enumerate(trees):
        for index, rail in enumerate(channels.rails):
            first = (number * len(channels.rails) + index) * chunks
            _add_channel(builder, channels, rail, tree.tolist(), first + np.arange(chunks))
    return builder.build()


def _add_channel(
    builder: ScheduleBuilder,
    channels: NcclChannels,
    rail: int,
    tree: Sequence[int],
    chunk: NDArray[np.int64],
) -> None:
    """Chunks of one channel up its tree and down again."""
    parent = np.full(channels.topology.ranks, NO_PARENT)
    up, down = np.full((2, channels.topology.ranks), DEFAULT_ROUTE)
    heads = [channels.inside(rail, box)[0] for box in range(len(tree))]
    for box, above in enumerate(tree):
        chain = channels.inside(rail, box)
        parent[chain[1:]] = chain[:-1]
        if above != NO_PARENT:
            parent[chain[0]] = heads[above]
            up[chain[0]] = builder.route(channels.way(rail, box, above))
            down[chain[0]] = builder.route(channels.way(rail, above, box))
    depth = tree_depths(parent)
    child = np.flatnonzero(parent >= 0)[:, None]
    deepest, later = int(depth.max()), np.arange(len(chunk))
    builder.add(
        step=deepest - depth[child] + later,
        chunk=chunk,
        src=child,
        dst=parent[child],
        op=Op.REDUCE,
        route=up[child],
    )
    builder.add(
        step=deepest + depth[child] - 1 + later,
        chunk=chunk,
        src=parent[child],
        dst=child,
        op=Op.COPY,
        route=down[child],
    )
