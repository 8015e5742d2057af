"""How fast an emulated cluster may be: real bytes take processor time, which a lab has little of."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.errors import InputError
from weft.lab.blueprint import draw

if TYPE_CHECKING:
    from weft.topology import Topology

MOST_PER_CORE: Final = 125_000_000
"""Bytes per second of all cables together, both ways: 1 Gbit/s. Beyond, processors are what is measured."""

SLOWEST: Final = 125_000
"""Bytes per second: 1 Mbit/s. Below, a single frame takes more than a hundredth of a second."""

FASTEST: Final = 100_000_000_000
"""Bytes per second. The kernel's own bound is not much higher, and no machine comes near it."""


def fit(topology: Topology, factor: float | None = None) -> tuple[Topology, float]:
    """Slow a topology's cables down to what this machine can emulate; what is inside hosts stays.

    Parameters
    ----------
    topology
        With the speeds of the real cluster.
    factor
        What to multiply them with; None for 1 if that is possible, else what is.

    Returns
    -------
    topology : Topology
        With the speeds to emulate.
    factor : float
        What they were multiplied with.

    Raises
    ------
    InputError
        If a cable would be too slow.
    """
    blueprint = draw(topology)
    if factor is None:
        most = MOST_PER_CORE * len(os.sched_getaffinity(0))
        factor = min(1.0, most / blueprint.speed)
    links = sorted(link for cable in blueprint.cables for link in cable.links)
    bandwidth = topology.bandwidth.copy()
    bandwidth[links] = np.maximum(1, bandwidth[links] * factor).astype(np.int64)
    slowest = min(links, key=lambda link: int(bandwidth[link]))
    if bandwidth[slowest] < SLOWEST:
        msg = (
            f"{topology.name}: link {topology.link_name(slowest)} would have {bandwidth[slowest] * 8:,} "
            f"bit/s, less than {SLOWEST * 8:,}; the speeds differ too much for a lab, or --scale is too small"
        )
        raise InputError(msg)
    fastest = max(links, key=lambda link: int(bandwidth[link]))
    if bandwidth[fastest] > FASTEST:
        msg = (
            f"{topology.name}: link {topology.link_name(fastest)} would have {bandwidth[fastest]:,} "
            f"bytes per second, more than {FASTEST:,}; give a smaller --scale, or auto"
        )
        raise InputError(msg)
    return (topology if factor == 1 else replace(topology, bandwidth=bandwidth)), factor
