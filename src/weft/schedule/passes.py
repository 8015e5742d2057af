"""Schedules from schedules: `reverse`, `compose`, `halves`, `split`, `parallel`.

Each takes values and gives a new value. None of them knows an algorithm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import ScheduleError
from weft.schedule.cuts import make_condition, owners
from weft.schedule.ir import DEFAULT_ROUTE, TRANSFER_COLUMNS, Op, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_REVERSED = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "broadcast": "reduce",
    "reduce": "broadcast",
}


def reverse(schedule: Schedule) -> Schedule:
    """Run a schedule backwards, on the transposed topology.

    An all_gather becomes a reduce_scatter, a broadcast a reduce, and the other way round. Since links turn
    round too, a reduce_scatter on T is ``reverse(all_gather(T.transpose()))``.

    Raises
    ------
    ScheduleError
        If the collective has no reverse, or a rank receives a chunk more than once (or, for the reducing
        ones, sends it more than once): then the reverse would not be a sum over each rank once.
    """
    result = _REVERSED.get(schedule.collective)
    if result is None:
        msg = f"{schedule.collective} has no reverse"
        raise ScheduleError(msg)
    if schedule.src_slot is not None:
        msg = "reverse: the schedule uses scratch slots"
        raise ScheduleError(msg)
    reducing = schedule.collective in ("reduce_scatter", "reduce")
    node = schedule.src if reducing else schedule.dst
    place = node.astype(np.int64) * schedule.chunks + schedule.chunk
    if len(np.unique(place)) != len(place):
        verb = "sends" if reducing else "receives"
        values, counts = np.unique(place, return_counts=True)
        rank, chunk = divmod(int(values[counts.argmax()]), schedule.chunks)
        msg = f"reverse: rank {rank} {verb} chunk {chunk} {int(counts.max())} times, it must do so once"
        raise ScheduleError(msg)
    offsets = schedule.route_offsets
    links = [schedule.route_links[offsets[i] : offsets[i + 1]][::-1] for i in range(schedule.routes)]
    return _sorted(
        replace(
            schedule,
            topology=schedule.topology.transpose(),
            collective=result,
            source=schedule.target,
            target=schedule.source,
            step=schedule.steps - 1 - schedule.step[::-1],
            chunk=schedule.chunk[::-1],
            src=schedule.dst[::-1],
            dst=schedule.src[::-1],
            op=1 - schedule.op[::-1],
            route=schedule.route[::-1],
            route_links=np.concatenate(links) if links else schedule.route_links,
        )
    )


def compose(first: Schedule, second: Schedule, collective: str, algorithm: str | None = None) -> Schedule:
    """Run one schedule after the other on the same chunks, as one collective.

    Raises
    ------
    ScheduleError
        If they differ in topology or in chunks.
    """
    if first.topology.digest != second.topology.digest:
        msg = f"compose: made for different topologies, {first.topology.name} and {second.topology.name}"
        raise ScheduleError(msg)
    same = first.denominator == second.denominator and np.array_equal(first.weights, second.weights)
    if not same:
        msg = f"compose: cut into different chunks ({first.chunks} and {second.chunks})"
        raise ScheduleError(msg)
    ends, begins = owners(first), owners(second)
    if ends is not None and begins is not None and not np.array_equal(ends, begins):
        msg = f"compose: chunk {int(np.flatnonzero(ends != begins)[0])} ends at another rank than it begins at"
        raise ScheduleError(msg)
    source, target = make_condition(collective, first.ranks, first.chunks)
    return _join(
        [first, second],
        step_shift=[0, first.steps],
        chunk_shift=[0, 0],
        collective=collective,
        algorithm=algorithm or first.algorithm,
        source=source,
        target=target,
        ownership="none",
    )


def halves(schedule: Schedule) -> tuple[Schedule, Schedule]:
    """Cut an all_reduce into a reduce_scatter and an all_gather with free ownership.

    Raises
    ------
    ScheduleError
        If no step splits it: some copy happens before the last reduce, a sum is complete at several ranks
        at once, or an owner's chunks are not contiguous.
    """
    if schedule.collective != "all_reduce":
        msg = f"halves: only an all_reduce has halves, this is {schedule.collective}"
        raise ScheduleError(msg)
    reduces = schedule.op == Op.REDUCE
    cut = int(schedule.step[reduces].max()) + 1 if reduces.any() else 0
    if not reduces.any() or bool((schedule.step[~reduces] < cut).any()) or not bool((~reduces).any()):
        msg = f"halves: {schedule.algorithm} has no split step, its reduces and copies overlap"
        raise ScheduleError(msg)
    receives = np.zeros((schedule.chunks, schedule.ranks), bool)
    receives[schedule.chunk[~reduces], schedule.dst[~reduces]] = True
    if bool((receives.sum(axis=1) != schedule.ranks - 1).any()):
        chunk = int(np.flatnonzero(receives.sum(axis=1) != schedule.ranks - 1)[0])
        msg = f"halves: chunk {chunk} is not gathered from a single owner"
        raise ScheduleError(msg)
    owner = np.argmin(receives, axis=1).astype(np.int32)
    rows = int(np.searchsorted(schedule.step, cut))
    scatter = _take_rows(schedule, slice(0, rows))
    gather = _take_rows(schedule, slice(rows, schedule.transfers))
    every = schedule.source
    return (
        replace(scatter, collective="reduce_scatter", source=every, target=owner, ownership="free"),
        replace(
            gather, collective="all_gather", source=owner, target=every, ownership="free", step=gather.step - cut
        ),
    )


def split(schedule: Schedule, parts: int) -> Schedule:
    """Cut every chunk into `parts` equal ones that take the same way."""
    if parts < 1:
        msg = f"split: cannot cut a chunk into {parts} parts"
        raise ScheduleError(msg)
    if schedule.collective == "all_to_all" and parts > 1:
        msg = "split: all_to_all has exactly one chunk per pair of ranks; use segments"
        raise ScheduleError(msg)
    columns = {name: np.repeat(getattr(schedule, name), parts) for name in _row_columns(schedule)}
    columns["chunk"] = columns["chunk"] * parts + np.tile(np.arange(parts, dtype=np.int32), schedule.transfers)
    return _sorted(
        replace(
            schedule,
            weights=np.repeat(schedule.weights, parts),
            denominator=schedule.denominator * parts,
            source=np.repeat(schedule.source, parts),
            target=np.repeat(schedule.target, parts),
            **columns,
        )
    )


def parallel(schedules: Sequence[Schedule], shares: Sequence[int], algorithm: str) -> Schedule:
    """Run schedules side by side, each on its own share of the buffer.

    Parameters
    ----------
    schedules
        Same topology, collective and ownership.
    shares
        Weight of each, whole numbers.
    algorithm
        Name of the result.

    Notes
    -----
    Chunks of an owned collective are renumbered so that each owner's stay contiguous.
    """
    first = schedules[0]
    for other in schedules[1:]:
        if (other.topology.digest, other.collective) != (first.topology.digest, first.collective):
            msg = "parallel: schedules must share topology and collective"
            raise ScheduleError(msg)
    common = int(np.lcm.reduce([s.denominator for s in schedules]))
    weights = np.concatenate(
        [s.weights * (common // s.denominator) * share for s, share in zip(schedules, shares, strict=True)]
    )
    starts = np.cumsum([0, *(s.chunks for s in schedules[:-1])]).tolist()
    joined = _join(
        schedules,
        step_shift=[0] * len(schedules),
        chunk_shift=starts,
        collective=first.collective,
        algorithm=algorithm,
        source=np.concatenate([s.source for s in schedules]),
        target=np.concatenate([s.target for s in schedules]),
        ownership=first.ownership,
        weights=weights,
        denominator=common * sum(shares),
        sort_chunks=True,
    )
    return joined


def _row_columns(schedule: Schedule) -> list[str]:
    return [name for name in TRANSFER_COLUMNS if getattr(schedule, name) is not None]


def _take_rows(schedule: Schedule, rows: slice | NDArray[np.int64]) -> Schedule:
    # Only sensible together with a new condition, which the caller sets in the same breath.
    columns = {name: getattr(schedule, name)[rows] for name in _row_columns(schedule)}
    return replace(schedule, **columns)


def _sorted(schedule: Schedule) -> Schedule:
    """Rows in the builder's canonical order."""
    keys = ("step", "src", "dst", "op", "route", "src_slot", "dst_slot", "chunk")
    columns = [getattr(schedule, name) for name in keys if getattr(schedule, name) is not None]
    return _take_rows(schedule, np.lexsort(columns[::-1]))


