"""Messages of several consecutive chunks, turned into rows of a schedule.

Algorithms that halve or gather send ranges of chunks. They collect the ranges here; sorting thousands of
ranges and then spelling them out is far cheaper than sorting millions of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.schedule.ir import DEFAULT_ROUTE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from weft.schedule import ScheduleBuilder

_COLUMNS: Final = 7


class Blocks:
    """Ranges of chunks on their way into a `ScheduleBuilder`.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> blocks = Blocks()
    >>> blocks.add(step=0, src=[0, 1], dst=[1, 0], op=Op.REDUCE, first=[2, 0], count=2)
    >>> blocks.add(step=1, src=[0, 1], dst=[1, 0], op=Op.COPY, first=[0, 2], count=2)
    >>> builder = ScheduleBuilder(load_topology("ring:2"), "all_reduce", "halves", chunks=4)
    >>> blocks.write(builder)
    >>> schedule = builder.build()
    >>> schedule.transfers, schedule.messages
    (8, 4)
    """

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int32]] = []

    def add(
        self,
        *,
        step: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        op: ArrayLike,
        first: ArrayLike,
        count: ArrayLike,
        route: ArrayLike = DEFAULT_ROUTE,
    ) -> None:
        """Add messages of chunks ``first .. first + count - 1``; arguments broadcast together."""
        columns = np.broadcast_arrays(
            *(np.asarray(column, np.int32) for column in (step, src, dst, op, route, first, count))
        )
        self._parts.append(np.stack([column.ravel() for column in columns]))

    def write(self, builder: ScheduleBuilder, owners: Sequence[NDArray[np.int64]] = ()) -> None:
        """Spell the messages out as rows.

        Parameters
        ----------
        builder
            Where the rows go.
        owners
            Where chunks are to be numbered by owner, and here are by parts of the buffer: the owner of each
            chunk of a part, for each part.
        """
        table = np.concatenate(self._parts, axis=1) if self._parts else np.zeros((_COLUMNS, 0), np.int32)
        table = table[:, np.lexsort(table[-2::-1])]
        count = table[-1].astype(np.int64)
        rows = int(count.sum())
        limits.check(f"{builder.algorithm}: transfers", rows, limits.MAX_TRANSFERS)
        step, src, dst, op, route, first = (np.repeat(column, count) for column in table[:-1])
        within = np.arange(rows) - np.repeat(np.cumsum(count) - count, count)
        chunk = first + within.astype(np.int32)
        if owners:
            part = np.arange(len(owners))[:, None]
            chunk = (np.stack(owners) * len(owners) + part).ravel().astype(np.int32)[chunk]
        builder.add(step=step, chunk=chunk, src=src, dst=dst, op=op, route=route)
