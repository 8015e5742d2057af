"""Reading files that may be anything, bounded before a byte is parsed; writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO

from weft import limits
from weft.errors import FormatError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


def exists(path: Path) -> bool:
    """Whether there is anything of this name; an error where the system cannot tell."""
    try:
        return path.exists()
    except OSError as error:
        raise FormatError(str(path), f"cannot be read: {error.strerror or error}") from error


def standard_input() -> BinaryIO:
    """Bytes of standard input, which whoever started the process may have closed."""
    if sys.stdin is None:
        raise InputError("standard input is closed; give a file name instead of -")
    return sys.stdin.buffer


def read_source(source: str | Path, bound: int) -> tuple[str, bytes]:
    """Read a file, or standard input for ``"-"``, of at most `bound` bytes; return its name as well."""
    if source == "":  # which a path takes for the directory
        raise InputError("the name of a file is empty; give a file name, or - for standard input")
    name, place = ("<stdin>", standard_input()) if source == "-" else (str(source), Path(source))
    return name, read_bytes(name, place, bound)


def name_after(source: str, default: str) -> str:
    """Name for what a file holds: the file's own without its ending, as text whatever its bytes are.

    Examples
    --------
    >>> name_after("racks/lab.toml", "topology"), name_after("<stdin>", "topology")
    ('lab', 'stdin')
    """
    stem = PurePath(source).stem.strip("<>") or default
    return stem.encode("utf-8", "replace").decode("utf-8")[: limits.MAX_SPEC_CHARACTERS]


def read_bytes(name: str, source: Path | BinaryIO, bound: int) -> bytes:
    """Contents of a file, or an error if it is larger than `bound` bytes; never reads more than that."""
    try:
        if isinstance(source, Path):
            if not source.is_file():
                raise FormatError(name, "not a regular file" if source.exists() else "no such file")
            with open(source, "rb", opener=_open_without_waiting) as stream:
                read = stream.read(bound + 1)
            if read is None:  # /proc/kmsg calls itself a regular file
                raise FormatError(name, "has nothing to read now; give an ordinary file")
            data = read
        else:
            data = source.read(bound + 1)
    except OSError as error:
        raise FormatError(name, f"cannot be read: {error.strerror or error}") from error
    if len(data) > bound:
        raise FormatError(name, f"larger than the {bound >> 20} MiB that Weft accepts")
    return data


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def decode_text(name: str, data: bytes) -> str:
    """Text of a file's bytes, which must be UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(name, "not UTF-8 text", f"line {line}") from error


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file, as `replacing` does."""
    with replacing(Path(path)) as stream:
        stream.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its place only when the block ends well.

    The bytes go to a hidden file beside it, which is renamed at the end and has the permissions of the file
    it replaces. What exists and is not a regular file, such as ``/dev/stdout``, is written to directly.
    """
    target, mode = _target(path)
    try:
        if mode is not None and not stat.S_ISREG(mode):
            with target.open("wb") as stream:
                yield stream
            return
        # Not made from the target's own name, which may be as long as names can be.
        beside = target.with_name(f".weft-{secrets.token_hex(4)}.tmp")
        try:
            with _create(beside, mode) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _target(path: Path) -> tuple[Path, int | None]:
    """Where a name leads, links followed, and the mode of what is there."""
    try:
        with suppress(FileNotFoundError):
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):  # of /dev/stdout in a pipeline only the link itself can be opened
                return path, mode
        target = path.resolve()
        with suppress(FileNotFoundError):
            return target, target.stat().st_mode
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that lead to each other
        raise _unwritable(path, error) from error
    return target, None


def _create(path: Path, mode: int | None) -> BinaryIO:
    """Make a file with these permissions from its first byte on."""
    allowed = 0o666 if mode is None else stat.S_IMODE(mode)
    stream = open(path, "xb", opener=lambda name, flags: os.open(name, flags, allowed))  # noqa: SIM115
    if mode is not None:
        os.fchmod(stream.fileno(), allowed)
    return stream


def _unwritable(path: Path, error: Exception) -> InputError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return InputError(f"{path}: cannot be written: {reason}")
