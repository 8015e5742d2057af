"""The front of the C++ engine: a schedule and a size go in, times come out.

What a run means is written down in docs/simulation.md. In one paragraph: a message is cut into segments; a
segment starts when the values it carries are there, occupies one link after the other (cut-through), and is
applied when nobody still reads the place it writes. With ``sharing="queue"`` a link serves one segment at a
time, the one with the smallest (segment, step, row) first; with ``"fluid"`` flows share links max-min fair,
as TCP roughly does. The C++ half is ``cpp/simulation/simulator.cpp``.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

from weft import _core, limits, units
from weft.errors import LimitError, ScheduleError, SimulationError
from weft.simulation.paths import find_paths
from weft.simulation.result import CriticalPath, SimulationResult, Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.simulation.paths import Paths

SHARING: Final = ("queue", "fluid")
ORDERS: Final = ("priority", "fifo")
# In operations as `weft.limits.MAX_WORK` counts them; measured.
_ROW_WORK: Final = 15.0
_PIECE_WORK: Final = 30.0
_SEGMENT_WORK: Final = 120.0
_CROSSING_WORK: Final = 150.0

EXECUTIONS: Final = ("dependency", "global", "strict")
_PATH: Final = ("row", "segment", "waited", "start_ps", "end_ps")


def simulate(
    schedule: Schedule,
    size: str | int,
    *,
    segment_bytes: int | str | None = None,
    sharing: str = "queue",
    order: str = "priority",
    execution: str = "dependency",
    element_bytes: int = 1,
    record: bool = False,
    max_work: float | None = limits.MAX_WORK,
) -> SimulationResult:
    """Run a schedule on the topology it was made for.

    Parameters
    ----------
    schedule
        Any legal schedule; it is not verified here.
    size
        Buffer size, such as ``"64MiB"``, meant as in nccl-tests (`Schedule.chunk_bytes`).
    segment_bytes
        Cut messages into segments of at most this size, which follow each other through the network.
    sharing
        ``"queue"`` or ``"fluid"``.
    order
        Who goes first where several wait: ``"priority"`` (segment, step, row) or ``"fifo"``.
    execution
        ``"dependency"``: as soon as the data is there. ``"global"``: all ranks finish a step before the next.
        ``"strict"``: each rank finishes its own sends and receives of a step before its next.
    element_bytes
        Chunks are cut at whole elements.
    record
        Keep the whole timeline, for a trace.
    max_work
        Operations that it may take, by an estimate that is made first; None for any number. How often flows
        that share links change their speeds cannot be told beforehand: with ``"fluid"`` that is counted.

    Returns
    -------
    SimulationResult
        Times, link occupation, critical path.

    Raises
    ------
    LimitError
        If the cut is so fine, or the time so long, that the engine would not fit, or if it would take more
        operations than `max_work`.

    Examples
    --------
    >>> import weft
    >>> ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4@bw=1GB/s,lat=1us"))
    >>> weft.simulate(ring, "4MB").seconds
    0.006006
    """
    began = time.process_time()
    size_bytes = units.parse_size(size)
    if segment_bytes is not None:
        segment_bytes = units.parse_size(segment_bytes)
        if segment_bytes < 1:
            msg = "segment_bytes must be at least 1"
            raise ScheduleError(msg)
    _check_choice("sharing", sharing, SHARING)
    _check_choice("order", order, ORDERS)
    _check_choice("execution", execution, EXECUTIONS)
    found = _run(
        schedule, size_bytes, segment_bytes, sharing, order, execution, element_bytes, record, max_work
    )
    if found["stuck_row"] >= 0:
        row = found["stuck_row"]
        ends = f"chunk {schedule.chunk[row]} from rank {schedule.src[row]} to {schedule.dst[row]}"
        msg = f"{schedule.algorithm}: no progress; transfer {row}, {ends}, never finished"
        raise SimulationError(msg)
    return SimulationResult(
        schedule=schedule,
        size_bytes=size_bytes,
        segment_bytes=segment_bytes,
        time_ps=found["time_ps"],
        segments=found["segments"],
        events=found["events"],
        link_busy_ps=found["link_busy_ps"],
        rank_finish_ps=found["rank_finish_ps"],
        critical_path=CriticalPath(schedule, *(found[f"path_{name}"] for name in _PATH)),
        timeline=_timeline(found) if record else None,
        cpu_seconds=time.process_time() - began,
    )


def _run(
    schedule: Schedule,
    size_bytes: int,
    segment_bytes: int | None,
    sharing: str,
    order: str,
    execution: str,
    element_bytes: int,
    record: bool,
    max_work: float | None,
) -> dict[str, Any]:
    topology = schedule.topology
    title = f"simulating {schedule.algorithm} of {units.format_size(size_bytes)} on {topology.name}"
    chunk_bytes = schedule.chunk_bytes(size_bytes, element_bytes)
    paths = find_paths(schedule, max_work)
    if max_work is not None:
        limits.check_work(title, _estimate(schedule, chunk_bytes, segment_bytes, paths), max_work)
    try:
        return _core.simulate(
            schedule.table,
            topology.ranks,
            schedule.slots,
            chunk_bytes,
            segment_bytes or 0,
            *paths,
            topology.bandwidth,
            topology.latency_ps,
            sharing,
            order,
            execution,
            record,
            limits.MAX_SEGMENTS,
            limits.MAX_TIME_PS,
            math.inf if max_work is None else max_work,
        )
    except OverflowError as error:
        msg = f"takes more than the {limits.MAX_TIME_PS // units.PS_PER_S:,} s that the engine counts"
        raise LimitError(f"{units.format_size(size_bytes)} on {topology.name}: {msg}") from error
    except MemoryError as error:
        msg = (
            f"{schedule.transfers:,} transfers with segments of {segment_bytes} bytes do not fit into memory"
        )
        raise LimitError(f"{schedule.algorithm}: {msg}; use larger segments") from error
    except _core.TooMany as error:
        if str(error) == "operations":
            raise limits.too_much_work(f"{title}, fluid", max_work) from error
        msg = f"more than {limits.MAX_SEGMENTS:,} {error}; use segments larger than {segment_bytes} bytes"
        raise LimitError(f"{units.format_size(size_bytes)} on {topology.name}: {msg}") from error


def _estimate(
    schedule: Schedule, chunk_bytes: NDArray[np.int64], segment_bytes: int | None, paths: Paths
) -> float:
    """Operations of lowering a schedule and letting its segments cross their links, one at a time each."""
    pieces, segments, crossings = _core.measure_load(
        schedule.table, schedule.topology.ranks, chunk_bytes, segment_bytes or 0, *paths
    )
    return (
        _ROW_WORK * schedule.transfers
        + _PIECE_WORK * pieces
        + _SEGMENT_WORK * segments
        + _CROSSING_WORK * crossings
    )


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        msg = f"{name} {value!r} is unknown, expected {' or '.join(allowed)}"
        raise ScheduleError(msg)


def _timeline(found: dict[str, Any]) -> Timeline:
    names = ("row", "segment", "bytes", "link", "start_ps", "end_ps")
    return Timeline(*(found[f"timeline_{name}"] for name in names))
