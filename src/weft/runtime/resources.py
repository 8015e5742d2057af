"""Resources of a process: what the machine ran out of, and closing what was opened when the rest fails."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from weft.errors import RuntimeFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of a socket that say that this process or the machine has no more of something."""

_REMEDIES: Final = {
    errno.EMFILE: "this process may have {files} files open: raise that with 'ulimit -n'",
    errno.ENFILE: "the machine has too many files open: see /proc/sys/fs/file-max",
    errno.ENOBUFS: "the machine has too little memory for its sockets",
    errno.ENOMEM: "there is too little memory, or 'ulimit -v' is too low",
    errno.ENOSPC: "there is too little room for shared memory or for temporary files",
    errno.EAGAIN: "there are too many processes or threads: see 'ulimit -u'",
}


class Closable(Protocol):
    """Something that was opened: a socket, a connection, a communicator."""

    def close(self) -> object:
        """Close it."""


@contextmanager
def close_on_error(opened: Closable) -> Iterator[None]:
    """Close what was opened if the block that makes use of it fails."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


@contextmanager
def guarded(doing: str, memory: str = "") -> Iterator[None]:
    """Turn an error of the operating system into a `RuntimeFailure`.

    The compiled core, and Python where it cannot start a thread, report such errors as `RuntimeError`.

    Parameters
    ----------
    doing
        What this process does in the block, such as ``joining the job``.
    memory
        What to do if memory runs out.
    """
    try:
        yield
    except RuntimeFailure:
        raise  # it says already what it is
    except (OSError, RuntimeError, MemoryError) as error:
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        number = _errno(error)
        remedy = _REMEDIES.get(number, "").format(files=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        remedy = memory if memory and number == errno.ENOMEM else remedy
        raise RuntimeFailure(f"{doing}: {problem}" + (f"; {remedy}" if remedy else "")) from error


def ran_out(error: BaseException) -> bool:
    """Whether an error says that this process ran out of something, which is no fault of its peers."""
    return error.__cause__ is not None and _errno(error.__cause__) in _REMEDIES


def _errno(error: BaseException) -> int:
    """Number of an error of the operating system, also where only its text is left; 0 if there is none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if "start new thread" in str(error):
        return errno.EAGAIN
    return next((number for number in _REMEDIES if os.strerror(number) in str(error)), 0)
