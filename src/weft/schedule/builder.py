"""Collecting transfers into a schedule.

An algorithm adds blocks of rows, each a set of numbers or arrays that broadcast together, and calls `build` once.
Rows come out in one canonical order, (step, src, dst, op, route, slots, chunk), so that the same algorithm on the
same topology gives the byte-identical schedule and consecutive chunks fall into one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft import limits
from weft.schedule.cuts import make_condition
from weft.schedule.ir import DEFAULT_ROUTE, Op, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from weft.topology import Topology


class ScheduleBuilder:
    """Rows on their way to becoming a `Schedule`.

    Parameters
    ----------
    topology, collective, algorithm
        As in `Schedule`.
    chunks
        Number of chunks; by default one per rank (one per pair of ranks for all_to_all).
    weights
        Share of each chunk, as whole numbers; equal by default. Their sum per buffer is the denominator.
    owner
        Owner of each chunk, for reduce_scatter and all_gather; rank order by default.
    ownership
        ``prescribed`` (default where it applies) or ``free``.
    root
        For broadcast and reduce.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "chain", chunks=1)
    >>> for rank in range(3):
    ...     builder.add(step=rank, chunk=0, src=rank, dst=rank + 1, op=Op.COPY)
    >>> builder.build()
    <Schedule chain broadcast on ring:4: 1 chunks, 3 steps, 3 transfers>
    """

    def __init__(
        self,
        topology: Topology,
        collective: str,
        algorithm: str,
        *,
        chunks: int | None = None,
        weights: ArrayLike | None = None,
        owner: ArrayLike | None = None,
        ownership: str | None = None,
        root: int = 0,
    ) -> None:
        ranks = topology.ranks
        pairs = collective == "all_to_all"
        owned = collective in ("reduce_scatter", "all_gather")
        self.topology, self.collective, self.algorithm = topology, collective, algorithm
        self.chunks = chunks if chunks is not None else ranks * ranks if pairs else ranks
        limits.check("chunks", self.chunks, limits.MAX_CHUNKS)
        self.weights = np.ones(self.chunks, np.int64) if weights is None else np.asarray(weights, np.int64)
        self.denominator = int(self.weights.sum()) // (ranks if pairs else 1)
        if owned and owner is None:
            owner = np.arange(self.chunks) // (self.chunks // ranks)
        self.ownership = ownership or ("prescribed" if owned else "none")
        self.source, self.target = make_condition(collective, ranks, self.chunks, owner=owner, root=root)
        self.notes: list[str] = []
        self._blocks: list[list[NDArray[np.int32]]] = []
        self._rows = 0
        self._uses_slots = False
        self._route_ids: dict[tuple[int, ...], int] = {}

    def route(self, links: Sequence[int]) -> int:
        """Number of an explicit route; equal link lists share one."""
        return self._route_ids.setdefault(tuple(links), len(self._route_ids))

    def add(
        self,
        *,
        step: ArrayLike,
        chunk: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        op: ArrayLike,
        route: ArrayLike = DEFAULT_ROUTE,
        src_slot: ArrayLike = 0,
        dst_slot: ArrayLike = 0,
    ) -> None:
        """Add rows; arguments broadcast together."""
        self._uses_slots = self._uses_slots or bool(np.any(src_slot)) or bool(np.any(dst_slot))
        parts = (step, src, dst, op, route, src_slot, dst_slot, chunk)
        columns = np.broadcast_arrays(*(np.asarray(part, np.int32) for part in parts))
        self._rows += columns[0].size
        limits.check(f"{self.algorithm}: transfers", self._rows, limits.MAX_TRANSFERS)
        self._blocks.append([column.ravel() for column in columns])

    def note(self, text: str) -> None:
        """Leave a remark for whoever reads the schedule."""
        self.notes.append(text)

    def build(self) -> Schedule:
        """Put the rows in canonical order and make the schedule."""
        # Columns are taken one at a time and dropped at once: a large ring would otherwise be held twice.
        blocks, self._blocks = self._blocks, []
        columns = []
        for index in range(len(_SORT_KEYS)):
            columns.append(np.concatenate([b[index] for b in blocks]) if blocks else np.zeros(0, np.int32))
        del blocks
        order = _canonical_order(columns)
        if order is not None:
            columns = [column[order] for column in columns]
        named = dict(zip(_SORT_KEYS, columns, strict=True))
        lengths = [len(links) for links in self._route_ids]
        flat = [link for links in self._route_ids for link in links]
        return Schedule(
            topology=self.topology,
            collective=self.collective,
            algorithm=self.algorithm,
            weights=self.weights,
            denominator=self.denominator,
            source=self.source,
            target=self.target,
            ownership=self.ownership,
            step=named["step"],
            chunk=named["chunk"],
            src=named["src"],
            dst=named["dst"],
            op=named["op"].astype(np.uint8),
            route=named["route"],
            src_slot=named["src_slot"] if self._uses_slots else None,
            dst_slot=named["dst_slot"] if self._uses_slots else None,
            route_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            route_links=np.array(flat, np.int32),
            notes=tuple(self.notes),
        )


_SORT_KEYS = ("step", "src", "dst", "op", "route", "src_slot", "dst_slot", "chunk")


def _canonical_order(columns: list[NDArray[np.int32]]) -> NDArray[np.int64] | None:
    """Sorting permutation, or None when the rows are in order already, as most algorithms emit them."""
    rows = len(columns[0])
    undecided = np.ones(max(rows - 1, 0), bool)
    for column in columns:
        ahead, behind = column[1:], column[:-1]
        if bool((undecided & (ahead < behind)).any()):
            return np.lexsort(columns[::-1])
        undecided &= ahead == behind
        if not undecided.any():
            break
    return None


__all__ = ["Op", "ScheduleBuilder"]
