"""Quantities as people write them: ``64MiB``, ``25GB/s``, ``10Gbit/s``, ``150ns``.

Everything is exact: sizes are whole bytes, speeds whole bytes per second, times whole picoseconds (rounded
up). MiB is 2^20, MB is 10^6, the bare M of a size is 2^20, and a lower-case ``b`` or ``bit`` is a bit, so
``10Gb/s`` is 1.25 GB/s.
"""

from __future__ import annotations

import re
from fractions import Fraction
from numbers import Real
from typing import Final

from weft import limits
from weft.errors import UnitError

PS_PER_S: Final = 10**12

_DECIMAL: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_TIME_PS: Final = {
    "ps": 1,
    "ns": 10**3,
    "us": 10**6,
    "µs": 10**6,
    "μs": 10**6,
    "ms": 10**9,
    "s": PS_PER_S,
}
_QUANTITY: Final = re.compile(
    r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?)\s*([^\d\s].*?)?\s*\Z"
)
_BYTES: Final = re.compile(r"([kKMGTP]?)(i?)(bits?|bytes?|b|B)?\Z")


_SHORT_SPEED: Final = len("99.99MiB/s")
_SPEED_UNITS: Final = (("TB/s", 10**12), ("GB/s", 10**9), ("MB/s", 10**6), ("KB/s", 10**3))


