"""Quantities are exact, round-trip, and fail with a message that shows a right one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft import limits, units
from weft.errors import LimitError, UnitError, WeftError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        (4096, 4096),
        ("4096B", 4096),
        ("4096 bytes", 4096),
        ("1 byte", 1),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1K", 1024),
        ("64M", 64 << 20),
        ("2G", 2 << 30),
        ("6.6MiB", 6_920_602),
        ("0.3KiB", 307),
        ("1e-9GB", 1),
        ("1KiB", 1024),
        ("64MiB", 64 * 2**20),
        ("64 MiB", 64 * 2**20),
        (" 64MiB ", 64 * 2**20),
        ("64MB", 64 * 10**6),
        ("1.5GB", 1_500_000_000),
        ("0.5KiB", 512),
        ("2GiB", 2**31),
        ("1TB", 10**12),
        ("1PB", 10**15),
        ("1e6", 10**6),
        ("2.5e3KB", 2_500_000),
        ("1000e-3", 1),
    ],
)
def test_sizes_are_exact(text: str | int, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("25GB/s", 25 * 10**9),
        ("25 GB/s", 25 * 10**9),
        ("50GiB/s", 50 * 2**30),
        ("10Gbit/s", 1_250_000_000),
        ("10Gbits/s", 1_250_000_000),
        ("10Gb/s", 1_250_000_000),
        ("10Gbps", 1_250_000_000),
        ("10GBps", 10 * 10**9),
        ("100Mbit/s", 12_500_000),
        ("8Mibit/s", 2**20),
        ("1B/s", 1),
        (1000, 1000),
        ("1.6TB/s", 1_600_000_000_000),
    ],
)
def test_speeds_know_bits_from_bytes(text: str | int, speed: int) -> None:
    assert units.parse_bandwidth(text) == speed


@pytest.mark.parametrize(
    ("text", "time_ps"),
    [
        ("150ns", 150_000),
        ("1.5us", 1_500_000),
        ("1.5µs", 1_500_000),
        ("1.5μs", 1_500_000),
        ("2ms", 2 * 10**9),
        ("1s", 10**12),
        ("3ps", 3),
        ("0", 0),
        ("0s", 0),
        (0, 0),
        ("1h", None),
    ],
)
def test_times_are_picoseconds(text: str | int, time_ps: int | None) -> None:
    if time_ps is None:
        with pytest.raises(UnitError, match="unknown unit 'h', expected ps, ns, us, ms or s"):
            units.parse_time(text)
    else:
        assert units.parse_time(text) == time_ps


def test_a_fraction_of_a_picosecond_is_rounded_up() -> None:
    assert units.parse_time("0.0001ns") == 1
    assert units.parse_time("1.0000000001us") == 1_000_001


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (units.parse_size, "64MoB", "size '64MoB': unknown unit 'MoB', expected B, KB, KiB"),
        (units.parse_size, "64Mbit", "sizes are in bytes, write MB"),
        (units.parse_size, "-1", "must not be negative"),
        (units.parse_size, -1, "must not be negative"),
        (units.parse_size, "", "cannot be read, expected text such as '64MiB'"),
        (units.parse_size, "MiB", "cannot be read"),
        (units.parse_size, "1.2.3", "unknown unit|cannot be read"),
        (units.parse_size, "0.5", "is not a whole number of bytes"),
        (units.parse_size, "0.0001KB", "is less than a byte"),
        (units.parse_size, "1iB", "unknown unit 'iB'"),
        (units.parse_size, True, "expected bytes as a whole number"),
        (units.parse_size, 1.5, "expected bytes as a whole number"),
        (units.parse_size, None, "expected bytes as a whole number"),
        (units.parse_size, "9" * 100, "is too long"),
        (units.parse_bandwidth, "25GB", "a speed needs '/s', such as '25GB/s'"),
        (units.parse_bandwidth, "0GB/s", "a dead link is written \\+fail=A-B"),
        (units.parse_bandwidth, 0, "at least 1 byte per second"),
        (units.parse_bandwidth, -5, "at least 1 byte per second"),
        (units.parse_bandwidth, "-5GB/s", "must not be negative"),
        (units.parse_bandwidth, "1e9GB/s", "surely the wrong unit"),
        (units.parse_bandwidth, "25Gfoo/s", "unknown unit 'Gfoo'"),
        (units.parse_bandwidth, 1.5, "expected text such as"),
        (units.parse_bandwidth, True, "expected text such as"),
        (units.parse_time, "150", "unknown unit ''"),
        (units.parse_time, 150, "expected text with a unit, such as '150ns'"),
        (units.parse_time, True, "expected text with a unit"),
        (units.parse_time, "-1us", "must not be negative"),
        (units.parse_time, "1e9s", "above one hour, surely the wrong unit"),
        (units.parse_time, "1 2us", "cannot be read|unknown unit"),
    ],
)
def test_an_error_says_what_to_write(parse, text, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnitError, match=message):
        parse(text)


@pytest.mark.parametrize("parse", [units.parse_size, units.parse_bandwidth, units.parse_time])
@pytest.mark.parametrize("number", [10**5000, -(10**5000)], ids=["huge", "negative"])
def test_a_number_too_long_to_print_is_refused_in_words(parse: Callable[[int], int], number: int) -> None:
    with pytest.raises((UnitError, LimitError), match="of more than 30 digits"):
        parse(number)


def test_a_size_beyond_the_bound_names_the_bound() -> None:
    assert units.parse_size(limits.MAX_SIZE_BYTES) == limits.MAX_SIZE_BYTES
    with pytest.raises(LimitError, match="1,125,899,906,842,624"):
        units.parse_size(limits.MAX_SIZE_BYTES + 1)


@given(st.integers(0, limits.MAX_SIZE_BYTES))
@example(1001)
@example(2**20)
def test_formatted_sizes_are_read_back(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


def test_a_size_is_shown_in_the_units_in_which_it_is_exact() -> None:
    shown = {10_000_000: "10MB", 1_048_576: "1MiB", 1_500_000: "1.5MB", 65_536: "64KiB", 1_000: "1KB"}
    assert {size: units.format_size(size) for size in shown} == shown


@given(st.integers(limits.MIN_BANDWIDTH, limits.MAX_BANDWIDTH))
@example(53_687_091_200)
def test_formatted_speeds_are_read_back(speed: int) -> None:
    assert units.parse_bandwidth(units.format_bandwidth(speed)) == speed


@given(st.integers(0, limits.MAX_LATENCY_PS))
@example(999)
@example(1_000_001)
def test_formatted_times_are_read_back(time_ps: int) -> None:
    assert units.parse_time(units.format_time(time_ps)) == time_ps


@given(st.text(max_size=80))
@example("1e-99GB/s")
@example("1\u0661GB/s")
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (units.parse_size, units.parse_bandwidth, units.parse_time):
        with contextlib.suppress(WeftError):
            assert parse(text) >= 0


@given(st.integers(0, 2**40), st.integers(1, 10**15))
def test_a_transfer_takes_the_exact_time_rounded_up(size: int, speed: int) -> None:
    exact = Fraction(size * units.PS_PER_S, speed)
    assert exact <= units.transfer_ps(size, speed) < exact + 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (1.0, "1 s"), (12345.678, "1.235e+04 s"), (0.5, "500 ms"), (1e-6, "1 us"), (5e-12, "5 ps")],
)
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert units.human_seconds(seconds) == text


@pytest.mark.parametrize(
    ("speed", "text"),
    [
        (133_333_333_333, "133.3GB/s"),
        (12_500_000_000, "12.5GB/s"),
        (999_999_999_999, "1TB/s"),
        (1_234_567_891, "1.235GB/s"),
        (7, "7B/s"),
    ],
)
def test_a_speed_for_people_has_four_digits(speed: int, text: str) -> None:
    assert units.human_bandwidth(speed) == text
