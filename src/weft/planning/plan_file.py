"""Plan files: ranges, times and bounds in a header, followed by whole schedule files, each schedule once.

The frame is that of schedule files (`weft.schedule.container`) with another magic. The header embeds the
topology and the digest of everything; each schedule is the very bytes that ``weft export`` would write, and
passes the same checks. So a plan file gives back the plan that was saved, or an error, however hostile it is:
counts are bounded while the header is decoded, and what a schedule claims to unpack to is checked before it
is unpacked, against what the schedules before it have left of one common bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from weft import limits
from weft.algorithms.registry import Refusal
from weft.errors import FormatError, InputError
from weft.files import read_source, write_bytes
from weft.planning.plans import Contender, Plan, PlannedSchedule, PlanPoint, Range, check_plan
from weft.schedule import COLLECTIVES, container
from weft.schedule.codec import decode_schedule, encode_schedule
from weft.schedule.ir import COLUMNS
from weft.topology.record import TopologyRecord, from_record, to_record

if TYPE_CHECKING:
    from pathlib import Path

    from weft.schedule import Schedule
    from weft.topology import Topology

MAGIC: Final = container.PLAN_MAGIC
VERSION: Final = 1

_Text = Annotated[str, msgspec.Meta(max_length=limits.MAX_SPEC_CHARACTERS)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]
_Many = msgspec.Meta(max_length=limits.MAX_PLAN_ENTRIES)
_Few = msgspec.Meta(min_length=1, max_length=limits.MAX_PLANNED_SCHEDULES)


class ScheduleRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One schedule: who made it and in what time, what it must be, and its bytes in the file."""

    algorithm: _Text
    variant: _Text
    synthesis_seconds: float
    digest: _Text
    stored: _Count


class RefusalRecord(msgspec.Struct, frozen=True):
    """An algorithm that is not in the plan, and why."""

    algorithm: str
    reason: str


class PlanHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything but the schedules."""

    collective: _Text
    root: _Count
    topology: TopologyRecord
    topology_digest: _Text
    complete: bool
    cpu_seconds: float
    simulations: _Count
    schedules: Annotated[list[ScheduleRecord], _Few]
    ranges: Annotated[tuple[Range, ...], _Many]
    points: Annotated[tuple[PlanPoint, ...], _Many]
    contenders: Annotated[tuple[Contender, ...], _Many]
    skipped: Annotated[list[RefusalRecord], _Many]


_PLAIN: Final = set(PlanHeader.__struct_fields__) - {"topology", "topology_digest", "schedules", "skipped"}
"""Fields that a header has as the plan has them."""


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan file, whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    LimitError
        If it would be larger than `load_plan` accepts.
    """
    write_bytes(path, encode_plan(plan))


def load_plan(path: str | Path, *, max_work: float | None = limits.MAX_WORK) -> Plan:
    """Read a plan file.

    Parameters
    ----------
    path
        File name, or ``"-"`` for standard input.
    max_work
        Operations that unpacking its schedules may take, by estimate; None for any number.

    Raises
    ------
    FormatError
        If it is no plan, damaged, or does not hold what it says; says where.
    LimitError
        If its schedules unpack to so much that it would take more operations than `max_work`.
    """
    name, data = read_source(path, limits.MAX_SCHEDULE_BYTES)
    return decode_plan(data, name, max_work=max_work)


def is_plan(data: bytes) -> bool:
    """Whether a file begins as a plan does."""
    return data.startswith(MAGIC)


