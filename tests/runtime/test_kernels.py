"""The reduction kernels give numpy's bits, and for bfloat16 torch's, whatever instructions they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import bfloat16

from weft import _runtime

Array = NDArray[Any]

# What holds the bits of each type; bfloat16 is nothing else.
STORED = {
    "float16": np.uint16,
    "bfloat16": np.uint16,
    "float32": np.uint32,
    "float64": np.uint64,
    "int32": np.uint32,
    "int64": np.uint64,
    "int16": np.uint16,
    "int8": np.uint8,
    "uint8": np.uint8,
}
FLOATING = ("float16", "bfloat16", "float32", "float64")
HALVES = ("float16", "bfloat16")
LEVELS = tuple(_runtime.cpu_levels())
PAIRS = [
    (dtype, op)
    for dtype in STORED
    for op in ("sum", "avg", "min", "max", "prod", "band", "bor", "bxor")
    if not op.startswith("b") or dtype not in FLOATING
]
UFUNCS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
BFLOAT16: dict[str, Callable[[Array, Array], Array]] = {
    "sum": bfloat16.add,
    "avg": bfloat16.add,
    "min": bfloat16.minimum,
    "max": bfloat16.maximum,
    "prod": bfloat16.multiply,
}
LENGTHS = (0, 1, 7, 31, 4097)
GUARD = 0xA5


@pytest.fixture(autouse=True)
def fastest_level_afterwards() -> Iterator[None]:
    yield
    _runtime.set_cpu_level(LEVELS[-1])


def expected(dtype: str, op: str, a: Array, b: Array) -> Array:
    """Return the bits of a op b."""
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return BFLOAT16[op](a, b)
        return UFUNCS[op](a.view(dtype), b.view(dtype)).view(a.dtype)


def quotient(dtype: str, values: Array, by: int) -> Array:
    """Return the bits of values / by."""
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return bfloat16.divide(values, by)
        if dtype not in FLOATING:  # numpy rounds down, and knows no division that rounds towards zero
            exact = [int(value) // by if value >= 0 else -(-int(value) // by) for value in values.view(dtype)]
            return np.array(exact, dtype).view(values.dtype)
        computed = values.view(dtype).astype("float32" if dtype == "float16" else dtype)
        return (computed / computed.dtype.type(by)).astype(dtype).view(values.dtype)


def is_nan(dtype: str, bits: Array) -> Array:
    if dtype not in FLOATING:
        return np.zeros(bits.shape, bool)
    return bfloat16.is_nan(bits) if dtype == "bfloat16" else np.isnan(bits.view(dtype))


def assert_same(dtype: str, got: Array, want: Array) -> None:
    """Every bit is the same; of a NaN it matters only that it is one."""
    both_nan = is_nan(dtype, got) & is_nan(dtype, want)
    wrong = np.flatnonzero((got != want) & ~both_nan)
    assert not wrong.size, f"{dtype}[{wrong[0]}]: {got[wrong[0]]:#x} instead of {want[wrong[0]]:#x}"


def place(bits: Array, offset: int) -> tuple[Array, Array]:
    """Return a copy of the bytes, `offset` after an aligned address, and all that surrounds it."""
    around = np.full(64 + offset + bits.nbytes + 64, GUARD, np.uint8)
    inside = around[64 + offset : 64 + offset + bits.nbytes]
    inside[:] = bits.view(np.uint8)
    return inside, around


def assert_guarded(around: Array, inside: Array) -> None:
    before = inside.ctypes.data - around.ctypes.data
    assert (around[:before] == GUARD).all()
    assert (around[before + inside.nbytes :] == GUARD).all()


def quiet_bit(infinity: int) -> int:
    """Return the highest bit behind the exponent."""
    return (infinity & -infinity) // 2


def awkward(dtype: str) -> Array:
    """Return the bits of the values at which arithmetic goes wrong."""
    if dtype not in FLOATING:
        info = np.iinfo(dtype)
        values = [0, 1, -1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, 1 << info.bits // 2]
        return np.array(values, np.int64).astype(dtype).view(STORED[dtype])
    if dtype == "bfloat16":
        smallest, smallest_normal, largest, infinity, one = 1, 0x80, 0x7F7F, 0x7F80, 0x3F80
    else:
        finfo = np.finfo(dtype)
        chosen = [finfo.smallest_subnormal, finfo.smallest_normal, finfo.max, np.inf, 1.0]
        smallest, smallest_normal, largest, infinity, one = (
            np.array(chosen, dtype).view(STORED[dtype]).tolist()
        )
    positive = [0, smallest, smallest + 1, smallest_normal - 1, smallest_normal, one, one + 1, one - 1]
    positive += [largest, largest - 1, infinity, infinity + 1, infinity | quiet_bit(infinity) | 2]
    sign = 1 << (8 * np.dtype(STORED[dtype]).itemsize - 1)
    return np.array(positive + [sign | bits for bits in positive], STORED[dtype])


def operands(dtype: str, length: int) -> tuple[Array, Array]:
    """Return two columns of bits: half of them awkward, in all pairs, the others any bits."""
    special = awkward(dtype)
    width = special.dtype.itemsize
    rng = np.random.default_rng(length)
    first, second = (rng.bytes(length * width) for _ in range(2))
    a, b = np.frombuffer(first, special.dtype).copy(), np.frombuffer(second, special.dtype).copy()
    index = np.arange(0, length, 2)
    a[index] = special[index // 2 % special.size]
    b[index] = special[index // 2 // special.size % special.size]
    return a, b


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("dtype", "op"), PAIRS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_reduction_is_bit_equal_wherever_it_lies(level: str, dtype: str, op: str, length: int) -> None:
    _runtime.set_cpu_level(level)
    a, b = operands(dtype, length)
    want = expected(dtype, op, a, b)
    for offset in (0, a.itemsize, 5 * a.itemsize, 1):
        into, around = place(a, offset)
        other, _ = place(b, 3 * offset)
        _runtime.reduce(into, other, dtype, op)
        assert_same(dtype, into.copy().view(a.dtype), want)
        assert_guarded(around, into)
        assert other.tobytes() == b.tobytes()


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_result_may_lie_elsewhere_or_on_either_operand(level: str, dtype: str, op: str) -> None:
    _runtime.set_cpu_level(level)
    a, b = operands(dtype, 4097)
    want = expected(dtype, op, a, b)
    out, around = place(np.zeros_like(a), a.itemsize)
    _runtime.reduce_to(out, a.view(np.uint8), b.view(np.uint8), dtype, op)
    assert_same(dtype, out.copy().view(a.dtype), want)
    assert_guarded(around, out)
    for on_a in (True, False):
        left, right = a.copy(), b.copy()
        out = (left if on_a else right).view(np.uint8)
        _runtime.reduce_to(out, left.view(np.uint8), right.view(np.uint8), dtype, op)
        assert_same(dtype, out.view(a.dtype), want)
    with_itself = a.copy()
    _runtime.reduce(with_itself.view(np.uint8), with_itself.view(np.uint8), dtype, op)
    assert_same(dtype, with_itself, expected(dtype, op, a, a))


@given(pair=st.sampled_from(PAIRS), data=st.data())
def test_any_bits_reduce_alike_on_every_level(pair: tuple[str, str], data: st.DataObject) -> None:
    dtype, op = pair
    stored = np.dtype(STORED[dtype])
    length = data.draw(st.integers(0, 70))
    special = st.sampled_from(awkward(dtype).tolist())
    values = st.lists(
        special | st.integers(0, 2 ** (8 * stored.itemsize) - 1), min_size=length, max_size=length
    )
    a, b = (np.array(data.draw(values), stored) for _ in range(2))
    want = expected(dtype, op, a, b)
    offset = data.draw(st.integers(0, 40))
    for level in LEVELS:
        _runtime.set_cpu_level(level)
        into, around = place(a, offset)
        _runtime.reduce(into, b.view(np.uint8), dtype, op)
        assert_same(dtype, into.copy().view(stored), want)
        assert_guarded(around, into)


@pytest.mark.parametrize("op", ["sum", "min", "max", "prod"])
@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_is_reduced_rightly_with_a_sample_of_all_halves(dtype: str, op: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    drawn = np.random.default_rng(1).choice(every, 38, replace=False)
    for second in np.concatenate([awkward(dtype), drawn]):
        other = np.full_like(every, second)
        want = expected(dtype, op, every, other)
        for level in LEVELS:
            _runtime.set_cpu_level(level)
            got = np.empty_like(every)
            _runtime.reduce_to(got.view(np.uint8), every.view(np.uint8), other.view(np.uint8), dtype, op)
            assert_same(dtype, got, want)


@pytest.mark.parametrize("by", [1, 2, 3, 7, 64, 1000, 65536, (1 << 24) + 1])
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("level", LEVELS)
def test_an_average_divides_at_its_end(level: str, dtype: str, by: int) -> None:
    _runtime.set_cpu_level(level)
    every_half = np.arange(1 << 16, dtype=np.uint16)
    values = every_half if dtype in HALVES else operands(dtype, 4097)[0]
    for length in {*LENGTHS, values.size}:
        part, around = place(values[:length], 3 * values.itemsize)
        _runtime.divide(part, dtype, by)
        assert_same(dtype, part.copy().view(values.dtype), quotient(dtype, values[:length], by))
        assert_guarded(around, part)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("level", LEVELS)
def test_in_min_and_max_the_first_nan_wins_and_zeros_are_equal(level: str, dtype: str) -> None:
    _runtime.set_cpu_level(level)
    bits = awkward(dtype)
    zero, minus_zero, nan, minus_nan = bits[0], bits[bits.size // 2], bits[bits.size // 2 - 1], bits[-1]
    cases = [
        (nan, zero),
        (zero, nan),
        (minus_nan, zero),
        (zero, minus_nan),
        (nan, minus_nan),
        (minus_nan, nan),
    ]
    cases += [(zero, minus_zero), (minus_zero, zero)]
    want = [nan, nan, minus_nan, minus_nan, nan, minus_nan]
    want += [zero, minus_zero] if dtype in HALVES else [minus_zero, zero]
    a, b = (np.repeat([case[side] for case in cases], 9).astype(bits.dtype) for side in (0, 1))
    for op in ("min", "max"):
        got = a.copy()
        _runtime.reduce(got.view(np.uint8), b.view(np.uint8), dtype, op)
        assert got.tolist() == np.repeat(want, 9).tolist()


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("level", LEVELS)
def test_a_nan_stays_a_nan_and_becomes_quiet(level: str, dtype: str) -> None:
    _runtime.set_cpu_level(level)
    infinity = int(awkward(dtype)[10])
    signalling = np.full(33, infinity + 1, STORED[dtype])
    quiet = infinity | quiet_bit(infinity)
    one = np.full(33, awkward(dtype)[5], STORED[dtype])
    for op in ("sum", "prod"):
        for a, b in ((signalling, one), (one, signalling), (signalling, signalling)):
            got = a.copy()
            _runtime.reduce(got.view(np.uint8), b.view(np.uint8), dtype, op)
            assert (got & quiet == quiet).all()


def test_the_fastest_level_is_used_unless_told_otherwise() -> None:
    assert LEVELS[0] == "plain"
    assert _runtime.cpu_level() == LEVELS[-1]
    _runtime.set_cpu_level("plain")
    assert _runtime.cpu_level() == "plain"
    with pytest.raises(ValueError, match="no CPU level 'abacus'"):
        _runtime.set_cpu_level("abacus")


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda room: _runtime.reduce(room[:8], room[8:20], "float32", "sum"), "regions differ in length"),
        (lambda room: _runtime.reduce(room[:8], room[4:12], "float32", "sum"), "overlap partially"),
        (lambda room: _runtime.reduce(room[4:12], room[:8], "float32", "sum"), "overlap partially"),
        (lambda room: _runtime.reduce(room[:6], room[8:14], "float32", "sum"), "no whole number of elements"),
        (lambda room: _runtime.reduce(room[:8], room[8:16], "float8", "sum"), "'float8' is none of float16"),
        (lambda room: _runtime.reduce(room[:8], room[8:16], "float32", "xor"), "'xor' is none of sum avg"),
        (lambda room: _runtime.reduce(room[:8], room[8:16], "float32", "band"), "are for integers"),
        (
            lambda room: _runtime.reduce_to(room[:8], room[8:16], room[4:12], "int64", "sum"),
            "overlap partially",
        ),
        (lambda room: _runtime.divide(room[:8], "int64", 0), "must be positive"),
        (lambda room: _runtime.divide(room[:8], "float64", 0), "must be positive"),
        (lambda room: _runtime.divide(room[:7], "float64", 1), "no whole number of elements"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[Array], None], complaint: str) -> None:
    room = np.zeros(32, np.uint8)
    with pytest.raises(ValueError, match=complaint):
        call(room)
    assert not room.any()


def test_bytes_that_are_only_for_reading_are_not_written() -> None:
    sealed = np.zeros(8, np.uint8)
    sealed.flags.writeable = False
    with pytest.raises(TypeError):
        _runtime.reduce(sealed, np.zeros(8, np.uint8), "float32", "sum")
