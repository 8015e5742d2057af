"""Ports for jobs of tests, which no outgoing connection of another test can take."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

_LOWEST = 10_000
_ATTEMPTS = 1000


def free_port(count: int = 1) -> int:
    """Return the first of so many neighbouring free ports of loopback.

    They lie below those that the kernel gives to outgoing connections: one of these could be taken between
    the look and the start of the job.
    """
    span = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii")
    above = int(span.split()[0]) - count
    for _ in range(_ATTEMPTS):
        # Not of `random`, whose seed is the same in all tests of hypothesis.
        first = _LOWEST + secrets.randbelow(above - _LOWEST)
        if all(_is_free(first + place) for place in range(count)):
            return first
    msg = f"no {count} neighbouring ports of 127.0.0.1 are free from {_LOWEST} to {above}"
    raise AssertionError(msg)


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
