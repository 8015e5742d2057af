"""Plan files give back the very plan, or an error that says where."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import limits
from weft.errors import FormatError, InputError
from weft.planning import Plan, load_plan, plan, save_plan
from weft.planning.plan_file import MAGIC, VERSION, PlanHeader, decode_plan, encode_plan
from weft.schedule import container
from weft.schedule.codec import decode_schedule, encode_schedule
from weft.schedule.ir import COLUMNS

SAVED = plan("ring:4", ["4KiB", "16MiB"], algorithms=["ring", "recursive_doubling", "swing"])
DATA = encode_plan(SAVED)


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    SAVED.save(tmp_path / "plan.weft")
    found = load_plan(tmp_path / "plan.weft")
    assert found.topology == SAVED.topology
    assert found.topology.name == "ring:4"
    for name in (
        "collective",
        "root",
        "ranges",
        "points",
        "contenders",
        "skipped",
        "complete",
        "simulations",
    ):
        assert getattr(found, name) == getattr(SAVED, name), name
    assert [one.schedule for one in found.schedules] == [one.schedule for one in SAVED.schedules]
    assert [one.label for one in found.schedules] == [one.label for one in SAVED.schedules]
    assert found.explain() == SAVED.explain()
    assert found.choose("3MB").segment_bytes == SAVED.choose("3MB").segment_bytes


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert encode_plan(decode_plan(DATA)) == DATA


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        save_plan(SAVED, tmp_path / "missing" / "plan.weft")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b"hello", "not a plan file"),
        (b'{"format": "weft-schedule-1"}', "not a plan file; .* weft.init takes a schedule as schedule="),
        (encode_schedule(SAVED.schedules[0].schedule), "a schedule, not a plan"),
        (MAGIC, "cut short"),
        (DATA[:-1], "damaged"),
        (DATA[: len(DATA) // 2], "damaged"),
        (DATA + b"x", "damaged"),
    ],
    # The bytes of a plan hold how long it took to make.
    ids=["empty", "text", "json", "schedule", "magic", "without the last byte", "half", "one byte more"],
)
def test_what_is_no_whole_plan_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=f"plan.weft: .*{problem}"):
        decode_plan(data, "plan.weft")


def test_a_plan_is_not_taken_for_a_schedule() -> None:
    with pytest.raises(FormatError, match="a plan, not a schedule"):
        decode_schedule(DATA)


def test_another_version_is_named() -> None:
    header, body = container.unpack(DATA, VERSION, "x")
    with pytest.raises(FormatError, match="format 9 is unknown, this Weft reads 1"):
        decode_plan(container.pack(MAGIC, 9, header, [bytes(body)]))


def forge(change: Callable[[dict[str, Any]], None], body: Callable[[bytes], bytes] = bytes) -> bytes:
    """Make a file with a valid checksum whose header was changed."""
    header, blobs = container.unpack(DATA, VERSION, "x")
    fields = msgspec.msgpack.decode(header)
    change(fields)
    return container.pack(MAGIC, VERSION, msgspec.msgpack.encode(fields), [body(bytes(blobs))])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda h: h.update(collective="gossip"), "collective 'gossip' is unknown"),
        (
            lambda h: h.update(collective="broadcast"),
            "a schedule of all_reduce on ring:4 in a plan of broadcast",
        ),
        (lambda h: h.update(root=4), r"root 4: ring:4 has ranks 0\.\.3"),
        (lambda h: h.update(extra=1), "unknown field"),
        (lambda h: h.pop("ranges"), "missing required field"),
        (lambda h: h.update(ranges=[]), "must cover all sizes"),
        (lambda h: h.update(points=[]), "must have a point"),
        (lambda h: h["ranges"][0].update(first_bytes=1), "must cover all sizes"),
        (lambda h: h["ranges"][-1].update(last_bytes=5), "must cover all sizes"),
        (lambda h: h["ranges"][0].update(last_bytes=3), "does not follow"),
        (lambda h: h["ranges"][0].update(schedule=7), "must use schedules"),
        (lambda h: h["ranges"][0].update(segment_share=2.0), "between 0 and 1"),
        (lambda h: h["ranges"][0].update(segment_share=float("nan")), "between 0 and 1"),
        (lambda h: h["points"][0].update(range=99), "cannot be"),
        (lambda h: h["points"][0].update(busiest_link=-1), "cannot be"),
        (lambda h: h["points"][0].update(size_bytes=2**60), "cannot be"),
        (lambda h: h["points"][0].update(seconds=float("inf")), "not finite"),
        (lambda h: h["contenders"][0].update(seconds=-1.0), "negative"),
        (lambda h: h.update(topology_digest="0"), "the topology is not the one"),
        (lambda h: h["topology"].update(ranks=5), "does not have 5 ranks"),
        (lambda h: h["topology"]["links"]["bandwidth"].__setitem__(0, 1), "the topology is not the one"),
        (lambda h: h["schedules"][0].update(digest="0"), "schedule 0: is not the one that was planned"),
        (lambda h: h["schedules"][0].update(stored=1), "cut short, or followed"),
        (lambda h: h["schedules"].pop(), "cut short, or followed"),
        (lambda h: h["schedules"].reverse(), "schedule 0"),
        (lambda h: h.update(schedules=[]), "length >= 1"),
        (lambda h: h.update(schedules=h["schedules"] * 200), "length <= 256"),
        (lambda h: h["schedules"][1].update(digest=h["schedules"][0]["digest"]), "a schedule twice"),
        (lambda h: h["schedules"][0].update(synthesis_seconds=float("nan")), "not finite"),
        (lambda h: h.update(cpu_seconds=float("inf")), "not finite"),
        (lambda h: h["points"][0].update(range=len(h["ranges"]) - 1), "cannot be"),
        (lambda h: h["points"][0].update(bound_kind="x" * 5000), "characters of a text"),
        (lambda h: h.update(collective="gossip"), "unknown"),
        (lambda h: h.update(collective="broadcast"), "a schedule of all_reduce"),
    ],
)
def test_a_forged_header_is_refused(change: Callable[[dict[str, Any]], None], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        decode_plan(forge(change))


def test_a_schedule_inside_must_be_binary() -> None:
    def shift(header: dict[str, Any]) -> None:
        header["schedules"][0]["stored"] += 1
        header["schedules"][-1]["stored"] -= 1

    with pytest.raises(FormatError, match="schedule"):
        decode_plan(forge(shift))
    with pytest.raises(FormatError, match="schedule 0: is not a binary schedule"):
        decode_plan(forge(lambda _: None, body=lambda blobs: b"{" + blobs[1:]))


def test_schedules_are_bounded_together_and_before_they_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    schedules = [planned.schedule for planned in SAVED.schedules]
    columns = [[getattr(one, name) for name in COLUMNS] for one in schedules]
    sizes = [sum(column.nbytes for column in some if column is not None) for some in columns]
    assert len(sizes) > 1
    unpacked: list[str] = []

    def watch(source: str, place: str, blob: memoryview, size: int) -> bytes:
        unpacked.append(source)
        return inflate(source, place, blob, size)

    inflate = container.inflate
    monkeypatch.setattr(limits, "MAX_COLUMN_BYTES", sum(sizes) - 1)
    monkeypatch.setattr(container, "inflate", watch)
    with pytest.raises(FormatError, match=r"bytes of the columns: .* is more than"):
        decode_plan(DATA, "x")
    last = f"x: schedule {len(sizes) - 1}"
    assert unpacked.count(last) == 1, "its header, to see what it claims, and no column"


def test_many_entries_are_refused_before_they_are_made() -> None:
    def repeat(header: dict[str, Any]) -> None:
        header["skipped"] = [{"algorithm": "a", "reason": "b"}] * 5000

    with pytest.raises(FormatError, match="length <= 4096"):
        decode_plan(forge(repeat))


@given(place=st.integers(0, len(DATA) - 5), value=st.integers(0, 255))
def test_a_changed_byte_never_gives_another_plan(place: int, value: int) -> None:
    changed = bytearray(DATA)
    changed[place] = value
    body = bytes(changed[:-4])
    # With the checksum made right again, so that the checks behind it are reached.
    data = body + zlib.crc32(body).to_bytes(4, "little")
    try:
        found = decode_plan(data)
    except FormatError:
        return
    assert found.topology == SAVED.topology
    assert {one.schedule.digest for one in found.schedules} == {
        one.schedule.digest for one in SAVED.schedules
    }


def test_the_header_has_every_field_of_a_plan() -> None:
    fields = set(Plan.__dataclass_fields__)
    assert fields | {"topology_digest"} == set(PlanHeader.__struct_fields__)
    assert replace(SAVED, complete=False).complete is False
