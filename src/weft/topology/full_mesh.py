"""Full meshes: a cable between every two ranks.

Jobs whose cluster nobody describes start on one, so this module needs neither specs nor files, and draws all
cables at once: there are half as many as the square of the ranks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft.topology.cable_notes import CableNotes
from weft.topology.graph import Topology

DEFAULT_BANDWIDTH: Final = 25 * 10**9
DEFAULT_LATENCY_PS: Final = 10**6


def full_mesh(
    name: str,
    ranks: int,
    *,
    bandwidth: int = DEFAULT_BANDWIDTH,
    latency_ps: int = DEFAULT_LATENCY_PS,
    back: int | None = None,
    count: int = 1,
) -> Topology:
    """Draw a full mesh; the links are in the order in which `CableNotes.cable` would draw them.

    Parameters
    ----------
    name
        Of the topology.
    ranks
        Its number of ranks.
    bandwidth, latency_ps
        Of each link.
    back
        Speed of the links to the lower rank of two, where it differs.
    count
        Parallel cables between two ranks.

    Examples
    --------
    >>> full_mesh("square", 4)
    <Topology square: 4 ranks, 0 switches, 12 links>
    """
    CableNotes.sized(name, ranks, cables=ranks * (ranks - 1) // 2 * count)
    low, high = np.triu_indices(ranks, 1)
    there = np.repeat(np.column_stack((low, high)), count, axis=0).astype(np.int32)
    links = 2 * len(there)
    speed = np.full(links, bandwidth, np.int64)
    speed[1::2] = bandwidth if back is None else back
    latency = np.full(links, latency_ps, np.int64)
    return Topology(name, ranks, 0, there.ravel(), there[:, ::-1].ravel(), speed, latency)
