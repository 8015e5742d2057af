"""Schedules as JSON, for people who write their own and for programs that are not Weft.

``docs/schedule.md`` describes the form. Reading is strict: an unknown key, a wrong type or a number out of
range is a `FormatError` that names its place, such as ``transfers[17][4]``. Rows are put in order of their
steps; inside a step they stay as written, because that is the order in which several reduces add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import numpy as np

from weft import limits
from weft.collective_names import COLLECTIVES
from weft.errors import FormatError, InputError, LimitError
from weft.schedule.chunks import make_condition, owners
from weft.schedule.ir import DEFAULT_ROUTE, Op, Schedule, column_bounds, pack_routes
from weft.topology.json_reading import check_length, decode_json, embedded_topology
from weft.topology.record import TopologyRecord, to_record

if TYPE_CHECKING:
    from weft.topology import Topology

VERSION: Final = 1

_POSITIONS: Final = ("step", "chunk", "src", "dst", "op", "route", "src_slot", "dst_slot")
"""Where a transfer has what."""

_MAX_CHUNKS: Final = 1 << 20
"""``"chunks"`` must not be a short way to many."""

_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Weight = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Route = list[int | str]


class _Row(msgspec.Struct, array_like=True, gc=False):
    step: _Number
    chunk: _Number
    src: _Number
    dst: _Number
    op: Literal["copy", "reduce"]
    route: _Number | _Route | None = None
    src_slot: _Number = 0
    dst_slot: _Number = 0
    surplus: Any = msgspec.UNSET  # not forbidden by msgspec, which would not say in which row it is


class _Versioned(msgspec.Struct):
    weft_schedule: int


class _Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    weft_schedule: int
    collective: str
    algorithm: str
    topology: str | TopologyRecord
    transfers: list[_Row]
    notes: list[str] = msgspec.field(default_factory=list)
    chunks: Annotated[int, msgspec.Meta(ge=1)] | None = None
    weights: list[_Weight] | None = None
    denominator: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    owner: list[_Number] | None = None
    ownership: str | None = None
    root: _Number = 0
    routes: list[_Route] = msgspec.field(default_factory=list)


def schedule_from_json(data: bytes | str, source: str = "<json>") -> Schedule:
    """Read the JSON form.

    Parameters
    ----------
    data
        The whole file.
    source
        Its name, for messages.

    Raises
    ------
    FormatError
        If it is not a schedule; says where.

    Examples
    --------
    >>> schedule_from_json('''{"weft_schedule": 1, "collective": "reduce", "algorithm": "mine", "chunks": 1,
    ...     "topology": "ring:3", "transfers": [[0, 0, 1, 0, "reduce"], [0, 0, 2, 0, "reduce"]]}''')
    <Schedule mine reduce on ring:3: 1 chunks, 1 steps, 2 transfers>
    """
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    check_length(source, data, "; use a .weft file")
    # The version first: a later one may have keys that are unknown here.
    version = decode_json(source, data, _Versioned, "a schedule").weft_schedule
    if version != VERSION:
        problem = f"format {version} is unknown, this Weft reads {VERSION}"
        raise FormatError(source, problem, "weft_schedule")
    return _build(source, decode_json(source, data, _Document, "a schedule"))


def schedule_to_json(schedule: Schedule) -> bytes:
    """Write the JSON form, one transfer per line; `schedule_from_json` gives an equal schedule back.

    Raises
    ------
    LimitError
        If it would be larger than Weft accepts.
    """
    least = len('[0, 0, 0, 1, "copy"]')
    too_large = schedule.transfers * least > limits.MAX_TEXT_BYTES
    data = b"" if too_large else _write(schedule)
    if too_large or len(data) > limits.MAX_TEXT_BYTES:
        most = limits.MAX_TEXT_BYTES >> 20
        msg = (
            f"{schedule.transfers:,} transfers take more than {most} MiB as JSON; save the schedule as .weft"
        )
        raise LimitError(msg)
    return data


def _write(schedule: Schedule) -> bytes:
    owner = owners(schedule)
    offsets, links = schedule.route_offsets.tolist(), schedule.route_links.tolist()
    document = _Document(
        weft_schedule=VERSION,
        collective=schedule.collective,
        algorithm=schedule.algorithm,
        topology=to_record(schedule.topology),
        transfers=[],
        notes=list(schedule.notes),
        weights=schedule.weights.tolist(),
        denominator=schedule.denominator,
        owner=None if owner is None else owner.tolist(),
        ownership=None if owner is None else schedule.ownership,
        root=schedule.root or 0,
        routes=[links[a:b] for a, b in pairwise(offsets)],
    )
    fields = msgspec.to_builtins(document)
    del fields["transfers"]
    lines = [f" {msgspec.json.encode(name).decode()}: {_text(value)}" for name, value in fields.items()]
    rows = ",\n".join(f"  {row}" for row in _row_texts(schedule))
    lines.append(f' "transfers": [\n{rows}\n ]')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _row_texts(schedule: Schedule) -> list[str]:
    heads = zip(*(getattr(schedule, name).tolist() for name in _POSITIONS[:6]), strict=True)
    words = [f'"{op.name.lower()}"' for op in Op]
    if schedule.src_slot is None or schedule.dst_slot is None:
        return [
            f"[{step}, {chunk}, {src}, {dst}, {words[op]}" + ("]" if route < 0 else f", {route}]")
            for step, chunk, src, dst, op, route in heads
        ]
    slots = zip(schedule.src_slot.tolist(), schedule.dst_slot.tolist(), strict=True)
    return [
        f"[{step}, {chunk}, {src}, {dst}, {words[op]}, {'null' if route < 0 else route}, {a}, {b}]"
        for (step, chunk, src, dst, op, route), (a, b) in zip(heads, slots, strict=True)
    ]


def _build(source: str, document: _Document) -> Schedule:
    topology = embedded_topology(source, document.topology)
    if document.collective not in COLLECTIVES:
        problem = f"{document.collective!r} is unknown, expected one of {', '.join(COLLECTIVES)}"
        raise FormatError(source, problem, "collective")
    table = _RouteTable(source, topology)
    for index, route in enumerate(document.routes):
        table.append(route, f"routes[{index}]")
    try:
        cut = _chunks(document, topology.ranks)
        columns = _columns(source, document.transfers, table, len(cut["weights"]))
        offsets, links = pack_routes(table.routes)
        return Schedule(
            topology=topology,
            collective=document.collective,
            algorithm=document.algorithm,
            **cut,
            **columns,
            route_offsets=offsets,
            route_links=links,
            notes=tuple(document.notes),
        )
    except FormatError:
        raise
    except InputError as error:
        raise FormatError(source, str(error)) from error


def _chunks(document: _Document, ranks: int) -> dict[str, Any]:
    """Weights and condition; what the file leaves out is as in `ScheduleBuilder`."""
    pairs = document.collective == "all_to_all"
    owned = document.collective in ("reduce_scatter", "all_gather")
    named = [len(column) for column in (document.weights, document.owner) if column is not None]
    chunks = document.chunks or (named[0] if named else ranks * ranks if pairs else ranks)
    limits.check("chunks", chunks, limits.MAX_CHUNKS if named else _MAX_CHUNKS)
    weights = (
        np.array(document.weights, np.int64) if document.weights is not None else np.ones(chunks, np.int64)
    )
    owner: Any = document.owner
    if owned and owner is None:
        owner = np.arange(chunks) * ranks // chunks
    condition = make_condition(document.collective, ranks, chunks, owner=owner, root=document.root)
    return {
        "weights": weights,
        "denominator": document.denominator or sum(weights.tolist()) // (ranks if pairs else 1),
        "source": condition[0],
        "target": condition[1],
        "ownership": document.ownership or ("prescribed" if owned else "none"),
    }


@dataclass
class _RouteTable:
    source: str
    topology: Topology
    routes: list[tuple[int, ...]] = field(default_factory=list)
    _known: dict[tuple[int | str, ...], int] = field(default_factory=dict)

    def append(self, route: _Route, place: str) -> None:
        """Give a route the next number."""
        self._known.setdefault(tuple(route), len(self.routes))
        self.routes.append(self._links(route, place))

    def number(self, route: int | _Route | None, place: str) -> int:
        """Find or make the number of a row's route."""
        if route is None:
            return DEFAULT_ROUTE
        if isinstance(route, int):
            if route >= len(self.routes):
                raise FormatError(self.source, f'there is no route {route} in "routes"', place)
            return route
        if tuple(route) not in self._known:
            self.append(route, place)
        return self._known[tuple(route)]

    def _links(self, route: _Route, place: str) -> tuple[int, ...]:
        topology = self.topology
        links = [link for link in route if isinstance(link, int)]
        if len(links) == len(route):
            for index, link in enumerate(links):
                if not 0 <= link < topology.links:
                    problem = f"there is no link {link}, {topology.name} has links 0..{topology.links - 1}"
                    raise FormatError(self.source, problem, f"{place}[{index}]")
            return tuple(links)
        if links:
            raise FormatError(self.source, "expected either node names or link numbers, not both", place)
        return self._walk([str(name) for name in route], place)

    def _walk(self, names: list[str], place: str) -> tuple[int, ...]:
        links, before = [], None
        for index, name in enumerate(names):
            try:
                node = self.topology.parse_node(name)
            except InputError as error:
                raise FormatError(self.source, str(error), f"{place}[{index}]") from error
            if before is not None:
                between = self.topology.links_between(before, node)
                if not between:
                    problem = f"there is no link from {names[index - 1]} to {name}"
                    raise FormatError(self.source, problem, f"{place}[{index}]")
                links.append(between[0])
            before = node
        return tuple(links)


