"""Tables as files: JSON that `weft packets` and other programs execute, and a listing for people.

The JSON form holds the network as well, so that a file is all that a run needs::

    {
     "format": "weft-ni-table", "version": 1,
     "algorithm": "ring", "collective": "all_reduce", "size_bytes": 12288, "steps": 5, "ports": 1,
     "topology": {"name": "ring:3", ...},
     "ranks": [
      [
       [0, "reduce", 2, 8192, 4096, [], [[1, 0]]],
       [1, "reduce", 1, 4096, 4096, [["reduce", 1, 2]], [[1, 0]]],
       ...
      ],
      ...
     ]
    }

An entry is its step, operation, flow, address and size; then the messages it waits for (operation, flow,
rank); then where it sends (rank, port of the receiver, and links if the network's own way is not meant).
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from weft import limits, units
from weft.errors import FormatError, LimitError, ScheduleError, printable
from weft.packets.table import GATHER, TableEntry, Tables
from weft.topology.json_reading import check_length, decode_json, embedded_topology
from weft.topology.record import TopologyRecord, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT: Final = "weft-ni-table"
VERSION: Final = 1

_WHAT: Final = "a table of network interfaces"
_PLAIN: Final = ("algorithm", "collective", "size_bytes", "steps", "ports")
"""Fields of tables that a file has as they are."""

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.MAX_SPEC_CHARACTERS)]


class _Named(msgspec.Struct):
    format: str
    version: int = 0


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    algorithm: _Text
    collective: _Text
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_SIZE_BYTES)]
    steps: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_STEPS)]
    ports: Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_PORTS)]
    topology: str | TopologyRecord
    ranks: Annotated[tuple[tuple[TableEntry, ...], ...], msgspec.Meta(max_length=limits.MAX_RANKS)]


def is_table(data: bytes) -> bool:
    """Whether a file means to hold tables, sound or not."""
    if re.match(rb'\s*\{\s*"format"\s*:\s*"%b"' % FORMAT.encode(), data):
        return True
    try:
        return msgspec.json.decode(data, type=_Named).format == FORMAT
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def tables_to_json(tables: Tables) -> bytes:
    """Write tables, one entry per line; `tables_from_json` gives equal ones back.

    Raises
    ------
    LimitError
        If the file would be larger than Weft accepts.
    """
    head = {"format": FORMAT, "version": VERSION} | {name: getattr(tables, name) for name in _PLAIN}
    head["topology"] = msgspec.to_builtins(to_record(tables.topology))
    lines = [f' "{name}": {_json(value)},' for name, value in head.items()]
    ranks = [
        "  [\n" + ",\n".join(f"   {_entry_json(e)}" for e in entries) + "\n  ]" for entries in tables.ranks
    ]
    data = ("{\n" + "\n".join(lines) + '\n "ranks": [\n' + ",\n".join(ranks) + "\n ]\n}\n").encode()
    if len(data) > limits.MAX_TEXT_BYTES:
        most = limits.MAX_TEXT_BYTES >> 20
        msg = f"tables of {len(tables.ranks):,} ranks take more than {most} MiB as a file; use fewer ranks"
        raise LimitError(msg)
    return data


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _entry_json(entry: TableEntry) -> str:
    *head, sends = msgspec.to_builtins(entry)
    return _json([*head, [[part for part in send if part is not None] for send in sends]])


def tables_from_json(data: bytes, source: str = "<json>") -> Tables:
    """Read tables, and believe nothing.

    Parameters
    ----------
    data
        The whole file.
    source
        Its name, for messages.

    Raises
    ------
    FormatError
        If it holds no tables, or some that cannot be carried out; says where.
    """
    check_length(source, data)
    # The name and the version first: other ones have other keys.
    named = decode_json(source, data, _Named, _WHAT)
    if named.format != FORMAT:
        raise FormatError(source, f"{named.format!r} is not {FORMAT!r}", "format")
    if named.version != VERSION:
        problem = f"version {named.version} is unknown, this Weft reads {VERSION}"
        raise FormatError(source, problem, "version")
    document = decode_json(source, data, _Document, _WHAT)
    topology = embedded_topology(source, document.topology)
    try:
        return Tables(topology, **{name: getattr(document, name) for name in (*_PLAIN, "ranks")})
    except ScheduleError as error:
        place, _, problem = str(error).partition(": ")
        raise FormatError(source, problem, place) from error


def tables_to_text(tables: Tables) -> str:
    """List the table of each rank as MultiTree's authors print theirs, and what it takes in hardware.

    A reduce waits for its children and sends to its parent, a gather waits for its parent and sends to its
    children. Where a message of another flow or kind is waited for, that is said.

    Examples
    --------
    >>> import weft
    >>> from weft.packets import make_tables
    >>> schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:3"))
    >>> print(tables_to_text(make_tables(schedule, "12KiB")), end="")
    ring all_reduce of 12KiB on ring:3: tables of 3 ranks with 1 port each
    5 entries at most of 40 bits each, 200 bits
    bits: opcode 2, flow 2, parent 3, children 3, step 3, address 14, size 13
    <BLANKLINE>
    rank 0, 5 entries
    step  op      flow  parent  children  address  size
       0  Reduce     2  1       nil          8192  4096
       1  Reduce     1  1       2            4096  4096
       2  Reduce     0  nil     2               0     0
       3  Gather     0  nil     1               0  4096
       4  Gather     2  2       1            8192  4096
    <BLANKLINE>
    rank 1, 5 entries
    ...
    """
    ports = f"{tables.ports} port{'s' if tables.ports > 1 else ''} each"
    what = f"{tables.algorithm} {tables.collective} of {units.format_size(tables.size_bytes)}"
    bits = tables.entry_bits()
    lines = [
        printable(f"{what} on {tables.topology.name}: tables of {len(tables.ranks)} ranks with {ports}"),
        f"{tables.entries:,} entries at most of {sum(bits.values())} bits each, {tables.table_bits:,} bits",
        f"bits: {', '.join(f'{name} {count}' for name, count in bits.items())}",
    ]
    for rank, entries in enumerate(tables.ranks):
        rows = [("step", "op", "flow", "parent", "children", "address", "size"), *_rows(entries)]
        used = {entry.step for entry in entries}
        nops = max(used, default=-1) + 1 - len(used)
        count = f"{len(entries):,} {'entry' if len(entries) == 1 else 'entries'}"
        lines += ["", f"rank {rank}, {count}" + (f" and {nops:,} NOP" if nops else ""), *_columns(rows)]
    return "\n".join(lines) + "\n"


def _rows(entries: tuple[TableEntry, ...]) -> Iterator[tuple[str, ...]]:
    """Cells of a table's lines; steps without an entry are NOPs, those in a row on one line."""
    ahead = 0
    for step, group in groupby(entries, key=lambda entry: entry.step):
        if step > ahead:
            steps = str(ahead) if step == ahead + 1 else f"{ahead}-{step - 1}"
            yield (steps, "NOP", "", "", "", "", "")
        ahead = step + 1
        for entry in group:
            waits = [_wait(entry, *wait) for wait in entry.after]
            sends = [str(send.dst) for send in entry.sends]
            parent, children = (waits, sends) if entry.op == GATHER else (sends, waits)
            yield (
                str(step),
                entry.op.capitalize(),
                str(entry.flow),
                ", ".join(parent) or "nil",
                ", ".join(children) or "nil",
                str(entry.address),
                str(entry.size_bytes),
            )


def _wait(entry: TableEntry, op: str, flow: int, rank: int) -> str:
    return str(rank) if (op, flow) == (entry.op, entry.flow) else f"{rank} ({op} {flow})"


def _columns(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {1, 3, 4}  # words and lists; numbers stand to the right
    for row in rows:
        cells = [
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
