"""One connection of a browser: bounded in number and time, and errors of HTTP itself answered in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from weft import limits
from weft.studio.api_bodies import Problem
from weft.studio.lingering_transport import LingeringTransport

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

REQUEST_S: Final = 10.0
"""Seconds in which the head of a request has to arrive, and its body once more.

So long a connection that was refused stays open for what its client still sends, and in each such time a
client has to read on while an answer waits to be sent.
"""

_MOST_DROPPED_BYTES: Final = 16 << 20
_MOST_LINGERING: Final = 4 * limits.MAX_STUDIO_CONNECTIONS
"""With more connections than this, one that is refused is closed at once, so that files do not run out."""


class StudioConnection(H11Protocol):
    """HTTP as uvicorn speaks it, with deadlines for heads of requests and for reading, and few connections.

    An answer that comes before the end of its request is read by the client all the same, because the
    connection is closed in two steps (`LingeringTransport`).
    """

    _deadline: asyncio.TimerHandle | None = None
    _socket: LingeringTransport

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse a connection too many."""
        self._socket = LingeringTransport(
            transport, self._expects_more, linger_s=REQUEST_S, most_bytes=_MOST_DROPPED_BYTES
        )
        super().connection_made(self._socket)
        if len(self.connections) > limits.MAX_STUDIO_CONNECTIONS:
            self._answer(429, "Too Many Requests", "too many connections are open", "Try again in a second.")
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Read on; while no request is complete, the deadline stays."""
        if self._socket.is_lingering:
            self._socket.drop(data)
            return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._socket.forget()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def pause_writing(self) -> None:
        """Hear that much waits to be sent; whoever answers a request waits until it has been read."""
        super().pause_writing()
        self._socket.watch_sending()

    def resume_writing(self) -> None:
        """Hear that most of it has been sent."""
        super().resume_writing()
        self._socket.trust_sending()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request."""
        self._answer(400, "Bad Request", msg.rstrip(".").lower(), "Send a request of HTTP/1.1.")

    def shutdown(self) -> None:
        """End with the studio, which waits for no client that was refused."""
        if self._socket.is_lingering:
            self._socket.abort()
        else:
            super().shutdown()

    def _expects_more(self) -> bool:
        """Whether a request has begun that has not been read to its end."""
        return self.conn.their_state is h11.SEND_BODY

    def _watch(self) -> None:
        """Keep a deadline exactly while the head of a request is awaited."""
        if self._is_answering and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not self._is_answering and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self._close)

    def _close(self) -> None:
        self._deadline = None
        if not self._is_answering and not self._socket.is_closing():
            self._socket.close()

    def _answer(self, status: int, phrase: str, error: str, what_to_do: str) -> None:
        body = msgspec.json.encode(Problem(error, what_to_do))
        head = (
            f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self._socket.write(head.encode() + body)
        if len(self.connections) > _MOST_LINGERING:
            self._socket.close()
            return
        self._socket.linger()
        if self._is_answering:  # Garbage in a body: who waits for the rest of it is told that none comes.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
