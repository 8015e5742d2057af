"""Interval matching: who holds which part of the buffer while it is reduced level by level.

Inside a group of n ranks a reduce-scatter leaves each with an interval of the buffer. Groups of other sizes
have their cuts elsewhere; the cuts of all groups together divide the buffer into *elementary* intervals, each
held by exactly one rank per group. For each of them, those holders run the reduce-scatter of the next level,
and so on up. Nothing has to divide anything: intervals are matched, not equal chunks.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from weft.algorithms.common.levels import ClusterPart


class Holding(NamedTuple):
    """Who holds what: rank i from start i up to the next start; the first start is 0, the end is 1."""

    starts: list[Fraction]
    ranks: list[int]


@dataclass(frozen=True)
class PartsMeeting:
    """The parts of a group about to share the buffer out between them.

    Parameters
    ----------
    group
        Whose parts they are.
    starts
        Where each elementary interval begins.
    holders
        Rank that holds it in each part of the group; a row per interval, a column per part.
    """

    group: ClusterPart
    starts: list[Fraction]
    holders: NDArray[np.int64]

    @cached_property
    def lengths(self) -> list[Fraction]:
        """Share of the buffer that each interval has."""
        ends = [*self.starts[1:], Fraction(1)]
        return [end - start for start, end in zip(self.starts, ends, strict=True)]


@dataclass(frozen=True)
class GroupExchange(PartsMeeting):
    """One reduce-scatter between the parts of a group, which share out pieces of the buffer as they meet.

    Parameters
    ----------
    group, starts, holders
        As of a `PartsMeeting`, with pieces for intervals.
    keeper
        The part whose holder keeps the sum of a piece.
    """

    keeper: NDArray[np.int64]

    @cached_property
    def holding(self) -> Holding:
        """Who holds what afterwards."""
        rows = np.arange(len(self.keeper))
        return Holding(self.starts, self.holders[rows, self.keeper].tolist())

    def find(self, numbers: Mapping[Fraction, int]) -> NDArray[np.int64]:
        """Piece that each of some numbered points of the buffer lies in; where pieces begin is among these.

        Points have the numbers from 0, in their order: fractions are slow to compare.
        """
        first = [numbers[start] for start in self.starts]
        return np.searchsorted(first, np.arange(len(numbers)), side="right") - 1


def meet(group: ClusterPart, holdings: Sequence[Holding]) -> PartsMeeting:
    """Cut the buffer wherever one of the parts of a group does.

    Examples
    --------
    >>> from weft.algorithms.common.levels import ClusterPart
    >>> half, whole = Holding([Fraction(0), Fraction(1, 2)], [0, 1]), Holding([Fraction(0)], [2])
    >>> meeting = meet(ClusterPart((0, 1, 2)), [half, whole])
    >>> meeting.holders.tolist()
    [[0, 2], [1, 2]]
    """
    starts = sorted({start for holding in holdings for start in holding.starts})
    columns = [
        [holding.ranks[bisect_right(holding.starts, start) - 1] for start in starts] for holding in holdings
    ]
    return PartsMeeting(group, starts, np.array(columns, np.int64).T)


def share_out(meeting: PartsMeeting, shares: Sequence[Fraction], grid: int | None = None) -> GroupExchange:
    """Give each part of the group its share of each elementary interval.

    Parameters
    ----------
    meeting
        The parts and the intervals.
    shares
        One per part, summing to one; a part with none keeps nothing.
    grid
        Move cuts to the nearest multiple of 1/grid.

    Examples
    --------
    >>> from weft.algorithms.common.levels import flat
    >>> alone = [Holding([Fraction(0)], [rank]) for rank in range(3)]
    >>> shares = [Fraction(1, 2), Fraction(0), Fraction(1, 2)]
    >>> exchange = share_out(meet(flat([0, 1, 2]), alone), shares)
    >>> [str(start) for start in exchange.starts], exchange.keeper.tolist()
    (['0', '1/2'], [0, 2])
    """
    starts: list[Fraction] = []
    interval: list[int] = []
    keeper: list[int] = []
    for index, (start, length) in enumerate(zip(meeting.starts, meeting.lengths, strict=True)):
        begin, exact = start, start
        for part, share in enumerate(shares):
            exact += share * length
            end = exact if grid is None else Fraction(round(exact * grid), grid)
            if end > begin:
                starts.append(begin)
                interval.append(index)
                keeper.append(part)
            begin = end
    return GroupExchange(meeting.group, starts, meeting.holders[interval], np.array(keeper, np.int64))
