"""Reading files that may be anything: bounded before a byte is parsed."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from weft import limits
from weft.errors import FormatError


def read_bytes(name: str, source: Path | BinaryIO, bound: int) -> bytes:
    """Contents of a file, or an error if it is larger than `bound` bytes; never reads more than that."""
    try:
        if isinstance(source, Path):
            if not source.is_file():
                raise FormatError(name, "not a regular file" if source.exists() else "no such file")
            with source.open("rb") as stream:
                data = stream.read(bound + 1)
        else:
            data = source.read(bound + 1)
    except OSError as error:
        raise FormatError(name, f"cannot be read: {error.strerror or error}") from error
    if len(data) > bound:
        raise FormatError(name, f"larger than the {bound >> 20} MiB that Weft accepts")
    return data


def read_text(name: str, source: Path | BinaryIO, bound: int = limits.MAX_TEXT_BYTES) -> str:
    """Text of a file in UTF-8, bounded."""
    data = read_bytes(name, source, bound)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(name, "not UTF-8 text", f"line {line}") from error
