"""Cutting a buffer into whole elements."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schedules import relayed_all_to_all, routed_all_reduce

from weft.errors import ScheduleError
from weft.schedule import ScheduleBuilder
from weft.schedule.chunks import largest_remainder, make_condition
from weft.topology import load_topology


@given(
    total=st.integers(0, 2**50),
    weights=st.lists(st.integers(0, 2**40), min_size=1, max_size=20).filter(any),
)
def test_parts_sum_exactly_and_are_within_one_of_exact(total: int, weights: list[int]) -> None:
    parts = largest_remainder(total, np.array(weights, np.int64)).tolist()
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - Fraction(total * weight, sum(weights))) < 1


@given(total=st.integers(0, 1000), weights=st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any))
def test_small_and_large_numbers_are_cut_alike(total: int, weights: list[int]) -> None:
    # The same shares, but too large for 64-bit products: another path through the code.
    large = np.array(weights, np.int64) * 2**55
    assert largest_remainder(total, large).tolist() == largest_remainder(total, large >> 55).tolist()


def test_ties_go_to_the_first() -> None:
    assert largest_remainder(3, np.array([1, 1, 2, 2, 2])).tolist() == [0, 0, 1, 1, 1]
    assert largest_remainder(2, np.array([2, 1, 2, 2])).tolist() == [1, 0, 1, 0]


def test_a_chunk_without_weight_gets_nothing() -> None:
    assert largest_remainder(7, np.array([0, 3, 0, 4])).tolist() == [0, 3, 0, 4]


def test_chunks_of_an_all_reduce_follow_their_weights() -> None:
    schedule = routed_all_reduce()
    assert schedule.chunk_bytes(8).tolist() == [6, 2]
    assert schedule.chunk_bytes(40, element_bytes=4).tolist() == [32, 8]


@pytest.mark.parametrize(("size", "element"), [(7, 4), (-4, 4), (4, 0), (4, -1)])
def test_a_buffer_is_a_whole_number_of_elements(size: int, element: int) -> None:
    with pytest.raises(
        ScheduleError, match=f"{size} bytes are not a whole number of {element}-byte elements"
    ):
        routed_all_reduce().chunk_bytes(size, element)


def test_prescribed_shards_are_cut_first_and_chunks_inside_them() -> None:
    prescribed = ScheduleBuilder(load_topology("ring:3"), "reduce_scatter", "none", chunks=6).build()
    assert prescribed.chunk_bytes(8).tolist() == [2, 1, 2, 1, 1, 1]
    assert largest_remainder(8, prescribed.weights).tolist() == [2, 2, 1, 1, 1, 1]


@given(st.integers(0, 100))
def test_prescribed_shards_do_not_depend_on_how_they_are_cut(size: int) -> None:
    weights = [1, 5, 4, 2, 3, 3, 6, 0]
    owner = [0, 0, 1, 1, 2, 2, 3, 3]
    builder = ScheduleBuilder(load_topology("ring:4"), "reduce_scatter", "none", weights=weights, owner=owner)
    elements = builder.build().chunk_bytes(size)
    assert (
        elements.reshape(4, 2).sum(axis=1).tolist() == largest_remainder(size, np.ones(4, np.int64)).tolist()
    )


def test_free_shards_are_cut_by_weight() -> None:
    builder = ScheduleBuilder(
        load_topology("ring:3"), "all_gather", "none", weights=[5, 2], owner=[2, 0], ownership="free"
    )
    assert builder.build().chunk_bytes(14).tolist() == [10, 4]


def test_every_rank_of_an_all_to_all_has_its_own_buffer() -> None:
    schedule = relayed_all_to_all()
    assert schedule.chunk_bytes(7).tolist() == [3, 2, 2] * 3


def test_uneven_all_to_all_is_cut_per_sender() -> None:
    weights = [4, 0, 0, 1, 1, 2, 0, 1, 3]
    schedule = ScheduleBuilder(load_topology("ring:3"), "all_to_all", "none", weights=weights).build()
    assert schedule.denominator == 4
    assert schedule.chunk_bytes(8).tolist() == [8, 0, 0, 2, 2, 4, 0, 2, 6]


def test_the_condition_of_each_collective() -> None:
    def condition(collective: str, chunks: int = 2, **options: object) -> tuple[list[int], list[int]]:
        source, target = make_condition(collective, 3, chunks, **options)  # type: ignore[arg-type]
        return source.tolist(), target.tolist()

    assert condition("all_reduce") == ([-1, -1], [-1, -1])
    assert condition("broadcast", root=2) == ([2, 2], [-1, -1])
    assert condition("reduce", root=2) == ([-1, -1], [2, 2])
    assert condition("all_gather", owner=[1, 0]) == ([1, 0], [-1, -1])
    assert condition("reduce_scatter", owner=[1, 0]) == ([-1, -1], [1, 0])
    assert condition("all_to_all", 9) == ([0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2] * 3)


@pytest.mark.parametrize(
    ("collective", "options", "message"),
    [
        ("broadcast", {"root": 3}, "root 3 is not a rank 0..2"),
        ("reduce", {"root": -1}, "root -1 is not a rank 0..2"),
        ("all_gather", {}, "all_gather needs an owner for each chunk"),
        ("reduce_scatter", {"owner": [0.5, 1]}, "column owner: expected whole numbers"),
        ("all_to_all", {}, "all_to_all on 3 ranks has 9 chunks, not 2"),
    ],
)
def test_a_condition_that_cannot_be_is_refused(
    collective: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        make_condition(collective, 3, 2, **options)  # type: ignore[arg-type]