def _columns(source: str, rows: list[_Row], table: _RouteTable, chunks: int) -> dict[str, Any]:
    """Transfers in columns, ordered by step."""
    for index, row in enumerate(rows):
        if row.surplus is not msgspec.UNSET:
            raise FormatError(source, "a transfer has at most 8 entries", f"transfers[{index}][8]")
    columns = {name: np.array([getattr(row, name) for row in rows]) for name in _POSITIONS if name != "route"}
    columns["op"] = np.array([row.op == "reduce" for row in rows], np.uint8)
    columns["route"] = np.array([table.number(row.route, f"transfers[{i}][5]") for i, row in enumerate(rows)])
    bounds = column_bounds(table.topology.ranks, chunks, len(table.routes))
    # Here and not only in `Schedule`, because here a row still has the number it has in the file.
    for name, bound in bounds.items():
        wrong = np.flatnonzero(columns[name] >= bound)
        if len(wrong):
            place = f"transfers[{int(wrong[0])}][{_POSITIONS.index(name)}]"
            problem = f"{name} {int(columns[name][wrong[0]])} is outside 0..{bound - 1}"
            raise FormatError(source, problem, place)
    here = (columns["src"] == columns["dst"]) & (columns["src_slot"] == columns["dst_slot"])
    if here.any():
        index = int(np.flatnonzero(here)[0])
        problem = f"rank {rows[index].src} sends to itself, into the same slot"
        raise FormatError(source, problem, f"transfers[{index}]")
    order = np.argsort(columns["step"], kind="stable")
    return {name: column[order] for name, column in columns.items()}
