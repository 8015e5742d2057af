"""Schedule files: the binary ``.weft`` form, and the door to both forms.

A ``.weft`` file is a header and columns in the frame of `weft.schedule.container`. The header is
zlib-compressed MessagePack (`ScheduleHeader`); it embeds the topology and says how long each column is. A
column is the zlib-compressed differences of neighbouring entries: a ring of two million rows shrinks to a few
hundred kilobytes.

A file is hostile until proven small. Nothing is unpacked before its declared size was checked against
`weft.limits`, and nothing is ever unpacked beyond its declared size. The schedule's digest is stored and
compared, so that a file either gives back the very schedule that was saved, or an error.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np

from weft import limits
from weft.columns import freeze
from weft.errors import FormatError, InputError, LimitError
from weft.files import read_source, write_bytes
from weft.schedule import container
from weft.schedule.ir import COLUMNS, TRANSFER_COLUMNS, Schedule
from weft.schedule.json_form import schedule_from_json, schedule_to_json
from weft.topology.record import TopologyRecord, from_record, to_record

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC: Final = container.SCHEDULE_MAGIC
VERSION: Final = 1

READ_WORK: Final = 20.0
"""Operations for each byte of a column.

Inflating, summing up, checking and the digest take three to eight. But a file of a few megabytes may unpack
to a gigabyte, which is held twice and more meanwhile, and memory counts as well."""

_PLAIN: Final = ("collective", "algorithm", "notes", "ownership", "denominator")
"""Fields that a header has as the schedule has them."""

_CHUNK_COLUMNS: Final = ("weights", "source", "target")

_Text = Annotated[str, msgspec.Meta(max_length=limits.MAX_SPEC_CHARACTERS)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]


class ColumnRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column: how many entries, and how many bytes they take in the file."""

    name: _Text
    count: _Count
    stored: _Count


class ScheduleHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything but the columns."""

    collective: _Text
    algorithm: _Text
    notes: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=limits.MAX_NOTES)]
    ownership: _Text
    denominator: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    topology: TopologyRecord
    columns: Annotated[list[ColumnRecord], msgspec.Meta(max_length=len(COLUMNS))]
    digest: _Text


def load_schedule(path: str | Path, *, max_work: float | None = limits.MAX_WORK) -> Schedule:
    """Read a schedule file, binary or JSON, whichever it is.

    Parameters
    ----------
    path
        File name, or ``"-"`` for standard input.
    max_work
        Operations that unpacking it may take, by estimate; None for any number.

    Raises
    ------
    FormatError
        If it cannot be read; says where and why.
    LimitError
        If it unpacks to so much that it would take more operations than `max_work`.
    """
    name, data = read_source(path, limits.MAX_SCHEDULE_BYTES)
    return decode_schedule(data, name, max_work=max_work)


def save_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule file: JSON where the name ends in ``.json``, else binary; whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    LimitError
        If it would be larger than `load_schedule` accepts.
    """
    encode = schedule_to_json if Path(path).suffix.lower() == ".json" else encode_schedule
    write_bytes(path, encode(schedule))


def encode_schedule(schedule: Schedule) -> bytes:
    """Bytes of the binary form.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "chain", chunks=1)
    >>> builder.add(step=[0, 1, 2], chunk=0, src=[0, 1, 2], dst=[1, 2, 3], op=Op.COPY)
    >>> decode_schedule(encode_schedule(builder.build()))
    <Schedule chain broadcast on ring:4: 1 chunks, 3 steps, 3 transfers>
    """
    blobs, records = [], []
    for name in COLUMNS:
        values = getattr(schedule, name)
        if values is not None:
            blobs.append(_pack(values))
            records.append(ColumnRecord(name, len(values), len(blobs[-1])))
    limits.check("bytes of the columns", _unpacked_bytes(records), limits.MAX_COLUMN_BYTES)
    header = msgspec.msgpack.encode(
        ScheduleHeader(
            **{name: getattr(schedule, name) for name in _PLAIN},
            topology=to_record(schedule.topology),
            columns=records,
            digest=schedule.digest,
        )
    )
    return container.pack(MAGIC, VERSION, header, blobs)


