"""Reading files that may be anything, bounded before a byte is parsed; writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from weft import limits
from weft.errors import FormatError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its place only when the block ends well.

    The bytes go to a hidden file beside it, which is renamed at the end. What exists and is not a regular
    file, such as ``/dev/stdout``, is written to directly.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:
                yield stream
            return
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            with beside.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        msg = f"{path}: cannot be written: {error.strerror or error}"
        raise InputError(msg) from error
