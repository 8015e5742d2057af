"""In which order a node lists its links: what ties are broken by, wherever links are equal otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology.graph import Topology


def listing_order(topology: Topology) -> NDArray[np.int32]:
    """Links in the order in which ranks look at them: on grids back and forth along each axis, else as drawn.

    On a 2D grid that is north, south, west, east, as in the program of MultiTree's authors.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> mesh = load_topology("mesh:3x3")
    >>> [name for name in map(mesh.link_name, listing_order(mesh).tolist()) if name.startswith("4")]
    ['4->1', '4->7', '4->3', '4->5']
    """
    links = np.arange(topology.links, dtype=np.int32)
    if topology.grid is None:
        return links
    here = np.array(np.unravel_index(topology.link_src, topology.grid.shape))
    there = np.array(np.unravel_index(topology.link_dst, topology.grid.shape))
    axis = np.argmax(here != there, axis=0)
    shape = np.array(topology.grid.shape)[axis]
    moved = (np.take_along_axis(there, axis[None], 0) - np.take_along_axis(here, axis[None], 0))[0]
    forward = moved % shape == 1
    return links[np.lexsort((links, forward, axis))]
