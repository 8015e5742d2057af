"""Bandwidth that endpoints drive: all-reduces alone, chunk by chunk, with one figure changed at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.algorithms import direct, four_phase
from weft.errors import InputError
from weft.topology import load_topology
from weft.training.cluster import cut
from weft.training.endpoint_resources import CHANNEL, Equipment
from weft.training.endpoints import ENDPOINTS, Endpoint, EndpointEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.schedule import Schedule

GB: Final = 10**9
MEMORY_GBS: Final = (64, 96, 128, 160, 200, 300, 400, 450, 500, 700, 900)
PROCESSORS: Final = (1, 2, 3, 4, 5, 6, 7, 8)
SRAM_KIB: Final = (256, 512, 1024, 2048, 4096, 8192)
FSMS: Final = (1, 2, 4, 8, 12, 16, 20, 32)
_LEAST_CHUNKS: Final = 16

KERNELS: Final = replace(ENDPOINTS["comm-opt"], processors=80)
ROOMY: Final = replace(ENDPOINTS["ace"], engine=EndpointEngine(sram_bytes=64 << 20, fsms=256))
"""Kernels on all processors, and an engine with room for any number of chunks."""


@cache
def all_reduce(shape: str) -> Schedule:
    """The all-reduce of the paper on ``LxVxH``."""
    return four_phase.all_reduce(load_topology(f"ace:{shape}"))


@dataclass(frozen=True, slots=True)
class Driven:
    """An all-reduce alone.

    Parameters
    ----------
    seconds
        From its beginning to its end.
    payload_gbs
        GB/s of the buffer in its middle half, between filling the network and emptying it.
    """

    seconds: float
    payload_gbs: float


def drive(shape: str, endpoint: Endpoint, size_bytes: int) -> Driven:
    """Simulate an all-reduce alone.

    Raises
    ------
    InputError
        If it has too few chunks for a rate.

    Examples
    --------
    >>> found = drive("4x2x2", ENDPOINTS["ace"], 4 << 20)
    >>> round(found.payload_gbs)
    128
    """
    chunk = endpoint.chunk_bytes
    if chunk is None or size_bytes < _LEAST_CHUNKS * chunk:
        msg = f"endpoint {endpoint.name}: {size_bytes} bytes are too few chunks; give {_LEAST_CHUNKS} or more"
        raise InputError(msg)
    schedule = all_reduce(shape)
    equipment = Equipment(schedule.topology, endpoint, schedule, None)
    stages = equipment.stages(schedule, equipment.pattern(schedule, chunk, None), chunk)
    count = size_bytes // chunk
    for _ in range(count):
        equipment.flow.task("chunk", stages, pool=CHANNEL if equipment.pooled else None)
    ended = np.sort(equipment.flow.run().ended_ps.max(axis=1)) / units.PS_PER_S
    middle = slice(count // 4, 3 * count // 4)
    # A line through the ends of chunks, for these come in bursts.
    rate = np.polyfit(ended[middle], np.arange(count)[middle] * chunk, 1)[0]
    return Driven(float(ended[-1]), float(rate) / GB)


def exchange_seconds(shape: str, endpoint: Endpoint, size_bytes: int) -> float:
    """Seconds of an all-to-all alone, straight from rank to rank; 0 bytes take none."""
    if not size_bytes:
        return 0.0
    topology = all_reduce(shape).topology
    schedule = direct.all_to_all(topology)
    equipment = Equipment(topology, endpoint, all_reduce(shape), None)
    for size in cut(endpoint, "all_to_all", size_bytes, topology.ranks):
        stages = equipment.stages(schedule, equipment.pattern(schedule, size, None), size)
        equipment.flow.task("exchange", stages, pool=CHANNEL if equipment.pooled else None)
    return equipment.flow.run().time_ps / units.PS_PER_S


@dataclass(frozen=True, slots=True)
class BandwidthCurve:
    """GB/s of the buffer over one figure of an endpoint."""

    name: str
    points: tuple[tuple[float, float], ...]

    @property
    def most(self) -> float:
        """The largest rate."""
        return max(rate for _, rate in self.points)

    def knee(self, share: float) -> float:
        """The smallest figure with which this share of the most is driven.

        Examples
        --------
        >>> BandwidthCurve("", ((1, 10.0), (2, 20.0), (3, 20.1))).knee(0.98)
        2
        """
        return next(x for x, rate in self.points if rate >= share * self.most)


def sensitivity(
    shape: str, size_bytes: int, report: Callable[[str], None], thin: int = 1
) -> dict[str, tuple[BandwidthCurve, ...]]:
    """Every curve of the paper's studies, by what is changed.

    Parameters
    ----------
    shape, size_bytes
        Of the platform and the all-reduce.
    report
        Called before each curve.
    thin
        Take only every so many-th figure, from the last one down.
    """
    ace = ENDPOINTS["ace"]

    def curve(name: str, figures: Sequence[int], build: Callable[[int], Endpoint]) -> BandwidthCurve:
        report(name)
        kept = figures[::-1][::thin][::-1]
        rates = (drive(shape, build(figure), size_bytes).payload_gbs for figure in kept)
        return BandwidthCurve(name, tuple(zip(kept, rates, strict=True)))

    def engine(**figures: Any) -> Endpoint:
        return replace(ace, engine=replace(EndpointEngine(), **figures))

    return {
        "memory": (
            curve("kernels", MEMORY_GBS, lambda gbs: replace(KERNELS, memory_bandwidth=gbs * GB)),
            curve("ACE", MEMORY_GBS, lambda gbs: replace(ace, memory_bandwidth=gbs * GB)),
            curve("ACE, 64 MiB, 256 FSMs", MEMORY_GBS, lambda gbs: replace(ROOMY, memory_bandwidth=gbs * GB)),
        ),
        "processors": (
            curve(
                "kernels, 900 GB/s",
                PROCESSORS,
                lambda count: replace(KERNELS, memory_bandwidth=900 * GB, processors=count),
            ),
        ),
        "sram": (
            curve("ACE, 16 FSMs", SRAM_KIB, lambda kib: engine(sram_bytes=kib << 10)),
            curve(
                "divided by bandwidth",
                SRAM_KIB,
                lambda kib: engine(sram_bytes=kib << 10, partitions="bandwidth"),
            ),
        ),
        "fsms": (curve("ACE, 4 MiB", FSMS, lambda count: engine(fsms=count)),),
    }
