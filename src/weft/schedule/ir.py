"""What a schedule is and what it means.

A rank's buffer is cut into chunks; chunk c has the exact weight ``weights[c] / denominator``. A schedule is
one table of transfers in columns, because a 1024-rank ring has two million of them::

    step | chunk | src | dst | op (copy, reduce) | route [| src_slot | dst_slot]

Meaning
-------
- At its step, src sends the value that its chunk has after everything it received for that chunk in earlier
  steps; dst copies it or adds it. Reads of a step precede its writes. Several reduces into one (dst, chunk,
  slot, step) apply in row order; any other double write is a hazard. Dependencies are derived, never stored.
- Slot 0 is the rank's buffer; further slots are scratch. Absent slot columns mean slot 0.
- A route is a row of the route table, a list of links; -1 is the path the network takes by itself.
- Neighbouring rows that are equal in (step, src, dst, op, route, slots) and have consecutive chunks are one
  *message*.
- ``source[c]`` and ``target[c]`` are the collective: the rank whose value of chunk c counts (-1: all of them,
  summed) and the rank that must hold the result in slot 0 at the end (-1: all of them). Every rank in the
  source set holds its contribution in slot 0 at the start; every other place is undefined until written.

The whole legality table is `_check_columns`; whether a legal schedule computes its collective is the business
of `weft.verification`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import _core, limits
from weft.collective_names import COLLECTIVES
from weft.columns import Immutable, freeze, whole
from weft.errors import ScheduleError, check_choice
from weft.notebook_display import data_frame, short_line, short_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from weft.topology import Topology

OWNERSHIPS: Final = ("none", "prescribed", "free")

EVERY: Final = -1
"""In `source` and `target`: all ranks."""

DEFAULT_ROUTE: Final = -1


class Op(IntEnum):
    """What a transfer does at its destination."""

    COPY = 0
    REDUCE = 1


@dataclass(frozen=True, eq=False)
class Schedule(Immutable):
    """A collective as a table of transfers; immutable, and made by `weft.schedule.ScheduleBuilder`.

    Parameters
    ----------
    topology
        The cluster it was made for.
    collective
        One of `COLLECTIVES`.
    algorithm
        Name of what made it; shown, and part of nothing.
    weights, denominator
        Share of each chunk in the buffer, as whole numbers over one denominator.
    source, target
        The collective's condition per chunk, see the module docstring.
    ownership
        For reduce_scatter and all_gather: ``prescribed`` (rank r owns the r-th equal, contiguous shard) or
        ``free`` (each owner's chunks are contiguous, sizes differ). ``none`` for the others.
    step, chunk, src, dst, op, route
        The transfers, in non-decreasing order of step.
    src_slot, dst_slot
        Scratch slots, or None when every transfer uses slot 0 (columns of zeros become None).
    route_offsets, route_links
        Route i is ``route_links[route_offsets[i]:route_offsets[i + 1]]``.
    notes
        What the maker wants a reader to know, for example which order a ring follows.
    """

    topology: Topology
    collective: str
    algorithm: str
    weights: NDArray[np.int64]
    denominator: int
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    ownership: str
    step: NDArray[np.int32]
    chunk: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    op: NDArray[np.uint8]
    route: NDArray[np.int32]
    src_slot: NDArray[np.int32] | None = None
    dst_slot: NDArray[np.int32] | None = None
    route_offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    route_links: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, dtype in COLUMNS.items():
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, freeze(name, values, dtype))
        object.__setattr__(self, "denominator", whole("denominator", self.denominator))
        object.__setattr__(self, "notes", tuple(self.notes))
        _check_texts(self)
        _settle_slots(self)
        _check_chunks(self)
        _check_routes(self)
        _check_columns(self)

    @property
    def root(self) -> int | None:
        """Root of a broadcast or reduce; None for other collectives, which have none."""
        ends = {"broadcast": self.source, "reduce": self.target}.get(self.collective)
        return None if ends is None else int(ends[0])

    @property
    def ranks(self) -> int:
        """Ranks of the topology."""
        return self.topology.ranks

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.weights)

    @property
    def transfers(self) -> int:
        """Number of rows."""
        return len(self.step)

    @property
    def steps(self) -> int:
        """Number of steps, idle ones included."""
        return int(self.step[-1]) + 1 if self.transfers else 0

    @cached_property
    def slots(self) -> int:
        """Slots in use, the buffer included."""
        if self.src_slot is None or self.dst_slot is None or not self.transfers:
            return 1
        return int(max(self.src_slot.max(), self.dst_slot.max())) + 1

    @property
    def routes(self) -> int:
        """Number of explicit routes."""
        return len(self.route_offsets) - 1

    def route_of(self, row: int) -> tuple[int, ...]:
        """Links that a transfer crosses, whether its route is explicit or the network's own."""
        route = int(self.route[row])
        if route == DEFAULT_ROUTE:
            return self.topology.route(int(self.src[row]), int(self.dst[row]))
        return tuple(self.route_links[self.route_offsets[route] : self.route_offsets[route + 1]].tolist())

    @cached_property
    def table(self) -> _core.Table:
        """The transfer columns as the C++ side takes them."""
        return _core.Table(*(getattr(self, name) for name in TRANSFER_COLUMNS))

    @cached_property
    def message_starts(self) -> NDArray[np.int64]:
        """First row of each message."""
        return _core.message_starts(self.table)

    @property
    def messages(self) -> int:
        """Number of messages; see the module docstring."""
        return len(self.message_starts)

    def chunk_bytes(self, size_bytes: int, element_bytes: int = 1) -> NDArray[np.int64]:
        """Bytes of each chunk of a buffer; whole elements, by largest remainder, so that they sum exactly.

        Parameters
        ----------
        size_bytes
            The buffer as nccl-tests counts it: of one rank's input for all_reduce, reduce_scatter, broadcast,
            reduce and all_to_all, of one rank's output for all_gather.
        element_bytes
            Size of an element.
        """
        from weft.schedule.chunks import chunk_elements

        if element_bytes < 1 or size_bytes < 0 or size_bytes % element_bytes:
            raise ScheduleError(f"{size_bytes} bytes are not a whole number of {element_bytes}-byte elements")
        return chunk_elements(self, size_bytes // element_bytes) * element_bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of meaning and topology; algorithm name and notes do not count."""
        sha = hashlib.sha256(b"weft schedule 1\0")
        sha.update(self.topology.digest.encode())
        sha.update(repr((self.collective, self.ownership, self.denominator)).encode())
        for name, dtype in COLUMNS.items():
            values = getattr(self, name)
            sha.update(f"{name} {-1 if values is None else len(values)}\0".encode())
            if values is not None:
                sha.update(values.astype(np.dtype(dtype).newbyteorder("<"), copy=False).data)
        return sha.hexdigest()

    def __repr__(self) -> str:
        what = f"{short_name(self.algorithm)} {self.collective} on {short_name(self.topology.name)}"
        size = f"{self.chunks} chunks, {self.steps} steps, {self.transfers} transfers"
        return short_line(f"<Schedule {what}: {size}>")

    def _repr_html_(self) -> str:
        from weft.schedule.text import schedule_card

        return schedule_card(self)

    def to_pandas(self) -> Any:
        """The transfers as a ``pandas.DataFrame``, one row each, with ``copy`` or ``reduce`` as `op`."""
        columns = {name: getattr(self, name) for name in TRANSFER_COLUMNS}
        columns["op"] = np.array([op.name.lower() for op in Op])[self.op]
        found = {name: column.copy() for name, column in columns.items() if column is not None}
        return data_frame("Schedule.to_pandas", found)

    def __str__(self) -> str:
        from weft.schedule.text import format_schedule

        return format_schedule(self)


COLUMNS: Final[dict[str, Any]] = {
    "weights": np.int64,
    "source": np.int32,
    "target": np.int32,
    "step": np.int32,
    "chunk": np.int32,
    "src": np.int32,
    "dst": np.int32,
    "op": np.uint8,
    "route": np.int32,
    "src_slot": np.int32,
    "dst_slot": np.int32,
    "route_offsets": np.int64,
    "route_links": np.int32,
}
TRANSFER_COLUMNS: Final = ("step", "chunk", "src", "dst", "op", "route", "src_slot", "dst_slot")

CANONICAL_ORDER: Final = ("step", "src", "dst", "op", "route", "src_slot", "dst_slot", "chunk")
"""Sort keys of the rows a builder or a pass makes, most significant first."""


def pack_routes(routes: Collection[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and links of a table of routes.

    Examples
    --------
    >>> pack_routes([(4, 5), (6,)])
    (array([0, 2, 3]), array([4, 5, 6], dtype=int32))
    """
    offsets = np.cumsum([0, *(len(route) for route in routes)], dtype=np.int64)
    return offsets, np.array([link for route in routes for link in route], np.int32)


def column_bounds(ranks: int, chunks: int, routes: int) -> dict[str, int]:
    """First number that a column of transfers may not have any more, by its name."""
    return {
        "step": limits.MAX_STEPS,
        "chunk": chunks,
        "src": ranks,
        "dst": ranks,
        "op": len(Op),
        "route": routes,
        "src_slot": limits.MAX_SLOTS,
        "dst_slot": limits.MAX_SLOTS,
    }


def _settle_slots(schedule: Schedule) -> None:
    if (schedule.src_slot is None) != (schedule.dst_slot is None):
        raise ScheduleError("src_slot and dst_slot must be given together")
    given = [column for column in (schedule.src_slot, schedule.dst_slot) if column is not None]
    if all(len(column) == len(schedule.step) and not column.any() for column in given):
        # One form for one meaning, or equal schedules would have different digests.
        object.__setattr__(schedule, "src_slot", None)
        object.__setattr__(schedule, "dst_slot", None)


def _check_texts(schedule: Schedule) -> None:
    limits.check_text("the algorithm's name", schedule.algorithm, ScheduleError, empty=True)
    limits.check("notes", len(schedule.notes), limits.MAX_NOTES)
    for note in schedule.notes:
        limits.check_text("a note", note, ScheduleError, empty=True)


def _check_chunks(schedule: Schedule) -> None:
    check_choice("collective", schedule.collective, COLLECTIVES, ScheduleError)
    check_choice("ownership", schedule.ownership, OWNERSHIPS, ScheduleError)
    chunks = limits.check("chunks", schedule.chunks, limits.MAX_CHUNKS)
    sources, targets = len(schedule.source), len(schedule.target)
    if not chunks or sources != chunks or targets != chunks:
        msg = f"{chunks} weights, {sources} sources, {targets} targets: need one of each per chunk"
        raise ScheduleError(msg)
    if int(schedule.weights.min()) < 0:
        raise ScheduleError(f"chunk {int(schedule.weights.argmin())}: a weight must not be negative")
    for name in ("source", "target"):
        ends = getattr(schedule, name)
        if int(ends.min()) < EVERY or int(ends.max()) >= schedule.ranks:
            raise ScheduleError(f"{name} of a chunk must be -1 or a rank 0..{schedule.ranks - 1}")
    from weft.schedule.chunks import check_condition

    check_condition(schedule)


def _check_columns(schedule: Schedule) -> None:
    rows = schedule.transfers
    limits.check("transfers", rows, limits.MAX_TRANSFERS)
    limits.check("ranks x slots", schedule.ranks * schedule.slots, limits.MAX_PLACES)
    bounds = column_bounds(schedule.ranks, schedule.chunks, schedule.routes)
    for name, bound in bounds.items():
        column = getattr(schedule, name)
        if column is None:
            continue
        if len(column) != rows:
            raise ScheduleError(f"column {name} has {len(column)} rows, step has {rows}")
        least = DEFAULT_ROUTE if name == "route" else 0
        if rows and (int(column.min()) < least or int(column.max()) >= bound):
            row = int(np.flatnonzero((column < least) | (column >= bound))[0])
            raise ScheduleError(f"transfer {row}: {name} {int(column[row])} is outside {least}..{bound - 1}")
    early = schedule.step[1:] < schedule.step[:-1]
    if bool(early.any()):
        row = int(early.argmax()) + 1
        step = int(schedule.step[row])
        raise ScheduleError(f"transfer {row}: step {step} comes after a later one; rows are ordered by step")
    here = schedule.src == schedule.dst
    if schedule.src_slot is not None and schedule.dst_slot is not None:
        here = here & (schedule.src_slot == schedule.dst_slot)
    if bool(here.any()):
        row = int(np.flatnonzero(here)[0])
        msg = f"transfer {row}: rank {int(schedule.src[row])} sends to itself, into the same slot"
        raise ScheduleError(msg)


def _check_routes(schedule: Schedule) -> None:
    offsets, links = schedule.route_offsets, schedule.route_links
    limits.check("route entries", len(links), limits.MAX_ROUTE_ENTRIES)
    whole = len(offsets) and int(offsets[0]) == 0 and int(offsets[-1]) == len(links)
    if not whole or bool((np.diff(offsets) < 0).any()):
        raise ScheduleError("the route table's offsets must rise from 0 to the number of its entries")
    lengths = np.diff(offsets)
    if int(lengths.max(initial=0)) > schedule.topology.links:
        route = int(lengths.argmax())
        msg = f"route {route} crosses {int(lengths[route]):,} links, more than there are: it goes in circles"
        raise ScheduleError(msg)
    if len(links) and (int(links.min()) < 0 or int(links.max()) >= schedule.topology.links):
        entry = int(np.flatnonzero((links < 0) | (links >= schedule.topology.links))[0])
        route = int(np.searchsorted(offsets, entry, side="right")) - 1
        last = schedule.topology.links - 1
        msg = f"route {route}: there is no link {int(links[entry])}, the topology has 0..{last}"
        raise ScheduleError(msg)
