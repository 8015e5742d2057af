"""Schedule tables: what the network interface of each rank has to know, and all it has to know.

An entry says: when these messages have come, send this one there. `Reduce` waits for the contributions of its
children and sends their sum to its parent; `Gather` waits for its parent's message and sends one to each
child. A step without entries is a NOP. Tables of whole schedules are made by `make_tables`; the format is
MultiTree's, widened where other algorithms need it: messages waited for may belong to other flows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import numpy as np

from weft import limits, units
from weft.errors import ScheduleError, UnsupportedError
from weft.packets.network_channels import find_routers
from weft.packets.validity import check_tables
from weft.schedule import Op
from weft.topology.listing import listing_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.schedule import Schedule
    from weft.topology import Topology

# In operations as `weft.limits.MAX_WORK` counts them: a transfer, a message, a link of its route, the table
# of a rank, something waited for, and a copy of that.
_ROW_WORK: Final = 1800.0
_MESSAGE_WORK: Final = 12_000.0
_LINK_WORK: Final = 200.0
_TABLE_WORK: Final = 2000.0
_WAIT_WORK: Final = 100.0
_COPIED_WORK: Final = 2.0

_PLAIN: Final = ("collective", "algorithm", "size_bytes", "ports", "steps", "messages", "entries")
"""Fields and properties of tables that their document has as they are."""

REDUCE: Final = "reduce"
GATHER: Final = "gather"

# What a number may be wherever tables are for; a file is held to it while it is read, with the place.
TableOp = Literal["reduce", "gather"]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_RANKS)]
_Link = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_LINKS)]
_Flow = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_CHUNKS)]
MessageKey = tuple[TableOp, _Flow, _Rank]
"""What names a message at the rank that it comes to: operation, flow, and the rank that sent it."""


class Send(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One message of an entry: to a rank, into one of its ports, along links if not by the network's way."""

    dst: _Rank
    port: Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_PORTS)]
    route: tuple[_Link, ...] | None = None


