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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from weft import _core, limits, units
from weft.errors import LimitError, ScheduleError, SimulationError, check_choice
from weft.schedule.paths import find_paths
from weft.simulation.result import CriticalPath, SimulationResult, Timeline
from weft.simulation.segment_sizes import AUTO, count_segments, parse_segment, segment_candidates

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.schedule.paths import Paths

Sharing = Literal["queue", "fluid"]
SHARING: Final[tuple[Sharing, ...]] = get_args(Sharing)
# In operations as `weft.limits.MAX_WORK` counts them; measured.
_ROW_WORK: Final = 15.0
_PIECE_WORK: Final = 30.0
_SEGMENT_WORK: Final = 120.0
_CROSSING_WORK: Final = 150.0

_FOUND: Final = ("time_ps", "segments", "events", "link_busy_ps", "rank_finish_ps")
_TIMELINE: Final = ("row", "segment", "bytes", "link", "start_ps", "end_ps")
_PATH: Final = ("row", "segment", "waited", "start_ps", "end_ps")


def simulate(
    schedule: Schedule,
    size: str | int,
    *,
    segment_bytes: int | str | None = AUTO,
    sharing: Sharing = "queue",
    element_bytes: int = 1,
    record: bool = False,
    max_work: float | None = limits.MAX_WORK,
) -> SimulationResult:
    """Run a schedule on the topology it was made for, whether it is correct or not.

    Parameters
    ----------
    schedule
        Any legal schedule; it is not verified here, which `weft.simulate` does.
    size
        Buffer size, such as ``"64MiB"``, meant as in nccl-tests (`Schedule.chunk_bytes`).
    segment_bytes
        Cut messages into segments of at most this size, which follow each other through the network. None or
        ``"none"`` cuts nothing; ``"auto"`` tries several sizes and returns the fastest run.
    sharing
        ``"queue"`` or ``"fluid"``.
    element_bytes
        Chunks are cut at whole elements.
    record
        Keep the whole timeline, for a trace.
    max_work
        Operations that a run may take, by an estimate that is made first; None for any number. How often
        flows that share links change their speeds cannot be told beforehand: with ``"fluid"`` it is counted.

    Raises
    ------
    LimitError
        If the cut is so fine, or the time so long, that the engine would not fit, or if it would take more
        operations than `max_work`.

    Examples
    --------
    >>> import weft
    >>> ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4@bw=1GB/s,lat=1us"))
    >>> weft.simulation.simulate(ring, "4MB", segment_bytes=None).seconds
    0.006006
    """
    size_bytes, cut = units.parse_size(size), parse_segment(segment_bytes)
    untried: tuple[int, ...] = ()
    if isinstance(cut, str):
        best = search_segments(
            schedule, size_bytes, sharing=sharing, element_bytes=element_bytes, max_work=max_work
        ).result
        if not record:
            return best
        cut, untried = best.segment_bytes, best.untried_segments
    else:
        _check_cut(schedule, size_bytes, cut)
    result = run_once(schedule, size_bytes, cut, sharing, element_bytes, record=record, max_work=max_work)
    return replace(result, untried_segments=untried)


@dataclass(frozen=True, slots=True)
class SegmentSearch:
    """The chosen run, and the wall-clock seconds that the first one, the coarsest, took without routing."""

    result: SimulationResult
    first_seconds: float


def search_segments(
    schedule: Schedule,
    size_bytes: int,
    *,
    segment: int | str | None = AUTO,
    sharing: str = "queue",
    element_bytes: int = 1,
    good_enough_s: float = 0.0,
    tolerance: float = 1.0,
    time_left: Callable[[], float] = lambda: math.inf,
    max_work: float | None = None,
    paths: Paths | None = None,
) -> SegmentSearch:
    """Simulate with each segment size worth a try and find the fastest run, or a coarser one about as fast.

    Parameters
    ----------
    schedule, size_bytes, sharing, element_bytes, max_work
        As in `simulate`.
    segment
        As `parse_segment` takes it.
    good_enough_s
        A result this short ends the search.
    tolerance
        Of the runs that take at most this factor longer than the fastest, the one with the largest segments
        is the result.
    time_left
        Wall-clock seconds that are left for it; the first size is tried even if there are none.
    paths
        What `find_paths` finds for the schedule, for callers that have them.

    Raises
    ------
    LimitError
        If the first run would take more than `max_work`; sizes after it that would are left out.
    """
    cut = parse_segment(segment)
    if isinstance(cut, str):
        tries, too_fine = segment_candidates(schedule, size_bytes)
    else:
        _check_cut(schedule, size_bytes, cut)
        tries, too_fine = [cut], []
    if paths is None:
        paths = find_paths(schedule, max_work)
    runs = list[SimulationResult]()
    took = first = 0.0
    while tries:
        # The next size is a quarter of the last, and may take four times as long.
        if runs and time_left() < 4 * took:
            break
        began = time.monotonic()
        try:
            result = run_once(
                schedule, size_bytes, tries[0], sharing, element_bytes, max_work=max_work, paths=paths
            )
        except LimitError:
            if not runs:
                raise
            break
        del tries[0]
        took = time.monotonic() - began
        first = first or took
        runs.append(result)
        slowest_s = tolerance * min(run.seconds for run in runs)
        chosen = next(run for run in runs if run.seconds <= slowest_s)
        if chosen.seconds <= good_enough_s:
            return SegmentSearch(chosen, first)
    assert runs, "there is always one size to try"
    late = [size for size in tries if size is not None]
    return SegmentSearch(replace(chosen, untried_segments=(*late, *too_fine)), first)


