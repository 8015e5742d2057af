"""What is a legal schedule, what is not, and that a schedule is a value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from support.schedules import all_gathers, columns, relayed_all_to_all, ring_all_reduce, routed_all_reduce

from weft import limits
from weft.errors import LimitError, ScheduleError
from weft.schedule import Op, Schedule
from weft.schedule.ir import COLUMNS
from weft.topology import load_topology

ROWS = 6
LINKS = load_topology("ring:4").links

ILLEGAL: list[tuple[str, dict[str, Any], str]] = [
    (
        "unknown collective",
        {"collective": "allreduce"},
        "'allreduce' is unknown, expected one of all_reduce, ",
    ),
    ("unknown ownership", {"ownership": "mine"}, "ownership 'mine' is unknown"),
    ("no chunks", {"weights": [], "source": [], "target": []}, "0 weights.*need one of each per chunk"),
    ("too few sources", {"source": [0]}, "2 weights, 1 sources, 2 targets"),
    ("too many targets", {"target": [-1] * 3}, "2 weights, 2 sources, 3 targets"),
    ("negative weight", {"weights": [3, -1]}, "chunk 1: a weight must not be negative"),
    (
        "weights that do not sum up",
        {"weights": [1, 2]},
        "weights of the buffer sum to 3, not to the denominator 2",
    ),
    (
        "weights whose sum wraps",
        {"weights": [2**62] * 4 + [2], "source": [0] * 5, "target": [-1] * 5},
        "sum to",
    ),
    ("no weight at all", {"weights": [0, 0], "denominator": 0}, "denominator 0 is outside"),
    ("huge denominator", {"denominator": 2**64}, "denominator: a number of"),
    ("source that is no rank", {"source": [4, 4]}, "source of a chunk must be -1 or a rank 0..3"),
    ("target that is no rank", {"target": [-2, -1]}, "target of a chunk must be -1 or a rank 0..3"),
    ("two roots", {"source": [0, 1]}, "source and target of the chunks do not describe broadcast"),
    ("root of all", {"source": [-1, -1]}, "root -1 is not a rank"),
    ("target of one", {"target": [-1, 3]}, "do not describe broadcast"),
    (
        "owners where there are none",
        {"ownership": "free"},
        "broadcast with ownership 'free': it must be none",
    ),
    (
        "no ownership where there are owners",
        {"collective": "all_gather"},
        "all_gather with ownership 'none': it must be free or prescribed",
    ),
    (
        "a chunk without owner",
        {"collective": "all_gather", "ownership": "free", "source": [0, -1]},
        "chunk 1: all_gather needs an owner",
    ),
    (
        "an owner's chunks apart",
        {
            "collective": "all_gather",
            "ownership": "free",
            "weights": [1] * 3,
            "denominator": 3,
            "source": [0, 1, 0],
            "target": [-1] * 3,
        },
        "each owner's chunks must be contiguous",
    ),
    (
        "prescribed owners out of order",
        {
            "collective": "all_gather",
            "ownership": "prescribed",
            "weights": [1] * 4,
            "denominator": 4,
            "source": [1, 0, 2, 3],
            "target": [-1] * 4,
        },
        "prescribed ownership: rank r owns the r-th equal shard",
    ),
    (
        "prescribed shards of different size",
        {
            "collective": "reduce_scatter",
            "ownership": "prescribed",
            "weights": [1, 1, 1, 2],
            "denominator": 5,
            "source": [-1] * 4,
            "target": [0, 1, 2, 3],
        },
        "prescribed ownership: rank r owns the r-th equal shard",
    ),
    (
        "all_to_all with a chunk missing",
        {"collective": "all_to_all"},
        "all_to_all on 4 ranks has 16 chunks, not 2",
    ),
    (
        "all_to_all with an uneven buffer",
        {
            "collective": "all_to_all",
            "weights": [1] * 8 + [2, 0, 0, 0] + [1] * 4,
            "denominator": 4,
            "source": np.arange(16) // 4,
            "target": np.arange(16) % 4,
        },
        "weights of rank 2's buffer sum to 2, not to the denominator 4",
    ),
    ("short column", {"dst": [1, 1, 2, 2, 3]}, "column dst has 5 rows, step has 6"),
    ("long column", {"op": [0] * 7}, "column op has 7 rows, step has 6"),
    ("negative step", {"step": [-1, 0, 1, 1, 2, 2]}, "transfer 0: step -1 is outside 0"),
    ("chunk that is not there", {"chunk": [0, 1, 0, 2, 0, 1]}, "transfer 3: chunk 2 is outside 0..1"),
    ("src that is not there", {"src": [0, 0, 1, 1, 2, 4]}, "transfer 5: src 4 is outside 0..3"),
    ("dst that is not there", {"dst": [1, -1, 2, 2, 3, 3]}, "transfer 1: dst -1 is outside 0..3"),
    ("unknown op", {"op": [0, 0, 2, 0, 0, 0]}, "transfer 2: op 2 is outside 0..1"),
    ("negative op", {"op": [0, 0, -1, 0, 0, 0]}, "column op: -1 is outside 0..255"),
    ("route that is not there", {"route": [-1, 0, -1, -1, -1, -1]}, "transfer 1: route 0 is outside"),
    ("route below the default", {"route": [-2] * ROWS}, "transfer 0: route -2 is outside"),
    ("step that comes late", {"step": [0, 0, 1, 1, 2, 1]}, "transfer 5: step 1 comes after a later one"),
    ("send to itself", {"dst": [1, 1, 1, 2, 3, 3]}, "transfer 2: rank 1 sends to itself, into the same slot"),
    ("one slot column", {"src_slot": [0] * ROWS}, "src_slot and dst_slot must be given together"),
    (
        "slot that is not there",
        {"src_slot": [limits.MAX_SLOTS] * ROWS, "dst_slot": [0] * ROWS},
        f"transfer 0: src_slot {limits.MAX_SLOTS} is outside 0..{limits.MAX_SLOTS - 1}",
    ),
    ("route table without a start", {"route_offsets": []}, "offsets must rise from 0"),
    ("route table that starts late", {"route_offsets": [1], "route_links": [0]}, "offsets must rise from 0"),
    (
        "route table that ends early",
        {"route_offsets": [0, 1], "route_links": [0, 1]},
        "offsets must rise from 0",
    ),
    (
        "route table that falls",
        {"route_offsets": [0, 2, 1, 2], "route_links": [0, 1]},
        "offsets must rise from 0",
    ),
    (
        "link that is not there",
        {"route_offsets": [0, 1, 2], "route_links": [0, LINKS]},
        f"route 1:.*link {LINKS}",
    ),
    (
        "number that does not fit",
        {"step": np.array([0, 0, 1, 1, 2, 2**32 + 2])},
        "column step: 4294967298 is out",
    ),
    (
        "numbers that are not whole",
        {"step": np.array([0, 0, 1, 1, 2, 2.5])},
        "column step: expected whole numbers",
    ),
    ("words", {"chunk": ["0"] * ROWS}, "column chunk: expected whole numbers"),
    ("no name", {"algorithm": None}, "the algorithm's name must be text, not NoneType"),
    ("name that is no text", {"algorithm": "\ud800"}, "is no character of Unicode text"),
    ("note that is no text", {"notes": (5,)}, "a note must be text, not int"),
    ("two dimensions", {"src": np.zeros((3, 2), np.int32)}, "column src: expected one dimension, not 2"),
]


@pytest.mark.parametrize(
    ("changes", "message"), [case[1:] for case in ILLEGAL], ids=[case[0] for case in ILLEGAL]
)
def test_an_illegal_schedule_is_refused_with_its_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule(**columns(**changes))


def test_the_unchanged_columns_are_legal() -> None:
    schedule = Schedule(**columns())
    assert (schedule.ranks, schedule.chunks, schedule.transfers, schedule.steps) == (4, 2, ROWS, 3)
    assert schedule.slots == 1
    assert repr(schedule) == "<Schedule chain broadcast on ring:4: 2 chunks, 3 steps, 6 transfers>"


def test_a_schedule_may_be_empty_of_transfers() -> None:
    empty = Schedule(**columns(**{name: [] for name in ("step", "chunk", "src", "dst", "op", "route")}))
    assert (empty.transfers, empty.steps, empty.messages, empty.slots) == (0, 0, 0, 1)


def test_too_many_chunks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CHUNKS", 1)
    with pytest.raises(LimitError, match="chunks: 2 is more than the 1"):
        Schedule(**columns())


def test_too_many_transfers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TRANSFERS", 5)
    with pytest.raises(LimitError, match="transfers: 6 is more than the 5"):
        Schedule(**columns())


def given_columns(schedule: Schedule) -> list[str]:
    return [name for name in COLUMNS if getattr(schedule, name) is not None]


def test_fields_cannot_be_assigned() -> None:
    with pytest.raises(FrozenInstanceError):
        Schedule(**columns()).algorithm = "another"  # type: ignore[misc]


@pytest.mark.parametrize("schedule", [Schedule(**columns()), relayed_all_to_all(), routed_all_reduce()])
def test_columns_can_neither_be_written_nor_made_writable(schedule: Schedule) -> None:
    for name in given_columns(schedule):
        column = getattr(schedule, name)
        assert not column.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            column.flags.writeable = True


def exact_columns() -> dict[str, Any]:
    """Arguments that already have the type of their columns, so that nothing needs to be converted."""
    given = columns(route_offsets=[0, 1], route_links=[0], src_slot=[0] * ROWS, dst_slot=[1] * ROWS)
    return {
        name: np.array(value, COLUMNS[name]) if name in COLUMNS else value for name, value in given.items()
    }


@pytest.mark.parametrize("hidden", ["writable", "read-only", "a view", "a read-only view"])
def test_later_changes_of_the_callers_arrays_do_not_matter(hidden: str) -> None:
    owned = exact_columns()
    passed = dict(owned)
    for name in COLUMNS:
        if "view" in hidden:
            passed[name] = owned[name][:]
        passed[name].flags.writeable = "read-only" not in hidden
    schedule = Schedule(**passed)
    before = {name: getattr(schedule, name).copy() for name in COLUMNS}
    for name in COLUMNS:
        owned[name].flags.writeable = True
        owned[name] += 1
        assert np.array_equal(getattr(schedule, name), before[name]), name


def test_a_pass_shares_columns_it_does_not_change() -> None:
    schedule = Schedule(**columns())
    assert np.shares_memory(replace(schedule, algorithm="another").step, schedule.step)


def test_slots_of_zero_are_no_slots() -> None:
    plain = Schedule(**columns())
    slotted = Schedule(**columns(src_slot=[0] * ROWS, dst_slot=[0] * ROWS))
    assert slotted.src_slot is None
    assert slotted == plain


def test_slots_are_counted_with_the_buffer() -> None:
    assert relayed_all_to_all().slots == 2


def test_equality_is_meaning_not_name() -> None:
    schedule = Schedule(**columns())
    renamed = Schedule(**columns(algorithm="another", notes=("remark",)))
    assert renamed == schedule
    assert hash(renamed) == hash(schedule)
    assert Schedule(**columns(chunk=[1, 0, 0, 1, 0, 1])) != schedule
    assert schedule != "schedule"


def test_the_digest_does_not_depend_on_the_types_that_were_passed() -> None:
    same = Schedule(**columns(denominator=np.int64(2), step=np.array([0, 0, 1, 1, 2, 2], ">i8")))
    assert same.digest == Schedule(**columns()).digest


def test_the_digest_depends_on_every_column_and_on_the_topology() -> None:
    base = exact_columns()
    base["collective"], base["ownership"] = "reduce_scatter", "free"
    base["source"], base["target"] = np.array([-1, -1]), np.array([0, 0])
    changed: list[dict[str, Any]] = [
        {"topology": load_topology("ring:4@bw=1GB/s")},
        {"collective": "all_gather", "source": base["target"], "target": base["source"]},
        {"weights": [2, 4], "denominator": 6},
        {"weights": [2, 2], "denominator": 4},
        {"target": [0, 1]},
        {"step": [0, 0, 1, 1, 2, 3]},
        {"chunk": [1, 0, 0, 1, 0, 1]},
        {"src": [0, 0, 1, 1, 2, 3]},
        {"dst": [1, 1, 2, 2, 3, 2]},
        {"op": [0, 0, 0, 0, 0, 1]},
        {"route": [-1, -1, -1, -1, -1, 0]},
        {"src_slot": [0, 0, 0, 0, 0, 2]},
        {"dst_slot": [1, 1, 1, 1, 1, 2]},
        {"route_offsets": [0, 1, 1]},
        {"route_links": [1]},
    ]
    digests = [Schedule(**(base | change)).digest for change in [{}, *changed]]
    assert len(set(digests)) == len(digests)


def test_digests_are_the_same_on_every_machine_and_in_every_version() -> None:
    digest = "164e2adc8572dbe7964e5be36c476bba9df965511ed2bf5652810ac0a24e602d"
    assert ring_all_reduce(load_topology("ring:4")).digest == digest


def test_messages_are_runs_of_consecutive_chunks() -> None:
    assert Schedule(**columns()).message_starts.tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    "change",
    [
        {"step": [0, 1, 1, 1, 2, 2]},
        {"chunk": [1, 0, 0, 1, 0, 1]},
        {"chunk": [0, 0, 0, 1, 0, 1]},
        {"src": [0, 3, 1, 1, 2, 2]},
        {"dst": [1, 2, 2, 2, 3, 3]},
        {"op": [0, 1, 0, 0, 0, 0]},
        {"route": [-1, 0, -1, -1, -1, -1], "route_offsets": [0, 1], "route_links": [0]},
        {"src_slot": [0, 1, 0, 0, 0, 0], "dst_slot": [0] * ROWS},
        {"src_slot": [0] * ROWS, "dst_slot": [0, 1, 0, 0, 0, 0]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_message_ends_where_anything_differs(change: dict[str, Any]) -> None:
    schedule = Schedule(**columns(**change))
    assert 1 in schedule.message_starts.tolist()
    assert schedule.messages == 4


@given(all_gathers())
def test_messages_cover_all_rows_and_are_as_long_as_they_can_be(schedule: Schedule) -> None:
    def alike(row: int) -> bool:
        fields = (schedule.step, schedule.src, schedule.dst, schedule.op, schedule.route)
        same = all(int(column[row]) == int(column[row - 1]) for column in fields)
        return same and int(schedule.chunk[row]) == int(schedule.chunk[row - 1]) + 1

    expected = [row for row in range(schedule.transfers) if row == 0 or not alike(row)]
    assert schedule.message_starts.tolist() == expected


def test_routes_are_explicit_or_the_networks_own() -> None:
    schedule = Schedule(**columns(route=[0, -1, -1, -1, -1, -1], route_offsets=[0, 3], route_links=[7, 5, 3]))
    assert schedule.route_of(0) == (7, 5, 3)
    assert schedule.route_of(1) == schedule.topology.route(0, 1)


def test_ops_have_fixed_numbers() -> None:
    assert (int(Op.COPY), int(Op.REDUCE)) == (0, 1)
