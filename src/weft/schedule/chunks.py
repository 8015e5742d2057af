"""Who starts with which chunk, who must end with it, and how many elements each has.

The condition of a collective is two columns, `source` and `target` (`weft.schedule.ir`). This module makes
them for a named collective, checks them, and cuts a buffer into whole elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.columns import as_whole
from weft.errors import ScheduleError
from weft.schedule import ir

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from weft.schedule.ir import Schedule


def make_condition(
    collective: str, ranks: int, chunks: int, *, owner: ArrayLike | None = None, root: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """``source`` and ``target`` of a collective.

    Parameters
    ----------
    collective
        One of `weft.schedule.COLLECTIVES`.
    ranks, chunks
        Sizes. For all_to_all, chunk ``s * ranks + d`` goes from rank s to rank d.
    owner
        Owner of each chunk, for reduce_scatter and all_gather.
    root
        For broadcast and reduce.

    Examples
    --------
    >>> make_condition("broadcast", 4, 2, root=3)
    (array([3, 3], dtype=int32), array([-1, -1], dtype=int32))
    """
    every = np.full(chunks, ir.EVERY, np.int32)
    if collective in ("broadcast", "reduce"):
        if not 0 <= root < ranks:
            raise ScheduleError(f"root {root} is not a rank 0..{ranks - 1}")
        one = np.full(chunks, root, np.int32)
        return (one, every) if collective == "broadcast" else (every, one)
    if collective in ("reduce_scatter", "all_gather"):
        if owner is None:
            raise ScheduleError(f"{collective} needs an owner for each chunk")
        owners = as_whole("owner", owner, np.int32)
        return (owners, every) if collective == "all_gather" else (every, owners)
    if collective == "all_to_all":
        if chunks != ranks * ranks:
            raise ScheduleError(f"all_to_all on {ranks} ranks has {ranks * ranks} chunks, not {chunks}")
        source, target = np.divmod(np.arange(chunks, dtype=np.int32), np.int32(ranks))
        return source, target
    return every, every.copy()


def check_condition(schedule: Schedule) -> None:
    """Raise `ScheduleError` unless source, target, weights and ownership fit the collective's name."""
    source, target = schedule.source, schedule.target
    collective, ranks = schedule.collective, schedule.ranks
    owner = owners(schedule)
    if (schedule.ownership == "none") != (owner is None):
        expects = "free or prescribed" if owner is not None else "none"
        raise ScheduleError(f"{collective} with ownership {schedule.ownership!r}: it must be {expects}")
    expected: dict[str, ArrayLike] = {"owner": owner} if owner is not None else {}
    want = make_condition(collective, ranks, schedule.chunks, root=schedule.root or 0, **expected)
    if not (np.array_equal(want[0], source) and np.array_equal(want[1], target)):
        raise ScheduleError(f"source and target of the chunks do not describe {collective}")
    if owner is not None and int(owner.min()) < 0:
        raise ScheduleError(f"chunk {int(owner.argmin())}: {collective} needs an owner")
    _check_weights(schedule)
    if owner is not None:
        _check_ownership(schedule, owner)


def owners(schedule: Schedule) -> NDArray[np.int32] | None:
    """Owner of each chunk of a reduce_scatter or all_gather, else None."""
    if schedule.collective == "reduce_scatter":
        return schedule.target
    return schedule.source if schedule.collective == "all_gather" else None


def chunk_elements(schedule: Schedule, elements: int) -> NDArray[np.int64]:
    """Whole elements of each chunk; `Schedule.chunk_bytes` is the public form."""
    owner = owners(schedule)
    if schedule.ownership == "prescribed" and owner is not None:
        shards = largest_remainder(elements, np.ones(schedule.ranks, np.int64))
        return _cut_groups(schedule.weights, owner, shards)
    if schedule.collective == "all_to_all":
        return _cut_groups(schedule.weights, schedule.source, np.full(schedule.ranks, elements, np.int64))
    return largest_remainder(elements, schedule.weights)


def largest_remainder(total: int, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split `total` in proportion to `weights`, into whole numbers that sum to it; ties go to the first.

    Examples
    --------
    >>> largest_remainder(7, np.array([1, 1, 1, 1])).tolist()
    [2, 2, 2, 1]
    """
    if bool((weights == weights[0]).all()):
        each, rest = divmod(total, len(weights))
        return np.full(len(weights), each, np.int64) + (np.arange(len(weights)) < rest)
    whole = int(weights.sum())
    if total * int(weights.max()) <= np.iinfo(np.int64).max:
        parts, remainder = np.divmod(weights * total, whole)
    else:
        exact = [divmod(total * weight, whole) for weight in weights.tolist()]
        parts = np.array([part for part, _ in exact], np.int64)
        remainder = np.array([rest for _, rest in exact], np.int64)
    parts[np.argsort(-remainder, kind="stable")[: total - int(parts.sum())]] += 1
    return parts


def _cut_groups(
    weights: NDArray[np.int64], group: NDArray[np.int32], totals: NDArray[np.int64]
) -> NDArray[np.int64]:
    parts = np.zeros(len(weights), np.int64)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(totals) + 1))
    for index, total in enumerate(totals.tolist()):
        members = order[starts[index] : starts[index + 1]]
        if len(members):
            parts[members] = largest_remainder(total, weights[members])
    return parts


def _check_weights(schedule: Schedule) -> None:
    """Weights of each buffer (the sender's for all_to_all, the one and only elsewhere) must sum to 1."""
    most = np.iinfo(np.int64).max
    if not 1 <= schedule.denominator <= most:
        raise ScheduleError(f"the denominator {schedule.denominator} is outside 1..{most}")
    pairs = schedule.collective == "all_to_all"
    weights = schedule.weights.reshape(schedule.ranks if pairs else 1, -1)
    # In two halves, since a sum of 64-bit weights may wrap to what looks right.
    high, low = (weights >> 32).sum(axis=1).tolist(), (weights & 0xFFFFFFFF).sum(axis=1).tolist()
    for buffer, total in enumerate((h << 32) + rest for h, rest in zip(high, low, strict=True)):
        if total != schedule.denominator:
            whose = f"rank {buffer}'s buffer" if pairs else "the buffer"
            msg = f"the weights of {whose} sum to {total}, not to the denominator {schedule.denominator}"
            raise ScheduleError(msg)


def _check_ownership(schedule: Schedule, owner: NDArray[np.int32]) -> None:
    changes = np.flatnonzero(np.diff(owner)) + 1
    runs = owner[np.concatenate([[0], changes])]
    if len(np.unique(runs)) != len(runs):
        raise ScheduleError("each owner's chunks must be contiguous")
    if schedule.ownership == "prescribed":
        shares = np.zeros(schedule.ranks, np.int64)
        np.add.at(shares, owner, schedule.weights)
        if not np.array_equal(runs, np.arange(schedule.ranks)) or len(set(shares.tolist())) != 1:
            raise ScheduleError("prescribed ownership: rank r owns the r-th equal shard, in rank order")