def _join(
    schedules: Sequence[Schedule],
    *,
    step_shift: Sequence[int],
    chunk_shift: Sequence[int],
    collective: str,
    algorithm: str,
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    ownership: str,
    weights: NDArray[np.int64] | None = None,
    denominator: int | None = None,
    sort_chunks: bool = False,
) -> Schedule:
    slots = any(s.src_slot is not None for s in schedules)
    names = [name for name in TRANSFER_COLUMNS if slots or not name.endswith("_slot")]
    columns: dict[str, NDArray[np.int32]] = {}
    route_shift = np.cumsum([0, *(s.routes for s in schedules[:-1])]).tolist()
    for name in names:
        parts = []
        for index, s in enumerate(schedules):
            values = getattr(s, name)
            if values is None:
                values = np.zeros(s.transfers, np.int32)
            if name == "step":
                values = values + np.int32(step_shift[index])
            elif name == "chunk":
                values = values + np.int32(chunk_shift[index])
            elif name == "route":
                values = np.where(values == DEFAULT_ROUTE, values, values + np.int32(route_shift[index]))
            parts.append(values)
        columns[name] = np.concatenate(parts)
    first = schedules[0]
    all_weights = first.weights if weights is None else weights
    owner = {"reduce_scatter": target, "all_gather": source}.get(collective)
    if sort_chunks and owner is not None:
        order = np.argsort(owner, kind="stable")
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        columns["chunk"] = number[columns["chunk"]].astype(np.int32)
        all_weights, source, target = all_weights[order], source[order], target[order]
    keys = [columns[k] for k in ("step", "src", "dst", "op", "route", "src_slot", "dst_slot", "chunk") if k in columns]
    rows = np.lexsort(keys[::-1])
    link_start = np.cumsum([0, *(len(s.route_links) for s in schedules[:-1])]).tolist()
    offsets = [s.route_offsets[:-1] + shift for s, shift in zip(schedules, link_start, strict=True)]
    links = np.concatenate([s.route_links for s in schedules])
    return Schedule(
        topology=first.topology,
        collective=collective,
        algorithm=algorithm,
        weights=all_weights,
        denominator=first.denominator if denominator is None else denominator,
        source=source,
        target=target,
        ownership=ownership,
        **{name: values[rows] for name, values in columns.items()},  # type: ignore[arg-type]
        route_offsets=np.concatenate([*offsets, [len(links)]]).astype(np.int64),
        route_links=links,
        notes=tuple(dict.fromkeys(note for s in schedules for note in s.notes)),
    )
