"""Schedule files: exact round trips, and nothing but a WeftError for whatever else they hold."""

from __future__ import annotations

import io
import os
import struct
import sys
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.golden import FOLDER
from support.schedules import all_gathers, columns, relayed_all_to_all, ring_all_reduce, routed_all_reduce

from weft import limits
from weft.errors import FormatError, InputError, LimitError, WeftError
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.schedule.codec import MAGIC, decode_schedule, encode_schedule, load_schedule, save_schedule
from weft.schedule.ir import TRANSFER_COLUMNS
from weft.schedule.json_form import schedule_from_json, schedule_to_json
from weft.topology import load_topology

RING = ring_all_reduce(load_topology("ring:4"))
SAMPLES = [RING, routed_all_reduce(), relayed_all_to_all(), Schedule(**columns(notes=("häh", "")))]
PREFIX = struct.Struct("<8sIII")


def seal(content: bytes) -> bytes:
    """Put the right checksum behind a file's content."""
    return content + struct.pack("<I", zlib.crc32(content))


def taken_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and packed columns of a file."""
    _, _, stored, _ = PREFIX.unpack_from(data)
    header = zlib.decompress(data[PREFIX.size : PREFIX.size + stored])
    return msgspec.msgpack.decode(header), data[PREFIX.size + stored : -4]


def put_together(header: object, body: bytes, *, claimed: int | None = None, version: int = 1) -> bytes:
    raw = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    packed = zlib.compress(raw)
    prefix = PREFIX.pack(MAGIC, version, len(packed), len(raw) if claimed is None else claimed)
    return seal(prefix + packed + body)


def same_in_everything(one: Schedule, other: Schedule) -> bool:
    def kept(schedule: Schedule) -> tuple[object, ...]:
        return schedule.digest, schedule.algorithm, schedule.notes, schedule.topology.name

    return kept(one) == kept(other)


# round trips


@pytest.mark.parametrize("schedule", SAMPLES)
def test_binary_gives_back_what_was_encoded(schedule: Schedule) -> None:
    assert same_in_everything(decode_schedule(encode_schedule(schedule)), schedule)


@given(all_gathers())
def test_random_schedules_survive_both_forms(schedule: Schedule) -> None:
    assert same_in_everything(decode_schedule(encode_schedule(schedule)), schedule)
    assert same_in_everything(decode_schedule(schedule_to_json(schedule)), schedule)


def test_extreme_numbers_survive() -> None:
    extreme = Schedule(
        **columns(
            weights=[2**63 - 2, 1],
            denominator=2**63 - 1,
            step=[0, 0, 1, 1, 2, limits.MAX_STEPS - 1],
            src_slot=[0, 0, 0, 0, 0, limits.MAX_SLOTS - 1],
            dst_slot=[limits.MAX_SLOTS - 1, 0, 0, 0, 0, 0],
        )
    )
    assert decode_schedule(encode_schedule(extreme)) == extreme
    assert decode_schedule(schedule_to_json(extreme)) == extreme


def test_topologies_with_hosts_labels_and_switches_survive() -> None:
    topology = load_topology("dgx-a100:2@fabric=flat,routing=ecmp,seed=3+fail=rank:5")
    schedule = ScheduleBuilder(topology, "all_reduce", "none").build()
    for data in (encode_schedule(schedule), schedule_to_json(schedule)):
        assert decode_schedule(data).topology == topology


def test_equal_schedules_have_equal_files() -> None:
    assert encode_schedule(ring_all_reduce(load_topology("ring:4"))) == encode_schedule(RING)


def test_large_rings_take_little_room() -> None:
    ring = ring_all_reduce(load_topology("ring:128"))
    assert ring.transfers == 32512
    assert len(encode_schedule(ring)) < ring.transfers


@pytest.mark.parametrize("name", ["ring_all_reduce.weft", "ring_all_reduce.json"])
def test_files_of_earlier_versions_are_still_read(name: str) -> None:
    path = FOLDER / name
    if os.environ.get("WEFT_UPDATE_GOLDEN") == "1":
        save_schedule(RING, path)
    assert same_in_everything(load_schedule(path), RING)


def test_the_json_form_is_the_golden_one() -> None:
    assert schedule_to_json(RING) == (FOLDER / "ring_all_reduce.json").read_bytes()


# files


@pytest.mark.parametrize("name", ["a.weft", "a.json", "a.JSON", "a", "a.txt"])
def test_what_is_saved_is_loaded(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save_schedule(RING, str(path))
    assert path.read_bytes().startswith(b"{" if name.lower().endswith(".json") else MAGIC)
    assert same_in_everything(load_schedule(path), RING)
    assert same_in_everything(load_schedule(str(path)), RING)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_saving_replaces_and_follows_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.weft", tmp_path / "link.weft"
    real.write_text("old")
    link.symlink_to(real)
    save_schedule(RING, link)
    assert link.is_symlink()
    assert load_schedule(real) == RING


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "ring.weft"
    path.write_bytes(b"old")
    path.chmod(mode)
    save_schedule(RING, path)
    assert path.stat().st_mode & 0o777 == mode
    assert load_schedule(path) == RING


def test_the_longest_name_a_file_can_have_is_long_enough(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250 + ".weft")
    save_schedule(RING, path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "loop"])
def test_a_name_that_leads_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="cannot be written"):
        save_schedule(RING, tmp_path / name)
    with pytest.raises(InputError):
        load_schedule(tmp_path / name)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.weft"
    save_schedule(RING, path)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match=r"a\.weft: cannot be written: No space left on device"):
        save_schedule(routed_all_reduce(), path)
    assert load_schedule(path) == RING
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_is_not_there_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing/a\.weft: cannot be written: No such file or directory"):
        save_schedule(RING, tmp_path / "missing" / "a.weft")
    with pytest.raises(InputError, match=r"cannot be written: Is a directory"):
        save_schedule(RING, tmp_path)


def test_a_device_is_written_to_and_stays_a_device() -> None:
    save_schedule(RING, "/dev/null")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("encode", [encode_schedule, schedule_to_json])
def test_standard_input_is_a_file_too(encode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(encode(RING))))
    assert load_schedule("-") == RING


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a\.weft: no such file"),
        (b"", r"a\.weft: the file is empty"),
        (b"<algo/>", r"a\.weft: not a schedule: neither a \.weft file nor JSON"),
        (MAGIC.replace(b"\r\n", b"\n"), r"a\.weft: a \.weft file whose line ends were changed"),
        (MAGIC, r"a\.weft: the file is cut short"),
        (b"\xef\xbb\xbf {}", r"a\.weft: Object missing required field `weft_schedule`"),
    ],
)
def test_what_is_no_schedule_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "a.weft"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        load_schedule(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as stream:
        stream.write(b"{")
        stream.truncate(100 << 20)
    with pytest.raises(FormatError, match=r"a\.json: larger than the 64 MiB that Weft accepts"):
        load_schedule(path)


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SCHEDULE_BYTES", 300)
    with pytest.raises(LimitError, match="300 that Weft accepts"):
        save_schedule(RING, tmp_path / "a.weft")
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", 1000)
    with pytest.raises(
        LimitError, match=r"24 transfers take more than 0 MiB as JSON; save the schedule as \.weft"
    ):
        save_schedule(RING, tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


# damage


def test_every_cut_of_a_file_is_refused() -> None:
    data = encode_schedule(RING)
    for length in range(len(data)):
        with pytest.raises(FormatError):
            decode_schedule(data[:length])


def test_anything_behind_a_file_is_refused() -> None:
    with pytest.raises(FormatError, match="checksum"):
        decode_schedule(encode_schedule(RING) + b"\0")
    header, body = taken_apart(encode_schedule(RING))
    with pytest.raises(FormatError, match="cut short, or followed by something else"):
        decode_schedule(put_together(header, body + b"\0"))


def test_every_flipped_byte_is_noticed() -> None:
    data = encode_schedule(RING)
    for position in range(len(data)):
        with pytest.raises(FormatError):
            decode_schedule(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])


def test_a_file_of_a_later_version_says_so() -> None:
    header, body = taken_apart(encode_schedule(RING))
    with pytest.raises(FormatError, match="format 2 is unknown, this Weft reads 1"):
        decode_schedule(put_together(header, body, version=2))


def test_a_file_that_was_taken_apart_and_put_together_is_read() -> None:
    assert decode_schedule(put_together(*taken_apart(encode_schedule(RING)))) == RING


def test_a_schedule_that_is_not_the_one_saved_is_refused() -> None:
    header, body = taken_apart(encode_schedule(RING))
    with pytest.raises(FormatError, match="its digest does not match"):
        decode_schedule(put_together(header | {"digest": "0" * 64}, body))


def changed_columns(header: dict[str, Any], name: str, changes: dict[str, Any]) -> dict[str, Any]:
    records = [record | (changes if record["name"] == name else {}) for record in header["columns"]]
    return header | {"columns": records}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("step", {"count": limits.MAX_TRANSFERS + 1}, "header: column step: 33,554,433 is more than"),
        ("weights", {"count": limits.MAX_CHUNKS + 1}, "header: column weights: 16,777,217 is more than"),
        (
            "route_links",
            {"count": limits.MAX_ROUTE_ENTRIES + 1},
            "header: column route_links: 67,108,865 is more",
        ),
        ("route_offsets", {"count": limits.MAX_TRANSFERS + 2}, "header: column route_offsets: 33,554,434 is"),
        ("step", {"count": 1 << 62}, "header: cannot be read"),
        ("step", {"count": -1}, "header: cannot be read"),
        ("step", {"count": 25}, "header: the columns step, .* differ in length"),
        ("route_links", {"count": limits.MAX_ROUTE_ENTRIES}, "route_links: claims to hold 268,435,456 bytes"),
        ("route_offsets", {"count": 2}, "column route_offsets: does not hold the 16 bytes it claims"),
        ("route_offsets", {"count": 0}, "column route_offsets: does not hold the 0 bytes it claims"),
        ("step", {"stored": 5}, "cut short, or followed by something else"),
        ("step", {"name": "chunk"}, "expected the columns weights, source, .*, each once"),
        ("step", {"name": "colour"}, "expected the columns"),
    ],
)
def test_a_header_that_lies_is_found_out_before_anything_is_allocated(
    name: str, changes: dict[str, Any], message: str
) -> None:
    header, body = taken_apart(encode_schedule(RING))
    data = put_together(changed_columns(header, name, changes), body)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=message):
            decode_schedule(data)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_all_columns_together_are_bounded() -> None:
    with pytest.raises(FormatError, match="header: bytes of the columns: 1,073,742,300 is more than the"):
        decode_schedule(encode_schedule(RING), bytes_before=limits.MAX_COLUMN_BYTES - 100)


def test_columns_that_would_take_too_long_to_unpack_are_refused_before() -> None:
    header, body = taken_apart(encode_schedule(RING))
    rows = limits.MAX_TRANSFERS
    for record in header["columns"]:
        if record["name"] in TRANSFER_COLUMNS:
            record["count"] = rows
    data = put_together(header, body)
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="reading it: about 14,000,000,000 operations"):
            decode_schedule(data, "ring.weft")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(FormatError, match="column step"):
        decode_schedule(data, "ring.weft", max_work=2e10)


def test_a_bomb_is_never_unpacked_beyond_what_it_claims() -> None:
    header, body = taken_apart(encode_schedule(RING))
    bomb = zlib.compress(bytes(30 << 20))
    stored = next(record["stored"] for record in header["columns"] if record["name"] == "weights")
    lying = changed_columns(header, "weights", {"stored": len(bomb)})
    data = put_together(lying, bomb + body[stored:])
    big_header = put_together(bytes(30 << 20), body, claimed=1000)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="column weights: does not hold the 32 bytes it claims"):
            decode_schedule(data)
        with pytest.raises(FormatError, match="header: does not hold the 1,000 bytes it claims"):
            decode_schedule(big_header)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "header: cannot be read"),
        (b"\xc1", "header: cannot be read"),
        (b"\x91" * 100_000, "header: cannot be read"),
        (b"\x81\xa1x" * 100_000, "header: cannot be read"),
        ({"collective": 1}, "header: cannot be read: Expected `str`, got `int`"),
        (b"\x81\xaacollective\xa1\xff", "header: cannot be read"),
    ],
)
def test_a_header_that_is_no_header_is_refused(header: object, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_schedule(put_together(header, b""))


def test_an_illegal_schedule_in_a_sound_file_is_refused() -> None:
    header, body = taken_apart(encode_schedule(RING))
    for change, message in (
        ({"collective": "sum"}, "collective 'sum' is unknown"),
        ({"denominator": 5}, "sum to 4, not to the denominator 5"),
        (
            {"topology": header["topology"] | {"ranks": 3, "switches": 1, "grid": None}},
            "source|target|src|dst|owns",
        ),
    ):
        with pytest.raises(FormatError, match=message):
            decode_schedule(put_together(header | change, body), "f.weft")


def outcome(data: bytes) -> Schedule | None:
    """What decoding gives; anything but a schedule or a WeftError fails the test."""
    try:
        return decode_schedule(data)
    except WeftError:
        return None


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes changed, cut out, put in."""
    mutated = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(mutated)))
        length = draw(st.sampled_from([0, 1, 1, 2, 8]))
        mutated[start : start + length] = draw(st.binary(max_size=8))
    return bytes(mutated)