def _check_cut(schedule: Schedule, size_bytes: int, segment_bytes: int | None) -> None:
    """Refuse too fine a cut; the engine would find out too, but only after it filled the memory."""
    if segment_bytes is not None:
        count = int(count_segments(schedule, size_bytes, segment_bytes).sum())
        limits.check(f"segments of {units.format_size(segment_bytes)}", count, limits.MAX_SEGMENTS)


def run_once(
    schedule: Schedule,
    size_bytes: int,
    segment_bytes: int | None,
    sharing: str = "queue",
    element_bytes: int = 1,
    *,
    record: bool = False,
    max_work: float | None = None,
    paths: Paths | None = None,
) -> SimulationResult:
    """Run a schedule with one segment size.

    Parameters and errors are those of `simulate`; `paths` are those that `find_paths` finds for the schedule,
    for callers that run it several times.
    """
    began = time.process_time()
    check_choice("sharing", sharing, SHARING, ScheduleError)
    if paths is None:
        paths = find_paths(schedule, max_work)
    found = _run_engine(schedule, size_bytes, segment_bytes, sharing, element_bytes, record, max_work, paths)
    if found["stuck_row"] >= 0:
        row = found["stuck_row"]
        ends = f"chunk {schedule.chunk[row]} from rank {schedule.src[row]} to {schedule.dst[row]}"
        raise SimulationError(f"{schedule.algorithm}: no progress; transfer {row}, {ends}, never finished")
    return SimulationResult(
        schedule=schedule,
        size_bytes=size_bytes,
        segment_bytes=segment_bytes,
        sharing=sharing,
        critical_path=CriticalPath(schedule, *(found[f"path_{name}"] for name in _PATH)),
        timeline=Timeline(*(found[f"timeline_{name}"] for name in _TIMELINE)) if record else None,
        cpu_seconds=time.process_time() - began,
        **{name: found[name] for name in _FOUND},
    )


def _run_engine(
    schedule: Schedule,
    size_bytes: int,
    segment_bytes: int | None,
    sharing: str,
    element_bytes: int,
    record: bool,
    max_work: float | None,
    paths: Paths,
) -> dict[str, Any]:
    topology = schedule.topology
    title = f"simulating {schedule.algorithm} of {units.format_size(size_bytes)} on {topology.name}"
    chunk_bytes = schedule.chunk_bytes(size_bytes, element_bytes)
    if max_work is not None:
        limits.check_work(title, _estimate(schedule, chunk_bytes, segment_bytes, paths), max_work)
    try:
        return _core.simulate(
            table=schedule.table,
            ranks=topology.ranks,
            slots=schedule.slots,
            chunk_bytes=chunk_bytes,
            segment_bytes=segment_bytes or 0,
            **paths._asdict(),
            bandwidth=topology.bandwidth,
            latency_ps=topology.latency_ps,
            sharing=sharing,
            record=record,
            max_segments=limits.MAX_SEGMENTS,
            max_time_ps=limits.MAX_TIME_PS,
            max_work=math.inf if max_work is None else max_work,
        )
    except OverflowError as error:
        raise limits.too_long(f"{units.format_size(size_bytes)} on {topology.name}") from error
    except MemoryError as error:
        what = f"{schedule.transfers:,} transfers with segments of {segment_bytes} bytes"
        problem = f"{schedule.algorithm}: {what} do not fit into memory; use larger segments"
        raise LimitError(problem) from error
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
        table=schedule.table,
        ranks=schedule.topology.ranks,
        chunk_bytes=chunk_bytes,
        segment_bytes=segment_bytes or 0,
        **paths._asdict(),
    )
    lowering = _ROW_WORK * schedule.transfers + _PIECE_WORK * pieces
    return lowering + _SEGMENT_WORK * segments + _CROSSING_WORK * crossings
