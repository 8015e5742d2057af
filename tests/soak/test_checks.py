"""What a soak test compares: the expected values, every element, and what lies around an array."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from weft.soak.guarded_arrays import count_wrong_elements, input_values, make_block, result_values
from weft.soak.random_operations import DTYPES, MEMORY, Memory
from weft.soak.settings import MOST_RANKS

FOLD = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


class Alone:
    """A communicator whose shared memory is that of the process."""

    def empty(self, elements: int, dtype: str) -> np.ndarray:
        return np.empty(elements, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", FOLD)
def test_results_are_exact_in_any_order_of_ranks(op: str, dtype: str) -> None:
    if op == "avg" and not dtype.startswith("float"):
        return
    for ranks in (2, 3, MOST_RANKS):
        inputs = [input_values(rank, op, ranks, dtype).view(dtype) for rank in range(ranks)]
        forward = reduce(FOLD[op], inputs)
        backward = reduce(FOLD[op], reversed(inputs))
        assert forward.dtype == np.dtype(dtype)
        for found in (forward, backward):
            found = found / np.asarray(ranks, dtype) if op == "avg" else found
            np.testing.assert_array_equal(found, result_values(op, ranks, dtype).view(dtype))
        assert len({one.tobytes() for one in inputs}) == ranks


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("elements", [0, 1, 2, 7, 30, 20_000])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_block_holds_what_was_written_and_nothing_around_it_changes(
    memory: Memory, elements: int, dtype: str
) -> None:
    values = input_values(0, "sum", 2, dtype)
    block = make_block(Alone(), memory, elements, dtype)
    block.write(values, 17)
    assert (block.array.size, block.array.dtype) == (elements, np.dtype(dtype))
    assert count_wrong_elements(block.array, values, 17) == 0
    assert block.count_overwritten() == 0
    expected = np.resize(np.roll(values, -17), elements)
    np.testing.assert_array_equal(block.array.reshape(-1).view(values.dtype), expected)


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("place", [0, 1, 9_999, 19_999])
def test_one_bit_that_is_wrong_is_counted(memory: Memory, place: int) -> None:
    values = input_values(0, "sum", 2, "float32")
    block = make_block(Alone(), memory, 20_000, "float32")
    block.write(values, 5)
    where = np.unravel_index(place, block.array.shape)
    block.array[where] = (block.array[where].view(np.uint32) ^ np.uint32(1)).view(np.float32)
    assert count_wrong_elements(block.array, values, 5) == 1
    assert block.count_overwritten() == 0


@pytest.mark.parametrize("memory", ["inside", "private", "strided", "columns"])
def test_elements_before_behind_and_between_are_guarded(memory: Memory) -> None:
    block = make_block(Alone(), memory, 30, "int32")
    base = block.array
    while base.base is not None:
        base = base.base
    block.array[...] = 1
    assert block.count_overwritten() == 0
    for changed, place in enumerate((0, base.size - 1), 1):
        base[place] ^= 1
        assert block.count_overwritten() == changed
    if memory == "strided":
        base[4] ^= 1
        assert block.count_overwritten() == 3


def test_a_piece_is_compared_from_its_own_place_in_the_pattern() -> None:
    values = input_values(1, "sum", 3, "int64")
    whole = np.resize(np.roll(values, -100), 30_000).view(np.int64)
    assert count_wrong_elements(whole[12_345:], values, 100 + 12_345) == 0
    assert count_wrong_elements(whole[12_345:], values, 100 + 12_344) > 1000
