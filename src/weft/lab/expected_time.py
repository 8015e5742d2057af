"""What the lab should measure: the engine's time on the network as it is built.

Of each frame some bytes are headers, and a frame is forwarded when all of it has come. The latency that a
topology claims is not emulated: here a hop takes as long as a frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.lab.blueprint import draw
from weft.simulation import simulate

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

FRAME_BYTES: Final = 1514
PAYLOAD_BYTES: Final = 1448
"""A full Ethernet frame as a bucket counts it, and what TCP with timestamps leaves of it."""

_PS: Final = 10**12


def emulated(topology: Topology) -> Topology:
    """The network that the lab builds for a topology: slower by the headers, and with its own latencies."""
    cabled = sorted(link for cable in draw(topology).cables for link in cable.links)
    bandwidth, latency = topology.bandwidth.copy(), topology.latency_ps.copy()
    latency[cabled] = FRAME_BYTES * _PS // bandwidth[cabled]
    bandwidth[cabled] = np.maximum(1, bandwidth[cabled] * PAYLOAD_BYTES // FRAME_BYTES)
    return replace(topology, bandwidth=bandwidth, latency_ps=latency)


def predict(
    schedule: Schedule,
    size_bytes: int,
    topology: Topology | None = None,
    *,
    segment_bytes: int | None = None,
    element_bytes: int = 4,
) -> float:
    """Seconds that a schedule should take in the lab.

    Parameters
    ----------
    schedule
        What runs.
    size_bytes
        Of each rank's buffer.
    topology
        What is emulated; by default what the schedule was made for.
    segment_bytes, element_bytes
        As for `weft.simulate`.
    """
    there = replace(schedule, topology=emulated(topology or schedule.topology))
    result = simulate(
        there,
        size_bytes,
        segment_bytes=segment_bytes,
        sharing="fluid",
        element_bytes=element_bytes,
        max_work=None,
    )
    return result.seconds
