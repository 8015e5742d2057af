"""The frame of every binary file: a header that is packed and counted, a body, and a checksum over all.

In little-endian order::

    magic (8 bytes) | version u32 | header: stored u32, unpacked u32 | header | body | CRC-32 of all before

A file is hostile until proven small: nothing is unpacked before its declared size was checked, and nothing is
ever unpacked beyond its declared size.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from weft import limits
from weft.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

Header = TypeVar("Header")

SCHEDULE_MAGIC: Final = b"\x89WEFT\r\n\x1a"
PLAN_MAGIC: Final = b"\x89WEFP\r\n\x1a"
"""As PNG's: no text begins like this, and a transfer that changes line ends breaks it."""

PACKING: Final = 1
"""zlib's level. What is packed is mostly runs: higher levels take twice as long and save next to nothing."""

_PREFIX: Final = struct.Struct("<8sIII")
_CHECKSUM: Final = struct.Struct("<I")

_MAX_RATIO: Final = 1032
"""What zlib can shrink at most; a file that claims more lies."""


def pack(magic: bytes, version: int, header: bytes, body: Sequence[bytes]) -> bytes:
    """Bytes of a file.

    Raises
    ------
    LimitError
        If it would be larger than `unpack` accepts.
    """
    limits.check("bytes of the header", len(header), limits.MAX_HEADER_BYTES)
    packed = zlib.compress(header, PACKING)
    data = b"".join([_PREFIX.pack(magic, version, len(packed), len(header)), packed, *body])
    limits.check("bytes of the file", len(data) + _CHECKSUM.size, limits.MAX_SCHEDULE_BYTES)
    return data + _CHECKSUM.pack(zlib.crc32(data))


def unpack(data: bytes, version: int, source: str) -> tuple[bytes, memoryview]:
    """Header and body of a file whose magic was recognised; `source` is its name in messages.

    Raises
    ------
    FormatError
        If it is too large, cut short, damaged or of another version.
    """
    if len(data) > limits.MAX_SCHEDULE_BYTES:
        raise FormatError(source, f"larger than the {limits.MAX_SCHEDULE_BYTES >> 20} MiB that Weft accepts")
    view = memoryview(data)
    if len(data) < _PREFIX.size + _CHECKSUM.size:
        raise FormatError(source, "the file is cut short")
    _, found, stored, unpacked = _PREFIX.unpack_from(data)
    if found != version:
        raise FormatError(source, f"format {found} is unknown, this Weft reads {version}")
    body = view[_PREFIX.size : -_CHECKSUM.size]
    if stored > len(body):
        raise FormatError(source, "the file is cut short", "header")
    if zlib.crc32(view[: -_CHECKSUM.size]) != _CHECKSUM.unpack(view[-_CHECKSUM.size :])[0]:
        raise FormatError(source, "the file is damaged: its checksum does not match; copy or make it again")
    limit = min(unpacked, limits.MAX_HEADER_BYTES)
    return inflate(source, "header", body[:stored], limit), body[stored:]


def unpack_as(data: bytes, version: int, source: str, kind: type[Header]) -> tuple[Header, memoryview]:
    """Header and body as of `unpack`, the header decoded as a structure.

    Raises
    ------
    FormatError
        If it is too large, cut short, damaged, of another version, or its header another structure.
    """
    header, body = unpack(data, version, source)
    try:
        return msgspec.msgpack.decode(header, type=kind), body
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(source, f"cannot be read: {error}", "header") from error


def header_bytes(data: bytes) -> int:
    """How large a file says its header is, unpacked; it is never unpacked beyond that."""
    return int(_PREFIX.unpack_from(data)[3]) if len(data) >= _PREFIX.size else 0


def inflate(source: str, place: str, blob: memoryview, size: int) -> bytes:
    """Unpack exactly `size` bytes, never more.

    Raises
    ------
    FormatError
        If they are not that many, or damaged.
    """
    if size > _MAX_RATIO * len(blob):
        raise FormatError(source, f"claims to hold {size:,} bytes in {len(blob):,}", place)
    inflater = zlib.decompressobj()
    try:
        # One byte of room more than allowed: it shows that there is more, and 0 would mean no bound at all.
        raw = inflater.decompress(blob, size + 1)
    except zlib.error as error:
        raise FormatError(source, f"is damaged: {error}", place) from error
    if len(raw) != size or not inflater.eof or inflater.unused_data:
        raise FormatError(source, f"does not hold the {size:,} bytes it claims", place)
    return raw