class TableEntry(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One line of a table, whose fields are in the order in which a file has them.

    Parameters
    ----------
    step
        When at the earliest, in order.
    op
        ``"reduce"`` or ``"gather"``.
    flow
        Names the messages it sends, together with the rank they come from.
    address, size_bytes
        What it sends.
    after
        ``(op, flow, rank)`` of the messages it waits for: children of a reduce, the parent of a gather.
    sends
        Where to. A reduce that sends nothing ends the reduce-scatter: what comes after it waits for it and
        for the ports.
    """

    step: Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_STEPS)]
    op: TableOp
    flow: _Flow
    address: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_SIZE_BYTES)]
    after: tuple[MessageKey, ...]
    sends: tuple[Send, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of all ranks.

    Parameters
    ----------
    topology
        The network they are for.
    algorithm, collective
        What made them, and what they carry out.
    size_bytes
        Of the buffer of each rank, which addresses count in.
    steps
        Steps of every table, NOPs included.
    ports
        Of each rank.
    ranks
        Entries of each rank in the order of their steps.

    Raises
    ------
    ScheduleError
        If an interface could not carry them out; see `weft.packets.validity`.
    """

    topology: Topology
    algorithm: str
    collective: str
    size_bytes: int
    steps: int
    ports: int
    ranks: tuple[tuple[TableEntry, ...], ...]

    def __post_init__(self) -> None:
        check_tables(self)

    @property
    def space_bytes(self) -> int:
        """What addresses count in: in an all-to-all the buffers of all ranks, one after the other."""
        return self.size_bytes * (len(self.ranks) if self.collective == "all_to_all" else 1)

    @property
    def messages(self) -> int:
        """Sent by all ranks together."""
        return sum(len(entry.sends) for entry in self.all_entries())

    @property
    def entries(self) -> int:
        """Of the longest table; NOPs take one each."""
        return max(map(_length, self.ranks))

    def entry_bits(self) -> dict[str, int]:
        """Bits of one entry, field by field.

        Children are a list of as many as any entry has, each with a bit that says whether it is there. What a
        gather waits for beyond its parent is listed there as well, and where anything is waited for that has
        another flow or operation than the entry, each says which.
        """
        flows = 1 + max((entry.flow for entry in self.all_entries()), default=0)
        children = max(map(_children, self.all_entries()), default=1)
        largest = max((entry.size_bytes for entry in self.all_entries()), default=0)
        other = any(wait[:2] != (e.op, e.flow) for e in self.all_entries() for wait in e.after)
        number = _bits(len(self.ranks)) + (1 + _bits(flows) if other else 0)
        return {
            "opcode": 2,
            "flow": _bits(flows),
            "parent": number + 1,
            "children": children * (number + 1),
            "step": _bits(self.steps),
            "address": _bits(self.space_bytes),
            "size": _bits(1 + largest),
        }

    def to_dict(self) -> dict[str, Any]:
        """What the tables are for and what they take, without their entries."""
        bits = self.entry_bits()
        return {
            "topology": self.topology.name,
            **{name: getattr(self, name) for name in _PLAIN},
            "entry_bits": bits,
            "bits_per_entry": sum(bits.values()),
            "table_bits": self.table_bits,
        }

    @property
    def table_bits(self) -> int:
        """Of the longest table."""
        return self.entries * sum(self.entry_bits().values())

    def all_entries(self) -> Iterator[TableEntry]:
        """The entries of the tables of all ranks."""
        return chain.from_iterable(self.ranks)


def _bits(values: int) -> int:
    return max(1, (values - 1).bit_length())


def _children(entry: TableEntry) -> int:
    """Ranks that the list of an entry names."""
    waits = len(entry.after)
    return max(1, waits if entry.op == REDUCE else len(entry.sends) + max(0, waits - 1))


def _length(entries: tuple[TableEntry, ...]) -> int:
    """Lines of a table: its entries, and a NOP for each step without one before its last."""
    used = {entry.step for entry in entries}
    return len(entries) + sum(step not in used for step in range(max(used, default=0)))


def default_ports(topology: Topology) -> int:
    """Ports of each rank where nobody says how many: one for each link to a switch, or to its neighbours.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> default_ports(load_topology("torus:4x4")), default_ports(load_topology("switch:8"))
    (4, 1)
    """
    ranks, src, dst = topology.ranks, topology.link_src, topology.link_dst
    links_out, links_in = (np.bincount(ends[ends < ranks], minlength=ranks) for ends in (src, dst))
    switched = ~find_routers(topology)
    ports = np.minimum(links_out, links_in)[switched].min() if switched.any() else links_out.max()
    return min(int(ports), limits.MAX_PORTS)


@dataclass(slots=True)
class _Message:
    """A message of the schedule, by its first row."""

    row: int
    count: int
    after: tuple[MessageKey, ...] = ()


def make_tables(
    schedule: Schedule,
    size: str | int,
    *,
    ports: int = 1,
    element_bytes: int = 1,
    max_work: float | None = limits.MAX_PACKET_WORK,
) -> Tables:
    """Turn a schedule into the tables of its ranks.

    Parameters
    ----------
    schedule
        Any that uses no scratch slots.
    size
        Of the buffer.
    ports
        Interfaces of each rank; messages of a step that reach one rank are dealt out to its ports in turn.
    element_bytes
        Chunks are cut at whole elements.
    max_work
        Operations that it may take, by an estimate that is made first; None for any number. How much messages
        wait for cannot be told beforehand, and is counted.

    Raises
    ------
    UnsupportedError
        If the schedule uses scratch slots, or a rank gets a flow from the same rank twice.
    LimitError
        If there are too many messages, or it would take more operations than `max_work`.

    Examples
    --------
    >>> import weft
    >>> torus = weft.load_topology("torus:4x4")
    >>> tables = make_tables(weft.algorithms.multitree.all_reduce(torus), "128KiB", ports=4)
    >>> tables.entries, sum(tables.entry_bits().values())
    (27, 66)
    """
    if schedule.slots > 1:
        problem = f"{schedule.algorithm} uses scratch slots, interfaces have none"
        raise UnsupportedError("ni-table", problem, "use another algorithm")
    size_bytes = units.parse_size(size)
    limits.check(f"{schedule.algorithm}: messages of tables", schedule.messages, limits.MAX_TABLE_MESSAGES)
    limits.check("ports", ports, limits.MAX_PORTS)
    if ports < 1:
        raise ScheduleError("ports: a rank needs one at least")
    limits.check_work(f"tables of {schedule.algorithm}", _estimate(schedule), max_work)
    chunk_bytes = schedule.chunk_bytes(size_bytes, element_bytes).tolist()
    return _Maker(schedule, chunk_bytes, size_bytes, ports, max_work).make()


def _estimate(schedule: Schedule) -> float:
    """Operations of making tables, but for what messages wait for."""
    routes = schedule.route[schedule.message_starts]
    links = float(np.diff(schedule.route_offsets)[routes[routes >= 0]].sum())
    fixed = _ROW_WORK * schedule.transfers + _MESSAGE_WORK * schedule.messages + _LINK_WORK * links
    return fixed + _TABLE_WORK * schedule.ranks


class _Maker:
    """Walks a schedule step by step and knows, for every rank and chunk, what it is made of."""

    def __init__(
        self, schedule: Schedule, chunk_bytes: list[int], size_bytes: int, ports: int, max_work: float | None
    ) -> None:
        self.schedule, self.size_bytes, self.ports = schedule, size_bytes, ports
        self.work, self.max_work = 0.0, max_work
        self.address = [0, *accumulate(chunk_bytes)]
        self.src, self.dst = schedule.src.tolist(), schedule.dst.tolist()
        self.chunk, self.op = schedule.chunk.tolist(), schedule.op.tolist()
        self.route = schedule.route.tolist()
        topology = schedule.topology
        self.listed = {
            (int(topology.link_src[link]), int(topology.link_dst[link])): place
            for place, link in enumerate(listing_order(topology).tolist())
        }
        self.roots = _roots(schedule)
        # Per (rank, chunk): what its value waits for, and whether that was sent on already.
        self.made_of: list[dict[int, tuple[MessageKey, ...]]] = [{} for _ in range(schedule.ranks)]
        self.unsent: list[dict[MessageKey, None]] = [{} for _ in range(schedule.ranks)]
        self.seen: set[tuple[int, str, int, int]] = set()
        self.tables: list[list[TableEntry]] = [[] for _ in range(schedule.ranks)]

    def make(self) -> Tables:
        closing = _closing_steps(self.schedule)
        shift = 0
        for step, messages in self._steps():
            if step in closing:
                self._close(step + shift)
                shift += 1
            self._add_step(step + shift, messages)
        made, ranks = self.schedule, tuple(map(tuple, self.tables))
        frame = (made.topology, made.algorithm, made.collective, self.size_bytes)
        return Tables(*frame, made.steps + len(closing), self.ports, ranks)

    def _spend(self, work: float) -> None:
        """Count operations that nothing told of before."""
        self.work += work
        if self.max_work is not None and self.work > self.max_work:
            raise limits.too_much_work(f"tables of {self.schedule.algorithm}", self.max_work)

    def _steps(self) -> Iterator[tuple[int, list[_Message]]]:
        bounds = pairwise([*self.schedule.message_starts.tolist(), self.schedule.transfers])
        step = self.schedule.step.tolist()
        for number, messages in groupby(bounds, key=lambda bound: step[bound[0]]):
            yield number, [_Message(start, end - start) for start, end in messages]

    def _add_step(self, step: int, messages: list[_Message]) -> None:
        messages.sort(key=self._order)
        turn: dict[int, int] = {}
        lines: dict[tuple[int, TableOp, int, int], tuple[_Message, list[Send]]] = {}
        for message in messages:
            row = message.row
            src, dst = self.src[row], self.dst[row]
            port = turn[dst] = (turn.get(dst, -1) + 1) % self.ports
            message.after = self._waits(src, message)
            op: TableOp = REDUCE if self.op[row] == Op.REDUCE else GATHER
            # Reduces have one parent each; gathers of one flow share a line.
            key = (src, op, self.chunk[row], message.count if op == GATHER else -1 - row)
            route = None if self.route[row] < 0 else self.schedule.route_of(row)
            lines.setdefault(key, (message, []))[1].append(Send(dst, port, route))
        for (src, op, flow, _), (message, sends) in lines.items():
            first, last = flow, flow + message.count
            size = self.address[last] - self.address[first]
            entry = TableEntry(step, op, flow, self.address[first], size, message.after, tuple(sends))
            self.tables[src].append(entry)
        for message in messages:
            self._arrives(message)

    def _order(self, message: _Message) -> tuple[int, int, int, int]:
        """By root and flow; children of one rank in the order of its links."""
        row = message.row
        ends = self.src[row], self.dst[row]
        parent, child = ends if self.op[row] == Op.COPY else ends[::-1]
        return self.roots[row], self.chunk[row], self.listed.get((parent, child), 0), row

    def _waits(self, rank: int, message: _Message) -> tuple[MessageKey, ...]:
        found: dict[MessageKey, None] = {}
        first = self.chunk[message.row]
        for chunk in range(first, first + message.count):
            keys = self.made_of[rank].get(chunk, ())
            self._spend(_WAIT_WORK * len(keys))
            for key in keys:
                found[key] = None
                self.unsent[rank].pop(key, None)
        return tuple(found)

    def _arrives(self, message: _Message) -> None:
        row = message.row
        dst, first = self.dst[row], self.chunk[row]
        reduces = self.op[row] == Op.REDUCE
        key: MessageKey = (REDUCE if reduces else GATHER, first, self.src[row])
        if (dst, *key) in self.seen:
            problem = f"flow {first} comes to rank {dst} from rank {self.src[row]} more than once"
            raise UnsupportedError("ni-table", problem, "use another algorithm")
        self.seen.add((dst, *key))
        if reduces:
            self.unsent[dst][key] = None
        for chunk in range(first, first + message.count):
            before = self.made_of[dst].get(chunk, ()) if reduces else ()
            self._spend(_COPIED_WORK * len(before))
            self.made_of[dst][chunk] = (*before, key)

    def _close(self, step: int) -> None:
        """End a reduce-scatter: each rank waits for what it has not sent on, and that counts as its own."""
        self._spend(_TABLE_WORK * len(self.unsent))
        for rank, unsent in enumerate(self.unsent):
            after = tuple(unsent)
            flow = after[0][1] if after else rank
            self.tables[rank].append(TableEntry(step, REDUCE, flow, 0, 0, after, ()))
            done = set(after)
            for chunk, keys in self.made_of[rank].items():
                self._spend(_WAIT_WORK * (1 + len(keys)))
                self.made_of[rank][chunk] = tuple(key for key in keys if key not in done)
            unsent.clear()


def _roots(schedule: Schedule) -> dict[int, int]:
    """For each message, by its first row: the rank where its sum ends, or where what is copied comes from."""
    columns = (schedule.src, schedule.dst, schedule.chunk, schedule.op)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    starts = schedule.message_starts.tolist()
    roots: dict[int, int] = {}
    origin: dict[tuple[int, int], int] = {}
    for row in starts:
        src, dst, chunk, op = rows[row]
        if op == Op.COPY:
            roots[row] = origin[dst, chunk] = origin.get((src, chunk), src)
        else:
            origin.pop((dst, chunk), None)
    ends: dict[tuple[int, int], int] = {}
    for row in reversed(starts):
        src, dst, chunk, op = rows[row]
        if op == Op.REDUCE:
            roots[row] = ends[src, chunk] = ends.get((dst, chunk), dst)
        else:
            ends.pop((src, chunk), None)
            ends.pop((dst, chunk), None)
    return roots


def _closing_steps(schedule: Schedule) -> set[int]:
    """Steps where gathering begins after reducing, if no step does both."""
    kinds = sorted(set(zip(schedule.step.tolist(), schedule.op.tolist(), strict=True)))
    if len(dict(kinds)) < len(kinds):
        return set()
    return {step for (_, before), (step, op) in pairwise(kinds) if before == Op.REDUCE and op == Op.COPY}