def parse_size(text: str | int) -> int:
    """Bytes in a size such as ``"64MiB"``, ``"1.5 GB"``, ``"64M"`` or ``4096``.

    KiB, MiB, GiB and the bare letters K, M, G are powers of 1024; KB, MB, GB are powers of 1000. A fraction
    of such a unit is rounded to the nearest byte, so that sizes can be given as they are printed; a fraction
    of a byte is an error.

    Examples
    --------
    >>> parse_size("64MiB"), parse_size("1.5MB"), parse_size("512")
    (67108864, 1500000, 512)
    >>> parse_size("64M"), parse_size("6.6MiB")
    (67108864, 6920602)
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise UnitError(f"size {_shown(text)}: expected bytes as a whole number or text such as '64MiB'")
    if isinstance(text, int):
        value = Fraction(text)
    else:
        number, unit = _split("size", text, "'64MiB', '1.5GB' or '4096'")
        scale = _byte_unit("size", text, unit, allow_bits=False)
        value = number * scale if scale == 1 else Fraction(round(number * scale))
        if number and not value:
            raise UnitError(f"size {_shown(text)}: is less than a byte")
    if value.denominator != 1:
        raise UnitError(f"size {_shown(text)}: is not a whole number of bytes")
    if value < 0:
        raise UnitError(f"size {_shown(text)}: must not be negative")
    return limits.check(f"size {_shown(text)}", int(value), limits.MAX_SIZE_BYTES)


def parse_bandwidth(text: str | int) -> int:
    """Bytes per second in a speed such as ``"25GB/s"``, ``"10Gbit/s"`` or ``"100Gbps"``.

    A number, as programs pass it, is bytes per second already; text needs its unit, because people who write
    a bare 4 mean something else.

    Examples
    --------
    >>> parse_bandwidth("25GB/s"), parse_bandwidth("20Mbit/s"), parse_bandwidth("10Gbps")
    (25000000000, 2500000, 1250000000)
    """
    example = "'25GB/s', '50GiB/s' or '10Gbit/s'"
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise UnitError(f"bandwidth {_shown(text)}: expected text such as {example}")
    if isinstance(text, int):
        value = Fraction(text)
    else:
        number, unit = _split("bandwidth", text, example)
        if unit.endswith(("/s", "ps")):
            unit = unit[:-2]
        else:
            need = "'/s'" if unit else "a unit"
            raise UnitError(f"bandwidth {_shown(text)}: a speed needs {need}, such as {example}")
        value = number * _byte_unit("bandwidth", text, unit, allow_bits=True)
    if value < limits.MIN_BANDWIDTH:
        msg = (
            f"bandwidth {_shown(text)}: must be at least 1 byte per second; a dead link is written +fail=A-B"
        )
        raise UnitError(msg)
    if value > limits.MAX_BANDWIDTH:
        most = f"{limits.MAX_BANDWIDTH:.0e} bytes per second"
        raise UnitError(f"bandwidth {_shown(text)}: above {most}, surely the wrong unit")
    if value.denominator != 1:
        raise UnitError(f"bandwidth {_shown(text)}: is not a whole number of bytes per second")
    return int(value)


def parse_time(text: str | int) -> int:
    """Picoseconds in a time such as ``"150ns"`` or ``"1.5us"``, rounded up.

    Examples
    --------
    >>> parse_time("150ns"), parse_time("1.5us"), parse_time("0s")
    (150000, 1500000, 0)
    """
    example = "'150ns', '1.5us' or '2ms'"
    if isinstance(text, bool) or not isinstance(text, str):
        if isinstance(text, Real) and text == 0 and not isinstance(text, bool):
            return 0
        raise UnitError(f"time {_shown(text)}: expected text with a unit, such as {example}")
    number, unit = _split("time", text, example)
    if unit not in _TIME_PS and not (number == 0 and not unit):
        msg = f"time {_shown(text)}: unknown unit {unit!r}, expected ps, ns, us, ms or s, such as {example}"
        raise UnitError(msg)
    value = number * _TIME_PS.get(unit, 0)
    if value > limits.MAX_LATENCY_PS:
        raise UnitError(f"time {_shown(text)}: above one hour, surely the wrong unit")
    return -int(-value // 1)


def format_size(size_bytes: int) -> str:
    """Short exact text that `parse_size` reads back.

    Examples
    --------
    >>> format_size(67108864), format_size(1500000), format_size(1001)
    ('64MiB', '1.5MB', '1001B')
    """
    return _shortest(size_bytes, "B")


def format_bandwidth(bytes_per_s: int) -> str:
    """Short exact text that `parse_bandwidth` reads back.

    Examples
    --------
    >>> format_bandwidth(25_000_000_000), format_bandwidth(53_687_091_200)
    ('25GB/s', '50GiB/s')
    """
    return _shortest(bytes_per_s, "B/s")


def human_bandwidth(bytes_per_s: int) -> str:
    """Write a speed for people: exactly where that is short, else in four digits; not meant to be read back.

    Examples
    --------
    >>> human_bandwidth(12_500_000_000), human_bandwidth(133_333_333_333), human_bandwidth(999_999_999_999)
    ('12.5GB/s', '133.3GB/s', '1TB/s')
    """
    exact = format_bandwidth(bytes_per_s)
    if len(exact) <= _SHORT_SPEED:
        return exact
    rounded = float(f"{bytes_per_s:.4g}")
    unit, scale = next((pair for pair in _SPEED_UNITS if rounded >= pair[1]), ("B/s", 1))
    return f"{rounded / scale:.4g}{unit}"


def format_time(time_ps: int) -> str:
    """Short exact text that `parse_time` reads back.

    Examples
    --------
    >>> format_time(150_000), format_time(1_500_000), format_time(0)
    ('150ns', '1.5us', '0s')
    """
    if time_ps == 0:
        return "0s"
    for unit, scale in (("s", PS_PER_S), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if time_ps >= scale:
            return f"{_plain(Fraction(time_ps, scale))}{unit}"
    return f"{time_ps}ps"


def human_seconds(seconds: float) -> str:
    """Four significant digits for a table; not meant to be read back.

    Examples
    --------
    >>> human_seconds(0.00123456), human_seconds(2.5e-07), human_seconds(0)
    ('1.235 ms', '250 ns', '0 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-12:.4g} ps" if seconds else "0 s"


def count(number: int, noun: str) -> str:
    """Write a number and its noun.

    Examples
    --------
    >>> count(1, "hop"), count(1200, "link"), count(2, "switch"), count(16, "leaf")
    ('1 hop', '1,200 links', '2 switches', '16 leaves')
    """
    if number == 1:
        return f"1 {noun}"
    several = f"{noun}es" if noun.endswith("ch") else f"{noun[:-1]}ves" if noun.endswith("f") else f"{noun}s"
    return f"{number:,} {several}"


def transfer_ps(size_bytes: int, bytes_per_s: int) -> int:
    """Picoseconds that `size_bytes` occupy a link, rounded up so that ties never flip.

    Examples
    --------
    >>> transfer_ps(16, 16_000_000_000), transfer_ps(1, 3_000_000_000_000)
    (1000, 1)
    """
    return -(-size_bytes * PS_PER_S // bytes_per_s)


def _shown(value: object) -> str:
    """Spell a value for a message, but not one that would fill it; Python spells no number that long."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "of more than 30 digits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _split(what: str, text: str, example: str) -> tuple[Fraction, str]:
    if len(text) > 64:
        raise UnitError(f"{what}: {text[:20]!r}... is too long, expected text such as {example}")
    match = _QUANTITY.match(text)
    if match is None:
        hint = " (it must not be negative)" if text.strip().startswith("-") else ""
        raise UnitError(f"{what} {text!r}: cannot be read{hint}, expected text such as {example}")
    return Fraction(match[1]), match[2] or ""


def _byte_unit(what: str, text: str, unit: str, *, allow_bits: bool) -> Fraction:
    match = _BYTES.match(unit)
    if match is None or (match[2] and not match[1]):
        raise UnitError(f"{what} {text!r}: unknown unit {unit!r}, expected B, KB, KiB, MB, MiB, GB or GiB")
    prefix, binary, word = match.groups()
    is_bare_size = word is None and not allow_bits
    scale = Fraction(1024 if binary or is_bare_size else 1000) ** _DECIMAL[prefix]
    if word in ("b", "bit", "bits"):
        if not allow_bits:
            raise UnitError(f"{what} {text!r}: sizes are in bytes, write {unit[: -len(word)]}B")
        return scale / 8
    return scale


def _shortest(value: int, unit: str) -> str:
    texts = [f"{value}{unit}"]
    for exponent, prefix in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if value >= 1000**exponent and value * 1000 % 1000**exponent == 0:
            texts.append(f"{_plain(Fraction(value, 1000**exponent))}{prefix}{unit}")
        if value and value % 1024**exponent == 0:
            texts.append(f"{value // 1024**exponent}{prefix}i{unit}")
    return min(texts, key=len)


def _plain(value: Fraction) -> str:
    digits = f"{value.numerator * 10**12 // value.denominator:013d}"
    whole, fraction = digits[:-12], digits[-12:].rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole
