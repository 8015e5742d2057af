"""Inputs whose results are known exactly, and what is found wrong with results that are not."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from support.bfloat16 import widen

from weft.bench.data import count_wrong, count_wrong_results, encode, fill, fill_input, pattern
from weft.bench.task import COLLECTIVES, ITEM_BYTES, OPS, BenchTask, make_tasks

FOLD = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("ranks", [1, 2, 8, 256])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_results_are_whole_numbers_that_the_type_holds(dtype: str, op: str, ranks: int) -> None:
    total = reduce(FOLD[op], [pattern(rank, op, ranks, dtype) for rank in range(ranks)])
    coded = encode(total, dtype)
    found = widen(coded) if dtype == "bfloat16" else coded.view(dtype)
    assert np.array_equal(found.astype(np.int64), total)
    assert np.all(total != 0)


@pytest.mark.parametrize("size", [0, 1, 8190, 8191, 8192, 50_000])
@pytest.mark.parametrize("phase", [0, 1, 8190])
def test_a_filled_array_has_nothing_wrong_and_each_change_counts(size: int, phase: int) -> None:
    values = encode(pattern(0, "sum", 2, "float32"), "float32")
    array = np.empty(size, np.uint32)
    fill(array, values, phase)
    assert count_wrong(array, values, phase) == 0
    for place in {0, size // 2, size - 1} & set(range(size)):
        array[place] += 1
        assert count_wrong(array, values, phase) == 1
        array[place] -= 1


def test_a_piece_in_the_wrong_place_is_found() -> None:
    values = encode(pattern(0, "sum", 2, "float32"), "float32")
    array = np.empty(1 << 16, np.uint32)
    fill(array, values)
    array[:4096], array[4096:8192] = array[4096:8192].copy(), array[:4096].copy()
    assert count_wrong(array, values) > 4096


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_no_one_computed_is_wrong(collective: str) -> None:
    task = BenchTask(collective, "float32", "sum", 2, 1000)
    own = np.empty(4 * task.output_elements, np.uint8)
    fill_input(task, 1, own)
    assert count_wrong_results(task, 1, own) > 100


def test_sizes_are_those_of_nccl_tests() -> None:
    tasks = make_tasks("reduce_scatter", "float16", "sum", 3, 10, 100, 3)
    assert [(task.size_bytes, task.count) for task in tasks] == [(6, 1), (30, 5), (90, 15)]
    assert [task.size_bytes for task in make_tasks("all_reduce", "int64", "sum", 2, 1, 16, 2)] == [8, 16]


@pytest.mark.parametrize(
    ("collective", "factor", "touched"),
    [("all_reduce", 1.5, 8), ("reduce_scatter", 0.75, 5), ("all_gather", 0.75, 5), ("broadcast", 1, 4)],
)
def test_speeds_are_judged_as_nccl_tests_does(collective: str, factor: float, touched: int) -> None:
    task = BenchTask(collective, "float32", "sum", 4, 1024)
    assert task.bus_factor == factor
    assert task.touched_bytes == touched * task.size_bytes
