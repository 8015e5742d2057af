"""Rows are sorted by all of their columns, whether these fit into one word or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.columns import row_order


@pytest.mark.parametrize("most", [2, 1000, np.iinfo(np.int32).max])
@given(
    rows=st.integers(2, 200), columns=st.integers(1, 8), steps=st.integers(1, 20), seed=st.integers(0, 2**32)
)
def test_rows_are_in_the_order_of_numpy(most: int, rows: int, columns: int, steps: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    table = [draw.integers(0, steps, rows), *(draw.integers(-1, most, rows) for _ in range(columns - 1))]
    expected = np.lexsort(table[::-1])
    found = row_order(table)
    assert (np.arange(rows) if found is None else found).tolist() == expected.tolist()