FILES = [(schedule, encode_schedule(schedule)) for schedule in SAMPLES]


@examples(200)
@given(st.data())
def test_mutated_files_give_the_equal_schedule_or_an_error(data: st.DataObject) -> None:
    schedule, file = data.draw(st.sampled_from(FILES))
    assert outcome(data.draw(mutations(file))) in (None, schedule)


@examples(200)
@given(st.data())
def test_mutations_under_a_right_checksum_never_crash(data: st.DataObject) -> None:
    schedule, file = data.draw(st.sampled_from(FILES))
    assert outcome(seal(data.draw(mutations(file[:-4])))) in (None, schedule)


@examples(200)
@given(st.data())
def test_mutated_headers_under_a_right_checksum_never_crash(data: st.DataObject) -> None:
    _, file = data.draw(st.sampled_from(FILES))
    header, body = taken_apart(file)
    outcome(put_together(data.draw(mutations(msgspec.msgpack.encode(header))), body))


COLUMN = st.lists(st.integers(-3, 6), max_size=8)


@examples(200)
@given(st.data())
def test_arbitrary_columns_under_a_right_checksum_never_crash(data: st.DataObject) -> None:
    schedule, file = data.draw(st.sampled_from(FILES))
    header, _ = taken_apart(file)
    blobs = []
    for record in header["columns"]:
        kept = getattr(schedule, record["name"])
        numbers = (
            data.draw(COLUMN) if data.draw(st.integers(0, 3)) == 0 else np.diff(kept, prepend=0).tolist()
        )
        blobs.append(zlib.compress(np.array(numbers, np.int64).astype(kept.dtype).tobytes()))
        record |= {"count": len(numbers), "stored": len(blobs[-1])}
    assert outcome(put_together(header, b"".join(blobs))) in (None, schedule)


JSON_FILES = [(schedule, schedule_to_json(schedule)) for schedule in SAMPLES]


@examples(200)
@given(st.data())
def test_mutated_json_never_crashes(data: st.DataObject) -> None:
    _, file = data.draw(st.sampled_from(JSON_FILES))
    outcome(data.draw(mutations(file)))


def test_the_op_of_a_row_is_a_word_in_json() -> None:
    text = schedule_to_json(RING)
    assert text.count(b'"reduce"') == int((RING.op == Op.REDUCE).sum())
    assert schedule_from_json(text.decode()) == RING


# files that are small and claim to be large


def test_columns_of_different_length_are_refused_before_they_are_unpacked() -> None:
    header, body = taken_apart(encode_schedule(RING))
    many = zlib.compress(bytes(4 * limits.MAX_TRANSFERS), 9)
    position = next(i for i, column in enumerate(header["columns"]) if column["name"] == "chunk")
    starts = np.cumsum([0, *(column["stored"] for column in header["columns"])]).tolist()
    header["columns"][position] = {"name": "chunk", "count": limits.MAX_TRANSFERS, "stored": len(many)}
    bomb = put_together(header, body[: starts[position]] + many + body[starts[position + 1] :])
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"header: the columns step, chunk, .* differ in length"):
        decode_schedule(bomb)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"notes": [""] * (limits.MAX_NOTES + 1)},
        {"notes": ["n" * 5000]},
        {"algorithm": "a" * 5000},
        {"digest": "d" * 5000},
        {"columns": [{"name": "step", "count": 0, "stored": 0}] * 100},
    ],
)
def test_a_header_has_bounded_parts(change: dict[str, Any]) -> None:
    header, body = taken_apart(encode_schedule(RING))
    with pytest.raises(FormatError, match="header: cannot be read: Expected `"):
        decode_schedule(put_together({**header, **change}, body))


def test_a_header_is_bounded_as_a_whole() -> None:
    header, body = taken_apart(encode_schedule(RING))
    header["topology"]["host_ranks"] = [0] * (limits.MAX_HEADER_BYTES + 1)
    with pytest.raises(FormatError, match="header: does not hold the"):
        decode_schedule(put_together(header, body))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"host_ranks": [0] * 100_000}, "Expected `array` of length <= 65536"),
        ({"host_sizes": [2], "host_ranks": [0, 1, 2, 3]}, "hosts of 2 ranks in all, but 4 are named"),
        ({"host_sizes": [2, 2], "host_ranks": [0, 1, 2, 2]}, "every rank 0..3 exactly once"),
        ({"addresses": [[0, "a", "b"]] * 140_000}, "Expected `array` of length <= 131072"),
    ],
)
def test_hosts_and_addresses_are_bounded(change: dict[str, Any], message: str) -> None:
    header, body = taken_apart(encode_schedule(RING))
    header["topology"].update(change)
    with pytest.raises(FormatError, match=message):
        decode_schedule(put_together(header, body))
