"""Collecting rows: one order, one digest, whatever the order they came in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import limits
from weft.errors import InputError, LimitError, ScheduleError
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.schedule.ir import CANONICAL_ORDER
from weft.topology import load_topology

ROWS = st.tuples(
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 1),
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 3),
)


def new(collective: str = "all_reduce", **options: Any) -> ScheduleBuilder:
    return ScheduleBuilder(load_topology("ring:4"), collective, "test", **options)


def built(rows: list[tuple[int, ...]], *, at_once: bool) -> Schedule:
    builder = new()
    assert [builder.route([0, 2]), builder.route([3])] == [0, 1]
    table = np.array(rows)
    table[:, 2] = (table[:, 1] + table[:, 2]) % 4
    for block in [table] if at_once else table:
        builder.add(**{name: block.T[index] for index, name in enumerate(CANONICAL_ORDER)})
    return builder.build()


@given(
    st.lists(ROWS, min_size=1, max_size=12).flatmap(
        lambda rows: st.tuples(st.just(rows), st.permutations(rows))
    )
)
def test_rows_come_out_in_one_order_whichever_way_they_go_in(rows: tuple[Any, Any]) -> None:
    first, second = built(rows[0], at_once=True), built(rows[1], at_once=False)
    assert first.digest == second.digest
    found = []
    for name in CANONICAL_ORDER:
        column = getattr(first, name)
        found.append([0] * first.transfers if column is None else column.tolist())
    keys = list(zip(*found, strict=True))
    assert keys == sorted(keys)


def test_arguments_broadcast_together() -> None:
    builder = new()
    builder.add(step=[[0], [1]], chunk=[0, 1, 2], src=0, dst=[[1], [2]], op=Op.REDUCE)
    schedule = builder.build()
    assert schedule.step.tolist() == [0, 0, 0, 1, 1, 1]
    assert schedule.chunk.tolist() == [0, 1, 2, 0, 1, 2]
    assert schedule.dst.tolist() == [1, 1, 1, 2, 2, 2]
    assert schedule.messages == 2


def test_a_topology_is_whatever_can_be_loaded_and_an_operation_may_be_named() -> None:
    schedules = []
    for topology, ops in (("ring:4", ["copy", "reduce"]), (load_topology("ring:4"), [Op.COPY, Op.REDUCE])):
        builder = ScheduleBuilder(topology, "all_reduce", "test")
        builder.add(step=0, chunk=[0, 1], src=0, dst=[1, 2], op=ops)
        builder.add(step=1, chunk=0, src=0, dst=3, op=ops[0])
        schedules.append(builder.build())
    assert schedules[0].digest == schedules[1].digest


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ScheduleError, match="op: 'add' is unknown, expected copy or reduce"):
        new().add(step=0, chunk=0, src=0, dst=1, op="add")


def test_an_unknown_collective_is_refused_at_once() -> None:
    with pytest.raises(ScheduleError, match="collective 'allreduce' is unknown, expected one of all_reduce"):
        new("allreduce")


def test_columns_that_do_not_fit_together_are_named() -> None:
    with pytest.raises(ScheduleError, match=r"fit together: src \(2,\), dst \(3,\)$"):
        new().add(step=0, chunk=0, src=[0, 1], dst=[1, 2, 3], op=Op.COPY)


def test_a_block_is_copied_when_it_is_added() -> None:
    builder = new()
    chunk = np.arange(4, dtype=np.int32)
    builder.add(step=0, chunk=chunk, src=0, dst=1, op=Op.COPY)
    chunk[:] = 0
    assert builder.build().chunk.tolist() == [0, 1, 2, 3]


def test_equal_routes_share_a_number() -> None:
    builder = new()
    assert builder.route([0, 2]) == 0
    assert builder.route(np.array([3], np.int32)) == 1  # type: ignore[arg-type]
    assert builder.route((0, 2)) == 0
    schedule = builder.build()
    assert schedule.route_offsets.tolist() == [0, 2, 3]
    assert schedule.route_links.tolist() == [0, 2, 3]


def test_slot_columns_appear_only_where_slots_are_used() -> None:
    builder = new()
    builder.add(step=0, chunk=0, src=0, dst=1, op=Op.COPY)
    assert builder.build().src_slot is None
    builder = new()
    builder.add(step=0, chunk=0, src=0, dst=1, op=Op.COPY)
    builder.add(step=0, chunk=0, src=0, dst=0, op=Op.COPY, dst_slot=2)
    schedule = builder.build()
    assert schedule.dst_slot is not None
    assert schedule.dst_slot.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("collective", "options", "chunks", "ownership"),
    [
        ("all_reduce", {}, 4, "none"),
        ("all_reduce", {"chunks": 7}, 7, "none"),
        ("broadcast", {"weights": [1, 2, 3]}, 3, "none"),
        ("all_to_all", {}, 16, "none"),
        ("all_gather", {}, 4, "prescribed"),
        ("reduce_scatter", {"chunks": 8}, 8, "prescribed"),
        ("reduce_scatter", {"chunks": 2, "owner": [3, 1], "ownership": "free"}, 2, "free"),
    ],
)
def test_what_is_left_out_follows_from_the_collective(
    collective: str, options: dict[str, Any], chunks: int, ownership: str
) -> None:
    schedule = new(collective, **options).build()
    assert (schedule.chunks, schedule.ownership) == (chunks, ownership)


def test_notes_are_kept_in_order() -> None:
    builder = new()
    builder.note("one")
    builder.note("two")
    assert builder.build().notes == ("one", "two")


def test_a_builder_builds_once() -> None:
    builder = new()
    builder.build()
    with pytest.raises(ScheduleError, match="test: the schedule was built already"):
        builder.build()


@pytest.mark.parametrize("chunks", [2, 6])
def test_chunks_that_cannot_be_dealt_out_need_owners(chunks: int) -> None:
    with pytest.raises(ScheduleError, match=f"{chunks} chunks cannot be dealt to 4 owners evenly"):
        new("all_gather", chunks=chunks)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"step": 2**31}, "column step: 2147483648 is outside"),
        ({"chunk": np.array([2**40])}, "column chunk: 1099511627776 is outside"),
        ({"src": 0.5}, "column src: expected whole numbers"),
        ({"chunk": [0, 1], "src": [0, 1, 2]}, r"test: .* do not fit together: src \(3,\), chunk"),
    ],
)
def test_rows_that_do_not_fit_are_refused_when_they_are_added(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        new().add(**({"step": 0, "chunk": 0, "src": 0, "dst": 1, "op": Op.COPY} | row))


def test_too_many_rows_are_refused_when_they_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TRANSFERS", 3)
    builder = new()
    builder.add(step=0, chunk=[0, 1], src=0, dst=1, op=Op.COPY)
    with pytest.raises(LimitError, match="test: transfers: 4 is more than the 3"):
        builder.add(step=0, chunk=[2, 3], src=0, dst=1, op=Op.COPY)


def test_an_op_that_is_none_is_refused() -> None:
    builder = new()
    builder.add(step=0, chunk=0, src=0, dst=1, op=256)
    with pytest.raises(ScheduleError, match=r"column op: 256 is outside 0\.\.255"):
        builder.build()


def test_a_negative_step_is_refused_wherever_it_comes() -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "early", chunks=1)
    builder.add(step=[3, -5, -9], chunk=0, src=0, dst=1, op=Op.COPY)
    with pytest.raises(ScheduleError, match="step -9 is outside"):
        builder.build()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunks": 0}, "cannot be cut into 0 chunks"),
        ({"chunks": -1}, "cannot be cut into -1 chunks"),
        ({"chunks": 2.5}, "chunks: expected a whole number"),
        ({"weights": 5}, "column weights: expected one dimension"),
        ({"weights": [1, 2], "chunks": 3}, "2 weights for 3 chunks"),
    ],
)
def test_a_cut_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        ScheduleBuilder(load_topology("ring:4"), "all_reduce", "odd", **options)


@pytest.mark.parametrize("links", [[2**40], [-1], [8], [0.5], 3])
def test_a_route_names_links_that_are_there(links: Any) -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "all_reduce", "odd")
    with pytest.raises(ScheduleError, match="route"):
        builder.route(links)


def test_a_route_that_goes_in_circles_is_refused() -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "dizzy", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=1, op=Op.COPY, route=builder.route([0, 1] * 4 + [0]))
    with pytest.raises(ScheduleError, match="crosses 9 links, more than there are"):
        builder.build()


@pytest.mark.parametrize(
    ("algorithm", "note"), [(None, ""), ("a" * 5000, ""), ("fine", 7), ("fine", "n" * 5000)]
)
def test_texts_are_text_and_bounded(algorithm: Any, note: Any) -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "all_reduce", algorithm)
    builder.note(note)
    with pytest.raises(InputError):
        builder.build()
