"""What tables must be like before an interface may carry them out; the one place that says so.

`Tables` asks when it is made, whoever makes it, so that the engine never sees a number that was not checked.
Whether tables compute anything sensible is not asked: that is the schedule's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import ScheduleError

if TYPE_CHECKING:
    from weft.packets.table import Send, TableEntry, Tables

_OPS: Final = ("reduce", "gather")
_Place = tuple[int, int]  # a rank and its entry


def check_tables(tables: Tables) -> None:
    """Raise unless every number of some tables is in its range and every wait is for a message that is sent.

    Raises
    ------
    ScheduleError
        Begins with the place, such as ``ranks[3][17]: ``, the entry 17 of rank 3.
    """
    _check_frame(tables)
    ends = list(zip(tables.topology.link_src.tolist(), tables.topology.link_dst.tolist(), strict=True))
    space, passed = tables.space_bytes, 0
    for rank, entries in enumerate(tables.ranks):
        before = 0
        for index, entry in enumerate(entries):
            place = (rank, index)
            _check_entry(entry, place, tables.steps, space)
            for send in entry.sends:
                _check_send(tables, ends, send, place)
            if entry.step < before:
                raise _wrong(place, f"step {entry.step} comes after step {before}; put entries in order")
            before = entry.step
        passed += before
    _check_bound("ranks", "the number of steps of all ranks together", passed, limits.MAX_TABLE_STEPS + 1)
    _check_waits(tables)


def _check_frame(tables: Tables) -> None:
    limits.check_text("algorithm: its name", tables.algorithm, ScheduleError)
    limits.check_text("collective: its name", tables.collective, ScheduleError)
    _check_bound("size_bytes", "the size", tables.size_bytes, limits.MAX_SIZE_BYTES + 1)
    _check_bound("steps", "the number of steps", tables.steps, limits.MAX_STEPS + 1)
    _check_bound("ports", "the number of ports", tables.ports, limits.MAX_PORTS + 1)
    if tables.ports < 1:
        raise _wrong("ports", "a rank needs one at least")
    if len(tables.ranks) != tables.topology.ranks:
        there = f"{tables.topology.name} has {tables.topology.ranks} ranks"
        raise _wrong("ranks", f"{len(tables.ranks)} tables, but {there}; give each its own")


def _check_entry(entry: TableEntry, place: _Place, steps: int, space: int) -> None:
    if entry.op not in _OPS:
        raise _wrong(place, f"{entry.op!r} is no operation, expected {' or '.join(_OPS)}")
    _check_bound(place, "flow", entry.flow, limits.MAX_CHUNKS)
    _check_bound(place, "step", entry.step, steps)
    _check_bound(place, "address", entry.address, space + 1)
    room = min(space - entry.address, limits.MAX_SIZE_BYTES)
    _check_bound(place, "size", entry.size_bytes, room + 1)
    if entry.op == "reduce" and len(entry.sends) > 1:
        raise _wrong(place, f"a reduce has one parent, not {len(entry.sends)}")
    if entry.op == "gather" and not entry.sends:
        raise _wrong(place, "a gather sends something")
    if len(entry.after) > 1 and len(set(entry.after)) < len(entry.after):
        raise _wrong(place, "waits for one message twice")


def _check_send(tables: Tables, ends: list[tuple[int, int]], send: Send, place: _Place) -> None:
    topology, rank = tables.topology, place[0]
    _check_bound(place, "receiver", send.dst, len(tables.ranks))
    _check_bound(place, "port", send.port, tables.ports)
    if send.dst == rank:
        raise _wrong(place, f"rank {rank} sends to itself")
    if send.route is None:
        return
    at = rank
    for link in send.route:
        _check_bound(place, "link", link, len(ends))
        start, end = ends[link]
        if start != at:
            where = f"at {topology.node_name(at)}"
            raise _wrong(place, f"its route is {where}, link {topology.link_name(link)} begins elsewhere")
        at = end
    if at != send.dst:
        name = topology.node_name(at)
        raise _wrong(place, f"its route ends at {name}, not at rank {send.dst}, where it sends to")


def _check_waits(tables: Tables) -> None:
    known = _messages(tables)
    for rank, entries in enumerate(tables.ranks):
        for index, entry in enumerate(entries):
            for wait in entry.after:
                if (rank, *wait) not in known:
                    op, flow, src = wait
                    problem = f"waits for {op} {flow} of rank {src}, which sends no such message"
                    raise _wrong((rank, index), problem)


def _messages(tables: Tables) -> set[tuple[int, str, int, int]]:
    """Receiver, operation, flow and sender of all messages; no two may be alike."""
    known: set[tuple[int, str, int, int]] = set()
    for rank, entries in enumerate(tables.ranks):
        for index, entry in enumerate(entries):
            for send in entry.sends:
                message = (send.dst, entry.op, entry.flow, rank)
                if message in known:
                    what = f"{entry.op} {entry.flow} to rank {send.dst}"
                    raise _wrong((rank, index), f"sends {what} a second time")
                known.add(message)
    return known


def _check_bound(place: str | _Place, what: str, value: int, bound: int) -> None:
    """Raise unless this is a plain number, at least 0 and below `bound`."""
    if type(value) is not int or not 0 <= value < bound:
        shown = value if type(value) is int and abs(value) < 10**30 else f"a {type(value).__name__}"
        raise _wrong(place, f"{what} is {shown}, expected a number from 0 to {bound - 1}")


def _wrong(place: str | _Place, problem: str) -> ScheduleError:
    where = place if isinstance(place, str) else f"ranks[{place[0]}][{place[1]}]"
    return ScheduleError(f"{where}: {problem}")
