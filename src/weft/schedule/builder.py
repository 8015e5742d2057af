"""Collecting transfers into a schedule.

An algorithm adds blocks of rows, each a set of numbers or arrays that broadcast together, and calls `build`
once. Rows come out in one canonical order, (step, src, dst, op, route, slots, chunk), so that the same
algorithm on the same topology gives the byte-identical schedule and consecutive chunks fall into one message.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import limits
from weft.collective_names import COLLECTIVES
from weft.columns import as_whole, blank_column, freeze, row_order, whole, whole_tuple
from weft.errors import ScheduleError, check_choice
from weft.schedule.chunks import make_condition
from weft.schedule.ir import CANONICAL_ORDER, DEFAULT_ROUTE, Op, Schedule, pack_routes
from weft.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray


class ScheduleBuilder:
    """Rows on their way to becoming a `Schedule`.

    Parameters
    ----------
    topology
        Whatever `weft.load_topology` takes.
    collective, algorithm
        As in `Schedule`.
    chunks
        Number of chunks; by default one per weight, else one per rank (per pair of ranks for all_to_all).
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
    >>> builder = ScheduleBuilder("ring:4", "broadcast", "chain", chunks=1)
    >>> for rank in range(3):
    ...     builder.add(step=rank, chunk=0, src=rank, dst=rank + 1, op="copy")
    >>> builder.build()
    <Schedule chain broadcast on ring:4: 1 chunks, 3 steps, 3 transfers>
    """

    def __init__(
        self,
        topology: str | Path | Topology,
        collective: str,
        algorithm: str,
        *,
        chunks: int | None = None,
        weights: ArrayLike | None = None,
        owner: ArrayLike | None = None,
        ownership: str | None = None,
        root: int = 0,
    ) -> None:
        check_choice(f"{algorithm}: collective", collective, COLLECTIVES, ScheduleError)
        if not isinstance(topology, Topology):
            from weft.topology import load_topology

            topology = load_topology(topology)
        ranks = topology.ranks
        pairs = collective == "all_to_all"
        owned = collective in ("reduce_scatter", "all_gather")
        self.topology, self.collective, self.algorithm = topology, collective, algorithm
        if weights is None:
            self.chunks = whole("chunks", chunks) if chunks is not None else ranks * ranks if pairs else ranks
            if self.chunks < 1:
                raise ScheduleError(f"{algorithm}: a buffer cannot be cut into {self.chunks} chunks")
            limits.check("chunks", self.chunks, limits.MAX_CHUNKS)
            self.weights = np.ones(self.chunks, np.int64)
        else:
            self.weights = freeze("weights", weights, np.int64)
            self.chunks = len(self.weights)
            if chunks is not None and chunks != self.chunks:
                raise ScheduleError(f"{algorithm}: {self.chunks} weights for {chunks} chunks")
        self.denominator = int(self.weights.sum()) // (ranks if pairs else 1)
        if owned and owner is None:
            if not self.chunks or self.chunks % ranks:
                msg = f"{self.chunks} chunks cannot be dealt to {ranks} owners evenly; name an owner for each"
                raise ScheduleError(msg)
            owner = np.arange(self.chunks) // (self.chunks // ranks)
        self.ownership = ownership or ("prescribed" if owned else "none")
        self.source, self.target = make_condition(collective, ranks, self.chunks, owner=owner, root=root)
        self.notes: list[str] = []
        self._blocks: list[tuple[tuple[int, ...], dict[str, NDArray[np.int32]]]] = []
        self._rows = 0
        self._uses_slots = False
        self._built = False
        self._route_ids: dict[tuple[int, ...], int] = {}

    def route(self, links: Sequence[int]) -> int:
        """Return the number of an explicit route; equal link lists share one."""
        named = whole_tuple("route", links)
        if any(not 0 <= link < self.topology.links for link in named):
            last = self.topology.links - 1
            msg = f"{self.algorithm}: a route names a link outside 0..{last}, which are all there are"
            raise ScheduleError(msg)
        return self._route_ids.setdefault(named, len(self._route_ids))

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
        """Add rows; arguments broadcast together.

        An operation is an `Op` or its name, ``"copy"`` or ``"reduce"``.

        Raises
        ------
        ScheduleError
            If they do not broadcast, an operation is unknown, or a number does not fit its column.
        """
        self._uses_slots = self._uses_slots or bool(np.any(src_slot)) or bool(np.any(dst_slot))
        parts = zip(
            CANONICAL_ORDER, (step, src, dst, _read_op(op), route, src_slot, dst_slot, chunk), strict=True
        )
        given = {name: as_whole(name, part, np.int32) for name, part in parts}
        try:
            shape = np.broadcast_shapes(*(part.shape for part in given.values()))
        except ValueError as error:
            shapes = ", ".join(f"{name} {part.shape}" for name, part in given.items() if part.ndim)
            msg = f"{self.algorithm}: columns of these shapes do not fit together: {shapes}"
            raise ScheduleError(msg) from error
        self._rows += math.prod(shape)
        limits.check(f"{self.algorithm}: transfers", self._rows, limits.MAX_TRANSFERS)
        # Copies: the caller may go on to change its arrays for the next block. To broadcast is for the end.
        self._blocks.append((shape, {name: part.copy() for name, part in given.items()}))

    def note(self, text: str) -> None:
        """Leave a remark for whoever reads the schedule."""
        self.notes.append(text)

    def build(self, routes: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None) -> Schedule:
        """Put the rows in canonical order and make the schedule; a builder builds once.

        Parameters
        ----------
        routes
            Offsets and links of the table whose routes the rows name; by default that of `route`.

        Raises
        ------
        ScheduleError
            If the rows are not a legal schedule, or it was built before.
        """
        if self._built:
            raise ScheduleError(f"{self.algorithm}: the schedule was built already; make a new builder")
        self._built = True
        names = [name for name in CANONICAL_ORDER if self._uses_slots or name not in ("src_slot", "dst_slot")]
        named: dict[str, Any] = {name: self._take_column(name) for name in names}
        order = row_order(list(named.values()))
        if order is not None:
            for name in names:
                column, writable = blank_column(self._rows)
                # Any mode but "raise" writes straight into the array.
                np.take(named[name], order, out=writable, mode="clip")
                named[name] = column
        offsets, links = pack_routes(self._route_ids) if routes is None else routes
        return Schedule(
            topology=self.topology,
            collective=self.collective,
            algorithm=self.algorithm,
            weights=self.weights,
            denominator=self.denominator,
            source=self.source,
            target=self.target,
            ownership=self.ownership,
            **named,
            route_offsets=offsets,
            route_links=links,
            notes=tuple(self.notes),
        )

    def _take_column(self, name: str) -> NDArray[np.int32]:
        """Put a column together, and let its parts go: a large ring would otherwise be held twice."""
        column, writable = blank_column(self._rows)
        first = 0
        for shape, parts in self._blocks:
            after = first + math.prod(shape)
            writable[first:after].reshape(shape)[...] = parts.pop(name)
            first = after
        return column


def _read_op(op: ArrayLike) -> ArrayLike:
    """Numbers of operations that are given by name; what is given by number stays as it is."""
    try:
        names = np.asarray(op)
    except (ValueError, OverflowError):
        return op  # what is no column at all is refused like that of any other
    if names.dtype.kind != "U":
        return op
    known = {kind.name.lower(): int(kind) for kind in Op}
    unknown = sorted(set(names.ravel().tolist()) - known.keys())
    if unknown:
        raise ScheduleError(f"column op: {unknown[0]!r:.40} is unknown, expected {' or '.join(known)}")
    numbers = np.array([known[name] for name in names.ravel().tolist()], np.int32)
    return numbers.reshape(names.shape)


__all__ = ["Op", "ScheduleBuilder"]
