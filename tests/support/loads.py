"""Bytes that a schedule puts on each link, as exact shares of the buffer."""

from __future__ import annotations

from fractions import Fraction

from weft.schedule import Schedule


def link_loads(schedule: Schedule) -> list[Fraction]:
    """Share of the buffer that crosses each link."""
    loads = [0] * schedule.topology.links
    offsets, links = schedule.topology.routes(schedule.src, schedule.dst)
    for row in range(schedule.transfers):
        path = links[offsets[row] : offsets[row + 1]] if schedule.route[row] < 0 else schedule.route_of(row)
        for link in path:
            loads[link] += int(schedule.weights[schedule.chunk[row]])
    return [Fraction(load, schedule.denominator) for load in loads]


def busiest_seconds(schedule: Schedule) -> float:
    """Seconds per byte of the buffer that the busiest link is busy."""
    speeds = schedule.topology.bandwidth.tolist()
    return max(float(load) / speed for load, speed in zip(link_loads(schedule), speeds, strict=True))