def encode_plan(plan: Plan) -> bytes:
    """Bytes of a plan file.

    Examples
    --------
    >>> from weft.planning import plan
    >>> decode_plan(encode_plan(plan("ring:4", "1MiB", algorithms=["ring"])))
    <Plan all_reduce on ring:4: ring; 49.2 % of the bound>
    """
    limits.check("schedules of a plan", len(plan.schedules), limits.MAX_PLANNED_SCHEDULES)
    limits.check("ranges of a plan", len(plan.ranges), limits.MAX_PLAN_ENTRIES)
    limits.check("sizes of a plan", len(plan.points), limits.MAX_PLAN_ENTRIES)
    blobs = [encode_schedule(planned.schedule) for planned in plan.schedules]
    headers = sum(container.header_bytes(blob) for blob in blobs)
    limits.check("bytes of the headers of all schedules", headers, limits.MAX_HEADER_BYTES)
    header = PlanHeader(
        **{name: getattr(plan, name) for name in _PLAIN},
        topology=to_record(plan.topology),
        topology_digest=plan.topology.digest,
        schedules=[
            ScheduleRecord(
                planned.algorithm,
                planned.variant,
                planned.synthesis_seconds,
                planned.schedule.digest,
                len(blob),
            )
            for planned, blob in zip(plan.schedules, blobs, strict=True)
        ],
        skipped=[RefusalRecord(one.algorithm, one.reason) for one in plan.skipped],
    )
    return container.pack(MAGIC, VERSION, msgspec.msgpack.encode(header), blobs)


def decode_plan(data: bytes, source: str = "<bytes>", *, max_work: float | None = limits.MAX_WORK) -> Plan:
    """Read a plan from memory; `source` is its name in messages.

    Raises
    ------
    FormatError
        If it is no plan, damaged, or does not hold what it says.
    LimitError
        If unpacking its schedules would take more operations than `max_work`.
    """
    if not is_plan(data):
        what = "a schedule, not a plan" if data.startswith(container.SCHEDULE_MAGIC) else "not a plan file"
        hint = "weft plan -o writes one, and weft.init takes a schedule as schedule="
        raise FormatError(source, f"{what}; {hint}" if data else "the file is empty")
    header, body = container.unpack_as(data, VERSION, source, PlanHeader)
    if header.collective not in COLLECTIVES:
        raise FormatError(source, f"collective {header.collective!r} is unknown", "header")
    topology = _decode_topology(source, header)
    schedules = _decode_schedules(source, header, body, max_work)
    try:
        plan = Plan(
            **{name: getattr(header, name) for name in _PLAIN},
            topology=topology,
            schedules=tuple(schedules),
            skipped=tuple(Refusal(one.algorithm, one.reason) for one in header.skipped),
        )
        check_plan(plan)
    except InputError as error:
        raise FormatError(source, str(error)) from error
    return plan


def _decode_topology(source: str, header: PlanHeader) -> Topology:
    try:
        topology = from_record(header.topology)
    except InputError as error:
        raise FormatError(source, str(error), "topology") from error
    if topology.digest != header.topology_digest:
        raise FormatError(
            source, "the topology is not the one that was planned for: its digest does not match"
        )
    return topology


def _decode_schedules(
    source: str, header: PlanHeader, body: memoryview, max_work: float | None
) -> list[PlannedSchedule]:
    if sum(record.stored for record in header.schedules) != len(body):
        raise FormatError(source, "the schedules are cut short, or followed by something else")
    if len({record.digest for record in header.schedules}) != len(header.schedules):
        raise FormatError(source, "has a schedule twice", "header")
    found: list[PlannedSchedule] = []
    headers = 0
    start = unpacked = 0
    for number, record in enumerate(header.schedules):
        place = f"{source}: schedule {number}"
        blob = bytes(body[start : start + record.stored])
        if not blob.startswith(container.SCHEDULE_MAGIC):
            raise FormatError(place, "is not a binary schedule")
        headers += container.header_bytes(blob)
        if headers > limits.MAX_HEADER_BYTES:
            most = limits.MAX_HEADER_BYTES >> 20
            raise FormatError(place, f"the headers of all schedules have more than {most} MiB together")
        schedule = decode_schedule(blob, place, bytes_before=unpacked, max_work=max_work)
        if schedule.digest != record.digest:
            raise FormatError(place, "is not the one that was planned: its digest does not match")
        if schedule.topology.digest != header.topology_digest:
            raise FormatError(place, f"is for another topology, {schedule.topology.name}")
        unpacked += _column_bytes(schedule)
        found.append(PlannedSchedule(record.algorithm, record.variant, schedule, record.synthesis_seconds))
        start += record.stored
    return found


def _column_bytes(schedule: Schedule) -> int:
    columns = (getattr(schedule, name) for name in COLUMNS)
    return sum(column.nbytes for column in columns if column is not None)
