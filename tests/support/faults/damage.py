"""Damage to what one rank sends another, between the library and the network.

The library gets one end of a socket pair; threads of the same process carry bytes between the other end and
the real connection, and do to them, once, what networks, memory and cables do.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from support.jobs import PATIENCE

ENDINGS = ("cut", "reset")
KINDS = ("flip", "drop", "repeat", "swap", "replay", *ENDINGS)
_BITS_WITHIN = 4096
_READ_BYTES = 256 << 10
_QUIET_S = 0.1 * PATIENCE
_LONGEST_S = 10.0


@dataclass(frozen=True)
class Damage:
    """What happens to one direction of one connection.

    Parameters
    ----------
    kind
        ``flip``: some bits change. ``drop``: bytes are missing. ``repeat``: bytes come twice. ``swap``: two
        stretches change places. ``replay``: earlier bytes come in the place of later ones. ``cut``: the
        connection ends, as if the peer had closed it. ``reset``: it breaks.
    rank
        Whose sending is damaged.
    at
        First byte, counted from the first that the connection carries.
    length
        How many bytes; ignored where the connection ends.
    back
        How many bytes earlier, for ``replay``.
    bits
        How many change, for ``flip``.
    seed
        Of the choice of these bits.
    """

    kind: str
    rank: int
    at: int
    length: int = 1
    back: int = 0
    bits: int = 1
    seed: int = 0

    @property
    def touched(self) -> int:
        """Bytes that have to be there before anything can be done."""
        return {"flip": _BITS_WITHIN, "swap": 2 * self.length}.get(self.kind, self.length)

    def apply(self, data: bytes, earlier: bytes = b"") -> bytes:
        """The bytes from `at` on, changed; at the end of all these may be fewer than wanted.

        Parameters
        ----------
        earlier
            What was sent before.
        """
        size = self.length
        if self.kind == "flip":
            return self._flip(data)
        if self.kind == "drop":
            return data[size:]
        if self.kind == "repeat":
            return data[:size] + data
        if self.kind == "swap":
            return data[size : 2 * size] + data[:size] + data[2 * size :]
        start = len(earlier) - self.back
        return (earlier + data)[start : start + size] + data[size:]

    def _flip(self, data: bytes) -> bytes:
        changed = bytearray(data)
        within = 8 * min(len(data), _BITS_WITHIN)
        for bit in random.Random(self.seed).sample(range(within), min(self.bits, within)):
            changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)


class Pump:
    """Carries bytes between the library and a connection, and damages what leaves.

    Parameters
    ----------
    connection
        Owned from here on.
    damage
        None to leave everything as it is.
    """

    def __init__(self, connection: socket.socket, damage: Damage | None) -> None:
        self.inner, self._outer = socket.socketpair()
        self.inner.setblocking(False)
        connection.setblocking(True)
        self._connection, self._damage = connection, damage
        self.done = False
        self._open = 2
        self._read_all = threading.Event()
        self._carried_out = threading.Event()
        self._lock = threading.Lock()
        for target in (self._carry_out, self._carry_in):
            threading.Thread(target=target, daemon=True).start()

    def was_damaged(self) -> bool:
        """Whether the damage was done, once all that the library has sent was carried."""
        self._carried_out.wait(_LONGEST_S)
        return self.done

    def _carry_out(self) -> None:
        with suppress(OSError):
            goes_on = self._damage is None or self._carry_damaged(self._damage)
            while goes_on and (data := self._outer.recv(_READ_BYTES)):
                self._connection.sendall(data)
        self._carried_out.set()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        self._end_one()

    def _carry_damaged(self, damage: Damage) -> bool:
        """Carry all that comes before the damage, and do that; whether anything can be sent afterwards."""
        earlier = self._carry_until(damage.at)
        if damage.kind in ENDINGS:
            self.done = True
            self._end_connection(damage.kind)
            return False
        data = b""
        while len(data) < damage.touched and not (data and self._is_quiet()):
            if not (more := self._outer.recv(damage.touched - len(data))):
                break
            data += more
        changed = damage.apply(data, earlier)
        self.done = changed != data
        self._connection.sendall(changed)
        return True

    def _carry_until(self, count: int) -> bytes:
        carried = b""
        while len(carried) < count and (data := self._outer.recv(min(_READ_BYTES, count - len(carried)))):
            self._connection.sendall(data)
            carried += data
        return carried

    def _is_quiet(self) -> bool:
        """Whether the library sends no more for now: it may wait for an answer to what is held back here."""
        self._outer.settimeout(_QUIET_S)
        try:
            return not self._outer.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._outer.settimeout(None)

    def _end_connection(self, kind: str) -> None:
        if kind == "reset":
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # The other thread must not be reading a descriptor that is closed, and may be another's by then.
            self._connection.shutdown(socket.SHUT_RD)
            self._read_all.wait(_LONGEST_S)
            self._connection.close()
        self._outer.shutdown(socket.SHUT_RDWR)

    def _carry_in(self) -> None:
        with suppress(OSError):
            while data := self._connection.recv(_READ_BYTES):
                self._outer.sendall(data)
        self._read_all.set()
        with suppress(OSError):
            self._outer.shutdown(socket.SHUT_WR)
        self._end_one()

    def _end_one(self) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._connection.close()
                self._outer.close()


def route_through_pumps(damage: Damage | None) -> list[Pump]:
    """Let the data connections of the next job in this process go through pumps; the first has the damage."""
    from weft.runtime.transport import connect
    from weft.runtime.transport.tcp_connections import HEARTBEATS

    connect_peers, pumps = connect.connect_peers, list[Pump]()

    def connecting(*words: Any, **named: Any) -> dict[Any, socket.socket]:
        found = connect_peers(*words, **named)
        for line in sorted(found):
            if line.purpose != HEARTBEATS:
                pumps.append(Pump(found[line], damage if not pumps else None))
                found[line] = pumps[-1].inner
        connect.connect_peers = connect_peers
        return found

    connect.connect_peers = connecting
    return pumps
