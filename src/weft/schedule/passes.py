"""Schedules from schedules: `reverse`, `compose`, `halves`, `split`, `parallel`.

Each takes values and gives a new value. None of them knows an algorithm.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import limits
from weft.columns import row_order
from weft.errors import ScheduleError
from weft.schedule.ir import CANONICAL_ORDER, DEFAULT_ROUTE, EVERY, TRANSFER_COLUMNS, Op, Schedule

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

    Twice is the identity, for a schedule in canonical order that has no idle steps in front.

    Raises
    ------
    ScheduleError
        If the collective has no reverse; if a gathering one has reduces or a reducing one copies; if a rank
        receives a chunk more than once or an owner receives its own (for the reducing ones: sends): then the
        reverse would not be a sum over each rank once.
    """
    result = _REVERSED.get(schedule.collective)
    if result is None:
        raise ScheduleError(f"{schedule.collective} has no reverse")
    if schedule.src_slot is not None:
        raise ScheduleError("reverse: the schedule uses scratch slots")
    _check_reversible(schedule)
    offsets = schedule.route_offsets
    # Place k of a route from a to b is taken from place a + b - 1 - k.
    mirrored = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    mirrored -= np.arange(len(schedule.route_links))
    return _change(
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
        route_links=schedule.route_links[mirrored],
    )


def compose(first: Schedule, second: Schedule, collective: str, algorithm: str | None = None) -> Schedule:
    """Run one schedule after the other on the same chunks, as one collective.

    Raises
    ------
    ScheduleError
        If they differ in topology or in chunks, or a chunk starts from another rank than it ended at.
    """
    if first.topology.digest != second.topology.digest:
        msg = f"compose: made for different topologies, {first.topology.name} and {second.topology.name}"
        raise ScheduleError(msg)
    same = first.denominator == second.denominator and np.array_equal(first.weights, second.weights)
    if not same:
        raise ScheduleError(f"compose: cut into different chunks ({first.chunks} and {second.chunks})")
    apart = (first.target != EVERY) & (first.target != second.source)
    if bool(apart.any()):
        chunk = int(np.flatnonzero(apart)[0])
        raise ScheduleError(f"compose: chunk {chunk} ends at another rank than it begins at")
    return _join(
        [first, second],
        step_shift=[0, first.steps],
        chunk_shift=[0, 0],
        collective=collective,
        algorithm=algorithm or first.algorithm,
        source=first.source,
        target=second.target,
        ownership="none",
    )


def halves(schedule: Schedule) -> tuple[Schedule, Schedule]:
    """Cut an all_reduce into a reduce_scatter and an all_gather with free ownership.

    An owner's chunks are numbered one after the other. Where the all_reduce passes some chunks on while it
    still adds up others, the two halves one after the other may take longer than the whole.

    Raises
    ------
    ScheduleError
        If some chunk is copied before its last reduce, or its sum is complete at several ranks at once. Or if
        it uses scratch slots.
    """
    if schedule.collective != "all_reduce":
        raise ScheduleError(f"halves: only an all_reduce has halves, this is {schedule.collective}")
    if schedule.src_slot is not None:
        raise ScheduleError("halves: the schedule uses scratch slots")
    reduces = schedule.op == Op.REDUCE
    if bool(reduces.all()) or not bool(reduces.any()):
        msg = f"halves: {schedule.algorithm} has no split step, it does not both reduce and copy"
        raise ScheduleError(msg)
    last_reduce = np.full(schedule.chunks, -1)
    np.maximum.at(last_reduce, schedule.chunk[reduces], schedule.step[reduces])
    early = schedule.step[~reduces] <= last_reduce[schedule.chunk[~reduces]]
    if bool(early.any()):
        chunk = int(schedule.chunk[~reduces][early][0])
        raise ScheduleError(f"halves: {schedule.algorithm} copies chunk {chunk} before its last reduce")
    owner = _gathered_from(schedule, np.flatnonzero(~reduces))
    # Owners in the order of their first chunks: where these are contiguous, nothing changes its number.
    _, first, which = np.unique(owner, return_index=True, return_inverse=True)
    order = np.argsort(first[which], kind="stable")
    every, owner = schedule.source[order], owner[order]
    idle = min(int(schedule.step[reduces].max()) + 1, int(schedule.step[~reduces].min()))
    return (
        _half(schedule, np.flatnonzero(reduces), 0, order, "reduce_scatter", every, owner),
        _half(schedule, np.flatnonzero(~reduces), idle, order, "all_gather", owner, every),
    )


