"""Connections between hosts, and timed flows over them.

A flow is a stream of zeros that ends with a one. It lasts as long as its round, not for so many bytes: flows
that share a bottleneck are slow together, and none of them is left to run alone at the end. The receiver
counts, from when the round has settled until its time is over.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.errors import PeerLost, TimedOut
from weft.probing.measurements import Flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Connections = dict[tuple[int, int], socket.socket]
    """By the host at the other end, and the cable."""

_CHUNK: Final = bytes(256 << 10)
_END: Final = b"\x01"
_READ_BYTES: Final = 1 << 20
_UNSENT_BYTES: Final = 128 << 10
"""What a sender may have queued in the kernel: all of it still has to drain when the round is over."""

_SETTLING: Final = 0.3
"""Part of a round that is not counted: connections find their speed, queues fill."""

_GRACE_S: Final = 20.0
_TCP_NOTSENT_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", 25)


def prepare(connection: socket.socket) -> None:
    """Keep queues of a connection short."""
    connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


class _End:
    """The end of one connection on this host, in one round; it may send, receive, or both."""

    def __init__(self, connection: socket.socket, peer: int) -> None:
        self.connection, self.peer = connection, peer
        self.sending: Flow | None = None
        self.receiving: Flow | None = None
        self._left = 0
        self._marks: list[tuple[float, int]] = []

    def send_at_most(self, flow: Flow, size_bytes: int) -> None:
        self.sending, self._left = flow, size_bytes

    @property
    def events(self) -> int:
        return selectors.EVENT_WRITE * (self.sending is not None) | selectors.EVENT_READ * (
            self.receiving is not None
        )

    def push(self, *, over: bool) -> None:
        """Send more, or the end; sends nothing where there is no room."""
        with suppress(BlockingIOError):
            if over or not self._left:
                self.connection.send(_END)
                self.sending = None
            else:
                self._left -= self.connection.send(memoryview(_CHUNK)[: self._left])

    def pull(self, into: bytearray, elapsed: float) -> None:
        """Count what has come."""
        with suppress(BlockingIOError):
            count = self.connection.recv_into(into)
            if not count:
                raise ConnectionResetError
            total = self._marks[-1][1] if self._marks else 0
            self._marks.append((elapsed, total + count))
            if into[count - 1] == _END[0]:
                self.receiving = None

    def rate(self, seconds: float) -> float:
        """Bytes per second between settling and the end; of all that came where it came sooner."""
        times, totals = zip((0.0, 0), *self._marks, strict=True)
        window = _SETTLING * seconds, min(seconds, times[-1])
        if window[0] >= window[1]:
            return float(totals[-1] / max(times[-1], 1e-6))
        # What comes after a pause was on its way during it, as far as the others that share a link can tell.
        before, after = np.interp(window, times, totals)
        return float(max(after - before, 1.0) / (window[1] - window[0]))


def run_flows(
    me: int,
    connections: Connections,
    flows: Iterable[Flow],
    *,
    seconds: float,
    max_bytes: int,
    leaders: Sequence[int],
) -> dict[Flow, float]:
    """Send and receive what concerns this host, and return the rates of what it received.

    Parameters
    ----------
    me
        This host.
    connections
        To the others.
    flows
        Of this round, all of them; it has just begun.
    seconds
        How long senders send.
    max_bytes
        After which a sender stops earlier.
    leaders
        Rank that speaks for each host, for messages.

    Raises
    ------
    TimedOut, PeerLost
        If a host does not answer any more.
    """
    began = time.monotonic()
    ends: dict[tuple[int, int], _End] = {}
    wanted: dict[Flow, _End] = {}
    for flow in flows:
        if me not in flow[:2]:
            continue
        way = (flow.dst if flow.src == me else flow.src, flow.cable)
        end = ends.setdefault(way, _End(connections[way], way[0]))
        if flow.src == me:
            end.send_at_most(flow, max_bytes)
        else:
            end.receiving = flow
            wanted[flow] = end
    buffer = bytearray(_READ_BYTES)
    with selectors.DefaultSelector() as selector:
        for end in ends.values():
            selector.register(end.connection, end.events, end)
        while selector.get_map():
            if time.monotonic() - began > seconds + _GRACE_S:
                late = {leaders[key.data.peer] for key in selector.get_map().values()}
                raise TimedOut("probe", round(time.monotonic() - began, 1), late, "data does not arrive")
            for key, events in selector.select(_GRACE_S):
                _serve(key.data, events, time.monotonic() - began, seconds, buffer, leaders)
                if not key.data.events:
                    selector.unregister(key.fileobj)
                elif key.data.events != key.events:
                    selector.modify(key.fileobj, key.data.events, key.data)
    return {flow: end.rate(seconds) for flow, end in wanted.items()}


def _serve(
    end: _End, events: int, elapsed: float, seconds: float, buffer: bytearray, leaders: Sequence[int]
) -> None:
    try:
        if events & selectors.EVENT_WRITE:
            end.push(over=elapsed >= seconds)
        if events & selectors.EVENT_READ:
            end.pull(buffer, elapsed)
    except OSError as error:
        raise PeerLost(leaders[end.peer], op="probe") from error


def ping(
    me: int, connections: Connections, flow: Flow, *, times: int, leaders: Sequence[int]
) -> float | None:
    """Seconds of the fastest of some small messages, one way; None where others measure."""
    if me not in flow[:2]:
        return None
    first = flow.src == me
    peer = flow.dst if first else flow.src
    connection = connections[peer, flow.cable]
    fastest = float("inf")
    connection.settimeout(_GRACE_S)
    try:
        for _ in range(times):
            began = time.perf_counter()
            if first:
                connection.sendall(_END)
            if not connection.recv(1):
                raise ConnectionResetError(errno.ECONNRESET, "the peer closed the connection")
            if not first:
                connection.sendall(_END)
            fastest = min(fastest, time.perf_counter() - began)
    except TimeoutError as error:
        raise TimedOut("probe", _GRACE_S, [leaders[peer]], "a small message does not arrive") from error
    except OSError as error:
        raise PeerLost(leaders[peer], op="probe") from error
    finally:
        connection.setblocking(False)
    return fastest / 2 if first else None
