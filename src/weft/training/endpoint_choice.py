"""Chooses schedules for a job whose endpoints cost something or cut collectives into chunks.

A schedule that is fastest by itself need not be fastest through an endpoint: chunks of one collective are
under way together, so that links and memory ports fill up and a low latency gains little. The algorithms of
`weft.planning.quick` are therefore timed as the job would run them, many chunks at once through the endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import units
from weft.planning.quick import QuickChooser
from weft.training.cluster import cut
from weft.training.endpoint_resources import CHANNEL, Equipment

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology
    from weft.training.endpoints import Endpoint
    from weft.training.schedules import Chooser

_MOST_CHUNKS: Final = 64
_FEWEST_CHUNKS: Final = 4
_PAIRS: Final = 1 << 17
"""Chunks times pairs of ranks that are simulated for each algorithm: about a second on 64 ranks."""


def by_endpoint(topology: Topology, endpoint: Endpoint) -> Chooser:
    """Choose for each collective and size what is fastest through an endpoint.

    Parameters
    ----------
    topology, endpoint
        The network, and what every rank has.
    """
    quick = QuickChooser(
        topology, timer=lambda schedule, size: (None, time_through(endpoint, schedule, size))
    )
    chunks = max(_FEWEST_CHUNKS, min(_MOST_CHUNKS, _PAIRS // topology.ranks**2))

    def choose(collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        # A chunk is never alone: its collective has others, and so have the collectives around it.
        together = size_bytes if endpoint.chunk_bytes is None else chunks * endpoint.chunk_bytes
        return quick(collective, together)[0], None

    return choose


def time_through(endpoint: Endpoint, schedule: Schedule, size_bytes: int) -> float:
    """Seconds of one collective through an endpoint, all of its chunks at once.

    Examples
    --------
    >>> from weft.algorithms import ring
    >>> from weft.topology import load_topology
    >>> from weft.training.endpoints import find_endpoint
    >>> schedule = ring.all_reduce(load_topology("ring:4@bw=100GB/s,lat=0s"))
    >>> free, slow = (time_through(find_endpoint(name), schedule, 1 << 20) for name in ("free", "comp-opt"))
    >>> 1 < slow / free < 2
    True
    """
    topology = schedule.topology
    equipment = Equipment(topology, endpoint, schedule, None)
    patterns: dict[int, int] = {}
    for size in cut(endpoint, schedule.collective, size_bytes, topology.ranks):
        if size and size not in patterns:
            patterns[size] = equipment.pattern(schedule, size, None)
        if size:
            stages = equipment.stages(schedule, patterns[size], size)
            pool = CHANNEL if equipment.pooled else None
            equipment.flow.task(schedule.collective, stages, pool=pool)
    return equipment.flow.run().time_ps / units.PS_PER_S