def decode_schedule(
    data: bytes,
    source: str = "<bytes>",
    *,
    bytes_before: int = 0,
    max_work: float | None = limits.MAX_WORK,
) -> Schedule:
    """Read either form from memory; `source` is its name in messages.

    What the columns of a binary schedule claim is checked before any of them is unpacked.

    Parameters
    ----------
    data, source
        The file, and its name.
    bytes_before
        Of columns that were unpacked before and count as well: a plan has several schedules.
    max_work
        Operations that unpacking may take, by estimate; None for any number.

    Raises
    ------
    FormatError
        If it is neither, damaged, or not a legal schedule.
    LimitError
        If unpacking it would take more operations than `max_work`.
    """
    if data.startswith(MAGIC):
        return _decode_binary(data, source, bytes_before, max_work)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return schedule_from_json(data.removeprefix(b"\xef\xbb\xbf"), source)
    if data.startswith(MAGIC[:5]):
        raise FormatError(source, "a .weft file whose line ends were changed; copy it as a binary file")
    if data.startswith(container.PLAN_MAGIC):
        raise FormatError(
            source, "a plan, not a schedule; weft.load_plan reads it, and weft export takes one out of it"
        )
    raise FormatError(
        source, "not a schedule: neither a .weft file nor JSON" if data else "the file is empty"
    )


def _decode_binary(data: bytes, source: str, bytes_before: int, max_work: float | None) -> Schedule:
    header, body = container.unpack_as(data, VERSION, source, ScheduleHeader)
    _check_columns(source, header.columns, body, bytes_before)
    unpacked = bytes_before + _unpacked_bytes(header.columns)
    limits.check_work(f"{source}: reading it", READ_WORK * unpacked, max_work)
    columns = _decode_columns(source, header.columns, body)
    try:
        schedule = Schedule(
            topology=from_record(header.topology),
            **{name: getattr(header, name) for name in _PLAIN},
            **columns,
        )
    except InputError as error:
        raise FormatError(source, str(error)) from error
    if schedule.digest != header.digest:
        raise FormatError(source, "the schedule is not the one that was saved: its digest does not match")
    return schedule


def _check_columns(source: str, records: list[ColumnRecord], body: memoryview, bytes_before: int) -> None:
    """Refuse what the header claims about the columns if they cannot be right, or are too large."""
    required = {name for name in COLUMNS if not name.endswith("_slot")}
    names = [record.name for record in records]
    if len(set(names)) != len(names) or not required <= set(names) <= set(COLUMNS):
        raise FormatError(source, f"expected the columns {', '.join(COLUMNS)}, each once", "header")
    try:
        for record in records:
            limits.check(f"column {record.name}", record.count, _most(record.name))
        unpacked = bytes_before + _unpacked_bytes(records)
        limits.check("bytes of the columns", unpacked, limits.MAX_COLUMN_BYTES)
    except LimitError as error:
        raise FormatError(source, str(error), "header") from error
    counts = {record.name: record.count for record in records}
    for group in (_CHUNK_COLUMNS, TRANSFER_COLUMNS):
        if len({counts[name] for name in group if name in counts}) > 1:
            raise FormatError(source, f"the columns {', '.join(group)} differ in length", "header")
    if sum(record.stored for record in records) != len(body):
        raise FormatError(source, "the columns are cut short, or followed by something else")


def _decode_columns(source: str, records: list[ColumnRecord], body: memoryview) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    start = 0
    for record in records:
        blob = body[start : start + record.stored]
        columns[record.name] = _unpack(source, record, blob)
        start += record.stored
    return columns


def _most(name: str) -> int:
    if name in _CHUNK_COLUMNS:
        return limits.MAX_CHUNKS
    # At most a route for each transfer, and the table has one offset more than routes.
    return {"route_links": limits.MAX_ROUTE_ENTRIES, "route_offsets": limits.MAX_TRANSFERS + 1}.get(
        name, limits.MAX_TRANSFERS
    )


def _unpacked_bytes(records: list[ColumnRecord]) -> int:
    return sum(record.count * np.dtype(COLUMNS[record.name]).itemsize for record in records)


def _pack(values: NDArray[Any]) -> bytes:
    differences = np.diff(values, prepend=values.dtype.type(0))
    return zlib.compress(
        differences.astype(values.dtype.newbyteorder("<"), copy=False).tobytes(), container.PACKING
    )


def _unpack(source: str, record: ColumnRecord, blob: memoryview) -> NDArray[Any]:
    dtype = np.dtype(COLUMNS[record.name])
    raw = container.inflate(source, f"column {record.name}", blob, record.count * dtype.itemsize)
    # Frozen at once: the schedule then takes the column as it is, and a large one is held no more than twice.
    return freeze(record.name, np.cumsum(np.frombuffer(raw, dtype.newbyteorder("<")), dtype=dtype), dtype)
