"""Inputs and expected results of a soak test: whole numbers, so that every sum is exact."""

from __future__ import annotations

from functools import cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.bench.data import FOLD, encode, pattern

if TYPE_CHECKING:
    from numpy.typing import NDArray


@cache
def input_values(rank: int, op: str, ranks: int, dtype: str) -> NDArray[Any]:
    """Pattern that one rank's input repeats, as bits of the type."""
    return encode(_numbers(rank, op, ranks, dtype), dtype)


@cache
def result_values(op: str, ranks: int, dtype: str) -> NDArray[Any]:
    """Pattern that the inputs of all ranks combine to, as bits of the type."""
    total = reduce(
        FOLD["sum" if op == "avg" else op], (_numbers(rank, op, ranks, dtype) for rank in range(ranks))
    )
    return encode(total // ranks if op == "avg" else total, dtype)


def _numbers(rank: int, op: str, ranks: int, dtype: str) -> NDArray[np.int64]:
    if op == "avg":  # multiples of the number of ranks have a whole average
        return ranks * pattern(rank, "sum", ranks, dtype)
    return pattern(rank, op, ranks, dtype)
