"""Test data whose result is known exactly: small whole numbers, so that no order of additions rounds.

Each rank's input repeats a pattern of its own, of a length that is prime. So the expected result repeats too
and is cheap to compute, and a piece that ends up in the wrong place does not fit there.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.bench.task import BenchTask

_PERIOD: Final = 8191
_EXACT: Final = {"float16": 2048, "bfloat16": 256}
"""Largest whole number below which every one can be represented; other types have room enough."""

_LARGEST: Final = 7
FOLD: Final = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def encode(values: NDArray[np.int64], dtype: str) -> NDArray[Any]:
    """Whole numbers as the bits of a type, in unsigned integers of its size."""
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    numbers = values.astype(dtype)
    return numbers.view(f"u{numbers.itemsize}")


def pattern(rank: int, op: str, ranks: int, dtype: str) -> NDArray[np.int64]:
    """What one rank's input repeats."""
    random = np.random.default_rng([rank, _PERIOD])
    if op == "prod":  # at each place one rank has a 2, so that the product stays small
        places = np.arange(_PERIOD) % ranks == rank
        return random.choice([-1, 1], _PERIOD) * np.where(places, 2, 1)
    most = _EXACT.get(dtype, 1 << 24)
    top = most // ranks if op == "sum" else most
    return random.integers(1, max(1, min(_LARGEST, top)), _PERIOD, endpoint=True)


def fill(target: NDArray[Any], values: NDArray[Any], phase: int = 0) -> None:
    """Repeat a pattern over an array, beginning at `phase`."""
    values = np.roll(values, -phase)
    whole = target.size // values.size * values.size
    target[:whole].reshape(-1, values.size)[...] = values
    target[whole:] = values[: target.size - whole]


def count_wrong(found: NDArray[Any], values: NDArray[Any], phase: int = 0) -> int:
    """How many elements differ from the repeated pattern, bit by bit."""
    values = np.roll(values, -phase)
    whole = found.size // values.size * values.size
    rows = found[:whole].reshape(-1, values.size)
    wrong = sum(int(np.count_nonzero(row != values)) for row in rows)
    return wrong + int(np.count_nonzero(found[whole:] != values[: found.size - whole]))


def fill_input(task: BenchTask, rank: int, source: NDArray[np.uint8]) -> None:
    """Write one rank's input."""
    values = encode(pattern(rank, task.op, task.ranks, task.dtype), task.dtype)
    fill(source.view(values.dtype), values)


def fill_neutral(task: BenchTask, target: NDArray[np.uint8]) -> None:
    """Write what stays the same however often it is reduced, so that timing meets no infinities."""
    value = encode(np.array([0 if task.op == "sum" else 1]), task.dtype)
    target.view(value.dtype)[...] = value[0]


def count_wrong_results(task: BenchTask, rank: int, found: NDArray[np.uint8]) -> int:
    """How many elements of one rank's result are not what they should be."""
    patterns = [pattern(other, task.op, task.ranks, task.dtype) for other in range(task.ranks)]
    coded = [encode(values, task.dtype) for values in patterns]
    result = found.view(coded[0].dtype)
    if task.collective == "all_gather":
        parts = result.reshape(task.ranks, -1)
        return sum(count_wrong(part, values) for part, values in zip(parts, coded, strict=True))
    if task.collective == "broadcast":
        return count_wrong(result, coded[0])
    total = encode(reduce(FOLD[task.op], patterns), task.dtype)
    phase = rank * task.output_elements if task.collective == "reduce_scatter" else 0
    return count_wrong(result, total, phase % _PERIOD)
