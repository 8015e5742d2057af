"""What ACE's figures follow from: bytes that an all-reduce sends, and bytes that a rank reads for them.

All of it is counted in the rows of the schedule and the speeds of the links; nothing is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.algorithms import four_phase
from weft.papers.claims import StudyCase
from weft.schedule import Op
from weft.topology import load_topology
from weft.training.endpoint_resources import phase_steps

if TYPE_CHECKING:
    from weft.schedule import Schedule

SHAPES: Final = ("4x2x2", "4x4x2", "4x4x4", "4x8x4")
"""Accelerators in a package, and packages along both axes: 16, 32, 64 and 128 of them in all."""

_LARGE: Final = 1 << 30
_EXAMPLE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ByteCounts(StudyCase):
    """An all-reduce of many small chunks on one size of platform.

    Parameters
    ----------
    shape, ranks
        Which size.
    sent
        Bytes that a rank sends for each byte of the buffer.
    payload_gbs
        GB/s of the buffer that the busiest links let through.
    driven_gbs
        GB/s that a rank then sends.
    reads, ring_reads
        Bytes that kernels read for each byte sent: 2 where it is to be added and 1 where it is copied; and
        with what a ring of few ranks reads in addition, for the first step and the last sum.
    ideal_us
        Microseconds of 64 MiB.
    """

    derived = (
        "kernel_read_gbs",
        "ring_kernel_read_gbs",
        "engine_read_gbs",
        "engine_cap_at_128",
        "kernel_cap_at_128",
    )

    shape: str
    ranks: int
    sent: float
    payload_gbs: float
    driven_gbs: float
    reads: float
    ring_reads: float
    ideal_us: float

    @property
    def kernel_read_gbs(self) -> float:
        """GB/s that kernels read to drive the network."""
        return self.driven_gbs * self.reads

    @property
    def engine_read_gbs(self) -> float:
        """GB/s that an engine reads, which reads each byte of the buffer once."""
        return self.payload_gbs

    @property
    def ring_kernel_read_gbs(self) -> float:
        """GB/s that kernels read, with the first step and the last sum of each ring."""
        return self.driven_gbs * self.ring_reads

    @property
    def engine_cap_at_128(self) -> float:
        """Largest share of the network that an engine drives which reads 128 GB/s."""
        return self.cap(128, engine=True)

    @property
    def kernel_cap_at_128(self) -> float:
        """Largest share of the network that kernels drive which read 128 GB/s."""
        return self.cap(128, engine=False)

    def cap(self, read_gbs: float, *, engine: bool) -> float:
        """Largest share of the network that an engine, or kernels, can drive by reading so much.

        Examples
        --------
        >>> round(arithmetic("4x4x4").cap(128, engine=True), 2)
        0.96
        """
        return min(1.0, read_gbs / (self.engine_read_gbs if engine else self.kernel_read_gbs))


def arithmetic(shape: str) -> ByteCounts:
    """Count for ``LxVxH``.

    Examples
    --------
    >>> found = arithmetic("4x4x4")
    >>> found.sent, round(found.driven_gbs), round(found.kernel_read_gbs)
    (2.25, 300, 450)
    """
    schedule = four_phase.all_reduce(load_topology(f"ace:{shape}"))
    sizes = schedule.chunk_bytes(_LARGE)[schedule.chunk].astype(float) / _LARGE
    mine, adds = schedule.src == 0, schedule.op == Op.REDUCE
    sent = float(sizes[mine].sum())
    copied, reduced = float(sizes[mine & ~adds].sum()), float(sizes[mine & adds].sum())
    # In a ring the first step sends what nobody added to, read once; every sum reads both of its terms.
    first = adds & np.isin(schedule.step, [0, *phase_steps(schedule)])
    summed = 2 * float(sizes[(schedule.dst == 0) & adds].sum())
    ring = copied + summed + float(sizes[mine & first].sum())
    payload = 1 / _busiest(schedule, sizes) / 1e9
    return ByteCounts(
        shape=shape,
        ranks=schedule.ranks,
        sent=sent,
        payload_gbs=payload,
        driven_gbs=payload * sent,
        reads=(2 * reduced + copied) / sent,
        ring_reads=ring / sent,
        ideal_us=_EXAMPLE_BYTES / payload / 1e3,
    )


def _busiest(schedule: Schedule, sizes: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Seconds that the busiest link needs for each byte of the buffer; every route is one link."""
    links = schedule.route_links[schedule.route_offsets[schedule.route]]
    load = np.bincount(links, sizes, minlength=schedule.topology.links)
    return float((load / schedule.topology.bandwidth).max())
