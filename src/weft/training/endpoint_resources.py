"""An endpoint as the engine sees it: resources of a rank, pools of tokens, and the stages of a chunk.

Kernels: every transfer passes the memory port and the bus of its sender, and the bus of its receiver. An
engine: a chunk is read over bus and memory port into SRAM, goes through the phases of the collective there,
and is written back; a token of the phase's partition of SRAM stands for room, one of the state machines for
control.

There is a partition for each phase and one for results that wait, as the paper has it. By default they
follow what a chunk needs in a phase: its bytes there, times how long it stays when nothing is in its way.
The paper, as recalled, sizes them by the bandwidth of the phase and the size of a chunk; an engine may do
that as well (`EndpointEngine.partitions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import units
from weft.errors import InputError
from weft.simulation import LocalWork, Part, Passage, Resource, Workflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology
    from weft.training.endpoints import Endpoint, EndpointEngine

COMPUTE: Final = 0
_MEMORY: Final = 1
_BUS_OUT: Final = 2
_BUS_IN: Final = 3
_ADDING: Final = 4

CHANNEL: Final = 0
"""Pool of collectives that may be under way at a time; of an engine, its state machines."""

_MOST_PHASES: Final = 32


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a collective in an engine: the step at which it begins, and chunks that have room in it."""

    step: int
    room: int


def resources(endpoint: Endpoint) -> list[Resource]:
    """What every rank has: a computing unit, whose amounts are picoseconds, and what the endpoint adds."""
    found = [Resource("compute", units.PS_PER_S)]
    if (reading := endpoint.read_bandwidth) is not None:
        found += [Resource("memory", reading)]
        found += [Resource(name, endpoint.bus_bandwidth) for name in ("bus out", "bus in")]
        if endpoint.engine is not None:
            found.append(Resource("adding", endpoint.engine.adding_bandwidth))
    return found


def passages(endpoint: Endpoint) -> tuple[list[Passage], list[Passage]]:
    """What transfers pass at their sender and their receiver."""
    if endpoint.read_bandwidth is None:
        return [], []
    if endpoint.engine is not None:
        return [], [Passage(_ADDING, copy=0, reduce=1)]
    reading = Passage(_MEMORY, copy=endpoint.copy_reads, reduce=endpoint.reduce_reads)
    return [reading, Passage(_BUS_OUT)], [Passage(_BUS_IN)]


def phase_steps(schedule: Schedule) -> list[int]:
    """Steps at which the second and later phases of a schedule begin; none but for a whole ``four_phase``."""
    grid = schedule.topology.grid
    is_whole = schedule.collective == "all_reduce"  # and not one of its halves
    if schedule.algorithm != "four_phase" or not is_whole or grid is None:
        return []
    inside, *outside = (size for size in grid.shape if size > 1)
    begins = [inside - 1]
    for size in outside:
        begins.append(begins[-1] + 2 * (size - 1))
    return begins


