"""Addresses of this host, and which of them are the two ends of one cable.

They are read with ``getifaddrs``, which every libc has, so that no program has to be installed on every host.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections import defaultdict
from ipaddress import IPv4Address, IPv4Interface
from typing import TYPE_CHECKING, Final

from weft.probing.measurements import MeasuredCable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_ADDRESSES: Final = 256
"""Of one host; further ones are not looked at."""

_UP: Final = 0x1
_LOOPBACK: Final = 0x8
_HOST_PREFIX: Final = 32
_ENDS: Final = 2


class _Address(ctypes.Structure):
    _fields_ = (("family", ctypes.c_uint16), ("port", ctypes.c_uint16), ("bytes", ctypes.c_uint8 * 4))


class _Entry(ctypes.Structure):
    pass


_Entry._fields_ = (
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_Address)),
    ("mask", ctypes.POINTER(_Address)),
    ("far", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
)


def own_addresses() -> list[str]:
    """IPv4 addresses of this host with the length of their prefix, ``10.0.0.1/24``; loopback left out."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if libc.getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "getifaddrs")
    try:
        return sorted(set(_read(first)))[:MAX_ADDRESSES]
    finally:
        libc.freeifaddrs(first)


def _read(entry: ctypes._Pointer[_Entry]) -> Iterator[str]:
    while bool(entry):
        one = entry.contents
        ipv4 = one.address and one.address.contents.family == socket.AF_INET
        if ipv4 and one.mask and one.flags & _UP and not one.flags & _LOOPBACK:
            address = IPv4Address(bytes(one.address.contents.bytes))
            mask = IPv4Address(bytes(one.mask.contents.bytes))
            yield f"{address}/{int(mask).bit_count()}"
        entry = one.next


def find_cables(addresses: Sequence[Sequence[str]]) -> tuple[MeasuredCable, ...]:
    """Subnets that exactly two hosts are in.

    Parameters
    ----------
    addresses
        Of each host, as `own_addresses` gives them. An address that several hosts have, as bridges of
        containers do, joins nobody.

    Examples
    --------
    >>> find_cables([["10.1.0.1/30", "10.9.0.1/16"], ["10.1.0.2/30", "10.9.0.2/16"], ["10.9.0.3/16"]])
    (MeasuredCable(hosts=(0, 1), addresses=('10.1.0.1', '10.1.0.2')),)
    """
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for host, texts in enumerate(addresses):
        for text in texts:
            one = IPv4Interface(text)
            if one.network.prefixlen < _HOST_PREFIX:
                found[str(one.network)].setdefault(host, str(one.ip))
    cables = [
        MeasuredCable((a, b), (ends[a], ends[b]))
        for ends in found.values()
        if len(ends) == _ENDS
        for a, b in [sorted(ends)]
        if ends[a] != ends[b]
    ]
    return tuple(sorted(cables))
