"""Resolve host names with a deadline, which the lookup of the system does not have."""

from __future__ import annotations

import socket
import string
from contextlib import suppress
from typing import Any, Final

from weft.runtime.foreign_calls import call_within

Where = tuple[int, Any]
"""Family and socket address."""

_ADDRESS: Final = frozenset(string.ascii_letters + string.digits + ".:%_-")
"""Characters that addresses are written with, those with the name of an interface too; names are as well."""


def look_up(name: str, port: int, timeout: float, *, listens: bool = False) -> list[Where]:
    """Addresses of a host, at least one.

    An address is read at once. A name is looked up in a thread of its own, because nothing can interrupt the
    system while it waits for a name server; after the deadline the thread is left to itself.

    Raises
    ------
    TimeoutError
        Nobody has answered in time.
    OSError
        There is no such name.
    """
    flags = socket.AI_PASSIVE if listens else 0
    if name and _ADDRESS.issuperset(name):
        with suppress(OSError):  # it is no address, so it is a name
            # As bytes: Python would load its tables for names of other alphabets to encode text.
            return _ask(name.encode("ascii"), port, flags | socket.AI_NUMERICHOST)
    try:
        return call_within(timeout, f"look up {name}", lambda: _ask(name, port, flags))
    except TimeoutError:
        msg = f"no name server has said within {timeout:.1f} s where {name} is; give its address instead"
        raise TimeoutError(msg) from None


def _ask(name: str | bytes, port: int, flags: int) -> list[Where]:
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise OSError(f"{name!r} is no host name") from error
    return [(family, where) for family, _, _, _, where in found]