def engine_phases(
    engine: EndpointEngine, endpoint: Endpoint, schedule: Schedule, chunk_bytes: int
) -> list[Phase]:
    """Phases of a schedule in an engine, each with its room, and last that of results that wait."""
    begins = [0, *phase_steps(schedule), schedule.steps]
    if len(begins) > _MOST_PHASES:
        msg = f"{schedule.algorithm} has {len(begins) - 1} phases; an engine has at most {_MOST_PHASES - 1}"
        raise InputError(msg)
    moved = chunk_bytes / (endpoint.read_bandwidth or 1) + chunk_bytes / endpoint.bus_bandwidth
    stays, held = [], []
    for first, last in pairwise(begins):
        seconds, size = _stay(schedule, first, last, chunk_bytes)
        stays.append(seconds + (moved if first == 0 else 0.0))
        held.append(size)
    sizes = np.array([*held, float(chunk_bytes)])
    if engine.partitions == "bandwidth":
        speeds = [_phase_bandwidth(schedule, first, last) for first, last in pairwise(begins)]
        needs = np.array([*speeds, speeds[-1]]) * sizes  # results wait as long as the last phase makes them
    else:
        needs = np.array([*stays, moved]) * sizes
    shares = engine.sram_bytes * needs / needs.sum()
    rooms = np.maximum(1, shares // sizes).astype(int).tolist()
    return [Phase(step, min(room, engine.fsms)) for step, room in zip(begins, rooms, strict=True)]


def _stay(schedule: Schedule, first: int, last: int, chunk_bytes: int) -> tuple[float, float]:
    """Seconds that a chunk needs for some steps with nothing in its way, and bytes of it that take part."""
    rows = np.flatnonzero((schedule.step >= first) & (schedule.step < last) & (schedule.src == 0))
    bytes_of = schedule.chunk_bytes(chunk_bytes, 1)
    steps, others, sizes = schedule.step[rows], schedule.dst[rows], bytes_of[schedule.chunk[rows]]
    topology, seconds = schedule.topology, 0.0
    for step in range(first, last):
        there = np.unique(others[steps == step])
        offsets, links = topology.routes(np.zeros_like(there), there)
        ways = zip(there.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        times = [
            topology.latency_ps[links[begin:end]].sum() / units.PS_PER_S
            + sizes[(steps == step) & (others == other)].sum() / topology.bandwidth[links[begin:end]].min()
            for other, begin, end in ways
        ]
        seconds += float(max(times, default=0.0))
    # What a rank only receives, or only sends, needs room as well.
    own = (schedule.step >= first) & (schedule.step < last) & ((schedule.src == 0) | (schedule.dst == 0))
    return seconds, max(1.0, float(bytes_of[np.unique(schedule.chunk[own])].sum()))


def _phase_bandwidth(schedule: Schedule, first: int, last: int) -> float:
    """Bytes per second of all links by which rank 0 sends in some steps."""
    rows = np.flatnonzero((schedule.step >= first) & (schedule.step < last) & (schedule.src == 0))
    routes = np.unique(schedule.route[rows])
    links = np.unique(schedule.route_links[schedule.route_offsets[routes]])
    return float(schedule.topology.bandwidth[links].sum())


class Equipment:
    """A topology with an endpoint at every rank, ready for tasks.

    Parameters
    ----------
    topology
        Where it runs.
    endpoint
        What every rank has.
    main
        The schedule whose phases divide an engine's SRAM.
    channels
        Collectives that may be under way at a time; None for any number.
    """

    def __init__(
        self, topology: Topology, endpoint: Endpoint, main: Schedule | None, channels: int | None
    ) -> None:
        self.endpoint = endpoint
        self.phases: list[Phase] = []
        pools: list[int] = [] if channels is None else [channels]
        engine, chunk = endpoint.engine, endpoint.chunk_bytes
        if engine is not None and chunk is not None and main is not None:
            self.phases = engine_phases(engine, endpoint, main, chunk)
            pools = [engine.fsms, *(phase.room for phase in self.phases)]
        self.pooled = bool(pools)
        self.flow = Workflow(topology, resources(endpoint), pools)
        self._before, self._after = passages(endpoint)

    def pattern(self, schedule: Schedule, size_bytes: int, segment_bytes: int | None) -> int:
        """Prepare a collective."""
        parts = phase_steps(schedule) if self._has_phases(schedule) else []
        return self.flow.pattern(
            schedule,
            size_bytes,
            segment_bytes=segment_bytes,
            parts=parts,
            before=self._before,
            after=self._after,
        )

    def stages(self, schedule: Schedule, pattern: int, size_bytes: int) -> Sequence[Part | LocalWork]:
        """Stages of a chunk or of a whole collective."""
        if self.endpoint.engine is None:
            return [Part(pattern)]
        load = [LocalWork(_MEMORY, size_bytes, pool=1), LocalWork(_BUS_OUT, size_bytes)]
        store = [LocalWork(_BUS_IN, size_bytes, pool=len(self.phases))]
        if not self._has_phases(schedule):
            return [*load, Part(pattern), *store]
        later = [Part(pattern, part, pool=1 + part) for part in range(1, len(self.phases) - 1)]
        return [*load, Part(pattern, 0), *later, *store]

    def _has_phases(self, schedule: Schedule) -> bool:
        """Whether this is cut as the engine's memory is: that of another collective has one phase."""
        begins = [phase.step for phase in self.phases[1:-1]]
        return self.endpoint.engine is not None and phase_steps(schedule) == begins