def split(schedule: Schedule, parts: int) -> Schedule:
    """Cut every chunk into `parts` equal ones that take the same way."""
    if parts < 1:
        raise ScheduleError(f"split: cannot cut a chunk into {parts} parts")
    if schedule.collective == "all_to_all" and parts > 1:
        raise ScheduleError("split: all_to_all has exactly one chunk per pair of ranks; use segments")
    limits.check("split: chunks", schedule.chunks * parts, limits.MAX_CHUNKS)
    limits.check("split: transfers", schedule.transfers * parts, limits.MAX_TRANSFERS)
    columns: dict[str, Any] = {
        name: np.repeat(getattr(schedule, name), parts) for name in _row_columns(schedule)
    }
    part = np.tile(np.arange(parts, dtype=np.int32), schedule.transfers)
    columns["chunk"] = columns["chunk"] * np.int32(parts) + part
    return _change(
        schedule,
        weights=np.repeat(schedule.weights, parts),
        denominator=schedule.denominator * parts,
        source=np.repeat(schedule.source, parts),
        target=np.repeat(schedule.target, parts),
        **columns,
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

    Raises
    ------
    ScheduleError
        If they do not agree, or a share is not positive.

    Notes
    -----
    Chunks of an owned collective are renumbered so that each owner's stay contiguous.
    """
    if not schedules or len(shares) != len(schedules) or min(shares) < 1:
        msg = f"parallel: {len(schedules)} schedules need as many shares of at least 1, not {list(shares)}"
        raise ScheduleError(msg)
    first = schedules[0]
    if first.collective == "all_to_all":
        raise ScheduleError("parallel: all_to_all has exactly one chunk per pair of ranks; use segments")
    agreed = (first.topology.digest, first.collective, first.ownership)
    if any((s.topology.digest, s.collective, s.ownership) != agreed for s in schedules):
        raise ScheduleError("parallel: schedules must share topology, collective and ownership")
    common = math.lcm(*(s.denominator for s in schedules))
    denominator = common * sum(shares)
    if denominator > np.iinfo(np.int64).max:
        msg = f"parallel: the common denominator {denominator} does not fit into 64 bits; use rounder shares"
        raise ScheduleError(msg)
    scales = [common // s.denominator * share for s, share in zip(schedules, shares, strict=True)]
    return _join(
        schedules,
        step_shift=[0] * len(schedules),
        chunk_shift=np.cumsum([0, *(s.chunks for s in schedules[:-1])]).tolist(),
        collective=first.collective,
        algorithm=algorithm,
        source=np.concatenate([s.source for s in schedules]),
        target=np.concatenate([s.target for s in schedules]),
        ownership=first.ownership,
        weights=np.concatenate([s.weights * scale for s, scale in zip(schedules, scales, strict=True)]),
        denominator=denominator,
    )


def _check_reversible(schedule: Schedule) -> None:
    reducing = schedule.collective in ("reduce_scatter", "reduce")
    odd = np.flatnonzero(schedule.op != (Op.REDUCE if reducing else Op.COPY))
    if len(odd):
        verb, expected = ("copies", "reduces") if reducing else ("reduces", "copies")
        msg = f"reverse: transfer {int(odd[0])} {verb}, a reversible {schedule.collective} only {expected}"
        raise ScheduleError(msg)
    node, verb = (schedule.src, "sends") if reducing else (schedule.dst, "receives")
    home = schedule.target if reducing else schedule.source
    own = np.flatnonzero(node == home[schedule.chunk])
    if len(own):
        row = int(own[0])
        msg = f"reverse: rank {int(node[row])} {verb} chunk {int(schedule.chunk[row])}, which is its own"
        raise ScheduleError(msg)
    place = np.sort(node.astype(np.int64) * schedule.chunks + schedule.chunk)
    twice = np.flatnonzero(place[1:] == place[:-1])
    if len(twice):
        rank, chunk = divmod(int(place[twice[0]]), schedule.chunks)
        times = int((place == place[twice[0]]).sum())
        raise ScheduleError(f"reverse: rank {rank} {verb} chunk {chunk} {times} times, it must do so once")


def _half(
    schedule: Schedule,
    rows: NDArray[np.int64],
    idle: int,
    order: NDArray[np.int64],
    collective: str,
    source: NDArray[np.int32],
    target: NDArray[np.int32],
) -> Schedule:
    """Some rows of an all_reduce, without so many steps in front, and with chunks in this order."""
    number = np.empty(schedule.chunks, np.int32)
    number[order] = np.arange(schedule.chunks, dtype=np.int32)
    columns = {name: getattr(schedule, name)[rows] for name in _row_columns(schedule)}
    columns["chunk"] = number[columns["chunk"]]
    columns["step"] = columns["step"] - np.int32(idle)
    return _change(
        schedule,
        **columns,
        collective=collective,
        source=source,
        target=target,
        ownership="free",
        weights=schedule.weights[order],
    )


def _gathered_from(schedule: Schedule, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Owner of each chunk: the one rank that receives no copy of it."""
    ranks = schedule.ranks
    place = np.unique(schedule.chunk[rows].astype(np.int64) * ranks + schedule.dst[rows])
    chunk, rank = np.divmod(place, ranks)
    received = np.bincount(chunk, minlength=schedule.chunks)
    if bool((received != ranks - 1).any()):
        first = int(np.flatnonzero(received != ranks - 1)[0])
        raise ScheduleError(f"halves: chunk {first} is not gathered from a single owner")
    # All ranks but one receive a chunk, so what their numbers lack to 0 + 1 + ... is the one.
    return (ranks * (ranks - 1) // 2 - np.bincount(chunk, weights=rank)).astype(np.int32)


def _row_columns(schedule: Schedule) -> list[str]:
    return [name for name in TRANSFER_COLUMNS if getattr(schedule, name) is not None]


def _change(schedule: Schedule, **changes: Any) -> Schedule:
    """Schedule with some fields changed, its rows in canonical order."""
    changed = replace(schedule, **changes)
    columns = {name: getattr(changed, name) for name in _row_columns(changed)}
    rows = row_order([columns[name] for name in CANONICAL_ORDER if name in columns])
    return changed if rows is None else replace(changed, **{name: columns[name][rows] for name in columns})


def _join(
    schedules: Sequence[Schedule], *, step_shift: Sequence[int], chunk_shift: Sequence[int], **changed: Any
) -> Schedule:
    """All rows of some schedules, steps and chunks shifted; what is not `changed` is as in the first."""
    result: dict[str, Any] = {"weights": schedules[0].weights, **changed}
    offsets, links, numbers = _merge_routes(schedules)
    lengths = [s.transfers for s in schedules]
    columns = {name: np.concatenate([_column(s, name) for s in schedules]) for name in TRANSFER_COLUMNS}
    columns["step"] = columns["step"] + np.repeat(np.array(step_shift, np.int32), lengths)
    columns["chunk"] = columns["chunk"] + np.repeat(np.array(chunk_shift, np.int32), lengths)
    columns["route"] = np.concatenate([number[s.route] for s, number in zip(schedules, numbers, strict=True)])
    owner = {"reduce_scatter": "target", "all_gather": "source"}.get(result["collective"])
    if owner is not None:
        order = np.argsort(result[owner], kind="stable")
        columns["chunk"] = np.argsort(order).astype(np.int32)[columns["chunk"]]
        result |= {name: result[name][order] for name in ("weights", "source", "target")}
    rows = row_order([columns[name] for name in CANONICAL_ORDER])
    result |= columns if rows is None else {name: values[rows] for name, values in columns.items()}
    return replace(
        schedules[0],
        **result,
        route_offsets=offsets,
        route_links=links,
        notes=tuple(dict.fromkeys(note for s in schedules for note in s.notes)),
    )


def _column(schedule: Schedule, name: str) -> NDArray[Any]:
    values: NDArray[Any] | None = getattr(schedule, name)
    return np.zeros(schedule.transfers, np.int32) if values is None else values


def _merge_routes(
    schedules: Sequence[Schedule],
) -> tuple[NDArray[np.int64], NDArray[np.int32], list[NDArray[np.int32]]]:
    """One table for all, equal routes once, and for each schedule the new number of each of its routes."""
    known: dict[bytes, int] = {}
    width = np.dtype(np.int32).itemsize
    numbers = []
    for schedule in schedules:
        links = schedule.route_links.astype(np.int32, copy=False).tobytes()
        ends = (schedule.route_offsets * width).tolist()
        new = [known.setdefault(links[a:b], len(known)) for a, b in pairwise(ends)]
        # The last entry is what index DEFAULT_ROUTE (-1) finds.
        numbers.append(np.array([*new, DEFAULT_ROUTE], np.int32))
    lengths = [len(route) // width for route in known]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return offsets, np.frombuffer(b"".join(known), np.int32), numbers
