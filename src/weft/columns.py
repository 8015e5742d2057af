"""Columns of numbers that nobody can change: what topologies and schedules are made of.

The C++ half of `row_order` is ``cpp/schedule/row_order.cpp``.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from weft import _core
from weft.errors import InputError, ScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


_WORD: Final = 63


@dataclass(frozen=True, eq=False)
class Immutable:
    """A frozen dataclass of columns: it is its own copy, and equal to whatever has the same digest."""

    @cached_property
    def digest(self) -> str:
        """Names the contents, in hexadecimal digits."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        # Through the constructor, so that what arrives in another process is checked and read-only again.
        return type(self), tuple(getattr(self, part.name) for part in fields(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def whole(name: str, value: Any, error: type[InputError] = ScheduleError) -> int:
    """One whole number as a plain int, whatever type it came in; a fraction is refused, never cut off.

    Examples
    --------
    >>> whole("ranks", np.int64(8))
    8
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise error(f"{name}: expected a whole number, not {value!r:.40}")
    number = operator.index(value)
    if number.bit_length() > _WORD:
        raise error(f"{name}: a number of {number.bit_length()} bits does not fit into {_WORD}")
    return number


def whole_tuple(name: str, values: Any, error: type[InputError] = ScheduleError) -> tuple[int, ...]:
    """Several whole numbers as a tuple of plain ints.

    Examples
    --------
    >>> whole_tuple("shape", np.array([4, 4]))
    (4, 4)
    """
    try:
        each = iter(values)
    except TypeError:
        raise error(f"{name}: expected whole numbers, not {values!r:.40}") from None
    return tuple(whole(name, value, error) for value in each)


def as_whole(
    name: str, values: ArrayLike, dtype: Any, error: type[InputError] = ScheduleError
) -> NDArray[Any]:
    """Whole numbers in the type of a column; what does not fit is refused, where numpy would wrap it.

    Examples
    --------
    >>> as_whole("rank", [0, 1], np.int32)
    array([0, 1], dtype=int32)
    """
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as problem:
        raise error(f"column {name}: {problem}") from None
    if array.dtype == dtype or not array.size:
        return array.astype(dtype, copy=False)
    if array.dtype.kind not in "iub":
        raise error(f"column {name}: expected whole numbers, not {array.dtype}")
    bounds = np.iinfo(dtype)
    for extreme in (int(array.min()), int(array.max())):
        if not bounds.min <= extreme <= bounds.max:
            raise error(f"column {name}: {extreme} is outside {bounds.min}..{bounds.max}")
    return array.astype(dtype)


def freeze(name: str, values: ArrayLike, dtype: Any, error: type[InputError] = ScheduleError) -> NDArray[Any]:
    """Read-only copy of a column, or the column itself when it is one already."""
    column: NDArray[Any] = as_whole(name, values, dtype, error)
    if column.ndim != 1:
        raise error(f"column {name}: expected one dimension, not {column.ndim}")
    if column.flags.c_contiguous and _rests_on_bytes(column):
        return column
    # A read-only flag can be lifted, and a view changes with what it views; bytes can do neither.
    return np.frombuffer(_core.copy_bytes(np.ascontiguousarray(column).view(np.uint8)), dtype)


def blank_column(rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """A column that `freeze` takes as it is, and the array through which its maker writes it first.

    Nobody else may get the second: what is in a schedule does not change.

    Examples
    --------
    >>> column, writable = blank_column(2)
    >>> writable[:] = 3, 4
    >>> freeze("step", column, np.int32) is column, column.tolist()
    (True, [3, 4])
    """
    memory, writable = _core.blank_bytes(rows * np.dtype(np.int32).itemsize)
    return np.frombuffer(memory, np.int32), writable.view(np.int32)


def row_order(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64] | None:
    """Stable sorting permutation of rows, most significant column first; None when they are in order already.

    Examples
    --------
    >>> row_order([np.array([1, 0, 0]), np.array([5, 7, 6])]).tolist()
    [2, 1, 0]
    """
    return _core.row_order([np.ascontiguousarray(column, np.int32) for column in columns])


def _rests_on_bytes(column: NDArray[Any]) -> bool:
    base: object = column
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, bytes)
