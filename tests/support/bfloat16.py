"""bfloat16 arithmetic as torch does it, in numpy: the upper half of a float32, rounded after every operation.

Values are their bits, as uint16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint16]
Floats = NDArray[np.floating[Any]]

INFINITY = 0x7F80
QUIET = 0x0040


def widen(bits: Bits) -> NDArray[np.float32]:
    """Every bfloat16 is a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: NDArray[np.float32]) -> Bits:
    """Round to nearest, ties to even; a NaN stays a NaN, quiet."""
    bits = values.view(np.uint32).astype(np.uint64)
    upper = bits >> 16
    lower = bits & 0xFFFF
    up = (lower > 0x8000) | ((lower == 0x8000) & (upper & 1 == 1))
    return np.where(np.isnan(values), upper | QUIET, upper + up).astype(np.uint16)


def is_nan(bits: Bits) -> NDArray[np.bool_]:
    """Exponent all ones, and something behind it."""
    return bits & 0x7FFF > INFINITY


def add(a: Bits, b: Bits) -> Bits:
    return narrow(widen(a) + widen(b))


def multiply(a: Bits, b: Bits) -> Bits:
    return narrow(widen(a) * widen(b))


def minimum(a: Bits, b: Bits) -> Bits:
    return np.where(is_nan(a) | (~is_nan(b) & (widen(a) <= widen(b))), a, b)


def maximum(a: Bits, b: Bits) -> Bits:
    return np.where(is_nan(a) | (~is_nan(b) & (widen(a) >= widen(b))), a, b)


def divide(values: Bits, by: int) -> Bits:
    return narrow(widen(values) / np.float32(by))
